"""Contradictions among the keys of a recipe, (key, what is wrong with its value), and warnings.

A component warns by `@component(KIND, caution={"train.minibatches > 1": "nothing corrects for the
policy that sampled"})`: a key of the recipe, a comparison, a value; then why.
"""

import operator
import re
from collections.abc import Iterator
from typing import Any

from rlzoo.errors import ComponentError, RecipeError, nearest, typed_path
from rlzoo.plugin.border import needs_of
from rlzoo.plugin.columns import COLUMNS, MODELS, TOLD
from rlzoo.recipe.compose import COMMAND_LINE
from rlzoo.recipe.keys import KEYS
from rlzoo.recipe.words import read_value

Faults = Iterator[tuple[str, str]]

# Keys of the section kl that a recipe without a penalty may need.
OF_REFERENCE = ("kl.coef", "kl.place", "kl.reference", "kl.sync_steps", "kl.sync_mix")


def faults(plan: Any) -> Faults:
    """Contradictions among a recipe's components, keys and budget."""
    config, rollout = plan.recipe.config, plan.recipe.config.rollout
    known = [name for name, column in COLUMNS.items() if column.stage == "rollout"]
    for name in needs_of(plan.task.score):
        if name not in known:
            what = (
                f"score of {plan.task_name!r} uses {name!r}, which is not a column of the rollout"
            )
            yield "task.name", what + nearest(name, known)
    by_group = [b for b in (plan.estimator, plan.sampler, *plan.columns) if "group_ids" in b.needs]
    if by_group and rollout.samples < 2:
        what = f"{by_group[0].component.kind.removesuffix('s')} {by_group[0].name!r} needs groups"
        yield "rollout.samples", f"{what}, so at least 2 samples per prompt. Got {rollout.samples}"
    turns = [name for name in ("turn_ids", "state_keys") if name in plan.needs]
    if plan.conversation:
        yield from of_conversation(plan)
    elif turns:
        what = f"column {turns[0]!r} exists only in conversations, but task {plan.task_name!r}"
        yield "estimator.name", f"{what} is not one"
    if plan.teacher or config.teacher.domains:
        yield from of_teachers(plan)
    if plan.critic:
        yield from of_critic(plan)
    yield from of_lengths(plan)
    whole = plan.base_sampler.options.get("distribution")
    if "sampler_log_pi" in plan.needs and not whole:
        what = f"{plan.policy_loss.name!r} needs the sampler's whole distribution"
        yield "policy_loss.name", f"{what}; set sampler.distribution=true"
    if whole and rollout.replay == "none":
        for key, off in {"top_k": 0, "top_p": 1, "min_new_tokens": 0}.items():
            if rollout[key] != off:
                what = "sampler.distribution needs all tokens; set rollout.replay=kept"
                yield f"rollout.{key}", f"{what}, or {key}={off}"
    yield from of_reference(plan)
    yield from of_optimizers(plan)
    for key in ("patience", "target"):
        if config.stop[key] is not None and not config.eval.every:
            yield f"stop.{key}", "requires evaluations, but eval.every is 0"
    if config.stop.max_kl is not None and plan.needs.isdisjoint(("ref_log_probs", "full_kl")):
        yield "stop.max_kl", "requires a reference; set kl.coef > 0"
    if config.whiten == "group" and rollout.samples < 2:
        yield "whiten", "group requires rollout.samples of at least 2"
    if rollout.truncation == "bootstrap" and not plan.critic:
        what = f"bootstrap needs a critic, and estimator {plan.estimator.name!r} does not use one"
        yield "rollout.truncation", f"{what}; use zero, drop or penalty"
    if rollout.staleness and config.parallel.strategy == "shard":
        what = "keeps whole copies of the weights, so it does not work with"
        yield "rollout.staleness", f"{what} parallel.strategy=shard; use replicate"
    if not (config.train.steps or config.train.tokens or config.train.minutes):
        yield "train.steps", "give a budget with train.steps, train.tokens or train.minutes"
    rows = rollout.prompts * rollout.samples
    for section in ("train", "critic"):
        if (n := config[section].minibatches or 0) > rows:
            what = f"{rows} rows (rollout.prompts x rollout.samples) cannot fill {n} mini-batches"
            yield f"{section}.minibatches", what


