"""`rlzoo base`: makes a base model of `configs/base/` again.  No torch at module level."""

import argparse
from pathlib import Path
from typing import Any

from rlzoo.errors import RlzooError, nearest
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.files import find_config, list_configs
from rlzoo.runs.disk import check_free, staged
from rlzoo.tools.verb import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--out", required=True, metavar="DIR")


def run(arguments: argparse.Namespace) -> Result:
    file = find_config("base", arguments.name)
    if file is None:
        known = list_configs("base")
        raise RlzooError(
            f"no base {arguments.name!r}{nearest(arguments.name, known)} "
            f"(there are: {', '.join(known)})"
        )
    out = Path(arguments.out)
    check_free(out, "--out")
    from omegaconf import OmegaConf
    from rich.progress import track

    from rlzoo.show.console import SafeConsole
    from rlzoo.tools.supervised.warm_start import make_base

    spec: Any = OmegaConf.to_container(OmegaConf.load(file))
    zoo = load_zoo()
    tasks = {k: zoo.tasks[m["task"]](**m.get("options", {})) for k, m in spec["mix"].items()}
    console = SafeConsole(stderr=True)
    bar = iter(track(range(spec["steps"]), description=f"base {arguments.name}", console=console))

    def progress(done: int, steps: int, loss: float) -> None:
        next(bar, None)

    with staged(out, "--out") as aside:
        make_base(spec, tasks, aside, progress)
    for _ in bar:
        pass
    console.print(f"made {out}")
    return Result({"path": str(out)}, lambda console: ())
