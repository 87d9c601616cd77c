"""A run trained again with differences from its recipe reset, judged on held-out prompts.

Random numbers are functions of the seed and of counters, so runs of one seed share prompts and
noise, and differ only in what was reset.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo.errors import RlzooError, UsageError
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.runs.disk import refuse_links
from rlzoo.runs.evaluations import read_evaluation
from rlzoo.runs.lock import locked
from rlzoo.runs.metrics import ACCURACY, SCORE
from rlzoo.train.start import prepare
from rlzoo_lab import stats
from rlzoo_lab.compare.sweep.command import read_executor, train_missing
from rlzoo_lab.compare.sweep.folder import check_folder
from rlzoo_lab.compare.sweep.plan import Job, Sweep, SweepRow
from rlzoo_lab.data.record import Record, failure, flat_config, read_finished
from rlzoo_lab.doctor.series import Finding, learning
from rlzoo_lab.doctor.suspects import Suspect
from rlzoo_lab.view.numbers import bracket, signed

LEAST = 0.1  # of accuracy, or of the scores' range: a smaller effect accuses nothing
CLEAR = 0.25  # a smaller effect, or one on a run that learns, has to repeat with another seed
ALL = "everything"
CONTROL_STEPS = 4
# A retraining leaves no models and logs nowhere.
PLAIN = ("loggers=[]", "checkpoint.every=0", "checkpoint.best=false", "run.save_batches=0")


@dataclass
class Trial:
    """One retraining next to the run.

    reset: keys that are at the recipe's values; kept: True where all others are. difference: the
    held-out score minus the run's, with an interval that holds for all trials together. again: the
    difference with another seed. failed: why there is none.
    """

    reset: str
    value: str
    usual: str
    words: tuple[str, ...]
    score: float | None = None
    difference: float | None = None
    interval: stats.Interval | None = None
    helps: bool = False
    again: float | None = None
    failed: str = ""
    suspect: Suspect | None = None
    record: Record | None = None


def held_out(run: Record, at: int = -1) -> float:
    """An evaluation's accuracy, or its score where the task cannot check answers."""
    line = run.evaluations[at]
    return float(line.get(ACCURACY, line.get(SCORE, np.nan)))


def _by_prompt(run: Record) -> dict[str, Any]:
    """Each held-out prompt's mean result over the evaluations of the run's second half."""
    half = run.evaluations[-1]["step"] / 2
    steps = [e["step"] for e in run.evaluations if e["step"] > half]
    found = [a for n in steps if (a := read_evaluation(run.path, n)) is not None]
    same = [a for a in found if _same_prompts(a, found[-1])]
    return found[-1] | {
        k: np.mean([a[k] for a in same], 0) for k in ("right", "score") if k in found[-1]
    }


