"""Ends that are asked for, and ends that are feigned: signals, false manifests, a full stdout.

A run that is asked to stop by a signal loses no step, whatever moment it comes at; a checkpoint
that is damaged under a manifest that vouches for it is not taken; what is printed to a full disk
ends no work. Each trial goes on then, and must end as the run that was left alone.
"""

import json
import os
import random
import shutil
import signal
import threading
from collections import Counter
from functools import partial

from faults.harness import Killer, contents, differences, fork, rlzoo
from faults.kills import small, supervised
from helpers.micro import make_model

STOPS = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGINT)


class Sender(Killer):
    """Sends signals to its own process: `sends` has them by the file operation that they follow."""

    def __init__(self, root, sends):
        super().__init__(root)
        self.sends = sends

    def count(self, name, path, half=None):
        super().count(name, path, half)
        number = self.sends.pop(len(self.seen), None)
        if number is not None:
            os.killpg(0, number)


def sent(words, root, sends, after=None):
    """`rlzoo WORDS` in the folder `root`, whose group gets these signals; after: (seconds,
    signal)."""

    def work():
        from rlzoo.cli import main

        os.chdir(root)
        os.setpgid(0, 0)  # with the processes that its rewards judge in
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # as where a shell has not begun it
        sender = Sender(root, sends)
        sender.install()
        if after:
            timer = threading.Timer(after[0], os.killpg, (0, after[1]))
            timer.daemon = True
            timer.start()
        status = main([str(word) for word in words])
        (root.parent / "operations").write_text(str(len(sender.seen)))
        return status

    notes = root.parent / f"{root.name}.notes"
    notes.mkdir(exist_ok=True)
    return fork(work, notes)


def _commands(place):
    """What is asked to stop, and what it goes on by: checkpoints are written at the end alone."""
    model = make_model(place / "model")
    run = ["run", "recipe=ppo_gae", *small(model), "checkpoint.every=0", "checkpoint.keep=1",
           "run.dir=run"]  # fmt: skip
    yield "run", run, ["resume", "run"]
    form = place / "form.json"
    form.write_text('{"minimum": 1}')
    judged = ["rewards=[json_schema,python]", f"rewards.json_schema.schema={form}", "eval.every=2",
              "rewards.python.function=helpers.rewards_for_tests:judged_at_length"]  # fmt: skip
    yield "judged", [*run, *judged], ["resume", "run"]
    math = ["rewards=math_verify", "eval.every=2", "rollout.max_new_tokens=1"]
    yield "mathematics", [*(w for w in run if "max_new" not in w), *math], ["resume", "run"]
    sft = next(iter(supervised(place, model))).words
    yield "sft", sft, sft


def signals(place, trials, seed):
    """(what became of the trials, faults): a signal, or one and then another, at drawn moments."""
    place.mkdir(parents=True)
    counts, faults, known = Counter(), [], {}
    for name, words, again in _commands(place):
        whole = place / name
        whole.mkdir()
        end = sent(words, whole, {})
        assert end.status == 0, end.said
        known[name] = words, again, contents(whole), int((place / "operations").read_text()), end
    for trial in range(trials):
        draw = random.Random(f"{seed} {trial}")
        name = draw.choice(["run", "run", "judged", "mathematics", "sft"])
        words, again, reference, operations, end = known[name]
        first, second = draw.sample(STOPS, 2)
        at, after = draw.randrange(1, operations + 1), None
        if draw.random() < 0.5:
            sends = {at: first} | (
                {at + draw.randrange(1, 9): second} if draw.random() < 0.5 else {}
            )
        else:
            sends, after = {}, (draw.random() * end.seconds, first)
        told = f"{name}, trial {trial} of seed {seed}: {dict(sends) or after}"
        root = place / "trial"
        root.mkdir()
        end = sent(words, root, dict(sends), after)
        fault, what = _lost(root / "run", end, first, second), _what(end.status)
        counts[what] += 1
        counts[signal.Signals(first).name] += 1
        if end.status and not fault:
            ends = [rlzoo(command, root) for command in (again, words)[: 1 + (again != words)]]
            found = differences(contents(root), reference)
            fault = f"{found}: {ends[-1].said[-200:]}" if found else ""
        if fault:
            faults.append(f"{told}: exit {end.status}: {fault}")
        shutil.rmtree(root)
    return dict(counts), faults


def _what(status):
    if status == 0:
        return "finished all the same"
    return "stopped with a checkpoint" if status > 128 else "ended before or after its steps"


def _lost(run, end, *numbers):
    """What is wrong with how it ended, or an empty string."""
    if "Traceback" in end.said:
        return f"a traceback: {end.said[-300:]}"
    if end.status not in {0, *(128 + n for n in numbers)}:
        return f"no such status is due: {end.said[-300:]}"
    if end.status and not end.said.splitlines()[-1].startswith("rlzoo: "):
        return f"it ends without a line: {end.said[-300:]}"
    if not (run / "metrics.jsonl").exists():
        return ""
    lines = (run / "metrics.jsonl").read_text().split("\n")
    done = max((json.loads(line)["step"] for line in lines if line), default=0)
    saved = max((int(p.name[5:]) for p in run.glob("checkpoints/step-*")), default=0)
    if (run / "provenance.json").exists() and end.status > 128 and "continue" not in end.said:
        return f"it does not say how to go on: {end.said[-300:]}"
    return f"steps lost: {done} done, {saved} saved" if done != saved else ""


