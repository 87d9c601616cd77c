"""`rlzoo eval`: its statistics against brute force, its samples against training's evaluation."""

import itertools
import json
import re
import textwrap
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlzoo
from rlzoo.cli import parser_of
from rlzoo.cli.verb import perform
from rlzoo.errors import RlzooError
from rlzoo.runs.folder import open_folder
from rlzoo_lab.compare.eval import command as evaluation
from rlzoo_lab.compare.eval.pass_at_k import majority_at_k, pass_at_k
from rlzoo_lab.compare.eval.policy import evaluate_policy
from rlzoo_lab.data.weights import choose
from rlzoo_lab.doctor.report.groups import groups_tab
from rlzoo_lab.view.display.run import samples

# ---------------------------------------------------------------- pass@k, maj@k

votes = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans()), min_size=1, max_size=7
)


@settings(max_examples=60, deadline=None)
@given(votes, st.data())
def test_pass_and_majority_are_the_mean_over_all_subsets(rows, data):
    rows = [(answer, good and answer is not None) for answer, good in rows]
    k = data.draw(st.integers(1, len(rows)))
    passed, won = [], []
    for subset in itertools.combinations(rows, k):
        passed.append(any(good for _, good in subset))
        counts = Counter(answer for answer, _ in subset if answer is not None)
        most = max(counts.values(), default=0)
        modal = [answer for answer, count in counts.items() if count == most]
        shares = [sum(g for a, g in subset if a == answer) / most for answer in modal]
        won.append(sum(shares) / len(shares) if shares else 0.0)
    answers, right = zip(*rows, strict=True)
    n, good = len(rows), sum(right)
    assert pass_at_k(n, good, k) == pytest.approx(sum(passed) / len(passed))
    assert majority_at_k(answers, right, k) == pytest.approx(sum(won) / len(won))


def test_majority_by_hand():
    # Of two answers that come equally often each wins half of the time; three of one win.
    assert majority_at_k(["7", "8"], [True, False], 2) == 0.5
    assert majority_at_k(["7", "7", "8"], [True, True, False], 3) == 1.0
    assert majority_at_k(["7", "8", "8"], [True, False, False], 3) == 0.0
    # What was cut off holds a place and has no vote.
    assert majority_at_k(["7", None, None], [True, False, False], 3) == 1.0
    assert majority_at_k([None, None], [False, False], 2) == 0.0


# ---------------------------------------------------------------- policies


@pytest.fixture(scope="module")
def run(model_dir, tmp_path_factory):
    place = tmp_path_factory.mktemp("eval") / "run"
    words = [
        *(f"model.path={model_dir}", "rollout.prompts=3", "rollout.samples=4", "device=cpu"),
        *("rollout.max_new_tokens=5", "train.steps=2", "train.minibatches=2", "eval.samples=8"),
        *("checkpoint.every=1", "checkpoint.best=true", "rewards=[verifier,python]"),
        *("eval.every=1", "actor.lr=0.1"),
        *("rewards.python.function=helpers.rewards_for_tests:letters", f"run.dir={place}"),
    ]
    return rlzoo.run("grpo", words)


def evaluated(run=None, *words, ks=(1,), responses=1, **more):
    """(document, rows)"""
    path = None if run is None else str(run.path)
    return evaluate_policy(path, list(words), ks=list(ks), responses=responses, **more)


def command(capsys, *argv):
    parser = parser_of("eval")
    status = perform(evaluation, parser.parse_intermixed_args([str(a) for a in argv]))
    assert status == 0
    return capsys.readouterr().out


def test_a_run_gets_the_numbers_that_it_gave_itself(run):
    document, rows = evaluated(run)
    own = run.metrics[-1]
    same = {key for key in own if re.match("eval/(?!gain)", key)}
    assert {"eval/accuracy_low", "eval/reward/python", "eval/tokens"} <= same
    assert same == set(document["metrics"])
    for key in same:
        assert document["metrics"][key] == pytest.approx(own[key], abs=1e-6), key
    assert document["own"]["eval_after"] == run.summary["eval_after"]
    assert document["own"]["eval_before"] == run.summary["eval_before"]
    assert len(rows) == 8


def test_batches_do_not_move_samples_and_more_responses_leave_the_first_ones(run):
    _, rows = evaluated(run, responses=3)
    _, cut = evaluated(run, "rollout.prompts=1", "rollout.samples=2", responses=3)
    _, once = evaluated(run, responses=1)
    texts = [(row["prompt"], row["response"]) for row in rows]
    assert texts == [(row["prompt"], row["response"]) for row in cut]
    assert texts[:8] == [(row["prompt"], row["response"]) for row in once]
    assert len({row["response"] for row in rows if row["prompt_number"] == 0}) > 1


