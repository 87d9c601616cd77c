"""Supervised training with transformers' Trainer: one loop for `rlzoo model sft` and the three
kinds of `model reward`, which differ in their `Learner`.

No torch at module level, so that the commands report errors before importing it.
"""

import argparse
import hashlib
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, Stopped, UsageError
from rlzoo.format.text import folded, say
from rlzoo.runs.disk import read_mapping, sync, write_json
from rlzoo.runs.display import Silent
from rlzoo.train.interrupt import asked_to_stop
from rlzoo_lab.data.staged import staged
from rlzoo_lab.stats import t_interval, wilson
from rlzoo_lab.supervised.options import (
    LR_OF_SMALL,
    SMALL,
    STEPS_OF_SMALL,
    chat_args,
    check_arguments,
    find_model,
)
from rlzoo_lab.supervised.pairs import Reader
from rlzoo_zoo.data import hold_out

NOT_ASKED = ("out", "json", "command", "usual_lr")  # not part of a training

CHECKPOINTS, REPORT = "checkpoints", "report.json"
IGNORED = -100  # the label that cross-entropy leaves out
TokenIds = tuple[list[int], list[int]]  # (prompt, response), or (chosen, rejected)
Rows = Sequence[Any]


@dataclass
class Start:
    """The inputs of a training: the rows as they were read, the model's folder, and the device."""

    training: list[Any]
    held_out: list[Any]
    bad_rows: int
    folder: Path
    device: Any


@dataclass(frozen=True)
class Learner:
    """A model and how it learns from rows: token ids of one, how many of them count for the limit,
    a batch of them, and its loss. judged: the report on (training, held-out) rows. ready: what
    these become before the first step. losses: of each row, held out, to see whether it overfits.
    """

    model: Any
    tokenizer: Any
    encode: Callable[[Any], TokenIds]
    length: Callable[[TokenIds], int]
    collate: Callable[[list[Any]], dict[str, Any]]
    loss: Callable[[Any, dict[str, Any]], Any]
    judged: Callable[[Rows, Rows], dict[str, Any]]
    ready: Callable[[Rows, Rows], tuple[Rows, Rows]] = lambda *sides: sides
    losses: Callable[[Rows], list[float]] | None = None


@dataclass(frozen=True)
class Kind:
    """One kind of training: what it and a row are called, how rows are read, what learns from them,
    and what is shown of the report."""

    title: str
    noun: str
    read: Reader[Any]
    learner: Callable[[argparse.Namespace, Start], Learner]
    shown: Callable[[dict[str, Any]], Iterator[str]]


def start(arguments: argparse.Namespace, kind: Kind) -> Start:
    """Check the options, read the data and find the model before loading torch."""
    check_arguments(arguments)
    a = arguments
    names = {name: getattr(a, name) for name in kind.read.columns}
    data = kind.read(a.data, names, subset=a.subset, split=a.split, on_bad_row=a.on_bad_row)
    say(f"columns: {'; '.join(data.forms)}")
    sides = hold_out(data.rows, lambda row: row.prompt, a.test_fraction, a.seed)
    folder = find_model(a.model)

    from rlzoo.accel.device import pick_device

    return Start(*sides, data.bad, folder, pick_device(a.device))


def is_small(model: Any) -> bool:
    return sum(p.numel() for p in model.parameters()) < SMALL


def settle(arguments: argparse.Namespace, model: Any, rows: int) -> None:
    """Set the learning rate and the epochs, where not given, by the model's size."""
    small = is_small(model)
    if arguments.lr is None:
        arguments.lr = LR_OF_SMALL if small else arguments.usual_lr
    if arguments.epochs is None:
        passes = STEPS_OF_SMALL / math.ceil(rows / arguments.batch)
        arguments.epochs = max(1.0, passes) if small else 1.0


@contextmanager
def unfinished(arguments: argparse.Namespace, start: Start) -> Iterator[Path]:
    """The folder that becomes --out, with the files of an interrupted training run; raises
    UsageError where that was another training."""
    asked = {k: v for k, v in vars(arguments).items() if k not in NOT_ASKED}
    rows = repr((start.training, start.held_out)).encode()
    asked = {k: str(v) for k, v in asked.items()} | {"rows": hashlib.sha256(rows).hexdigest()}
    with staged(Path(arguments.out), "--out", keep=_began) as aside:
        file = aside / "command.json"
        before = read_mapping(file) if file.exists() else asked
        for name in sorted({*asked, *before}):
            if before.get(name) != asked.get(name):
                raise UsageError(
                    f"--out: {aside} contains an unfinished training run with a different {name} "
                    f"({before.get(name)} there, {asked.get(name)} now). Repeat the original "
                    "command to resume it, or remove the folder to start from scratch"
                )
        write_json(file, asked)
        try:
            yield aside
        except KeyboardInterrupt as stopped:
            stopped.add_note("repeat the command to resume")
            raise
        shutil.rmtree(aside / CHECKPOINTS, ignore_errors=True)
        file.unlink()


