"""Finds the files of a run at a path, detects their formats, and reads them."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rlzoo.errors import UsageError, first_line
from rlzoo.recipe.files import parse_yaml
from rlzoo.runs.disk import refuse_devices
from rlzoo_lab.imports import console
from rlzoo_lab.imports.binary import WANDB, read_wandb, tensorboard_rows
from rlzoo_lab.imports.found import Found, flat, grouped
from rlzoo_lab.imports.pickled import read_arguments
from rlzoo_lab.imports.rollouts import parquet_samples, prime_samples, slime_samples, verl_samples
from rlzoo_lab.imports.tabular import begun_again, metric_rows, rows_of, table_rows
from rlzoo_lab.imports.tokens import miles_tokens, prime_tokens, skyrl_tokens, slime_training
from rlzoo_lab.strict import STEPS, damaged, read_json_file, text_lines

Reader = Callable[[Path, Found], set[str]]  # returns whose format it is
FORMATS = ("trl", "verl", "prime-rl", "skyrl", "slime", "wandb", "csv")
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


def read_source(place: Path, step: str = "", run: str | None = None) -> tuple[Found, set[str]]:
    """(what a file or folder holds, the formats of its files). Raises DataError, which names the
    damaged file and its line; UsageError if no file is recognized, or of several runs none is
    chosen. step: the name of steps, by default one of STEPS; run: a run's name."""
    if not place.exists():
        raise UsageError(f"SOURCE: there is no file or folder {place}", kind="not-found")
    refuse_devices(place)
    paths = [place] if place.is_file() else _files(place)
    kinds = {path: kind for path in paths if (kind := kind_of(path, step))}
    if place.is_file() and not kinds:
        packed = place.suffix in (".gz", ".zst", ".bz2", ".xz", ".zip")
        raise damaged(place, None if packed else 1, EXPECTED + ", not compressed" * packed)
    kinds, chosen = _of_one_run(place, _latest_state(kinds), run)
    found, formats = Found(files=kinds, step=step), set[str]()
    order = sorted(kinds, key=lambda p: (kinds[p].startswith("rollouts"), _natural(p)))
    for path in order:
        formats |= READERS[kinds[path]](path, found)
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
    if not found.rows and not found.samples and not found.tokens:
        raise UsageError(f"SOURCE: {place} has no numbers in {EXPECTED}", kind="not-found")
    return found, formats


def _run(place: Path, runs: list[str], wanted: str | None, parts: bool) -> str:
    """The run that --run names, or a part of its name, or ALL if they may be parts of one. Raises
    UsageError if no run matches."""
    names = ", ".join(runs[:12]) + (f" and {len(runs) - 12} more" if len(runs) > 12 else "")
    if wanted is None:
        join = f", or join the parts of one run with --run '{ALL}'" if parts else ""
        raise UsageError(f"SOURCE: {place} has {len(runs)} runs ({names}); choose one with --run "
                         f"NAME{join}")  # fmt: skip
    if wanted == ALL and parts:
        return ALL
    hits = [r for r in runs if r == wanted] or [r for r in runs if wanted in r]
    if len(hits) != 1:
        raise UsageError(f"--run: {wanted!r} matches {len(hits)} runs, not one (available: "
                         f"{names or 'none'})")  # fmt: skip
    return hits[0]


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


def kind_of(path: Path, step: str = "") -> str:
    """A file's kind from its content; empty if no trainer writes such files. Raises DataError if
    its beginning is damaged. step: the name of steps, where it is given."""
    with open(path, "rb") as file:
        start = file.read(2**16)
    name, suffix = path.name, path.suffix
    parquet = {"completions_": "rollouts of trl", "rollout_eval_": "evaluated",
               "rollout_": "mirror of miles"}  # fmt: skip
    slime = suffix == ".pt" and b"rollout_id" in start
    trained = b"\0format_version" in start or b"\0rollout_data" in start
    settings = re.fullmatch(r"(?:training_)?(?:args|arguments|hparams)\.json", name)
    sniffed: tuple[tuple[Any, str], ...] = (  # the first that holds
        (start[:4] == WANDB or suffix == ".wandb", "wandb"),
        (start[:4] == b"PAR1" or suffix == ".parquet",  # others hold prompts
         next((kind for head, kind in parquet.items() if name.startswith(head)), "")),
        ("tfevents" in name, "events"),
        (name == "training_args.bin", "arguments"),
        (slime and trained, "training of slime"),
        (slime and b"samples" in start, "evaluated" if "eval_" in name else "rollouts of slime"),
        (suffix == ".pkl", "training of skyrl" if b"TrainingInputBatch" in start else ""),
        (suffix in OTHER or name in NOT_METRICS or b"\0" in start[:4096], ""),
        (suffix in (".yaml", ".yml", ".toml") or settings, "settings"),
        (name == "trainer_state.json", "state"),
        (suffix == ".json" and b'"log_history"' in start, "state"),
        (suffix == ".json" and start.lstrip(BOM)[:1] == b"[" and b'"step"' in start, "state"),
        (suffix in (".csv", ".tsv"), "table"),
    )  # fmt: skip
    for holds, kind in sniffed:
        if holds:
            return kind
    if suffix in (".jsonl", ".ndjson"):
        return _kind_of_lines(path, step)
    trainer = console.trainer_of(path) if suffix in LOGS else ""
    return f"log of {trainer}" if trainer else ""


