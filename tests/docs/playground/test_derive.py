"""The arithmetic that the page writes against the lines of `rlzoo trace`."""

import random

import pytest

from helpers.javascript import ENGINE
from helpers.play import answers, source_of
from rlzoo.cli import parse
from rlzoo_lab.diagnose.trace import command

pytestmark = pytest.mark.skipif(ENGINE is None, reason="neither node nor chromium is installed")

SOURCE = source_of("advantage", "derive")
ESTIMATORS = ("gae", "td0", "mc", "n_step", "reinforce", "grpo", "rloo", "dr_grpo", "maxrl")


def traced_lines(zoo, *words):
    """column -> the lines of its derivation, of typed numbers."""
    arguments = parse(["trace", *words])
    found = command.trace(arguments, zoo)
    derivations = [*found.derivations, *(d for c in found.credits for d in c.derivations)]
    return {d.column: d.lines for d in derivations}


def typed(rows):
    return ";".join(",".join(map(str, row)) for row in rows)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_advantages_are_written_as_trace_writes_them(zoo, name):
    draw = random.Random(1)
    rewards = [[round(draw.uniform(-1, 1), 3) for _ in range(5)] for _ in range(3)]
    values = [[round(draw.uniform(0, 1), 3) for _ in range(5)] for _ in range(3)]
    if name == "maxrl":
        rewards = [[0.0] * 4 + [r] for r in (1.0, 0.0, 0.0)]
    mask = [[1, 1, 0, 1, 1]] * 3
    ends = [0.25, 0, 0]
    options = {"gamma": 0.9, "lam": 0.8, "n": 2, "eps": 1e-6}
    declared = zoo.estimators[name].options
    flags = [x for o in declared for x in (f"--{o}", str(options[o]))]
    batch = {
        "rewards": rewards, "values": values, "bootstrap_values": ends, "response_mask": mask,
        "group_ids": [0, 0, 0],
    }  # fmt: skip
    paid = [sum(r for r, on in zip(row, mask[0], strict=True) if on) for row in rewards]
    batch |= {"sequence_rewards": paid, "sequence_scores": paid}
    critic = "values" in zoo.estimators[name].needs
    want = traced_lines(
        zoo, "--rewards", typed(rewards), "--response-mask", typed(mask), "--estimator", name,
        "--values", typed(values), "--bootstrap", typed([ends]).replace(",", ";"), *flags,
    )  # fmt: skip
    function = """({ batch, name, options }) => ({
      delta: deriveDelta(batch, 0, options.gamma),
      advantage: deriveAdvantages(name, batch, 0, options),
      return: batch.values && deriveReturns(batch, 0,
        ESTIMATORS[name].run(batch, options).advantages[0],
        (ESTIMATORS[name].run(batch, options).returns || batch.values)[0]) })"""
    (got,) = answers(SOURCE, function, [{"batch": batch, "name": name, "options": options}])
    assert got["advantage"] == want["advantage"]
    if critic:
        assert got["delta"] == want["delta"]
        assert got["return"] == want["return"]


def test_ratio_loss_reward_and_whitening_are_written_as_trace_writes_them(zoo):
    now, old = [-1.0, -0.2, -0.9, -2.0], [-1.5, -0.25, -0.3, -2.0]
    advantages = [0.3, 0.125, -0.4, 0.7]
    want = traced_lines(zoo, "--log-probs", typed([now]), "--old-log-probs", typed([old]),
                        "--advantages", typed([advantages]))  # fmt: skip
    batch = {"log_probs": [now], "old_log_probs": [old], "advantages": [advantages],
             "response_mask": [[1, 1, 1, 1]]}  # fmt: skip
    function = """batch => [deriveRatios(batch, 0), deriveLoss(batch, 0,
      policyLoss("ppo_clip", batch, { clip_low: 0.2, clip_high: 0.2 }).loss[0])]"""
    ((ratio, loss),) = answers(SOURCE, function, [batch])
    assert ratio == want["ratio"]
    assert loss == want["policy loss"][:-1]
    assert any("instead of" in line for line in loss)
    scores, kl = [0, 0, 0, 1], [0.5, -0.2, 0.3, 0.1]
    for spread in ("token", "last"):
        want = traced_lines(
            zoo, "--scores", typed([scores]), "--kl", typed([kl]), "--values", "0.1,0.2,0.3,0.4",
            "kl.coef=0.1", f"kl.spread={spread}", "whiten=batch", "--lam", "0.5",
        )  # fmt: skip
        function = """({ scores, kl, spread }) => {
          const mask = [1, 1, 1, 1], rewards = lessPenalty(scores, kl, mask, 0.1, spread);
          const raw = tdLambda(rewards, [0.1, 0.2, 0.3, 0.4], 0, mask, 1, 0.5);
          return [deriveRewards(scores, kl, rewards, mask, 0.1, spread),
                  deriveWhitening(mask, raw, whiten(raw, mask))]; }"""
        ((reward, white),) = answers(
            SOURCE, function, [{"scores": scores, "kl": kl, "spread": spread}]
        )
        assert reward == want["reward"]
        assert white == want["whitened advantage"]


def test_numbers_are_written_as_python_writes_six_digits():
    draw = random.Random(2)
    found = [draw.gauss(0, 1) * 10 ** draw.randint(-9, 9) for _ in range(500)]
    found += [0.0, 1.0, -1.0, 1e-5, 100000.0, 999999.9, 1e6, 0.1]
    assert answers(SOURCE, "plain", found) == [f"{x:.6g}" for x in found]