def of_teachers(plan: Any) -> Faults:
    """A prompt without a teacher, or a teacher without a prompt."""
    keys, domains = plan.recipe.config.teacher, list(plan.abilities.domains)
    if plan.teacher and not plan.teachers:
        column = next(name for name in MODELS["teacher"] if name in plan.needs)
        what = f"a component uses {column!r}; give teacher.name (a preset of configs/model/) or"
        yield "teacher.path", f"{what} teacher.path (a folder)"
    if not keys.domains:
        return
    if not domains:
        what = f"task {plan.task_name!r} does not define domains for its prompts"
        yield "teacher.domains", what
    for name, path in keys.domains.items():
        if name not in domains:
            near = nearest(str(name), domains)
            what = f"no prompt has the domain {name!r}{near} ({', '.join(domains)})"
            yield "teacher.domains", what
        if not isinstance(path, str):
            yield "teacher.domains", f"{name}: must be a folder or a hub id. Got {path!r}"
    left = [name for name in domains if name not in keys.domains]
    if left and keys.path is None:
        what = f"there is no teacher for {', '.join(left)}; give teacher.path for these"
        yield "teacher.domains", what
    if "teacher" in plan.needs:
        yield "teacher.domains", "a column uses a single 'teacher'; give only teacher.path"


def of_critic(plan: Any) -> Faults:
    """Keys without effect on a shared trunk, and a starting point without a trunk."""
    critic = plan.recipe.config.critic
    if critic.low >= critic.high:
        yield "critic.low", "must be below critic.high"
    for key in ("epochs", "minibatches", "freeze"):
        if critic.trunk == "shared" and critic[key] not in (None, []):
            what = "has no effect on a head on the policy's trunk, which is trained with the policy"
            yield f"critic.{key}", f"{what}; use critic.trunk=own"
    init, key = critic.init, "critic.init"
    if init == "actor":
        return
    with_path = [name for name, (_, b) in plan.rewards.items() if "path" in b.options]
    if critic.trunk == "shared":
        yield key, f"{init!r} requires a critic with its own network (critic.trunk=own)"
    elif init in plan.rewards and init not in with_path:
        have = f"those that have: {', '.join(with_path)}" if with_path else "no reward has one"
        what = f"reward {init!r} has no option 'path', so there is no model to start from ({have})"
        yield key, what
    elif init not in plan.rewards and not typed_path(init).exists() and "/" not in init:
        close = nearest(init, ["actor", *plan.rewards])
        yield key, f"{init!r} is neither a reward of this recipe nor a folder{close}"


def of_conversation(plan: Any) -> Faults:
    """Columns of turns that the task needs or should provide."""
    task, label = plan.abilities, f"task {plan.task_name!r}"
    if "state_keys" in plan.needs and task.state_keys is None:
        what = f"column 'state_keys' requires a task with a method state_keys, but {label} has none"
        yield "estimator.name", what
    for name, method in (("respond", task.respond), ("state_keys", task.state_keys)):
        for need in needs_of(method) if method else ():
            if need not in TOLD:
                what = f"{name} needs {need!r}, but an environment receives only {', '.join(TOLD)}"
                yield "task.name", f"{label}: {what}{nearest(need, TOLD)}"
    if not isinstance(task.stops, tuple) or not all(isinstance(s, str) and s for s in task.stops):
        what = f"stops must be a tuple of non-empty strings. Got {task.stops!r}"
        yield "task.name", f"{label}: {what}"


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
        part, last = key if key in absent else key.partition(".")[0], key.rpartition(".")[2]
        if origin == COMMAND_LINE and part in absent and key not in OF_REFERENCE:
            longer = [other for other in read_keys if last in other.rpartition(".")[2]]
            near = longer and last != "name" and part != key
            hint = f"; did you mean {longer[0]!r}?" if near else ""
            line = f"{plan.recipe.blame(key)}: has no effect, because {absent[part]}{hint}"
            raise RecipeError(line, key=key, kind="no-effect")