def _began(folder: Path) -> bool:
    """Whether an interrupted training has left anything to resume from."""
    return (folder / REPORT).exists() or any((folder / CHECKPOINTS).glob("checkpoint-*"))


def trained(arguments: argparse.Namespace, kind: Kind) -> dict[str, Any]:
    """The report of a training, also in OUT/report.json; if it had finished and was then
    interrupted, the saved report."""
    begun = start(arguments, kind)
    with unfinished(arguments, begun) as folder:
        file = folder / REPORT
        return read_mapping(file) if file.exists() else _train(arguments, begun, kind, folder)


def _train(arguments: argparse.Namespace, start: Start, kind: Kind, folder: Path) -> dict[str, Any]:
    """Train on the rows that fit, and write model, tokenizer and report into the folder; returns
    the report."""
    import torch

    from rlzoo_lab.supervised.reward_models import longest

    one, a = kind.learner(arguments, start), arguments
    most = longest(one.model, a.max_length) or math.inf
    sides: Any = [[ids for ids in map(one.encode, side) if one.length(ids) <= most]
                  for side in (start.training, start.held_out)]  # fmt: skip
    read = len(start.training) + len(start.held_out)
    if not all(sides):
        raise UsageError(f"--max-length: too few of {read} {kind.noun}s are short enough")
    rows, tests = map(len, sides)
    counts = {"trained": rows, "held_out": tests, "bad_rows": start.bad_rows,
              "too_long": read - rows - tests}  # fmt: skip
    settle(a, one.model, rows)
    one.model.to(start.device).eval()
    with torch.no_grad():
        sides = one.ready(*sides)
    watched = one.losses and partial(one.losses, sides[1])
    history = fit(one.model, sides[0], one.collate, one.loss, a, kind.title, folder, watched)
    report = {name: getattr(a, name) for name in ("model", "data", "seed", "epochs", "lr", "batch")}
    report["data"] = str(a.data)
    with torch.no_grad():
        report |= {f"{kind.noun}s": counts, **one.judged(*sides), "chat_args": chat_args(a)}
        if watched:
            report["overfits_after"] = overfits_after(history, watched())
    one.model.save_pretrained(folder)
    one.tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        sync(path)
    write_json(folder / REPORT, report)  # last: where it is, all is
    return report


def run(arguments: argparse.Namespace, kind: Kind) -> Result:
    """The result of a training for a verb."""
    with redirect_stdout(sys.stderr):  # transformers prints
        try:
            report = trained(arguments, kind)
        except RlzooError as error:  # the option here is a key elsewhere
            error.args = tuple(str(part).replace("model.chat=", "--chat ") for part in error.args)
            raise

    def view(_: Any) -> Iterator[Any]:
        rows = report[f"{kind.noun}s"]
        left = f", {rows['bad_rows']} bad rows" * bool(rows["bad_rows"])
        left += f", {rows['too_long']} too long" * bool(rows["too_long"])
        counted = f"trained on {rows['trained']} {kind.noun}s, {rows['held_out']} held out{left}"
        yield from map(folded, [counted, *kind.shown(report)])
        yield f"made {arguments.out}"

    return Result(report, view)


def accuracy(hits: float, n: int) -> dict[str, Any]:
    """The accuracy on held-out rows, for the report, and its 95 % interval."""
    return {"accuracy": hits / n, "accuracy_interval": list(wilson(hits, n))}


def accuracy_text(held: Mapping[str, Any], of: str = "") -> str:
    low, high = held["accuracy_interval"]
    return f"held-out {of}accuracy {held['accuracy']:.3f} [{low:.3f}, {high:.3f}]"


def no_better(report: Mapping[str, Any], chance: float = 0.5) -> Iterator[str]:
    """A warning if the held-out accuracy may be chance; a guess is correct with probability
    `chance`."""
    if report["held_out"]["accuracy_interval"][0] <= chance:
        yield f"the result may be due to chance ({chance:.2f}); try {what_to_try(report)}"


def overfits_after(history: Sequence[Mapping[str, Any]], last: Sequence[float]) -> float | None:
    """The epoch after which the held-out loss rose to `last` by more than chance, by a paired
    interval over the rows, while the training loss fell; None if there is none."""
    best = min(
        (line for line in history if "held_out" in line),
        key=lambda line: sum(line["held_out"]),
        default=None,
    )
    if best is None:
        return None
    rise = t_interval([b - a for a, b in zip(best["held_out"], last, strict=True)])
    losses = [line for line in history if "loss" in line]
    then = [line["loss"] for line in losses if line["epoch"] <= best["epoch"]] or [math.inf]
    fell = bool(losses) and losses[-1]["loss"] < then[-1]
    return best["epoch"] if rise and rise.low > 0 and fell else None


