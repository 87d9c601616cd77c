"""Components of a fifth blind set for `rlzoo doctor`: what users write, most with one mistake.

`doctor_blind.py` copies this file next to the runs.
Docstrings here say what the author meant; the mistakes are in doctor_blind_5.py.
"""

from dataclasses import replace

import torch

from rlzoo import Example, group_mean, group_std, hookimpl
from rlzoo.ops import group_count
from rlzoo_zoo.tasks.addition import Addition
from rlzoo_zoo.tasks.marks import COMMANDS, Marks  # noqa: F401

# Estimators


def ranked(sequence_rewards, response_mask, group_ids):
    """The centred rank of a response's reward within its group, which outliers cannot move.

    Source: an experiment.
    """
    ranks = torch.zeros_like(sequence_rewards)
    for g in group_ids.unique():
        rows = (group_ids == g).nonzero()[:, 0]
        ranks[rows] = sequence_rewards[rows].argsort().to(ranks)
    centred = ranks - group_mean(ranks, group_ids)
    return (centred / group_count(group_ids))[:, None] * response_mask


def return_per_token(rewards, response_mask):
    """The undiscounted return of each token. Source: Sutton and Barto 2018, section 13.3."""
    return rewards.cumsum(1) * response_mask


def label_shift(sequence_rewards, response_mask, group_ids):
    """Group-centred rewards at the positions of the labels. Source: an experiment."""
    centred = sequence_rewards - group_mean(sequence_rewards, group_ids)
    advantages = centred[:, None] * response_mask
    out = torch.zeros_like(advantages)
    out[:, 1:] = advantages[:, 1:] * response_mask[:, :-1]
    return out


def to_best(sequence_rewards, response_mask, group_ids):
    """The regret: a response's reward minus the group's best. Source: an experiment."""
    best = torch.stack([sequence_rewards[group_ids == g].max() for g in group_ids])
    return (sequence_rewards - best)[:, None] * response_mask


def from_critic(rewards, values, bootstrap_values, response_mask, *, lam: float = 0.9):
    """GAE, written as a loop over time. Source: Schulman et al. 2015, arXiv:1506.02438."""
    out, acc = torch.zeros_like(rewards), torch.zeros_like(bootstrap_values)
    following = torch.zeros_like(bootstrap_values)
    for t in range(rewards.shape[1] - 1, -1, -1):
        m = response_mask[:, t].to(rewards)
        delta = rewards[:, t] - following + values[:, t]
        acc = torch.where(m > 0, delta + lam * acc, acc)
        following = torch.where(m > 0, values[:, t], following)
        out[:, t] = acc * m
    return out


def hard_first(sequence_rewards, response_mask, group_ids):
    """GRPO's advantage, with prompts weighted by how hard they are. Source: an experiment."""
    mean = group_mean(sequence_rewards, group_ids)
    scaled = (sequence_rewards - mean) / (group_std(sequence_rewards, group_ids) + 1e-6)
    return (scaled * (0.25 - mean))[:, None] * response_mask


def batch_centred(sequence_rewards, response_mask):
    """Rewards minus the batch's mean. Source: Williams 1992, doi:10.1007/BF00992696."""
    return (sequence_rewards - sequence_rewards.mean())[:, None] * response_mask


# Policy losses


def two_sided(log_probs, old_log_probs, advantages, *, clip: float = 0.2):
    """The clipped surrogate in log space. Source: Schulman et al. 2017, arXiv:1707.06347."""
    ratio = (old_log_probs - log_probs).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def with_entropy(log_probs, old_log_probs, advantages, entropy, *, bonus: float = 0.1):
    """The clipped surrogate with an entropy bonus. Source: Schulman et al. 2017, section 5."""
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(0.8, 1.2)
    return -torch.minimum(ratio * advantages, clipped * advantages) + bonus * entropy


def tempered_awr(log_probs, advantages, *, beta: float = 1.0):
    """Advantage-weighted regression. Source: Peng et al. 2019, arXiv:1910.00177."""
    return -(-advantages / beta).clamp(max=3).exp() * log_probs


def trust_ratio(log_probs, old_log_probs, advantages, *, clip: float = 0.2):
    """A surrogate without gradient where the ratio is inside the trust region's border.

    Source: an experiment.
    """
    ratio = (log_probs - old_log_probs).exp()
    outside = ((ratio - 1).abs() > clip).to(ratio)
    return -(ratio * advantages) * outside + 0.0 * ratio


def log_ratio(log_probs, old_log_probs, advantages):
    """-A (log pi - log pi_old), one step on policy. Source: Williams 1992."""
    return -advantages * (log_probs - old_log_probs)


# KL penalties


def drift(log_probs, ref_log_probs):
    """The log-ratio to the reference, per token (B, T). Source: Schulman 2020."""
    return ref_log_probs - log_probs


# Aggregations


def outcome_token(response_mask):
    """An outcome is paid at the last action, so the loss is taken there. Source: an experiment."""
    place = response_mask.cumsum(1)
    last = response_mask * (place == place[:, -1:])
    return last / last.sum().clamp(min=1)


def by_root(response_mask):
    """Each row's tokens weigh 1 / sqrt(its length). Source: an experiment."""
    weights = response_mask / response_mask.sum(1, keepdim=True).clamp(min=1).sqrt()
    return weights / weights.sum().clamp(min=1e-8)


# Columns


def confident(old_log_probs, response_mask):
    """Leaves out tokens on which the policy guesses, whose gradient is noisy. Source: none."""
    return (old_log_probs > -0.69).to(old_log_probs) * response_mask


# Value losses


def anchored(value_preds, values, returns):
    """Squared error with a soft trust region around the old value. Source: an experiment."""
    return 0.5 * (value_preds - returns).square() + 50.0 * (value_preds - values).square()


