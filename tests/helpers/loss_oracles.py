"""Policy losses of 2025 and 2026, token by token in plain Python, as their sources write them.

Each takes a batch and gives its loss for every token as a list of lists of float64 scalars that
carry the gradient in `log_probs`; 0 off the mask. No code is shared with the zoo.
"""

import math
from collections.abc import Callable

import torch


def actions(c):
    """The positions of each row's actions."""
    return [[t for t, m in enumerate(row) if m] for row in c["response_mask"].tolist()]


def per_token(f: Callable) -> Callable:
    """An oracle from f(log_pi, log_old, A, **options) of one token."""

    def oracle(c, /, **options):
        out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
        for i, row in enumerate(actions(c)):
            for t in row:
                old, a = c["old_log_probs"][i, t].item(), c["advantages"][i, t].item()
                out[i][t] = f(c["log_probs"][i, t], old, a, **options)
        return out

    return oracle


def ppo(log_pi, old, a, low, high):
    """-min(rho A, clip(rho, low, high) A), by cases."""
    rho = torch.exp(log_pi - old)
    if a >= 0:
        return -a * (rho if rho.item() <= high else torch.tensor(high, dtype=torch.float64))
    return -a * (rho if rho.item() >= low else torch.tensor(low, dtype=torch.float64))


@per_token
def up(log_pi, old, a, clip_low=0.2):
    if a > 0:
        return -a * torch.exp(log_pi) / math.exp(log_pi.item())
    return ppo(log_pi, old, a, 1 - clip_low, 1.2)


@per_token
def aspo(log_pi, old, a, clip_low=0.2, clip_high=0.2, c=3.0):
    rho = math.exp(log_pi.item() - old)
    if a > 0:
        weight = 0.0 if rho > 1 + clip_high else min(1 / rho, c)
    else:
        weight = 0.0 if rho < 1 - clip_low else min(rho, c)
    return -weight * a * log_pi


@per_token
def ripo(log_pi, old, a, delta_low=0.05, delta_high=0.05, ratio_min=0.5, ratio_max=10.0):
    low, high = (math.sqrt(d / math.exp(old)) for d in (delta_low, delta_high))
    return ppo(log_pi, old, a, max(1 - low, ratio_min), min(1 + high, ratio_max))


@per_token
def drpo(log_pi, old, a, eps=12.5):
    mu = math.exp(old)
    rho = torch.exp(log_pi) / mu
    return -a * rho + abs(a) * (rho - 1) ** 2 / (2 * (eps / mu))


@per_token
def delightful(log_pi, old, a, eta=1.0):
    delight = a * -log_pi.item()
    return -a * log_pi / (1 + math.exp(-delight / eta))


def dis(c, clip_low=0.3, clip_high=5.0):
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        for t in row:
            r = torch.exp(c["log_probs"][i, t] - c["sampler_log_probs"][i, t].item())
            if 1 - clip_low < r.item() < 1 + clip_high:
                out[i][t] = -r * c["advantages"][i, t].item()
    return out


def ipo(c, threshold=0.1, kl_coef=1e-3):
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        for t in row:
            mu = c["sampler_log_probs"][i, t].item()
            gap = c["log_probs"][i, t] - mu
            out[i][t] = kl_coef * gap * gap
            if abs(math.exp(c["log_probs"][i, t].item()) - math.exp(mu)) <= threshold:
                out[i][t] = out[i][t] - torch.exp(gap) * c["advantages"][i, t].item()
    return out


def m2po(c, threshold=0.04):
    """Algorithm 1: the largest goes, one by one."""
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    places = [(i, t) for i, row in enumerate(actions(c)) for t in row]
    gaps = {p: (c["log_probs"][p] - c["old_log_probs"][p]).item() for p in places}
    region = [p for p in places if c["advantages"][p].item() * gaps[p] > 0]
    region.sort(key=lambda p: gaps[p] ** 2)
    dropped = set()
    while region and sum(gaps[p] ** 2 for p in region) / len(region) > threshold:
        dropped.add(region.pop())
    for p in places:
        if p not in dropped:
            rho = torch.exp(c["log_probs"][p] - c["old_log_probs"][p].item())
            out[p[0]][p[1]] = -rho * c["advantages"][p].item()
    return out


