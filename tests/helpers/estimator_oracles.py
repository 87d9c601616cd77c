"""Advantage estimators as loops over tokens, written anew from each formula."""

import itertools
import math
import statistics

import torch

F64 = torch.float64


def _actions(mask, i):
    return mask[i].nonzero()[:, 0].tolist()


def all_runs(ids, mask):
    """(row, token, first token of its run) of every action."""
    for i in range(len(mask)):
        begin, before = 0, None
        for t in _actions(mask, i):
            begin = t if before is None or ids[i, t] != ids[i, before] else begin
            before = t
            yield i, t, begin


def _mates(columns, i):
    """The rows of i's group."""
    return [j for j, g in enumerate(columns["group_ids"]) if g == columns["group_ids"][i]]


def _lambda_returns(c, gamma, lam):
    """GAE as a double sum over later TD errors; lam per row."""
    out = torch.zeros_like(c["rewards"])
    for i in range(len(out)):
        actions = _actions(c["response_mask"], i)
        ahead = [*(c["values"][i, t] for t in actions[1:]), c["bootstrap_values"][i]]
        deltas = [c["rewards"][i, t] + gamma * v - c["values"][i, t]
                  for t, v in zip(actions, ahead, strict=False)]  # fmt: skip
        for at, t in enumerate(actions):
            out[i, t] = sum((gamma * lam[i]) ** k * d for k, d in enumerate(deltas[at:]))
    return out


def gae(c, gamma=1.0, lam=0.95):
    return _lambda_returns(c, gamma, [lam] * len(c["rewards"]))


def mc(c, gamma=1.0):
    return gae(c, gamma, 1.0)


def td0(c, gamma=1.0):
    return gae(c, gamma, 0.0)


def gae_decoupled(c, gamma=1.0, lam_actor=0.95, lam_critic=1.0):
    return gae(c, gamma, lam_actor), gae(c, gamma, lam_critic) + c["values"]


def gae_length_adaptive(c, gamma=1.0, alpha=0.05, lam_critic=1.0):
    lengths = c["response_mask"].sum(1).tolist()
    lam = [max(0.0, 1 - 1 / (alpha * n)) if n else 0.0 for n in lengths]
    return _lambda_returns(c, gamma, lam), gae(c, gamma, lam_critic) + c["values"]


def n_step(c, gamma=1.0, n=4):
    out = torch.zeros_like(c["rewards"])
    for i in range(len(out)):
        actions = _actions(c["response_mask"], i)
        for at, t in enumerate(actions):
            window = actions[at : at + n]
            out[i, t] = sum(gamma**k * c["rewards"][i, s] for k, s in enumerate(window))
            inside = at + n < len(actions)
            v = c["values"][i, actions[at + n]] if inside else c["bootstrap_values"][i]
            out[i, t] += gamma ** len(window) * v - c["values"][i, t]
    return out


def vtrace(c, gamma=1.0, lam=1.0, rho_bar=1.0, c_bar=1.0):
    """v_s = V_s + sum_t gamma^(t-s) (prod of lam c) rho_t delta_t, the sum as in the paper."""
    out, targets = torch.zeros_like(c["rewards"]), torch.zeros_like(c["rewards"])
    ratio = (c["old_log_probs"] - c["sampler_log_probs"]).exp()
    for i in range(len(out)):
        actions = _actions(c["response_mask"], i)
        end = c["bootstrap_values"][i]
        v = [c["values"][i, t] for t in actions]
        rho = [min(rho_bar, ratio[i, t].item()) for t in actions]
        cs = [lam * min(c_bar, ratio[i, t].item()) for t in actions]
        r = [c["rewards"][i, t] for t in actions]
        delta = [rho[s] * (r[s] + gamma * x - v[s]) for s, x in enumerate([*v, end][1:])]
        target = [v[s] + sum(gamma ** (t - s) * math.prod(cs[s:t]) * delta[t]
                             for t in range(s, len(v))) for s in range(len(v))]  # fmt: skip
        for s, t in enumerate(actions):
            targets[i, t] = target[s]
            out[i, t] = rho[s] * (r[s] + gamma * [*target, end][s + 1] - v[s])
    return out, targets


