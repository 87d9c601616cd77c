"""rlzoo in rLLM, by rLLM's own collect_reward_and_advantage_from_trajectory_groups: writes JSON.

    python tests/reference/make_bridges.py rllm

rLLM is a checkout of its repository, unmodified.
"""

import json
import sys

import torch

CHECKOUT, OUT = sys.argv[1], sys.argv[2]
sys.path.insert(0, CHECKOUT)

from batches import make, options  # noqa: E402
from rllm.trainer.algorithms import AlgorithmConfig  # noqa: E402
from rllm.trainer.algorithms.advantage import (  # noqa: E402
    collect_reward_and_advantage_from_trajectory_groups as collect,
)
from rllm.types import Step, Trajectory, TrajectoryGroup  # noqa: E402

from rlzoo import load_zoo  # noqa: E402
from rlzoo.errors import RlzooError  # noqa: E402
from rlzoo.recipe.files import list_configs  # noqa: E402
from rlzoo_bridges.hosts import HOSTS  # noqa: E402
from rlzoo_bridges.lines import lines  # noqa: E402
from rlzoo_bridges.rllm import register  # noqa: E402

HOST, ZOO = HOSTS["rllm"], load_zoo()
FED = [n for n, c in ZOO.estimators.items() if not HOST.refusal(c, ZOO.columns)]
CASES = ("single_turn", "ragged", "group_of_one")


def groups(x) -> tuple[list, list[int]]:
    """rLLM's groups, and the row of each trajectory; the second half of a response is a step."""
    by_id: dict[int, list[int]] = {}
    for row, name in enumerate(x["group_ids"].tolist()):
        by_id.setdefault(name, []).append(row)
    out = []
    for name, rows in by_id.items():
        trajectories = []
        for row in rows:
            n = int(x["response_mask"][row].sum())
            steps = [Step(response_ids=[1] * (n // 2)), Step(response_ids=[1] * (n - n // 2))]
            reward = float(x["outcome"][row])
            trajectories.append(Trajectory(name="solver", steps=steps, reward=reward))
        out.append(TrajectoryGroup(trajectories=trajectories, group_id=f"{name}:solver"))
    return out, [row for rows in by_id.values() for row in rows]


def theirs(x, estimator, **config) -> torch.Tensor:
    """Advantages (B,) that rLLM writes into the steps."""
    found, rows = groups(x)
    collect(found, AlgorithmConfig(estimator_map={"solver": estimator}, **config))
    values = [t.steps[-1].advantage for g in found for t in g.trajectories]
    out = torch.empty(len(rows), dtype=torch.float64)
    out[rows] = torch.tensor(values, dtype=torch.float64)
    return out


def by_hand(x, name) -> torch.Tensor:
    mask = x["response_mask"]
    total = (x["rewards"] * mask).sum(1)
    columns = {**x, "scores": x["rewards"], "sequence_rewards": total, "sequence_scores": total}
    out = ZOO.estimators[name](columns, **options(ZOO.estimators[name], gamma=1.0, lam=1.0))
    return out["advantages"][:, 0]


def own(name: str) -> dict:
    chosen = options(ZOO.estimators[name], gamma=1.0, lam=1.0)
    return {k: v for k, v in chosen.items() if k not in ("gamma", "lam")}


def estimators() -> dict:
    worst = {}
    for name in FED:
        registered = register(name, **own(name))
        gaps = []
        for case in CASES[: 2 if name == "pkpo" else 3]:  # it needs k responses to a prompt
            x = make(case)
            gaps.append((theirs(x, registered) - by_hand(x, name)).abs().max().item())
        worst[name] = max(gaps)
    return worst


def against_rllm() -> dict:
    """rLLM's own estimators: their epsilon 1e-6 is added to a standard deviation over N."""
    x = make("ragged")
    pairs = {
        "rloo": (theirs(x, "rloo"), theirs(x, register("rloo"))),
        "reinforce": (theirs(x, "reinforce"), theirs(x, register("reinforce"))),
    }
    centred = theirs(x, "grpo", norm_adv_by_std_in_grpo=False)
    pairs["dr_grpo"] = centred, theirs(x, register("dr_grpo"))
    assert all(a.abs().max() > 0.1 for a, _ in pairs.values())
    return {name: (a - b).abs().max().item() for name, (a, b) in pairs.items()}


def refusals() -> dict:
    out = {}
    for name, given in (("gae", {}), ("reinforce", {"gamma": 0.9}), ("grpo", {"epsilon": 1})):
        try:
            theirs(make("ragged"), register(name, **given))
            out[name] = "runs"
        except RlzooError as error:
            out[name] = str(error)
    assert "runs" not in out.values(), out
    return out


def command_lines() -> dict:
    """The call of `register` that every recipe gets."""
    count, refused = 0, {}
    for recipe in list_configs("recipes"):
        try:
            text = lines("rllm", [f"recipe={recipe}"], ZOO).files["train.py"]
        except RlzooError as error:
            refused[recipe] = str(error)
            continue
        call = next(line for line in text.splitlines() if line.startswith("name = "))
        space = {"register": register}
        exec(call, space)
        assert theirs(make("ragged"), space["name"]).isfinite().all()
        count += 1
    return {"recipes": count, "refused": refused}


if __name__ == "__main__":
    found = {"estimators": estimators(), "against rllm": against_rllm(), "refusals": refusals(),
             "command lines": command_lines()}  # fmt: skip
    with open(OUT, "w") as file:
        json.dump(found, file, indent=1)