def _same_prompts(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return "prompt" in one and np.array_equal(one["prompt"], other.get("prompt", ()))


def apart(
    pairs: Sequence[tuple[Record, Record]], comparisons: int
) -> tuple[float, stats.Interval | None, float]:
    """(mean difference of the first runs to the second in the second half, its interval over
    prompts, the scores' range). Runs on the same prompts are compared prompt by prompt."""
    arrays = [(_by_prompt(one), _by_prompt(other)) for one, other in pairs]
    name = "right" if all("right" in x and "right" in y for x, y in arrays) else "score"
    values = [(x[name].astype(float), y[name].astype(float)) for x, y in arrays]
    span = 1.0 if name == "right" else max(float(np.ptp(np.concatenate(two))) for two in values)
    if all(_same_prompts(x, y) for x, y in arrays):
        prompts = [x["prompt"] for x, _ in arrays]
        return *stats.over_prompts([x - y for x, y in values], prompts, comparisons), span
    one, other = (np.concatenate(side) for side in zip(*values, strict=True))
    found = stats.welch(one, other, comparisons)
    return found.mean, found.interval, span


class Experiments:
    """The retrainings of a run: what is left of their budget, and what came of each. steps: their
    number; None: the run's own, which has to have been evaluated."""

    def __init__(
        self, run: Record, zoo: Zoo, path: Path, most: int, arguments: Any, steps: int | None = None
    ):
        if steps is None and (
            not run.evaluations or run.evaluations[-1]["step"] == 0 or not run.by_prompt
        ):
            raise UsageError(
                "--retrain: the run has no evaluation after training, or it is from another trainer"
            )
        self.run, self.zoo, self.path, self.left = run, zoo, path, most
        self.arguments, self.interrupted = arguments, 0
        self.trials: list[Trial] = []
        self.best: Trial | None = None  # what the finding is about
        self.accused: Sequence[Suspect] = ()  # by the finding
        done = run.evaluations[-1]["step"] if run.evaluations else 0
        self.steps = steps or int(run.key("train.steps", done) if run.summary else done)

    def row(self, label: str, words: Sequence[str]) -> SweepRow:
        words = (f"recipe={self.run.path / 'recipe.yaml'}", *PLAIN, *words)
        words = (*words, f"train.steps={self.steps}")
        recipe = compose(list(words), self.zoo)
        metric = "accuracy" if prepare(recipe, self.zoo).abilities.is_correct else "score"
        tree = recipe.stored()
        return SweepRow(label, {}, words, recipe, flat_config(tree, recipe.name), metric)

    def train(self, rows: Sequence[SweepRow], seed: int) -> list[Record | str]:
        """Each row's run, or the reason why there is none. Ctrl-C keeps what is done."""
        self.left -= len(rows)
        sweep = Sweep(self.path, (), (), (seed,), tuple(rows))
        refuse_links(sweep.path)
        check_folder(sweep)
        try:
            with locked(sweep.path):
                train_missing(sweep, read_executor(["local"], [], self.zoo), self.arguments)
        except KeyboardInterrupt as stopped:
            self.interrupted = getattr(stopped, "status", 130)
        return [self._result(job) for job in sweep.jobs]

    def _result(self, job: Job) -> Record | str:
        if not job.done:
            return failure(job.path) or "interrupted"
        return read_finished(job.path)

    def reset(self, suspects: Sequence[Suspect]) -> list[Trial]:
        """Retrain with everything reset and with each suspect reset, as far as the budget goes;
        with those near the recipe only where no other helps."""
        alone = [(Trial(s.key, s.value, s.usual, s.words, suspect=s), s.words) for s in suspects]
        for trial, words in alone:
            try:  # data may need a setting that the recipe does not have
                self.row(trial.reset, words)
            except RlzooError as error:
                trial.failed = str(error)
        self.trials += [t for t, _ in alone if t.failed]
        alone = [(t, words) for t, words in alone if not t.failed]
        every = tuple(w for _, words in alone for w in words)
        asked = [(Trial(ALL, "", "recipe", every), every)] if len(alone) > 1 else []
        far = sum(t.suspect.distance > 1 for t, _ in alone if t.suspect) or len(alone)
        spare = max(1, self.left - 2)  # two may have to be repeated
        trials = self._try([*asked, *alone[:far]][:spare])
        if any(t.helps and t.suspect for t in trials) or self.interrupted:
            return trials
        return [*trials, *self._try(alone[far:][: max(0, self.left - 2)])]

    def keep(self, suspects: Sequence[Suspect]) -> list[Trial]:
        """Retrain with everything reset but one suspect, as far as the budget goes: first with
        those that were not reset by themselves."""
        tried = [t.suspect for t in self.trials]
        asked = []
        for s in sorted(suspects, key=lambda s: s in tried)[: self.left]:
            words = tuple(w for other in suspects if other is not s for w in other.words)
            asked.append((Trial(f"{ALL} but {s.key}", s.value, s.usual, s.words, suspect=s), words))
        return self._try(asked)

    def _try(self, asked: Sequence[tuple[Trial, tuple[str, ...]]]) -> list[Trial]:
        rows = []
        for trial, words in asked:
            try:
                rows.append((trial, self.row(trial.reset, words)))
            except RlzooError as error:  # settings that do not go together
                trial.failed = str(error)
        found = self.train([row for _, row in rows], self.run.seed) if rows else []
        for (trial, _), result in zip(rows, found, strict=True):
            if isinstance(result, str):
                trial.failed = result
                continue
            trial.record, trial.score = result, held_out(result)
            paid_alike = self.run.recipe.get("rewards") == result.recipe.get("rewards")
            if not paid_alike and None in (self.run.accuracy, result.accuracy):
                trial.failed = "scores of different rewards cannot be compared"
                continue
            self._judge(trial, [(result, self.run)], len(rows))
        self.trials += [trial for trial, _ in asked]
        return [trial for trial, _ in asked]

    def _judge(
        self, trial: Trial, pairs: Sequence[tuple[Record, Record]], comparisons: int
    ) -> None:
        """Whether the first of each pair is better, by more than noise and by `LEAST`. A first
        look, which another seed may confirm, does not allow for the number of trials."""
        trial.difference, trial.interval, span = apart(pairs, comparisons)
        look = trial.interval if len(pairs) > 1 else apart(pairs, 1)[1]
        trial.helps = bool(look and look.low > 0 and trial.difference >= LEAST * span)

    def repeats(self, trial: Trial) -> bool:
        """Whether a trial helps with another seed too, unless its effect is clear without."""
        clear = trial.interval and trial.interval.low > 0 and _gain(trial) >= CLEAR
        if clear and not learning(self.run):
            return True
        rows = [self.row("as it was", ()), self.row(trial.reset, trial.words)]
        trial.helps = False
        if self.left < 2 or self.interrupted or trial.record is None:
            return False
        before, after = self.train(rows, self.run.seed + 1)
        if isinstance(before, str) or isinstance(after, str):
            return False
        trial.again = apart([(after, before)], 1)[0]
        self._judge(trial, [(trial.record, self.run), (after, before)], len(self.trials))
        trial.helps = trial.helps and trial.again > 0
        return trial.helps

    def cause(self, suspects: Sequence[Suspect]) -> Finding | None:
        """The suspect whose reset helps most, with the numbers; None if no reset helps."""
        trials = self.reset(suspects)
        # Resets that help about as much as each other keep their order: the most suspicious first.
        helped = sorted((t for t in trials if t.helps and t.suspect), key=lambda t: -round(
            10 * _gain(t)))  # fmt: skip
        for trial in helped[:2]:
            if self.repeats(trial):
                return self.finding(trial, [trial.suspect])
        together = next((t for t in trials if t.helps and not t.suspect), None)
        if together is None or self.interrupted or not self.repeats(together):
            return None
        reset = [s for s in suspects if {*s.words} <= {*together.words}]
        harms = self.keep(reset)
        for trial in harms:
            if trial.record and together.record:
                lost, interval, span = apart([(together.record, trial.record)], len(harms))
                trial.helps = bool(interval and interval.low > 0 and lost >= LEAST * span)
        harms = [t for t in harms if t.helps]
        return self.finding(together, [t.suspect for t in harms] or reset, harms)

    def cleared(self) -> dict[str, Trial]:
        """Settings whose reset by itself was tried and did not help, if nothing accuses them. The
        data may need a task's setting that does worse at the recipe's value."""
        found = {t.suspect.key: t for t in self.trials if t.suspect and t.reset == t.suspect.key
                 and t.difference is not None and not t.helps}  # fmt: skip
        accused = {s.key for s in self.accused}
        return {key: t for key, t in found.items() if key not in accused
                and not (key.startswith("task.") and _gain(t) < 0)}  # fmt: skip

    def finding(
        self, trial: Trial, accused: Sequence[Suspect | None], kept: Sequence[Trial] = ()
    ) -> Finding:
        """kept: the trials that accuse, in each of which all was reset but one suspect."""
        self.best, self.accused = trial, [s for s in accused if s]
        before, after = held_out(self.run), trial.score or 0.0
        what = ", ".join(f"{s.key}={s.value}" for s in self.accused)
        usual = ", ".join(s.usual for s in self.accused)
        how = "with all differences from the recipe reset" if kept else f"with {usual}"
        lost = "".join(
            f" With all but {t.suspect.key} reset, it ends at {t.score:.3f}."
            for t in kept if t.suspect and t.score is not None
        )  # fmt: skip
        start = held_out(self.run, 0)
        own = any(s.own for s in self.accused)
        # If the run learns, a setting is accused only if it costs at least half of the gain.
        minor = learning(self.run) and not own and before - start > 0.5 * (after - start)
        metric = "accuracy" if self.run.accuracy is not None else "score"
        again = "" if trial.again is None else f"; with the next seed {signed(trial.again)}"
        words = " ".join(w for s in self.accused for w in s.words)
        return Finding(
            "note" if minor else "warning" if learning(self.run) else "problem",
            f"{what}: when trained again {how}, the run ends at a held-out {metric} of "
            f"{after:.3f} instead of {before:.3f}. The difference is "
            f"{signed(trial.difference or 0.0)} "
            f"{bracket(trial.interval) if trial.interval else ''} (same seed, {self.steps} steps, "
            f"95% interval over prompts, for all training runs together{again}).{lost}",
            f"Set {words}{', or correct your component (`rlzoo check NAME`)' if own else ''}.",
            {"reset": words, "before": before, "after": after, "difference": trial.difference},
            rule="retraining_helps",
        )


def control(
    run: Record, zoo: Zoo, path: Path, arguments: Any
) -> tuple[dict[str, Any], list[Finding]]:
    """Train the recipe for a few steps at learning rate 0; (what came of it, a finding if weights
    changed between checkpoints, or the held-out score by more than its noise)."""
    experiments = Experiments(run, zoo, path, 1, arguments, CONTROL_STEPS)
    critic = make_plan(compose([f"recipe={run.path / 'recipe.yaml'}"], zoo), zoo).critic
    words = ("actor.lr=0", *["critic.lr=0"] * critic, "eval.every=0", "checkpoint.every=1",
             f"checkpoint.keep={CONTROL_STEPS}")  # fmt: skip
    (result,) = experiments.train([experiments.row("learning rate 0", words)], run.seed)
    if isinstance(result, str):
        raise RlzooError(f"--control: the run at learning rate 0 failed: {result}")
    folders = sorted((result.path / "checkpoints").glob("step-*"))
    one, *others = [
        {f.name: f.read_bytes() for f in folder.glob("*.safetensors") if "optimizer" not in f.name}
        for folder in folders
    ]
    moved = sorted({name for other in others for name in one if other.get(name) != one[name]})
    ends = (result.evaluations[0]["step"], result.evaluations[-1]["step"])
    first, last = (read_evaluation(result.path, step) or {} for step in ends)
    name = "right" if "right" in first else "score"
    shift = last[name].astype(float) - first[name].astype(float)
    mean, interval = stats.over_prompts([shift], [first["prompt"]], 20)  # 99.75 %
    drifts = bool(interval and not interval.low <= 0 <= interval.high)
    outcome: dict[str, Any] = {
        "path": str(result.path), "steps": CONTROL_STEPS, "still": not (moved or drifts),
        "weights": [n.removesuffix(".safetensors") for n in moved], "before": held_out(result, 0),
        "after": held_out(result), "difference": mean,
        "interval": [*interval] if interval else None,
    }  # fmt: skip
    if outcome["still"]:
        return outcome, []
    what = [f"the weights of {' and '.join(outcome['weights'])} change"] * bool(moved)
    if interval and drifts:
        what += [f"the held-out result changes by {signed(mean)} {bracket(interval)}"]
    return outcome, [
        Finding(
            "problem",
            f"At learning rate 0, {' and '.join(what)} within {CONTROL_STEPS} steps, so something "
            "else than the optimizer changes the policy.",
            "Look at what touches weights: plugins, sharding, adapters, another engine's copy.",
            outcome,
            rule="moves_at_learning_rate_zero",
        )
    ]


def _gain(trial: Trial) -> float:
    return trial.difference or 0.0


def as_document(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """What --json has of each trial."""
    left_out = ("suspect", "record")
    names = [f.name for f in dataclasses.fields(Trial) if f.name not in left_out]
    return [{name: getattr(t, name) for name in names} for t in trials]
