"""What the cases of doctor_blind_1.py plug in: bugs that people write. Nothing else uses it."""

import torch

from rlzoo import group_degenerate, group_mean, hookimpl, linear_scan, td_lambda
from rlzoo.ops import group_count, last_action, reward_to_go
from rlzoo_zoo.tasks.addition import Addition

late: dict[int, torch.Tensor] = {}


class AdditionAgain(Addition):
    """Addition, whose loader is seeded at each call.  Source: none."""

    def draw(self, split, n, generator):
        again = torch.Generator().manual_seed(42) if split == "train" else generator
        return super().draw(split, n, again)


def by_text(score, *columns):
    return torch.tensor([float(score(*row)) for row in zip(*columns, strict=True)])


def first_digit(responses, answers):
    return by_text(lambda r, a: r[:1] == a[:1], responses, answers)


def late_score(responses, answers):
    now = by_text(lambda r, a: r == a, responses, answers)
    before = late.get(len(now), torch.zeros_like(now))
    late[len(now)] = now
    return before


def part_of_answer(responses, answers):
    return by_text(lambda r, a: r in a, responses, answers)


def right_or_cut(responses, answers, truncated):
    return by_text(lambda r, a: r == a, responses, answers).maximum(truncated.float().cpu())


def caseless(responses, answers):
    def share(r, a):
        return sum(x == y for x, y in zip(r.lower(), a.lower(), strict=False)) / len(a)

    return by_text(share, responses, answers)


def ten_more(responses, answers):
    return 10 + by_text(lambda r, a: r == a, responses, answers)


def baseline_twice(sequence_rewards, response_mask, group_ids):
    return (sequence_rewards - 2 * group_mean(sequence_rewards, group_ids))[:, None] * response_mask


def rloo_sum(sequence_rewards, response_mask, group_ids):
    total = group_mean(sequence_rewards, group_ids) * group_count(group_ids)
    return (sequence_rewards - (total - sequence_rewards))[:, None] * response_mask


def gae_late(
    rewards, values, bootstrap_values, response_mask, *, gamma: float = 1.0, lam: float = 0.95
):
    out = td_lambda(rewards, values, bootstrap_values, response_mask, gamma=gamma, lam=lam)
    advantages = out[0] if isinstance(out, tuple) else out
    shifted = torch.nn.functional.pad(advantages, (3, 0))[:, : advantages.shape[1]]
    return shifted * response_mask, (advantages + values) * response_mask


def gae_unended(
    rewards, values, bootstrap_values, response_mask, *, gamma: float = 1.0, lam: float = 0.95
):
    ahead = torch.nn.functional.pad(values[:, 1:], (0, 1))
    delta = (rewards + gamma * ahead - values) * response_mask
    place = torch.arange(delta.shape[1], device=delta.device)
    delta = torch.where(place == last_action(response_mask)[:, None], 0, delta)
    out = linear_scan(delta, torch.full_like(delta, gamma * lam)) * response_mask
    return out, (out + values) * response_mask


def opd_late(teacher_log_probs, old_log_probs, response_mask, *, gamma: float = 0.0):
    teacher = torch.nn.functional.pad(teacher_log_probs, (1, 0))[:, :-1]
    return reward_to_go((teacher - old_log_probs) * response_mask, response_mask, gamma=gamma)


def clip_inverse(log_probs, old_log_probs, advantages):
    ratio = (old_log_probs - log_probs).clamp(max=20).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def clip_detached(log_probs, old_log_probs, advantages):
    ratio = (log_probs - old_log_probs).clamp(max=20).exp().detach()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) + 0 * log_probs


def clip_swapped(log_probs, old_log_probs, advantages):
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1.2, 0.8) * advantages)


def clip_last_turn(log_probs, old_log_probs, advantages, turn_ids):
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return loss * (turn_ids == turn_ids.amax(1, keepdim=True))


def minus_k1(log_probs, ref_log_probs):
    return ref_log_probs - log_probs


def one_seed(policy, prompt_ids, prompt_mask, uniforms, group_ids):
    _, group = torch.unique(group_ids, return_inverse=True)
    first = torch.stack([(group == g).nonzero()[0, 0] for g in range(int(group.max()) + 1)])
    return policy.generate(prompt_ids, prompt_mask, uniforms[first[group]])


def half(policy, prompt_ids, prompt_mask, uniforms):
    return policy.generate(prompt_ids, prompt_mask, uniforms / 2)


def forgetful(policy, prompt_ids, prompt_mask, uniforms):
    drawn = dict(policy.generate(prompt_ids, prompt_mask, uniforms))
    zero = torch.zeros_like(drawn["sampler_log_probs"])
    return {**drawn, "sampler_log_probs": zero, "old_log_probs": zero}


def flat_groups(sequence_scores, group_ids, response_mask):
    return group_degenerate(sequence_scores, group_ids)[:, None] * response_mask


@hookimpl
def register_tasks(register):
    register(AdditionAgain)


@hookimpl
def register_rewards(register):
    for each in (first_digit, late_score, part_of_answer, right_or_cut, caseless, ten_more):
        register(each)


@hookimpl
def register_estimators(register):
    for each in (baseline_twice, rloo_sum, gae_late, gae_unended, opd_late):
        register(each)


@hookimpl
def register_policy_losses(register):
    for each in (clip_inverse, clip_detached, clip_swapped, clip_last_turn):
        register(each)


@hookimpl
def register_kl_penalties(register):
    register(minus_k1)


@hookimpl
def register_samplers(register):
    for each in (one_seed, half, forgetful):
        register(each)


@hookimpl
def register_columns(register):
    register(flat_groups, shape="BT")
