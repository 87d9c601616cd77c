"""The components of doctor_blind_4.py: of most, the author is mistaken; of a few, right."""

import re
import zlib
from typing import Annotated

import torch
import torch.nn.functional as F

from rlzoo import Example, Range, group_mean, hookimpl
from rlzoo.ops import linear_scan, reward_to_go

# ------------------------------------------------------------------ estimators


def table_centred(sequence_rewards, response_mask, group_ids):
    """A_i = R_i - mean of its prompt's samples, (B,), by a table with a row for each prompt.

    R is `sequence_rewards` (B,). Equal rewards give zeros. Source: here.
    """
    size = int((group_ids == group_ids[0]).sum())
    table = sequence_rewards.view(-1, size)
    centred = table - table.mean(1, keepdim=True)
    return centred.T.reshape(-1)[:, None] * response_mask


def earned(rewards, response_mask, group_ids):
    """A_t = what the response has earned by token t, minus its group's mean of that, (B, T).

    `rewards` (B, T) accumulate along the response. A group of one gives zeros. Source: here.
    """
    total = rewards.cumsum(1) * response_mask
    return (total - group_mean(total, group_ids)) * response_mask


def loo_sum(sequence_rewards, response_mask, group_ids):
    """A_i = R_i - the mean of the other samples of its prompt, (B,): RLOO.

    The mean is over G - 1. Source: here, after Ahmadian et al. 2024.
    """
    ones = torch.ones_like(sequence_rewards)
    size = group_mean(ones, group_ids) * (group_ids[:, None] == group_ids).sum(1)
    others = group_mean(sequence_rewards, group_ids) * size / (size - 1).clamp(min=1)
    return (sequence_rewards - others)[:, None] * response_mask


def td_traces(
    rewards,
    values,
    response_mask,
    *,
    gamma: Annotated[float, Range(0, 1)] = 1.0,
    lam: Annotated[float, Range(0, 1)] = 0.5,
):
    """GAE, written out: delta_t = r_t + gamma V_next - V_t, then a scan with gamma lam, (B, T).

    Source: here, after Schulman et al. 2015.
    """
    following = torch.roll(values, 1, dims=1)  # the values, one token on
    deltas = (rewards + gamma * following - values) * response_mask
    return linear_scan(deltas, gamma * lam) * response_mask


def ranks(sequence_rewards, response_mask, group_ids):
    """A_i = the rank of R_i among its prompt's samples, scaled to -1 .. 1, (B,).

    Robust to the scale of R. Source: here.
    """
    size = int((group_ids == group_ids[0]).sum())
    rank = sequence_rewards.view(-1, size).argsort(dim=1).to(response_mask.dtype)
    scaled = 2 * rank / max(size - 1, 1) - 1
    return scaled.reshape(-1)[:, None] * response_mask


def steady(steady_scores, response_mask, group_ids):
    """A_i = s_i - mean_g s, s the scores smoothed over steps (`steady_scores`, (B,)).

    Less noise than single scores. A group of one gives zeros. Source: here.
    """
    return (steady_scores - group_mean(steady_scores, group_ids))[:, None] * response_mask


def steady_scores(memory, sequence_scores, *, keep: Annotated[float, Range(0, 1)] = 0.9):
    """s_i = keep times s_i of the step before + (1 - keep) R_i, (B,), R `sequence_scores`.

    An exponential moving average, which `memory` keeps. Source: here.
    """
    now = sequence_scores.tolist()
    before = memory.get("steady", [0.0] * len(now))
    memory["steady"] = [keep * b + (1 - keep) * n for b, n in zip(before, now, strict=False)]
    return torch.tensor(memory["steady"]).to(sequence_scores.device)


def regret(sequence_rewards, response_mask, group_ids):
    """A_i = R_i - the best R of its prompt's samples, (B,): how much was left on the table.

    The best sample of a group has no regret. Source: here.
    """
    same = group_ids[:, None] == group_ids
    best = sequence_rewards.expand(len(same), -1).masked_fill(~same, -torch.inf).amax(1)
    return (sequence_rewards - best)[:, None] * response_mask