def what_to_try(report: Mapping[str, Any]) -> str:
    now = f"({report['lr']:g} now) or --epochs ({report['epochs']:g} now)"
    return f"more rows or another --lr {now}"


def fit(
    model: Any,
    rows: Sequence[Any],
    collate: Callable[[list[Any]], dict[str, Any]],
    loss: Callable[[Any, dict[str, Any]], Any],
    arguments: argparse.Namespace,
    title: str,
    folder: Path,
    watched: Callable[[], list[float]] | None = None,
) -> list[dict[str, Any]]:
    """Train `model` in place: AdamW, linear decay after a short warm-up. Progress on stderr.
    Returns the Trainer's log, in which each of several epochs has `held_out`: what `watched`
    returns then.

    After each tenth of the steps, and at Ctrl-C, `folder` gets a checkpoint; if it has one,
    training resumes from it. A model that is not small gets fewer where they would take more than
    a tenth of the time.
    """
    import torch
    from transformers import PrinterCallback, Trainer, TrainerCallback

    from rlzoo.accel.device import pick_device

    class WithLoss(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            value = loss(model, inputs)
            return (value, None) if return_outputs else value

    class Progress(TrainerCallback):
        began = due = 0.0  # of the last checkpoint, and of the next one

        def on_log(self, args, state, control, logs=None, **rest):
            if logs and "loss" in logs:
                where = f"step {state.global_step:4d} of {state.max_steps}"
                say(f"{title}: {where}  loss {float(logs['loss']):.4f}")

        def on_step_end(self, args, state, control, **rest):
            self.began = time.monotonic()
            if asked.number:
                control.should_save = control.should_training_stop = True
            elif not is_small(model) and self.began < self.due:
                control.should_save = False

        def on_epoch_end(self, args, state, control, **rest):
            if watched and arguments.epochs > 1:
                with torch.no_grad():
                    line = {"epoch": state.epoch, "held_out": watched()}
                state.log_history.append(line)

        def on_save(self, args, state, control, **rest):
            _keep(Path(args.output_dir), state.global_step)
            now = time.monotonic()
            self.due = now + 9 * (now - self.began)

    settings = _settings(arguments, len(rows), folder / CHECKPOINTS)
    trainer = WithLoss(
        model=model,
        args=settings,
        train_dataset=list(rows),
        data_collator=collate,
        callbacks=[Progress()],
    )
    trainer.remove_callback(PrinterCallback)
    with asked_to_stop(Silent().stopping) as asked:
        trainer.train(resume_from_checkpoint=_newest(folder / CHECKPOINTS))
    if asked.number:
        raise Stopped(f"stopped after step {trainer.state.global_step}", asked.number)
    model.to(pick_device(arguments.device)).eval()
    return trainer.state.log_history


def _settings(arguments: argparse.Namespace, rows: int, checkpoints: Path) -> Any:
    """Transformers' arguments of a training."""
    from transformers import TrainingArguments

    from rlzoo.accel.device import pick_device

    steps = max(1, round(arguments.epochs * math.ceil(rows / arguments.batch)))
    device = pick_device(arguments.device).type
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=arguments.epochs,
        learning_rate=arguments.lr,
        lr_scheduler_type="linear",
        warmup_steps=0.05 if steps >= 20 else 0,  # the first step of a warm-up has a rate of 0
        weight_decay=0.0,
        per_device_train_batch_size=arguments.batch,
        logging_steps=max(1, steps // 10),
        seed=arguments.seed,
        use_cpu=device == "cpu",
        bf16=device == "cuda",
        save_strategy="steps",
        save_steps=max(1, steps // 10),
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=device == "cuda",
    )


def _keep(checkpoints: Path, step: int) -> None:
    """The checkpoint that was just written is whole: mark it so, then remove the others."""
    from rlzoo.train.checkpoint import write_manifest

    newest = checkpoints / f"checkpoint-{step}"
    for path in newest.iterdir():
        sync(path)
    write_manifest(newest)
    for path in checkpoints.iterdir():
        if path != newest:
            shutil.rmtree(path)


def _newest(checkpoints: Path) -> str | None:
    """The whole checkpoint, if there is one."""
    from rlzoo.train.checkpoint import damage

    whole = [str(path) for path in checkpoints.glob("checkpoint-*") if not damage(path)]
    if whole:
        say(f"resuming from {Path(whole[-1]).name.replace('-', ' of step ')}")
    return whole[-1] if whole else None