def test_the_metrics_are_what_the_samples_say(zoo):
    words = ["model=nano", "task=addition", "device=cpu", "run.threads=1", "eval.samples=20"]
    document, rows = evaluated(None, *words, ks=(1, 2, 4), responses=6)
    found = document["metrics"]
    groups = [[r for r in rows if r["prompt_number"] == i] for i in range(20)]
    assert all(len({r["prompt"] for r in g}) == 1 and len(g) == 6 for g in groups)
    counts = [sum(r["right"] for r in g) for g in groups]
    assert 0 < sum(counts) < 120
    assert found["eval/accuracy"] == pytest.approx(sum(counts) / 120)
    assert found["eval/pass@1"] == pytest.approx(found["eval/accuracy"])
    passes = sum(pass_at_k(6, c, 4) for c in counts) / 20
    assert found["eval/pass@4"] == pytest.approx(passes)
    ordered = [found[f"eval/pass@{k}"] for k in (1, 2, 4)]
    assert ordered == sorted(ordered)
    assert ordered[0] < ordered[2]
    for name in ("accuracy", "pass@4", "maj@4"):
        value = found[f"eval/{name}"]
        assert found[f"eval/{name}_low"] < value < found[f"eval/{name}_high"], name
    assert all(r["right"] == (r["response"] == r["answer"]) for r in rows)
    assert found["eval/response_length"] == pytest.approx(sum(r["length"] for r in rows) / 120)
    assert len(document["samples"]) == 6
    assert len({s["prompt_number"] for s in document["samples"]}) == 6


def test_greedy_has_no_noise(capsys):
    base = ["model=nano", "task=addition", "device=cpu", "run.threads=1", "--prompts", 12, "--json"]
    texts = []
    for more in ([], ["rollout.temperature=3.0", "rollout.samples=1"]):
        document = json.loads(command(capsys, *base, *more, "--greedy", "--samples", 12))
        texts.append([s["response"] for s in document["samples"]])
    assert texts[0] == texts[1]
    hot = json.loads(command(capsys, *base, "rollout.temperature=3.0", "--samples", 12))
    assert [s["response"] for s in hot["samples"]] != texts[0]


TASK = """
    import torch
    from rlzoo import Example, hookimpl

    class Kind:
        '''Right is a first character that is a digit; what is voted on is its kind.'''
        def draw(self, split, n, generator):
            return [Example(f"{split[:2]}{i}", "digit", i) for i in range(n)]
        def score(self, responses, terminated):
            return (self.is_correct(responses) & terminated).float()
        def is_correct(self, responses):
            return torch.tensor([r[:1].isdigit() for r in responses])
        def extract(self, responses):
            return ["digit" if r[:1].isdigit() else "other" for r in responses]

    class Shapeless:
        '''No notion of right.'''
        def draw(self, split, n, generator):
            return [Example("a", "") for _ in range(n)]
        def score(self, responses):
            return torch.zeros(len(responses))

    @hookimpl
    def register_tasks(register):
        register(Kind)
        register(Shapeless)
"""


@pytest.fixture
def tasks(tmp_path, monkeypatch, model_dir):
    plugin = tmp_path / "kinds.py"
    plugin.write_text(textwrap.dedent(TASK))
    monkeypatch.setenv("RLZOO_PLUGINS", str(plugin))
    return [f"model.path={model_dir}", "device=cpu", "eval.samples=16", "rollout.max_new_tokens=12"]


def test_a_task_says_what_is_voted_on_and_what_is_cut_off_has_no_vote(tasks):
    words = [*tasks, "task=kind", "eval.samples=64"]
    document, rows = evaluated(None, *words, ks=(1, 3), responses=3)
    assert {r["vote"] for r in rows} == {"digit", "other", None}
    for r in rows:
        assert (r["vote"] is None) == r["truncated"]
        assert r["right"] == (r["vote"] == "digit")
    by_prompt = [[r for r in rows if r["prompt_number"] == i] for i in range(64)]
    wins = [majority_at_k([r["vote"] for r in g], [r["right"] for r in g], 3) for g in by_prompt]
    assert document["metrics"]["eval/maj@3"] == pytest.approx(sum(wins) / 64)


def test_a_task_without_a_notion_of_right_has_a_score_only(tasks):
    document, _ = evaluated(None, *tasks, "task=shapeless")
    assert "eval/accuracy" not in document["metrics"]
    assert document["metrics"]["eval/score"] == 0
    with pytest.raises(RlzooError, match="'shapeless'.*is_correct"):
        evaluated(None, *tasks, "task=shapeless", ks=(2,), responses=2)


