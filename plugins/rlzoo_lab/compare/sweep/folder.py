"""A sweep's folder: its index sweep.json, and whether the folder belongs to this sweep."""

from rlzoo.errors import RunError
from rlzoo.recipe.files import flatten
from rlzoo.runs.disk import write_json
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.store import open_store
from rlzoo_lab.compare.sweep.plan import Job, Sweep
from rlzoo_lab.data.comparable import decoding_of, read_sweep

INDEX = "sweep.json"


def check_folder(sweep: Sweep) -> None:
    """Checks that the sweep's folder is new, or contains this sweep or a part of it."""
    strange = sweep.path.exists() and not read_sweep(sweep.path)
    if strange and any(not path.name.startswith(".") for path in sweep.path.iterdir()):
        raise RunError(
            f"--dir: {sweep.path} already exists and is not a sweep; give another folder"
        )
    for job in sweep.jobs:
        _check_same(job)


def bring(sweep: Sweep) -> None:
    """Copy missing files from the sweep's store: the index, and the numbers of each run that is not
    finished here. Does not copy checkpoints and models."""
    if not sweep.store:
        return
    store = open_store(sweep.store)
    names = store.names()
    if "recipe.yaml" in names:
        raise RunError(f"--store: {sweep.store} contains a run, not a sweep; give another URL")
    missing = {
        job.name
        for job in sweep.jobs
        if not job.done
        and (f"{job.name}/summary.json" in names or not (job.path / "recipe.yaml").exists())
    }
    if not (sweep.path / INDEX).exists():
        missing.add(INDEX)
    store.fetch(sweep.path, lambda name: name.partition("/")[0] in missing, large=False)


def write_index(sweep: Sweep) -> None:
    """Write sweep.json. A sweep may grow: rows and seeds that this command does not have are
    kept."""
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
        open_store(sweep.store).put(sweep.path / INDEX)


def _check_same(job: Job) -> None:
    """A run that is there, and has begun, must be of the same recipe."""
    if not any(RunFolder(job.path).lines("metrics.jsonl")):
        return
    try:
        there = RunFolder(job.path).recipe()
    except (OSError, RunError):
        return  # none yet, or cut off by a kill or a full disk: the worker writes it again
    old, new = ({k: v for k, v in flatten(tree).items() if not k.startswith("run.")}
                for tree in (there, job.recipe.stored()))  # fmt: skip
    # Runs from before evaluations had keys of their own decoded them somehow all the same.
    old, new = old and old | decoding_of(old), new | decoding_of(new)
    for key in sorted({*old, *new}):
        if old and old.get(key) != new.get(key):
            raise RunError(
                f"--dir: {job.path} was created with another recipe: {key} is {old.get(key)} there "
                f"but {new.get(key)} now; give another --dir"
            )
