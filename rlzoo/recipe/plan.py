"""From a recipe to a plan: the components that run, and the columns and models that they need.

Only these are built or computed. Every unmet need is found here, before a model
is loaded.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlzoo.errors import RecipeError, RlzooError, nearest
from rlzoo.plugin.border import Bound, border, needs_of
from rlzoo.plugin.columns import COLUMNS, MODELS, RESOURCES
from rlzoo.plugin.protocols import Abilities, Task, abilities
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe import faults
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.keys import COLLECTIONS, SECTIONS, Config


@dataclass(frozen=True)
class Plan:
    """All decisions before a run starts.

    task_name: as the recipe has it. abilities: the task's optional members.
    conversation: whether the task answers during an episode. stops: texts that end a turn, as EOS
    does. correction: the column that weighs the policy loss. needs: all columns that some component
    takes. critic, teacher, reference: whether the run builds one. teachers: the path of a domain's
    teacher; None: for prompts of any other domain. reference_needs: the needs that stand for a
    reference. own_reference: whether the reference of a rollout is the policy that sampled it.
    moving_reference: whether training changes it. passes: how many passes `actor` and `critic` make
    over a batch, and optimizer steps in each. one_update: whether one optimizer step of each
    network, in one piece, follows each rollout. actor_from: the first step (from 0) that trains the
    actor, after the critic's warm-up. skips_silent: whether rows whose advantages are 0 need no
    backward pass. old_in_loss: whether nothing but the update's losses reads old_log_probs, so that
    a single update's own pass, whose ratio is 1, may give them.
    """

    recipe: Recipe
    task: Task
    task_bound: Bound
    task_name: str
    abilities: Abilities
    conversation: bool
    stops: tuple[str, ...]
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
    correction: str | None
    loggers: tuple[Bound, ...]
    needs: frozenset[str]
    critic: bool
    teacher: bool
    teachers: Mapping[str | None, str]
    reference_needs: frozenset[str]
    reference: bool
    own_reference: bool
    moving_reference: bool
    passes: Mapping[str, tuple[int, int]]
    one_update: bool
    actor_from: int
    skips_silent: bool
    old_in_loss: bool
    warnings: tuple[str, ...] = ()

    @property
    def chosen(self) -> dict[str, Bound]:
        """The components by the keys that choose them; loggers are separate."""
        one = ("sampler", "estimator", "kl", "policy_loss", "value_loss", "aggregation")
        bounds = {key: bound for key in one if (bound := getattr(self, key)) is not None}
        bounds |= {"critic.aggregation": self.critic_aggregation, "task": self.task_bound}
        bounds |= {f"rewards.{name}": bound for name, (_, bound) in self.rewards.items()}
        return bounds | {f"columns.{bound.name}": bound for bound in self.columns}


def make_plan(recipe: Recipe, zoo: Zoo, task: Task | None = None) -> Plan:
    """Bind the recipe's components and resolve their needs; `task` replaces the recipe's own.

    Raises RecipeError where components, keys and budget contradict each other."""
    config = recipe.config
    single = {
        key: _bound(recipe, key, kind, name, zoo)
        for key, kind in SECTIONS.items()
        if (name := recipe.value(key).name)
    }
    many: dict[str, dict[str, Bound]] = {}
    for key, kind in COLLECTIONS.items():
        bounds = [_bound(recipe, f"{key}.{name}", kind, name, zoo) for name in recipe.value(key)]
        many[key] = {bound.name: bound for bound in bounds}
    task = task or _make_task(single["task"])
    about = abilities(task)
    respond = about.respond
    rewards = {n: (config.rewards[n].weight, b) for n, b in many["rewards"].items()}
    if not rewards:
        where = recipe.blame("rewards")
        raise RecipeError(f"{where}: choose a reward; the default is rewards=verifier")
    kl = single["kl"] if config.kl.place != "none" and config.kl.coef > 0 else None
    estimator, policy_loss, sampler = (single[k] for k in ("estimator", "policy_loss", "sampler"))
    wanted: list[tuple[str, Iterable[str]]] = [
        ("task", needs_of(task.score)),
        ("task", needs_of(respond) if respond else ()),
        *((f"rewards.{name}", b.needs) for name, (_, b) in rewards.items()),
        *((k, single[k].needs) for k in ("sampler", "estimator", "policy_loss", "aggregation")),
        *([("kl", kl.needs)] if kl else ()),
        *((f"columns.{name}", (name,)) for name in many["columns"]),
    ]
    extra_columns = many["columns"]
    if correction := single.get("correction"):
        if (shape := correction.component.shape) != "BT":
            line = f"column {correction.name!r} has the shape {shape}; a correction needs (B, T)"
            raise RecipeError(f"{recipe.blame('correction.name')}: {line}")
        extra_columns |= {correction.name: correction}
        wanted.append(("correction", (correction.name,)))
    columns, needs = _close(wanted, extra_columns, zoo)
    critic = not needs.isdisjoint((*MODELS["critic"], "returns"))
    if critic:
        wanted_too = [*wanted, ("value_loss", single["value_loss"].needs)]
        columns, needs = _close(wanted_too, extra_columns, zoo)
    in_loss = {"policy_loss", "kl"} if config.kl.place == "loss" else {"policy_loss"}
    _, before = _close([w for w in wanted if w[0] not in in_loss], extra_columns, zoo)
    reread = (kl and config.kl.place != "loss") or config.kl.reference == "rollout"
    schedule = _schedule(config, needs, kl, policy_loss)
    plan = Plan(
        recipe=recipe,
        task=task,
        task_bound=single["task"],
        task_name=single["task"].name,
        abilities=about,
        conversation=respond is not None,
        stops=about.stops if respond else (),
        rewards=rewards,
        sampler=sampler,
        base_sampler=_wrapped(sampler, recipe, zoo) if "sample" in sampler.needs else sampler,
        columns=columns,
        estimator=estimator,
        kl=kl,
        policy_loss=policy_loss,
        value_loss=single["value_loss"] if critic else None,
        aggregation=single["aggregation"],
        critic_aggregation=single["critic.aggregation"],
        correction=correction.name if correction else None,
        loggers=tuple(many["loggers"].values()),
        needs=frozenset(needs),
        old_in_loss=schedule["one_update"] and "old_log_probs" not in before and not reread,
        **schedule,
    )
    _check(plan)
    return dataclasses.replace(plan, warnings=tuple(faults.warnings(plan)))


def _schedule(config: Config, needs: set[str], kl: Bound | None, loss: Bound) -> dict[str, Any]:
    """The part of a plan that concerns models and updates."""
    train, own_keys = config.train, config.critic
    critic, teacher = (not needs.isdisjoint(MODELS[name]) for name in ("critic", "teacher"))
    by_domain: dict[Any, Any] = {**(config.teacher.domains or {}), None: config.teacher.path}
    reference_needs = frozenset(needs.intersection(MODELS["reference"]))
    reference = bool(reference_needs) and config.kl.reference != "rollout"
    passes = {"actor": (train.epochs, train.minibatches)}
    if critic:
        minibatches = own_keys.minibatches or train.minibatches
        passes["critic"] = (own_keys.epochs or train.epochs, minibatches)
    more = config.actor.entropy_coef or (kl and config.kl.place == "loss")
    return {
        "critic": critic,
        "teacher": teacher,
        "teachers": {d: path for d, path in by_domain.items() if teacher and path is not None},
        "reference_needs": reference_needs,
        "reference": reference,
        "own_reference": bool(reference_needs) and not reference,
        "moving_reference": reference and config.kl.reference != "initial",
        "passes": passes,
        "one_update": train.microbatch is None and set(passes.values()) == {(1, 1)},
        "actor_from": train.critic_warmup if critic else 0,
        "skips_silent": loss.component.needs_signal and train.skip_no_signal and not more,
    }


def _bound(recipe: Recipe, place: str, kind: str, name: str, zoo: Zoo) -> Bound:
    """The component that a key chooses, with the options that `compose` checked; columns go by the
    name that others use."""
    component, options = zoo.shelves[kind][name], recipe.options(place)
    if kind == "rewards":
        options.pop("weight")
    called = component.name if kind == "columns" else name
    return Bound(component, options, component.needs_with(options), called)


def _make_task(made_by: Bound) -> Task:
    with border(made_by.component.label):
        try:
            return made_by.component.function(**made_by.options)
        except (ValueError, RlzooError) as error:
            raise RecipeError(f"task {made_by.name!r}: {error}") from None


def _wrapped(sampler: Bound, recipe: Recipe, zoo: Zoo) -> Bound:
    """The sampler that actually draws, where another wraps it."""
    inner = str(sampler.options.get("inner"))
    if inner not in zoo.samplers or "sample" in zoo.samplers[inner].needs:
        line = f"{sampler.name!r} needs an 'inner' that wraps no sampler. Got {inner!r}"
        raise RecipeError(f"{recipe.blame('sampler.inner')}: {line}")
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
            near = nearest(name, [*COLUMNS, *zoo.columns])
            line = f"{key} needs column {name!r}, which no component provides{near}"
            raise RecipeError(line, key=key, kind="unmet-need")
        component = asked[name].component if name in asked else zoo.columns[name]
        for need in component.needs:
            visit(f"column {name!r}", need, (*trail, name))
        order[name] = asked.get(name) or Bound.of(component, {})

    for key, names in wanted:
        for name in names:
            visit(key, name, ())
    return tuple(order.values()), needs


def _check(plan: Plan) -> None:
    """Raises RecipeError for a contradiction, and what components' own checks of their options
    find, such as a missing file."""
    for key, text in faults.faults(plan):
        raise RecipeError(f"{plan.recipe.blame(key)}: {text}", key=key, kind="unmet-need")
    for key, bound in {**plan.chosen, **{f"loggers.{b.name}": b for b in plan.loggers}}.items():
        with border(bound.component.label):
            try:
                bound.component.refuse(bound.options)
            except (ValueError, RlzooError) as error:
                raise RecipeError(f"{plan.recipe.blame(key)}: {bound.name}: {error}") from None
