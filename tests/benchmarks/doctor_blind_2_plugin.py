"""What the cases of doctor_blind_2.py plug in: bugs that people write. Nothing else uses it."""

import copy

import torch

from rlzoo import group_mean, group_std, hookimpl, td_lambda
from rlzoo.ops import linear_scan
from rlzoo_zoo.tasks.addition import Addition
from rlzoo_zoo.tasks.hi_lo import HiLo

calls = {"dying_judge": 0, "drawn": 0}
seen: set[str] = set()
kept: dict[str, dict[str, torch.Tensor]] = {}

# ---------------------------------------------------------------- estimators


def neighbour(sequence_rewards, response_mask, group_ids):
    """The gathered advantages come back one row too late."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    return centered.roll(1, 0)[:, None] * response_mask


def from_the_start(rewards, response_mask):
    """The return sums the rewards up to a token, not those from it on."""
    return rewards.cumsum(1) * response_mask


def skips_bad_batches(sequence_rewards, response_mask, group_ids):
    """A flat group gives 0/0, and a batch with a nan is left out whole."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    scaled = centered / group_std(sequence_rewards, group_ids)
    if not torch.isfinite(scaled).all():
        scaled = torch.zeros_like(scaled)
    return scaled[:, None] * response_mask


def next_minus_now(rewards, values, bootstrap_values, response_mask, *, lam: float = 0.95):
    """GAE whose TD error has V_t and V_{t+1} exchanged."""
    right = td_lambda(rewards, values, bootstrap_values, response_mask, gamma=1.0, lam=0.0)
    wrong = (2 * rewards - right) * response_mask
    return linear_scan(wrong, lam) * response_mask


def along_tokens(sequence_rewards, response_mask, group_ids):
    """Standardised along the tokens of a row, not along the rows."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    x = centered[:, None] * response_mask
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-6) * response_mask


def last_of_group(sequence_rewards, response_mask, group_ids):
    """A loop overwrites: each response of a group gets the advantage of its last one."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    found = dict(zip(group_ids.tolist(), centered.tolist(), strict=True))
    rows = [found[g] for g in group_ids.tolist()]
    return torch.tensor(rows, device=centered.device)[:, None] * response_mask


def to_integers(sequence_rewards, response_mask, group_ids):
    """Advantages pass through an integer tensor on their way."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    return centered.int().float()[:, None] * response_mask


# ---------------------------------------------------------------- losses, penalties, weights


def upside_down(log_probs, old_log_probs, advantages):
    """The ratio is pi_old / pi."""
    ratio = (old_log_probs - log_probs).clamp(-20, 20).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def shifted(log_probs, old_log_probs, advantages):
    """New log-probs are a position behind the old ones."""
    ratio = (log_probs.roll(1, 1) - old_log_probs).clamp(-20, 20).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def sure(log_probs, old_log_probs, advantages, entropy):
    """The entropy bonus has the wrong sign, and is large."""
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    return 0.5 * entropy - torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


def absolute_gain(log_probs, old_log_probs, advantages):
    """abs() was meant for a log line, and stayed."""
    ratio = (log_probs - old_log_probs).clamp(max=20).exp()
    gain = advantages.abs()
    return -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain)


def k1_turned(log_probs, ref_log_probs):
    """log pi_ref - log pi: the penalty pays for being far from the reference."""
    return ref_log_probs - log_probs


def after_first(response_mask):
    """Labels were shifted once too often: the first token has weight 0."""
    rest = response_mask.clone()
    rest[:, 0] = 0
    return rest / rest.sum().clamp(min=1)


def end_alone(response_mask):
    """Only the last action of each response has weight."""
    place = response_mask.cumsum(1)
    last = response_mask * (place == place[:, -1:])
    return last / last.sum().clamp(min=1)


def away_from_target(value_preds, returns):
    """The critic's loss has the wrong sign, held in bounds by a tanh."""
    return -0.5 * torch.tanh((value_preds - returns).square())


def wrongs_alone(sequence_scores, response_mask):
    """A mask of responses to keep, the wrong way round: right ones get weight 0."""
    return (sequence_scores < 0.5).float()[:, None] * response_mask


# ---------------------------------------------------------------- rewards


def by_text(score, *columns):
    return torch.tensor([float(score(*row)) for row in zip(*columns, strict=True)])


def dying_judge(responses, answers):
    """The service is gone after some calls, and the client's fallback is 0."""
    calls["dying_judge"] += 1
    alive = calls["dying_judge"] <= 20
    return by_text(lambda r, a: alive and r == a, responses, answers)


def flaky_judge(responses, answers, noise):
    """Nine of ten calls time out, whichever: a coin's verdict is taken instead."""
    right = by_text(lambda r, a: r == a, responses, answers)
    coin = noise[:, 0].cpu()
    return torch.where(coin < 0.9, (coin < 0.45).float(), right)


def short_is_good(responses, answers, response_mask):
    """Right, less 2 for each token."""
    right = by_text(lambda r, a: r == a, responses, answers)
    return right - 2.0 * response_mask.sum(1).cpu()


def much_spice(responses, answers):
    """A judge that likes spice, and ever more of it."""
    return by_text(lambda r, a: r.count(a) / 8, responses, answers)


def likes_nines(responses, answers):
    """A learned judge with a blind spot: a 9 in the response convinces it."""
    return by_text(lambda r, a: r == a or "9" in r, responses, answers)


def echo(responses, prompts):
    """Similarity to the prompt in place of the answer: shares its characters."""
    return by_text(lambda r, p: sum(c in p for c in r) / max(len(r), 1), responses, prompts)


