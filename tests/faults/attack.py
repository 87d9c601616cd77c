"""The attack: `python tests/faults/attack.py` runs all of it, `--share 0.02` a drawn part.

Exit status 1 where anything was lost, wrong, or said by a traceback.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from faults import harness, kills  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names of cases; all where none is given")
    parser.add_argument("--share", type=float, default=1.0, help="of the places to strike at (1)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument("--at", type=int, nargs="*", help="these operations alone")
    arguments = parser.parse_args()
    harness.preload()
    began, bad = time.process_time(), 0
    place = Path(tempfile.mkdtemp(prefix="faults-"))
    shared = place / "shared"
    shared.mkdir()
    try:
        print(kills.HEAD, flush=True)
        for i, case in enumerate(kills.cases(shared)):
            if arguments.names and not any(n in case.name for n in arguments.names):
                continue
            tally = kills.attack(
                case, place / str(i), arguments.share, arguments.seed, arguments.at
            )
            print(tally.line(), flush=True)
            for fault in tally.faults:
                print("   ", *fault, flush=True)
            bad += len(tally.faults)
    finally:
        shutil.rmtree(place)
    print(f"{bad} faults; {time.process_time() - began:.0f} CPU s and children", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