def cppo(c, delta=0.15, weight_min=0.8, budget=0.02, adaptive=True):
    """Algorithm 1, with the budget of section 4.1."""
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        names = ("log_probs", "old_log_probs")
        pi, mu = ([math.exp(c[n][i, t].item()) for t in row] for n in names)
        moved = [abs(x - y) for x, y in zip(pi, mu, strict=True)]
        b = budget
        if adaptive and row:
            b = min(max(quantile(moved, 0.9), budget), 2 * budget)
        spent = earned = 0.0
        for k, t in enumerate(row):
            w = 1 - (1 - weight_min) / max(len(row) - 1, 1) * k
            z, limit = w * moved[k], min(delta, delta + b * earned - spent)
            rho = torch.exp(c["log_probs"][i, t] - c["old_log_probs"][i, t])
            a = c["advantages"][i, t].item()
            if a * (rho.item() - 1) <= 0 or z <= limit:
                out[i][t] = -a * rho
            spent, earned = spent + z, earned + w
    return out


def quantile(x, q):
    x = sorted(x)
    place = q * (len(x) - 1)
    k = int(place)
    return x[k] + (place - k) * (x[min(k + 1, len(x) - 1)] - x[k])


def opsm(c, delta=0.5, clip_low=0.2, clip_high=0.2):
    """Equation 9 of the report: M beside PPO's clip."""
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        gaps = [(c["sampler_log_probs"][i, t] - c["log_probs"][i, t]).item() for t in row]
        for t in row:
            a, old = c["advantages"][i, t].item(), c["old_log_probs"][i, t].item()
            if not (a < 0 and sum(gaps) / len(gaps) > delta):
                out[i][t] = ppo(c["log_probs"][i, t], old, a, 1 - clip_low, 1 + clip_high)
    return out


def high_entropy(c, fraction=0.2, clip_low=0.2, clip_high=0.28):
    places = [(i, t) for i, row in enumerate(actions(c)) for t in row]
    entropies = sorted((c["entropy"][p].item() for p in places), reverse=True)
    threshold = entropies[max(1, int(fraction * len(places))) - 1]
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, t in places:
        if c["entropy"][i, t].item() >= threshold:
            a, old = c["advantages"][i, t].item(), c["old_log_probs"][i, t].item()
            out[i][t] = ppo(c["log_probs"][i, t], old, a, 1 - clip_low, 1 + clip_high)
    return out


def turn_clip(c, clip_low=0.2, clip_high=0.2):
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        for turn in {int(c["turn_ids"][i, t]) for t in row}:
            mine = [t for t in row if int(c["turn_ids"][i, t]) == turn]
            log_w = sum(c["log_probs"][i, t] - c["old_log_probs"][i, t] for t in mine) / len(mine)
            for t in mine:
                a = c["advantages"][i, t].item()
                out[i][t] = ppo(log_w, 0.0, a, 1 - clip_low, 1 + clip_high)
    return out


def a_star_po(c, beta=1e-3):
    """The square of a response, a share of it at each of its tokens."""
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        gap = sum(c["log_probs"][i, t] - c["ref_log_probs"][i, t] for t in row)
        mean = sum(c["advantages"][i, t].item() for t in row) / max(len(row), 1)
        for t in row:
            out[i][t] = (beta * gap - mean) ** 2 / len(row)
    return out