def _to_go(x, mask, gamma=1.0):
    out = torch.zeros_like(x)
    for i in range(len(x)):
        actions = _actions(mask, i)
        for at, t in enumerate(actions):
            out[i, t] = sum(gamma**k * x[i, s] for k, s in enumerate(actions[at:]))
    return out


def reinforce(c, gamma=1.0):
    return _to_go(c["rewards"], c["response_mask"], gamma)


def _by_group(c, rewards, formula):
    """formula(R of the group, own place in it, rows) at every action; a group of one gives 0."""
    out = torch.zeros_like(c["response_mask"])
    for i in range(len(out)):
        mates = _mates(c, i)
        r = [rewards[j].item() for j in mates]
        flat = max(r) - min(r) <= 1e-6 * max(1, abs(max(r)), abs(min(r)))
        if len(mates) > 1:
            out[i] = formula(r, mates.index(i), mates, flat)
    return out * c["response_mask"]


def _std(r):
    mean = sum(r) / len(r)
    return math.sqrt(sum((x - mean) ** 2 for x in r) / (len(r) - 1))


def _grpo(eps):
    return lambda r, i, _, flat: 0.0 if flat else (r[i] - sum(r) / len(r)) / (_std(r) + eps)


def grpo(c, eps=1e-6):
    return _by_group(c, c["sequence_rewards"], _grpo(eps))


def dr_grpo(c):
    formula = lambda r, i, _, flat: 0.0 if flat else r[i] - sum(r) / len(r)  # noqa: E731
    return _by_group(c, c["sequence_rewards"], formula)


def rloo(c):
    def formula(r, i, _, flat):
        others = r[:i] + r[i + 1 :]
        return 0.0 if flat else r[i] - sum(others) / len(others)

    return _by_group(c, c["sequence_rewards"], formula)


def opo(c, leave_one_out=False):
    lengths = c["response_mask"].sum(1).tolist()

    def formula(r, i, mates, flat):
        use = [k for k in range(len(r)) if k != i or not leave_one_out]
        total = sum(lengths[mates[k]] for k in use)
        if flat or not total:
            return 0.0
        return r[i] - sum(lengths[mates[k]] * r[k] for k in use) / total

    return _by_group(c, c["sequence_rewards"], formula)


def gpg(c, f_norm=1.0):
    spread = []
    for i in range(len(c["group_ids"])):
        r = [c["sequence_rewards"][j].item() for j in _mates(c, i)]
        spread.append(max(r) - min(r) > 1e-6 * max(1, abs(max(r)), abs(min(r))))
    return len(spread) / max(1, sum(spread)) / f_norm * dr_grpo(c)


def _subsets_max(r, k):
    """Mean over the subsets of size k of their largest element."""
    sets = list(itertools.combinations(r, k))
    return sum(max(s, default=0.0) for s in sets) / len(sets)


def pkpo(c, k=4, baseline="none"):
    def formula(r, i, *_):
        size = min(k, len(r))
        others = r[:i] + r[i + 1 :]
        with_it = _subsets_max([max(r[i], x) for x in others], size - 1) if size > 1 else r[i]
        with_it = max(with_it, r[i])
        without = _subsets_max(others, size - 1) if baseline != "none" else 0.0
        return size / len(r) * (with_it - without)

    return _by_group(c, c["sequence_scores"], formula)


def maxrl(c):
    def formula(r, i, _, flat):
        mean = sum(r) / len(r)
        return 0.0 if flat or mean <= 0 else (r[i] - mean) / mean

    return _by_group(c, c["sequence_scores"], formula)


