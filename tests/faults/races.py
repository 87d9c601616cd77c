"""Two, four, eight processes on one folder: one works, the others say so."""

import random
import shutil
from functools import partial

from faults.harness import contents, differences, together

REFUSALS = ("another process is using it", "already exists", "is already finished")


def race(case, place, reference, processes):
    """So many processes with one command at once; what is wrong then, or an empty string."""
    place.mkdir(parents=True)
    case.before(place)
    ends = together([partial(_command, case.words, place)] * processes, place.parent / "said")
    done = "is already finished"  # which is a success, and no work
    won = [end for end in ends if end.status == 0 and done not in end.said]
    said = [end.said.strip().splitlines()[-1:] for end in ends if end.status != 0]
    wrong = [
        f"exit {end.status}: {end.said[-300:]}"
        for end in ends
        if end.status and not (end.status == 2 and any(r in end.said for r in REFUSALS))
    ]
    found = differences(contents(place), reference)
    shutil.rmtree(place)
    shutil.rmtree(place.parent / "said")
    if len(won) != 1 or wrong or found:
        return f"{len(won)} of {processes} worked; {wrong} {found} {said}"
    return ""


def _command(words, place):
    import os

    from rlzoo.cli import main

    os.chdir(place)
    return main([str(word) for word in words])


def rounds(cases, place, count, seed=0):
    """(rounds, how many refusals, faults): cases and 2, 4 or 8 processes, drawn by `seed`."""
    from faults.harness import rlzoo

    references = {}
    for case in cases:
        whole = place / "whole"
        whole.mkdir(parents=True)
        case.before(whole)
        assert rlzoo(case.words, whole).status == 0
        references[case.name] = contents(whole)
        shutil.rmtree(whole)
    draw, faults, refused = random.Random(seed), [], 0
    for n in range(count):
        case, processes = cases[n % len(cases)], draw.choice((2, 4, 8))
        fault = race(case, place / str(n), references[case.name], processes)
        refused += processes - 1
        if fault:
            faults.append((case.name, processes, fault))
    return count, refused, faults
