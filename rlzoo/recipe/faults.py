"""Contradictions among the keys of a recipe: a line for each."""

from collections.abc import Iterator
from typing import Any

from rlzoo.errors import RecipeError, nearest, typed_path
from rlzoo.plugin.border import needs_of
from rlzoo.plugin.columns import COLUMNS, TOLD
from rlzoo.recipe import teachers
from rlzoo.recipe.compose import COMMAND_LINE

# Keys of the section kl that a recipe without a penalty may need.
OF_REFERENCE = ("kl.coef", "kl.place", "kl.reference", "kl.sync_steps", "kl.sync_mix")


def faults(plan: Any) -> Iterator[str]:
    """Contradictions among a recipe's components, keys and budget, a line for each."""
    recipe, config = plan.recipe, plan.recipe.config
    for name in needs_of(plan.task.score):
        if name not in COLUMNS or COLUMNS[name].stage != "rollout":
            known = [n for n, c in COLUMNS.items() if c.stage == "rollout"]
            yield (
                f"task {plan.task_name!r}: score uses {name!r}, which is not a column of the "
                f"rollout{nearest(name, known)}"
            )
    by_group = [b for b in (plan.estimator, plan.sampler, *plan.columns) if "group_ids" in b.needs]
    if by_group and config.rollout.samples < 2:
        yield (
            f"{recipe.blame('rollout.samples')}: {by_group[0].component.kind.removesuffix('s')} "
            f"{by_group[0].name!r} needs groups, so at least 2 samples per prompt. "
            f"Got {config.rollout.samples}"
        )
    turns = [name for name in ("turn_ids", "state_keys") if name in plan.needs]
    if plan.conversation:
        yield from of_conversation(plan)
    elif turns:
        yield (
            f"{recipe.blame('estimator.name')}: column {turns[0]!r} exists only in conversations, "
            f"but task {plan.task_name!r} is not one"
        )
    if plan.teacher or config.teacher.domains:
        yield from teachers.faults(plan)
    if plan.critic and config.critic.init != "actor":
        yield from (f"{recipe.blame('critic.init')}: {f}" for f in of_critic(plan))
    yield from of_lengths(plan)
    if "sampler_log_pi" in plan.needs and not plan.base_sampler.options.get("distribution"):
        yield (
            f"{recipe.blame('policy_loss.name')}: {plan.policy_loss.name!r} needs the sampler's "
            "whole distribution; set sampler.distribution=true"
        )
    yield from of_reference(plan)
    yield from of_optimizers(plan)
    for key in ("patience", "target"):
        if config.stop[key] is not None and not config.eval.every:
            yield f"{recipe.blame(f'stop.{key}')}: requires evaluations, but eval.every is 0"
    if config.stop.max_kl is not None and plan.needs.isdisjoint(("ref_log_probs", "full_kl")):
        blame = recipe.blame("stop.max_kl")
        yield f"{blame}: requires a reference; set kl.coef > 0"
    if config.whiten == "group" and config.rollout.samples < 2:
        yield f"{recipe.blame('whiten')}: group requires rollout.samples of at least 2"
    if config.rollout.truncation == "bootstrap" and not plan.critic:
        yield (
            f"{recipe.blame('rollout.truncation')}: bootstrap needs a critic, and estimator "
            f"{plan.estimator.name!r} does not use one; use zero, drop or penalty"
        )
    if config.rollout.staleness and config.parallel.strategy == "shard":
        yield (
            f"{recipe.blame('rollout.staleness')}: keeps whole copies of the weights, so it does "
            "not work with parallel.strategy=shard; use replicate"
        )
    for key in ("actor.betas", "critic.betas"):
        betas = list(recipe.value(key))
        if len(betas) != 2 or not all(0 <= b < 1 for b in betas):
            yield f"{recipe.blame(key)}: must be two floats in [0, 1). Got {betas}"
    if plan.critic and config.critic.low >= config.critic.high:
        yield f"{recipe.blame('critic.low')}: must be below critic.high"
    if not (config.train.steps or config.train.tokens or config.train.minutes):
        yield "train: give a budget with train.steps, train.tokens or train.minutes"
    rows = config.rollout.prompts * config.rollout.samples
    for section in ("train", "critic"):
        if (config[section].minibatches or 0) > rows:
            yield (
                f"{recipe.blame(f'{section}.minibatches')}: {rows} rows (rollout.prompts x "
                f"rollout.samples) cannot fill {config[section].minibatches} mini-batches"
            )
    for key in ("epochs", "minibatches", "privileged", "freeze"):
        idle = config.critic[key] in (None, "none", []) or config.critic.trunk != "shared"
        if plan.critic and not idle:
            yield (
                f"{recipe.blame(f'critic.{key}')}: has no effect on a head on the policy's "
                "trunk, which is trained with the policy; use critic.trunk=own"
            )


