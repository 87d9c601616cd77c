"""rlzoo in prime-rl: `import_path = "rlzoo_bridges.prime_rl.policy_loss"` of a custom loss.

    [trainer.loss]
    type = "custom"
    import_path = "rlzoo_bridges.prime_rl.policy_loss"
    kwargs = {loss = "gspo", clip_low = 3e-4}

prime-rl calls it with one response, and divides the sums by the number of trained tokens of a step.
"""

from typing import Any

from rlzoo.errors import ComponentError
from rlzoo_bridges import calls
from rlzoo_bridges.hosts import HOSTS

HOST = HOSTS["prime-rl"]


def policy_loss(
    inputs: Any, *, loss: str, kl: str | None = None, kl_coef: float = 0.0, **options: Any
) -> Any:
    """The sum of a policy loss over the tokens in the loss mask, as prime-rl's LossOutputs.

    inputs: prime-rl's LossInputs of one response: log-probabilities (T,) in nats of trainer,
        sampler and maybe reference, advantages (T,), mask (T,) bool, weights (T,) or None. The
        sampler's log-probabilities are the loss's `old_log_probs`.
    loss: the name of a policy loss, `options` its options. kl: the name of a KL penalty against the
        reference, times `kl_coef`.

    Raises ComponentError if the loss cannot run in prime-rl, or if the reference is missing.
    """
    from prime_rl.trainer.rl.loss import LossOutputs

    new, mask = inputs.trainer_logprobs, inputs.loss_mask
    old, advantages = inputs.inference_logprobs, inputs.advantages
    losses, metrics = calls.lose(
        HOST, loss, new[None], old[None], advantages[None], mask[None], options
    )
    per_token = losses[0]
    if kl is not None:
        if inputs.ref_logprobs is None:
            raise ComponentError(
                "rlzoo in prime-rl: kl needs ref_logprobs, which only algorithms with a reference "
                "model have (opd, opsd)"
            )
        columns = {"log_probs": new, "ref_log_probs": inputs.ref_logprobs, "old_log_probs": old}
        per_token = per_token + kl_coef * calls.zoo().kl_penalties[kl](columns)
    if inputs.loss_weights is not None:
        per_token = per_token * inputs.loss_weights
    tensors = {name: new.new_tensor(value) for name, value in metrics.items()}
    return LossOutputs(loss=per_token[mask].sum(), metrics=tensors)
