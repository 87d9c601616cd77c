"""Finds the files of a run at a path, detects their formats, and reads them."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from rlzoo.errors import UsageError, first_line
from rlzoo.recipe.files import parse_yaml
from rlzoo.runs.disk import refuse_devices
from rlzoo_lab.data.strict import STEPS, UTF16, damaged, read_json_file, text_lines
from rlzoo_lab.imports import console
from rlzoo_lab.imports.binary import WANDB, read_wandb, tensorboard_rows
from rlzoo_lab.imports.found import Found, Row, Sample, flat, grouped, the_one
from rlzoo_lab.imports.pickled import read_arguments
from rlzoo_lab.imports.rollouts import parquet_samples, prime_samples, slime_samples, verl_samples
from rlzoo_lab.imports.tabular import begun_again, metric_rows, rows_of, table_rows

FORMATS = ("trl", "verl", "openrlhf", "prime-rl", "skyrl", "slime", "wandb", "csv")
ALL = "*"  # of --run
DEPTH, MOST = 8, 20_000  # folders below the one given; files in it
BOM = b"\xef\xbb\xbf \t\r\n"
RATE = re.compile(r"[-+]?\d+e[-+]?\d+", re.IGNORECASE)  # a text in YAML 1.1
LOGS = (".log", ".txt", ".out", ".err", "")
# Files of weights and the like, which are not looked into.
OTHER = {".safetensors", ".pt", ".pth", ".bin", ".py", ".md", ".html", ".png", ".svg", ".model"}
NOT_METRICS = {"tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json",
               "vocab.json", "special_tokens_map.json"}  # fmt: skip
EXPECTED = (
    "metrics of a trainer: trainer_state.json, JSON lines or CSV with a step (--step NAME), a "
    "console log of verl, slime or SkyRL, TensorBoard events, or a .wandb file"
)


def read_source(place: Path, step: str = "", run: str | None = None) -> Found:
    """The contents of a source. Raises DataError, which names the damaged file and its line;
    UsageError if no file is recognized, or of several runs none is chosen. step: the name of
    steps, by default one of STEPS; run: a run's name."""
    if not place.exists():
        raise UsageError(f"SOURCE: there is no file or folder {place}", kind="not-found")
    refuse_devices(place)
    paths = [place] if place.is_file() else _files(place)
    kinds = {path: kind for path in paths if (kind := kind_of(path, step))}
    if place.is_file() and not kinds:
        packed = place.suffix in (".gz", ".zst", ".bz2", ".xz", ".zip")
        wide = Look(place, step).start[:2] in UTF16
        form = ", not compressed" * packed + ", in UTF-8, not UTF-16" * wide
        raise damaged(place, None if packed else 1, EXPECTED + form)
    kinds, chosen = _of_one_run(place, _latest_state(kinds), run)
    found = Found(files=kinds, step=step)
    order = sorted(kinds, key=lambda p: (kinds[p].startswith("rollouts"), _natural(p)))
    for path in order:
        reader = BY_KIND[kinds[path]]
        for part in reader.read(path, found):
            if isinstance(part, Row):
                found.rows.append(part)
            else:
                found.samples.append(part)
        found.formats |= {reader.trainer} - {""}
    parts = not any(row.run for row in found.rows)
    found.rows = begun_again(found.rows) if parts else found.rows
    runs = [*dict.fromkeys(row.run for row in found.rows if row.run)]
    if len(runs) > 1 or (run is not None and not chosen):
        one = _run(place, runs, run, parts)
        found.rows = [row for row in found.rows if row.run in ("", one) or one == ALL]
    found.rows = [row for row in found.rows if row.values]
    if found.placed:
        found.notes.append(
            f"{found.placed} lines have no {' or '.join(sorted(found.stepped))}; they are at the "
            "step of the next line that has one"
        )
    if unread := sum(kind == "evaluated" for kind in kinds.values()):
        found.notes.append(f"responses of evaluations are not read ({unread} files)")
    if not found.rows and not found.samples:
        why = f" ({found.notes[0]})" if found.notes else ""
        raise UsageError(f"SOURCE: {place} has no numbers in {EXPECTED}{why}", kind="not-found")
    return found