def vimpo(batch, /, beta=5e-4, lam=1.0, actor_coef=5e-3, clip_low=0.2, clip_high=0.28, c=10.0):
    """The README's value loss, and GAE over the values that the policy implies, as loops."""
    names = ("log_probs", "ref_log_probs", "full_kl", "advantages")
    log_pi, ref, kl, advantages = (batch[n] for n in names)
    rows = actions(batch)
    tokens, acting = sum(map(len, rows)), sum(1 for row in rows if row)
    pushes = {}
    for i, row in enumerate(rows):
        values, after = {}, 0.0
        for t in reversed(row):
            term = beta * (log_pi[i, t].item() - ref[i, t].item() - kl[i, t].item())
            values[t] = after = after - term
        after = total = 0.0
        for t in reversed(row):
            total = after - values[t] + lam * total
            after = values[t]
            pushes[i, t] = total
    mean = sum(pushes.values()) / tokens
    var = sum((x - mean) ** 2 for x in pushes.values()) / (tokens - 1)
    out = [[torch.zeros(()).double() for _ in row] for row in log_pi]
    for i, row in enumerate(rows):
        if not row:
            continue
        said = sum(beta * (log_pi[i, t] - ref[i, t] - kl[i, t].item()) for t in row)
        target = sum(advantages[i, t].item() for t in row) / len(row)
        for t in row:
            w = (pushes[i, t] - mean) / math.sqrt(var + 1e-8)
            old = batch["old_log_probs"][i, t].item()
            actor = ppo(log_pi[i, t], old, w, 1 - clip_low, 1 + clip_high)
            if w < 0 and actor.item() > -c * w:
                actor = torch.tensor(-c * w, dtype=torch.float64)
            share = tokens / (acting * len(row))
            out[i][t] = share * (said - target) ** 2 / 2 + actor_coef * actor
    return out


def _group_square(c, log_ratios, beta):
    """Half the sample variance of each group, a share of it at each token."""
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    rows, ids = actions(c), c["group_ids"].tolist()
    errors = [
        beta * sum([log_ratios(i, t) for t in row], torch.zeros(()).double())
        - sum(c["advantages"][i, t].item() for t in row) / max(len(row), 1)
        for i, row in enumerate(rows)
    ]
    for i, row in enumerate(rows):
        mine = [e for e, g, acts in zip(errors, ids, rows, strict=True) if acts and g == ids[i]]
        n = len(mine)
        for t in row:
            if n > 1:
                out[i][t] = n / (2 * (n - 1)) * (errors[i] - sum(mine) / n) ** 2 / len(row)
    return out


def vargrad(c, beta=0.1):
    return _group_square(c, lambda i, t: c["log_probs"][i, t] - c["ref_log_probs"][i, t], beta)


def gvpo(c, beta=0.1):
    return _group_square(c, lambda i, t: c["log_probs"][i, t] - c["old_log_probs"][i, t], beta)


def real(c, tau=0.5):
    """Equation of the paper for each group with both labels, at all tokens of its responses."""
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    rows, ids = actions(c), c["group_ids"].tolist()
    for group in set(ids):
        good, bad = [], []
        for i, row in enumerate(rows):
            if ids[i] == group and row:
                s = sum(c["log_probs"][i, t] - c["old_log_probs"][i, t] for t in row) / len(row)
                label = sum(c["advantages"][i, t].item() for t in row)
                (good if label > 0 else bad).append(s)
        if good and bad:
            loss = torch.log(1 + sum(torch.exp(-s / tau) for s in good))
            loss = loss + torch.log(1 + sum(torch.exp(s / tau) for s in bad))
            for i, row in enumerate(rows):
                for t in row if ids[i] == group else ():
                    out[i][t] = loss / len(row)
    return out


def fipo(c, /, half_life=32.0, weight_low=1.0, weight_high=1.2, safe_ratio=10.0, clip_low=0.2,
         clip_high=0.28, **more):  # fmt: skip
    limit = more.get("c", 10.0)  # its option has the name of the batch
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        gaps = [(c["log_probs"][i, t] - c["old_log_probs"][i, t]).item() for t in row]
        kept = [0.0 if math.exp(g) > limit else g for g in gaps]
        over = 0
        for k, t in enumerate(row):
            future = sum(2 ** (-(j - k) / half_life) * kept[j] for j in range(k, len(row)))
            f = min(max(math.exp(future), weight_low), weight_high)
            a, old = c["advantages"][i, t].item(), c["old_log_probs"][i, t].item()
            if a < 0 and math.exp(gaps[k]) > safe_ratio:
                f = min(max(f, 0.8), 1.0)
            loss = ppo(c["log_probs"][i, t], old, a, 1 - clip_low, 1 + clip_high)
            if a < 0 and math.exp(gaps[k]) > limit:
                loss, over = torch.tensor(-limit * a, dtype=torch.float64), over + 1
            out[i][t] = f * loss
        if over > 1:
            out[i] = [0 * x for x in out[i]]
    return out


