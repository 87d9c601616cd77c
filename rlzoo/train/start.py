"""Run and resume: from a recipe to a trained model, and the checks before a model loads.

Functions import torch's modules, so that errors in a recipe are reported first.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rlzoo.errors import RlzooError, RunError, Unfinished, UsageError, need, of_the_machine, warn
from rlzoo.plugin.permissions import typed
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import TRUST, Recipe, compose
from rlzoo.recipe.faults import refuse_idle
from rlzoo.recipe.plan import Plan, make_plan
from rlzoo.runs.disk import write_atomically
from rlzoo.runs.display import Silent
from rlzoo.runs.folder import (
    RunFolder,
    create_folder,
    open_folder,
    saved_steps,
    step_of,
    taken_up,
)
from rlzoo.runs.lock import locked
from rlzoo.runs.provenance import code_of
from rlzoo.runs.store import NOTE, is_url, kept_at

if TYPE_CHECKING:  # torch
    from rlzoo.step.trainer import Trainer


class Trained(NamedTuple):
    """A finished run: its folder and its summary."""

    path: Path
    summary: dict[str, Any]


def prepare(recipe: Recipe, zoo: Zoo, *, training: bool = True) -> Plan:
    """The plan of a recipe, after all checks that need no model: unmet needs, rules that could
    never stop a run, a missing model or device.

    training: False skips what only training needs, such as the critic's starting model.
    """
    plan = make_plan(recipe, zoo)
    from rlzoo.accel.device import pick_device
    from rlzoo.lm.build import critic_folder
    from rlzoo.lm.loading import resolve_path

    resolve_path(recipe.config.model.path, recipe.blame("model.path"))
    for domain, taught in plan.teachers.items() if training else ():
        resolve_path(taught, recipe.blame(f"teacher.{'domains' if domain else 'path'}"))
    if training and plan.critic and (path := critic_folder(plan)):
        resolve_path(path, recipe.blame("critic.init"))
    if training:
        refuse_idle(plan)
    pick_device(recipe.config.device, recipe.blame("device"))
    if recipe.config.model.lora.rank:
        need("peft", recipe.blame("model.lora.rank"))
    return plan


def open_recipe(recipe: str, overrides: Sequence[str] = (), *, zoo: Zoo | None = None) -> "Trainer":
    """Open a recipe's models and trainer, to train step by step; writes nothing.

    recipe: a name or a file. overrides: words of the command line, "estimator.lam=0.9".
    Raises RecipeError before any model loads.
    """
    zoo = zoo or load_zoo()
    plan = prepare(compose([f"recipe={recipe}", *overrides], zoo), zoo)
    from rlzoo.lm.build import build_world
    from rlzoo.step.trainer import Trainer

    return Trainer(build_world(plan))


def start(
    recipe: Recipe, zoo: Zoo, display: Silent | None = None, store: str | None = None
) -> Trained:
    """Train a composed recipe in a new run folder. store: a URL to which it is copied.

    Raises RecipeError (before any model loads), ComponentError, RunError, StoreError.
    """
    plan = prepare(recipe, zoo)
    if _alike(plan):
        for text in plan.warnings:
            warn(text)
    return _train(plan, create_folder(recipe, store), display)


def resume(
    path: str | Path,
    *,
    steps: int | None = None,
    zoo: Zoo | None = None,
    display: Silent | None = None,
    trust_remote_code: bool = False,
    dir: str | Path | None = None,
    store: str | None = None,
) -> Trained:
    """Continue an interrupted run from its last complete checkpoint; returns a finished one's
    result.

    path: its folder, or the URL of its store. steps: the new `train.steps`, up to which a finished
    run continues, too. dir: the folder in which to continue a run from a
    URL. store: the URL to which a run in a folder is copied. trust_remote_code: run code that
    comes with the model, regardless of the run's recipe.
    """
    folder = open_folder(path, large=False)
    local, url = _places(path, dir, store)
    if folder.summary() and steps is None:
        return _sent(folder, path, "" if is_url(path) else url, display or Silent())
    zoo = zoo or load_zoo()
    words = [f"recipe={folder.path / 'recipe.yaml'}"]
    words += [f"{TRUST}=true"] * trust_remote_code
    words += [f"train.steps={steps}"] * (steps is not None)
    recipe = compose(words, zoo)
    if steps is not None:
        _refuse_less(folder, recipe, path)
    plan, config = prepare(recipe, zoo), recipe.config
    fading = [f"{n}.lr_schedule" for n in plan.passes if config[n].lr_schedule != "constant"]
    if _alike(plan) and steps is not None and fading:
        line = f"depends on train.steps, so the run differs from one that began with {steps} steps"
        warn(f"{', '.join(fading)}: {line}")
    return _train(plan, _unfinished(local, url, None if steps is None else recipe), display)


def _refuse_less(folder: RunFolder, recipe: Recipe, path: str | Path) -> None:
    """Raise RunError where the recipe's budget ends before the next step of a run."""
    done, saved = folder.summary(), saved_steps(folder.checkpoints)
    if done and not saved and not is_url(path):
        model = folder.path / "model"
        raise RunError(f"{path} has no checkpoint left; start a run with model.path={model}")
    taken, steps = done.get("steps", max(map(step_of, saved), default=0)), recipe.config.train.steps
    if steps <= taken:
        line = f"{path} has already taken {taken} steps; only more continue it. Got {steps}"
        raise RunError(f"train.steps: {line}")
    from rlzoo.train.loop import share_of_budget

    spent = [done.get(name, 0) for name in ("steps", "tokens", "seconds")]
    if share_of_budget(recipe.config.train, *spent) >= 1:
        raise RunError(f"train.steps: {path} ended by its train.tokens or train.minutes")


