"""`rlzoo show correction`: each point's words do what its line says."""

import json
import math
import re

import pytest
import torch

from helpers.zoo import ZOO
from rlzoo import cli
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_bridges.corrections import NOT_HERE, POINTS


def inside(ratio, low, high):
    return ratio if low <= ratio <= high else 0.0


def product(gaps):
    return math.exp(sum(gaps))


def mean(gaps):
    return sum(gaps) / len(gaps)


# Of verl's preset, or the words here where verl has none: the weight at action t of a response
# whose log ratios are `gaps`. verl's own functions at 1dda039b gave the same, 20 of 20 settings.
WEIGHTS = {
    "decoupled_token_is": lambda gaps, t: min(math.exp(gaps[t]), 2),
    "decoupled_seq_is": lambda gaps, t: min(product(gaps), 2),
    "prefix": lambda gaps, t: min(product(gaps[: t + 1]), 2),
    "geometric": lambda gaps, t: min(math.exp(mean(gaps)), 2),
    "floor": lambda gaps, t: max(min(math.exp(gaps[t]), 2), 0.5),
    "decoupled_token_icepop": lambda gaps, t: inside(math.exp(gaps[t]), 0.5, 5),
    "decoupled_seq_is_rs": lambda gaps, t: inside(product(gaps), 0.5, 2),
    "reject=0.001 correction.cap": lambda gaps, t: (abs(mean(gaps)) <= 1e-3) * math.exp(gaps[t]),
    "decoupled_geo_rs_token_tis": lambda gaps, t: (
        (abs(mean(gaps)) <= 1e-3) * min(math.exp(gaps[t]), 2)
    ),
    "decoupled_geo_rs_seq_tis": lambda gaps, t: (abs(mean(gaps)) <= 1e-3) * min(product(gaps), 2),
    "decoupled_geo_rs": lambda gaps, t: float(abs(mean(gaps)) <= 1e-3),
    "decoupled_k3_rs": lambda gaps, t: float(
        mean([math.exp(gap) - 1 - gap for gap in gaps]) <= 0.01
    ),
    "seq_sum_k1": lambda gaps, t: float(abs(sum(gaps)) <= 0.69),
    "seq_max_k2": lambda gaps, t: float(max(map(abs, gaps)) <= 4.6),
    "token_k1": lambda gaps, t: float(abs(gaps[t]) <= 0.69),
}
LENGTHS = [6, 1, 4, 6, 3, 6]


def preset(point):
    return re.split("[, ]", point.verl)[0].removeprefix("rollout_rs=")


def gaps_of(scale):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(6, 6, generator=generator, dtype=torch.float64) * scale


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("scale", [4e-4, 0.1, 1.0, 4.0])
def test_words_weigh_as_their_line_says(name, scale):
    (point,) = [p for p in POINTS if name == preset(p) or (name in p.words and not p.verl)]
    plan = make_plan(compose(["recipe=grpo", *point.words.split(), "sampler=rounded"], ZOO), ZOO)
    gaps, mask = gaps_of(scale), torch.zeros(6, 6, dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        mask[row, :length] = 1
    old = torch.full_like(gaps, -9.0)
    (bound,) = [column for column in plan.columns if column.name == plan.correction]
    weights = bound({
        "old_log_probs": old, "sampler_log_probs": old - gaps, "response_mask": mask
    })  # fmt: skip
    for row, length in enumerate(LENGTHS):
        of = gaps[row, :length].tolist()
        expected = [WEIGHTS[name](of, t) for t in range(length)]
        assert weights[row, :length].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("point", POINTS, ids=[p.words for p in POINTS])
def test_words_make_a_plan(point):
    sampler = [] if "distribution" in point.words else ["sampler=rounded"]
    make_plan(compose(["recipe=grpo", *point.words.split(), *sampler], ZOO), ZOO)


def test_the_verb_shows_every_point(capsys):
    assert cli.main(["show", "correction"]) == 0
    shown = capsys.readouterr().out
    assert all(point.words in shown for point in POINTS)
    assert cli.main(["show", "correction", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [p["words"] for p in document["points"]] == [p.words for p in POINTS]
    assert document["not_here"] == [*NOT_HERE]
