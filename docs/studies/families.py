"""Two tables of docs/components/README.md, which `docs/generate.py` writes.

Each loss and estimator is called on a few made-up rows.
"""

import math
from typing import Any

import torch
from torch import Tensor

from rlzoo.plugin.component import Component
from rlzoo_lab.kit.checks.made_up import made_up

Table = tuple[list[str], list[list[str]]]

RATIOS = (0.5, 1.0, 1.5, 4.0)
PROBABILITY = 0.2  # of the token under the policy that sampled


# ---------------------------------------------------------------- policy losses


def losses(zoo: Any, shipped: list[Component]) -> Table:
    """What each loss does with one token: its push, in units of A grad log pi."""
    at = ", ".join(f"{ratio:g}" for ratio in RATIOS)
    head = ["loss", "unit", f"good token, ratio {at}", f"bad token, ratio {at}"]
    rows = []
    for loss in shipped:
        good, bad = (numbers(pushes(zoo, loss, a)) for a in (1.0, -1.0))
        link = f"[{loss.name}](policy_losses/{loss.name}.md)"
        rows.append([link, reach(zoo, loss), good, bad])
    return head, sorted(rows, key=lambda row: (REACHES.index(row[1]), row[0]))


def pushes(zoo: Any, loss: Component, advantage: float) -> list[float]:
    """-slope / A of a response of one token, at each ratio."""
    out = []
    for ratio in RATIOS:
        columns = probe(zoo, 1, 1)
        old_log = torch.full((1, 1), math.log(PROBABILITY), dtype=torch.float64)
        columns |= {"old_log_probs": old_log, "sampler_log_probs": old_log,
                    # just above, so that rounding decides nothing at a limit (ripo's: 0.5 and 1.5)
                    "log_probs": old_log + math.log(ratio) + 1e-9,
                    "advantages": torch.full((1, 1), advantage, dtype=torch.float64)}  # fmt: skip
        out.append(-slope(loss, columns)[0, 0].item() / advantage)
    return out


REACHES = ("token", "turn", "response", "group", "mini-batch")


def reach(zoo: Any, loss: Component) -> str:
    """How far away another token may be whose log-probability moves this one's push."""
    if loss.couples != "row":
        return {"batch": "mini-batch", "group": "group"}[loss.couples]
    draw = torch.Generator().manual_seed(0)
    columns = probe(zoo, 2, 6)
    noise = torch.rand(2, 6, generator=draw, dtype=torch.float64)
    columns["old_log_probs"] = columns["sampler_log_probs"] = -0.7 - 0.3 * noise
    columns["advantages"] = torch.tensor([[1.0], [-1.0]], dtype=torch.float64).expand(2, 6)
    columns["turn_ids"] = torch.tensor([[1, 1, 1, 2, 2, 2]]).expand(2, 6)
    found = "token"
    for gap in (-0.3, -0.1, 0.02, 0.1, 0.3):
        columns["log_probs"] = columns["old_log_probs"] + gap
        before = slope(loss, columns)
        for place, step in ((0, -4.0), (0, 0.3), (5, -4.0), (5, 0.3)):
            moved = columns["log_probs"].clone()
            moved[:, place] += step
            differs = (slope(loss, {**columns, "log_probs": moved}) - before).abs() > 1e-9
            near, far = (slice(1, 3), slice(3, 6)) if place == 0 else (slice(3, 5), slice(0, 3))
            for name, where in (("turn", near), ("response", far)):
                if differs[:, where].any():
                    found = max(found, name, key=REACHES.index)
    return found


def slope(loss: Component, columns: dict[str, Any]) -> Tensor:
    leaf = columns["log_probs"].detach().clone().requires_grad_()
    out = loss({**columns, "log_probs": leaf})
    out = out[0] if isinstance(out, tuple) else out
    return torch.autograd.grad(out.sum(), leaf)[0]


def probe(zoo: Any, rows: int, steps: int) -> dict[str, Any]:
    """A batch of one group without holes; every column there is."""
    mask = torch.ones(rows, steps, dtype=torch.float64)
    return made_up(zoo, mask=mask, groups=torch.zeros(rows, dtype=torch.long))


def numbers(values: list[float]) -> str:
    return ", ".join(f"{x + 0.0:.2f}".rstrip("0").rstrip(".") for x in map(rounded, values))


