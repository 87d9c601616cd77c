"""Functions that need more than columns: a trainer, a batch, or lists of groups.

TRL's trainers compute inside methods that also generate and log. The lines that compute the
advantages are run by themselves; the loss is the method of a trainer with its config's defaults.
"""

import dataclasses
import inspect
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

LONGEST = 256  # max_completion_length, a constant that some losses divide by
FIRST = ("grouped_rewards = rewards.view(-1, num_generations)",
         "unscorable_mask = torch.isnan(rewards_per_func).all(dim=1)")  # fmt: skip
LAST = "advantages = torch.nan_to_num(advantages, nan=0.0)"


def trl_advantages(method: Any) -> Callable[..., Any]:
    lines = inspect.getsource(method).splitlines()
    bare = [x.strip() for x in lines]
    first = next((bare.index(x) for x in FIRST if x in bare), len(bare))
    if LAST not in bare[first:]:
        raise ValueError(f"{method.__qualname__} has no lines from {FIRST} to {LAST!r}")
    text = textwrap.dedent("\n".join(lines[first : bare.index(LAST, first) + 1]))
    code = compile(text, inspect.getsourcefile(method) or "?", "exec")

    def advantages(
        sequence_rewards: Tensor, response_mask: Tensor, num_generations: int,
        scale_rewards: str = "group", normalize_advantages: int = 0,
    ) -> Any:  # fmt: skip
        trainer = SimpleNamespace(
            scale_rewards=scale_rewards, multi_objective_aggregation="sum_then_normalize",
            reward_weights=torch.ones(1).to(sequence_rewards), reward_funcs=[None],
            normalize_advantages=normalize_advantages,
        )  # fmt: skip
        space = {**method.__globals__, "self": trainer, "device": "cpu",
                 "rewards": sequence_rewards, "num_generations": num_generations,
                 "rewards_per_func": sequence_rewards[:, None].clone()}  # fmt: skip
        exec(code, space)
        return space["advantages"]

    return advantages


def trl_loss(method: Any) -> Callable[..., Any]:
    trainer, module = method.__qualname__.partition(".")[0], sys.modules[method.__module__]
    fields = dataclasses.fields(getattr(module, trainer.replace("Trainer", "Config")))
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}

    def loss(
        log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, response_mask: Tensor,
        loss_type: str = "", importance_sampling_level: str = "token",
    ) -> Tensor:  # fmt: skip
        stub = _Stub(getattr(module, trainer), SimpleNamespace(**defaults), log_probs, loss_type)
        stub.importance_sampling_level = importance_sampling_level
        if importance_sampling_level == "sequence" or not loss_type:  # one for each response
            count = response_mask.sum(1).clamp(min=1)
            advantages = (advantages * response_mask).sum(1) / count
        ids = torch.zeros_like(response_mask, dtype=torch.long)
        return method(stub, None, {
            "prompt_ids": ids[:, :0], "prompt_mask": ids[:, :0], "completion_ids": ids,
            "completion_mask": response_mask, "advantages": advantages,
            "old_per_token_logps": old_log_probs, "num_items_in_batch": response_mask.sum(),
            "old_logps": (old_log_probs * response_mask).sum(1),
        })  # fmt: skip

    return loss


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


class _Stub:
    """What `_compute_loss` reads of a trainer; the rest is as its config has it."""

    importance_sampling_level: str

    def __init__(self, cls: type, args: Any, log_probs: Tensor, loss_type: str):
        self.loss_type = loss_type
        high = getattr(args, "epsilon_high", None)
        self._cls, self.args = cls, args
        self.epsilon_low, self.epsilon_high = args.epsilon, args.epsilon if high is None else high
        self.max_completion_length, self.current_gradient_accumulation_steps = LONGEST, 1
        self.model = SimpleNamespace(training=True)
        self.accelerator = SimpleNamespace(num_processes=1, sync_gradients=True, gather=_same,
                                           gather_for_metrics=_same, reduce=_same)  # fmt: skip
        self._metrics: Any = defaultdict(lambda: defaultdict(list))
        self.aux_loss_enabled = self._entropy_bonus_enabled = False
        scored = (log_probs, torch.zeros_like(log_probs), None)
        self._get_per_token_logps_and_entropies = lambda *_, **__: scored

    def __getattr__(self, name: str) -> Any:
        args = vars(self).get("args")
        return getattr(args if hasattr(args, name) else vars(self)["_cls"], name)


def nemo_advantages(method: Any) -> Callable[..., Any]:
    """A method that makes tensors of torch's default dtype: that of the rewards meanwhile."""

    def run(self: Any, group_ids: Tensor, sequence_rewards: Tensor, response_mask: Tensor) -> Any:
        before = torch.get_default_dtype()
        torch.set_default_dtype(sequence_rewards.dtype)
        try:
            return method(self, group_ids[:, None], sequence_rewards, response_mask)
        finally:
            torch.set_default_dtype(before)

    return run


def of_groups(function: Any) -> Callable[..., Any]:
    """A function of the rewards of each group, a list of arrays, which returns such a list."""

    def advantages(sequence_rewards: Tensor, group_ids: Tensor, response_mask: Tensor,
                   algorithm_config: Any) -> Tensor:  # fmt: skip
        groups = [(group_ids == g).nonzero()[:, 0] for g in group_ids.unique()]
        parts = function([sequence_rewards[g].numpy() for g in groups], algorithm_config)[0]
        whole = torch.cat([torch.as_tensor(x).to(sequence_rewards) for x in parts])
        return whole[torch.cat(groups).argsort()]

    return advantages


def nemo_batch(old_log_probs: Tensor, advantages: Tensor, response_mask: Tensor) -> Any:
    """One position more: the first token is not predicted."""
    old, advantages, mask = (pad(x, (1, 0)) for x in (old_log_probs, advantages, response_mask))
    return {"token_mask": mask, "sample_mask": torch.ones_like(mask[:, 0]), "prev_logprobs": old,
            "generation_logprobs": old, "advantages": advantages}  # fmt: skip
