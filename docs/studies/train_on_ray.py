"""`rlzoo run` as ranks on the nodes of a Ray cluster: `python train_on_ray.py RANKS WORDS...`

Ray's TorchTrainer starts the ranks and joins them; what they do is `rlzoo run`, or, where the run's
folder has a checkpoint, `rlzoo resume`. So a rank or a node that dies costs the steps since then.
"""

import runpy
import sys
from pathlib import Path

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def rank(config):
    """The work of each rank."""
    words = config["words"]
    folder = next(w.partition("=")[2] for w in words if w.startswith("run.dir="))
    begun = any(Path(folder, "checkpoints").glob("step-*"))
    sys.argv = ["rlzoo", *(["resume", folder] if begun else ["run", *words])]
    try:
        runpy.run_module("rlzoo", run_name="__main__")  # as `python -m rlzoo` does
    except SystemExit as end:
        if end.code:
            raise RuntimeError("the run has failed; its reason is above") from None


if __name__ == "__main__":
    count, *words = sys.argv[1:]
    trainer = TorchTrainer(
        rank,
        train_loop_config={"words": words},
        scaling_config=ScalingConfig(
            num_workers=int(count), use_gpu="device=cuda" in words, placement_strategy="SPREAD"
        ),
        run_config=RunConfig(failure_config=FailureConfig(max_failures=3)),
    )
    trainer.fit()