def batch_mean(c, gamma=1.0):
    mask = c["response_mask"]
    to_go, out = _lambda_returns(c | {"values": 0 * mask, "bootstrap_values": 0 * mask[:, 0]},
                                 gamma, [1.0] * len(mask)), torch.zeros_like(mask)  # fmt: skip
    actions = [_actions(mask, i) for i in range(len(mask))]
    for i, own in enumerate(actions):
        for k, t in enumerate(own):
            alive = [to_go[j, a[k]] for j, a in enumerate(actions) if len(a) > k]
            out[i, t] = to_go[i, t] - sum(alive) / len(alive)
    return out


def confidence(c):
    out = torch.zeros_like(c["response_mask"])
    for i in range(len(out)):
        for t in _actions(c["response_mask"], i):
            out[i, t] = c["sequence_rewards"][i] - c["sum_pi_squared"][i, t]
    return out


def vineppo(c):
    out = torch.zeros_like(c["rewards"])
    runs = list(all_runs(c["branch_steps"], c["response_mask"]))
    for i, t, begin in runs:
        inside = [s for j, s, b in runs if (j, b) == (i, begin)]
        after = [s for j, s, _ in runs if j == i and s > max(inside)]
        v = c["branch_values"]
        out[i, t] = c["rewards"][i, inside].sum() - v[i, begin] + (v[i, after[0]] if after else 0)
    return out


def prime(c, gamma=1.0):
    mask, own = c["response_mask"], c["implicit_rewards"]
    centred = torch.zeros_like(mask)
    for i in range(len(mask)):
        means = [own[j][mask[j].bool()].mean() for j in _mates(c, i) if j != i and mask[j].any()]
        centred[i] = own[i] - (sum(means) / len(means) if means else 0.0)
    alone = torch.tensor([len(_mates(c, i)) == 1 for i in range(len(mask))])
    outcome = rloo({**c, "sequence_rewards": c["sequence_scores"]})
    return torch.where(alone[:, None], 0, _to_go(centred, mask, gamma)) + outcome


def gigpo(c, gamma=0.95, step_weight=1.0):
    out, mask = dr_grpo(c), c["response_mask"]
    runs = list(all_runs(c["turn_ids"], mask))
    turns = {}  # (row, begin) -> (reward, return, group, state)
    for i, begin in sorted({(i, b) for i, _, b in runs}, reverse=True):
        reward = sum(c["rewards"][i, s] for j, s, b in runs if (j, b) == (i, begin))
        later = [turns[k][0] for k in sorted(turns) if k[0] == i]
        state = (c["group_ids"][i].item(), c["state_keys"][i, begin].item())
        turns[i, begin] = (reward + gamma * (later[0] if later else 0.0), state)
    for i, t, begin in runs:
        value, state = turns[i, begin]
        same = [g for g, s in turns.values() if s == state]
        out[i, t] += step_weight * (value - sum(same) / len(same))
    return out


def turn_gae(c, gamma=1.0, lam=0.95, token_lam=None):
    mask, v = c["response_mask"], c["values"]
    out, returns = torch.zeros_like(v), torch.zeros_like(v)
    runs = list(all_runs(c["turn_ids"], mask))
    for i in range(len(mask)):
        begins = sorted({b for j, _, b in runs if j == i}, reverse=True)
        ahead = c["bootstrap_values"][i]  # V + lam A of the next turn
        next_v, next_a = ahead, 0.0
        for begin in begins:
            tokens = [t for j, t, b in runs if (j, b) == (i, begin)]
            worth = gamma * (next_v + lam * next_a)
            whole = c["rewards"][i, tokens].sum() + worth - v[i, begin]
            acc = 0.0
            for t, then in reversed(list(zip(tokens, [*tokens[1:], None], strict=True))):
                what_follows = worth if then is None else v[i, then]
                acc = c["rewards"][i, t] + what_follows - v[i, t] + (token_lam or 0.0) * acc
                out[i, t] = whole if token_lam is None else acc
                returns[i, t] = c["rewards"][i, [s for s in tokens if s >= t]].sum() + worth
            next_v, next_a = v[i, begin], whole
    return (out, returns) if token_lam is None else out


