"""A sweep's folder: its index sweep.json, and whether it is this sweep's."""

from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlzoo.errors import RunError
from rlzoo.runs.disk import write_json
from rlzoo.runs.evaluations import decoding_of
from rlzoo.runs.record import flatten
from rlzoo.runs.store import Store, small
from rlzoo.tools.compare.records import read_sweep
from rlzoo.tools.sweep.plan import Job, Sweep

INDEX = "sweep.json"


def check_folder(sweep: Sweep) -> None:
    """The sweep's folder is new, or holds this sweep or a part of it."""
    strange = sweep.path.exists() and not read_sweep(sweep.path)
    if strange and any(not path.name.startswith(".") for path in sweep.path.iterdir()):
        raise RunError(f"--dir: {sweep.path} exists already and is no sweep; give another")
    for job in sweep.jobs:
        _check_same(job)


def bring(sweep: Sweep) -> None:
    """From the sweep's store, what this machine has not: the index, and of each run that is not
    done here its numbers. Checkpoints and models stay there."""
    if not sweep.store:
        return
    store = Store(sweep.store)
    names = store.names()
    if "recipe.yaml" in names:
        raise RunError(f"--store: {sweep.store} holds a run, and is no sweep's; give another")
    if INDEX in names and not (sweep.path / INDEX).exists():
        store.fetch(sweep.path, lambda name: name == INDEX)
    for job in sweep.jobs:
        done = f"{job.name}/summary.json" in names
        known = (job.path / "recipe.yaml").exists() or f"{job.name}/recipe.yaml" not in names
        if not job.done and (done or not known):
            (store / job.name).fetch(job.path, small)


def write_index(sweep: Sweep) -> None:
    """sweep.json. A sweep may grow: rows and seeds that it had and this command has not stay."""
    before = read_sweep(sweep.path)
    rows = {row["label"]: row for row in before.get("rows", [])}
    for row in sweep.rows:
        runs = [job.name for job in sweep.jobs if job.row == row.label]
        earlier = rows.get(row.label, {}).get("runs", [])
        rows[row.label] = {
            "label": row.label,
            "values": dict(row.values),
            "words": list(row.words),
            "runs": list(dict.fromkeys([*earlier, *runs])),
        }
    keys = list(dict.fromkeys([*before.get("keys", []), *sweep.keys]))
    index = {"words": sweep.words, "keys": keys, "rows": list(rows.values())}
    write_json(sweep.path / INDEX, index)
    if sweep.store:
        Store(sweep.store).put(sweep.path / INDEX)


def _check_same(job: Job) -> None:
    """A run that is there must be of the same recipe."""
    file = job.path / "recipe.yaml"
    try:
        there: Any = OmegaConf.to_container(OmegaConf.load(file))
    except FileNotFoundError:
        return
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException):
        return  # cut off by a kill or a full disk: the worker writes it again
    here = job.recipe.stored()
    old, new = ({k: v for k, v in flatten(t).items() if not k.startswith("run.")}
                for t in (there if isinstance(there, dict) else {}, here))  # fmt: skip
    # Runs from before evaluations had keys of their own decoded them somehow all the same.
    old, new = old and old | decoding_of(old), new | decoding_of(new)
    for key in sorted({*old, *new}):
        if old and old.get(key) != new.get(key):
            raise RunError(
                f"--dir: {job.path} was made with another recipe: {key} is {old.get(key)} there "
                f"and {new.get(key)} now; give another --dir"
            )