def of_critic(plan: Any) -> Iterator[str]:
    """Faults of a separate critic whose starting point has no trunk."""
    init = plan.recipe.config.critic.init
    with_path = [name for name, (_, b) in plan.rewards.items() if "path" in b.options]
    if plan.recipe.config.critic.trunk == "shared":
        yield f"{init!r} requires a critic with its own network (critic.trunk=own)"
    elif init in plan.rewards and init not in with_path:
        have = f"those that have: {', '.join(with_path)}" if with_path else "no reward has one"
        yield f"reward {init!r} has no option 'path', so there is no model to start from ({have})"
    elif init not in plan.rewards and not typed_path(init).exists() and "/" not in init:
        close = nearest(init, ["actor", *plan.rewards])
        yield f"{init!r} is neither a reward of this recipe nor a folder{close}"


def of_conversation(plan: Any) -> Iterator[str]:
    """Faults of a conversation: columns of turns that the task needs or should provide."""
    task, label = plan.abilities, f"task {plan.task_name!r}"
    if "state_keys" in plan.needs and task.state_keys is None:
        yield (
            f"{plan.recipe.blame('estimator.name')}: column 'state_keys' requires a task with a "
            f"method state_keys, but {label} has none"
        )
    for name, method in (("respond", task.respond), ("state_keys", task.state_keys)):
        for need in needs_of(method) if method else ():
            if need not in TOLD:
                yield (
                    f"{label}: {name} needs {need!r}, but an environment receives only "
                    f"{', '.join(TOLD)}{nearest(need, TOLD)}"
                )
    if not isinstance(task.stops, tuple) or not all(isinstance(s, str) and s for s in task.stops):
        yield f"{label}: stops must be a tuple of non-empty strings. Got {task.stops!r}"


def refuse_idle(plan: Any) -> None:
    """Raises RecipeError for a key on the command line of a part that the recipe does not have."""
    absent = {}
    if not plan.critic:
        absent = dict.fromkeys(("critic", "value_loss"), f"{plan.estimator.name!r} uses no critic")
    if plan.kl is None:
        absent["kl"] = "kl.coef=0 or kl.place=none"
    elif plan.recipe.config.kl.controller == "fixed":
        absent |= dict.fromkeys(("kl.target", "kl.horizon"), "kl.controller=fixed")
    read_keys = [key for key in plan.recipe.origins if key.partition(".")[0] not in absent]
    for key, origin in plan.recipe.origins.items():
        part, last = key.partition(".")[0], key.rpartition(".")[2]
        part = key if key in absent else part
        if origin == COMMAND_LINE and part in absent and key not in OF_REFERENCE:
            longer = [other for other in read_keys if last in other.rpartition(".")[2]]
            hint = (
                f"; did you mean {longer[0]!r}?"
                if longer and last != "name" and part != key
                else ""
            )
            line = f"{plan.recipe.blame(key)}: has no effect, because {absent[part]}{hint}"
            raise RecipeError(line, key=key, kind="no-effect")


def truncates(rollout: Any) -> bool:
    """Whether sampling leaves tokens out that the policy may choose."""
    return rollout.top_k > 0 or rollout.top_p < 1 or rollout.min_new_tokens > 0


def of_lengths(plan: Any) -> Iterator[str]:
    """Faults of responses of a fixed or a least length, and of what sampling kept."""
    recipe, rollout = plan.recipe, plan.recipe.config.rollout
    if rollout.replay != "none" and not truncates(rollout):
        yield f"{recipe.blame('rollout.replay')}: has no effect; set rollout.top_p or rollout.top_k"
    if rollout.replay != "none" and plan.base_sampler.component.caution.get("correction"):
        yield (
            f"{recipe.blame('rollout.replay')}: sampler {plan.base_sampler.name!r} does not return "
            "the tokens that were kept; use correction=NAME"
        )
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
