"""Checks of executors: objects that execute the runs of a sweep."""

import tempfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlzoo.errors import RlzooError
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject

CODE = """lambda job, tell: (tell("note", "under way"), (
    ("failed", "no luck") if job.name == "b" else ("done", {"seconds": len(job.name)})))[1]"""


class _Work:
    """A stand-in for a run. It is sent as text, so that a process can unpack it without torch."""

    def __call__(self, job: Any, tell: Any) -> Any:
        return eval(CODE)(job, tell)

    def __reduce__(self) -> Any:
        return eval, (CODE,)


def does_every_run(s: Subject) -> None:
    """Each run starts and ends once, with its result; a failed run does not stop the others."""
    try:
        s.component.refuse({name: o.default for name, o in s.component.options.items()})
        executor = s.component({})
    except (RlzooError, ImportError) as error:
        raise NotApplicable(f"not available here: {error}") from None
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            SimpleNamespace(
                name=n, path=Path(folder, n), store="", device="cpu", threads=1, memory=1e6, steps=1
            )
            for n in ("a", "b", "cc")
        ]
        capacity = executor.capacity(jobs)
        assert isinstance(capacity, int), f"capacity is {capacity!r}, not an int"
        assert capacity >= 1, f"capacity is {capacity}"
        heard: dict[str, list[Any]] = defaultdict(list)
        board = SimpleNamespace(
            begin=lambda job: heard[job.name].append("begun"),
            news=lambda job, word, *rest: None,
            done=lambda job, summary: heard[job.name].append(("done", summary)),
            failed=lambda job, reason: heard[job.name].append(("failed", reason)),
        )
        executor.run(jobs, _Work(), board, Path(folder), min(2, capacity))
    for job in jobs:
        said = heard[job.name]
        assert said[:1] == ["begun"], f"did not report to the board that {job.name!r} began"
        want = ("failed", "no luck") if job.name == "b" else ("done", {"seconds": len(job.name)})
        ends = [what for what in said if what != "begun"]
        assert ends == [want], (
            f"reported the end of {job.name!r} as {ends}, but it returned {want} once"
        )


ALL = (does_every_run,)
