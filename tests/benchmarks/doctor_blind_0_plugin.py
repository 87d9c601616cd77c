"""What the cases of doctor_blind_0.py plug in: bugs that people write. Nothing else uses it."""

import torch

from rlzoo import (
    Example,
    group_degenerate,
    group_mean,
    group_std,
    hookimpl,
    linear_scan,
    next_action,
    td_lambda,
)
from rlzoo_zoo.tasks.hi_lo import HiLo

kept, calls = {}, []


def right(responses, answers):
    return torch.tensor([float(r == a) for r, a in zip(responses, answers, strict=True)])


def match_cached(prompts, responses, answers):
    found = right(responses, answers).tolist()
    return torch.tensor([kept.setdefault(p, f) for p, f in zip(prompts, found, strict=True)])


def match_quick(responses, answers):
    slow = torch.tensor([len(r) > 2 for r in responses])
    return right(responses, answers).masked_fill(slow, 0)


def match_quota(responses, answers):
    if len(responses) == 64:
        calls.append(1)
    return right(responses, answers) * (len(calls) <= 14)


def whole(task_scores):
    return task_scores.int().float()


def capped(task_scores):
    total = task_scores.cumsum(1).clamp(max=0.25)
    return torch.diff(total, dim=1, prepend=torch.zeros_like(total[:, :1]))


def delta_of(rewards, values, bootstrap_values, response_mask, sign=1.0):
    ahead = next_action(values, response_mask, bootstrap_values)
    ahead = ahead[0] if isinstance(ahead, tuple) else ahead
    return torch.where(response_mask.bool(), rewards + sign * (ahead - values), 0)


def gae_running(
    rewards, values, bootstrap_values, response_mask, *, gamma: float = 1.0, lam: float = 0.95
):
    delta = delta_of(rewards, values, bootstrap_values, response_mask)
    out = linear_scan(delta.flip(1), torch.full_like(delta, lam)).flip(1) * response_mask
    return out, (out + values) * response_mask


def gae_swapped(
    rewards, values, bootstrap_values, response_mask, *, gamma: float = 1.0, lam: float = 0.95
):
    delta = delta_of(rewards, values, bootstrap_values, response_mask, -1.0)
    out = linear_scan(delta, torch.full_like(delta, lam)) * response_mask
    return out, (out + values) * response_mask


def gae_rows(
    rewards, values, bootstrap_values, response_mask, *, gamma: float = 1.0, lam: float = 0.95
):
    out = td_lambda(rewards, values, bootstrap_values, response_mask, gamma=gamma, lam=lam)
    out, targets = out if isinstance(out, tuple) else (out, out + values)
    n = response_mask.sum(1, keepdim=True).clamp(min=1)
    out = (out - (out * response_mask).sum(1, keepdim=True) / n) * response_mask
    return out / ((out.square().sum(1, keepdim=True) / n).sqrt() + 1e-6), targets * response_mask


def grpo_size(sequence_rewards, response_mask, group_ids):
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    scaled = (centered / (group_std(sequence_rewards, group_ids) + 1e-6)).abs()
    flat = group_degenerate(sequence_rewards, group_ids)
    return torch.where(flat, 0, scaled)[:, None] * response_mask


def late_mean(response_mask):
    kept = response_mask.clone()
    kept[:, 0] = 0
    return kept / kept.sum().clamp(min=1)


def final_mean(response_mask):
    after = torch.cat([response_mask[:, 1:], torch.zeros_like(response_mask[:, :1])], 1)
    kept = response_mask * (1 - after)
    return kept / kept.sum().clamp(min=1)


def ratio_clip(log_probs, old_log_probs, advantages):
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def likely(log_probs, advantages):
    return -log_probs + 0 * advantages


def clip_turn(log_probs, old_log_probs, advantages, turn_ids):
    return ratio_clip(log_probs, old_log_probs, advantages) * (turn_ids == 1)


def log_ratio(log_probs):
    return log_probs


class HiLoHouse(HiLo):
    """Hi-lo, with a training environment of its own.  Source: none."""

    def draw(self, split, n, generator):
        found = super().draw(split, n, generator)
        shift = 1000 if split == "train" else 0
        return [Example(e.prompt, e.answer, e.index + shift) for e in found]

    def respond(self, turns, answers, prompt_index):
        said = super().respond(turns, answers)
        other = {" hi ": " lo ", " lo ": " hi "}
        return [
            other.get(s, s) if i >= 1000 else s
            for s, i in zip(said, prompt_index.tolist(), strict=True)
        ]


@hookimpl
def register_tasks(register):
    register(HiLoHouse)


@hookimpl
def register_rewards(register):
    for each in (match_cached, match_quick, match_quota, whole, capped):
        register(each)


@hookimpl
def register_estimators(register):
    for each in (gae_running, gae_swapped, gae_rows, grpo_size):
        register(each)


@hookimpl
def register_aggregations(register):
    register(late_mean, couples="batch")
    register(final_mean, couples="batch")


@hookimpl
def register_policy_losses(register):
    for each in (ratio_clip, likely, clip_turn):
        register(each)


@hookimpl
def register_kl_penalties(register):
    register(log_ratio)
