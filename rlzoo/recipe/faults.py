"""Contradictions among the keys of a recipe: a line for each."""

from collections.abc import Iterator
from typing import Any


def faults(plan: Any) -> Iterator[str]:
    """Those of lengths, references, optimizers and a shared trunk."""
    yield from of_lengths(plan)
    yield from of_reference(plan)
    yield from of_optimizers(plan)
    yield from of_a_shared_trunk(plan)


def of_lengths(plan: Any) -> Iterator[str]:
    """Faults of responses of a fixed or a least length."""
    recipe, rollout = plan.recipe, plan.recipe.config.rollout
    key = "ignore_eos" if rollout.ignore_eos else "min_new_tokens"
    if plan.conversation and rollout[key]:
        yield (
            f"{recipe.blame(f'rollout.{key}')}: task {plan.task_name!r} is a conversation, in "
            "which EOS ends a turn"
        )
    if rollout.ignore_eos and rollout.min_new_tokens:
        yield (
            f"{recipe.blame('rollout.min_new_tokens')}: has no effect with rollout.ignore_eos, by "
            "which all responses have rollout.max_new_tokens tokens"
        )
    limits = (rollout.max_new_tokens, plan.recipe.config.eval.max_new_tokens)
    if rollout.min_new_tokens > min(n for n in limits if n is not None):
        yield (
            f"{recipe.blame('rollout.min_new_tokens')}: must not be above rollout.max_new_tokens "
            f"or eval.max_new_tokens. Got {rollout.min_new_tokens}"
        )


def of_reference(plan: Any) -> Iterator[str]:
    """Faults of a reference other than the initial policy."""
    recipe, config, kl = plan.recipe, plan.recipe.config, plan.recipe.config.kl
    blame = recipe.blame("kl.reference")
    used = plan.reference_needs
    takes = {"ema": {"sync_steps", "sync_mix"}, "every": {"sync_steps"}}.get(kl.reference, set())
    for key in ("sync_steps", "sync_mix"):
        if kl[key] is not None and key not in takes:
            yield f"{recipe.blame(f'kl.{key}')}: has no effect with kl.reference={kl.reference}"
    if kl.reference == "every" and kl.sync_steps is None:
        yield f"{blame}: every requires kl.sync_steps, the steps between two copies"
    if kl.reference == "ema" and kl.sync_mix is None:
        yield f"{blame}: ema requires kl.sync_mix, such as 0.01"
    if kl.reference != "initial" and not used:
        yield f"{blame}: has no effect, because nothing uses a reference; set kl.coef > 0"
    if kl.reference == "rollout" and plan.kl and kl.place == "reward":
        yield f"{blame}: the KL of a rollout to its own policy is 0; use kl.place=loss"
    if kl.reference == "rollout" and (kl.controller == "adaptive" or config.stop.max_kl):
        key = "stop.max_kl" if config.stop.max_kl else "kl.controller"
        yield f"{recipe.blame(key)}: a rollout has no distance from its own policy"
    if kl.reference == "rollout" and (whole := sorted(used - {"ref_log_probs"})):
        yield f"{blame}: rollout has only ref_log_probs, but a component needs {whole[0]}"
    if plan.moving_reference and config.model.lora.rank:
        yield (
            f"{blame}: with LoRA the reference is the model without its adapters, which does not "
            "move; use initial or rollout"
        )


def of_optimizers(plan: Any) -> Iterator[str]:
    """Options of another optimizer than the chosen one."""
    recipe = plan.recipe
    for name in ("actor", "critic"):
        config = recipe.config[name]
        chosen = f"has no effect with {name}.optimizer={config.optimizer}"
        if config.momentum is not None and config.optimizer == "adamw":
            yield f"{recipe.blame(f'{name}.momentum')}: {chosen}; set {name}.betas"
        if config.muon is not None and config.optimizer != "muon":
            yield f"{recipe.blame(f'{name}.muon')}: {chosen}"
        if config.optimizer == "muon" and recipe.config.parallel.strategy == "shard":
            yield (
                f"{recipe.blame(f'{name}.optimizer')}: muon needs whole matrices, so it does not "
                "work with parallel.strategy=shard; use replicate"
            )


def of_a_shared_trunk(plan: Any) -> Iterator[str]:
    """Keys of a critic's own network, which a head on the policy's trunk does not have."""
    critic = plan.recipe.config.critic
    for key in ("epochs", "minibatches", "privileged", "freeze"):
        if plan.critic and critic.trunk == "shared" and critic[key] not in (None, "none", []):
            yield (
                f"{plan.recipe.blame(f'critic.{key}')}: has no effect on a head on the policy's "
                "trunk, which is trained with the policy; use critic.trunk=own"
            )