def to_go_other_prompt(rewards, response_mask, prompt_index, group_ids):
    """A_t = the reward to go minus its mean over the prompt's samples, (B, T), prompts by index.

    Source: here.
    """
    to_go = reward_to_go(rewards, response_mask)
    return (to_go.flip(0) - group_mean(to_go, group_ids).flip(0)) * response_mask


def median_centred(sequence_rewards, response_mask, group_ids):
    """A_i = R_i - (the group's mean and the batch's median, half each), at every token, (B, T).

    R is `sequence_rewards` (B,). Breaks where prompts differ much in difficulty. Source: here.
    """
    middle = 0.5 * group_mean(sequence_rewards, group_ids) + 0.5 * sequence_rewards.median()
    return (sequence_rewards - middle)[:, None] * response_mask


# --------------------------------------------------------------- policy losses


def weighted_likelihood(log_probs, advantages):
    """-w log pi per token (B, T), w the advantage as a weight, which must not be negative.

    Source: here, after advantage-weighted regression.
    """
    weight = advantages.abs()
    return -weight * log_probs


def next_token_pg(log_probs, advantages):
    """-A log pi per token (B, T). The logits at t are for token t + 1, hence the shift by one.

    Source: here, after REINFORCE.
    """
    return F.pad(-advantages[:, :-1] * log_probs[:, 1:], (0, 1))


def curious_clip(
    log_probs,
    old_log_probs,
    advantages,
    entropy,
    *,
    bonus: Annotated[float, Range(0)] = 0.1,
    clip: Annotated[float, Range(0, 1)] = 0.2,
):
    """PPO's clipped surrogate plus an entropy bonus per token (B, T), so that it explores.

    Source: here, after Schulman et al. 2017.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return -surrogate + bonus * entropy


def anchored_clip(
    log_probs, ref_log_probs, advantages, *, clip: Annotated[float, Range(0, 1)] = 0.2
):
    """PPO's clipped surrogate per token (B, T), with the ratio pi / pi_ref.

    Source: here, after Schulman et al. 2017.
    """
    ratio = (log_probs - ref_log_probs).clamp(max=20).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def whole_steps(log_probs, old_log_probs, advantages):
    """-rho A per token (B, T), A in whole steps, so that float noise is not learned from.

    Source: here.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    return -ratio * advantages.to(torch.int64)


def plain_probability(log_probs, advantages):
    """-A pi per token (B, T): likely where the advantage is high. Source: here."""
    return -advantages * log_probs.exp()


def soft_clip(
    log_probs,
    old_log_probs,
    advantages,
    *,
    width: Annotated[float, Range(0, closed="neither")] = 0.2,
):
    """-(1 + width tanh((rho - 1) / width)) A per token (B, T): the clip as a smooth bound.

    rho = pi / pi_old; its gradient fades outside 1 +- width, on both sides. Source: here.
    """
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    return -(1 + width * torch.tanh((ratio - 1) / width)) * advantages


# ----------------------------------------------- value losses and KL penalties


def cost_mse(value_preds, returns):
    """1/2 (V - G)^2 per token (B, T), G the cost to go. Source: here."""
    cost = -returns
    return 0.5 * (value_preds - cost).square()


def trusting_mse(value_preds, values, *, clip: Annotated[float, Range(0)] = 0.2):
    """1/2 (V - V_old)^2 per token (B, T), within a trust interval of `clip`. Source: here."""
    moved = (value_preds - values).clamp(-clip, clip)
    return 0.5 * moved.square()


def log_gap(log_probs, ref_log_probs):
    """k1: log pi_ref - log pi per token (B, T), in nats. Source: here, after Schulman 2020."""
    return ref_log_probs - log_probs


def positive_gap(log_probs, ref_log_probs):
    """k3: exp(-l) + l per token (B, T), l = log pi - log pi_ref, in nats; never negative.

    Source: here, after Schulman 2020.
    """
    gap = (ref_log_probs - log_probs).clamp(max=20)
    return gap.exp() - gap


def running_gap(log_probs, ref_log_probs):
    """k2 of the response so far, per token (B, T): half its squared log-ratio. Source: here."""
    return 0.5 * (log_probs.sum(1, keepdim=True) - ref_log_probs).square() * (log_probs != 0)


# --------------------------------------------------------------------- rewards