def _run(place: Path, runs: list[str], wanted: str | None, parts: bool) -> str:
    """The run that --run names, or a part of its name, or ALL if they may be parts of one. Raises
    UsageError if no run matches."""
    if wanted is None:
        join = f", or join the parts of one run with --run '{ALL}'" if parts else ""
        names = ", ".join(runs[:12]) + (f" and {len(runs) - 12} more" if len(runs) > 12 else "")
        raise UsageError(f"SOURCE: {place} has {len(runs)} runs ({names}); choose one with --run "
                         f"NAME{join}")  # fmt: skip
    if wanted == ALL and parts:
        return ALL
    return the_one("--run", wanted, runs, [run for run in runs if run == wanted], "runs")


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


class Look:
    """A file before it is read: its name, its first 64 KiB, and its first line as JSON."""

    def __init__(self, path: Path, step: str):
        self.path, self.name, self.suffix = path, path.name, path.suffix
        self.steps = [step] if step else STEPS
        with open(path, "rb") as file:
            self.start = file.read(2**16)
        self.parquet = self.start[:4] == b"PAR1" or self.suffix == ".parquet"
        self.slime = self.suffix == ".pt" and b"rollout_id" in self.start
        self.lines = self.suffix in (".jsonl", ".ndjson")

    @cached_property
    def line(self) -> dict[str, Any]:
        """The first line of JSON lines, empty of any other file. Raises DataError."""
        if not self.lines:
            return {}
        with open(self.path, encoding="utf-8-sig", errors="replace") as file:
            first = next(filter(str.strip, islice(file, 1000)), "")  # one of tokens: megabytes
        try:
            found = json.loads(first)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise damaged(self.path, 1, "a JSON object")
        return found

    @cached_property
    def log(self) -> str:
        """The trainer whose console output the file is."""
        return console.trainer_of(self.path) if self.suffix in LOGS else ""


def kind_of(path: Path, step: str = "") -> str:
    """A file's kind, by its content; empty if no trainer writes such files. Raises DataError if
    its beginning is damaged. step: the name of steps, where it is given."""
    look = Look(path, step)
    return next((reader.kind for reader in READERS if reader.sniff(look)), "")


def _latest_state(kinds: dict[Path, str]) -> dict[Path, str]:
    """Without the states of a run's earlier checkpoints, and the arguments next to them: the last
    has all that they have."""
    states = [p for p, kind in kinds.items() if kind == "state" and p.name == "trainer_state.json"]
    if not states:
        return kinds
    folders = {p: p.parents[p.parent.name.startswith("checkpoint-")] for p in states}
    roots = {*folders.values()}
    runs = grouped(states, lambda p: next((up for up in reversed(folders[p].parents)
                                           if up in roots), folders[p]))  # fmt: skip
    keep = {([p for p in files if p.parent == root] or sorted(files, key=_natural))[-1]
            for root, files in runs.items()}  # fmt: skip
    arguments = [p for p, kind in kinds.items() if kind == "arguments"]
    near = {p for p in arguments if p.parent in {k.parent for k in keep}} or {*arguments[-1:]}
    left = {*states, *arguments} - keep - near
    return {p: kind for p, kind in kinds.items() if p not in left}


