"""rlzoo's test vectors in NumPy or JAX only: `python vectors.py [jax] ../vectors/v1`. The functions
are ours; put yours in their place."""

import json
import sys
from pathlib import Path

if "jax" in sys.argv:
    import jax
    import jax.numpy as np

    jax.config.update("jax_enable_x64", True)
else:
    import numpy as np


def gae(rewards, values, bootstrap_values, response_mask, gamma, lam):
    out, last, after = [], np.zeros(len(rewards)), bootstrap_values
    for t in reversed(range(rewards.shape[1])):
        m, delta = response_mask[:, t] > 0, rewards[:, t] + gamma * after - values[:, t]
        last = np.where(m, delta + gamma * lam * last, last)
        after = np.where(m, values[:, t], after)
        out.append(np.where(m, last, 0))
    out = np.stack(out[::-1], 1)
    return {"advantages": out, "returns": out + values}


def groups(sequence_rewards, group_ids, response_mask, eps):
    r, same = sequence_rewards, group_ids[:, None] == group_ids
    n, mean = same.sum(1), same @ r / same.sum(1)
    std = np.sqrt((same * (r - mean[:, None]) ** 2).sum(1) / np.maximum(n - 1, 1))
    a = np.where(std < 1e-12, 0, r - mean)
    found = {"grpo": a / (std + eps), "dr_grpo": a, "rloo": a * n / np.maximum(n - 1, 1)}
    return {name: x[:, None] * response_mask for name, x in found.items()}


def whiten(x, response_mask, ddof, eps):
    at = x[response_mask > 0]
    return {"whitened": response_mask * (x - at.mean()) / np.sqrt(at.var(ddof=ddof) + eps)}


def clip(log_probs, old_log_probs, advantages, response_mask, clip_low, clip_high):
    ratio = np.exp(log_probs - old_log_probs)
    a, b = ratio * advantages, ratio.clip(1 - clip_low, 1 + clip_high) * advantages
    return {"loss": -np.minimum(a, b) * response_mask, "gradient": -a * (a <= b) * response_mask}


def kl(log_probs, ref_log_probs, response_mask):
    x = log_probs - ref_log_probs
    found = {
        "k1": x,
        "k1_gradient": 1 + 0 * x,
        "k2": x**2 / 2,
        "k2_gradient": x,
        "k3": np.exp(-x) - 1 + x,
        "k3_gradient": 1 - np.exp(-x),
    }
    return {name: y * response_mask for name, y in found.items()}


def aggregation(loss, response_mask, microbatches):
    count, out = response_mask.sum(1, keepdims=True), {}
    live = (count > 0).sum()
    for name, w in (
        ("token_mean", response_mask / count.sum()),
        ("seq_mean_token_mean", response_mask / np.maximum(count, 1) / live),
        ("seq_mean_token_sum", response_mask / live),
    ):
        parts = [(w * loss)[np.array(rows)].sum() for rows in microbatches]
        out |= {name: sum(parts), name + "_parts": parts, name + "_weights": w}
    return out


for file in sorted(Path(sys.argv[-1]).glob("*.json")):
    for case in (document := json.loads(file.read_text()))["cases"]:
        given = {n: x if n == "microbatches" else np.array(x) for n, x in case["inputs"].items()}
        found = globals()[document["what"]](**given, **case["options"])
        for name, right in case["outputs"].items():
            gap = np.abs(np.array(found[name]) - np.array(right)).max()
            assert gap <= document["tolerance"], f"{file.name}, {case['name']}: {name} off by {gap}"
        print("passed", file.name, case["name"])
