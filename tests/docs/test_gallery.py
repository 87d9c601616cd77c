"""docs/studies/gallery.py: what it says and draws of the league's runs."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

from helpers import ROOT
from helpers.scripts import script

DRAWN = ROOT / "docs" / "gallery"


@pytest.fixture(scope="module")
def gallery():
    return script("gallery")


def runs_of(gallery, before, afters):
    """Runs that rise in a line, but for those that end below their start."""
    return [
        gallery.league_page.Played(
            before, after, before, after, 100, 5, 0,
            [(20 * i, before + (after - before) * i / 5) for i in range(1, 6)],
        )
        for after in afters
    ]  # fmt: skip


@pytest.fixture(scope="module")
def found(gallery):
    good, weak, down = [0.9, 0.92, 0.88], [0.3, 0.29, 0.31], [0.02, 0.01, 0.03]
    one = {"rloo": good, "grpo": good[::-1], "ppo_mc": weak, "vapo": down}
    two = {"rloo": good, "grpo": weak, "ppo_mc": weak, "vapo": weak, "gigpo": good}
    tasks = {"key_door": one, "marks": two}
    return {t: {n: runs_of(gallery, 0.2, x) for n, x in rows.items()} for t, rows in tasks.items()}


def test_the_advice_is_what_the_runs_say(gallery, found):
    facts = gallery.facts_of(found)
    say = {name: gallery.advice(name, row, facts) for name, row in facts["rows"].items()}
    even = "**Worth a try.**"
    row = facts["rows"]["rloo"]  # mean rank 1.2 of 4, its interval to 1.5: past the first third
    assert say["rloo"].startswith(even)
    first = gallery.advice("rloo", {**row, "high": 1.3}, facts)
    assert first.startswith("**Try first.**")
    assert say["grpo"].startswith("**Behind on** marks (14%).")
    assert say["ppo_mc"].startswith("**Behind everywhere** (14%")
    assert sum(facts["rows"]["vapo"]["failures"]["diverged"].values()) == 3
    assert "rank" not in facts["rows"]["gigpo"]  # it does not play every task
    assert say["gigpo"] == even
    assert "Not measured" in gallery.advice("new", {}, facts)
    assert "[Measured](../results.md#" in gallery.advice("prime", {}, facts)


def test_a_picture_has_a_panel_for_each_task_that_is_played(gallery, found):
    for row, panels in (("rloo", 2), ("gigpo", 1)):
        text = gallery.picture(row, found)
        tree = ElementTree.fromstring(text)
        lines = [e for e in tree.iter() if e.get("class") == "m"]
        assert len(lines) == panels
        points = [tuple(map(float, p.split(","))) for p in lines[0].get("points").split()]
        assert len(points) == gallery.POINTS
        assert points[0][1] > points[-1][1] >= gallery.TOP  # it rises, inside its panel
        assert all(y <= gallery.TOP + gallery.HEIGHT for _, y in points)


def test_the_league_is_read_seed_by_seed(gallery, tmp_path):
    for row, seeds in (("rloo", 4), ("ppo_gae-lam=0.5", 3), ("grpo", 3)):
        for seed in range(seeds):
            path = tmp_path / "marks" / f"{row}--seed{seed}"
            path.mkdir(parents=True)
            step = {"score/mean": 0.5, "score/std": 0.1, "tokens/gen": 8, "perf/tokens": 8,
                    "response_length/mean": 2, "reward/mean": 0.5}  # fmt: skip
            lines = [{"step": 0, "eval/score": 0.2}, {"step": 1, **step}]
            lines.append({"step": 1, "eval/score": 0.5})
            text = "\n".join(map(json.dumps, lines))
            (path / "metrics.jsonl").write_text(text)
            if (row, seed) != ("rloo", 3):  # not yet at its end
                summary = {"eval_metric": "score", "eval_greedy_before": 0, "eval_greedy_after": 1,
                           "steps": 1, "skipped_updates": 0}  # fmt: skip
                (path / "summary.json").write_text(json.dumps(summary))
    found = gallery.read_league(tmp_path)
    assert {row: len(runs) for row, runs in found["marks"].items()} == {
        "rloo": 3, "ppo_gae-lam=0.5": 3, "grpo": 3,
    }  # fmt: skip
    (tmp_path / "marks" / "grpo--seed0" / "summary.json").unlink()
    assert gallery.read_league(tmp_path) == {}  # two seeds are too few


def test_what_is_drawn_is_small_and_of_recipes_that_ship(gallery):
    pictures = list(DRAWN.glob("*.svg"))
    assert sum(path.stat().st_size for path in pictures) < 400_000
    assert {path.stem for path in pictures} <= set(gallery.RECIPES)
    assert {path.stem for path in pictures} == set(json.loads(gallery.FACTS.read_text())["rows"])


def test_every_recipe_has_numbers_somewhere(gallery):
    text = (ROOT / "docs" / "gallery" / "README.md").read_text(encoding="utf-8")
    assert "Not measured yet" not in text
    assert text.count("[Measured]") == len(gallery.league.NOT_PLAYED)
