"""Does a trainer's gradient depend on how a batch is cut, padded, ordered or dealt to processes?

    python invariance.py my_trainer.py:make            # a table; exit status 1 if anything differs
    python invariance.py my_trainer.py:make loss_type=dapo --json results.json

Needs torch. The adapter `make(**options)` returns `gradient(batch, rows)`, which takes the batch of
ONE optimizer step through your trainer, in forward passes of `rows` rows (None: all at once), and
returns what the optimizer would get: {name: gradient}, summed over passes and processes, before
clipping. It raises NotImplementedError for a cut that the trainer does not make. Each call starts
from the same weights, without dropout. Two processes, as `torchrun` starts them, each get the
whole batch and take the rows that the trainer would deal to it.

batch: prompt_ids, prompt_mask (B, P), padded on the left; response_ids, response_mask (B, T),
padded on the right; advantages, group_ids (B,). Tokens are below 16; 0 is padding. The policy that
sampled is the one that is trained: an adapter with ratios other than 1 gives old log-probs.

A difference of `x 2` means that only the length of the gradient is wrong. Two lines are controls:
the same batch again has to give the same gradient, and one without its last two rows another one.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional as F

PROMPTS, RESPONSES = (3, 7, 2, 5, 6, 4, 7, 1), (2, 9, 4, 1, 7, 3, 8, 5)  # tokens of each row
ADVANTAGES = (1.0, -0.5, 0.25, -1.5, 0.75, 2.0, -1.0, 0.5)


def make_batch():
    """Eight rows of different lengths; their advantages do not add up to 0."""
    generator = torch.Generator().manual_seed(0)

    def tokens(lengths, left):
        width, lengths = max(lengths), torch.tensor(lengths)[:, None]
        at = torch.arange(width)
        mask = (at >= width - lengths) if left else (at < lengths)
        return torch.randint(3, 16, mask.shape, generator=generator) * mask, mask.long()

    batch = dict(zip(("prompt_ids", "prompt_mask"), tokens(PROMPTS, True), strict=True))
    batch |= dict(zip(("response_ids", "response_mask"), tokens(RESPONSES, False), strict=True))
    batch["advantages"] = torch.tensor(ADVANTAGES, dtype=torch.float64)
    return batch | {"group_ids": torch.arange(len(ADVANTAGES)) // 2}


def padded(batch, left=0, right=0):
    by = {"prompt": (left, 0), "respon": (0, right)}
    return {k: F.pad(x, by[k[:6]]) if k[:6] in by else x for k, x in batch.items()}


def taken(batch, rows):
    return {k: x[torch.as_tensor(rows)] for k, x in batch.items()}


BATCH = make_batch()
N = len(ADVANTAGES)
SORTED = taken(BATCH, sorted(range(N), key=lambda i: RESPONSES[i]))
# Changes: name -> (the batch, rows of a forward pass, processes).
CHANGES = {
    "the same again": (BATCH, None, 1),
    "without the last two rows": (taken(BATCH, range(N - 2)), None, 1),
    "more padding on the left": (padded(BATCH, left=5), None, 1),
    "more padding on the right": (padded(BATCH, right=5), None, 1),
    "rows reversed": (taken(BATCH, range(N)[::-1]), None, 1),
    "each row twice": (taken(BATCH, [*range(N), *range(N)]), None, 1),
    "passes of 4 rows": (BATCH, 4, 1),
    "passes of 3 rows, the last of 2": (BATCH, 3, 1),
    "passes of 1 row": (BATCH, 1, 1),
    "passes of 2 rows, sorted by length": (SORTED, 2, 1),
    "passes of 2 rows, more padding": (padded(BATCH, 3, 4), 2, 1),
    "2 processes": (BATCH, None, 2),
    "2 processes, passes of 2 rows": (BATCH, 2, 2),
}
LIMIT = 1e-5  # of the gradient's norm: parts of a float64 model may compute in float32
MOVES = "without the last two rows"


def load(adapter, options):
    """`file.py:function`, called with `key=value` options."""
    path, _, name = adapter.partition(":")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name or "make")(**dict(map(option, options)))


def option(word):
    """`beta=0.1`: its name, and its value as JSON or else as text."""
    key, _, value = word.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def flat(gradients):
    return torch.cat([gradients[k].detach().flatten().double().cpu() for k in sorted(gradients)])


def in_processes(count, change, adapter, options):
    """The first process's gradient of a change; torchrun starts `count` of this script."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "gradient.pt"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   f"--nproc-per-node={count}", __file__, adapter, *options,
                   "--one", change, "--out", str(out)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if not out.exists():
            if "NotImplementedError" in done.stderr:
                raise NotImplementedError
            raise RuntimeError(f"{change}:\n{done.stderr[-3000:]}")
        return torch.load(out)


def measure(gradient, ask_processes=None):
    """change -> what came of it: {"same", "difference", "factor"}, or None if the trainer does not
    do it. gradient(batch, rows); ask_processes(count, change): the same in several processes."""
    whole, found = flat(gradient(BATCH, None)), {}
    if not (whole.isfinite().all() and whole.norm() > 0):
        raise ValueError("the gradient of the batch is zero or not finite")
    for name, (batch, rows, count) in CHANGES.items():
        if count > 1 and ask_processes is None:
            continue
        try:
            g = flat(gradient(batch, rows)) if count == 1 else ask_processes(count, name)
        except NotImplementedError:
            found[name] = None
            continue
        factor = float(g @ whole / (whole @ whole))
        difference = float((g - whole).norm() / whole.norm())
        scaled = float((g - factor * whole).norm() / whole.norm()) < LIMIT
        found[name] = {
            "same": difference < LIMIT,
            "difference": difference,
            "factor": factor if scaled else None,
        }
    return found


def as_text(result):
    if result is None:
        return "not done"
    if result["same"]:
        return "same"
    if result["factor"] is not None:
        return f"x {result['factor']:.3g}"
    return f"{result['difference']:.1%}"


def wrong(found):
    """The changes whose result is not what it has to be."""
    return [name for name, x in found.items() if x and x["same"] == (name == MOVES)]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("adapter", metavar="FILE:FUNCTION")
    parser.add_argument("options", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--json", type=Path, help="add the results to this file")
    parser.add_argument("--alone", action="store_true", help="leave out several processes")
    parser.add_argument("--one", choices=CHANGES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args(arguments)
    gradient = load(a.adapter, a.options)
    if a.one:  # a process among several
        batch, rows, _ = CHANGES[a.one]
        g = flat(gradient(batch, rows))
        if os.environ["RANK"] == "0":
            torch.save(g, a.out)
        return 0
    several = partial(in_processes, adapter=a.adapter, options=a.options)
    found = measure(gradient, None if a.alone else several)
    bad = wrong(found)
    for name, result in found.items():
        print(f"{name:36}{as_text(result):10}{'  <-' if name in bad else ''}")
    if a.json:
        known = json.loads(a.json.read_text()) if a.json.exists() else {}
        label = " ".join([getattr(gradient, "label", a.adapter), *a.options])
        a.json.write_text(json.dumps(known | {label: found}, indent=1) + "\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
