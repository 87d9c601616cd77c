"""Checkpoints: safetensors and JSON, no pickle; written aside, synced, then renamed.

A checkpoint is either complete or absent. Checksums detect a damaged one, and the previous one is
used.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlzoo.accel.shard import spread_like
from rlzoo.errors import CheckpointError, first_line
from rlzoo.runs.disk import read_json, sync, write_synced
from rlzoo.runs.folder import saved_steps, step_of

State = dict[str, Any]  # what state.json holds

# Raised by a file of another content, even where its checksum is right.
UNREADABLE = (SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError)


class Damaged(CheckpointError):
    """A checkpoint's files do not have the expected content."""


def tensors_of(
    networks: Mapping[str, nn.Module], optimizers: Mapping[str, torch.optim.Optimizer]
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """(file, tensors) of a checkpoint, for one network and optimizer after the other."""
    for name, network in networks.items():
        yield f"{name}.safetensors", _trained(network)
    for name, optimizer in optimizers.items():
        state = optimizer.state_dict()["state"]  # of each weight, by number
        tensors = {f"{i}.{n}": x.contiguous() for i, of in state.items() for n, x in of.items()}
        yield f"{name}_optimizer.safetensors", tensors


def save_checkpoint(
    folder: Path, step: int, parts: Iterable[tuple[str, dict[str, Tensor] | None]], state: State
) -> None:
    """Write `folder/step-N` of (file, tensors); where another process writes them, tensors are
    None. An existing one of this step is assumed to be damaged."""
    final = folder / f"step-{step:08d}"
    aside = folder / f".{final.name}.partial"
    writes = False
    for file, tensors in parts:
        if tensors is None:
            continue
        if not writes:
            writes = True
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                sync(folder.parent)
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
        write_tensors(aside / file, {n: x.detach().contiguous() for n, x in tensors.items()})
    if not writes:
        return
    write_synced(aside / "state.json", json.dumps(state, indent=1).encode())
    write_manifest(aside)
    if final.exists():
        shutil.rmtree(final)
    aside.rename(final)
    sync(folder)


def prune(folder: Path, step: int, keep: int) -> None:
    """Leave the newest `keep` checkpoints up to `step`, which must be whole: later ones are
    damaged, or a run that was wound back would have begun with them."""
    kept = [path for path in saved_steps(folder) if step_of(path) <= step][-keep:]
    for path in [*saved_steps(folder), *folder.glob(".*.partial")]:
        if path not in kept:
            shutil.rmtree(path)


def load_checkpoint(
    folder: Path,
    networks: Mapping[str, nn.Module],
    optimizers: Mapping[str, torch.optim.Optimizer],
    load_more: Callable[[Path], None] | None = None,
) -> tuple[dict | None, list[str]]:
    """The newest whole checkpoint's state, loaded into networks and optimizers; None if there
    is no checkpoint at all. Also returns a line on the damage of each newer one.

    load_more: reads what else a checkpoint's folder holds."""
    troubles = []
    saved = saved_steps(folder)
    for path in reversed(saved):
        try:
            fault = damage(path, [f"{name}.safetensors" for name in networks])
            if fault:
                raise Damaged(fault)
            state = load_networks(path, networks)
            for name, optimizer in optimizers.items():
                _load_optimizer(optimizer, load_file(path / f"{name}_optimizer.safetensors"))
            if load_more:
                load_more(path)
        except (Damaged, *UNREADABLE) as error:
            fault = first_line(error)
            troubles.append(f"checkpoint {path.name} is damaged ({fault}); using the previous one")
        else:
            return state, troubles
    if saved:
        raise CheckpointError(f"{folder}: every checkpoint is damaged: {'; '.join(troubles)}")
    return None, troubles


def load_networks(path: Path, networks: Mapping[str, nn.Module]) -> State:
    """Put the weights of the checkpoint `path` into networks, by name; returns its state. Raises
    CheckpointError where they do not fit, or a file is damaged or not there."""
    try:
        state = _read_state(path)
        tensors = {name: load_file(path / f"{name}.safetensors") for name in networks}
    except UNREADABLE as error:
        raise Damaged(f"{path} cannot be read: {first_line(error)}") from None
    for name, network in networks.items():
        now = network.state_dict()
        spread = {n: spread_like(x, now.get(n)) for n, x in tensors[name].items()}
        try:
            missing, unexpected = network.load_state_dict(spread, strict=False)
            wrong = [*unexpected, *(set(missing) & set(_trained(network)))]
            text = f"{', '.join(wrong[:3])} ..." if wrong else ""
        except RuntimeError as error:  # weights of other widths
            text = str(error).splitlines()[-1].strip()
        if text:
            raise CheckpointError(f"checkpoint {path} does not fit the model: {text}")
    return state


def _read_state(path: Path) -> State:
    """A checkpoint's own state; raises OSError, ValueError, TypeError or LookupError where it is
    damaged, CheckpointError where an earlier version of rlzoo wrote it."""
    state = read_json(path / "state.json")
    if "optimizers" in state:  # with the steps that are among an optimizer's tensors now
        begun = path.parent.parent
        raise CheckpointError(
            f"{path}: an earlier version of rlzoo wrote this checkpoint; resume the run with the "
            f"version that is in {begun / 'provenance.json'}, or train another run with its recipe "
            f"(rlzoo run recipe={begun / 'recipe.yaml'} run.dir=NEW)"
        )
    numbers = [state[name] for name in ("tokens", "seconds", "kl_coef", "skipped")]
    if not all(type(x) in (int, float) for x in numbers) or state["step"] != step_of(path):
        raise ValueError("state.json belongs to another step, or contains no numbers")
    if not isinstance(state["memory"], dict):
        raise TypeError("memory is not a mapping")
    return dict(state)


def write_manifest(folder: Path) -> None:
    """The checksums of a checkpoint's files, by which `damage` checks whether it is whole."""
    files = [path for path in sorted(folder.iterdir()) if path.name != "manifest.json"]
    sums = {path.name: _checksum(path) for path in files}
    write_synced(folder / "manifest.json", json.dumps(sums, indent=1).encode())
    sync(folder)


def damage(path: Path, needed: Iterable[str] = ()) -> str:
    """What is wrong with a checkpoint folder, or an empty string. needed: files that its manifest
    must name."""
    try:
        sums = read_json(path / "manifest.json")
        if not isinstance(sums, dict) or not sums:
            return "manifest.json does not list any file"
        if lost := sorted({*needed} - sums.keys()):
            return f"manifest.json does not list {lost[0]}"
        if elsewhere := [name for name in sums if Path(name).name != name]:
            return f"manifest.json names {elsewhere[0]!r}"
        bad = [name for name, value in sums.items() if _checksum(path / name) != value]
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return f"{bad[0]} does not match its checksum" if bad else ""


def _trained(network: nn.Module) -> dict[str, Tensor]:
    """The state without frozen weights, which under LoRA are those of the base model; all of it
    where no weight is trained, as in a reference that moves. Tied weights are one object of several
    names, and have the first: safetensors refuses two for one memory."""
    weights = dict(network.named_parameters(remove_duplicate=False))
    frozen = {name for name, weight in weights.items() if not weight.requires_grad}
    frozen = frozen if len(frozen) < len(weights) else set()
    state = network.state_dict(keep_vars=True)
    first = {id(x): name for name, x in reversed(state.items())}
    return {n: x for n, x in state.items() if n not in frozen and first[id(x)] == n}


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    entries: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        index, name = key.split(".", 1)
        if name != "step" and tensor.shape != weights[int(index)].shape:
            raise ValueError(f"{key} has shape {tuple(tensor.shape)}")
        entries.setdefault(int(index), {})[name] = spread_like(tensor, weights[int(index)])
    optimizer.load_state_dict(optimizer.state_dict() | {"state": entries})


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write safetensors and sync them to disk. Raises OSError instead of safetensors' own error."""
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
    sync(path)


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
