"""Functions of TRL's trainers, which compute inside methods that also generate and log.

The lines of the method that compute the advantages are run by themselves; the loss is the method,
of a trainer with the defaults of its config whose model gives the log-probs of the batch.
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

LONGEST = 256  # max_completion_length, a constant that some losses divide by


def excerpt(method: Any, first: str, last: str) -> Callable[..., dict[str, Any]]:
    """The lines of a function from that which starts with `first` to that with `last`, which map
    names to names."""
    lines = inspect.getsource(method).splitlines()
    places = [i for text in (first, last) for i, x in enumerate(lines) if x.strip() == text][:2]
    if len(places) < 2 or places[0] > places[1]:
        raise ValueError(f"{method.__qualname__} has no lines from {first!r} to {last!r}")
    text = textwrap.dedent("\n".join(lines[places[0] : places[1] + 1]))
    code = compile(text, inspect.getsourcefile(method) or "?", "exec")

    def run(**names: Any) -> dict[str, Any]:
        space = {**method.__globals__, **names}
        exec(code, space)
        return space

    return run


def grpo(method: Any) -> Callable[..., Any]:
    run = excerpt(
        method,
        "unscorable_mask = torch.isnan(rewards_per_func).all(dim=1)",
        "advantages = torch.nan_to_num(advantages, nan=0.0)",
    )

    def advantages(
        sequence_scores: Tensor, response_mask: Tensor, num_generations: int,
        scale_rewards: str = "group", multi_objective_aggregation: str = "sum_then_normalize",
    ) -> Any:  # fmt: skip
        trainer = SimpleNamespace(
            scale_rewards=scale_rewards, multi_objective_aggregation=multi_objective_aggregation,
            reward_weights=torch.ones(1).to(sequence_scores), reward_funcs=[None],
        )  # fmt: skip
        return run(self=trainer, rewards_per_func=sequence_scores[:, None].clone(),
                   num_generations=num_generations, device="cpu")["advantages"]  # fmt: skip

    return advantages


def rloo(method: Any) -> Callable[..., Any]:
    run = excerpt(
        method,
        "grouped_rewards = rewards.view(-1, num_generations)",
        "advantages = torch.nan_to_num(advantages, nan=0.0)",
    )

    def advantages(
        sequence_rewards: Tensor, response_mask: Tensor, num_generations: int,
        normalize_advantages: int = 0,
    ) -> Any:  # fmt: skip
        trainer = SimpleNamespace(normalize_advantages=normalize_advantages)
        names = {"rewards": sequence_rewards, "num_generations": num_generations}
        return run(self=trainer, **names)["advantages"]

    return advantages


def grpo_loss(method: Any) -> Callable[..., Any]:
    own = _trainer(method, "GRPOTrainer", "GRPOConfig")

    def loss(
        log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, response_mask: Tensor,
        loss_type: str, importance_sampling_level: str = "token",
    ) -> Tensor:  # fmt: skip
        stub = own(log_probs)
        if importance_sampling_level == "sequence":
            advantages = _of_response(advantages, response_mask)
        stub.loss_type, stub.importance_sampling_level = loss_type, importance_sampling_level
        return method(stub, None, _inputs(response_mask) | {
            "advantages": advantages, "old_per_token_logps": old_log_probs,
            "num_items_in_batch": response_mask.sum(),
        })  # fmt: skip

    return loss


def rloo_loss(method: Any) -> Callable[..., Any]:
    own = _trainer(method, "RLOOTrainer", "RLOOConfig")

    def loss(
        log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, response_mask: Tensor
    ) -> Tensor:
        return method(own(log_probs), None, _inputs(response_mask) | {
            "advantages": _of_response(advantages, response_mask),
            "old_logps": (old_log_probs * response_mask).sum(1),
        })  # fmt: skip

    return loss


def _of_response(advantages: Tensor, mask: Tensor) -> Tensor:
    """(B,) the mean over the actions, which have the same one there."""
    return (advantages * mask).sum(1) / mask.sum(1).clamp(min=1)


def _inputs(mask: Tensor) -> dict[str, Tensor]:
    ids = torch.zeros_like(mask, dtype=torch.long)
    prompt = ids[:, :0]
    return {"prompt_ids": prompt, "prompt_mask": prompt, "completion_ids": ids,
            "completion_mask": mask}  # fmt: skip


def _trainer(method: Any, trainer: str, config: str) -> Callable[[Tensor], Any]:
    """Makes a trainer by the defaults of its config, whose model gives these log-probs."""
    module = sys.modules[method.__module__]
    fields = dataclasses.fields(getattr(module, config))
    defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}

    def own(log_probs: Tensor) -> Any:
        args = SimpleNamespace(**defaults)
        return _Stub(getattr(module, trainer), args, log_probs)

    return own


def _same(x: Any, *_: Any, **__: Any) -> Any:
    return x


class _Stub:
    """What `_compute_loss` reads of a trainer; the rest is as its config has it."""

    def __init__(self, cls: type, args: Any, log_probs: Tensor):
        high = getattr(args, "epsilon_high", None)
        self._cls, self.args = cls, args
        self.epsilon_low, self.epsilon_high = args.epsilon, args.epsilon if high is None else high
        self.max_completion_length, self.current_gradient_accumulation_steps = LONGEST, 1
        self.model = SimpleNamespace(training=True)
        self.accelerator = SimpleNamespace(
            num_processes=1, sync_gradients=True, gather=_same, gather_for_metrics=_same,
            reduce=_same,
        )  # fmt: skip
        self._metrics: Any = defaultdict(lambda: defaultdict(list))
        self.aux_loss_enabled = self._entropy_bonus_enabled = False
        self._get_per_token_logps_and_entropies = lambda *_, **__: (
            log_probs, torch.zeros_like(log_probs), None,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        args = vars(self).get("args")
        return getattr(args if hasattr(args, name) else vars(self)["_cls"], name)
