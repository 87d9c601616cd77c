"""Draw each recipe's learning curves from the league's runs; docs/gallery/README.md shows them.

    python docs/studies/gallery.py [FOLDER]    seconds; FOLDER: the league's runs

Writes docs/gallery/RECIPE.svg and docs/gallery/league.json, the page's facts about the league, and
then the page, which `python docs/generate.py` keeps in step with recipes and docstrings. A task
counts once each of its rows has three runs or more; seeds are those that all of its rows have.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import league
import league_page
from common import DOCS, ROOT, plan_of, prose
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.files import describe
from rlzoo.recipe.plan import Plan

FOLDER = DOCS / "gallery"
PAGE = FOLDER / "README.md"
FACTS = FOLDER / "league.json"
RECIPES = sorted(path.stem for path in (ROOT / "configs" / "recipes").glob("*.yaml"))
FEWEST = 3  # runs of a row, for a task to count
POINTS = 24
WIDTH, HEIGHT, GAP, LEFT, TOP, BOTTOM = 118, 74, 14, 26, 16, 14

# ---------------------------------------------------------------- the league's runs


def read_league(folder: Path) -> dict[str, dict[str, list[league_page.Played]]]:
    """task -> row -> a run for each seed; rows without runs are those the recipe does not fit."""
    found: dict[str, dict[str, list[league_page.Played]]] = {}
    for task, how in league.TASKS.items():
        runs: dict[str, dict[str, Path]] = {}
        for path in sorted(folder.glob(f"{task}/*--seed*/summary.json")):
            row, _, seed = path.parent.name.rpartition("--seed")
            runs.setdefault(row, {})[seed] = path.parent
        seeds = set.intersection(*map(set, runs.values())) if runs else set()
        if len(seeds) >= FEWEST and len(runs) > 1:
            found[task] = {
                row: [league_page.read(by_seed[seed], how.tokens) for seed in sorted(seeds)]
                for row, by_seed in runs.items()
            }
    return found


def facts_of(found: Mapping[str, Mapping[str, list[league_page.Played]]]) -> dict[str, Any]:
    """The league's results for each task and each recipe."""
    names = [row for row in RECIPES if any(row in runs for runs in found.values())]
    everywhere = [row for row in names if all(row in runs for runs in found.values())]
    ranks, low_high, _ = league_page.mean_ranks(found, everywhere)
    rows: dict[str, Any] = {name: {"tasks": {}, "failures": {}} for name in names}
    for i, name in enumerate(everywhere):
        low, high = low_high[:, i].tolist()
        rows[name] |= {"rank": float(ranks[i]), "low": low, "high": high}
    tasks = {}
    for task, runs in found.items():
        mine = {row: seeds for row, seeds in runs.items() if row in names}
        like, gap = league_page.not_told_apart(mine), league_page.gained(mine)
        tasks[task] = {
            "tokens": league.TASKS[task].tokens,
            "seeds": len(next(iter(mine.values()))),
            "gap": gap,
        }
        for row, seeds in mine.items():
            rows[row]["tasks"][task] = {
                "after": fmean(run.after for run in seeds),
                "share": fmean(run.after - run.before for run in seeds) / gap,
                "like_best": row in like,
            }
            kinds = Counter(kind for run in seeds if (kind := league_page.failure(run, gap)))
            for kind, n in kinds.items():
                rows[row]["failures"].setdefault(kind, {})[task] = n
    return {"tasks": tasks, "of": len(everywhere), "rows": rows}


# ---------------------------------------------------------------- the pictures

STYLE = (
    "text{font:9px sans-serif;fill:#5a6070}.b{fill:#0072b2;fill-opacity:.18}"
    ".m{stroke:#0072b2;stroke-width:1.8}.r{stroke:#8a909c;stroke-dasharray:3 2}"
    ".m,.r,.a{fill:none}.a{stroke:#8a909c;stroke-opacity:.6}"
    "@media(prefers-color-scheme:dark){text{fill:#b6bcc9}.b{fill:#56b4e9}.m{stroke:#56b4e9}}"
)


def picture(row: str, found: Mapping[str, Mapping[str, list[league_page.Played]]]) -> str:
    """A panel for each task that the recipe plays: its mean over seeds and their range, and,
    dashed, the task's best recipe."""
    panels = []
    for task, runs in found.items():
        if row in runs:
            best = max(runs, key=lambda name: fmean(run.after for run in runs[name]))
            panels.append(panel(task, runs[row], runs[best], len(panels)))
    width = LEFT + len(panels) * (WIDTH + LEFT + GAP) - LEFT
    height = TOP + HEIGHT + BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{STYLE}</style>{"".join(panels)}</svg>\n'
    )


def panel(
    task: str, mine: list[league_page.Played], best: list[league_page.Played], place: int
) -> str:
    end = min(run.curve[-1][0] for run in [*mine, *best])
    grid = np.linspace(min(run.curve[0][0] for run in mine), end, POINTS)
    ours = np.array([np.interp(grid, *league_page.smooth(run)) for run in mine])
    theirs = np.array([np.interp(grid, *league_page.smooth(run)) for run in best])
    low = min(0.0, float(ours.min()))
    high = max(float(ours.max()), float(theirs.mean(0).max()), low + 0.1)
    left = LEFT + place * (WIDTH + LEFT + GAP)

    def points(ys: Any, xs: Any = grid) -> str:
        return " ".join(
            f"{left + WIDTH * x / end:.0f},{TOP + HEIGHT * (high - y) / (high - low):.1f}"
            for x, y in zip(xs, ys, strict=True)
        )

    around = np.concatenate([ours.max(0), ours.min(0)[::-1]])
    bottom = TOP + HEIGHT
    return (
        f'<text x="{left}" y="10">{task}</text>'
        f'<text x="{left - 3}" y="{TOP + 7}" text-anchor="end">{high:.1f}</text>'
        f'<text x="{left - 3}" y="{bottom}" text-anchor="end">{low:.1f}</text>'
        f'<text x="{left + WIDTH}" y="{bottom + 11}" text-anchor="end">{end / 1000:.0f}k</text>'
        f'<path class="a" d="M{left},{TOP}V{bottom}H{left + WIDTH}"/>'
        f'<polygon class="b" points="{points(around, np.concatenate([grid, grid[::-1]]))}"/>'
        f'<polyline class="r" points="{points(theirs.mean(0))}"/>'
        f'<polyline class="m" points="{points(ours.mean(0))}"/>'
    )