def _places(path: str | Path, dir: str | Path | None, store: str | None) -> tuple[Path, str]:
    """A run's folder on this machine, and the URL that it is kept at, if any: who wrote the folder
    may have written a URL there, too, so that it counts only where the caller gives it."""
    if not is_url(path):
        if dir is not None:
            raise UsageError(f"--dir: requires the URL of a run. {path} is a folder")
        if store is None and (noted := kept_at(Path(path))):
            name = shlex.quote(str(path))
            raise UsageError(
                f"{path} is also stored at {noted}, according to its file {NOTE}. If so, "
                f"continue with `rlzoo resume {name} --store {shlex.quote(noted)}`; otherwise, "
                f"remove {Path(path) / NOTE}"
            )
        return Path(path), store or ""
    if store is not None:
        raise UsageError(f"--store: applies to a run in a folder, but {path} is a URL")
    url = str(path)
    local = Path(dir or Path("runs") / url.rstrip("/").rpartition("/")[2])
    if local.exists() and any(local.iterdir()) and kept_at(local) != url:
        raise RunError(f"--dir: {local} exists but is not a copy of {url}; choose another")
    return local, url


@contextmanager
def _unfinished(local: Path, url: str, longer: Recipe | None) -> Iterator[RunFolder]:
    """The folder, locked. longer: the run's recipe with more steps, as which it continues."""
    with locked(local):
        folder = taken_up(local, url)
        if longer:
            (folder.path / "summary.json").unlink(missing_ok=True)
            write_atomically(folder.path / "recipe.yaml", longer.to_yaml().encode())
        elif folder.summary():  # another process finished it meanwhile
            raise RunError(f"{local} is already finished, so there is nothing to resume")
        yield folder


def _sent(folder: RunFolder, path: str | Path, url: str, display: Silent) -> Trained:
    """A finished run, after sending its store any missing files."""
    has = ""
    if url:
        with locked(folder.path):
            run = taken_up(folder.path, url)
            assert run.store is not None
            pushed = run.store.push(run.path)
            has = f", and the copy at {url} {'is now' if pushed else 'was already'} complete"
    more = f"`rlzoo resume {path} train.steps=N` continues it to step N"
    display.note(f"{path} is already finished{has}, so there is nothing to resume; {more}")
    return Trained(folder.path, folder.summary())


def _alike(plan: Plan) -> bool:
    """Whether this is the first process of the run, after checking that all of them have the same
    recipe and code."""
    from rlzoo.accel.ranks import check_alike, open_ranks

    ranks = open_ranks(plan.recipe.config.device)
    if ranks.count > 1:
        check_alike(ranks, plan.recipe.to_yaml(), code_of(plan))
    return ranks.first


def _train(plan: Plan, place: AbstractContextManager[RunFolder], display: Silent | None) -> Trained:
    import torch

    from rlzoo.accel.ranks import open_ranks
    from rlzoo.train.loop import Loop

    ranks = open_ranks(plan.recipe.config.device)
    shown = display if display is not None and ranks.first else Silent()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())  # the caller's again
        opened: RunFolder | RlzooError | None = None
        if ranks.first:
            try:
                opened = stack.enter_context(place)
            except RlzooError as error:  # the other processes wait for either
                opened = error
        folder = ranks.gather(opened)[0]
        if isinstance(folder, RlzooError):
            raise folder
        assert folder is not None
        kept = f" --store {shlex.quote(folder.store.url)}" if folder.store else ""
        again = f"rlzoo resume {shlex.quote(str(folder.path))}{kept}"
        try:
            return Trained(folder.path, Loop(plan, folder, shown).run())
        except KeyboardInterrupt as stopped:
            stopped.add_note(f"`{typed(again)}` continues the run")
            if folder.store:
                there = typed(f"rlzoo resume {folder.store.url}")
                stopped.add_note(f"on another machine, use `{there}`")
            raise
        except Exception as error:
            reason = of_the_machine(error)
            if reason is None:
                raise
            where = "" if getattr(error, "filename", None) else f"{folder.path}: "
            raise Unfinished(f"{where}{reason}; `{typed(again)}` continues the run") from error