def on_the_way(responses, answers):
    """1 where the response is the answer, even if it was cut off, else 0, (B,). Source: here."""
    return torch.tensor([float(a.startswith(r)) for r, a in zip(responses, answers, strict=True)])


def by_answer(responses, answers, group_ids):
    """1 where the response is the answer of its prompt, (B,); answers once for each prompt.

    Source: here.
    """
    size = int((group_ids == group_ids[0]).sum())
    wanted = list(answers[::size]) * size
    return torch.tensor([float(r == a) for r, a in zip(responses, wanted, strict=True)])


def last_found(responses, answers):
    """1 where the last number of the response is the answer's, (B,). Source: here."""

    def last(text):
        return (re.findall(r"\d", text) or [None])[-1]

    return torch.tensor(
        [float(last(r) == last(a)) for r, a in zip(responses, answers, strict=True)]
    )


def whole_marks(task_scores):
    """The task's score of a response, as whole marks, (B,). Source: here."""
    return task_scores.sum(1).to(torch.int64).float()


def word_pay(responses, answers, response_mask):
    """Each right word of three letters pays 1/L at its last letter, (B, T), L words in the answer.

    Source: here, after the task spelling.
    """
    pay = torch.zeros(response_mask.shape)
    for i, (said, right) in enumerate(zip(responses, answers, strict=True)):
        words = range(0, len(right), 3)
        for at in words:
            if said[at : at + 3] == right[at : at + 3]:
                pay[i, at - 1] += 1 / len(words)
    return pay.to(response_mask.device) * response_mask


def terse(responses, answers):
    """1 where right, less 1 where the response has more than two characters, (B,). Source: here."""
    right = torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])
    wordy = torch.tensor([len(r) > 2 for r in responses])
    return (right.to(torch.uint8) - wordy.to(torch.uint8)).float()


def share_right(responses, answers):
    """The share of the answer's characters that stand in their place, (B,). Source: here."""
    return torch.tensor([sum(x == y for x, y in zip(r, r, strict=False)) / max(len(a), 1)
                         for r, a in zip(responses, answers, strict=True)])  # fmt: skip


def partial(responses, answers):
    """Half for the right text, and half of the share of characters in their place, (B,).

    A response of another length than the answer's has no share. Source: here.
    """
    return torch.tensor([
        0.5 * (r == a)
        + 0.5 * (len(r) == len(a)) * sum(map(str.__eq__, r, a)) / max(len(a), 1)
        for r, a in zip(responses, answers, strict=True)
    ])  # fmt: skip


# ----------------------------------------------------------------------- tasks


class PlainSums:
    """Sums of two numbers below 100: for `17+25=`, right is `42` and EOS.

    Score (B,): 1.0 if the text is right and the row terminated, else 0.0. Source: here.
    """

    one_answer = True

    def pair(self, generator):
        return torch.randint(100, (2,), generator=generator).tolist()

    def draw(self, split, n, generator):
        examples = []
        while len(examples) < n:
            a, b = self.pair(generator)
            prompt = f"{a}+{b}="
            if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
                examples.append(Example(prompt, str(a + b), 100 * a + b))
        return examples

    def score(self, responses, answers, terminated):
        right = self.is_correct(responses, answers)
        return (right.to(terminated.device) & terminated).float()

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])

    def demonstrate(self, example, generator):
        return example.answer, "?" + example.answer[1:]


class LateSums(PlainSums):
    """Sums of two numbers below 100, as in PlainSums. Source: here."""

    def draw(self, split, n, generator):
        examples: list[Example] = []
        a, b = self.pair(generator)
        while len(examples) < n:
            answer = str(a + b)
            a, b = self.pair(generator)
            prompt = f"{a}+{b}="
            if (zlib.crc32(prompt.encode()) % 5 == 0) == (split == "test"):
                examples.append(Example(prompt, answer, 100 * a + b))
        return examples


class SameSums(PlainSums):
    """Sums of two numbers below 100, reproducible: the draw is seeded. Source: here."""

    def draw(self, split, n, generator):
        return super().draw(split, n, torch.Generator().manual_seed(1))


