"""The best evaluation's weights, and ending early by rule, also where a run was cut off."""

import json
import shutil
import textwrap
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

import rlzoo
from helpers.runs import StopAt
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.train import record, stopping
from rlzoo.train.start import resume

TASK = """
    import torch
    from rlzoo import Example, hookimpl

    class Letters:
        '''The share of letters in a response. Held out, more than four in five are worth nothing:
        training goes past the best.  Source: a test.'''
        def draw(self, split, n, generator):
            numbers = torch.randint(9, (n,), generator=generator).tolist()
            return [Example(f"{i}+", split) for i in numbers]
        def score(self, responses, answers):
            shares = [sum(c.isalpha() for c in r) / max(1, len(r)) for r in responses]
            worth = zip(shares, answers, strict=True)
            return torch.tensor([0.0 if a == "test" and s > 0.8 else s for s, a in worth])

    @hookimpl
    def register_tasks(register):
        register(Letters)
"""


@pytest.fixture
def letters(tmp_path, words, monkeypatch):
    """(zoo, words): a task on which a random model's score moves with every step."""
    plugin = tmp_path / "letters.py"
    plugin.write_text(textwrap.dedent(TASK))
    monkeypatch.setenv("RLZOO_PLUGINS", str(plugin))
    more = ["task=letters", "eval.every=1", "eval.samples=16", "actor.lr=0.1", "train.steps=8"]
    return rlzoo.load_zoo(), [*words, *more]


def evaluations(*values):
    return [
        {"step": i, "eval/score": v, "eval/score_low": v, "eval/score_high": v}
        for i, v in enumerate(values)
    ]


def rules(**given):
    return SimpleNamespace(**{"patience": None, "min_delta": 0.0, "target": None, "max_kl": None,
                              **given})  # fmt: skip


@pytest.mark.parametrize(
    ("values", "given", "stops"),
    [
        ([0.5, 0.5], {"patience": 1}, True),  # an equal is no improvement
        ([0.5, 0.5], {"patience": 2}, False),
        ([0.5, 0.4, 0.6, 0.5], {"patience": 2}, False),  # a new best starts the count again
        ([0.5, 0.4, 0.6, 0.5, 0.6], {"patience": 2}, True),
        ([0.5], {"patience": 1}, False),
        ([0.5, 0.55, 0.59], {"patience": 2, "min_delta": 0.1}, True),
        ([0.5, 0.55, 0.61], {"patience": 2, "min_delta": 0.1}, False),  # of the best, not the last
        ([0.5, 0.75], {"target": 0.75}, True),
        ([0.5, 0.74], {"target": 0.75}, False),
        ([0.8, 0.5], {"target": 0.75}, False),
        ([0.0, 0.0, 0.0], {}, False),
    ],
)
def test_the_rules_on_evaluations(values, given, stops):
    found = stopping.reason(rules(**given), evaluations(*values), None)
    assert bool(found) == stops


def test_the_rule_on_the_kl_comes_first_and_is_one_of_steps():
    both = rules(max_kl=2.0, target=0.1)
    assert "KL" in stopping.reason(both, evaluations(0.5), {stopping.KL: 2.5})
    assert "target" in stopping.reason(both, evaluations(0.5), {stopping.KL: 1.5})
    assert stopping.reason(rules(max_kl=2.0), evaluations(0.5), None) is None


def test_the_best_of_equals_is_the_earliest():
    assert stopping.best(evaluations(0.1, 0.7, 0.3, 0.7))["step"] == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["stop.patience=2", "eval.every=0"], r"stop.patience \(command line\).*eval.every is 0"),
        (["stop.target=1", "eval.every=0"], "stop.target"),
        (["stop.max_kl=1", "kl.place=none"], "stop.max_kl.*requires a reference"),
    ],
)
def test_rules_that_could_never_be_looked_at_are_refused(zoo, words, given, says):
    recipe = compose(["recipe=grpo", *words, *given], zoo)
    with pytest.raises(RecipeError, match=says):
        make_plan(recipe, zoo)


# ---------------------------------------------------------------- in a run


def lines(path):
    found = [json.loads(x) for x in (path / "metrics.jsonl").read_text().splitlines()]
    clock = ("timing_s/", "perf/seconds", "perf/tokens_per_second")
    return [{k: v for k, v in line.items() if not k.startswith(clock)} for line in found]


