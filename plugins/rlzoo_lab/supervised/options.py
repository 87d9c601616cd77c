"""The options of `rlzoo model sft` and `model reward`, checked before any work. No torch."""

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlzoo.errors import UsageError, nearest
from rlzoo.recipe.files import find_config, list_configs
from rlzoo_lab.data.staged import check_free
from rlzoo_lab.view.written import Written

CHAT_ARG = "--chat-arg"
SMALL = 10_000_000  # parameters; a model with fewer learns by larger and more steps
LR_OF_SMALL, STEPS_OF_SMALL = 2e-3, 300


def add_arguments(parser: argparse.ArgumentParser, columns: Sequence[str], *, lr: float) -> None:
    add = parser.add_argument
    add(
        "data",
        metavar="DATA",
        help="files (JSON lines or array, CSV, Parquet; with commas or `*`), a folder or a hub id",
    )
    add("--model", required=True, metavar="PATH",
        help="the folder of a causal LM, or the name of a preset")  # fmt: skip
    add("--out", action=Written, folder=True, required=True, metavar="DIR",
        help="where to write the trained model")  # fmt: skip
    add(
        "--epochs",
        type=float,
        metavar="N",
        help=(
            f"passes over the data (1; {STEPS_OF_SMALL} steps for models under 10 million weights)"
        ),
    )
    add(
        "--lr",
        type=float,
        metavar="X",
        help=f"peak learning rate ({lr:g}; {LR_OF_SMALL:g} for models under 10 million weights)",
    )
    parser.set_defaults(usual_lr=lr)
    add("--batch", type=int, default=64, metavar="N", help="rows per optimizer step (64)")
    add("--max-length", type=int, metavar="N",
        help="maximum length in tokens; longer rows are skipped and counted")  # fmt: skip
    add("--test-fraction", type=float, default=0.1, metavar="X",
        help="share of the prompts to hold out (0.1)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="N", help="seed of new weights, split and order (0)")
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda")
    for name, what in (("split", "split"), ("subset", "configuration")):
        add(f"--{name}", default="", metavar="NAME",
            help=f"the {what} to use if the data set has several")  # fmt: skip
    add(
        "--on-bad-row",
        choices=("stop", "skip"),
        default="stop",
        help="skip leaves bad rows out and counts them",
    )
    add(
        CHAT_ARG,
        action="append",
        metavar="NAME=VALUE",
        help="an argument of the chat template, such as enable_thinking=false; repeatable",
    )
    for name in columns:
        add(f"--{name}", metavar="COLUMN", help=f"the {name} column's name")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Checks the command line before any expensive work."""
    inf, endless = math.inf, "must be positive and finite"
    bounds = {
        "--epochs": (arguments.epochs is None or 0 < arguments.epochs < inf, endless),
        "--lr": (arguments.lr is None or 0 < arguments.lr < inf, endless),
        "--batch": (arguments.batch > 0, "must be at least 1"),
        "--max-length": (arguments.max_length is None or arguments.max_length > 1, "is too short"),
        "--test-fraction": (0 < arguments.test_fraction < 1, "must be in (0, 1)"),
        "--seed": (arguments.seed >= 0, "must be at least 0"),
    }
    refuse_beyond(bounds, vars(arguments))
    check_free(Path(arguments.out), "--out")


def refuse_beyond(bounds: Mapping[str, tuple[bool, str]], given: Mapping[str, Any]) -> None:
    """Raises UsageError at the first option that is not within its bounds: (it is, they are)."""
    for name, (fine, text) in bounds.items():
        if not fine:
            raise UsageError(f"{name} {text}. Got {given[name[2:].replace('-', '_')]}")


def chat_args(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of the chat template: the preset's of --model, and those of --chat-arg."""
    from omegaconf import OmegaConf

    given = arguments.chat_arg or []
    if wrong := next((x for x in given if not re.fullmatch(r"\w+=.*", x)), None):
        raise UsageError(f"{CHAT_ARG} must have the form NAME=VALUE. Got {wrong!r}")
    own = of_preset(arguments.model, "model.chat_args") or {}
    found: Any = OmegaConf.to_container(OmegaConf.merge(own, OmegaConf.from_dotlist(given)))
    return found


def of_preset(model: str, key: str) -> Any:
    """A value of the preset that --model names; None if it is a folder, or has no such key."""
    from omegaconf import OmegaConf

    file = None if Path(model).is_dir() else find_config("model", model)
    return OmegaConf.select(OmegaConf.load(file), key) if file else None


def add_chat(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--chat", choices=("auto", "always", "never"), help=help)


def find_model(name: str) -> Path:
    """A transformers folder: a path, a hub id, or the folder of a preset of configs/model/."""
    from omegaconf import OmegaConf

    from rlzoo.lm.loading import resolve_path

    file = None if Path(name).is_dir() else find_config("model", name)
    if file is not None:
        return resolve_path(str(OmegaConf.select(OmegaConf.load(file), "model.path")), "--model")
    if not Path(name).is_dir() and "/" not in name:
        known = list_configs("model")
        raise UsageError(
            f"--model: {name!r} is neither a folder nor a preset{nearest(name, known)} "
            f"(presets: {', '.join(known)})"
        )
    return resolve_path(name, "--model")