# ---------------------------------------------------------------- the page

GROUPS = {
    "With a critic": "A second network predicts the value at each token.",
    "Without a critic": "Several responses per prompt or another baseline replace the critic, so "
    "there is one fewer model to train.",
    "For conversations": "These recipes assign credit to the turns of a conversation.",
    "With a teacher": "A better model, or the policy with a longer prompt, scores each token.",
}
INTRO = """\
# Gallery of recipes

Which recipes are included, how does each learn, and which should you try first? `rlzoo run NAME`
runs a recipe, and `rlzoo show recipe=NAME` prints its settings.

**Curves**: mean score of training batches over sampled tokens. The recipe is blue, with the range
of its seeds; the task's best recipe is dashed. (DAPO filters its batches, so its curve looks
better than its policy is.)

**Advice** comes from the short, untuned runs of the [league](../league.md), which also lists the
[failed ones](../league.md#what-went-wrong). It suggests where to start, not what is best at your
scale. *Worth a try*: these seeds show no difference from the best at 95 %, on any task. *Try
first*: nor is the 95 % interval of the mean rank outside the first third. After *behind on* is the
share of the best recipe's gain. Recipes are sorted by their rank.
"""


def page(zoo: Zoo) -> str:
    """docs/gallery/README.md."""
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    groups: dict[str, list[tuple[float, str, str]]] = {title: [] for title in GROUPS}
    for name in RECIPES:
        plan = plan_of(name, zoo)
        row = facts["rows"].get(name, {})
        title = list(GROUPS)[
            3 if not plan.needs.isdisjoint(("teacher_log_probs", "self_teacher_log_probs"))
            else 2 if plan.conversation
            else 0 if plan.critic
            else 1
        ]  # fmt: skip
        groups[title].append((row.get("rank", 99.0), name, entry(name, plan, row, facts)))
    out = [INTRO.strip()]
    for title, entries in groups.items():
        if entries:
            out += [f"## {title}", GROUPS[title]]
            out += [text for _, _, text in sorted(entries)]
    return "\n\n".join(out) + "\n"


def entry(name: str, plan: Plan, row: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    about = describe(ROOT / "configs" / "recipes" / f"{name}.yaml")
    out = [f"### {name}", prose(about)]
    if (FOLDER / f"{name}.svg").is_file():
        out.append(f"![{name}]({name}.svg)")
    out += [made_of(plan), advice(name, row, facts)]
    return "\n\n".join(out)


def made_of(plan: Plan) -> str:
    """The components, with links to their pages."""

    def link(bound: Any) -> str:
        return f"[{bound.name}](../components/{bound.component.kind}/{bound.name}.md)"

    parts = [link(plan.estimator), link(plan.policy_loss)]
    if plan.kl is not None:
        parts.append(f"{plan.recipe.config.get('kl')['place']} KL {link(plan.kl)}")
    if plan.sampler is not plan.base_sampler:
        parts.append(f"sampler {link(plan.sampler)}")
    parts += [f"column {link(column)}" for column in plan.columns]
    parts += [f"reward `{name}`" for name in plan.rewards if name != "verifier"]
    return ", ".join(parts) + "."


def advice(name: str, row: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """What the league suggests: try it first? Where was it behind?"""
    if not row:
        apart = league.NOT_PLAYED.get(name)
        return f"[Measured](../{apart})." if apart else "Not measured yet."
    tasks = row["tasks"]
    behind = [task for task, found in tasks.items() if not found["like_best"]]
    if not behind:
        leads = 3 * row.get("high", facts["of"]) <= facts["of"]
        return f"**{'Try first' if leads else 'Worth a try'}.**"
    gains = sorted(max(tasks[task]["share"], 0) for task in behind)
    low_high = " to ".join(dict.fromkeys(f"{gain:.0%}" for gain in (gains[0], gains[-1])))
    if len(behind) == len(tasks):
        return f"**Behind everywhere** ({low_high})."
    return f"**Behind on** {listed(behind)} ({low_high})."


def listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]


def main(argv: list[str]) -> None:
    folder = Path(argv[0]) if argv else ROOT / "runs" / "league"
    found = read_league(folder)
    if not found:
        sys.exit(f"{folder}: no task of the league with {FEWEST} runs of each row")
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    facts = facts_of(found)
    for row in facts["rows"]:
        (FOLDER / f"{row}.svg").write_text(picture(row, found), encoding="utf-8")
    FACTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(load_zoo()), encoding="utf-8")
    size = sum(path.stat().st_size for path in FOLDER.glob("*.svg"))
    print(
        f"{len(facts['rows'])} recipes on {', '.join(found)}: {PAGE}, {size / 1000:.0f} kB of SVG"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