def same_end(a, b):
    """Two run folders hold the same decisions and the same weights."""
    assert lines(a) == lines(b)
    first, second = (json.loads((p / "summary.json").read_text()) for p in (a, b))
    for key in ("stopped", "steps", "best_step", "eval_best", "eval_after", "tokens"):
        assert first[key] == second[key], key
    for folder in ("model", "best"):
        ours, theirs = (load_file(p / folder / "model.safetensors") for p in (a, b))
        assert all(torch.equal(ours[k], theirs[k]) for k in theirs), folder


@pytest.mark.parametrize(
    ("rule", "says", "cuts"),
    [
        ("stop.patience=2", "did not exceed", {1, -1, 0}),  # it counts: from before the cut, too
        ("stop.target=0.48", "reached the target", {0}),
        ("stop.max_kl=2.0", "KL to the reference", {0}),
    ],
)
@pytest.mark.process
def test_a_run_ends_by_its_rule_and_so_does_one_that_was_cut_off(
    letters, tmp_path, rule, says, cuts
):
    """cuts: the steps after which it is cut off; 0 the last, -1 the one before."""
    zoo, words = letters
    words = [*words, rule, "checkpoint.best=true", "checkpoint.every=2"]
    display = StopAt(None)
    run = rlzoo.run("grpo", [*words, f"run.dir={tmp_path}/whole"], zoo=zoo, display=display)
    end = run.summary["steps"]
    assert 1 <= end < 8
    assert says in run.summary["stopped"]
    assert display.notes == [f"stopped at step {end}: {run.summary['stopped']}"]
    assert run.metrics[-1]["step"] == end
    for at in sorted({at if at > 0 else end + at for at in cuts} - {0}):
        with pytest.raises(KeyboardInterrupt):
            rlzoo.run("grpo", [*words, f"run.dir={tmp_path}/cut{at}"], zoo=zoo, display=StopAt(at))
        resume(tmp_path / f"cut{at}", zoo=zoo)
        same_end(tmp_path / f"cut{at}", run.path)
    # Killed when all but the summary was written: nothing is trained, the same is said.
    shutil.copytree(run.path, tmp_path / "late")
    (tmp_path / "late" / "summary.json").unlink()
    resume(tmp_path / "late", zoo=zoo)
    same_end(tmp_path / "late", run.path)


def test_the_budget_ends_a_run_without_rules(letters, tmp_path):
    zoo, words = letters
    run = rlzoo.run("grpo", [*words, "train.steps=2", f"run.dir={tmp_path}/a"], zoo=zoo)
    assert run.summary["stopped"] == "budget"
    assert not (run.path / "best").exists()


def test_best_holds_the_weights_of_the_best_evaluation(letters, tmp_path):
    zoo, words = letters
    words = [*words, "checkpoint.best=true", "checkpoint.every=1", "checkpoint.keep=9",
             "train.steps=5"]  # fmt: skip
    run = rlzoo.run("grpo", [*words, f"run.dir={tmp_path}/a"], zoo=zoo)
    values = {m["step"]: m["eval/score"] for m in run.metrics if "eval/score" in m}
    best = max(values, key=values.get)
    assert 0 < best < 5, "this test shows nothing where the best is the first or the last"
    note = json.loads((run.path / "best" / "best.json").read_text())
    assert (note["step"], note["metric"], note["value"]) == (best, "score", values[best])
    assert run.summary["best_step"] == best
    assert run.summary["eval_best"] == values[best]
    kept = load_file(run.path / "best" / "model.safetensors")
    then = load_file(run.path / "checkpoints" / f"step-{best:08d}" / "actor.safetensors")
    last = load_file(run.path / "model" / "model.safetensors")
    assert all(torch.equal(kept[k], then[k]) for k in kept)
    assert not all(torch.equal(kept[k], last[k]) for k in kept)


def test_best_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    place = tmp_path / "best"
    first, second = evaluations(0.1, 0.2)

    def keep(evaluation, text, fails=False):
        def save(models, at):
            (at / "weights").write_text(text)
            if fails:
                raise OSError("no space left")

        monkeypatch.setattr(record, "save_model", save)
        record.keep_best(SimpleNamespace(engine=SimpleNamespace(first=True)), place, evaluation)

    keep(first, "one")
    with pytest.raises(OSError, match="no space"):
        keep(second, "half", fails=True)
    assert (place / "weights").read_text() == "one"
    assert json.loads((place / "best.json").read_text())["step"] == 0
    place.rename(tmp_path / ".best.former")  # killed between the two renames
    record.mend_best(place)
    assert (place / "weights").read_text() == "one"
    keep(second, "two")
    assert (place / "weights").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["best"]
