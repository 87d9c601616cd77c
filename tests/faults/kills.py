"""Killed at every file operation: runs, resumes, `sft`, `model reward`, `export`, sweeps."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults.harness import contents, differences, rlzoo
from helpers.micro import make_model

RUNS = {  # name -> recipe and words
    "run, two checkpoints": ["recipe=ppo_gae"],
    "run, checkpoint.keep=1": ["recipe=ppo_gae", "checkpoint.keep=1"],
    "run, best and csv": ["recipe=grpo", "checkpoint.best=true", "loggers=csv"],
    "run, batches, no checkpoint before the end":
        ["recipe=ppo_gae", "checkpoint.every=0", "run.save_batches=2"],
    "run, one checkpoint": ["recipe=rloo", "checkpoint.every=3"],
}  # fmt: skip


@dataclass
class Case:
    """A command that is killed, and how it goes on.

    words: the command. again: commands that are tried after a kill until one succeeds; the command
    itself where there is none. before: fills a trial's folder with what was there already.
    """

    name: str
    words: list
    again: list[list] = field(default_factory=list)
    before: Callable[[Path], None] = lambda folder: None
    worker: bool = False
    limit: float = 1200.0


def small(model):
    """Words that make a run of any recipe take half a second."""
    return [f"model.path={model}", "rollout.prompts=2", "rollout.samples=2", "device=cpu",
            "rollout.max_new_tokens=4", "train.steps=3", "train.minibatches=1", "eval.samples=4",
            "eval.every=2", "run.threads=1"]  # fmt: skip


def cases(place):
    """All of them; `place` holds what they share: a model, data, a run that is done."""
    model, runs = make_model(place / "model"), []
    for name, words in RUNS.items():
        every = (
            [] if any(w.startswith("checkpoint.every") for w in words) else ["checkpoint.every=1"]
        )
        command = ["run", *words, *small(model), *every, "run.dir=run"]
        runs.append(Case(name, command, [["resume", "run"], command]))
    yield from runs
    yield from resumes(place, runs)
    yield from supervised(place, model)
    yield from exports(place, runs)
    words = [word for word in small(model) if not word.startswith("train.steps")]
    sweep = ["sweep", "recipe=grpo", *words, "train.steps=1", "checkpoint.every=1",
             "seed=0,1", "--dir", "sweep", "--jobs", "1"]  # fmt: skip
    yield Case("sweep, its parent", sweep)
    yield Case("sweep, a worker", sweep, worker=True)


def resumes(place, runs):
    for case in (runs[1], runs[2]):
        cut = place / "cut" / case.name
        killed_at_step(case, cut, 2)

        def before(folder, cut=cut):
            shutil.copytree(cut / "run", folder / "run")

        yield Case(f"resume of: {case.name}", ["resume", "run"], before=before)


def killed_at_step(case, folder, step):
    """A run's folder as a kill leaves it a little after the checkpoint of a step."""
    folder.mkdir(parents=True)
    camera = Path(f"{folder}.camera")
    camera.mkdir()
    rlzoo(case.words, folder, camera=camera, wanted=[])
    done = operations(camera)
    last = max(i for i, (name, path, _) in enumerate(done)
               if name == "rename" and path.endswith(f".step-{step:08d}.partial"))  # fmt: skip
    shutil.rmtree(folder)
    folder.mkdir()
    assert rlzoo(case.words, folder, at=last + 8).status == -9


def operations(camera):
    """What a command did, one after another: (name, path, whether it writes)."""
    return json.loads((camera / "operations.json").read_text())


def supervised(place, model):
    pairs = [(f"{a}+{b}=", str(a + b), str(a - b - 1)) for a in range(6) for b in range(6)]
    rows = {
        "sft": [{"prompt": p, "response": r} for p, r, _ in pairs],
        "reward": [{"prompt": p, "chosen": r, "rejected": w} for p, r, w in pairs],
    }
    for name, words in (("sft", ["model", "sft"]), ("reward", ["model", "reward"])):
        data = place / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
        brief = ["--batch", "8", "--device", "cpu", "--lr", "0.01", "--epochs", "1"]
        yield Case(" ".join(words), [*words, data, "--model", model, "--out", "out", *brief])


def exports(place, runs):
    done = place / "done"
    done.mkdir()
    assert rlzoo(runs[0].words, done).status == 0
    for name, options in (("export", []), ("export of a checkpoint", ["--checkpoint", "2"])):
        yield Case(name, ["model", "export", done / "run", "out", *options])


