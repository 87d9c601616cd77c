"""docs/studies/league.py: every row draws the same tokens, nothing is done twice, and what the page
reports of the runs."""

import shutil

import pytest

from helpers.runs import StopAt, lines, untimed
from helpers.scripts import script

pytestmark = pytest.mark.process  # a league is played


@pytest.fixture(scope="module")
def scripts():
    """docs/studies/league.py with a task that takes a second, and docs/studies/league_page.py."""
    league, page = script("league"), script("league_page")
    tasks = {"addition": league.Task(("task=addition", "model=nano"), 120)}
    common = ("rollout.prompts=4", "rollout.samples=2", "train.steps=null", "eval.samples=8",
              "checkpoint.every=1", "run.samples=0")  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:  # the gallery's tests read the same module
        patch.setattr(league, "TASKS", tasks)
        patch.setattr(league, "COMMON", common)
        yield league, page


@pytest.fixture(scope="module")
def played(scripts, tmp_path_factory):
    """Two recipes, two seeds, one of them with responses beside its batch's."""
    folder = tmp_path_factory.mktemp("league")
    words = [str(folder), "--tasks=addition", "--rows=grpo,remax,gigpo", "--seeds=2", "--no-page"]
    scripts[0].main(words)
    return folder, words


@pytest.mark.landing
def test_every_row_draws_the_same_tokens(scripts, played):
    folder, _ = played
    runs = sorted(path.name for path in (folder / "addition").iterdir())
    assert runs == [f"{row}--seed{seed}" for row in ("grpo", "remax") for seed in range(2)]
    for name in runs:
        steps = [m for m in lines(folder / "addition" / name) if "perf/tokens" in m]
        drawn = [m["tokens/gen"] + m["tokens/columns"] for m in steps]
        assert sum(drawn) == steps[-1]["perf/tokens"]
        assert sum(drawn[:-1]) < 120 <= sum(drawn)  # it ends with the step that reaches it
        assert ("remax" in name) == (sum(m["tokens/columns"] for m in steps) > 0)
    assert not list(folder.rglob("*.safetensors"))  # weights are not kept


def test_a_recipe_that_does_not_apply_says_why(scripts, played, zoo):
    cell = scripts[0].Cell("addition", "gigpo", 0, played[0])
    assert "exists only in conversations" in cell.why_not(zoo)
    assert scripts[0].Cell("addition", "grpo", 0, played[0]).why_not(zoo) == ""


def test_what_is_done_stays_and_what_was_cut_off_goes_on(scripts, played, zoo):
    folder, words = played
    cell = scripts[0].Cell("addition", "remax", 1, folder)
    whole = untimed(cell.path)
    shutil.rmtree(cell.path)
    with pytest.raises(KeyboardInterrupt):
        cell.play(zoo, StopAt(2))
    assert not cell.done
    others = {p: p.stat().st_mtime_ns for p in folder.rglob("summary.json")}
    assert len(others) == 3
    before = len(lines(cell.path))
    scripts[0].main(words)
    assert {p: p.stat().st_mtime_ns for p in others} == others
    assert untimed(cell.path) == whole
    assert before < len(whole)  # it was cut off midway


def run_of(page, before, after, curve=()):
    points = [(10 * i, score) for i, score in enumerate(curve or [before, after])]
    return page.Played(before, after, before, after, 100, 3, 0, points)


def test_ranks_and_failures(scripts):
    import numpy as np

    page = scripts[1]
    assert page.ranks(np.array([[0.2, 0.9, 0.2], [0.4, 0.7, 0.4]])).tolist() == [2.5, 1, 2.5]
    fell = [0.2, 0.8, 0.8, 0.7, 0.3, 0.2, 0.3]
    kinds = [run_of(page, 0.2, 0.8), run_of(page, 0.2, 0.22), run_of(page, 0.2, 0.3, fell),
             run_of(page, 0.2, 0.05)]  # fmt: skip
    found = [page.failure(run, gap=0.6) for run in kinds]
    assert found == ["", "never learned", "collapsed", "diverged"]


def test_rank_intervals_hold_what_seeds_and_tasks_leave_open(scripts):
    import numpy as np

    page = scripts[1]
    draw = np.random.default_rng(0)

    def seeds(mean, sd):
        return [run_of(page, 0.1, x) for x in mean + sd * draw.standard_normal(10)]

    league = {
        "one": {"a": seeds(0.9, 0.01), "b": seeds(0.5, 0.01), "c": seeds(0.5, 0.01)},
        "two": {"a": seeds(0.5, 0.01), "b": seeds(0.9, 0.01), "c": seeds(0.3, 0.01)},
    }
    whole, by_seeds, both = page.mean_ranks(league, ["a", "b", "c"])
    assert whole[0] == 1.5
    assert whole[2] > 2.4
    assert by_seeds[:, 0].tolist() == [1.5, 1.5]  # no seed could change it
    assert both[:, 0].tolist() == [1.0, 2.0]  # another choice of tasks could
    like = page.not_told_apart(league["two"])
    assert like == {"b"}
    text = page.standings(league, {("one", "d"): "a reason"})
    assert "|a|1.5|1.0–2.0|**0.9" in text
    assert "- d cannot run on one: a reason." in text


def test_a_row_beside_the_standings_is_compared_seed_by_seed(scripts):
    page = scripts[1]

    def seeds(scores):
        return [run_of(page, 0.1, score) for score in scores]

    league = {"one": {"new": seeds([0.5, 0.7, 0.6]), "old": seeds([0.4, 0.6, 0.5])}}
    text = page.beside("new", league)
    assert text.splitlines()[0] == "|task|seeds|new|minus old|"
    assert text.splitlines()[2] == "|one|3|0.600|+0.100 [+0.100, +0.100]|"


def test_rows_at_their_best_rates_are_ranked_once_all_have_run(tmp_path):
    """dr_grpo is best, and everything at twice the league's rate."""
    later = script("later")
    tasks, kept = later.league.TASKS, {}
    for task in tasks:
        for i, row in enumerate(later.BEST):
            for factor in later.FACTORS:
                for seed in later.SEARCH if factor != 2 else (*later.SEARCH, *later.FRESH):
                    score = 0.5 + 0.2 * (factor == 2) + 0.1 * (row == "dr_grpo")
                    name = later.Tuned(task, row, seed, tmp_path, factor).name
                    kept[name] = [score + (seed + i) * (seed + 7 * i) % 11 / 1000, 2.0]
    table = [line.split("|")[1:-1] for line in later.standings(kept, tmp_path).splitlines()]
    assert table[0] == ["row", "mean rank", *tasks, "search, CPU s"]
    first, *others = table[2:]
    assert first[:2] == ["dr_grpo", "1.0 [1.0, 1.0]"]
    fresh = [kept[later.Tuned("addition", "dr_grpo", seed, tmp_path, 2.0).name][0]
             for seed in later.FRESH]  # fmt: skip
    assert first[table[0].index("addition")] == f"**{sum(fresh) / 10:.3f}**"
    assert len(others) == len(later.BEST) - 1
    assert not any(cell.startswith("**") for line in others for cell in line)
    assert first[-1] == f"{len(tasks) * 5 * 2 * 2}"
    del kept[later.Tuned("addition", "otb", later.FRESH[-1], tmp_path, 2.0).name]
    assert later.standings(kept, tmp_path) == ""
