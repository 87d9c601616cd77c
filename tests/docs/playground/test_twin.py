"""The page's arithmetic in JavaScript against the zoo's components, on random batches."""

import math
import random
from functools import cache

import pytest
import torch

import rlzoo
from helpers.javascript import ENGINE, run_javascript
from helpers.play import answers, source_of
from rlzoo.ops import group_degenerate, less_penalty, whiten

pytestmark = pytest.mark.skipif(ENGINE is None, reason="neither node nor chromium is installed")

SOURCE = source_of("advantage")
CASES = 2000  # calls of a component, each on a batch of its own
FEW = 220  # ten of each component: every change passes these
TOLERANCE = 1e-9
KINDS = {"ESTIMATORS": "estimators", "LOSSES": "policy_losses", "KL_PENALTIES": "kl_penalties"}

# The page's functions on a case; the columns are those of `batch_of`.
DRIVER = """
function answer({ table, name, batch, options }) {
  if (table === "ESTIMATORS") return ESTIMATORS[name].run(batch, options);
  if (table === "LOSSES") return policyLoss(name, batch, options);
  if (table === "KL_PENALTIES") {
    return { penalty: perToken(batch, (i, t) =>
      KL_PENALTIES[name](batch.log_probs[i][t], batch.ref_log_probs[i][t])) };
  }
  const mask = batch.response_mask, each = f => mask.map((row, i) => f(i, row));
  return {
    token: each(i => lessPenalty(batch.rewards[i], batch.values[i], mask[i], 0.3, "token")),
    last: each(i => lessPenalty(batch.rewards[i], batch.values[i], mask[i], 0.3, "last")),
    whitened: each(i => whiten(batch.values[i], mask[i]).whitened),
  };
}
"""


def twins():
    """(table, name) of every component that the page has."""
    names = run_javascript(SOURCE, f"[{','.join(f'Object.keys({t})' for t in KINDS)}]")
    return [(table, name) for table, found in zip(KINDS, names, strict=True) for name in found]


def batch_of(draw, rows=6, steps=7):
    """Random columns with holes, turns, ties among rewards and clipping on either side."""

    def tokens(spread=1.0):
        return [[draw.gauss(0, spread) for _ in range(steps)] for _ in range(rows)]

    mask = [[int(draw.random() < 0.75) for _ in range(steps)] for _ in range(rows)]
    mask[0] = [0] * steps if draw.random() < 0.2 else mask[0]
    scores = [draw.choice([0.0, 1.0, 1.0, draw.gauss(0, 1)]) for _ in range(rows)]
    old = tokens(0.5)
    return {
        "response_mask": mask,
        "rewards": tokens(),
        "values": tokens(),
        "bootstrap_values": [draw.choice([0.0, draw.gauss(0, 1)]) for _ in range(rows)],
        "turn_ids": [[draw.randrange(3) for _ in range(steps)] for _ in range(rows)],
        "group_ids": [draw.randrange(3) for _ in range(rows)],
        "sequence_rewards": scores,
        "sequence_scores": [float(s > 0) for s in scores],
        "advantages": tokens(),
        "log_probs": [[x + draw.gauss(0, draw.choice([0.01, 0.5, 2])) for x in r] for r in old],
        "old_log_probs": old,
        "ref_log_probs": tokens(0.5),
    }  # fmt: skip


def options_of(component, draw):
    """Random values inside the range of each option; one without a number for default keeps it."""
    found = {}
    for option in component.options.values():
        if not isinstance(option.default, int | float) or isinstance(option.default, bool):
            continue
        most = 5 * option.default
        high = option.range.high if option.range and option.range.high is not None else most
        low = option.range.low or 0.0
        value = draw.uniform(low, min(high, most))
        found[option.name] = max(1, round(value)) if option.type is int else value
    return found


@cache
def cases():
    draw, zoo = random.Random(0), rlzoo.load_zoo()
    everyone = [*twins(), ("OPS", "")]
    made = []
    for i in range(CASES):
        table, name = everyone[i % len(everyone)]
        component = zoo.shelves[KINDS[table]][name] if name else None
        made.append({"table": table, "name": name, "batch": batch_of(draw),
                     "options": options_of(component, draw) if component else {}})  # fmt: skip
    return made


