"""How fast the primitives are, as ratios within one run: against loops over time, and over rows.

    python tests/benchmarks/bench_ops.py [--json] [--rows 1024] [--steps 4096] [--repeats 7]

One thread, CPU seconds, float32, the median of several runs, each preceded by one to warm up.
The loops are what one writes first: the same recursion, a column at a time; the same group
statistics, a dictionary of lists and a loop over rows. Of the estimators it is the bare function
that is measured, as of the loops: checking a call's inputs and outputs costs about 1.5 ms more.
"""

import argparse
import json
import statistics
import time
from collections import defaultdict

import torch

import rlzoo
from rlzoo.ops import linear_scan, td_lambda

GROUP_ROWS, GROUP_SIZE, GROUP_STEPS = 4096, 8, 64


# ---------------------------------------------------------------- what one writes first


def scan_loop(b, a):
    out, x = torch.empty_like(b), b.new_zeros(len(b))
    for t in reversed(range(b.shape[1])):
        x = b[:, t] + (a[:, t] if isinstance(a, torch.Tensor) else a) * x
        out[:, t] = x
    return out


def gae_loop(rewards, values, end, gamma, lam):
    """Full rows: no mask at all."""
    out, acc, ahead = torch.empty_like(rewards), torch.zeros_like(end), end
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * ahead - values[:, t]
        acc = delta + gamma * (lam[:, t] if isinstance(lam, torch.Tensor) else lam) * acc
        ahead = values[:, t]
        out[:, t] = acc
    return out


def masked_gae_loop(rewards, values, end, mask, gamma, lam):
    """Ragged rows and holes: what is off the mask is stepped over."""
    out, acc, ahead = torch.empty_like(rewards), torch.zeros_like(end), end
    for t in reversed(range(rewards.shape[1])):
        on = mask[:, t].bool()
        delta = rewards[:, t] + gamma * ahead - values[:, t]
        step = delta + gamma * (lam[:, t] if isinstance(lam, torch.Tensor) else lam) * acc
        acc = torch.where(on, step, acc)
        ahead = torch.where(on, values[:, t], ahead)
        out[:, t] = torch.where(on, acc, 0)
    return out


def grpo_loop(rewards, mask, group_ids, center_only=False):
    """Lists by group, then row by row."""
    groups = defaultdict(list)
    for i in range(len(rewards)):
        groups[group_ids[i].item()].append(rewards[i])
    mean = {g: torch.stack(x).mean() for g, x in groups.items()}
    std = {g: torch.stack(x).std() for g, x in groups.items()}
    out = rewards.clone()
    for i in range(len(rewards)):
        g = group_ids[i].item()
        out[i] = rewards[i] - mean[g]
        if not center_only:
            out[i] = out[i] / (std[g] + 1e-6)
    return out[:, None] * mask


def dr_grpo_loop(rewards, mask, group_ids):
    return grpo_loop(rewards, mask, group_ids, center_only=True)


def rloo_loop(rewards, mask, group_ids):
    groups = defaultdict(list)
    for i in range(len(rewards)):
        groups[group_ids[i].item()].append(rewards[i])
    out = rewards.clone()
    for i in range(len(rewards)):
        others = groups[group_ids[i].item()]
        n = len(others)
        out[i] = n / (n - 1) * (rewards[i] - torch.stack(others).mean())
    return out[:, None] * mask


def opo_loop(rewards, mask, group_ids):
    groups, length = defaultdict(list), mask.sum(1)
    for i in range(len(rewards)):
        groups[group_ids[i].item()].append(i)
    base = {g: (length[i] * rewards[i]).sum() / length[i].sum() for g, i in groups.items()}
    out = rewards.clone()
    for i in range(len(rewards)):
        out[i] = rewards[i] - base[group_ids[i].item()]
    return out[:, None] * mask


# ---------------------------------------------------------------- measuring


def seconds(function, repeats):
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times)


