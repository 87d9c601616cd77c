"""Memory and time over a folder of many lines: `python tests/faults/growth.py [LINES [VERB]]`.

What a tool takes beyond its imports, for a folder of 100 lines and for one of a million: each in a
process of its own, so that the peak is its own.
"""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve()
TORCH = ("resume",)  # who imports it; what reads runs does not


def fill(folder, lines):
    """Blow a run's metrics up to so many lines, one in a hundred an evaluation; how many steps."""
    draw = random.Random(0)
    there = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().split("\n")[:-1]]
    step = [line for line in there if "reward/mean" in line][-1]
    evaluation = [line for line in there if "eval/score" in line][-1]
    timed = ("perf/", "timing_s/")

    def tail():
        """A line without its beginning, its numbers mostly means of float32 tensors."""
        short = {k: struct.unpack("f", struct.pack("f", draw.random()))[0] for k in step}
        values = {k: draw.random() if k.startswith(timed) else short[k] for k in step}
        return json.dumps({k: v for k, v in values.items() if k not in ("step", "perf/tokens")})

    tails = [tail().removeprefix("{") for _ in range(1000)]
    steps = 0
    with open(folder / "metrics.jsonl", "w") as metrics:
        for n in range(lines):
            if n % 100 == 0:
                metrics.write(json.dumps({**evaluation, "step": steps}) + "\n")
            else:
                steps += 1
                metrics.write(f'{{"step": {steps}, "perf/tokens": {8 * steps}, {tails[n % 1000]}\n')
    return steps


def measure(words):
    """(seconds of CPU, peak MB, exit status) of `rlzoo WORDS`."""
    code = "import sys; from rlzoo.cli import main; sys.exit(main(sys.argv[1:]))"
    script = (
        "import resource, subprocess, sys\n"
        f"done = subprocess.run([sys.executable, '-c', {code!r}, *sys.argv[1:]],"
        " capture_output=True, text=True)\n"
        "use = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(use.ru_utime + use.ru_stime, use.ru_maxrss / 1024, done.returncode,"
        " done.stderr[-300:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True
    )
    seconds, peak, status, *said = done.stdout.split(maxsplit=3)
    return float(seconds), float(peak), int(status), "".join(said)


def prepare(place, lines):
    """A finished run and one that can be resumed, both of so many lines."""
    from faults import harness, kills
    from helpers.micro import make_model

    harness.preload()
    model = make_model(place / "model")
    words = ["run", "recipe=ppo_gae", *kills.small(model), "checkpoint.every=1", "loggers=csv"]
    cut = place / "cut"
    assert harness.rlzoo([*words, f"run.dir={cut}"], place).status == 0
    steps = fill(cut, lines)
    shutil.copytree(cut, place / "done", copy_function=os.link)  # both are large, and read in turn
    (cut / "summary.json").unlink()
    newest = max((cut / "checkpoints").iterdir())
    state = json.loads((newest / "state.json").read_text())
    (newest / "state.json").write_text(json.dumps({**state, "step": steps}))
    from rlzoo.train.checkpoint import write_manifest

    (newest / "manifest.json").unlink()
    write_manifest(newest)
    newest.rename(newest.with_name(f"step-{steps:08d}"))
    recipe = re.sub(r"(train:\n  steps:) \d+", rf"\g<1> {steps + 2}",
                    (cut / "recipe.yaml").read_text())  # fmt: skip
    (cut / "recipe.yaml").write_text(recipe)


def main():
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    sys.path[:0] = [str(HERE.parents[1])]
    place = Path(tempfile.mkdtemp(prefix="growth-"))
    try:
        for n in (100, lines):
            (place / str(n)).mkdir()
            make = [sys.executable, __file__, "prepare", place / str(n), str(n)]
            subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
        print(
            "| command | torch | peak, 100 lines | peak | more | CPU s |\n|---|---|---|---|---|---|"
        )
        worst = 0.0
        for name, words in {"doctor": ["doctor", "done"], "compare": ["compare", "done"],
                            "resume": ["resume", "cut"]}.items():  # fmt: skip
            if sys.argv[2:] and name not in sys.argv[2:]:
                continue
            small, large = (measure([words[0], place / str(n) / words[1]]) for n in (100, lines))
            more = large[1] - small[1]
            worst = max(worst, more)
            print(f"| {name} | {'yes' if name in TORCH else 'no'} | {small[1]:.0f} MB | "
                  f"{large[1]:.0f} MB | {more:.0f} MB | {large[0]:.1f} |", flush=True)  # fmt: skip
            if large[2] or small[2]:
                print("failed:", small[3], large[3])
        return 1 if worst > 300 else 0
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    if sys.argv[1:2] == ["prepare"]:
        sys.path[:0] = [str(HERE.parents[1])]
        prepare(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
