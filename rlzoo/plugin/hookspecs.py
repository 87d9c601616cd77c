"""The hooks of rlzoo: one for each kind of component.

A plugin implements any of them with `@rlzoo.hookimpl` and calls `register(f)` for each component
it brings. `rlzoo.plugin.component.KINDS` says what each kind is called with and what it returns.
"""

from collections.abc import Callable

import pluggy

Register = Callable[..., None]

hookspec = pluggy.HookspecMarker("rlzoo")

hookimpl = pluggy.HookimplMarker("rlzoo")


@hookspec
def register_estimators(register: Register) -> None:
    """Advantage estimators: columns -> advantages (B, T), or (advantages, returns)."""


@hookspec
def register_kl_penalties(register: Register) -> None:
    """KL penalties: log_probs, ref_log_probs, ... -> penalty per token (B, T)."""


@hookspec
def register_policy_losses(register: Register) -> None:
    """Policy losses: log_probs, advantages, ... -> loss per token (B, T)[, metrics]."""


@hookspec
def register_value_losses(register: Register) -> None:
    """Value losses: value_preds, returns, ... -> loss per token (B, T)[, metrics]."""


@hookspec
def register_aggregations(register: Register) -> None:
    """Aggregations: the mini-batch's response_mask -> weights (B, T) of the loss per token."""


@hookspec
def register_columns(register: Register) -> None:
    """Columns: `register(f, shape="BT")`; the function's name is the column that it produces."""


@hookspec
def register_tasks(register: Register) -> None:
    """Tasks: classes with `draw`, `score` and optionally `is_correct`, `demonstrate`."""


@hookspec
def register_rewards(register: Register) -> None:
    """Rewards: columns -> outcome (B,) or score per token (B, T)."""


@hookspec
def register_samplers(register: Register) -> None:
    """Samplers: policy, prompt_ids, prompt_mask, ... -> response_ids and sampler_log_probs."""


@hookspec
def register_loggers(register: Register) -> None:
    """Loggers: classes with `log(metrics)` and `close()`, made with the run folder's `path`. A text
    that `log` returns ends the run, and says why."""


@hookspec
def register_executors(register: Register) -> None:
    """Executors: classes with `capacity(jobs)` and `run(jobs, work, board, folder, at_a_time)`."""