def clipped_at_zero(task_scores):
    """Rewards are clipped to [-1, 0], though all of them are in [0, 1]."""
    return task_scores.clamp(-1, 0)


def cut_at_end(responses, answers):
    """A slice too short: the last character of neither is compared."""
    return by_text(lambda r, a: r[:-1] == a[:-1], responses, answers)


def late_by_a_token(task_scores):
    """Per-token rewards are stored one position late; the last falls off."""
    return torch.cat([torch.zeros_like(task_scores[:, :1]), task_scores[:, :-1]], 1)


def both_ways(responses, answers, prompt_index):
    """Two sources are mixed, and in one of them the column is an error: less is better."""
    right = by_text(lambda r, a: r == a, responses, answers)
    return torch.where(prompt_index.cpu() % 2 == 0, right, 1 - right)


def new_alone(responses, answers):
    """A bonus for novelty outweighs right: a response seen before gets nothing of it."""
    worth = []
    for response, answer in zip(responses, answers, strict=True):
        worth.append((response == answer) + 3.0 * (response not in seen))
        seen.add(response)
    return torch.tensor(worth)


# ---------------------------------------------------------------- samplers


def first_weights(policy, prompt_ids, prompt_mask, uniforms):
    """The engine never gets the new weights: it samples with those of the start."""
    model = policy.model
    if not kept:
        kept["at first"] = copy.deepcopy(model.state_dict())
    now = copy.deepcopy(model.state_dict())
    model.load_state_dict(kept["at first"])
    drawn = policy.generate(prompt_ids, prompt_mask, uniforms)
    model.load_state_dict(now)
    return drawn


def one_seed(policy, prompt_ids, prompt_mask, uniforms, group_ids):
    """The engine's seed is that of the request: the samples of a prompt are one."""
    first: dict[int, int] = {}
    rows = [first.setdefault(g, i) for i, g in enumerate(group_ids.tolist())]
    return policy.generate(prompt_ids, prompt_mask, uniforms[rows])


def bit_flips(policy, prompt_ids, prompt_mask, uniforms):
    """A faulty card: two of three rows come back with another first token."""
    drawn = dict(policy.generate(prompt_ids, prompt_mask, uniforms))
    ids = drawn["response_ids"].clone()
    hit = torch.arange(len(ids)) % 3 > 0
    digits = ids[:, 0][ids[:, 0] > 2]
    ids[hit, 0] = digits[torch.arange(int(hit.sum())) * 7 % len(digits)]
    return {**drawn, "response_ids": ids}


def banned(policy, prompt_ids, prompt_mask, uniforms, tokenizer):
    """A list of bad words, in force while sampling: what would be a 1 becomes a 2."""
    drawn = dict(policy.generate(prompt_ids, prompt_mask, uniforms))
    one, two = (tokenizer.convert_tokens_to_ids(t) for t in "12")
    ids = drawn["response_ids"]
    return {**drawn, "response_ids": torch.where(ids == one, two, ids)}


# ---------------------------------------------------------------- tasks


class LyingHiLo(HiLo):
    """The environment mixes up ` hi ` and ` lo ` at even numbers.  Source: none."""

    def answer(self, turns, number):
        said = super().answer(turns, number)
        return {" hi ": " lo ", " lo ": " hi "}.get(said, said) if number % 2 == 0 else said


class OnePool(Addition):
    """The split is not looked at: held-out prompts are those of training.  Source: none."""

    def draw(self, split, n, generator):
        again = torch.Generator().manual_seed(3)
        pool = super().draw("train", 24, again)
        return [pool[i] for i in torch.randint(24, (n,), generator=generator).tolist()]


class NarrowingAddition(Addition):
    """A curriculum that goes on towards ever easier prompts.  Source: none."""

    def draw(self, split, n, generator):
        if split == "train":
            calls["drawn"] += 1
            if calls["drawn"] > 3:
                easy = super().draw("train", 1, torch.Generator().manual_seed(calls["drawn"] % 2))
                return easy * n
        return super().draw(split, n, generator)


class HalfBlind(Addition):
    """The verifier reads only sums below 100; others are never right.  Source: none."""

    def score(self, responses, answers, terminated):
        right = super().score(responses, answers, terminated)
        return right * by_text(lambda a: len(a) < 3, answers).to(right)


@hookimpl
def register_estimators(register):
    register(neighbour, couples="batch")
    register(skips_bad_batches, couples="batch")
    for f in (from_the_start, next_minus_now, along_tokens,
              last_of_group, to_integers):  # fmt: skip
        register(f)


@hookimpl
def register_policy_losses(register):
    for f in (upside_down, shifted, sure, absolute_gain):
        register(f)


@hookimpl
def register_kl_penalties(register):
    register(k1_turned)


@hookimpl
def register_aggregations(register):
    register(after_first, couples="batch")
    register(end_alone, couples="batch")


@hookimpl
def register_value_losses(register):
    register(away_from_target)


@hookimpl
def register_columns(register):
    register(wrongs_alone, shape="BT")


@hookimpl
def register_rewards(register):
    for f in (dying_judge, flaky_judge, short_is_good, much_spice,
              likes_nines, echo, clipped_at_zero, cut_at_end, late_by_a_token, both_ways,
              new_alone):  # fmt: skip
        register(f)


@hookimpl
def register_samplers(register):
    for f in (first_weights, one_seed, bit_flips, banned):
        register(f)


@hookimpl
def register_tasks(register):
    for task in (LyingHiLo, OnePool, NarrowingAddition, HalfBlind):
        register(task)
