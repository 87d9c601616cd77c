"""Kill at every file operation: of runs, resumes, `sft`, `reward train`, `export`, sweeps."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults.harness import contents, differences, rlzoo

MICRO = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}

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
    limit: float = 120.0


def make_model(place):
    """A random character model of some 5,000 parameters."""
    import torch

    from rlzoo.lm.tiny import build_model, build_tokenizer, save

    tokenizer = build_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model(MICRO, tokenizer)
    save(model, tokenizer, place)
    return place


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
    sweep = ["sweep", "recipe=grpo", *small(model), "train.steps=1", "checkpoint.every=1",
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
    """A run's folder as a kill leaves it after the checkpoint of a step."""
    folder.mkdir(parents=True)
    trial = rlzoo(case.words, folder, count=True)
    last = max(i for i, (name, path, _) in enumerate(trial.operations)
               if name == "rename" and path.endswith(f".step-{step:08d}.partial"))  # fmt: skip
    shutil.rmtree(folder)
    folder.mkdir()
    assert rlzoo(case.words, folder, at=last + 8).status == -9


def supervised(place, model):
    pairs = [(f"{a}+{b}=", str(a + b), str(a - b - 1)) for a in range(6) for b in range(6)]
    rows = {
        "sft": [{"prompt": p, "response": r} for p, r, _ in pairs],
        "reward": [{"prompt": p, "chosen": r, "rejected": w} for p, r, w in pairs],
    }
    for name, words in (("sft", ["sft"]), ("reward", ["reward", "train"])):
        data = place / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
        yield Case(" ".join(words), [*words, data, "--model", model, "--out", "out", "--batch", "8",
                                     "--device", "cpu", "--lr", "0.01"])  # fmt: skip


def exports(place, runs):
    done = place / "done"
    done.mkdir()
    assert rlzoo(runs[0].words, done).status == 0
    for name, options in (("export", []), ("export of a checkpoint", ["--checkpoint", "2"])):
        yield Case(name, ["export", done / "run", "out", *options])


@dataclass
class Tally:
    """What became of a case's trials: a list of (where it was killed, what was wrong)."""

    name: str
    operations: int = 0
    trials: int = 0
    folders: int = 0
    same: int = 0
    faults: list = None
    seconds: float = 0.0

    def line(self):
        cells = (self.name, self.operations, self.trials, self.folders, self.same,
                 len(self.faults), f"{self.seconds:.0f}")  # fmt: skip
        return f"| {' | '.join(map(str, cells))} |"


HEAD = """| case | operations | kills | folders left | same in the end | lost or wrong | CPU s |
|---|---|---|---|---|---|---|"""


def attack(case, place, share=1.0, seed=0, only=None):
    """Kill the case at each of its file operations (or a `share` of them, drawn by `seed`)."""
    tally = Tally(case.name, faults=[])
    whole = place / "whole"
    whole.mkdir(parents=True)
    case.before(whole)
    trial = rlzoo(case.words, whole, count=True, worker=case.worker)
    assert trial.status == 0, f"{case.name} fails without a kill:\n{trial.said}"
    reference = contents(whole)
    tally.operations, tally.seconds = len(trial.operations), trial.seconds
    points = [(n, how) for n, (_, _, writes) in enumerate(trial.operations, 1)
              for how in (("before", "half") if writes else ("before",))]  # fmt: skip
    drawn = random.Random(f"{seed} {case.name}").sample(points, max(1, round(share * len(points))))
    known = {}
    for n, how in sorted(drawn) if only is None else [p for p in points if p[0] in only]:
        folder = place / f"{n}-{how}"
        folder.mkdir()
        fault = strike(case, folder, n, how, reference, tally, known)
        tally.trials += 1
        tally.same += not fault
        if fault:
            tally.faults.append((n, how, trial.operations[n - 1][:2], fault))
        shutil.rmtree(folder)
        shutil.rmtree(f"{folder}.notes")
    shutil.rmtree(place)
    return tally


def strike(case, folder, n, how, reference, tally, known):
    """One kill, and going on; what is wrong then, or an empty string. A folder that an earlier
    kill left too (`known`, but for what the clock wrote) ends as that one did."""
    case.before(folder)
    trial = rlzoo(case.words, folder, at=n, how=how, worker=case.worker, limit=case.limit)
    tally.seconds += trial.seconds
    struck = Path(f"{folder}.notes/struck").exists()  # a worker's death is its parent's to mend
    if trial.status != (0 if struck else -9) or struck != case.worker:
        return f"not killed: exit status {trial.status}: {trial.said[-300:]}"
    left = contents(folder)
    key = json.dumps(left)
    if key not in known:
        known[key] = go_on(case, folder, left, reference, tally)
    return known[key]


def go_on(case, folder, left, reference, tally):
    if left == reference:
        return ""  # it was done already, or a sweep has mended it
    said = []
    for words in case.again or [case.words]:
        trial = rlzoo(words, folder, limit=case.limit)
        tally.seconds += trial.seconds
        said.append(f"{words[0]}: exit {trial.status}: {_last_line(trial)}")
        if trial.status == 0:
            break
    tally.folders += 1
    found = differences(contents(folder), reference)
    if found:
        return f"{', '.join(found)[:300]} | {' | '.join(said)}"
    if "Traceback" in " ".join(said):
        return f"a traceback: {' | '.join(said)}"
    return ""


def _last_line(trial):
    return (trial.said.strip().splitlines() or [""])[-1][-300:]
