"""From a recipe to a plan: the components that run, and the columns and models that they need.

Only these are built or computed. Every unmet need is found here, before a model
is loaded.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from rlzoo.errors import RecipeError, RlzooError, nearest, typed_path
from rlzoo.plugin.border import Bound, border, needs_of
from rlzoo.plugin.columns import COLUMNS, RESOURCES, TOLD
from rlzoo.plugin.protocols import Abilities, Task, abilities
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe import cautions, faults, teachers
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.keys import COLLECTIONS, SECTIONS

# A column that stands for a model: asking for it builds the model.
CRITIC_COLUMNS = ("values", "bootstrap_values", "value_preds", "value_logits", "value_support")

REFERENCE_COLUMNS = ("ref_log_probs", "full_kl", "reference")

KL_COLUMNS = ("rewards", "sequence_rewards")  # which a KL penalty in the reward goes into


@dataclass(frozen=True)
class Plan:
    """All decisions before a run starts. `needs`: all columns that some component takes."""

    recipe: Recipe
    task: Task
    task_bound: Bound
    rewards: Mapping[str, tuple[float, Bound]]
    sampler: Bound
    base_sampler: Bound
    columns: tuple[Bound, ...]
    estimator: Bound
    kl: Bound | None
    policy_loss: Bound
    value_loss: Bound | None
    aggregation: Bound
    critic_aggregation: Bound
    loggers: tuple[Bound, ...]
    needs: frozenset[str]
    warnings: tuple[str, ...] = ()

    @cached_property
    def task_name(self) -> str:
        return self.task_bound.name

    @cached_property
    def critic(self) -> bool:
        """Whether the run builds one; so for `reference` and `teacher`."""
        return not self.needs.isdisjoint(CRITIC_COLUMNS)

    @cached_property
    def reference_needs(self) -> frozenset[str]:
        """The needs that stand for a reference."""
        return self.needs.intersection(REFERENCE_COLUMNS)

    @cached_property
    def own_reference(self) -> bool:
        """Whether the reference of a rollout is the policy that sampled it."""
        return bool(self.reference_needs) and self.recipe.config.kl.reference == "rollout"

    @cached_property
    def reference(self) -> bool:
        return bool(self.reference_needs) and not self.own_reference

    @cached_property
    def moving_reference(self) -> bool:
        """Whether training changes the reference."""
        return self.reference and self.recipe.config.kl.reference != "initial"

    @cached_property
    def teacher(self) -> bool:
        return not self.needs.isdisjoint(teachers.COLUMNS)

    @cached_property
    def teachers(self) -> dict[str | None, str]:
        """The path of each domain's teacher; None: for prompts of any other domain."""
        return teachers.given(self.recipe) if self.teacher else {}

    @cached_property
    def passes(self) -> dict[str, tuple[int, int]]:
        """How many passes `actor` and `critic` make over a batch, and optimizer steps in each."""
        train, own = self.recipe.config.train, self.recipe.config.critic
        return {
            "actor": (train.epochs, train.minibatches),
            "critic": (own.epochs or train.epochs, own.minibatches or train.minibatches),
        }

    @cached_property
    def one_update(self) -> bool:
        """Whether one optimizer step of each network, in one piece, follows each rollout."""
        names = ("actor", "critic") if self.critic else ("actor",)
        whole = self.recipe.config.train.microbatch is None
        return whole and all(self.passes[name] == (1, 1) for name in names)

    @cached_property
    def actor_from(self) -> int:
        """The first step (from 0) that trains the actor: after the critic's warm-up, if any."""
        return self.recipe.config.train.critic_warmup if self.critic else 0

    @cached_property
    def gamma(self) -> float:
        """The estimator's discount."""
        return self.estimator.gamma

    @cached_property
    def abilities(self) -> Abilities:
        """The task's optional members."""
        return abilities(self.task)

    @cached_property
    def conversation(self) -> bool:
        """Whether the task answers during an episode."""
        return self.abilities.respond is not None

    @cached_property
    def stops(self) -> tuple[str, ...]:
        """Texts that end a turn of a conversation, as EOS does."""
        return self.abilities.stops if self.conversation else ()

    @cached_property
    def correction(self) -> str | None:
        return self.recipe.config.correction.name

    @cached_property
    def skips_silent(self) -> bool:
        """Whether rows whose advantages are 0 need no backward pass: the policy loss is declared
        so, and nothing else is in the loss."""
        config = self.recipe.config
        more = config.actor.entropy_coef or (self.kl and config.kl.place == "loss")
        signal = self.policy_loss.component.needs_signal
        return bool(signal and config.train.skip_no_signal and not more)

    @property
    def chosen(self) -> dict[str, Bound]:
        """The components by the keys that choose them; loggers are separate."""
        one = ("sampler", "estimator", "kl", "policy_loss", "value_loss", "aggregation")
        found = {key: bound for key in one if (bound := getattr(self, key)) is not None}
        found |= {"critic.aggregation": self.critic_aggregation, "task": self.task_bound}
        found |= {f"rewards.{name}": bound for name, (_, bound) in self.rewards.items()}
        return found | {f"columns.{bound.name}": bound for bound in self.columns}