@dataclass
class Tally:
    """What became of a case's trials, and what was wrong: (where, what)."""

    name: str
    operations: int = 0
    folders: int = 0
    distinct: int = 0
    kills: int = 0
    faults: list = field(default_factory=list)
    seconds: float = 0.0

    def line(self):
        cells = (self.name, self.operations, self.folders, self.distinct, self.kills,
                 len(self.faults), f"{self.seconds:.0f}")  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"


HEAD = """| case | file operations | folders left | distinct | kills | lost or wrong | CPU s |
|---|---|---|---|---|---|---|"""


class Attack:
    """A case, attacked at each of its file operations (or a `share` of them, drawn by `seed`).

    At each the folder is photographed as a kill there leaves it, and the case goes on in it; at
    `real` of them it is killed, too, which must leave the folder of the photograph. A folder that
    was left before (but for what the clock wrote) ends as that one did, and is not tried again.
    """

    def __init__(self, case, place, share=1.0, seed=0, real=0.1):
        self.case, self.place, self.real = case, place, real
        self.draw = random.Random(f"{seed} {case.name}")
        self.tally, self.known, self.share = Tally(case.name), {}, share

    def run(self):
        camera, whole = self.place / "camera", self.place / "whole"
        for folder in (camera, whole):
            folder.mkdir(parents=True)
        self.case.before(whole)
        trial = rlzoo(self.case.words, whole, worker=self.case.worker, camera=camera)
        assert trial.status == 0, f"{self.case.name} fails without a kill:\n{trial.said}"
        self.reference = contents(whole)
        self.done = operations(camera)
        self.tally.operations, self.tally.seconds = len(self.done), trial.seconds
        points = [(n, how) for n, (_, _, writes) in enumerate(self.done, 1)
                  for how in (("before", "half") if writes else ("before",))]  # fmt: skip
        drawn = sorted(self.draw.sample(points, max(1, round(self.share * len(points)))))
        killed = self.draw.sample(drawn, max(1, round(self.real * len(drawn))))
        for point in drawn:
            self.strike(*point, camera, point in killed)
        shutil.rmtree(self.place)
        return self.tally

    def strike(self, n, how, camera, really):
        photograph = camera / f"{n}-{how}"
        left = contents(photograph)
        self.tally.folders += 1
        if really:
            self.kill(n, how, left)
        key = json.dumps(left)
        if key not in self.known:
            self.known[key] = self.go_on(photograph, left)
        self.fault(n, how, self.known[key])
        shutil.rmtree(photograph)

    def kill(self, n, how, left):
        folder = self.place / f"{n}-{how}"
        folder.mkdir()
        self.case.before(folder)
        trial = rlzoo(self.case.words, folder, at=n, how=how, worker=self.case.worker)
        self.tally.seconds += trial.seconds
        self.tally.kills += 1
        struck = Path(f"{folder}.notes/struck").exists()
        if self.case.worker:  # its death is the parent's to mend
            if not struck or trial.status != 0 or contents(folder) != self.reference:
                text = f"{differences(contents(folder), self.reference)} {trial.said[-300:]}"
                self.fault(n, how, f"a worker killed: exit {trial.status}: {text}")
        elif trial.status != -9:
            self.fault(n, how, f"not killed: exit {trial.status}: {trial.said[-300:]}")
        elif found := [
            x for x in differences(contents(folder), left) if how == "before" and ".jsonl" not in x
        ]:
            self.fault(n, how, f"a kill leaves another folder: {found}")  # half lines hold times
        shutil.rmtree(folder)

    def go_on(self, folder, left):
        """What is wrong in the end, or an empty string."""
        self.tally.distinct += 1
        if left == self.reference:
            return ""  # it was done already
        said = []
        for words in self.case.again or [self.case.words]:
            trial = rlzoo(words, folder, limit=self.case.limit)
            self.tally.seconds += trial.seconds
            last = (trial.said.strip().splitlines() or [""])[-1][-300:]
            said.append(f"{words[0]}: exit {trial.status}: {last}")
            if trial.status == 0:
                break
        found = differences(contents(folder), self.reference)
        if found:
            return f"{', '.join(found)[:300]} | {' | '.join(said)}"
        return f"a traceback: {said}" if "Traceback" in trial.said else ""

    def fault(self, n, how, text):
        if text:
            self.tally.faults.append((n, how, self.done[n - 1][:2], text))
