"""Finds the files of a run at a path, detects their formats, and reads them."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from rlzoo.errors import UsageError, first_line
from rlzoo.runs.disk import refuse_devices
from rlzoo_lab.imports import console
from rlzoo_lab.imports.binary import WANDB, read_wandb, tensorboard_rows
from rlzoo_lab.imports.found import Found, Row, flat, grouped
from rlzoo_lab.imports.pickled import read_arguments
from rlzoo_lab.imports.rollouts import parquet_samples, prime_samples, slime_samples, verl_samples
from rlzoo_lab.imports.tabular import STEPS, metric_rows, step_of, table_rows, without_steps
from rlzoo_lab.imports.tokens import miles_tokens, prime_tokens, skyrl_tokens, slime_training
from rlzoo_lab.strict import damaged, read_json_file, text_lines

Reader = Callable[[Path, Found], set[str]]  # returns whose format it is
FORMATS = ("trl", "verl", "prime-rl", "skyrl", "slime", "wandb", "csv")
DEPTH, MOST = 8, 20_000  # folders below the one given; files in it
PEEK = 10_000  # lines of a log that are searched for a trainer's own
# Files of weights and the like, which are not looked into.
OTHER = {".safetensors", ".pt", ".pth", ".bin", ".py", ".md", ".html", ".png", ".svg", ".model"}
NOT_METRICS = {"tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json",
               "vocab.json", "special_tokens_map.json"}  # fmt: skip
EXPECTED = (
    "metrics of a trainer: trainer_state.json, JSON lines or CSV with a step, a console log of "
    "verl, slime or SkyRL, TensorBoard events, or a .wandb file"
)


def read_source(place: Path) -> tuple[Found, set[str]]:
    """(what a file or folder holds, the formats of its files). Raises DataError, which names the
    damaged file and its line; UsageError if no file is recognized."""
    if not place.exists():
        raise UsageError(f"SOURCE: there is no file or folder {place}", kind="not-found")
    refuse_devices(place)
    paths = [place] if place.is_file() else _files(place)
    kinds = {path: kind for path in paths if (kind := kind_of(path))}
    if place.is_file() and not kinds:
        raise damaged(place, 1, EXPECTED)
    kinds = _of_one_run(place, _latest_state(kinds))
    found, formats = Found(files=kinds), set[str]()
    order = sorted(kinds, key=lambda p: (kinds[p].startswith("rollouts"), _natural(p)))
    for path in order:
        formats |= READERS[kinds[path]](path, found)
    if left := sum(kind == "evaluated" for kind in kinds.values()):
        found.notes.append(f"responses of evaluations are not read ({left} files)")
    if not found.rows and not found.samples and not found.tokens:
        raise UsageError(f"SOURCE: {place} has no file with {EXPECTED}", kind="not-found")
    return found, formats


def _files(place: Path) -> list[Path]:
    out = []
    for path in sorted(place.rglob("*"), key=_natural):
        if len(path.relative_to(place).parts) <= DEPTH and path.is_file() and path.stat().st_size:
            out.append(path)
        if len(out) > MOST:
            raise UsageError(f"SOURCE: {place} has more than {MOST:,} files; give a subfolder")
    return out


def _natural(path: Path) -> list[tuple[int, int | str]]:
    """2.jsonl before 10.jsonl."""
    parts = re.split(r"(\d+)", str(path))
    return [(0, int(p)) if p.isdecimal() else (1, p) for p in parts]


def kind_of(path: Path) -> str:
    """A file's kind from its content; empty if no trainer writes such files. Raises DataError if
    its beginning is damaged."""
    with open(path, "rb") as file:
        start = file.read(2**16)
    name, suffix = path.name, path.suffix
    if start[:4] == WANDB or suffix == ".wandb":
        return "wandb"
    if start[:4] == b"PAR1" or suffix == ".parquet":  # others hold prompts
        kinds = {"completions_": "rollouts of trl", "rollout_eval_": "evaluated",
                 "rollout_": "mirror of miles"}  # fmt: skip
        return next((kind for head, kind in kinds.items() if name.startswith(head)), "")
    if "tfevents" in name:
        return "events"
    if name == "training_args.bin":
        return "arguments"
    if suffix == ".pt" and b"rollout_id" in start:
        if b"\0format_version" in start or b"\0rollout_data" in start:
            return "training of slime"
        if b"samples" in start:
            return "evaluated" if "eval_" in name else "rollouts of slime"
    if suffix == ".pkl":
        return "training of skyrl" if b"TrainingInputBatch" in start else ""
    if suffix in OTHER or name in NOT_METRICS or b"\0" in start[:4096]:
        return ""
    if suffix in (".yaml", ".yml", ".toml"):
        return "settings"
    if suffix == ".json":
        return _kind_of_json(path, start)
    if suffix in (".jsonl", ".ndjson"):
        return _kind_of_lines(path)
    if suffix in (".csv", ".tsv"):
        return "table"
    if suffix not in (".log", ".txt", ".out", ".err", ""):
        return ""
    trainers = map(console.trainer_of, _first(path))
    return next((f"log of {t}" for t in trainers if t), "")


def _kind_of_json(path: Path, start: bytes) -> str:
    if path.name == "trainer_state.json" or b'"log_history"' in start:
        return "state"
    return "state" if start.lstrip()[:1] == b"[" and b'"step"' in start else ""


def _kind_of_lines(path: Path) -> str:
    try:  # a line of tokens may have megabytes
        line = json.loads(next(filter(str.strip, _first(path)), ""))
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise damaged(path, 1, "a JSON object")
    if {"input", "output"} <= line.keys():  # verl's _validate adds "reward"
        return "evaluated" if "reward" in line else "rollouts of verl"
    if {"traces", "task"} <= line.keys():
        part = path.parts[-3:-1]
        return "traces of prime-rl" if part == ("train", "effective") else ""
    if {"token_ids", "loss_mask"} <= line.keys():
        return "rollouts of prime-rl"
    values = line.get("data", line)
    if isinstance(values, dict) and any(k in line or k in values for k in STEPS):
        return "lines"
    return ""


def _first(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="replace") as file:
        yield from islice(file, PEEK)


def _latest_state(kinds: dict[Path, str]) -> dict[Path, str]:
    """Without the states of earlier checkpoints, and the arguments next to them: the last has all
    that they have."""
    states = [p for p, kind in kinds.items() if kind == "state" and p.name == "trainer_state.json"]
    if not states:
        return kinds
    above = [p for p in states if not p.parent.name.startswith("checkpoint-")]
    keep = (above or sorted(states, key=_natural))[-1]
    arguments = [p for p, kind in kinds.items() if kind == "arguments"]
    near = [p for p in arguments if p.parent == keep.parent] or arguments[-1:]
    left = {*states, *arguments} - {keep, *near[:1]}
    return {p: kind for p, kind in kinds.items() if p not in left}


def _of_one_run(place: Path, kinds: dict[Path, str]) -> dict[Path, str]:
    """Without files that repeat what a more exact one has; raises UsageError where there are two
    runs."""
    for exact, rest in EXACT.items():
        if exact in kinds.values():
            kinds = {p: kind for p, kind in kinds.items() if kind.split(" of ")[0] not in rest}
    for kind in ("state", "wandb", "table", "lines", "events", "log"):
        same = [p for p, k in kinds.items() if k.split(" of ")[0] == kind]
        if kind == "lines" and all(p.name == "metrics.jsonl" for p in same):
            continue  # prime-rl's trainer and orchestrator write one each
        if kind == "events":  # a run that was resumed has several in its folder
            same = list({p.parent: p for p in same}.values())
        if len(same) > 1:
            raise UsageError(
                f"SOURCE: {place} has metrics of {len(same)} runs; give one of them: {same[0]}, "
                f"{same[1]}"
            )
    return kinds


# A kind of file -> kinds that repeat its metrics with fewer digits, or those of another part.
EXACT = {"state": ("events", "log", "lines", "table", "wandb"),
         "wandb": ("events", "log"), "lines": ("events", "log"),
         "table": ("events", "log"), "events": ("log",),
         "rollouts of slime": ("mirror",)}  # fmt: skip


def _state(path: Path, found: Found) -> set[str]:
    """transformers' trainer_state.json, or its log_history as a list."""
    tree = read_json_file(path)
    history = tree.get("log_history") if isinstance(tree, dict) else tree
    if not isinstance(history, list) or not all(isinstance(line, dict) for line in history):
        raise damaged(path, 1, "an object with a list 'log_history'")
    for number, line in enumerate(history, 1):
        if "train_runtime" in line:  # the end's summary
            continue
        at = f"{path}: log_history {number}"
        step = step_of(line, Path(at), 0)
        values = {k: v for k, v in without_steps(line).items() if k != "epoch"}
        found.rows.append(Row(step, values))
    if isinstance(tree, dict) and type(tree.get("max_steps")) is int and tree["max_steps"] > 0:
        found.planned = tree["max_steps"]
    return {"trl"}


