"""The attack: `python tests/faults/attack.py` runs all of it, `--share 0.02` a drawn part.

Exit status 1 where anything was lost, wrong, or said by a traceback. Names choose: parts of the
names of cases, `races`, `recipes`, `folders`, `signals`, `manifests`, `outputs`, `strangers`.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from faults import endings, fuzz, harness, kills, races, strangers  # noqa: E402

ROUNDS, RECIPES, FOLDERS, STRANGERS = 100, 11_000, 160, 2000  # in full
SIGNALS, MANIFESTS, OUTPUTS = 200, 200, 40


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="what is attacked; all where none is given")
    parser.add_argument("--share", type=float, default=1.0, help="of the trials (1)")
    parser.add_argument("--seed", type=int, default=0, help="which of them (0)")
    parser.add_argument("--jobs", type=int, default=1, help="at a time (1)")
    parser.add_argument("--real", type=float, default=0.1, help="share that is killed, too (0.1)")
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="faults-"))
    harness.preload()
    try:
        (place / "shared").mkdir()
        cases = list(kills.cases(place / "shared"))
        parts = {case.name: partial(killed, case, asked) for case in cases}
        parts["races"] = partial(raced, cases, asked)
        parts["recipes"] = partial(fuzzed, "recipes", fuzz.recipes, RECIPES, asked)
        parts["folders"] = partial(fuzzed, "folders", fuzz.folders, FOLDERS, asked)
        parts["signals"] = partial(fuzzed, "signals", endings.signals, SIGNALS, asked)
        parts["manifests"] = partial(fuzzed, "manifests", endings.manifests, MANIFESTS, asked)
        parts["outputs"] = partial(fuzzed, "outputs", endings.outputs, OUTPUTS, asked)
        parts["strangers"] = partial(fuzzed, "strangers", strangers.trials, STRANGERS, asked)
        chosen = [name for name in parts
                  if not asked.names or any(word in name for word in asked.names)]  # fmt: skip
        print(kills.HEAD, flush=True)
        bad = lanes({name: parts[name] for name in chosen}, place, asked.jobs)
    finally:
        shutil.rmtree(place)
    use = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    spent = sum(u.ru_utime + u.ru_stime for u in use)
    print(f"\n{bad} faults; {spent / 60:.1f} CPU minutes", flush=True)
    return 1 if bad else 0


def lanes(parts, place, jobs):
    """Each part in a child, so many at a time; prints what it says, returns its faults' count."""
    waiting, running, bad = list(parts.items()), {}, 0
    while waiting or running:
        while waiting and len(running) < jobs:
            name, part = waiting.pop(0)
            folder = place / f"part{len(waiting)}"
            folder.mkdir()
            running[harness.spawn(partial(_told, part, folder), folder)] = name, folder
        pid, status = os.wait()
        name, folder = running.pop(pid)
        if os.waitstatus_to_exitcode(status):
            lines, faults = [f"{name} did not come through"], [(folder / "said").read_text()]
        else:
            lines, faults = json.loads((folder / "told.json").read_text())
        print("\n".join(lines), *(f"    {fault}" for fault in faults), sep="\n", flush=True)
        bad += len(faults)
    return bad


def _told(part, folder):
    (folder / "told.json").write_text(json.dumps(part(folder / "work")))
    return 0


def killed(case, asked, place):
    tally = kills.Attack(case, place, asked.share, asked.seed, asked.real).run()
    return [tally.line()], [" ".join(map(str, fault)) for fault in tally.faults]


def raced(cases, asked, place):
    names = ("run, two checkpoints", "resume of: run, checkpoint.keep=1", "sft", "export")
    some = [case for case in cases if case.name in names]
    count, refused, faults = races.rounds(
        some, place, max(4, round(ROUNDS * asked.share)), asked.seed
    )
    line = f"races: {count} rounds of 2, 4 or 8 processes; {refused} had to be refused"
    return [f"{line}; {len(faults)} rounds wrong"], [" ".join(map(str, f)) for f in faults]


def fuzzed(name, fuzzer, trials, asked, place):
    trials = max(20, round(trials * asked.share))
    counts, faults = fuzzer(place, trials, asked.seed)
    told = ", ".join(f"{n} {what}" for what, n in counts.items())
    return [f"{name}: {trials} trials: {told}; {len(faults)} wrong"], faults


if __name__ == "__main__":
    sys.exit(main())
