"""Writes v1/*.json: inputs and right outputs, `python docs/vectors/make.py`.

By loops over tokens in decimal numbers of 50 digits, from the definitions and not from rlzoo's
functions; tests hold those against them. A changed definition would be v2.
"""

import json
import random
from decimal import Decimal, getcontext
from pathlib import Path

getcontext().prec = 50
HERE = Path(__file__).parent / "v1"
draw = random.Random(47)
D = Decimal
HOLES = [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0]]
PADDED = [[1] * n + [0] * (6 - n) for n in (6, 4, 2, 1)]
FULL = [[1] * 6 for _ in range(4)]
EMPTY = [*HOLES[:3], [0] * 6]


def numbers(mask, low=-1.0, high=1.0):
    """Rounded to thousandths; 0 off the mask."""
    return [[round(draw.uniform(low, high), 3) if m else 0.0 for m in row] for row in mask]


def each(mask, make):
    """make(row, step) as a float at actions, 0.0 elsewhere."""
    return [[float(make(i, t)) if m else 0.0 for t, m in enumerate(row)]
            for i, row in enumerate(mask)]  # fmt: skip


def gae(rewards, values, bootstrap_values, response_mask, gamma, lam):
    gamma, lam, steps = D(gamma), D(lam), len(response_mask[0])
    found = []
    for i, row in enumerate(response_mask):
        advantage, after, out = D(0), D(bootstrap_values[i]), [D(0)] * steps
        for t in reversed(range(steps)):
            if row[t]:
                delta = D(rewards[i][t]) + gamma * after - D(values[i][t])
                advantage, after = delta + gamma * lam * advantage, D(values[i][t])
                out[t] = advantage
        found.append(out)
    return {
        "advantages": each(response_mask, lambda i, t: found[i][t]),
        "returns": each(response_mask, lambda i, t: found[i][t] + D(values[i][t])),
    }


def groups(sequence_rewards, group_ids, response_mask, eps):
    found = {"grpo": [], "dr_grpo": [], "rloo": []}
    for reward, name in zip(sequence_rewards, group_ids, strict=True):
        own = [D(r) for r, other in zip(sequence_rewards, group_ids, strict=True) if other == name]
        n, mean = len(own), sum(own) / len(own)
        flat = max(own) - min(own) <= D("1e-12")  # equal up to rounding, or one response
        centered = D(0) if flat else D(reward) - mean
        std = (sum((r - mean) ** 2 for r in own) / max(n - 1, 1)).sqrt()
        found["grpo"].append(centered / (std + D(eps)))
        found["dr_grpo"].append(centered)
        found["rloo"].append(centered * n / max(n - 1, 1))
    return {name: each(response_mask, lambda i, t, x=x: x[i]) for name, x in found.items()}


def whiten(x, response_mask, ddof, eps):
    at = [D(v) for row, m in zip(x, response_mask, strict=True)
          for v, k in zip(row, m, strict=True) if k]  # fmt: skip
    mean = sum(at) / len(at)
    variance = sum((v - mean) ** 2 for v in at) / max(len(at) - ddof, 1)
    scale = (variance + D(eps)).sqrt()
    return {"whitened": each(response_mask, lambda i, t: (D(x[i][t]) - mean) / scale)}


def clip(log_probs, old_log_probs, advantages, response_mask, clip_low, clip_high):
    def ratio(i, t):
        return (D(log_probs[i][t]) - D(old_log_probs[i][t])).exp()

    def inside(i, t):
        near = min(max(ratio(i, t), 1 - D(clip_low)), 1 + D(clip_high))
        a = D(advantages[i][t])
        return min(ratio(i, t) * a, near * a)

    def slope(i, t):
        a = D(advantages[i][t])
        return -ratio(i, t) * a if inside(i, t) == ratio(i, t) * a else D(0)

    return {
        "loss": each(response_mask, lambda i, t: -inside(i, t)),
        "gradient": each(response_mask, slope),
    }


def kl(log_probs, ref_log_probs, response_mask):
    def gap(i, t):
        return D(log_probs[i][t]) - D(ref_log_probs[i][t])

    forms = {
        "k1": (lambda x: x, lambda x: D(1)),
        "k2": (lambda x: x * x / 2, lambda x: x),
        "k3": (lambda x: (-x).exp() - 1 + x, lambda x: 1 - (-x).exp()),
    }
    return {
        name + end: each(response_mask, lambda i, t, f=f: f(gap(i, t)))
        for name, pair in forms.items()
        for end, f in zip(("", "_gradient"), pair, strict=True)
    }