def _kind_of_lines(path: Path, step: str) -> str:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = next(filter(str.strip, islice(file, 1000)), "")  # a line of tokens: megabytes
    try:
        line = json.loads(first)
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
    steps = [step] if step else STEPS
    if isinstance(values, dict) and any(k in line or k in values for k in steps):
        return "lines"
    return ""


def _latest_state(kinds: dict[Path, str]) -> dict[Path, str]:
    """Without the states of a run's earlier checkpoints, and the arguments next to them: the last
    has all that they have."""
    states = [p for p, kind in kinds.items() if kind == "state" and p.name == "trainer_state.json"]
    if not states:
        return kinds
    keep = {of_run[-1] for of_run in _by_run(states).values()}
    arguments = [p for p, kind in kinds.items() if kind == "arguments"]
    near = {p for p in arguments if p.parent in {k.parent for k in keep}} or {*arguments[-1:]}
    left = {*states, *arguments} - keep - near
    return {p: kind for p, kind in kinds.items() if p not in left}


def _by_run(states: list[Path]) -> dict[Path, list[Path]]:
    """The folder of a run -> its trainer_state.json, the latest last."""
    folders = {p: p.parent.parent if p.parent.name.startswith("checkpoint-") else p.parent
               for p in states}  # fmt: skip
    roots = {*folders.values()}
    runs = grouped(states, lambda p: next((up for up in reversed(folders[p].parents)
                                           if up in roots), folders[p]))  # fmt: skip
    return {root: sorted(files, key=lambda p: (p.parent == root, _natural(p)))
            for root, files in runs.items()}  # fmt: skip


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
         "table": ("events", "log"), "events": ("log",),
         "rollouts of slime": ("mirror",)}  # fmt: skip


def _state(path: Path, found: Found) -> set[str]:
    """transformers' trainer_state.json, or its log_history as a list."""
    tree = read_json_file(path)
    history = tree.get("log_history") if isinstance(tree, dict) else tree
    if not isinstance(history, list) or not all(isinstance(line, dict) for line in history):
        raise damaged(path, 1, "an object with a list 'log_history'")
    whose = {"trl"} if isinstance(tree, dict) or any("epoch" in line for line in history) else set()
    lines = [(n, {k: v for k, v in line.items() if k != "epoch"})
             for n, line in enumerate(history, 1) if "train_runtime" not in line]  # fmt: skip
    found.rows += rows_of(Path(f"{path}: log_history"), lines, found)
    if isinstance(tree, dict) and type(tree.get("max_steps")) is int and tree["max_steps"] > 0:
        found.planned = tree["max_steps"]
    return whose


def _wandb(path: Path, found: Found) -> set[str]:
    lines, config = read_wandb(path)
    found.rows += rows_of(path, lines, found)
    found.settings |= flat(config)
    return {"wandb"}


def _wandb_settings(path: Path, found: Found) -> set[str]:
    found.settings |= flat(read_wandb(path)[1])
    return set()


def _arguments(path: Path, found: Found) -> set[str]:
    found.settings |= read_arguments(path)
    return {"trl"}


def _settings(path: Path, found: Found) -> set[str]:
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
        return set()
    if isinstance(tree, dict) and tree:
        told = {str(k).removesuffix(".value"): float(v) if RATE.fullmatch(str(v)) else v
                for k, v in flat(tree).items()}  # fmt: skip
        wandb = {k.replace(".value.", ".", 1): v for k, v in told.items()}
        found.settings |= {k: v for k, v in wandb.items() if not k.startswith("_")}
    else:
        found.notes.append(f"{path}: has no settings (KEY: VALUE, or a list of KEY=VALUE)")
    return set()


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
    "state": _state, "wandb": _wandb, "settings": _settings, "arguments": _arguments,
    "settings of wandb": _wandb_settings, "log of verl": console.verl_rows,
    "log of skyrl": console.skyrl_rows, "log of slime": console.slime_rows,
    "rollouts of trl": _trl_rollouts, "evaluated": lambda *_: set(),
    "lines": metric_rows, "table": table_rows, "events": _all("rows", tensorboard_rows),
    "rollouts of verl": _all("samples", verl_samples, "verl"),
    "rollouts of slime": _all("samples", slime_samples, "slime"),
    "rollouts of prime-rl": _all("tokens", prime_tokens, "prime-rl"),
    "training of slime": _all("tokens", slime_training, "slime"),
    "training of skyrl": _all("tokens", skyrl_tokens, "skyrl"),
    "mirror of miles": _all("tokens", miles_tokens, "slime"),
    "traces of prime-rl": _all("samples", prime_samples, "prime-rl"),
}  # fmt: skip
