"""rlzoo in prime-rl, by prime-rl's own setup_rl_loss_fn and compute_loss: writes JSON.

    python tests/reference/make_bridges.py prime-rl

prime-rl is a checkout of its repository (it is on no index); `loss.py` and the configurations are
unmodified. Its module of helpers, which imports all of its services, is the one function that
loss.py takes from it; BaseConfig of its configurations is pydantic's.
"""

import importlib
import json
import sys
import tomllib
import types

import pydantic
import torch

CHECKOUT, OUT = sys.argv[1], sys.argv[2]
helpers = types.ModuleType("prime_rl.utils.utils")
helpers.import_object = lambda path: getattr(
    importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2]
)
configs = types.ModuleType("pydantic_config")
configs.BaseConfig, configs.cli = pydantic.BaseModel, None
sys.modules |= {"prime_rl.utils.utils": helpers, "pydantic_config": configs}
sys.path[:0] = [f"{CHECKOUT}/src", f"{CHECKOUT}/packages/prime-rl-configs/src"]

from batches import make  # noqa: E402
from prime_rl.configs.trainer import CustomLossConfig, DefaultLossConfig  # noqa: E402
from prime_rl.trainer.rl.loss import compute_loss, setup_rl_loss_fn  # noqa: E402

from rlzoo import load_zoo  # noqa: E402
from rlzoo.errors import RlzooError  # noqa: E402
from rlzoo.recipe.files import list_configs  # noqa: E402
from rlzoo_bridges.hosts import HOSTS  # noqa: E402
from rlzoo_bridges.lines import lines  # noqa: E402

HOST, ZOO = HOSTS["prime-rl"], load_zoo()
LOSSES = [n for n, c in ZOO.policy_losses.items() if not HOST.refusal(c, ZOO.columns)]
CASES = ("single_turn", "ragged", "multi_turn")


def theirs(x, config, ref=False, weights=False):
    """(loss, gradient (B, T)) by compute_loss: the responses as a list, divided by the tokens."""
    new = x["log_probs"].clone().requires_grad_()
    mask = x["response_mask"].bool()
    rows = range(len(mask))
    loss, metrics = compute_loss(
        [new[i] for i in rows],
        [x["old_log_probs"][i] for i in rows],
        [x["ref_log_probs"][i] for i in rows] if ref else None,
        [x["advantages"][i] for i in rows],
        [mask[i] for i in rows],
        [torch.full_like(new[i], 0.5) for i in rows] if weights else None,
        None,
        None,
        setup_rl_loss_fn(config),
        int(mask.sum()),
        1,
        1,
    )
    return loss, torch.autograd.grad(loss, new)[0], metrics


def by_hand(x, name, kl=None, coef=0.0):
    """(loss, gradient): the zoo's function on the whole batch, mean over its tokens."""
    new = x["log_probs"].clone().requires_grad_()
    columns = {**x, "log_probs": new}
    losses, metrics = ZOO.policy_losses[name](columns)
    if kl:
        losses = losses + coef * ZOO.kl_penalties[kl](columns)
    mask = x["response_mask"]
    loss = (losses * mask).sum() / mask.sum()
    return loss, torch.autograd.grad(loss, new)[0], metrics


def gap(a, b) -> float:
    return max((u - v).abs().max().item() for u, v in zip(a[:2], b[:2], strict=True))


def custom(**kwargs):
    return CustomLossConfig(import_path="rlzoo_bridges.prime_rl.policy_loss", kwargs=kwargs)


def losses() -> dict:
    worst = dict.fromkeys(LOSSES, 0.0)
    for case in CASES:
        for seed in range(2):
            x = make(case, seed)
            for name in LOSSES:
                worst[name] = max(worst[name], gap(theirs(x, custom(loss=name)), by_hand(x, name)))
    return worst | {"batches": 2 * len(CASES)}


def others() -> dict:
    """KL, weights, and prime-rl's own loss, whose gradient without its penalty is dppo_tv's."""
    x = make("ragged")
    found = {}
    for kl in ("k1", "k2", "k3", "abs"):
        config = custom(loss="ppo_clip", kl=kl, kl_coef=0.1)
        hand = by_hand(x, "ppo_clip", kl, 0.1)
        found[f"ppo_clip and {kl}"] = gap(theirs(x, config, ref=True), hand)
    half = theirs(x, custom(loss="ppo_clip"), weights=True)
    whole = by_hand(x, "ppo_clip")
    found["weights of 0.5"] = gap([2 * t for t in half[:2]], whole)
    own = theirs(x, DefaultLossConfig(kl_tau=0.0, dppo_mask_low=0.2, dppo_mask_high=0.2))
    ours = theirs(x, custom(loss="dppo_tv", clip_low=0.2, clip_high=0.2, cap=1e9))
    found["prime-rl's own and dppo_tv: gradient"] = (own[1] - ours[1]).abs().max().item()
    assert own[1].abs().max() > 0.01
    return found


def refusals() -> dict:
    x, out = make("ragged"), {}
    for text, config in (
        ("kl without a reference", custom(loss="ppo_clip", kl="k3", kl_coef=0.1)),
        ("kl_cov", custom(loss="kl_cov")),
        ("an option that is not there", custom(loss="ppo_clip", clip=0.1)),
    ):
        try:
            theirs(x, config)
            out[text] = "runs"
        except RlzooError as error:
            out[text] = str(error)
    assert "runs" not in out.values(), out
    return out


def command_lines() -> dict:
    """The TOML of every recipe, as prime-rl reads it, gives a loss."""
    count, refused, x = 0, {}, make("ragged")
    for recipe in list_configs("recipes"):
        try:
            found = lines("prime-rl", [f"recipe={recipe}"], ZOO)
        except RlzooError as error:
            refused[recipe] = str(error)
            continue
        config = CustomLossConfig(**tomllib.loads(found.files["rlzoo.toml"])["trainer"]["loss"])
        assert theirs(x, config, ref=True)[0].isfinite()
        count += 1
    return {"recipes": count, "refused": refused}


if __name__ == "__main__":
    found = {"losses": losses(), "against prime-rl": others(), "refusals": refusals(),
             "command lines": command_lines()}  # fmt: skip
    with open(OUT, "w") as file:
        json.dump(found, file, indent=1)
