"""`rlzoo model base TASK`: a small model for a task with demonstrations, as right as asked for."""

import argparse
import json

import pytest
import torch

from rlzoo import Example, hookimpl, load_zoo
from rlzoo.errors import RlzooError, UsageError
from rlzoo_lab.supervised import base
from rlzoo_lab.supervised.warm_start import warm_start


class Letter:
    """`ä:` -> `a`; Greek letters, too.  Source: this test."""

    one_answer = True
    letters = {"ä": "a", "ö": "o", "ü": "u", "é": "e"}

    def __init__(self, *, copies: int = 1):
        self.copies = copies

    def draw(self, split, n, generator):
        keys = list(self.letters)
        picks = torch.randint(4, (n,), generator=generator).tolist()
        return [Example(f"{keys[i]}:", self.letters[keys[i]] * self.copies) for i in picks]

    def score(self, responses, answers, terminated):
        return (self.is_correct(responses, answers) & terminated.cpu()).float()

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])

    def demonstrate(self, example, generator):
        return example.answer, "x"


class Chat(Letter):
    """Prompts are messages.  Source: this test."""

    def draw(self, split, n, generator):
        examples = super().draw(split, n, generator)
        return [Example([{"role": "user", "content": e.prompt}], e.answer) for e in examples]


class Mute:
    """Demonstrates nothing.  Source: this test."""

    draw, score = Letter.draw, Letter.score


class Game(Letter):
    """The letters of a game; only the game `ä` demonstrates.  Source: this test."""

    players = {"ä": None}

    def __init__(self, *, games: list[str] = ["ä"]):  # noqa: B006
        super().__init__()
        self.letters = {game: self.letters[game] for game in games}
        if games != ["ä"]:
            self.demonstrate = None

    def draw(self, split, n, generator):
        return [Example(f"{key}:", self.letters[key]) for key in list(self.letters) * n]


class Plugin:
    @hookimpl
    def register_tasks(self, register):
        for task in (Letter, Chat, Mute, Game):
            register(task)


@pytest.fixture(autouse=True)
def plugged(monkeypatch, tmp_path):
    zoo = load_zoo([Plugin()])
    monkeypatch.setattr(base, "load_zoo", lambda: zoo)
    monkeypatch.chdir(tmp_path)


def made(*words):
    parser = argparse.ArgumentParser()
    base.add_arguments(parser)
    return base.run(parser.parse_intermixed_args([str(word) for word in words]))


FEW = ("eval.samples=32", "rollout.max_new_tokens=4", "--lr", "0.01")


def test_a_game_of_a_task_and_demonstrations_that_are_wrong(golden):
    report = made("game:ä", *FEW, "--out", "start", "--steps", "60", "--right", "0").document
    assert report["words"][0] == "task.games=[ä]"
    assert (report["right"], report["accuracy"]) == (0, 0)  # it has learned to say x
    with golden.refuses(UsageError):
        made("game:ä", "--out", "other", "--right", "2")


def test_a_game_without_a_player_has_a_line(golden):
    with golden.refuses(RlzooError):
        made("game:ö", *FEW, "--out", "start")


def test_it_stops_where_sampled_answers_are_right_often_enough(tmp_path, zoo):
    before = torch.get_rng_state()
    result = made("letter", *FEW, "--accuracy", ".4", "--out", "start", "--steps", "400")
    assert torch.equal(torch.get_rng_state(), before)
    report = json.loads((tmp_path / "start" / "report.json").read_text())
    assert result.status == 0
    assert 0.4 <= report["accuracy"] == result.document["accuracy"]
    assert report["low"] < report["accuracy"] < report["high"]
    assert 0 < report["steps"] < 400
    said, hint = result.view(None)
    assert f"held-out accuracy {report['accuracy']:.3f}" in said
    assert hint.endswith(
        "rlzoo run recipe=grpo model.path=start task=letter eval.samples=32 "
        "rollout.max_new_tokens=4 actor.lr=5e-4"
    )
    # What it said is what an evaluation of the folder says: half precision costs next to nothing.
    from rlzoo.lm.build import build_policy, world_around
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan
    from rlzoo.rollout.evaluation import evaluate

    words = ["task=letter", "model.path=start", "device=cpu", *FEW[:2]]
    recipe = compose(words, base.load_zoo(), need_recipe=False)
    world = world_around(make_plan(recipe, base.load_zoo()), build_policy(recipe.config))
    assert evaluate(world, 32)[0]["eval/accuracy"] == pytest.approx(report["accuracy"], abs=0.04)
    # Characters beyond ASCII have tokens of their own.
    assert report["characters"] == "äéöü"
    ids = world.policy.tokenizer("äéöü")["input_ids"]
    assert len(set(ids)) == 4
    assert world.policy.tokenizer.unk_token_id not in ids


def test_short_of_the_accuracy_it_is_made_and_says_so(tmp_path):
    result = made("letter", *FEW[:2], "--accuracy", ".9", "--out", "start", "--steps", "2")
    assert result.status == 1
    (note,) = result.notes
    assert note.startswith("the requested accuracy was 0.9; raise --steps")
    assert json.loads((tmp_path / "start" / "report.json").read_text())["steps"] == 2
    assert (tmp_path / "start" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["leter"],
        ["mute"],
        ["dataset"],
        ["chat"],
        ["letter", "task.copies=9"],
        ["letter", "task.copy=9"],
        ["letter", "train.steps=9"],
        ["letter", "--accuracy", "30"],
        ["letter", "--like", "nana"],
        ["nano", "--accuracy", ".3"],
    ],
)
def test_what_cannot_work_is_one_line(words, monkeypatch, tmp_path, golden):
    monkeypatch.setattr(
        "rlzoo_lab.supervised.task_base.warm_start", lambda *_: pytest.fail("it began")
    )
    with golden.refuses(RlzooError):
        made(*words, "--out", "start")
    assert not list(tmp_path.glob("*start*"))
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "mine").touch()
    with golden.refuses(UsageError):
        made(*words, "--out", "start")


def test_a_warm_start_ends_where_it_is_told_to():
    from rlzoo_lab.supervised.tiny import build_model, build_tokenizer

    tokenizer = build_tokenizer("äöüé")
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
             "num_attention_heads": 1}  # fmt: skip
    spec = {"seed": 0, "steps": 9, "batch": 2, "lr": 0.01, "right": 1.0,
            "mix": {"letter": {"task": "letter", "weight": 1.0}}}  # fmt: skip
    seen = []
    model = build_model(small, tokenizer)
    warm_start(model, tokenizer, spec, {"letter": Letter()}, lambda i, *_: seen.append(i) or i == 3)
    assert seen == [1, 2, 3]
    assert not model.training