def ppo_nll(c, mu=0.1, threshold=0.5, clip_low=0.2, clip_high=0.28):
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    rows = actions(c)
    right = [s > threshold for s in c["sequence_scores"].tolist()]
    n = sum(map(len, rows))
    n_right = sum(len(row) for row, yes in zip(rows, right, strict=True) if yes)
    for i, row in enumerate(rows):
        for t in row:
            a, old = c["advantages"][i, t].item(), c["old_log_probs"][i, t].item()
            out[i][t] = ppo(c["log_probs"][i, t], old, a, 1 - clip_low, 1 + clip_high)
            if right[i]:
                out[i][t] = out[i][t] - mu * n / n_right * c["log_probs"][i, t]
    return out


def ppo_entropy(c, clip_low=0.2, clip_high=0.2):
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        for t in row:
            a, old = c["advantages"][i, t].item(), c["old_log_probs"][i, t].item()
            loss = ppo(c["log_probs"][i, t], old, a, 1 - clip_low, 1 + clip_high)
            out[i][t] = loss - c["entropy_coef"][i, t].item() * c["entropy"][i, t]
    return out


def echo(c, weight=0.05, clip_low=0.2, clip_high=0.2):
    out = [[torch.zeros(()).double() for _ in row] for row in c["log_probs"]]
    for i, row in enumerate(actions(c)):
        for t in row:
            a, old = c["advantages"][i, t].item(), c["old_log_probs"][i, t].item()
            loss = ppo(c["log_probs"][i, t], old, a, 1 - clip_low, 1 + clip_high)
            out[i][t] = loss + weight * c["observation_nll"][i].item()
    return out


# name -> the oracle, and the options beside the defaults that are tried
ORACLES: dict[str, tuple[Callable, list[dict]]] = {
    "up": (up, [{"clip_low": 0.05}]),
    "aspo": (aspo, [{"c": 1.1}, {"clip_low": 0.05, "clip_high": 0.6}]),
    "ripo": (
        ripo,
        [{"delta_low": 0.01, "delta_high": 0.002}, {"ratio_min": 0.9, "ratio_max": 1.1}],
    ),
    "drpo": (drpo, [{"eps": 0.1}]),
    "delightful": (delightful, [{"eta": 0.3}]),
    "dis": (dis, [{"clip_low": 0.05, "clip_high": 0.02}]),
    "ipo": (ipo, [{"threshold": 0.02, "kl_coef": 0.3}]),
    "m2po": (m2po, [{"threshold": 1e-3}, {"threshold": 0.5}]),
    "cppo": (cppo, [{"adaptive": False}, {"budget": 0.05, "weight_min": 0.2}, {"delta": 0.02}]),
    "opsm": (opsm, [{"delta": 0.0}, {"delta": 0.1, "clip_low": 0.1}]),
    "high_entropy": (high_entropy, [{"fraction": 0.5}, {"fraction": 1e-9}]),
    "a_star_po": (a_star_po, [{"beta": 0.5}]),
    "vimpo": (
        vimpo,
        [{"beta": 0.3, "actor_coef": 1.0}, {"beta": 0.1, "lam": 0.7, "actor_coef": 0.5, "c": 1.3}],
    ),
    "vargrad": (vargrad, [{"beta": 2.0}]),
    "gvpo": (gvpo, [{"beta": 2.0}]),
    "real": (real, [{"tau": 0.02}]),
    "fipo": (
        fipo,
        [
            {"half_life": 1.5, "weight_low": 0.3, "weight_high": 3.0},
            {"c": 1.05, "safe_ratio": 1.0, "weight_low": 0.2, "weight_high": 4.0},
            {"c": 3.5, "safe_ratio": 1.2, "clip_low": 0.05, "clip_high": 0.1},
        ],
    ),
    "ppo_nll": (ppo_nll, [{"mu": 1.0, "clip_low": 0.05}, {"threshold": -1.0}]),
    "ppo_entropy": (ppo_entropy, [{"clip_low": 0.05, "clip_high": 0.02}]),
    "turn_clip": (turn_clip, [{"clip_low": 0.05, "clip_high": 0.02}]),
    "echo": (echo, [{"weight": 2.0, "clip_low": 0.05, "clip_high": 0.02}]),
}