def make(rows, steps):
    draw = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, rows, steps, generator=draw)
    length = torch.randint(steps // 2, steps + 1, (rows, 1), generator=draw)
    place = torch.arange(steps)
    ragged = (place < length).float()
    holes = ragged.clone()
    for _ in range(4):  # four observations of steps / 40 tokens in each row
        begin = torch.randint(0, steps, (rows, 1), generator=draw)
        holes[(place >= begin) & (place < begin + steps // 40)] = 0
    lam = torch.rand(rows, steps, generator=draw)
    return rewards, values, torch.randn(rows, generator=draw), ragged, holes, lam


def over_time(rows, steps):
    """(what, fast, slow, least ratio wanted)."""
    r, v, end, ragged, holes, lam = make(rows, steps)
    full = torch.ones_like(r)
    g, number = 0.99, 0.95
    return [
        ("linear_scan, number", lambda: linear_scan(r, number), lambda: scan_loop(r, number), 8),
        ("linear_scan, tensor", lambda: linear_scan(r, lam), lambda: scan_loop(r, lam), 2.5),
        ("td_lambda, number, full rows", lambda: td_lambda(r, v, end, full, gamma=g, lam=number),
         lambda: gae_loop(r, v, end, g, number), 8),
        ("td_lambda, number, ragged", lambda: td_lambda(r, v, end, ragged, gamma=g, lam=number),
         lambda: masked_gae_loop(r, v, end, ragged, g, number), 8),
        ("td_lambda, tensor, full rows", lambda: td_lambda(r, v, end, full, gamma=g, lam=lam),
         lambda: gae_loop(r, v, end, g, lam), 2.5),
        ("td_lambda, number, holes", lambda: td_lambda(r, v, end, holes, gamma=g, lam=number),
         lambda: masked_gae_loop(r, v, end, holes, g, number), 2.5),
        ("td_lambda, tensor, holes", lambda: td_lambda(r, v, end, holes, gamma=g, lam=lam),
         lambda: masked_gae_loop(r, v, end, holes, g, lam), 2.5),
    ]  # fmt: skip


def over_rows():
    draw = torch.Generator().manual_seed(0)
    rewards = torch.rand(GROUP_ROWS, generator=draw)
    mask = torch.ones(GROUP_ROWS, GROUP_STEPS)
    ids = torch.randperm(GROUP_ROWS, generator=draw) // GROUP_SIZE
    zoo = rlzoo.load_zoo()
    loops = {"grpo": grpo_loop, "dr_grpo": dr_grpo_loop, "rloo": rloo_loop, "opo": opo_loop}
    return [
        (f"{name}, {GROUP_ROWS} rows in any order",
         lambda f=zoo.estimators[name].function: f(rewards, mask, ids),
         lambda f=loop: f(rewards, mask, ids), 20)
        for name, loop in loops.items()
    ]  # fmt: skip


def measure(rows=1024, steps=4096, repeats=7):
    results = []
    for what, fast, slow, wanted in [*over_time(rows, steps), *over_rows()]:
        torch.testing.assert_close(fast(), slow(), rtol=1e-3, atol=1e-3)
        ours, theirs = seconds(fast, repeats), seconds(slow, max(3, repeats // 2))
        results.append({"what": what, "ms": 1e3 * ours, "loop_ms": 1e3 * theirs,
                        "ratio": theirs / ours, "wanted": wanted})  # fmt: skip
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    for name, default in (("rows", 1024), ("steps", 4096), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = measure(options.rows, options.steps, options.repeats)
    if options.json:
        print(json.dumps({**vars(options), "torch": torch.__version__, "results": results}))
        return
    print(f"{options.rows} x {options.steps} float32, one thread, CPU ms (median)\n")
    print(f"{'':36}{'rlzoo':>9}{'loop':>10}{'ratio':>9}{'wanted':>9}")
    for r in results:
        print(f"{r['what']:36}{r['ms']:9.2f}{r['loop_ms']:10.1f}{r['ratio']:8.1f}x"
              f"{r['wanted']:8}x{'' if r['ratio'] >= r['wanted'] else '  MISSED'}")  # fmt: skip


if __name__ == "__main__":
    main()
