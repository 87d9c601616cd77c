"""rlzoo in SkyRL, by SkyRL's own call paths on a CPU: writes what it finds to a JSON file.

    python tests/reference/make_bridges.py skyrl

compute_advantages_and_returns, apply_loss_reduction_to_advantages_minibatch, the registries and
their Ray actors, and SkyRLTrainConfig are SkyRL's, unmodified.
"""

import json
import os
import sys
import warnings
from importlib.metadata import version

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray on the loopback address alone
import ray
import torch
from batches import CASES, OPTIONS, columns, gap, make, options
from skyrl.backends.skyrl_train.utils import ppo_utils
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.config.config import AlgorithmConfig

from rlzoo import load_zoo
from rlzoo.errors import RlzooError
from rlzoo.recipe.files import list_configs
from rlzoo_bridges import skyrl as bridge
from rlzoo_bridges.hosts import HOSTS
from rlzoo_bridges.lines import lines

warnings.filterwarnings("ignore")
HOST, ZOO = HOSTS["skyrl"], load_zoo()
FED = [n for n, c in ZOO.estimators.items() if not HOST.refusal(c, ZOO.columns)]
LOSSES = [n for n, c in ZOO.policy_losses.items() if not HOST.refusal(c, ZOO.columns)]
REDUCTIONS = {"token_mean": "token_mean", "sequence_mean": "seq_mean_token_mean",
              "seq_mean_token_sum_norm": "seq_mean_token_sum_norm"}  # fmt: skip


def fresh(options=None) -> None:
    """The registries with SkyRL's own and rlzoo's, the chosen one's options being these."""
    for registry in (ppo_utils.AdvantageEstimatorRegistry, ppo_utils.PolicyLossRegistry):
        registry.reset()
    ppo_utils.repopulate_all_registries()
    bridge.register(options)


def run(name, x, config=None, dtype=torch.float64, values=True):
    return ppo_utils.compute_advantages_and_returns(
        x["rewards"].to(dtype), x["response_mask"].to(dtype), [f"p{i}" for i in x["group_ids"]],
        name, config or AlgorithmConfig(), values=x["values"].to(dtype) if values else None,
        gamma=0.97, lambd=0.9,
    )  # fmt: skip


def estimators() -> dict:
    worst, calls = 0.0, 0
    for name in FED:
        fresh(OPTIONS.get(name, {}))
        for case in CASES:
            x = make(case)
            advantages, returns = run("rlzoo/" + name, x)
            want = ZOO.estimators[name](columns(x), **options(ZOO.estimators[name]))
            worst = max(worst, gap(advantages, want["advantages"]))
            worst = max(worst, gap(returns, want.get("returns", want["advantages"])))
            calls += 1
    refused = {n: why for n, c in ZOO.estimators.items() if (why := HOST.refusal(c, ZOO.columns))}
    return {"estimators": len(FED), "calls": calls, "worst": worst, "refused": refused}


def against_skyrl() -> dict:
    x = make("ragged")  # zeros on padding: SkyRL's own GAE reads what lies there
    mask = x["response_mask"].bool()
    fresh({"whiten": "batch"})
    whitened = {n: run("rlzoo/" + n, x)[0] for n in ("gae",)}
    returns = run("rlzoo/gae", x)[1]
    gae = run("gae", x)
    found = {"gae, whitened": gap(whitened["gae"][mask], gae[0][mask]),
             "gae, returns": gap(returns[mask], gae[1][mask])}  # fmt: skip
    fresh()
    for ours, theirs in (("rloo", "rloo"), ("grpo", "grpo"), ("maxrl", "maxrl")):
        pair = [run(n, x, values=False)[0][mask] for n in ("rlzoo/" + ours, theirs)]
        found[ours] = gap(*pair)
    leaky = dict(x, values=x["values"] + (1 - x["response_mask"]))
    found["its gae with values of 1 on padding"] = gap(run("gae", leaky)[1][mask], gae[1][mask])
    found["ours with values of 1 on padding"] = gap(run("rlzoo/gae", leaky)[1][mask], returns[mask])
    return found


def losses() -> dict:
    """SkyRL folds the reduction into the advantages, then sums: beside rlzoo's loss and weights."""
    worst, calls = 0.0, 0
    for case in ("single_turn", "ragged", "multi_turn"):
        x = make(case)
        mask = x["response_mask"]
        for name in LOSSES:
            for reduction, ours in REDUCTIONS.items():
                scaled = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
                    x["advantages"], mask, reduction, 4, 9
                )
                config = AlgorithmConfig(policy_loss_type="rlzoo/" + name)
                at = x["log_probs"].clone().requires_grad_()
                loss = ppo_utils.PolicyLossRegistry.get("rlzoo/" + name)
                value, _ = loss(at, x["old_log_probs"], scaled, config=config, loss_mask=mask)
                value.backward()
                by_hand = x["log_probs"].clone().requires_grad_()
                per_token, _ = ZOO.policy_losses[name](columns(x) | {"log_probs": by_hand})
                more = {"length": 9} if "norm" in ours else {}
                weights = ZOO.aggregations[ours]({"response_mask": mask}, **more)
                want = (weights * per_token).sum()
                want.backward()
                worst = max(worst, gap(at.grad, by_hand.grad), abs(value.item() - want.item()))
                calls += 1
    refused = {
        n: why for n, c in ZOO.policy_losses.items() if (why := HOST.refusal(c, ZOO.columns))
    }
    return {"losses": len(LOSSES), "calls": calls, "worst": worst, "refused": refused}


def through_ray() -> dict:
    """The registries' Ray actors: what is registered here is found in another process."""
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        ppo_utils.sync_registries()

        @ray.remote
        def elsewhere(x):
            return run("rlzoo/gae", x)[0]

        x = make("ragged")
        got = ray.get(elsewhere.remote(x))
        return {"gae in a Ray task": gap(got, run("rlzoo/gae", x)[0])}
    finally:
        ray.shutdown()


def command_lines() -> dict:
    """SkyRLTrainConfig takes the lines of every recipe that SkyRL can run."""
    composed, refused = 0, {}
    for recipe in list_configs("recipes"):
        try:
            words = lines("skyrl", [f"recipe={recipe}"], ZOO).words
        except RlzooError as error:
            refused[recipe] = str(error)
            continue
        _, rest = bridge.sort_words(words)
        config = SkyRLTrainConfig.from_cli_overrides(rest)
        assert config.trainer.algorithm.advantage_estimator.startswith("rlzoo/")
        ppo_utils.AdvantageEstimatorRegistry.get(config.trainer.algorithm.advantage_estimator)
        ppo_utils.PolicyLossRegistry.get(config.trainer.algorithm.policy_loss_type)
        composed += 1
    told = {}
    for word in ("rlzoo/gigpo", "rlzoo/gea"):
        try:
            bridge.sort_words([f"trainer.algorithm.advantage_estimator={word}"])
        except RlzooError as error:
            told[word] = str(error)
    return {"recipes": composed, "refused": refused, "told": told}


def main(out: str) -> None:
    result = {
        "versions": {n: version(n) for n in ("skyrl", "torch", "ray", "omegaconf")},
        "estimators": estimators(),
        "against skyrl": against_skyrl(),
        "losses": losses(),
        "command lines": command_lines(),
        "through ray": through_ray(),
    }
    with open(out, "w") as file:
        json.dump(result, file, indent=1)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