def rounded(x: float) -> float:
    return 0.0 if abs(x) < 5e-3 else x


# ---------------------------------------------------------------- estimators

SAMPLES, LENGTH = 4, 4


def estimators(zoo: Any, shipped: list[Component]) -> Table:
    """Advantages of a right response among four of four tokens, of which one or three are right."""
    head = ["estimator", "baseline", "tokens", "one right", "three right"]
    rows = []
    for estimator in shipped:
        cells = [span(estimate(zoo, estimator, right)[0]) for right in (1, 3)]
        rows.append([f"[{estimator.name}](estimators/{estimator.name}.md)",
                     baseline(estimator), credit(zoo, estimator), *cells])  # fmt: skip
    return head, sorted(rows, key=lambda row: (row[1], row[2], row[0]))


def estimate(zoo: Any, estimator: Component, right: int) -> Tensor:
    """Advantages (4, 4): the first `right` responses earn 1 at their last token, others 0; every
    value is the share of right ones."""
    columns = probe(zoo, SAMPLES, LENGTH)
    outcome = (torch.arange(SAMPLES) < right).double()
    share = right / SAMPLES
    last = torch.zeros(SAMPLES, LENGTH, dtype=torch.float64)
    last[:, -1] = outcome
    log_pi = torch.full_like(last, math.log(0.5))
    flat = {
        "rewards": last, "scores": last, "task_scores": last, "sequence_rewards": outcome,
        "sequence_scores": outcome, "score_components": outcome[:, None],
        "score_weights": torch.ones(1, dtype=torch.float64), "values": torch.full_like(last, share),
        "bootstrap_values": torch.zeros_like(outcome), "old_log_probs": log_pi,
        "sampler_log_probs": log_pi, "ref_log_probs": log_pi, "log_probs": log_pi,
        "teacher_log_probs": log_pi, "self_teacher_log_probs": log_pi,
        "teacher_kl": torch.zeros_like(last),
        "sum_pi_squared": torch.full_like(last, 0.5), "turn_ids": torch.ones_like(last).long(),
        "state_keys": torch.arange(LENGTH).expand(SAMPLES, LENGTH) + 1,
        "terminated": torch.ones(SAMPLES, dtype=torch.bool),
        "truncated": torch.zeros(SAMPLES, dtype=torch.bool),
        "greedy_scores": torch.full_like(outcome, share), "branch_steps": torch.zeros_like(last),
        "branch_values": torch.full_like(last, share), "implicit_rewards": torch.zeros_like(last),
        "optimal_values": torch.full_like(outcome, 0.5 * math.log(1 + share * math.expm1(2))),
        "history": torch.full_like(outcome, share),
    }  # fmt: skip
    return advantages(estimator({**columns, **flat}))


def advantages(out: Any) -> Tensor:
    return out["advantages"] if isinstance(out, dict) else out


def span(row: Tensor) -> str:
    """One number, or that of the first and of the last token."""
    first, last = (f"{rounded(x) + 0.0:.2f}".rstrip("0").rstrip(".") for x in row[[0, -1]].tolist())
    return first if first == last else f"{first} … {last}"


BASELINES = {
    "values": "a critic", "group_ids": "the group", "greedy_scores": "a greedy response",
    "branch_values": "fresh rollouts", "optimal_values": "the reference",
    "history": "past rewards", "teacher_log_probs": "a teacher",
    "self_teacher_log_probs": "the policy, given an answer",
}  # fmt: skip


def baseline(estimator: Component) -> str:
    """The baseline of a response, derived from the columns that the estimator reads."""
    said = [text for name, text in BASELINES.items() if name in estimator.needs]
    return " and ".join(said) or "nothing"


def credit(zoo: Any, estimator: Component) -> str:
    """Whether the tokens of a response, or of a turn, get one number; rewards are all over it."""
    columns = made_up(zoo, seed=1)
    out, mask = advantages(estimator(columns)), columns["response_mask"].bool()
    turns = columns["turn_ids"]
    whole = [out[i][mask[i]] for i in range(len(out)) if mask[i].any()]
    if all(torch.allclose(x, x[:1]) for x in whole):
        return "share one"
    parts = [out[i][mask[i] & (turns[i] == k)] for i in range(len(out)) for k in (1, 2)]
    return "share one per turn" if all(torch.allclose(x, x[:1]) for x in parts) else "each its own"
