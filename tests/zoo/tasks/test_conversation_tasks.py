"""The tasks that are conversations, and the base that has seen them."""

import json
import sys

import pytest
import torch

import rlzoo
from rlzoo.errors import RlzooError
from rlzoo.plugin.border import needs_of
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.kit import checks
from rlzoo_lab.supervised import warm_start as base
from rlzoo_lab.supervised.tiny import build_tokenizer
from rlzoo_zoo.tasks.hi_lo import HiLo
from rlzoo_zoo.tasks.local_search import LocalSearch


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def play(task, answer, said):
    """The turns that follow when the policy says `said`, and whether it is over."""
    turns = []
    for text in said:
        turns.append(text)
        told = {"turns": [turns], "answers": [answer]}
        (heard,) = task.respond(*(told[n] for n in needs_of(task.respond)))
        if heard is None:
            return turns, True
        turns.append(heard)
    return turns, False


def score(task, turns, answer, terminated=True):
    return task.score([turns], [answer], torch.tensor([terminated])).item()


# ---------------------------------------------------------------- hi_lo


def test_hi_lo_answers_by_hand():
    task = HiLo()
    turns, over = play(task, "10", ["8", "12", "10"])
    assert (turns, over) == (["8", " hi ", "12", " lo ", "10"], True)
    assert score(task, turns, "10") == 1
    assert score(task, turns, "10", terminated=False) == 0
    turns, over = play(task, "10", ["8", "8", "9", "9"])
    assert over  # four guesses
    assert turns == ["8", " hi ", "8", " hi ", "9", " hi ", "9"]
    assert score(task, turns, "10") == 0
    assert score(task, turns[:-1], "10") == 0
    for text in ("", "x", "0", "16", "010", "²", "10.", " 10", "1000"):
        assert play(task, "10", [text]) == ([text, " no "], False)


def test_halving_finds_every_number_and_wrong_play_none():
    task = HiLo()
    for number in range(1, 16):
        example = rlzoo.Example("1-15:", str(number), number)
        for seed in range(5):
            right, wrong = task.demonstrate(example, rng(seed))
            assert play(task, str(number), right[::2]) == (right, True)
            assert play(task, str(number), wrong[::2]) == (wrong, True)
            assert (score(task, right, str(number)), score(task, wrong, str(number))) == (1, 0)
            assert len(wrong) == 7
    lengths = [len(task.demonstrate(e, rng())[0][::2]) for e in task.draw("train", 200, rng())]
    assert max(lengths) == 4


def test_the_state_is_the_interval_that_remains():
    task = HiLo()
    states = [[], ["8", " hi "], ["8", " lo "], ["8", " hi ", "12", " lo "], ["x", " no "]]
    keys = task.state_keys(states)
    assert keys == [(1, 15, 0), (9, 15, 1), (1, 7, 1), (9, 11, 2), (1, 15, 1)]
    assert task.state_keys([["8", " hi ", "4", " hi "]]) == [(9, 15, 2)]


# ---------------------------------------------------------------- local_search


def test_local_search_answers_by_hand():
    task = LocalSearch(facts=20)
    (example,) = task.draw("test", 1, rng())
    name, value = example.prompt[:-1], example.answer
    turns, over = play(task, value, [f"[{name}]", value])
    assert (turns, over) == ([f"[{name}]", f" {name} {value} ", value], True)
    assert score(task, turns, value) == 1
    assert score(task, turns[:1], value) == 0
    assert play(task, value, ["[qqq]"]) == (["[qqq]", " none "], False)
    assert play(task, value, ["[]"])[0][1] == " none "
    assert play(task, value, [f"so: [{name}]"])[0][1] == f" {name} {value} "
    for text in ("", value, f"{name}]", f"[{name}"):
        assert play(task, value, [text]) == ([text], True)
    turns, over = play(task, value, [f"[{name}]"] * 3)
    assert over  # the third call is one too many
    assert len(turns) == 5
    assert score(task, turns, value) == 0


def test_facts_are_made_up_from_the_seed_and_held_out_by_name():
    one, again, other = LocalSearch(), LocalSearch(), LocalSearch(seed=1)
    assert one.passages == again.passages != other.passages
    assert len({p.split()[0] for p in one.passages}) == 500
    train, test = ({e.prompt for e in one.examples[s]} for s in ("train", "test"))
    assert train.isdisjoint(test)
    assert 0.1 < len(test) / 500 < 0.3
    assert test.isdisjoint(e.prompt for e in other.examples["train"])
    shared = {e.prompt: e.answer for e in one.examples["train"]}
    pairs = [(shared[e.prompt], e.answer) for e in other.examples["train"] if e.prompt in shared]
    assert sum(a == b for a, b in pairs) < 0.1 * len(pairs)  # knowing one corpus is no help


