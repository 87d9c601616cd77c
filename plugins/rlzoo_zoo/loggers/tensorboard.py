"""Metrics as TensorBoard event files."""

import shutil

from rlzoo import component
from rlzoo_zoo.packages import needs


@component("logger", check=needs("tensorboard"))
class Tensorboard:
    """Writes `tensorboard/` into the run folder: `tensorboard --logdir runs` shows all runs there.

    A scalar for each metric, under its own name, at its step. A resumed run logs the earlier lines
    again to new files; those lines then have the time of the resume.
    Source: the tensorboard library, through torch.utils.tensorboard.
    """

    def __init__(self, path):
        from torch.utils.tensorboard import SummaryWriter

        folder = path / "tensorboard"
        shutil.rmtree(folder, ignore_errors=True)
        self.writer = SummaryWriter(folder)

    def log(self, metrics):
        """metrics: a flat mapping of one step or one evaluation."""
        for name, value in metrics.items():
            if name != "step":
                self.writer.add_scalar(name, value, metrics["step"])

    def close(self):
        self.writer.close()  # writes what is left