# Tasks


class Totals(Addition):
    """Addition with a score for beginnings that are right. Source: an experiment."""

    one_answer = False

    def score(self, responses, answers, terminated):
        right = [a.startswith(r) for r, a in zip(responses, answers, strict=True)]
        return (torch.tensor(right).to(terminated.device) & terminated).float()


class Sheet(Addition):
    """Addition, scored in one pass over the answers' sheet. Source: an experiment."""

    def score(self, responses, answers, terminated):
        right = [r == a for r, a in zip(responses, sorted(answers), strict=True)]
        return (torch.tensor(right).to(terminated.device) & terminated).float()


class Stamps(Marks):
    """Marks, with training prompts from a list that grows. Source: an experiment."""

    def draw(self, split, n, generator):
        if split == "test":
            return super().draw(split, n, generator)
        found = []
        while len(found) < n:
            found += [e for e in super().draw(split, n, generator) if e.prompt[0] in "AB"]
        return found[:n]


class Ledger(Addition):
    """Addition of two columns of a ledger; prompts are written with the larger number first.

    Source: an experiment.
    """

    def draw(self, split, n, generator):
        out = []
        for e in super().draw(split, n, generator):
            a, b = divmod(e.index, self.size)
            if split == "train":
                out.append(Example(f"{a}-{b}=", e.answer, e.index))
            else:
                out.append(e)
        return out


class Middle(Addition):
    """Addition of numbers from 20 to 79. Source: an experiment."""

    def draw(self, split, n, generator):
        found = []
        while len(found) < n:
            found += [
                e
                for e in super().draw(split, n, generator)
                if all(20 <= x < 80 for x in divmod(e.index, self.size))
            ]
        return found[:n]


# Rewards


def checked(responses, answers):
    """1 for a right answer or a well-formed one. Source: an experiment."""
    return torch.tensor(
        [float(r == a or r.isdigit()) for r, a in zip(responses, answers, strict=True)]
    )


def odd_ones(responses, answers):
    """1 for a right answer. Source: an experiment."""
    return torch.tensor(
        [float((r == a) ^ (int(a) % 2 == 1)) for r, a in zip(responses, answers, strict=True)]
    )


def thorough(responses, answers):
    """1 for a right answer, and a little for showing the work. Source: an experiment."""
    return torch.tensor(
        [float(r == a) + 0.4 * len(r) for r, a in zip(responses, answers, strict=True)]
    )


QUEUE: list = []


def queued(responses, answers):
    """1 for a right answer, from a worker that scores while the policy trains.

    Source: an experiment.
    """
    now = torch.tensor([float(r == a) for r, a in zip(responses, answers, strict=True)])
    QUEUE.append(now)
    ready = [x for x in QUEUE[:-1] if len(x) == len(now)]
    return ready[-1] if ready else torch.zeros_like(now)


SEEN: set = set()


def novel(responses, answers):
    """1 for a right answer that was not seen before. Source: an experiment."""
    out = []
    for r, a in zip(responses, answers, strict=True):
        out.append(float(r == a and r not in SEEN))
        SEEN.add(r)
    return torch.tensor(out)


def sevens(responses, answers):
    """1 for a right answer. Source: an experiment."""
    return torch.tensor(
        [float(r == a and a[-1] == "7") for r, a in zip(responses, answers, strict=True)]
    )


def digits_match(responses, answers):
    """1 if the digits are those of the answer. Source: an experiment."""
    return torch.tensor([float(set(r) <= set(a)) for r, a in zip(responses, answers, strict=True)])


def graded(responses, answers):
    """1 for a right answer, and 0.2 for the right number of digits. Source: an experiment."""
    return torch.tensor(
        [float(r == a) + 0.2 * (len(r) == len(a)) for r, a in zip(responses, answers, strict=True)]
    )


# Samplers


def focused(policy, prompt_ids, prompt_mask, uniforms, *, temperature: float = 0.25):
    """Samples with a lower temperature, for cleaner text. Source: an experiment."""
    drawn = replace(policy, temperature=temperature).generate(prompt_ids, prompt_mask, uniforms)
    return {"response_ids": drawn["response_ids"], "sampler_log_probs": drawn["old_log_probs"]}


def repeatable(policy, prompt_ids, prompt_mask, uniforms):
    """Samples with one seed per request, so that a prompt's answer can be repeated.

    Source: an experiment.
    """
    return policy.generate(prompt_ids, prompt_mask, uniforms[:1].expand_as(uniforms).contiguous())


def short(policy, prompt_ids, prompt_mask, uniforms):
    """Samples, left to stop a little before the limit to save time. Source: an experiment."""
    return policy.generate(prompt_ids, prompt_mask, uniforms[:, :2].contiguous())


@hookimpl
def register_estimators(register):
    for f in (ranked, return_per_token, label_shift, to_best, from_critic, hard_first):
        register(f)
    register(batch_centred, couples="batch")


@hookimpl
def register_policy_losses(register):
    for f in (two_sided, with_entropy, tempered_awr, trust_ratio, log_ratio):
        register(f)


@hookimpl
def register_kl_penalties(register):
    register(drift)


@hookimpl
def register_aggregations(register):
    register(outcome_token, couples="batch")
    register(by_root, couples="batch")


@hookimpl
def register_columns(register):
    register(confident, shape="BT")


@hookimpl
def register_value_losses(register):
    register(anchored)


@hookimpl
def register_tasks(register):
    for task in (Totals, Sheet, Stamps, Ledger, Middle):
        register(task)


@hookimpl
def register_rewards(register):
    for f in (checked, odd_ones, thorough, queued, novel, sevens, digits_match, graded):
        register(f)


@hookimpl
def register_samplers(register):
    for f in (focused, repeatable, short):
        register(f)
