"""What an attack on files is made of: trials in forked children, and a killer that counts.

A trial is `rlzoo WORDS` in a child that is forked after the imports, so that it costs what the work
costs. Under a killer it ends by SIGKILL at the n-th file operation below a folder: before it, or,
where it writes, with half of the bytes written. What SIGKILL leaves, a crash of the process leaves;
a power cut may leave less, which is what fsync is for and this harness cannot see.
"""

import builtins
import contextlib
import csv
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path

CLOCK = ("timing_s/", "perf/seconds", "perf/tokens_per_second")
APART = ("report.html", "workers.log", ".lock")  # they tell times, or who was at work
TIMED = ("seconds", "peak_rss_mb")
COUNTED = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")  # audit events


class Killer:
    """Counts file operations below `root`; SIGKILL at operation `at`, `how` "before" or "half".

    camera: a folder that gets a copy of `root` for each of the operations in `wanted` (all), named
    N-before and N-half, as a kill would leave it there; the command itself goes on.
    worker: of a sweep, not the parent is counted but its worker, and the first that comes so far
    is killed.
    """

    def __init__(self, root, at=None, how="before", worker=False, camera=None, wanted=None):
        self.root, self.at, self.how, self.worker = str(root), at, how, worker
        self.camera, self.wanted = camera, wanted
        self.seen = []
        self.busy = worker  # until there is a worker

    def count(self, name, path, half=None):
        """An operation on `path` is about to happen; half(place) does half of it there."""
        path = os.path.abspath(path)
        if self.busy or not path.startswith(self.root + os.sep):
            return
        path = os.path.relpath(path, self.root)
        self.seen.append((name, path, half is not None))
        self.busy = True
        if self.camera:
            self.photograph(path, half)
        if len(self.seen) == self.at:
            if self.worker:
                os.close(os.open(self.struck, os.O_CREAT | os.O_WRONLY))
            if self.how == "half" and half:
                half(os.path.join(self.root, path))
            os.kill(os.getpid(), signal.SIGKILL)
        self.busy = False

    def photograph(self, path, half):
        n = len(self.seen)
        for how in ("before", "half") if half else ("before",):
            if self.wanted is None or [n, how] in self.wanted:
                place = Path(self.camera) / f"{n}-{how}"
                shutil.copytree(self.root, place, symlinks=True)
                if how == "half":
                    half(place / path)
        (Path(self.camera) / "operations.json").write_text(json.dumps(self.seen))

    def install(self):
        """From here on; there is no way back, for it stands in a child's only life."""
        import safetensors.torch
        import torch
        from transformers import PreTrainedTokenizerFast

        sys.addaudithook(self._heard)
        opened = io.open

        def open_(file, mode="r", *args, **kwargs):
            handle = opened(file, mode, *args, **kwargs)
            if set(mode) & set("wax+") and isinstance(file, str | os.PathLike):
                write = handle.write

                def half(data, place):
                    raw = data.encode() if isinstance(data, str) else bytes(data)
                    with opened(place, "ab") as there:
                        there.write(raw[: len(raw) // 2])

                def counted(data):
                    handle.flush()  # so that what was written before is there
                    self.count("write", file, partial(half, data))
                    return write(data)

                handle.write = counted
            return handle

        builtins.open = io.open = open_
        sync = os.fsync

        def fsync(handle):
            self.count("fsync", os.readlink(f"/proc/self/fd/{handle}"))
            sync(handle)

        os.fsync = fsync
        # What is written outside of Python: half of it is the whole, cut.
        serialize, save = safetensors.torch.serialize_file, torch.save

        def torn(write, place):
            write(place)
            os.truncate(place, os.path.getsize(place) // 2)

        def serialize_file(tensors, path, *rest, **more):
            self.count("safetensors", path,
                       partial(torn, lambda p: serialize(tensors, p, *rest, **more)))  # fmt: skip
            self.quietly(lambda: serialize(tensors, path, *rest, **more))

        def save_(thing, path, *rest, **more):
            if isinstance(path, str | os.PathLike):
                self.count("torch.save", path,
                           partial(torn, lambda p: save(thing, p, *rest, **more)))  # fmt: skip
            self.quietly(lambda: save(thing, path, *rest, **more))

        safetensors.torch.serialize_file, torch.save = serialize_file, save_
        whole = PreTrainedTokenizerFast._save_pretrained

        def tokenizer(this, save_directory, *rest, **more):
            path = os.path.join(save_directory, "tokenizer.json")
            write = this.backend_tokenizer.save
            self.count("tokenizer", path, partial(torn, lambda p: write(str(p))))
            return whole(this, save_directory, *rest, **more)

        PreTrainedTokenizerFast._save_pretrained = tokenizer

    def context(self):
        """For a sweep: its workers are forked, not spawned, and only one kind is counted."""
        fork = multiprocessing.get_context("fork")

        def begin(target, args):
            self.seen, self.busy = [], not self.worker or os.path.exists(self.struck)
            target(*args)

        class Context:
            Pipe = staticmethod(fork.Pipe)

            @staticmethod
            def Process(target, args):
                return fork.Process(target=begin, args=(target, args))

        return Context

    @property
    def struck(self):
        """A file that is there once a worker was killed."""
        return f"{self.root}.notes/struck"

    def quietly(self, write):
        """An operation that has been counted: what it does inside is not counted again."""
        before, self.busy = self.busy, True
        try:
            write()
        finally:
            self.busy = before

    def _heard(self, event, args):
        if event not in COUNTED:
            return
        path = args[0]
        if event == "open":
            flags = args[2] if isinstance(args[2], int) else 0
            if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        if not isinstance(path, str | bytes | os.PathLike):
            return
        path = os.fsdecode(path)
        if event in ("os.remove", "os.rmdir") and args[1] not in (-1, None):
            path = os.path.join(os.readlink(f"/proc/self/fd/{args[1]}"), path)
        self.count(event.removeprefix("os."), path)


@dataclass
class Trial:
    """How a child ended: its exit status, -9 where it was killed; what it said."""

    status: int
    said: str
    seconds: float  # of CPU, its own


def fork(work, folder, limit=1200.0):
    """`work()` -> exit status, in a child whose output goes to files in `folder`."""
    pid = spawn(work, folder)
    return wait(pid, folder, limit)


def spawn(work, folder):
    """The child's process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        handle = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", closefd=False) for n in (1, 2))
        status = work()
    except SystemExit as stopped:
        status = stopped.code
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status or 0)


def together(works, folder, limit=1200.0):
    """Children that begin their work at once; how each ended."""
    ready, go = os.pipe()

    def held(work):
        os.close(go)
        os.read(ready, 1)
        return work()

    folders = [folder / str(i) for i in range(len(works))]
    for place in folders:
        place.mkdir(parents=True, exist_ok=True)
    pids = [spawn(partial(held, w), place) for w, place in zip(works, folders, strict=True)]
    os.close(ready)
    time.sleep(0.02)
    os.close(go)
    return [wait(pid, place, limit) for pid, place in zip(pids, folders, strict=True)]


def wait(pid, folder, limit=1200.0):
    """How the child ended; one that takes longer than `limit` seconds is killed: status None."""
    end, late = time.monotonic() + limit, False
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            late = True
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    code = None if late else os.waitstatus_to_exitcode(status)
    said = (folder / "said").read_text(errors="replace")
    return Trial(code, said, usage.ru_utime + usage.ru_stime)


def rlzoo(
    words, root, *, at=None, how="before", worker=False, camera=None, wanted=None, limit=1200.0
):
    """`rlzoo WORDS` in the folder `root` as a trial; files below it are counted, and what it says
    lies beside it."""
    notes = Path(f"{root}.notes")
    notes.mkdir(exist_ok=True, parents=True)

    def work():
        from rlzoo.cli import main

        os.chdir(root)
        killer = Killer(root, at, how, worker, camera, wanted)
        if at or camera:
            killer.install()
        if words[0] == "sweep":
            context = killer.context()
            multiprocessing.get_context = lambda _: context
        return main([str(word) for word in words])

    return fork(work, notes, limit)


# ---------------------------------------------------------------- what is compared


def contents(folder):
    """Every file below a folder, but for what the clock wrote: path -> digest, or what it says."""
    return {
        str(path.relative_to(folder)): _content(path)
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name not in APART and path.suffix != ".lock"
    }


def _content(path):
    """What a file says; a digest where it says nothing, or is damaged."""
    try:
        return _read(path)
    except (ValueError, KeyError):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(path):
    if path.name == "training_args.bin":
        return ""  # where the trial was
    if path.name == "manifest.json":
        return sorted(json.loads(path.read_text()))  # the checksums are of files that are compared
    if path.name == "metrics.jsonl":
        lines = path.read_bytes().decode().split("\n")
        return [_untimed(json.loads(line), CLOCK) for line in lines if line]
    if path.name == "metrics.csv":
        with open(path, newline="") as file:
            return [_untimed(row, CLOCK) for row in csv.DictReader(file)]
    if path.name == "provenance.json":  # its keys are in the order in which they were set
        return json.dumps(json.loads(path.read_text()), sort_keys=True)
    if path.name in ("summary.json", ".summary.json.partial", "state.json"):
        return _untimed(json.loads(path.read_text()), TIMED)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _untimed(line, clock):
    kept = {k: v for k, v in line.items() if not k.startswith(clock)}
    return json.dumps(kept, sort_keys=True)


def differences(one, other):
    """A word for each file that is not the same in both."""
    names = sorted({*one, *other})
    words = ("missing", "too much", "different")
    found = []
    for name in names:
        if one.get(name) != other.get(name):
            how = words[0] if name not in one else words[1] if name not in other else words[2]
            found.append(f"{how}: {name}")
    return found


def preload():
    """What trials need, before the first is forked; torch on one thread, for threads do not
    survive a fork."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import accelerate  # noqa: F401
    import rich.progress  # noqa: F401
    import torch
    import transformers.models.auto.tokenization_auto
    import transformers.models.llama.modeling_llama
    import transformers.trainer  # noqa: F401

    import rlzoo.cli
    import rlzoo.cli.run.command
    import rlzoo.train.loop
    import rlzoo_lab.compare.sweep.command
    import rlzoo_lab.compare.sweep.work
    import rlzoo_lab.supervised.export
    import rlzoo_lab.supervised.reward
    import rlzoo_lab.supervised.sft
    from rlzoo.plugin.registry import load_zoo

    torch.set_num_threads(1)
    zoo = load_zoo()
    for module in (rlzoo.cli.run.command, rlzoo.train.start, rlzoo_lab.supervised.export,
                   rlzoo_lab.compare.sweep.command, rlzoo_lab.compare.sweep.work):  # fmt: skip
        module.load_zoo = lambda: zoo
