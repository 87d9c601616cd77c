"""Where a run's numbers come from: its recipe, the libraries' versions, each component's code, and
the contents of the files that the recipe names.

`provenance.json` holds a part for each stretch of the run in which these did not change; a resumed
run is compared with the last part. Another recipe is refused, every other change is reported.
"""

import hashlib
import inspect
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rlzoo import __version__
from rlzoo.errors import CheckpointError, RunError
from rlzoo.plugin.component import Component
from rlzoo.recipe.files import flatten, without_retired
from rlzoo.recipe.plan import Plan
from rlzoo.runs.contents import contents
from rlzoo.runs.disk import read_json, write_json
from rlzoo.runs.folder import RunFolder

FILE = "provenance.json"

# Keys that a run may change on its way: how far it goes, what it keeps, where it is and runs.
FREE = ("train.steps", "train.tokens", "train.minutes", "eval.every", "device", "model.name",
        "model.path", "model.trust_remote_code", "run.", "stop.", "checkpoint.", "loggers.",
        "parallel.")  # fmt: skip


def settle(
    folder: RunFolder, plan: Plan, state: Mapping[str, Any] | None, weights: str = ""
) -> tuple[str, list[str]]:
    """Compare a run with its provenance so far, and record that with which it continues. Returns
    its identity, fixed when it began, and what has changed, a line each.

    state: the checkpoint's that it continues from, None at the beginning. weights: checksum of the
    model in model.path. Raises RunError if its
    recipe was changed, CheckpointError where the checkpoint is another run's.
    """
    now = _sources(plan) | ({"weights": weights} if weights else {})
    parts = _read(folder) if state else []
    last = parts[-1] if parts else {}
    at = state["step"] if state else 0
    defining = {k: v for k, v in now["recipe"].items() if not k.startswith(FREE)}
    who = hashlib.sha256(json.dumps(defining, sort_keys=True).encode()).hexdigest()
    who = last.get("identity", who)  # a later version of rlzoo has more keys
    notes = []
    if last:
        then = _with_new_keys(last["recipe"], now["recipe"], plan.recipe.origins)
        changed = _differences(then, now["recipe"])
        mixed = [text for key, text in changed.items() if not key.startswith(FREE)]
        if mixed:
            raise RunError(
                f"{folder.path / 'recipe.yaml'} was changed since the run began: "
                f"{', '.join(mixed)}; restore it, or train another run with it (rlzoo run "
                f"recipe={folder.path / 'recipe.yaml'} run.dir=NEW)"
            )
        for what in ("versions", "components"):
            changed |= _differences(last[what], now[what])
        changed |= _other_contents(last, now)
        notes = [f"changed after step {at}: {text}" for text in changed.values()]
    if state and state.get("identity", who) != who:
        raise CheckpointError(
            f"{folder.checkpoints}: the checkpoint of step {at} belongs to another run, which was "
            "trained with another recipe"
        )
    if notes or not now.keys() <= last.keys():
        write_json(folder.path / FILE, [*parts, {"from_step": at, "identity": who, **now}])
    return who, notes


def _with_new_keys(
    then: Mapping[str, Any], now: Mapping[str, Any], origins: Mapping[str, str]
) -> dict[str, Any]:
    """An old recipe with the keys that a later version of rlzoo has added, at their defaults, since
    a user cannot have edited those, and without those that are gone."""
    added = {k: v for k, v in now.items() if origins.get(k, "").endswith("defaults.yaml")}
    return added | without_retired(then)


def _read(folder: RunFolder) -> list[dict[str, Any]]:
    """The parts so far; empty for a run from before this file existed."""
    path = folder.path / FILE
    if not path.exists():
        return []
    try:
        parts = read_json(path)
        _ = parts[0], [(p["from_step"], p["recipe"], p["versions"], p["components"]) for p in parts]
        _ = [text.rpartition for p in parts for text in p.get("contents", {}).values()]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} cannot be read ({error}); remove it to continue without it"
        ) from None
    return parts


def _other_contents(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """Key -> a line for each file or folder whose contents both parts have, and differ."""
    lines = {}
    for key, is_ in now["contents"].items():
        place, _, digest = is_.rpartition(" ")
        was = then.get("contents", {}).get(key, is_).rpartition(" ")[2]
        if was != digest:
            lines[key] = f"{key}: the contents of {place} ({was} -> {digest})"
    if "model.path" not in lines and "weights" in then and "weights" in now:
        lines |= _differences({"model": then["weights"]}, {"model": now["weights"]})
    return lines


def _sources(plan: Plan) -> dict[str, Any]:
    """The current versions by library; where each component comes from, with a hash of its file;
    the recipe's keys; the contents of what these name."""
    versions = {"rlzoo": __version__, "Python": platform.python_version()}
    for name in ("torch", "transformers", "peft"):  # as installed, imported or not
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    components = {
        f"{section} {b.name}": f"{b.component.origin}, source {source_hash(b.component)}"
        for section, b in plan.chosen.items()
    }
    recipe = flatten(plan.recipe.stored())
    return {
        "versions": versions,
        "components": components,
        "recipe": recipe,
        "contents": contents(recipe),
    }


def source_hash(component: Component) -> str:
    """SHA-256 (16 digits) of a component's file, `unknown` if it was made in a session."""
    with suppress(OSError, TypeError):
        file = inspect.getsourcefile(inspect.unwrap(component.function))
        return hashlib.sha256(Path(str(file)).read_bytes()).hexdigest()[:16]
    return "unknown"


def _differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, str]:
    """key -> `key: was -> is`, for keys that differ."""
    keys = dict.fromkeys([*then, *now])
    keys.pop("run.overwrite", None)  # only the command that began the run has it
    values = {key: (then.get(key), now.get(key)) for key in keys}
    return {key: f"{key}: {was} -> {is_}" for key, (was, is_) in values.items() if was != is_}
