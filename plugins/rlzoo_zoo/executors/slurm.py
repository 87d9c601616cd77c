"""Slurm jobs: each run is a job, which is queued again if it is interrupted."""

import errno
import json
import shutil
import time
from typing import Annotated, Any, Literal

from rlzoo import Range, RlzooError, component
from rlzoo_zoo.packages import needs

EVERY = 2.0  # seconds between two looks at the jobs and at what they wrote
ATTEMPTS = 3  # of a run whose job is lost


def to_be_had(*, cluster, **options):
    needs("submitit", "slurm")()
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise RlzooError(
            "Slurm is not installed here: there is no sbatch command (cluster=local works without "
            "it)"
        )


@component("executor", check=to_be_had)
class Slurm:
    """Runs as Slurm jobs, by submitit; the sweep's folder must be on a disk that all nodes see.

    The sweep waits and shows the progress of each run. A job that Slurm preempts or whose time is
    up is queued again and continues from its last checkpoint; a lost job is queued again up to
    three times. The output of jobs is in `slurm/` in the sweep's folder. Ctrl-C cancels all jobs.
    Source: submitit; for a test, cluster=local starts the jobs as processes on this machine.
    """

    def __init__(
        self,
        *,
        partition: str | None = None,
        account: str | None = None,
        minutes: Annotated[int, Range(1)] = 1440,
        cpus: Annotated[int, Range(1)] = 1,
        gpus: Annotated[int, Range(0)] = 0,
        gigabytes: Annotated[int, Range(1)] = 4,
        cluster: Literal["slurm", "local"] = "slurm",
    ):
        self.cluster = cluster
        self.wants: dict[str, Any] = {
            "timeout_min": minutes,
            "cpus_per_task": cpus,
            "gpus_per_node": gpus,
            "mem_gb": gigabytes,
        }
        slurm = {"slurm_partition": partition, "slurm_account": account}
        self.wants |= {name: value for name, value in slurm.items() if value is not None}

    def capacity(self, jobs):
        """All at once, because Slurm decides how many run; two with cluster=local."""
        return len(jobs) if self.cluster == "slurm" else 2

    def run(self, jobs, work, board, folder, at_a_time):
        """Do every run; raises OSError where one met a full disk, having cancelled the others."""
        import submitit

        queue, tries = list(jobs), dict.fromkeys((j.name for j in jobs), 0)
        under_way: dict[str, Any] = {}  # name: (job, submitit's job)
        executor = submitit.AutoExecutor(folder=folder / "slurm", cluster=self.cluster)
        executor.update_parameters(name=folder.name, **self.wants)
        try:
            while queue or under_way:
                while queue and len(under_way) < at_a_time:
                    job = queue.pop(0)
                    tries[job.name] += 1
                    under_way[job.name] = (job, executor.submit(Run(work), job))
                    board.begin(job)
                for name, (job, handle) in list(under_way.items()):
                    if not handle.done():
                        _look(job, board)
                        continue
                    del under_way[name]
                    error = handle.exception()
                    if error is None:
                        word, found = handle.result()
                        if word == "disk":
                            raise OSError(errno.ENOSPC, found, str(job.path))
                        getattr(board, word)(job, found)
                    elif tries[name] < ATTEMPTS:
                        board.news(
                            job, "note", f"its job was lost ({_said(error)}); submitted again"
                        )
                        queue.insert(0, job)
                    else:
                        board.failed(job, f"its job was lost {ATTEMPTS} times ({_said(error)})")
                time.sleep(EVERY if self.cluster == "slurm" else 0.2)
        finally:
            for _, handle in under_way.values():
                handle.cancel()


class Run:
    """The function of a job; submitit sends it again where Slurm cuts it off."""

    def __init__(self, work):
        self.work = work

    def __call__(self, job):
        try:
            return self.work(job, _quiet)
        except OSError as error:
            return "disk", error.strerror or str(error)

    def checkpoint(self, job):
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job)


def _quiet(*news):
    """The job's own log has a run's messages; its folder shows how far it is."""


def _look(job, board):
    """How far a run is, by the last whole line of its metrics."""
    try:
        with open(job.path / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 16384))
            lines = file.read().split(b"\n")[:-1]
        line = json.loads(lines[-1])
        board.news(job, "step", line["step"] / job.steps, line["step"], line["reward/mean"])
    except (OSError, ValueError, LookupError):  # nothing yet, or an evaluation
        return


def _said(error):
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