@cache
def expected(number):
    """The zoo's numbers for a case, in float64."""
    case = cases()[number]
    columns = {name: torch.tensor(x, dtype=torch.float64) for name, x in case["batch"].items()}
    for name in ("group_ids", "turn_ids"):
        columns[name] = columns[name].long()
    mask = columns["response_mask"]
    if case["table"] == "OPS":
        penalty = [less_penalty(columns["rewards"], columns["values"], mask, coef=0.3, spread=s)
                   for s in ("token", "last")]  # fmt: skip
        white = whiten(columns["values"], mask, torch.arange(len(mask)))
        return {"token": penalty[0], "last": penalty[1], "whitened": white}
    component = rlzoo.load_zoo().shelves[KINDS[case["table"]]][case["name"]]
    out = component(columns, **case["options"])
    if case["table"] == "KL_PENALTIES":
        return {"penalty": out * mask}
    if case["table"] == "ESTIMATORS":
        return {name: x * mask for name, x in out.items()}
    loss, metrics = out
    clipped = {"clipped": metrics["pg_clipfrac"] * mask} if "pg_clipfrac" in metrics else {}
    return {"loss": loss * mask, **clipped}


def worst_difference(source, first=CASES):
    """(the largest relative difference over the first cases, the component that has it)."""
    made = cases()[:first]
    found = answers(source + DRIVER, "answer", made)
    worst = (0.0, "")
    for number, (case, got) in enumerate(zip(made, found, strict=True)):
        for name, want in expected(number).items():
            have = torch.tensor(got[name], dtype=torch.float64)
            gap = float(((have - want).abs() / want.abs().clamp(min=1)).max())
            worst = max(worst, (math.inf if math.isnan(gap) else gap, f"{case['name']}: {name}"))
    return worst


def test_every_component_of_the_page_computes_what_the_zoo_computes():
    gap, where = worst_difference(SOURCE, first=FEW)
    assert gap < TOLERANCE, where


@pytest.mark.landing
def test_two_thousand_cases():
    gap, where = worst_difference(SOURCE)
    print(f"worst relative difference of {CASES:,} cases: {gap:.1e} ({where})")
    assert gap < TOLERANCE, where


# A sign, an off-by-one, a wrong denominator, a bound and a missing factor, each in another family.
PLANTED = {
    "tdLambda": ("out[t] += gamma * lam * ahead", "out[t] += lam * ahead"),
    "nStepRow": ("Math.min(i + n, at.length)", "Math.min(i + n + 1, at.length)"),
    "groupsOf": ("Math.max(1, xs.length - 1)", "xs.length"),
    "clippedSurrogate": ("-Math.min(ratio * a, bounded", "-Math.max(ratio * a, bounded"),
    "k2": ("(p - q) ** 2 / 2", "(p - q) ** 2"),
    "whiten": ("variance + 1e-8", "variance + 1e-4"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_error_is_found(planted):
    right, wrong = PLANTED[planted]
    assert SOURCE.count(right) == 1
    gap, _ = worst_difference(SOURCE.replace(right, wrong), first=FEW)
    assert gap > 1e3 * TOLERANCE


def test_the_page_has_nothing_that_the_zoo_lacks_and_at_least_twelve_components():
    zoo = rlzoo.load_zoo()
    found = twins()
    assert [name for table, name in found if name not in zoo.shelves[KINDS[table]]] == []
    assert sum(table != "KL_PENALTIES" for table, _ in found) >= 12


def test_the_random_batches_reach_every_branch():
    batches = [case["batch"] for case in cases()]
    assert any(sum(row) == 0 for b in batches for row in b["response_mask"])
    assert any(row[0] < row[1] > row[2] for b in batches for row in b["response_mask"])
    ids = [torch.tensor(b["group_ids"]) for b in batches]
    scores = [torch.tensor(b["sequence_rewards"], dtype=torch.float64) for b in batches]
    flat = [group_degenerate(x, i) for x, i in zip(scores, ids, strict=True)]
    assert any(f.any() for f in flat)
    assert any(not f.all() for f in flat)