def test_samples_without_answers_have_no_column_of_none(tasks, capsys):
    """Where nothing is right, a cut response is not marked either; wherever samples are shown."""
    told = command(capsys, *tasks, "task=shapeless")
    assert "prompt" in told
    assert "None" not in told
    assert " cut" not in told
    assert " cut" in command(capsys, *tasks, "task=kind")

    bare = {"step": 1, "prompt": "p", "response": "r", "answer": None, "score": 1.0,
            "truncated": True}  # fmt: skip
    for row, there in ((bare, False), (bare | {"answer": "a"}, True)):
        table = samples([row])
        assert ("answer" in [column.name for column in table.columns]) is there
        assert ("cut off" in table.columns[-1].cells[0]) is there
        assert ("answer" in groups_tab({}, {1: [row]})) is there


def test_the_split_is_the_tasks(tasks):
    for split, start in (("test", "te"), ("train", "tr")):
        _, rows = evaluated(None, *tasks, "task=kind", split=split)
        assert all(r["prompt"].startswith(start) for r in rows)


# ---------------------------------------------------------------- command line


def test_json_is_one_document_and_out_has_every_sample(run, capsys, tmp_path):
    out = tmp_path / "all.jsonl"
    argv = [run.path, "--k", "1,2", "--prompts", 5, "--samples", 2, "--out", out]
    document = json.loads(command(capsys, *argv, "--json"))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 10
    assert document["metrics"]["eval/samples"] == 10
    assert document["samples"] == [rows[0], rows[2]]
    assert document["k"] == [1, 2]
    assert document["step"] == 2
    shown = command(capsys, *argv)
    for word in ("accuracy", "pass@2", "maj@2", "reward/python", "the run recorded", str(out)):
        assert word in shown.replace("\n", " "), word


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["RUN", "--k", "0"], "--k: must be an integer of at least 1. Got '0'"),
        (["RUN", "--k", "1,x"], "--k: .*Got 'x'"),
        (["RUN", "--k", "4", "--responses", "2"], "pass@4 needs at least 4 responses"),
        (["RUN", "--prompts", "0"], "--prompts: .* at least 1"),
        (["RUN", "--samples", "-1"], "--samples: .* at least 0"),
        (["RUN", "--greedy", "--k", "2"], "--greedy gives each prompt one response"),
        (["RUN", "RUN"], "accepts only one RUN"),
        (["RUN", "model=nano"], "already sets this; remove model=nano"),
        (["RUN", "--checkpoint", "7"], r"no '7' \(available: best, last, 1, 2\)"),
        (["RUN", "--out", "nowhere/x.jsonl"], "--out: there is no folder"),
        (["nowhere"], "nowhere is not a run folder"),
        (["model=nano", "task=addition", "--checkpoint", "best"], "--checkpoint requires a RUN"),
        (["model=nano", "task=additon"], "did you mean 'addition'"),
        (["model=nano", "rollout.temprature=1"], "did you mean 'rollout.temperature'"),
    ],
)
def test_what_cannot_be_done_is_one_line(run, capsys, argv, says):
    with pytest.raises(RlzooError, match=says) as caught:
        command(capsys, *(run.path if word == "RUN" else word for word in argv))
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------- which weights


def test_checkpoints_of_a_run_are_its_policy_then(run):
    values = {m["step"]: m["eval/reward/python"] for m in run.metrics if "eval/score" in m}
    assert len(set(values.values())) == 3
    best = run.summary["best_step"]
    for which, step in (("1", 1), ("2", 2), ("last", 2), (None, 2), ("best", best)):
        document, _ = evaluated(run, checkpoint=which)
        assert document["step"] == step, which
        found = document["metrics"]["eval/reward/python"]
        assert found == pytest.approx(values[step], abs=1e-6), which


def test_an_unfinished_run_has_its_checkpoints_only(run, tmp_path):
    import shutil

    cut = tmp_path / "cut"
    shutil.copytree(run.path, cut)
    (cut / "summary.json").unlink()
    shutil.rmtree(cut / "model")
    folder = open_folder(cut)
    with pytest.raises(RlzooError, match=r"has not finished.*\(available: best, last, 1, 2\)"):
        choose(folder, None)
    assert choose(folder, "last").step == 2
    newest = cut / "checkpoints" / "step-00000002" / "actor.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"x")
    with pytest.raises(RlzooError, match="step-00000002 is damaged"):
        choose(folder, "last")
    shutil.rmtree(cut / "best")
    with pytest.raises(RlzooError, match="has no best checkpoint; train with checkpoint.best=true"):
        choose(folder, "best")
    shutil.rmtree(cut / "checkpoints")
    with pytest.raises(RlzooError, match="there is none yet"):
        choose(folder, None)