def _of_one_run(
    place: Path, kinds: dict[Path, str], wanted: str | None
) -> tuple[dict[Path, str], bool]:
    """(files without those that repeat what a more exact one has, whether `wanted` chose between
    files). Raises UsageError if there are several runs and none is chosen."""
    wandb = [p for p, kind in kinds.items() if kind == "wandb"]
    for exact, rest in EXACT.items():
        if exact in kinds.values():
            kinds = {p: kind for p, kind in kinds.items() if kind.split(" of ")[0] not in rest}
    if wandb and wandb[0] not in kinds and len({p.stem for p in wandb}) == 1:
        kinds |= dict.fromkeys(wandb, "settings of wandb")
    chosen = False
    for kind in ("state", "wandb", "table", "lines", "events", "log"):
        same = [p for p, k in kinds.items() if k.split(" of ")[0] == kind]
        runs = grouped(same, {p: _run_of(p, kind) for p in same}.__getitem__)
        if len(runs) < 2:
            continue
        names = {str(files[0].relative_to(place)): files for files in runs.values()}
        keep = names.get(_run(place, list(names), wanted, parts=True), same)
        away = {p.parent for p in same if p not in keep} - {up for p in keep for up in p.parents}
        kinds = {p: k for p, k in kinds.items()
                 if p in keep or (p not in same and away.isdisjoint(p.parents))}  # fmt: skip
        chosen = True
    return kinds, chosen


def _run_of(path: Path, kind: str) -> Any:
    """Equal for files of one run: prime-rl's trainer and orchestrator write metrics.jsonl each, a
    run that was resumed has several files of events in its folder, and several of wandb with one
    id."""
    if kind == "lines" and path.name == "metrics.jsonl":
        return path.parent.parent if path.parent.name in ("trainer", "orchestrator") else path
    return path.parent if kind == "events" else path.stem if kind == "wandb" else path


# A kind of file -> kinds that repeat its metrics with fewer digits, or those of another part.
EXACT = {"state": ("events", "log", "lines", "table", "wandb"),
         "wandb": ("events", "log"), "lines": ("events", "log"),
         "table": ("events", "log"), "events": ("log",)}  # fmt: skip


def _state(path: Path, found: Found) -> Iterator[Row]:
    """transformers' trainer_state.json, or its log_history as a list."""
    tree = read_json_file(path)
    history = tree.get("log_history") if isinstance(tree, dict) else tree
    if not isinstance(history, list) or not all(isinstance(line, dict) for line in history):
        raise damaged(path, 1, "an object with a list 'log_history'")
    if isinstance(tree, dict) or any("epoch" in line for line in history):
        found.formats.add("trl")
    lines = [(n, {k: v for k, v in line.items() if k != "epoch"})
             for n, line in enumerate(history, 1)]  # fmt: skip
    if isinstance(tree, dict) and type(tree.get("max_steps")) is int and tree["max_steps"] > 0:
        found.planned = tree["max_steps"]
    return rows_of(Path(f"{path}: log_history"), lines, found)


def _wandb(path: Path, found: Found) -> Iterator[Row]:
    lines, config = read_wandb(path)
    found.settings |= flat(config)
    return rows_of(path, lines, found)


def _wandb_settings(path: Path, found: Found) -> Iterable[Row]:
    found.settings |= flat(read_wandb(path)[1])
    return ()


def _arguments(path: Path, found: Found) -> Iterable[Row]:
    found.settings |= read_arguments(path)
    return ()


def _settings(path: Path, found: Found) -> Iterable[Row]:
    """A trainer's YAML, JSON or TOML. wandb puts each value under `value`; Hydra's overrides are a
    list of KEY=VALUE."""
    text = "\n".join(line for _, line in text_lines(path))
    parse = partial(parse_yaml, base60=True)
    try:
        tree: Any = tomllib.loads(text) if path.suffix == ".toml" else parse(text)
        if isinstance(tree, list):
            words = [w.lstrip("+").partition("=") for w in tree if isinstance(w, str) and "=" in w]
            tree = {key: parse(value) if value else None for key, _, value in words}
    except (RecursionError, ValueError) as error:
        found.notes.append(f"{path}: could not be read as settings ({first_line(error)})")
        return ()
    if isinstance(tree, dict) and tree:
        told = {str(k).removesuffix(".value"): float(v) if RATE.fullmatch(str(v)) else v
                for k, v in flat(tree).items()}  # fmt: skip
        wandb = {k.replace(".value.", ".", 1): v for k, v in told.items()}
        found.settings |= {k: v for k, v in wandb.items() if not k.startswith("_")}
    else:
        found.notes.append(f"{path}: has no settings (KEY: VALUE, or a list of KEY=VALUE)")
    return ()


