"""Metrics in trackio: a local dashboard, with wandb's interface."""

from contextlib import suppress

from rlzoo import component
from rlzoo_zoo.loggers.wandb import Steps
from rlzoo_zoo.packages import needs


@component("logger", check=needs("trackio"))
class Trackio(Steps):
    """A run of `project` in trackio's own folder; `trackio show --project rlzoo` shows them.

    The run has the run folder's name; metrics and steps keep theirs. A resumed run logs the earlier
    lines again, so the run named in `trackio-run.txt` in the run folder is deleted first. This
    applies to local projects: if TRACKIO_SPACE_ID or TRACKIO_SERVER_URL sends them elsewhere, a
    resume repeats the earlier lines there.
    Source: the trackio library.
    """

    def __init__(self, path, *, project: str = "rlzoo"):
        import trackio

        note = path / "trackio-run.txt"
        if note.is_file():
            with suppress(ValueError):  # the project is gone, and the run with it
                for old in list(trackio.Api().runs(project)):
                    if old.id == note.read_text():
                        old.delete()
        # Its own readings of processor and memory would mix with the run's metrics.
        self.run = trackio.init(
            project, path.name, embed=False, auto_log_cpu=False, auto_log_gpu=False
        )
        note.write_text(self.run.id)