def make_plan(recipe: Recipe, zoo: Zoo, task: Task | None = None) -> Plan:
    """Bind the recipe's components and resolve their needs; `task` replaces the recipe's own."""
    config = recipe.config

    def bound(section: str) -> Bound:
        name = recipe.value(section).name
        return Bound.of(zoo.shelves[SECTIONS[section]][name], recipe.options(section), name)

    def collection(section: str) -> dict[str, Bound]:
        shelf = zoo.shelves[COLLECTIONS[section]]
        found = {}
        for name in config[section]:
            options = recipe.options(f"{section}.{name}")
            options.pop("weight", None)
            bound = Bound.of(shelf[name], options)
            if section == "columns":  # they go by the name that others use
                found[bound.name] = bound
            else:
                found[name] = dataclasses.replace(bound, called=name)
        return found

    task_component = bound("task")
    task = task or _make_task(task_component)
    rewards = {n: (config.rewards[n].weight, b) for n, b in collection("rewards").items()}
    if not rewards:
        where = recipe.blame("rewards")
        raise RecipeError(f"{where}: choose a reward; the default is rewards=verifier")
    kl = bound("kl") if config.kl.place != "none" and config.kl.coef > 0 else None
    chosen = {name: bound(name) for name in ("sampler", "estimator", "policy_loss", "aggregation")}
    respond = abilities(task).respond
    wanted: list[tuple[str, Iterable[str]]] = [
        ("task", needs_of(task.score)),
        ("task", needs_of(respond) if respond else ()),
        *((f"rewards.{name}", b.needs) for name, (_, b) in rewards.items()),
        *((name, b.needs) for name, b in chosen.items()),
    ]
    if kl:
        wanted.append(("kl", kl.needs))
    asked = collection("columns")
    wanted += [(f"columns.{name}", (name,)) for name in asked]
    if config.correction.name:
        correction = _correction(recipe, zoo)
        asked[correction.name] = correction
        wanted.append(("correction", (correction.name,)))
    plugins, needs = _close(wanted, asked, zoo)
    if not needs.isdisjoint((*CRITIC_COLUMNS, "returns")):
        value_loss = bound("value_loss")
        extra = [("value_loss", value_loss.needs), ("critic.aggregation", ())]
        plugins, needs = _close([*wanted, *extra], asked, zoo)
    else:
        value_loss = None
    base = chosen["sampler"]
    if "sample" in base.needs:
        base = _wrapped_sampler(base, recipe, zoo)
    plan = Plan(
        recipe=recipe,
        task=task,
        task_bound=task_component,
        rewards=rewards,
        sampler=chosen["sampler"],
        base_sampler=base,
        columns=plugins,
        estimator=chosen["estimator"],
        kl=kl,
        policy_loss=chosen["policy_loss"],
        value_loss=value_loss,
        aggregation=chosen["aggregation"],
        critic_aggregation=bound("critic.aggregation"),
        loggers=tuple(collection("loggers").values()),
        needs=frozenset(needs),
    )
    for fault in _faults(plan):
        raise RecipeError(fault, kind="unmet-need")
    _check_options(plan)
    return dataclasses.replace(plan, warnings=tuple(_warnings(plan)))


def _make_task(made_by: Bound) -> Task:
    with border(made_by.component.label):
        try:
            return made_by.component(**made_by.options)
        except (ValueError, RlzooError) as error:
            raise RecipeError(f"task {made_by.name!r}: {error}") from None


def _correction(recipe: Recipe, zoo: Zoo) -> Bound:
    """The column that weighs the policy loss."""
    component = zoo.columns[recipe.config.correction.name or ""]
    if component.shape != "BT":
        raise RecipeError(
            f"{recipe.blame('correction.name')}: column {component.name!r} has the shape "
            f"{component.shape}; a correction needs (B, T)"
        )
    return Bound.of(component, recipe.options("correction"))


def _wrapped_sampler(sampler: Bound, recipe: Recipe, zoo: Zoo) -> Bound:
    """The sampler that actually draws, where another wraps it."""
    inner = str(sampler.options.get("inner"))
    if inner not in zoo.samplers or "sample" in zoo.samplers[inner].needs:
        raise RecipeError(
            f"{recipe.blame('sampler.inner')}: sampler {sampler.name!r} wraps another sampler; "
            f"its option 'inner' must name one that does not. Got {inner!r}"
        )
    return Bound.of(zoo.samplers[inner], {})