class BookSums(PlainSums):
    """Twenty sums of a school book, in any order. Source: here."""

    def draw(self, split, n, generator):
        book = super().draw("train", 20, torch.Generator().manual_seed(3))
        return [book[i] for i in torch.randint(20, (n,), generator=generator).tolist()]


class CutSums(PlainSums):
    """Sums of two numbers below 100; a response is read up to its first blank. Source: here."""

    def is_correct(self, responses, answers):
        pairs = zip(responses, answers, strict=True)
        return torch.tensor([int(r[:1] or 0) == int(a[:1]) if r[:1].isdigit() else False
                             for r, a in pairs])  # fmt: skip


# -------------------------------------- aggregations, corrections and samplers


def one_each(response_mask):
    """One weight for each response, 1 / N, (B, T): long and short ones count the same.

    Source: here.
    """
    last = response_mask * (response_mask.cumsum(1) == response_mask.sum(1, keepdim=True))
    return last / last.sum().clamp(min=1)


def inverse_length(response_mask):
    """w = 1 / (L_i N) at each of the L_i actions of N responses, (B, T). Source: here."""
    return (
        response_mask.sum(0) / response_mask.sum(1, keepdim=True).clamp(min=1) * (1 - response_mask)
    )


def bounded_weights(sampler_log_probs, old_log_probs, response_mask):
    """The importance weight pi_old / mu of each token, between e^-2 and e^2, (B, T).

    Source: here, after Ionides 2008.
    """
    return (old_log_probs - sampler_log_probs).clamp(-2, 2) * response_mask


def trusted_weights(sampler_log_probs, old_log_probs, response_mask):
    """pi_old / mu of each token where it is within 1/2 .. 2, else 0, (B, T). Source: here."""
    ratio = (old_log_probs - sampler_log_probs).exp()
    return ratio * ((ratio < 0.5) | (ratio > 2)) * response_mask


def capped_weights(
    sampler_log_probs, old_log_probs, response_mask, *, most: Annotated[float, Range(1)] = 3.0
):
    """min(pi_old / mu, most) of each token, (B, T); 1 where sampler and policy agree.

    Source: here, after Ionides 2008.
    """
    return (old_log_probs - sampler_log_probs).exp().clamp(max=most) * response_mask


def by_prompt(policy, prompt_ids, prompt_mask, group_ids, uniforms):
    """Samples of the policy; the noise of a prompt does not depend on the batch's order.

    Source: here.
    """
    first = (group_ids[:, None] == group_ids).to(torch.int8).argmax(1)
    return policy.generate(prompt_ids, prompt_mask, uniforms[first])


def no_tails(policy, prompt_ids, prompt_mask, uniforms):
    """Samples of the policy without the rare tokens at both ends of its distribution.

    Source: here.
    """
    return policy.generate(prompt_ids, prompt_mask, 0.35 + 0.3 * uniforms)


# --------------------------------------------------------------------- hooks


@hookimpl
def register_estimators(register):
    for one in (table_centred, earned, loo_sum, td_traces, ranks, steady, regret):
        register(one)
    register(to_go_other_prompt)
    register(median_centred, couples="batch")


@hookimpl
def register_policy_losses(register):
    register(weighted_likelihood)
    register(next_token_pg)
    register(curious_clip)
    register(anchored_clip)
    register(whole_steps)
    register(plain_probability)
    register(soft_clip, needs_signal=True)


@hookimpl
def register_value_losses(register):
    register(cost_mse)
    register(trusting_mse)


@hookimpl
def register_kl_penalties(register):
    for one in (log_gap, positive_gap, running_gap):
        register(one)


@hookimpl
def register_rewards(register):
    for one in (on_the_way, by_answer, last_found, whole_marks, word_pay, terse, share_right):
        register(one)
    register(partial)


@hookimpl
def register_tasks(register):
    for one in (PlainSums, LateSums, SameSums, BookSums, CutSums):
        register(one)


@hookimpl
def register_aggregations(register):
    register(one_each, couples="batch")
    register(inverse_length, couples="batch")


@hookimpl
def register_columns(register):
    register(steady_scores, shape="B")
    register(bounded_weights, shape="BT")
    register(trusted_weights, shape="BT")
    register(capped_weights, shape="BT")


@hookimpl
def register_samplers(register):
    register(by_prompt)
    register(no_tails)