def a_star_po(c):
    out = torch.zeros_like(c["rewards"])
    for i in range(len(out)):
        out[i, _actions(c["response_mask"], i)] = c["sequence_scores"][i] - c["optimal_values"][i]
    return out


def softmax_grpo(c, tau=0.3):
    def formula(r, i, _, flat):
        if flat:
            return 0.0
        top = max(r)
        mass = [math.exp((x - top) / tau) for x in r]
        return len(r) * mass[i] / sum(mass) - 1

    return _by_group(c, c["sequence_rewards"], formula)


def raft(c, threshold=0.0):
    out = torch.zeros_like(c["rewards"])
    for i, score in enumerate(c["sequence_scores"].tolist()):
        out[i, _actions(c["response_mask"], i)] = float(score > threshold)
    return out


def blend(c, low=0.0, high=1.0):
    mask, v = c["response_mask"], c["values"]
    out, returns = torch.zeros_like(v), torch.zeros_like(v)
    for i in range(len(mask)):
        mates = _mates(c, i)
        g = len(mates)
        m = sum(c["sequence_rewards"][j].item() for j in mates) / g
        firsts = [[v[j, t].item() for t in _actions(mask, j)[:1]] for j in mates]
        prior = sum(x[0] for x in firsts if x) / max(sum(map(len, firsts)), 1)
        s = ((high - low) / 2) ** 2 / g
        d = max(0.0, (m - prior) ** 2 - s)
        w = d / (d + s) if g > 1 else 0.0
        r = c["sequence_rewards"][i].item()
        for t in _actions(mask, i):
            out[i, t], returns[i, t] = r - w * m - (1 - w) * prior, r
    return out, returns


def spo(c, eps=1e-8):
    d = [r - v for r, v in zip(c["sequence_rewards"].tolist(), c["history"].tolist(), strict=True)]
    out = torch.zeros_like(c["rewards"])
    for i in range(len(d) if len(d) > 1 else 0):
        scaled = (d[i] - statistics.fmean(d)) / (statistics.stdev(d) + eps)
        out[i, _actions(c["response_mask"], i)] = scaled
    return out


def mix(c, parts=("dr_grpo", "mc"), weights=(0.5, 0.5), normalize=()):
    """Each part by its own oracle, written `name` alone; the target of the first critic's part."""
    mask, total, returns = c["response_mask"], 0.0, None
    where = mask.bool()
    for k, (name, weight) in enumerate(zip(parts, weights, strict=True)):
        a = ORACLES[name](c)
        a, own = a if isinstance(a, tuple) else (a, a + c["values"])
        if returns is None and name in ("gae", "mc", "td0", "n_step", "gae_decoupled"):
            returns = own
        if normalize and normalize[k] and where.any():
            tokens = a[where]
            spread = (tokens.square().mean() - tokens.mean() ** 2 + 1e-8) ** 0.5
            a = torch.where(where, (a - tokens.mean()) / spread, 0)
        total = total + weight * a
    return total if returns is None else (total, returns)


# Compared with verl's own numbers in tests/zoo/test_reference.py instead.
IN_VERL = {"gdpo", "otb", "passk_max", "remax"}
ORACLES = {
    f.__name__: f
    for f in (gae, mc, td0, n_step, vtrace, gae_decoupled, gae_length_adaptive, grpo, dr_grpo,
              rloo, reinforce, opo, gpg, pkpo, maxrl, vineppo, prime,
              gigpo, turn_gae, a_star_po, batch_mean, confidence, mix, softmax_grpo, raft,
              blend, spo)
}  # fmt: skip
