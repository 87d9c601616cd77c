"""rlzoo in slime: `--custom-advantage-function-path rlzoo_bridges.slime.advantages`.

The YAML file of `--custom-config-path` sets what to compute:

    rlzoo: {estimator: gae_decoupled, lam_actor: 0.9, whiten: batch}

gamma and lam are slime's `--gamma` and `--lambd` unless the file sets them. The critic always
learns from slime's own returns, which slime computes in another process.
"""

from argparse import Namespace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlzoo.errors import ComponentError
from rlzoo.ops import at_last_action
from rlzoo_bridges import calls
from rlzoo_bridges.columns import Columns
from rlzoo_bridges.hosts import HOSTS

HOST = HOSTS["slime"]
NORMALISED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")  # slime does it to rewards
PER_TOKEN = ("values", "log_probs", "rollout_log_probs", "ref_log_probs", "kl", "loss_masks")


def advantages(args: Namespace, rollout_data: dict[str, Any]) -> None:
    """Fill `advantages` and `returns`: lists of tensors, one for each response of this rank."""
    options = dict(getattr(args, "rlzoo", None) or {})
    if "estimator" not in options:
        raise ComponentError(
            "rlzoo in slime: the file of --custom-config-path does not set rlzoo.estimator"
        )
    component = calls.find(HOST, "estimators", options["estimator"])
    name = options.pop("estimator")
    if getattr(args, "rewards_normalization", False) and args.advantage_estimator in NORMALISED:
        raise ComponentError(
            "rlzoo in slime: rewards are already standardized; add --disable-rewards-normalization"
        )
    if _ranks("get_context_parallel_world_size") > 1:
        raise ComponentError(
            "rlzoo in slime: --context-parallel-size must be 1, because otherwise a rank has only "
            "slices of responses"
        )
    rows = {k: v for k, v in rollout_data.items() if k in PER_TOKEN and v}
    rows |= {k: list(rollout_data[k]) for k in ("rewards", "sample_indices") if k in rollout_data}
    couples = component.couples != "row" or options.get("whiten", "none") != "none"
    start, count = 0, len(rows["loss_masks"])
    if couples and _ranks("get_data_parallel_world_size") > 1:
        rows, start = _of_all_ranks(rows)
    usual = {"gamma": getattr(args, "gamma", None), "lam": getattr(args, "lambd", None)}
    found = calls.estimate(HOST, name, columns(args, rows), options, usual)
    own = rollout_data["loss_masks"]
    for key, wide in zip(("advantages", "returns"), found, strict=True):
        part = wide[start : start + count]
        rollout_data[key] = [x[: len(m)].to(m.device) for x, m in zip(part, own, strict=True)]


def columns(args: Namespace, rows: dict[str, Any]) -> Columns:
    """slime's lists by rlzoo's names: a list of tensors (T_i,), one a response, becomes (B, T)."""
    like = next(
        (rows[k][0] for k in ("values", "log_probs", "rollout_log_probs") if k in rows), None
    )
    dtype = torch.float32 if like is None else like.dtype

    def wide(name: str) -> Tensor:
        return pad_sequence([x.to(dtype) for x in rows[name]], batch_first=True)

    mask = wide("loss_masks")

    def scores() -> Tensor:
        outcome = torch.as_tensor(rows["rewards"], dtype=dtype, device=mask.device)
        return at_last_action(outcome, mask)

    def rewards() -> Tensor:
        coef = getattr(args, "kl_coef", 0.0)
        return scores() - coef * wide("kl") * mask if coef else scores()

    def groups() -> Tensor:
        samples = torch.as_tensor(rows["sample_indices"], device=mask.device)
        return samples // args.n_samples_per_prompt

    own = {"rewards": rewards, "scores": scores, "response_mask": mask, "group_ids": groups}
    theirs = {
        "values": "values",
        "old_log_probs": "log_probs",
        "sampler_log_probs": "rollout_log_probs",
        "ref_log_probs": "ref_log_probs",
    }
    return Columns(HOST, own | {name: partial(wide, key) for name, key in theirs.items()})


def _ranks(what: str) -> int:
    from megatron.core import mpu

    return getattr(mpu, what, lambda: 1)()


def _of_all_ranks(rows: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The responses of every data-parallel rank, among which the samples of a prompt are scattered;
    and at which of them this rank's begin."""
    from megatron.core import mpu

    group = mpu.get_data_parallel_group()
    device = rows["loss_masks"][0].device
    here = {k: [x.cpu() if isinstance(x, Tensor) else x for x in v] for k, v in rows.items()}
    parts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(parts, here, group)
    together = {
        k: [x.to(device) if isinstance(x, Tensor) else x for part in parts for x in part[k]]
        for k in rows
    }
    before = parts[: dist.get_rank(group)]
    return together, sum(len(part["loss_masks"]) for part in before)