def _trl_rollouts(path: Path, found: Found) -> list[Sample]:
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
    return [s for s in samples if s.step in paid or not paid]


REWARD = re.compile(r"(?:train/)?rewards/([^/]+)/mean")


@dataclass(frozen=True)
class Reader:
    """A kind of file that a trainer writes.

    kind: its name in provenance.json; empty: a file of something else. sniff: whether a file is of
    this kind. read: its rows or samples; what else it holds goes into the second argument. trainer:
    whose the file is, if only one trainer writes it.
    """

    kind: str
    sniff: Callable[[Look], Any]
    read: Callable[[Path, Found], Iterable[Row | Sample]] = lambda *_: ()
    trainer: str = ""


READERS = (  # the first whose `sniff` holds
    Reader("wandb", lambda f: f.start[:4] == WANDB or f.suffix == ".wandb", _wandb, "wandb"),
    Reader("rollouts of trl", lambda f: f.parquet and f.name.startswith("completions_"),
           _trl_rollouts, "trl"),
    Reader("", lambda f: f.parquet),  # prompts, tokens
    Reader("events", lambda f: "tfevents" in f.name, tensorboard_rows),
    Reader("arguments", lambda f: f.name == "training_args.bin", _arguments, "trl"),
    Reader("", lambda f: f.slime and (b"\0format_version" in f.start
           or b"\0rollout_data" in f.start)),  # tokens
    Reader("evaluated", lambda f: f.slime and "eval_" in f.name and b"samples" in f.start),
    Reader("rollouts of slime", lambda f: f.slime and b"samples" in f.start, slime_samples,
           "slime"),
    Reader("", lambda f: f.suffix in OTHER or f.name in NOT_METRICS or b"\0" in f.start[:4096]),
    Reader("settings", lambda f: f.suffix in (".yaml", ".yml", ".toml")
           or re.fullmatch(r"(?:training_)?(?:args|arguments|hparams)\.json", f.name), _settings),
    Reader("state", lambda f: f.name == "trainer_state.json" or (f.suffix == ".json" and (
           b'"log_history"' in f.start
           or (f.start.lstrip(BOM)[:1] == b"[" and any(f'"{s}"'.encode() in f.start
                                                      for s in f.steps)))), _state),
    Reader("table", lambda f: f.suffix in (".csv", ".tsv"), table_rows, "csv"),
    Reader("evaluated", lambda f: {"input", "output", "reward"} <= f.line.keys()),
    Reader("rollouts of verl", lambda f: {"input", "output"} <= f.line.keys(),
           verl_samples, "verl"),
    Reader("traces of prime-rl", lambda f: {"traces", "task"} <= f.line.keys()
           and f.path.parts[-3:-1] == ("train", "effective"), prime_samples, "prime-rl"),
    Reader("", lambda f: {"traces", "task"} <= f.line.keys()),  # of an evaluation
    Reader("", lambda f: {"token_ids", "loss_mask"} <= f.line.keys()),  # prime-rl's export
    Reader("lines", lambda f: any(k in f.line or k in f.line.get("data", f.line)
           for k in f.steps) and isinstance(f.line.get("data", f.line), dict), metric_rows),
    Reader("log of verl", lambda f: f.log == "verl", console.verl_rows, "verl"),
    Reader("log of skyrl", lambda f: f.log == "skyrl", console.skyrl_rows, "skyrl"),
    Reader("log of slime", lambda f: f.log == "slime", console.slime_rows, "slime"),
)  # fmt: skip
BY_KIND = {
    reader.kind: reader
    for reader in (*READERS, Reader("settings of wandb", lambda _: False, _wandb_settings))
}
