"""The loop: training steps until the budget ends, with the files and output along the way."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor

from rlzoo.errors import RlzooError, RunError, Stopped, Unfinished, disk_is_full
from rlzoo.format.numbers import count
from rlzoo.lm.build import build_world
from rlzoo.mdp.batch import Batch
from rlzoo.plugin.border import border
from rlzoo.plugin.installed import installed
from rlzoo.plugin.protocols import Measure
from rlzoo.recipe.keys import Train
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.evaluation import evaluate, gain
from rlzoo.runs.disk import sync, write_json
from rlzoo.runs.display import Silent
from rlzoo.runs.evaluations import forget_evaluations, read_evaluation, write_evaluation
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import is_evaluation
from rlzoo.runs.provenance import settle
from rlzoo.step.delayed import FILE
from rlzoo.step.trainer import Trainer
from rlzoo.train import stopping
from rlzoo.train.checkpoint import State, load_checkpoint, prune, save_checkpoint, tensors_of
from rlzoo.train.interrupt import asked_to_stop
from rlzoo.train.record import (
    Summary,
    keep_best,
    mend_best,
    save_batch,
    save_model,
    summarise,
    write_samples,
)
from rlzoo.waiting import StoppedWaiting

LINES = ("metrics.jsonl", "samples.jsonl")
SMALL = 5_000_000  # bytes of a batch that takes so little space that each run may keep its last one
IN_VAIN = 20  # steps in a row without any update, which end a run


class Loop:
    """A run in a folder, from its beginning or from its last checkpoint to its end.

    All processes do the same with the same batch, and only the engine's `first` writes files.
    """

    def __init__(self, plan: Plan, folder: RunFolder, display: Silent):
        self.began = time.perf_counter()  # earlier by the time before an interruption
        self.plan, self.config = plan, plan.recipe.config
        self.folder, self.display = folder, display
        display.start(plan, folder)
        display.phase("loading the model")
        self.world = build_world(plan)
        self.engine = self.world.engine
        size, threads = self.world.policy.model.num_parameters(), torch.get_num_threads()
        display.ready(f"{count(size)} parameters, {threads} CPU thread{'s' * (threads > 1)}")
        self.trainer = Trainer(self.world)
        self.skipped, self.in_vain = 0, 0  # updates; steps in a row without any
        self.saved: int | None = None  # the step of the last checkpoint
        self.batch: Batch | None = None  # of the last step, to save with the next checkpoint
        state = None if folder.new else self._restore()
        self.identity = ""  # of the run, where it is written
        self.loggers, self.measures = {}, list[Measure]()
        if self.engine.first:
            self.identity, notes = settle(folder, plan, state, self.world.weights)
            for text in notes:
                display.note(text)
            self.loggers = {bound.name: bound({"path": folder.path}) for bound in plan.loggers}
            self.measures = [point.load() for point in installed("rlzoo.measures")]
        self.told_to_stop: str | None = None  # by a logger, and why
        self.evaluations: list[dict[str, float]] = []
        self.last: dict[str, float] | None = None
        self.flat = stopping.Flat(plan.critic)
        if not folder.new:
            self._read_lines(self.trainer.steps if state else -1)

    def run(self) -> Summary:
        """Train to the end of the budget; returns the summary, which is also in summary.json.

        On Ctrl-C or a similar signal, it ends with a checkpoint and raises Stopped.
        """
        self._show_notes()
        with asked_to_stop(self.display.stopping, in_waits=self.engine.alone) as stop:
            steps, every = self.trainer.steps, self.config.eval.every
            last = self.evaluations[-1]["step"] if self.evaluations else None
            if last is None or (last != steps and self._is_due(every)):
                self.evaluate()
            while not self._reason() and (progress := self.progress()) < 1:
                if number := max(self.engine.gather(stop.number)):
                    self.save()
                    raise Stopped(f"stopped after step {self.trainer.steps}", number)
                self.step(progress)
                # A stop does not wait for an evaluation: resuming makes it.
                if self._is_due(every) and not max(self.engine.gather(stop.number)):
                    self.evaluate()
                if self._is_due(self.config.checkpoint.every):
                    self.save()
            self.save()
        if self.evaluations[-1]["step"] != self.trainer.steps:
            self.evaluate()
        return self._finish()

    def step(self, progress: float) -> None:
        """One training step, recorded and shown."""
        self.display.phase("sampling")
        with self._stoppable():
            experience = self.trainer.sample()
        batch = experience.batch
        self.display.phase("updating")
        metrics = self.trainer.update(experience, progress)
        for measure in self.measures:
            metrics |= measure(self.plan, batch.cpu())
        step, run = self.trainer.steps, self.config.run
        self.skipped += int(metrics["train/skipped"])
        taken = any(f"{name}/grad_norm" in metrics for name in self.trainer.optimizers)
        self.in_vain = 0 if taken else self.in_vain + 1
        tokens, seconds = self.engine.meter.tokens, time.perf_counter() - self.began
        self.last = {"step": step, **metrics, "perf/tokens": tokens, "perf/seconds": seconds}
        if self.engine.first:
            self.folder.append("metrics.jsonl", self.last)
            write_samples(self.folder, batch, step, run.samples)
        self._tell_loggers("log", self.last)
        if run.save_batches:
            save_batch(self.folder, self.world, batch, step, run.save_batches)
        elif run.save_batches is None:
            size = sum(x.nbytes for x in batch.values() if isinstance(x, Tensor))
            self.batch = batch if size < SMALL else None
        self.display.step(self.last, self.progress())
        self._show_notes()
        if metrics["train/skipped"]:
            self.display.note(f"step {step}: loss or gradient was not finite; update skipped")
        if text := self.flat.hear(self.last, self.evaluations):
            self.display.note(f"step {step}: {text}; see `rlzoo doctor {self.folder.path}`")
        if self.in_vain >= IN_VAIN:
            self.save()
            raise self._in_vain()

    def evaluate(self) -> None:
        """Evaluate on held-out prompts, and keep the best policy so far if required."""
        self.display.phase(f"evaluating {self.config.eval.samples:,} held-out prompts")
        with self._stoppable():
            metrics, by_prompt = evaluate(self.world, self.config.eval.samples)
        line = {"step": self.trainer.steps, **metrics}
        if self.engine.first:
            write_evaluation(self.folder, self.trainer.steps, by_prompt)
            if self.evaluations:
                line |= gain(read_evaluation(self.folder.path, 0), by_prompt)
        self.evaluations.append(line)
        if self.config.checkpoint.best and stopping.best(self.evaluations) is line:
            keep_best(self.world, self.folder.path / "best", line)
        if self.engine.first:  # last: an evaluation that is written down is not made again
            self.folder.append("metrics.jsonl", line)
        self._tell_loggers("log", line)
        self.display.evaluation(line)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """In this context, a signal, or others that do not answer, may end the wait of a component:
        what was sampled is dropped, and the checkpoint is that of the last whole step."""
        tokens = self.engine.meter.tokens
        try:
            yield
        except (StoppedWaiting, Unfinished) as stop:
            # Several processes save together.
            if self.engine.alone and (self.trainer.steps or isinstance(stop, StoppedWaiting)):
                self.engine.meter.tokens = tokens
                self.save()
            raise

    def save(self) -> None:
        """Save a checkpoint of this step, after its lines and batch are on disk, which a run that
        is killed in between writes again; keep at most `keep`."""
        trainer = self.trainer
        if self.saved != trainer.steps:
            if self.batch is not None:
                save_batch(self.folder, self.world, self.batch, trainer.steps, keep=1)
            for name in LINES if self.engine.first else ():
                if (path := self.folder.path / name).exists():
                    sync(path)
            # Prompts and noise are functions of (seed, step): the step is the data position and
            # the random state both.
            state = {
                "step": trainer.steps,
                "tokens": self.engine.meter.tokens,
                "seconds": time.perf_counter() - self.began,
                "kl_coef": trainer.kl_coef,
                "skipped": self.skipped,
                "memory": self.world.memory,
                "seed": self.world.seed,
                "identity": self.identity,
            }
            parts = tensors_of(self.world.changing, trainer.optimizers)
            more = [(FILE, trainer.delayed.tensors())] if trainer.delayed else []
            whole = self.engine.whole_parts(chain(parts, more))
            save_checkpoint(self.folder.checkpoints, trainer.steps, whole, state)
        self.saved = trainer.steps
        if self.engine.first:
            prune(self.folder.checkpoints, trainer.steps, self.config.checkpoint.keep)
            self._mirror()

    def _mirror(self, last: bool = False) -> None:
        """Send new files to the store, if there is one."""
        if self.folder.store:
            self.display.phase("sending to the store")
            self.folder.store.mirror(self.folder.path, self.display.note, last)

    def progress(self) -> float:
        """The used share of the budget, by the first process's clock."""
        seconds = time.perf_counter() - self.began
        spent = self.trainer.steps, self.engine.meter.tokens, seconds
        return self.engine.gather(share_of_budget(self.config.train, *spent))[0]

    def _is_due(self, every: int) -> bool:
        return bool(every) and self.trainer.steps % every == 0

    def _reason(self) -> str | None:
        reason = stopping.reason(self.config.stop, self.evaluations, self.last)
        return reason or self.engine.gather(self.told_to_stop)[0]

    def _restore(self) -> State | None:
        """Resume from the last complete checkpoint, if there is one; returns its state."""
        trainer = self.trainer
        state, troubles = load_checkpoint(
            self.folder.checkpoints,
            self.world.changing,
            trainer.optimizers,
            trainer.delayed.load if trainer.delayed else None,
        )
        for text in troubles:
            self.display.note(text)
        if state:
            trainer.steps, trainer.kl_coef = state["step"], state["kl_coef"]
            self.engine.meter.tokens = state["tokens"]
            self.world.memory.update(state["memory"])
            self.began -= state["seconds"]
            self.saved, self.skipped = trainer.steps, state["skipped"]
            self.display.note(f"resumed at step {trainer.steps}")
        return state

    def _read_lines(self, step: int) -> None:
        """Read the files written before, up to `step`, and remove what follows. Loggers start
        again, with the lines that are kept."""
        if self.engine.first:
            for name in LINES:
                self.folder.rewind(name, step)
            forget_evaluations(self.folder, step)
            mend_best(self.folder.path / "best")
        self.engine.gather(None)  # wait until all are here
        troubles: list[str] = []
        for line in self.folder.lines("metrics.jsonl", troubles):
            self._tell_loggers("log", line)
            if is_evaluation(line):
                self.evaluations.append(line)
            else:
                self.last = line
        for text in troubles:
            self.display.note(text)
        if self.trainer.steps and not any(line["step"] == 0 for line in self.evaluations):
            lacks = "lacks the evaluation before training; restore it, or start a new run"
            raise RunError(f"{self.folder.path / 'metrics.jsonl'} {lacks}")

    def _tell_loggers(self, method: str, *what: Mapping[str, float]) -> None:
        """Call each by itself; one that raises is reported, and not called again. A text that `log`
        returns is the reason why the run ends here."""
        for name, logger in list(self.loggers.items()):
            try:
                with border(f"logger {name!r}"):
                    answer = getattr(logger, method)(*map(dict, what))
                if isinstance(answer, str):
                    self.told_to_stop = f"logger {name!r}: {answer}"
            except RlzooError as error:
                if disk_is_full(error):  # nothing else would go better
                    raise
                del self.loggers[name]
                self.display.note(f"{error}; the run continues without it")

    def _show_notes(self) -> None:
        for text in self.engine.notes:
            self.display.note(text)
        self.engine.notes.clear()

    def _finish(self) -> Summary:
        stopped = self._reason()
        if stopped:
            self.display.note(f"stopped at step {self.trainer.steps}: {stopped}")
        if self.in_vain >= self.trainer.steps > 0:
            raise self._in_vain()
        self._tell_loggers("close")
        summary = summarise(self.world, self.evaluations) | {
            "stopped": stopped or "budget",
            "steps": self.trainer.steps,
            "seconds": time.perf_counter() - self.began,
            "skipped_updates": self.skipped,
        }
        save_model(self.world, self.folder.path / "model")
        if self.engine.first:
            write_json(self.folder.path / "summary.json", summary)
        self.display.finish(summary, self.folder)
        if self.engine.first:
            self._mirror(last=True)
        return summary

    def _in_vain(self) -> Unfinished:
        line = f"not finite, so every update was skipped for {self.in_vain} steps"
        return Unfinished(f"{self.folder.path}: nothing was learned: loss or gradient was {line}")


def share_of_budget(budget: Train, step: int, tokens: int, seconds: float) -> float:
    """The used share of the budget; the first limit that is reached ends the run."""
    minutes = None if budget.minutes is None else max(60 * budget.minutes, 1e-9)
    limits = (step, budget.steps), (tokens, budget.tokens), (seconds, minutes)
    return min(1.0, max([0.0, *(spent / most for spent, most in limits if most is not None)]))
