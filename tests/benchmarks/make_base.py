"""Rebuilds a shipped model from its file in configs/base/: `python tests/benchmarks/make_base.py
NAME DIR`. `rlzoo model base TASK` makes new ones."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from rlzoo import load_zoo
from rlzoo.recipe.files import find_config
from rlzoo_lab.supervised.tiny import build_model, build_tokenizer, save
from rlzoo_lab.supervised.warm_start import warm_start


def make_base(
    spec: dict[str, Any],
    tasks: dict[str, Any],
    out: Path,
    progress: Callable[[int, int, float], Any] | None = None,
) -> None:
    """Train the model that `spec` describes and save it as a plain transformers folder `out`.

    spec:     seed, architecture (arguments of LlamaConfig), steps, batch, lr, right, perhaps
              characters: those beyond ASCII with a token of their own (all others are bytes), and
              mix: label -> {task, weight, options, right}; a part's own `right` holds from the
              first step to the last
    tasks:    label -> task object, one for each label of the mix
    progress: called after each step with (steps done, steps, loss in nats per token)
    """
    more = spec.get("characters", "")
    tokenizer = build_tokenizer(more, every_byte=bool(more))
    with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it was
        torch.manual_seed(spec["seed"])
        model = build_model(spec["architecture"], tokenizer)
    warm_start(model, tokenizer, spec, tasks, progress)
    save(model, tokenizer, Path(out))


def main(name: str, out: str) -> None:
    spec: Any = OmegaConf.to_container(OmegaConf.load(find_config("base", name)))
    zoo = load_zoo()
    tasks = {k: zoo.tasks[m["task"]](**m.get("options", {})) for k, m in spec["mix"].items()}
    make_base(spec, tasks, Path(out), lambda *done: print("\rstep {} of {}".format(*done), end=""))


if __name__ == "__main__":
    main(*sys.argv[1:])
