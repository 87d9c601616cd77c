"""Run folders: what a run leaves behind, and the Python entry points `run` and `resume`."""

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError, RunError
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import Recipe, compose
from rlzoo.runs.folder import RunFolder, create_folder, open_folder


@dataclass
class Run:
    """A finished run: its folder, its metrics (an object per line), its summary."""

    path: Path
    metrics: list[dict[str, Any]] = field(repr=False)
    summary: dict[str, Any]


def run(
    recipe: str, overrides: list[str] | None = None, *, zoo: Zoo | None = None, display: Any = None
) -> Run:
    """Train as `rlzoo run recipe=RECIPE OVERRIDES...` does.

    Raises RecipeError (before any model loads), ComponentError, RunError.
    """
    zoo = zoo or load_zoo()
    composed = compose([f"recipe={recipe}", *(overrides or [])], zoo)
    return start(composed, zoo, display)


def start(recipe: Recipe, zoo: Zoo, display: Any = None) -> Run:
    """Train a composed recipe in a new run folder."""
    from rlzoo.recipe.plan import make_plan

    plan = make_plan(recipe, zoo)  # finds unmet needs before the folder is made
    from rlzoo.lm.build import critic_folder
    from rlzoo.lm.loading import resolve_path
    from rlzoo.parallel.device import pick_device
    from rlzoo.parallel.ranks import check_alike, open_ranks
    from rlzoo.recipe.plan import refuse

    refuse(plan)
    resolve_path(recipe.config.model.path)  # as does a model or device that is none
    if plan.critic and (path := critic_folder(plan)):
        resolve_path(path, "critic.init")
    pick_device(recipe.config.device)
    ranks = open_ranks(recipe.config.device)
    check_alike(ranks, recipe.to_yaml(), zoo.code_digest())
    if ranks.first:
        for text in plan.warnings:
            warnings.warn(text, stacklevel=3)
    made = ranks.same(_attempt(create_folder, recipe) if ranks.first else None)
    if isinstance(made, RlzooError):
        raise made
    return _train(plan, made, display, ranks)


def _attempt(function: Any, *arguments: Any) -> Any:
    """What `function` returns, or the RlzooError that it raises: other ranks wait for either."""
    try:
        return function(*arguments)
    except RlzooError as error:
        return error


def resume(path: str | Path, *, zoo: Zoo | None = None, display: Any = None) -> Run:
    """Go on with an interrupted run from its last whole checkpoint."""
    from rlzoo.recipe.plan import make_plan

    folder = open_folder(path)
    zoo = zoo or load_zoo()
    recipe = compose([f"recipe={folder.path / 'recipe.yaml'}"], zoo)
    if folder.summary():
        raise RunError(f"{folder.path} is finished already; nothing to resume")
    from rlzoo.parallel.ranks import check_alike, open_ranks

    ranks = open_ranks(recipe.config.device)
    check_alike(ranks, recipe.to_yaml(), zoo.code_digest())
    return _train(make_plan(recipe, zoo), folder, display, ranks)


def _train(plan: Any, folder: RunFolder, display: Any, ranks: Any) -> Run:
    from rlzoo.runs.display import Silent
    from rlzoo.train.loop import train

    shown = display if display is not None and ranks.first else Silent()
    summary = train(plan, folder, shown, ranks)
    return Run(folder.path, folder.read("metrics.jsonl"), summary)