def truncates(rollout: Any) -> bool:
    """Whether sampling leaves tokens out that the policy may choose."""
    return rollout.top_k > 0 or rollout.top_p < 1 or rollout.min_new_tokens > 0


def of_lengths(plan: Any) -> Faults:
    """Responses of a fixed or a least length, and what sampling kept."""
    rollout, least = plan.recipe.config.rollout, "rollout.min_new_tokens"
    if rollout.replay != "none" and not truncates(rollout):
        yield "rollout.replay", "has no effect; set rollout.top_p or rollout.top_k"
    if rollout.replay != "none" and plan.base_sampler.component.caution.get("correction"):
        what = f"sampler {plan.base_sampler.name!r} does not return the tokens that were kept"
        yield "rollout.replay", f"{what}; use correction=NAME"
    key = "ignore_eos" if rollout.ignore_eos else "min_new_tokens"
    if plan.conversation and rollout[key]:
        what = f"task {plan.task_name!r} is a conversation, in which EOS ends a turn"
        yield f"rollout.{key}", what
    if rollout.ignore_eos and rollout.min_new_tokens:
        what = "has no effect with rollout.ignore_eos, by which all responses have"
        yield least, f"{what} rollout.max_new_tokens tokens"
    limits = (rollout.max_new_tokens, plan.recipe.config.eval.max_new_tokens)
    if rollout.min_new_tokens > min(n for n in limits if n is not None):
        what = "must not be above rollout.max_new_tokens or eval.max_new_tokens"
        yield least, f"{what}. Got {rollout.min_new_tokens}"


def of_reference(plan: Any) -> Faults:
    """A reference other than the initial policy."""
    config, kl, key = plan.recipe.config, plan.recipe.config.kl, "kl.reference"
    takes = {"ema": {"sync_steps", "sync_mix"}, "every": {"sync_steps"}}.get(kl.reference, set())
    for name in ("sync_steps", "sync_mix"):
        if kl[name] is not None and name not in takes:
            yield f"kl.{name}", f"has no effect with kl.reference={kl.reference}"
    if kl.reference == "every" and kl.sync_steps is None:
        yield key, "every requires kl.sync_steps, the steps between two copies"
    if kl.reference == "ema" and kl.sync_mix is None:
        yield key, "ema requires kl.sync_mix, such as 0.01"
    if kl.reference != "initial" and not plan.reference_needs:
        yield key, "has no effect, because nothing uses a reference; set kl.coef > 0"
    if kl.reference == "rollout":
        if plan.kl and kl.place == "reward":
            yield key, "the KL of a rollout to its own policy is 0; use kl.place=loss"
        if kl.controller == "adaptive" or config.stop.max_kl:
            of_distance = "stop.max_kl" if config.stop.max_kl else "kl.controller"
            yield of_distance, "a rollout has no distance from its own policy"
        if whole := sorted(plan.reference_needs - {"ref_log_probs"}):
            yield key, f"rollout has only ref_log_probs, but a component needs {whole[0]}"
    if plan.moving_reference and config.model.lora.rank:
        what = "with LoRA the reference is the model without its adapters, which does not move"
        yield key, f"{what}; use initial or rollout"


def of_optimizers(plan: Any) -> Faults:
    """Options of another optimizer than the chosen one."""
    for name in ("actor", "critic"):
        config = plan.recipe.config[name]
        chosen = f"has no effect with {name}.optimizer={config.optimizer}"
        if len(config.betas) != 2 or not all(0 <= b < 1 for b in config.betas):
            yield f"{name}.betas", f"must be two floats in [0, 1). Got {list(config.betas)}"
        if config.momentum is not None and config.optimizer == "adamw":
            yield f"{name}.momentum", f"{chosen}; set {name}.betas"
        if config.muon is not None and config.optimizer != "muon":
            yield f"{name}.muon", chosen
        if config.optimizer == "muon" and plan.recipe.config.parallel.strategy == "shard":
            what = "muon needs whole matrices, so it does not work with parallel.strategy=shard"
            yield f"{name}.optimizer", f"{what}; use replicate"


