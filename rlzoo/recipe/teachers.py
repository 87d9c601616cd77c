"""Assigns teachers to prompts, and reports prompts and teachers that are left over."""

from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo.errors import nearest
from rlzoo.recipe.compose import Recipe

# Columns that stand for a model, as those of a critic do.
COLUMNS = ("teacher_log_probs", "teacher_kl", "teacher")


def given(recipe: Recipe) -> dict[str | None, str]:
    """The path of each domain's teacher; None: for prompts of any other domain."""
    keys = recipe.config.teacher
    domains: Mapping[Any, str] = keys.domains or {}
    return {**domains, **({} if keys.path is None else {None: keys.path})}


def faults(plan: Any) -> Iterator[str]:
    """Faults: a prompt without a teacher, or a teacher without a prompt."""
    keys = plan.recipe.config.teacher
    if plan.teacher and not plan.teachers:
        column = next(name for name in COLUMNS if name in plan.needs)
        yield (
            f"teacher: a component uses {column!r}; give teacher.name (a preset of configs/model/) "
            "or teacher.path (a folder)"
        )
    if not keys.domains:
        return
    blame, domains = plan.recipe.blame("teacher.domains"), list(plan.abilities.domains)
    if not domains:
        yield f"{blame}: task {plan.task_name!r} does not define domains for its prompts"
    for name, path in keys.domains.items():
        if name not in domains:
            near, known = nearest(str(name), domains), ", ".join(domains)
            yield f"{blame}: no prompt has the domain {name!r}{near} ({known})"
        if not isinstance(path, str):
            yield f"{blame}: {name}: must be a folder or a hub id. Got {path!r}"
    left = [name for name in domains if name not in keys.domains]
    if left and keys.path is None:
        yield f"{blame}: there is no teacher for {', '.join(left)}; give teacher.path for these"
    if "teacher" in plan.needs:
        yield f"{blame}: a column uses a single 'teacher'; give only teacher.path"