@pytest.fixture
def library(tmp_path):
    (tmp_path / "a.txt").write_text("Mara keeps bees\nby the mill.\n\nThe mill burnt down in 1907.")
    (tmp_path / "b.txt").write_text("Otto bakes bread.")
    rows = [{"question": "When did the mill burn?", "answer": 1907}]
    rows += [{"question": f"Who bakes bread ({i})?", "answer": "Otto"} for i in range(20)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_a_folder_of_ones_own(library):
    task = LocalSearch(folder=str(library), characters=24)
    assert task.search("burnt") == " The mill burnt down in 1 "
    assert task.search("bees") == " Mara keeps bees by the m "
    assert {e.answer for s in ("train", "test") for e in task.examples[s]} == {"1907", "Otto"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda f: [p.unlink() for p in f.glob("*.txt")],
        lambda f: (f / "questions.jsonl").unlink(),
        lambda f: (f / "questions.jsonl").write_text('{"question": "a", "answer": 1}\n{"a'),
        lambda f: (f / "questions.jsonl").write_text('["question"]'),
    ],
)  # fmt: skip
def test_a_folder_that_is_none_is_refused_before_a_model_loads(zoo, library, spoil, golden):
    spoil(library)
    words = ["recipe=ppo_gae", "task=local_search", "model=turns", f"task.folder={library}"]
    with golden.refuses(RlzooError):
        make_plan(compose(words, zoo), zoo)


def test_without_bm25s_one_line_says_what_to_install(monkeypatch, golden):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with golden.refuses(RlzooError):
        LocalSearch()


# ---------------------------------------------------------------- the kit, the base


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("returns tuple", lambda self, turns: ("x",) * len(turns)),
        ("depends on the other rows", lambda self, turns: [str(len(turns))] * len(turns)),
        ("gives int", lambda self, turns: [len(t) for t in turns]),
        ("in place", lambda self, turns: [t.append("x") for t in turns]),
        ("random numbers", lambda self, turns: [str(torch.rand(())) for _ in turns]),
    ],
)
def test_the_kit_finds_environments_that_break_the_contract(zoo, monkeypatch, name, fault):
    def tried(self, turns, answers):
        return fault(self, turns)

    component = zoo.tasks["hi_lo"]
    monkeypatch.setattr(component.function, "respond", tried)
    monkeypatch.delattr(component.function, "demonstrate")  # its own play goes by `respond`
    (found,) = [r for r in checks.run_checks(component, zoo) if r.name == "answers_row_by_row"]
    assert found.passed is False
    assert name in found.message


def test_only_the_policys_turns_are_learnt():
    tokenizer = build_tokenizer()
    assert base.with_ends(["8", " hi ", "12"], ()) == ["8<eos>", " hi ", "12<eos>"]
    assert base.with_ends(["[kul]", " 7 ", "7"], ("]",)) == ["[kul]", " 7 ", "7<eos>"]
    ids, labels = base.encode(tokenizer, [("p:", ["8<eos>", " hi ", "9<eos>"]), ("1+2=", "3")])
    assert tokenizer.batch_decode(ids) == ["p:8<eos> hi 9<eos>", "1+2=3<eos><pad><pad><pad><pad>"]
    learnt = [[i for i in row if i != base.IGNORED] for row in labels.tolist()]
    assert tokenizer.batch_decode(learnt) == ["8<eos>9<eos>", "3<eos>"]


@pytest.mark.landing
def test_ppo_learns_to_search_in_a_few_steps(tmp_path):
    words = [
        "task=local_search", "model=turns", "train.steps=12", "eval.samples=128", "eval.every=0",
        "checkpoint.every=0", "device=cpu", f"run.dir={tmp_path}/run",
    ]  # fmt: skip
    run = rlzoo.run("ppo_gae", words)
    steps = [line for line in run.metrics if "turns/mean" in line]
    assert steps[0]["turns/mean"] < 1.3  # one turn is an answer, two a search and an answer
    assert run.summary["eval_before"] < 0.25
    assert run.summary["eval_after"] > run.summary["eval_before"] + 0.3
    assert steps[-1]["turns/mean"] > 1.5