COMPARISONS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt}
TRUNCATION = ("rollout.top_k", "rollout.top_p")
CONDITION = re.compile(r"([\w.]+) (=|!=|<|>) (\S+)")
KL_COLUMNS = ("rewards", "sequence_rewards")  # which a KL penalty in the reward goes into


def warnings(plan: Any) -> Iterator[str]:
    """Raises ComponentError if a component's condition cannot be read or has an unknown key."""
    config, rollout = plan.recipe.config, plan.recipe.config.rollout
    for note in plan.abilities.notes:
        yield f"task {plan.task_name!r}: {note}"
    for bound in filter(None, (plan.estimator, plan.policy_loss, plan.value_loss, plan.kl)):
        for condition, why in bound.component.caution.items():
            match = CONDITION.fullmatch(condition)
            key = match[1] if match else condition
            if not match or key not in KEYS:
                near = nearest(key, KEYS)
                line = f"caution {condition!r} must be KEY = VALUE (or !=, <, >), of a recipe{near}"
                raise ComponentError(f"{bound.component.label}: {line}")
            if key.startswith("kl.") and not plan.kl:
                continue  # the key is there, and nothing reads it
            if key in TRUNCATION and rollout.replay == "kept":
                continue  # the policy is as truncated as the sampler
            have = plan.recipe.value(key)
            if COMPARISONS[match[2]](have, read_value(key, match[3])):
                yield f"{key}={have} with {bound.name}: {why}"
    typed = [n for n in plan.rewards if plan.recipe.chosen.get(f"rewards.{n}") == COMMAND_LINE]
    others = ", ".join(name for name in plan.rewards if name not in typed)
    for name in typed if others else ():  # by an option of it
        if plan.recipe.origins[f"rewards.{name}.weight"] != COMMAND_LINE:
            yield (
                f"rewards.{name}: is added to {others}; rewards=[{name}] replaces, "
                f"rewards.{name}.weight sets its share"
            )
    if plan.kl and config.kl.place == "reward" and plan.needs.isdisjoint(KL_COLUMNS):
        yield (
            f"kl.place=reward: estimator {plan.estimator.name!r} reads none of "
            f"{', '.join(KL_COLUMNS)}, so the penalty does nothing; use kl.place=loss or none"
        )
    for key in ("teacher.path", "teacher.domains"):
        if plan.recipe.value(key) and not plan.teacher:
            columns = " or ".join(MODELS["teacher"][:2])
            yield f"{plan.recipe.blame(key)}: no component uses {columns}, so it is not loaded"
    if config.model.dtype in ("bfloat16", "float16") and not config.model.lora.rank:
        yield (
            f"model.dtype={config.model.dtype}: weights of this dtype lose an optimizer step of "
            "1e-6; train float32 weights (model.autocast still computes in bfloat16) or adapters "
            "(model.lora.rank)"
        )
    weighs = "sampler_log_probs" in (*plan.estimator.needs, *plan.policy_loss.needs)
    if weighs and plan.correction:
        yield (
            f"correction={plan.correction}: estimator {plan.estimator.name!r} or policy loss "
            f"{plan.policy_loss.name!r} reads sampler_log_probs, so it may already correct for "
            "the sampler, and the correction would be applied twice"
        )
    if weighs or plan.correction:
        return
    if truncates(rollout) and rollout.replay == "none":
        yield (
            "rollout.top_k/top_p/min_new_tokens: samples come from a truncated policy and are "
            "off-policy; set rollout.replay=kept, or correction=NAME to reweight the loss"
        )
    if caution := plan.base_sampler.component.caution.get("correction"):
        yield f"sampler={plan.base_sampler.name}: {caution}"
    if rollout.staleness and rollout.old_log_probs != "sampled":
        yield (
            f"rollout.staleness={rollout.staleness}: samples come from a stale policy and "
            "are off-policy; set correction=NAME to reweight the loss, or "
            "rollout.old_log_probs=sampled to use the loss's own ratio"
        )
