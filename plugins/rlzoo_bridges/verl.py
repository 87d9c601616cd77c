"""rlzoo in verl: registers every estimator and policy loss of the zoo that verl supports.

verl imports this module itself, in each of its processes, by the entry-point group `verl.plugins`.

    python -m verl.trainer.main_ppo ... algorithm.adv_estimator=rlzoo/gae_decoupled \\
        critic.enable=true +algorithm.rlzoo.lam_actor=0.9

Options of an estimator are below `algorithm.rlzoo`; gamma and lam are those of `algorithm` where
those are not set. Options of a policy loss are below `policy_loss.rlzoo`, for which
`PolicyLossConfig` here has room.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import getitem
from typing import Any

import numpy as np
import torch
from verl.trainer.ppo import core_algos
from verl.workers.config import PolicyLossConfig as VerlPolicyLossConfig

from rlzoo.errors import RlzooError
from rlzoo.ops import masked_mean
from rlzoo_bridges import calls
from rlzoo_bridges.columns import Columns, last_outputs, numbered
from rlzoo_bridges.hosts import HOSTS, PREFIX

HOST = HOSTS["verl"]
KEYS = {"algorithm.adv_estimator": "estimators", "policy_loss.loss_mode": "policy_losses"}


@dataclass
class PolicyLossConfig(VerlPolicyLossConfig):
    """verl's, with the options of a policy loss of rlzoo."""

    rlzoo: dict[str, Any] = field(default_factory=dict)


def columns(tensors: Mapping[str, Any], rows: Mapping[str, Any], config: Mapping) -> Columns:
    """verl's batch by rlzoo's names: `tensors` (B, T) or (B,), `rows` arrays of objects (B,)."""
    rewards = tensors["token_level_rewards"]

    def components() -> torch.Tensor:
        parts = [np.asarray(rows[k], dtype=float) for k in config["gdpo_reward_keys"] or ()]
        return torch.as_tensor(np.stack(parts, 1)).to(rewards)

    def weights() -> torch.Tensor:
        given = config.get("gdpo_reward_weights") or [1.0] * len(config["gdpo_reward_keys"])
        return torch.tensor(list(given)).to(rewards)

    own: dict[str, Any] = {
        "rewards": rewards,
        "response_mask": tensors["response_mask"].to(rewards.dtype),
        "group_ids": lambda: numbered(rows["uid"], rewards.device),
        "values": lambda: tensors["values"].to(rewards.dtype),
        "score_components": components,
        "score_weights": weights,
    }
    theirs = {
        "scores": "token_level_scores",
        "old_log_probs": "old_log_probs",
        "sampler_log_probs": "rollout_log_probs",
        "ref_log_probs": "ref_log_prob",
        "sum_pi_squared": "sum_pi_squared",
        "greedy_scores": "reward_baselines",
    }
    own |= {name: partial(getitem, tensors, key) for name, key in theirs.items()}
    return Columns(HOST, own)


def estimate(
    name, token_level_rewards, response_mask, config=None, index=None, batch=None,
    non_tensor_batch=None, **more,
):  # fmt: skip
    """(advantages, returns) as verl's compute_advantage returns them."""
    caller = sys._getframe(1)
    if batch is None:  # its caller has the whole batch, and hands on a part (verl#7473 would all)
        data = caller.f_locals.get("data")
        batch = getattr(data, "batch", more)
        non_tensor_batch = getattr(data, "non_tensor_batch", {})
    given = {"token_level_rewards": token_level_rewards, "response_mask": response_mask}
    rows = dict(non_tensor_batch or {}) | ({} if index is None else {"uid": index})
    config = {} if config is None else config
    options = dict(config.get("rlzoo") or {})
    usual = {key: config.get(key) for key in ("gamma", "lam")}
    tensors = dict(batch.items()) | given
    keys = caller.f_back.f_locals.get("batch_keys") if caller.f_back else None
    last, session = last_outputs(keys or ())
    needs = calls.find(HOST, "estimators", name, options).needs
    if len(last) == len(session) or "group_ids" not in needs:
        return calls.estimate(HOST, name, columns(tensors, rows, config), options, usual)
    # As verl does for its own grpo: last outputs are compared, and their session shares in theirs.
    tensors = {key: x[last] for key, x in tensors.items()}
    rows = {key: np.asarray(x, dtype=object)[last] for key, x in rows.items()}
    mask = tensors["response_mask"]
    found = calls.estimate(HOST, name, columns(tensors, rows, config), options, usual)
    first = torch.arange(len(last), device=mask.device), mask.long().argmax(1)
    advantages, returns = (x[first][session][:, None] * response_mask for x in found)
    return advantages, returns


def lose(
    name, old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean",
    config=None, rollout_is_weights=None,
):  # fmt: skip
    """(the aggregated loss, metrics) as verl's ppo_loss returns them."""
    options = {} if config is None else dict(config.policy_loss.get("rlzoo") or {})
    losses, metrics = calls.lose(
        HOST, name, log_prob, old_log_prob, advantages, response_mask, options
    )
    if rollout_is_weights is not None:
        losses = losses * rollout_is_weights
    mask = response_mask.to(losses.dtype)
    global_batch = {} if config is None else config.global_batch_info
    value = core_algos.agg_loss(
        loss_mat=losses, loss_mask=mask, loss_agg_mode=loss_agg_mode, **global_batch
    )
    moved = masked_mean((old_log_prob - log_prob).detach(), mask)
    return value, {f"actor/{k}": x for k, x in metrics.items()} | {"actor/ppo_kl": moved.item()}


def register() -> None:
    """Everything into verl's registries; a component that cannot be fed raises when called."""
    for name in calls.zoo().estimators:
        core_algos.register_adv_est(PREFIX + name)(_named(estimate, name))
    for name in calls.zoo().policy_losses:
        core_algos.register_policy_loss(PREFIX + name)(_named(lose, name))


def _named(function: Any, name: str) -> Any:
    call = partial(function, name)
    call.__name__ = call.__qualname__ = f"rlzoo_{name}"  # type: ignore[attr-defined]
    return call


def check_words(words: list[str]) -> None:
    """Raise RlzooError where verl's command line names what cannot run there, or does not exist:
    the first call would come after a rollout."""
    for word in words:
        key, _, name = word.lstrip("+").partition("=")
        for end, kind in KEYS.items():
            if key.endswith(end) and name.strip("'\"").startswith(PREFIX):
                calls.find(HOST, kind, name.strip("'\""))


def _load() -> None:
    """verl logs a failing plugin only at DEBUG, and continues without it."""
    try:
        register()
    except Exception as error:
        calls.log.error("rlzoo could not be registered in verl: %s", error)
        raise
    try:
        check_words(sys.argv[1:])
    except RlzooError as error:
        raise SystemExit(f"rlzoo: {error}") from None


_load()