def _wandb(path: Path, found: Found) -> set[str]:
    rows, config = read_wandb(path)
    found.rows += rows
    found.settings |= flat(config)
    return {"wandb"}


def _arguments(path: Path, found: Found) -> set[str]:
    found.settings |= read_arguments(path)
    return {"trl"}


def _settings(path: Path, found: Found) -> set[str]:
    """A trainer's YAML or TOML; wandb puts each value under `value`."""
    text = "\n".join(line for _, line in text_lines(path))
    try:
        tree: Any = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        found.notes.append(f"{path}: could not be read as settings ({first_line(error)})")
        return set()
    if isinstance(tree, dict):
        told = {str(k).removesuffix(".value"): v for k, v in flat(tree).items()}
        wandb = {k.replace(".value.", ".", 1): v for k, v in told.items()}
        found.settings |= {k: v for k, v in wandb.items() if not k.startswith("_")}
    return set()


def _skyrl_log(path: Path, found: Found) -> set[str]:
    found.rows += console.skyrl_rows(path)
    found.notes.append(
        "SkyRL prints only four decimals, so small numbers are 0, and its learning rate is left out"
    )
    return {"skyrl"}


def _slime_log(path: Path, found: Found) -> set[str]:
    """slime counts from 0. An evaluation before the first rollout is rlzoo's step 0; other numbers
    are one more. Optimizer steps have a count of their own, several to a rollout."""
    trained, steps, rollouts = False, list[Row](), set[int]()
    for kind, row in console.slime_rows(path):
        trained |= kind in ("step", "rollout")
        if kind == "step":
            steps.append(row)
            continue
        if kind != "eval":
            rollouts.add(row.step)
        before = kind == "eval" and row.step == 0 and not trained
        found.rows.append(Row(0 if before else row.step + 1, row.values))
    each = max(1, round(len({r.step for r in steps}) / max(1, len(rollouts))))
    for number, rows in grouped(steps, lambda row: row.step // each).items():
        for name in dict.fromkeys(k for r in rows for k in r.values):
            values = [r.values[name] for r in rows if name in r.values]
            mean = values[0] if len(values) == 1 else sum(values) / len(values)
            found.rows.append(Row(number + 1, {name: mean}))
    if each > 1:
        found.notes.append(
            f"there are {each} optimizer steps per rollout; metrics are means over them"
        )
    return {"slime"}


def _trl_rollouts(path: Path, found: Found) -> set[str]:
    names = dict.fromkeys(
        m[1] for row in found.rows for k in row.values if (m := REWARD.fullmatch(k))
    )
    weights = found.settings.get("reward_weights")
    if not isinstance(weights, list) or len(weights) != len(names):
        weights = [1.0] * len(names)
    samples = parquet_samples(path, list(names), weights)
    # TRL writes the last responses again with each line of its log; a step without a reward has
    # sampled none.
    paid = {row.step for row in found.rows if {"reward", "train/reward"} & row.values.keys()}
    found.samples += [s for s in samples if s.step in paid or not paid]
    return {"trl"}


def _all(what: str, read: Callable[[Path], Iterable[Any]], *trainer: str) -> Reader:
    """A reader that keeps all that `read` yields as the rows, samples or tokens of a run."""

    def reader(path: Path, found: Found) -> set[str]:
        getattr(found, what).extend(read(path))
        return set(trainer)

    return reader


REWARD = re.compile(r"(?:train/)?rewards/([^/]+)/mean")
READERS: dict[str, Reader] = {
    "state": _state, "wandb": _wandb, "settings": _settings, "log of skyrl": _skyrl_log,
    "log of slime": _slime_log, "rollouts of trl": _trl_rollouts, "evaluated": lambda *_: set(),
    "arguments": _arguments, "lines": _all("rows", metric_rows),
    "table": _all("rows", table_rows, "csv"), "events": _all("rows", tensorboard_rows),
    "log of verl": _all("rows", console.verl_rows, "verl"),
    "rollouts of verl": _all("samples", verl_samples, "verl"),
    "rollouts of slime": _all("samples", slime_samples, "slime"),
    "rollouts of prime-rl": _all("tokens", prime_tokens, "prime-rl"),
    "training of slime": _all("tokens", slime_training, "slime"),
    "training of skyrl": _all("tokens", skyrl_tokens, "skyrl"),
    "mirror of miles": _all("tokens", miles_tokens, "slime"),
    "traces of prime-rl": _all("samples", prime_samples, "prime-rl"),
}  # fmt: skip