def aggregation(loss, response_mask, microbatches):
    counts = [sum(row) for row in response_mask]
    rows = sum(n > 0 for n in counts)  # a row without an action counts nowhere
    weights = {
        "token_mean": lambda i, t: D(1) / sum(counts),
        "seq_mean_token_mean": lambda i, t: D(1) / (rows * counts[i]),
        "seq_mean_token_sum": lambda i, t: D(1) / rows,
    }
    out = {}
    for name, weight in weights.items():
        terms = each(response_mask, lambda i, t, w=weight: w(i, t) * D(loss[i][t]))
        out[f"{name}_weights"] = each(response_mask, weight)
        out[f"{name}_parts"] = [float(sum(D(x) for i in part for x in terms[i]))
                                for part in microbatches]  # fmt: skip
        out[name] = float(sum(D(x) for row in terms for x in row))
    return out


def cases():
    """file -> (function, [(name, inputs, options)])"""
    credit = []
    for name, mask, end, gamma, lam in (
        ("full rows", FULL, 0.0, 1.0, 0.95),
        ("padded", PADDED, 0.0, 0.97, 0.9),
        ("holes: observations inside a response", HOLES, 0.0, 0.97, 0.9),
        ("truncated: a value after the last action", HOLES, 0.4, 0.97, 0.9),
        ("lambda 0", HOLES, 0.4, 1.0, 0.0),
        ("lambda 1", HOLES, 0.4, 1.0, 1.0),
    ):
        inputs = {"rewards": numbers(mask), "values": numbers(mask, 0),
                  "bootstrap_values": [end] * 4, "response_mask": mask}  # fmt: skip
        credit.append((name, inputs, {"gamma": gamma, "lam": lam}))
    ids, masks = [7, 3, 7, -1, 3, 7], [*HOLES, *PADDED[:2]]
    grouped = [
        (name, {"sequence_rewards": r, "group_ids": ids, "response_mask": masks}, {"eps": 1e-6})
        for name, r in (
            ("scattered groups and a group of one", [1.0, 0.25, 0.0, 1.0, 0.5, 0.75]),
            ("ties: two of three, and a whole group", [1.0, 0.5, 1.0, 0.0, 0.5, 0.0]),
            ("equal up to rounding: 0", [0.1 + 0.2, 0.5, 0.3, 0.0, 0.5, 0.3]),
        )
    ]
    moved = {"log_probs": numbers(HOLES, -2, -0.1), "old_log_probs": numbers(HOLES, -2, -0.1),
             "advantages": numbers(HOLES), "response_mask": HOLES}  # fmt: skip
    gap = {"log_probs": moved["log_probs"], "ref_log_probs": numbers(HOLES, -2, -0.1),
           "response_mask": HOLES}  # fmt: skip
    x = {"x": numbers(HOLES), "response_mask": HOLES}
    loss = {"loss": numbers(EMPTY), "response_mask": EMPTY, "microbatches": [[0], [1, 2], [3]]}
    return {
        "gae": (gae, credit),
        "groups": (groups, grouped),
        "whiten": (whiten, [(f"ddof {n}", x, {"ddof": n, "eps": 1e-8}) for n in (0, 1)]),
        "clip": (clip, [("two sides", moved, {"clip_low": 0.2, "clip_high": 0.28})]),
        "kl": (kl, [("value and slope", gap, {})]),
        "aggregation": (aggregation, [("three micro-batches, a row without an action", loss, {})]),
    }


def documents():
    for name, (function, some) in cases().items():
        yield name, {"version": 1, "what": name, "tolerance": 1e-12, "cases": [
            {"name": title, "inputs": inputs, "options": options,
             "outputs": function(**inputs, **options)}
            for title, inputs, options in some
        ]}  # fmt: skip


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for name, document in documents():
        lines = [json.dumps(case) for case in document.pop("cases")]
        head = json.dumps(document)[:-1]
        body = ",\n".join(lines)
        (HERE / f"{name}.json").write_text(f'{head}, "cases": [\n{body}\n]}}\n')