# ---------------------------------------------------------------- false manifests


def manifests(place, trials, seed):
    """(what became of the trials, faults): the newest checkpoint damaged, its manifest false."""
    place.mkdir(parents=True)
    model = make_model(place / "model")
    whole = place / "whole"
    whole.mkdir()
    words = ["run", "recipe=ppo_gae", *small(model), "checkpoint.every=1", "checkpoint.keep=3",
             "rollout.staleness=1", "run.dir=run"]  # fmt: skip
    assert rlzoo(words, whole).status == 0
    reference, counts, faults = contents(whole), Counter(), []
    (whole / "run" / "summary.json").unlink()
    for trial in range(trials):
        draw = random.Random(f"{seed} {trial}")
        root = place / "trial"
        shutil.copytree(whole, root)
        told = _feign(root / "run" / "checkpoints" / "step-00000003", draw)
        end = rlzoo(["resume", "run"], root)
        found = differences(contents(root), reference)
        counts["resumed" if end.status == 0 else "refused"] += 1
        lines = [line for line in end.said.splitlines() if line.startswith("rlzoo: ")]
        if (
            "Traceback" in end.said
            or (end.status == 0) == bool(found)
            or (end.status and not lines)
        ):
            faults.append(f"trial {trial} of seed {seed}, {told}: exit {end.status}: {found} "
                          f"{end.said.strip()[-250:]}")  # fmt: skip
        shutil.rmtree(root)
    return dict(counts), faults


def _feign(checkpoint, draw):
    """Damage a file, and make the manifest vouch for it, or for less; what it was."""
    from rlzoo.train.checkpoint import write_manifest

    manifest = checkpoint / "manifest.json"
    file = draw.choice(sorted(p for p in checkpoint.iterdir() if p != manifest))
    data = file.read_bytes()
    state = json.loads((checkpoint / "state.json").read_text())
    key = draw.choice(sorted({*state} - {"seed"}))  # which nothing reads again
    kinds = {
        "cut": lambda: file.write_bytes(data[: draw.randrange(len(data))]),
        "cut by a byte": lambda: file.write_bytes(data[:-1]),
        "empty": lambda: file.write_bytes(b""),
        "another type": lambda: file.write_bytes(draw.choice([b"[]", b"null", b"3", b"{}"])),
        "header": lambda: file.write_bytes(draw.randbytes(8) + data[8:]),
        "noise": lambda: file.write_bytes(draw.randbytes(len(data))),
        "another file": lambda: shutil.copy(draw.choice(
            [p for p in checkpoint.iterdir() if p not in (file, manifest)]), file),
        "gone": file.unlink,
        "a folder": lambda: (file.unlink(), file.mkdir()),
        f"state without {key}": lambda: (checkpoint / "state.json").write_text(
            json.dumps({k: v for k, v in state.items() if k != key})),
        f"state with odd {key}": lambda: (checkpoint / "state.json").write_text(
            json.dumps(state | {key: draw.choice([None, [], {}, "x", [1], {"a": 1}])})),
    }  # fmt: skip
    kind = draw.choice(sorted(kinds))
    kinds[kind]()
    how = draw.choice(["vouched for", "vouched for", "{}", "[]", "null", '{"state.json": 7}'])
    if how == "vouched for" and file.is_dir():
        how = "{}"
    if how == "vouched for":
        write_manifest(checkpoint)
    else:
        manifest.write_text(how)
    return f"{file.name} {kind}, {how}"


# ---------------------------------------------------------------- a full stdout


def outputs(place, trials, seed):
    """(what became of the trials, faults): what is printed goes to /dev/full, drawn: stdout, and
    stderr, too."""
    place.mkdir(parents=True)
    counts, faults, known = Counter(), [], {}
    for name, words, _ in _commands(place):
        if name in ("judged", "mathematics"):
            continue
        whole = place / name
        whole.mkdir()
        assert rlzoo(words, whole).status == 0
        known[name] = words, contents(whole)
    for trial in range(trials):
        draw = random.Random(f"{seed} {trial}")
        name, full = draw.choice(["run", "run", "sft"]), draw.choice([(1,), (1, 2), (2,)])
        words, reference = known[name]
        root = place / "trial"
        root.mkdir()
        words = [*words, *["--json"] * (draw.random() < 0.3)]
        end = fork(partial(_into_full, words, root, full), place)
        # A result that cannot be written is a failure; the work is done all the same.
        due = 1 if ("--json" in words or name == "sft") and 1 in full else 0
        found = differences(contents(root), reference)
        counts["done"] += not found
        if found or end.status != due or "Traceback" in end.said:
            told = f"trial {trial} of seed {seed}, {name} {full}"
            faults.append(f"{told}: exit {end.status}: {found} {end.said.strip()[-250:]}")
        shutil.rmtree(root)
    return dict(counts), faults


def _into_full(words, root, full):
    from rlzoo.cli import main

    os.chdir(root)
    handle = os.open("/dev/full", os.O_WRONLY)
    for number in full:
        os.dup2(handle, number)
    return main([str(word) for word in words])
