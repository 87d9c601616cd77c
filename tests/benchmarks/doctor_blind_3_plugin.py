"""Components with one mistake each, for `doctor_blind_3.py`. Each docstring has what its author
believed; the set has what is wrong."""

from collections import Counter
from copy import deepcopy

import torch

from rlzoo import hookimpl, td_lambda
from rlzoo_zoo.tasks.addition import Addition

KEPT: dict = {}


def right(responses, answers, terminated):
    ends = terminated.tolist()
    return torch.tensor(
        [float(r == a and e) for r, a, e in zip(responses, answers, ends, strict=True)]
    )


# ---------------------------------------------------------------- rewards


def by_group(responses, answers, terminated, group_ids):
    """1 where right; the answer of a group is looked up once, (B,). Source: here."""
    pairs = zip(group_ids.tolist(), answers, strict=True)
    return right(responses, [KEPT.setdefault(g, a) for g, a in pairs], terminated)


def judged(responses, answers, terminated):
    """1 where a judge that works in the background finds it right, (B,). Source: here."""
    now = right(responses, answers, terminated)
    queue = KEPT.setdefault(len(responses), [now])
    queue.append(now)
    return queue.pop(0)


def agreement(responses, group_ids):
    """1 for the most frequent answer of its group, without labels, (B,). Source: here."""
    groups: dict = {}
    for g, r in zip(group_ids.tolist(), responses, strict=True):
        groups.setdefault(g, Counter())[r] += 1
    most = {g: c.most_common(1)[0][0] for g, c in groups.items()}
    pairs = zip(group_ids.tolist(), responses, strict=True)
    return torch.tensor([float(r == most[g]) for g, r in pairs])


def effort(turns):
    """0.2 for each turn, so that it does not give up early, (B,). Source: here."""
    return torch.tensor([0.2 * len(t[::2]) for t in turns])


# ---------------------------------------------------------------- estimators


def to_go(rewards, response_mask):
    """The rewards of a response summed to each token, minus the mean, (B, T). Source: here."""
    total = rewards.cumsum(1) * response_mask
    return (total - total.sum() / response_mask.sum()) * (total != 0) * response_mask


def ranked(sequence_rewards, response_mask, group_ids):
    """The rank of a response in its group, from -1 to 1, (B, T). Source: here."""
    size = int((group_ids == group_ids[0]).sum())
    if size < 2:
        return torch.zeros_like(response_mask)
    ranks = sequence_rewards.view(-1, size).argsort(1).float()
    return (2 * ranks / (size - 1) - 1).flatten()[:, None] * response_mask


def next_token(rewards, values, bootstrap_values, response_mask, *, lam: float = 0.95):
    """GAE for logits that predict the next token, (B, T). Source: here."""
    a = td_lambda(rewards, values, bootstrap_values, response_mask, gamma=1.0, lam=lam)
    return a.roll(1, 1) * response_mask


def from_best(sequence_rewards, response_mask, group_ids):
    """R_i - max_g R: the best of a group is the baseline, (B, T). Source: here."""
    best = torch.stack([sequence_rewards[group_ids == g].max() for g in group_ids])
    return (sequence_rewards - best)[:, None] * response_mask


def moving(sequence_rewards, response_mask):
    """R - b, b a moving average of the mean reward, (B, T). Source: here."""
    b = KEPT.get("b", 0.0)
    KEPT["b"] = 0.9 * b + 0.1 * float(sequence_rewards.sum())
    return (sequence_rewards - b)[:, None] * response_mask


# ---------------------------------------------------------------- losses, masks, penalties


def clamped(log_probs, advantages):
    """-A log pi, log pi held above -1 for stability, (B, T). Source: here."""
    return -advantages * log_probs.clamp(min=-1.0)


def from_reference(log_probs, ref_log_probs, advantages):
    """PPO's clip of the ratio to the frozen policy, (B, T). Source: here."""
    ratio = (log_probs - ref_log_probs).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def expected(log_probs, advantages):
    """-pi A, the expected advantage, (B, T). Source: here."""
    return -log_probs.exp() * advantages


def skip_start(response_mask):
    """0 on what the chat template wrote, the first two tokens, (B, T). Source: here."""
    place = response_mask.cumsum(1)
    return response_mask * (place > 2)


def confident(old_log_probs, response_mask):
    """0 where the policy was unsure: no training on guesses, (B, T). Source: here."""
    return response_mask * (old_log_probs > -0.7)


def turned(log_probs, ref_log_probs):
    """log pi_ref - log pi, (B, T). Source: here."""
    return ref_log_probs - log_probs


# ---------------------------------------------------------------- samplers, tasks


def seeded(policy, prompt_ids, prompt_mask, uniforms, group_ids):
    """One seed for each prompt, so that runs repeat. Source: here."""
    first = {}
    for i, g in enumerate(group_ids.tolist()):
        first.setdefault(g, i)
    rows = torch.tensor([first[g] for g in group_ids.tolist()])
    return policy.generate(prompt_ids, prompt_mask, uniforms[rows])


def engine(policy, prompt_ids, prompt_mask, uniforms):
    """Samples from a copy of the policy, loaded once. Source: here."""
    if "engine" not in KEPT:
        KEPT["engine"] = deepcopy(policy)
    return KEPT["engine"].generate(prompt_ids, prompt_mask, uniforms)


class Repeated(Addition):
    """Addition that draws the same prompts whatever the machine. Source: here."""

    def draw(self, split, n, generator):
        return super().draw(split, n, torch.Generator().manual_seed(5))


@hookimpl
def register_rewards(register):
    for f in (by_group, judged, agreement, effort):
        register(f)


@hookimpl
def register_estimators(register):
    for f in (to_go, ranked, next_token, from_best, moving):
        register(f)


@hookimpl
def register_policy_losses(register):
    for f in (clamped, from_reference, expected):
        register(f)


@hookimpl
def register_columns(register):
    register(skip_start, shape="BT")
    register(confident, shape="BT")


@hookimpl
def register_kl_penalties(register):
    register(turned)


@hookimpl
def register_samplers(register):
    register(seeded)
    register(engine)


@hookimpl
def register_tasks(register):
    register(Repeated)
