"""Hold tiny random models of transformers' architectures against plain transformers, and write
docs/components/architectures.md.

    python tests/invariants/make_model_table.py             all of them: some minutes of one core
    python tests/invariants/make_model_table.py rwkv doge   these alone, again

--keep FOLDER keeps a file for each architecture: what is there is not done again, unless it is
named. The page is written once there is a row for each; exits 1 if a cell is wrong.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
PAGE = ROOT / "docs" / "components" / "architectures.md"


def main() -> int:
    import torch
    from transformers.utils import logging

    import rlzoo
    from invariants.architecture_table.checks import Row, check
    from invariants.architecture_table.configs import ARCHITECTURES
    from invariants.architecture_table.page import write

    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--keep", type=Path, help="a folder for the rows that are done")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(ARCHITECTURES)
    if unknown:
        parser.error(f"no such architecture: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    zoo, rows, began = rlzoo.load_zoo(), {}, time.perf_counter()
    if asked.keep:
        asked.keep.mkdir(parents=True, exist_ok=True)
    for name in ARCHITECTURES:
        file = asked.keep / f"{name}.json" if asked.keep else None
        if name not in asked.names and file and file.is_file():
            rows[name] = Row.load(file)
        elif name in asked.names or not asked.names:
            with tempfile.TemporaryDirectory() as scratch:
                rows[name] = check(name, Path(scratch), zoo)
            if file:
                rows[name].save(file)
            print(shown(rows[name]), flush=True)
    wrong = [row for row in rows.values() if row.wrong()]
    seconds = time.perf_counter() - began
    print(f"{len(rows)} architectures, {len(wrong)} of them wrong; {seconds:.0f} s")
    if len(rows) == len(ARCHITECTURES):
        write(PAGE, list(rows.values()))
    for row in wrong if not asked.names else []:
        print(shown(row))
    return bool(wrong)


def shown(row) -> str:
    """A line, and one for each cell that is not right."""
    lines = [f"{row.name}: {len(row.cells) - len(row.wrong())} of {len(row.cells)} not wrong"]
    told: dict[str, list[str]] = {}
    for name, cell in row.cells.items():
        if cell.kind != "right":
            size = "" if cell.error is None else f"{cell.error:.0e} "
            told.setdefault(f"{cell.kind} {size}{cell.text}", []).append(name)
    lines += [f"    {', '.join(names)}: {line}" for line, names in told.items()]
    return "\n".join([*lines, *(f"    note: {note}" for note in row.notes)])


if __name__ == "__main__":
    sys.exit(main())