def _close(
    wanted: list[tuple[str, Iterable[str]]], asked: Mapping[str, Bound], zoo: Zoo
) -> tuple[tuple[Bound, ...], set[str]]:
    """All columns needed, and the column plugins that make them, each after those it needs."""
    needs: set[str] = set()
    order: dict[str, Bound] = {}

    def visit(key: str, name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            raise RecipeError(f"columns depend on themselves: {' -> '.join((*trail, name))}")
        needs.add(name)
        if name in COLUMNS or name in RESOURCES or name in order:
            return
        if name not in asked and name in zoo.columns.clashes:
            raise RecipeError(f"{key} needs column {name!r}: {zoo.columns.clashes[name]}")
        if name not in asked and name not in zoo.columns:
            known = [*COLUMNS, *zoo.columns]
            raise RecipeError(
                f"{key} needs column {name!r}, which no component provides{nearest(name, known)}",
                key=key,
                kind="unmet-need",
            )
        component = asked[name].component if name in asked else zoo.columns[name]
        for need in component.needs:
            visit(f"column {name!r}", need, (*trail, name))
        defaults = {o.name: o.default for o in component.options.values()}
        order[name] = asked.get(name) or Bound.of(component, defaults)

    for key, names in wanted:
        for name in names:
            visit(key, name, ())
    return tuple(order.values()), needs


def _faults(plan: Plan) -> Iterator[str]:
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
        yield from _faults_of_conversation(plan)
    elif turns:
        yield (
            f"{recipe.blame('estimator.name')}: column {turns[0]!r} exists only in conversations, "
            f"but task {plan.task_name!r} is not one"
        )
    if plan.teacher or config.teacher.domains:
        yield from teachers.faults(plan)
    if plan.critic and config.critic.init != "actor":
        yield from (f"{recipe.blame('critic.init')}: {f}" for f in _faults_of_critic(plan))
    yield from faults.faults(plan)
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
    if config.critic.low >= config.critic.high:
        yield f"{recipe.blame('critic.low')}: must be below critic.high"
    if not (config.train.steps or config.train.tokens or config.train.minutes):
        yield "train: give a budget with train.steps, train.tokens or train.minutes"
    rows = config.rollout.prompts * config.rollout.samples
    for section in ("train", "critic"):
        if (count := config[section].minibatches or 0) > rows:
            yield (
                f"{recipe.blame(f'{section}.minibatches')}: {rows} rows (rollout.prompts x "
                f"rollout.samples) cannot fill {count} mini-batches"
            )


def _faults_of_critic(plan: Plan) -> Iterator[str]:
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


def _faults_of_conversation(plan: Plan) -> Iterator[str]:
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


def _check_options(plan: Plan) -> None:
    """Run components' own checks of their options, such as a missing file."""
    for key, bound in {**plan.chosen, **{f"loggers.{b.name}": b for b in plan.loggers}}.items():
        with border(bound.component.label):
            try:
                bound.component.refuse(bound.options)
            except (ValueError, RlzooError) as error:
                raise RecipeError(f"{plan.recipe.blame(key)}: {bound.name}: {error}") from None


def _warnings(plan: Plan) -> Iterable[str]:
    config = plan.recipe.config
    for note in plan.abilities.notes:
        yield f"task {plan.task_name!r}: {note}"
    yield from cautions.warnings(plan)
    if plan.kl and config.kl.place == "reward" and plan.needs.isdisjoint(KL_COLUMNS):
        yield (
            f"kl.place=reward: estimator {plan.estimator.name!r} reads none of "
            f"{', '.join(KL_COLUMNS)}, so the penalty does nothing; use kl.place=loss or none"
        )
    for key in ("path", "domains"):
        if config.teacher[key] and not plan.teacher:
            yield (
                f"{plan.recipe.blame(f'teacher.{key}')}: no component uses "
                f"{' or '.join(teachers.COLUMNS[:2])}, so it is not loaded"
            )
    if config.model.dtype in ("bfloat16", "float16") and not config.model.lora.rank:
        yield (
            f"model.dtype={config.model.dtype}: weights of this dtype lose an optimizer step of "
            "1e-6; train float32 weights (model.autocast still computes in bfloat16) or adapters "
            "(model.lora.rank)"
        )
    rollout = config.rollout
    truncates = rollout.top_k > 0 or rollout.top_p < 1 or rollout.min_new_tokens > 0
    weighs = "sampler_log_probs" in (*plan.estimator.needs, *plan.policy_loss.needs)
    if weighs and plan.correction:
        yield (
            f"correction={plan.correction}: estimator {plan.estimator.name!r} or policy loss "
            f"{plan.policy_loss.name!r} reads sampler_log_probs, so it may already correct for "
            "the sampler, and the correction would be applied twice"
        )
    unweighed = not (plan.correction or weighs)
    if truncates and unweighed:
        yield (
            "rollout.top_k/top_p/min_new_tokens: samples come from a truncated policy and are "
            "off-policy; set correction=NAME to a column that reweights the loss"
        )
    if unweighed and (caution := plan.base_sampler.component.caution.get("correction")):
        yield f"sampler={plan.base_sampler.name}: {caution}"
    if unweighed and config.rollout.staleness and config.rollout.old_log_probs != "sampled":
        yield (
            f"rollout.staleness={config.rollout.staleness}: samples come from a stale policy and "
            "are off-policy; set correction=NAME to reweight the loss, or "
            "rollout.old_log_probs=sampled to use the loss's own ratio"
        )
