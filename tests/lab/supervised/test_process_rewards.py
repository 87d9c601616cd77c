"""Process rewards: judged steps as data, the model trained on them, its scores in a run; and the
implicit reward model, trained on outcomes."""

import argparse
import json

import pytest
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

import rlzoo
from helpers.worlds import make_world
from rlzoo import RlzooError
from rlzoo.cli.verb import perform
from rlzoo.errors import DataError
from rlzoo.lm.prompts import PromptFormat
from rlzoo.mdp.batch import right_pad
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.supervised import implicit_reward, process_reward, reward, sft
from rlzoo_lab.supervised.pairs import Solution, read_solutions, read_verdicts
from rlzoo_lab.supervised.reward_models import TOKENS, encode_steps, load, make, score_steps
from rlzoo_lab.supervised.tiny import build_tokenizer
from rlzoo_zoo.rewards.process_reward_model import ends_of, weighed

USER = {"role": "user", "content": "hi"}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parsed(*words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    reward.add_arguments(parser)
    return parser.parse_args([*map(str, words)])


def steps_file(path, n=160):
    """A step of one letter is right where it is a vowel."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    for i in range(n):
        letters = [chr(97 + x) for x in torch.randint(26, (3,), generator=draw).tolist()]
        letters[i % 3] = "aeiou"[i % 5]
        labels = [x in "aeiou" for x in letters]
        rows.append({"prompt": f"{letters[0]}{i}:", "completions": letters, "labels": labels})
    return write(path, rows)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, model_dir):
    """(folder, report) of a process reward model whose steps end with a semicolon."""
    place = tmp_path_factory.mktemp("process")
    data = steps_file(place / "steps.jsonl")
    words = [data, "--per-step", "--separator", ";", "--model", model_dir, "--out", place / "model"]
    arguments = parsed(*words, "--epochs", "8", "--lr", "0.02", "--batch", "16", "--json")
    assert perform(reward, arguments) == 0
    return place / "model", json.loads((place / "model" / "report.json").read_text())


# ---------------------------------------------------------------- data

GOOD = {"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}


def test_solutions_are_prompt_steps_and_labels(tmp_path):
    chat = {**GOOD, "prompt": [USER], "labels": [1, 0]}
    file = write(tmp_path / "a.jsonl", [GOOD, chat])
    want = [("p", ("a", "b"), (True, False)), ([USER], ("a", "b"), (True, False))]
    assert read_solutions(file).rows == want
    names = {"completions": "steps", "labels": "ok"}
    other = write(tmp_path / "b.jsonl", [{"prompt": "p", "steps": ["a"], "ok": [False]}])
    assert read_solutions(other, names).rows == [("p", ("a",), (False,))]


@pytest.mark.parametrize(
    "change",
    [
        {"completions": "ab"},
        {"completions": []},
        {"completions": ["a", " "]},
        {"labels": [True]},
        {"labels": True},
        {"labels": [True, "+"]},
        {"labels": [True, -1]},
        {"prompt": ""},
    ],
)
def test_a_bad_solution_is_named(tmp_path, change, golden):
    file = write(tmp_path / "a.jsonl", [GOOD, {**GOOD, **change}])
    with golden.refuses(DataError):
        read_solutions(file)


def test_verdicts_are_prompt_response_and_label(tmp_path, golden):
    said = [{"role": "assistant", "content": "b"}]
    rows = [{"prompt": "p", "completion": "a", "label": True},
            {"prompt": [USER], "completion": said, "label": 0}]  # fmt: skip
    assert read_verdicts(write(tmp_path / "a.jsonl", rows)).rows == [
        ("p", "a", True),
        ([USER], "b", False),
    ]
    with golden.refuses(DataError):
        read_verdicts(write(tmp_path / "b.jsonl", [{**rows[0], "label": 0.5}]))


@pytest.mark.parametrize(
    "words",
    [
        ["--per-step", "--chosen", "x"],
        ["--separator", ";"],
        ["--per-step", "--beta", "1"],
        ["--implicit", "--beta", "0"],
    ],
)
def test_what_another_kind_reads_is_refused(tmp_path, words, golden):
    with golden.refuses(RlzooError):
        reward.run(parsed("nowhere.jsonl", "--model", "nano", "--out", tmp_path / "out", *words))


# ---------------------------------------------------------------- the model


def test_rows_are_read_as_trls_trainer_reads_them(golden):
    """Step and separator are encoded apart; the label sits at the separator's last token."""
    tokenizer = build_tokenizer()
    row = encode_steps(tokenizer, "ab:", ["x", "yz"], ";\n")
    assert tokenizer.decode(row.ids) == "ab:x;\nyz;\n"
    assert row.ends == [5, 9]
    short = encode_steps(tokenizer, "ab:", ["x", "yz"], ";\n", 7)
    assert tokenizer.decode(short.ids) == "ab:x;\ny"
    assert short.ends == [5]
    tokenizer.bos_token = "<eos>"
    assert encode_steps(tokenizer, "ab:", ["x"], ";").ids[0] == tokenizer.eos_token_id
    with golden.refuses(RlzooError):
        encode_steps(tokenizer, [USER], ["x"], ";")
    tokenizer.chat_template = "{% for m in messages %}u|{{ m.content }}\n{% endfor %}a|"
    ids = encode_steps(tokenizer, [USER], ["x"], ";").ids
    assert tokenizer.decode(ids) == "<eos>u|hi\na|x;".removeprefix("<eos>")


@pytest.mark.process
def test_it_learns_which_steps_are_right(trained):
    _, report = trained
    assert report["solutions"] == {"trained": 144, "held_out": 16, "bad_rows": 0, "too_long": 0}
    assert report["separator"] == ";"
    held = report["held_out"]
    assert held["steps"] == 48
    assert held["accuracy"] > 0.95 > held["share_right"]
    assert held["accuracy_of_right"] > 0.9
    assert held["accuracy_of_wrong"] > 0.9
    assert held["first_error_found"] > 0.9


def test_transformers_alone_scores_alike(trained):
    folder, _ = trained
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ours, own = load(folder, "cpu", kind=TOKENS)
    rows = [
        encode_steps(own, "q:", ["a", "x", "e"], ";"),
        encode_steps(own, "a longer prompt:", ["b"], ";"),
    ]
    text = tokenizer("q:a;x;e;", return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        want = model(**text).logits.softmax(-1)[0, [3, 5, 7], 1]
    found = score_steps(ours, rows)
    torch.testing.assert_close(torch.tensor(found[0]), want)
    assert found[0][0] > 0.9 > 0.1 > found[0][1]
    alone = score_steps(ours, rows[:1])[0]
    assert alone == pytest.approx(found[0], abs=1e-6)  # padding moves nothing
    assert score_steps(ours, rows, batch=1)[1] == pytest.approx(found[1], abs=1e-6)


def test_counts_of_a_report_by_hand():
    held = process_reward.judged([[0.9, 0.2, 0.6], [0.8]], [[1, 0, 0], [1]])
    assert held["accuracy"] == 0.75
    assert held["share_right"] == held["accuracy_of_wrong"] == 0.5
    assert held["accuracy_of_right"] == held["first_error_found"] == 1
    late = process_reward.judged([[0.9, 0.9, 0.1]], [[1, 0, 0]])
    assert late["first_error_found"] == 0


def test_steps_that_a_run_would_cut_are_counted_and_told():
    solutions = [Solution("p", ("a\nb", "c", "d\n", "\n e"), (True,) * 4)]
    assert process_reward.of_several(solutions, "\n") == 1
    assert process_reward.of_several(solutions, ";") == 0
    held = process_reward.judged([[0.9, 0.2]], [[1, 0]])
    report = {"held_out": held, "separator": "\n", "steps_of_several": 1, "lr": 1e-3, "epochs": 1}
    told = list(process_reward._shown(report))
    assert (
        "1 steps contain the separator '\\n'; a run splits each of them into several steps" in told
    )
    assert len(list(process_reward._shown({**report, "steps_of_several": 0}))) == len(told) - 1


def test_how_often_a_right_response_has_more_is_a_share_of_all_pairs():
    scores, right = [0.3, 0.3, -1.0, 2.0, 0.3, 0.1], [True, False, False, True, True, False]
    good, bad = ([s for s, x in zip(scores, right, strict=True) if x is y] for y in (True, False))
    pairs = [(g > b) + 0.5 * (g == b) for g in good for b in bad]
    assert implicit_reward.judged(scores, right)["above"] == sum(pairs) / len(pairs)
    many = 100_000  # 2.5 billion pairs
    found = implicit_reward.judged(list(range(many)), [i % 2 == 1 for i in range(many)])
    assert found["above"] == pytest.approx(0.5, abs=1e-4)


def test_each_kind_of_reward_model_refuses_the_other(trained, tmp_path, model_dir, zoo, golden):
    folder, _ = trained
    with golden.refuses(RlzooError):
        zoo.rewards["reward_model"].refuse({"path": str(folder), **OTHERS, "max_length": None})
    with golden.refuses(RlzooError):
        zoo.rewards["process_reward_model"].refuse({**PRM, "path": str(model_dir)})
    with golden.refuses(ValueError):
        zoo.rewards["process_reward_model"].refuse({**PRM, "path": str(folder), "separator": ""})
    model, tokenizer = make(folder, TOKENS)
    model.config.num_labels = 3
    model.config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with golden.refuses(RlzooError):
        zoo.rewards["process_reward_model"].refuse({**PRM, "path": str(tmp_path)})


OTHERS = {"batch": 64, "dtype": "float32", "device": "auto"}
PRM = {**OTHERS, "separator": None, "form": "step", "temperature": 0.1, "max_length": None}

# ---------------------------------------------------------------- the reward


def columns(responses, *, holes=False):
    texts = [[*response, ""] for response in responses]  # the last action is EOS
    mask = torch.zeros(len(texts), 12)
    for i, row in enumerate(texts):
        mask[i, : len(row)] = 1
        if holes:  # an observation in front
            mask[i] = mask[i].roll(2)
    return {
        "prompts": ["q:"] * len(texts),
        "messages": [[USER]] * len(texts),
        "responses": responses,
        "response_tokens": texts,
        "response_mask": mask,
    }


def test_a_step_is_paid_where_it_ends(trained, zoo):
    folder, _ = trained
    component = zoo.rewards["process_reward_model"]
    ours, own = load(folder, "cpu", kind=TOKENS)
    given = columns(["a;xx;e", "x;", "a; ;e;", "", ";"])
    found = component(given, path=str(folder))
    texts = (["a", "xx", "e"], ["x"], ["a", "e"])
    three, one, two = score_steps(ours, [encode_steps(own, "q:", steps, ";") for steps in texts])
    want = torch.zeros(5, 12)
    want[0, 1], want[0, 4], want[0, 6] = (torch.tensor(x) for x in three)  # the last by EOS
    want[1, 1] = one[0]
    want[2, 1], want[2, 5] = (torch.tensor(x) for x in two)  # white space is no step
    torch.testing.assert_close(found, want)
    moved = component(columns(["a;xx;e"], holes=True), path=str(folder))
    torch.testing.assert_close(moved[0], want[0].roll(2))
    least = component(given, path=str(folder), form="min", temperature=0.5)
    r = [2 * p - 1 for p in three]
    w = torch.tensor([-x / 0.5 for x in r]).softmax(0)
    torch.testing.assert_close(least[0, [1, 4, 6]], w * torch.tensor(r))
    short = component(given, path=str(folder), max_length=5)  # "q:a;x": the second step is unread
    torch.testing.assert_close(short[0], torch.where(torch.arange(12) == 1, want[0], 0))


def test_the_least_step_decides_as_the_temperature_falls():
    p = torch.tensor([0.9, 0.3, 0.8])
    assert weighed(p, "min", 1e-3).sum().item() == pytest.approx(-0.4)
    assert weighed(p, "min", 1e6).sum().item() == pytest.approx((2 * p - 1).mean().item(), abs=1e-4)


def test_a_separator_may_lie_across_tokens():
    assert ends_of(["a\n", "\nb", "c\n\nd\n\n", ""], "\n\n") == [1, 2, 2]
    assert ends_of(["a", ""], ";") == []


def test_a_run_reads_it_as_dense_scores(trained, zoo, words, tmp_path, golden):
    folder, _ = trained
    asked = [*words, f"rewards.process_reward_model.path={folder}", "rewards.verifier.weight=0"]
    run = rlzoo.run("ppo_gae", [*asked, f"run.dir={tmp_path / 'run'}", "train.steps=1"], zoo=zoo)
    assert "eval/reward/process_reward_model" in run.metrics[0]
    with golden.refuses(RlzooError):
        make_plan(compose(["recipe=ppo_gae", *words, "rewards.process_reward_model.path=/nil"],
                          zoo), zoo)  # fmt: skip


# ---------------------------------------------------------------- the implicit one


@pytest.mark.process
def test_an_implicit_reward_learns_what_is_right(tmp_path, model_dir, zoo, words, golden):
    """Its log-ratio, as the column reads it, tells right from wrong; `prime` runs by it."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    for i in range(240):
        right = i % 2 == 0
        letters = "".join(chr(98 + x) for x in torch.randint(3, (3,), generator=draw).tolist())
        said = letters[:1] + ("a" if right else "z") + letters[1:]
        rows.append({"prompt": f"{i}:", "completion": said, "label": right})
    data = write(tmp_path / "rows.jsonl", rows)
    asked = [data, "--implicit", "--model", model_dir, "--out", tmp_path / "phi", "--beta", "0.5"]
    asked += ["--epochs", "6", "--lr", "0.02", "--batch", "16"]
    report = reward.run(parsed(*asked)).document
    assert report["held_out"]["accuracy"] > 0.9
    assert report["held_out"]["above"] > 0.95
    assert report["beta"] == 0.5

    asked = [f"model.path={model_dir}", "device=cpu", "estimator=prime", "rollout.samples=2",
             f"columns.implicit_rewards.path={tmp_path / 'phi'}", "kl.place=none"]  # fmt: skip
    world = make_world(zoo, model_dir, *asked)
    reader = PromptFormat(world.policy.tokenizer)
    read = [sft.encode(reader, "17:", text) for text in ("bacd", "bzcd")]
    ids, seen = right_pad([r for _, r in read], 0)
    prompts, there = right_pad([p for p, _ in read], 0)
    mask = seen.float()
    found = zoo.columns["implicit_rewards"](
        {"reference": world.engine.reference, "prompt_ids": prompts, "prompt_mask": there.float(),
         "response_ids": ids, "response_mask": mask, "response_attention": mask},
        path=str(tmp_path / "phi"), beta=0.5,
    )  # fmt: skip
    good, bad = found.sum(1).tolist()
    assert good > 0 > bad

    own = [f"columns.implicit_rewards.path={tmp_path / 'phi'}", f"run.dir={tmp_path / 'run'}"]
    run = rlzoo.run("prime", [*words, *own, "train.steps=1"], zoo=zoo)
    assert run.summary["steps"] == 1
    with golden.refuses(RlzooError):
        make_plan(compose(["recipe=prime", "columns.implicit_rewards.path=/nil"], zoo), zoo)
