"""New rollouts from states of a batch: estimates of V and A from K branches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlzoo.lm.world import World
from rlzoo.mdp import noise
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import Batch, left_pad, take
from rlzoo.rollout.sample import respond
from rlzoo_lab.stats import mean_interval, wilson

STREAM = "branches"  # of noise


def choose_tokens(mask: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw n tokens of a mask (B, T) uniformly: rows and positions, (n,) each.

    Takes every N-th token in the order of positions, with the rows in random order within each
    position, so that positions appear as often as the policy visits them.
    """
    step, row = mask.bool().T.nonzero().unbind(1)
    order = (step + torch.rand(len(step), generator=generator, dtype=torch.float64)).argsort()
    start = torch.rand((), generator=generator, dtype=torch.float64)
    place = ((torch.arange(n) + start) * len(row) / n).long().clamp(max=len(row) - 1)
    return row[order[place]], step[order[place]]


@dataclass
class Reference:
    """For N states: the future scores from s, from s with its token, and from s' in K branches, (N,
    K) each.

    `ended`: the token was the last one, so there is no future score and no branch was drawn.
    """

    here: np.ndarray
    taken: np.ndarray
    after: np.ndarray
    ended: np.ndarray
    binary: bool

    @property
    def reward(self) -> np.ndarray:
        """(N,) the reward of the token itself, averaged if it is random."""
        paid: np.ndarray = (self.taken - self.after).mean(1)
        return paid

    def advantage(self, some: slice) -> np.ndarray:
        """(N,) r + V^(s') - V^(s), estimated from some of the branches."""
        gain: np.ndarray = self.taken[:, some].mean(1) - self.here[:, some].mean(1)
        return gain

    @property
    def first(self) -> np.ndarray:
        return self.advantage(slice(0, self.here.shape[1] // 2))

    @property
    def second(self) -> np.ndarray:
        return self.advantage(slice(self.here.shape[1] // 2, None))

    @property
    def estimate(self) -> np.ndarray:
        return self.advantage(slice(None))

    def interval(self, scores: np.ndarray) -> tuple[float, float]:
        """The 95 % interval of a state's V: Wilson's for scores of 0 and 1, otherwise the normal
        interval."""
        if self.binary:
            return wilson(float(scores.sum()), len(scores))
        return mean_interval(scores.tolist())


def make_reference(
    world: World, batch: Batch, row: Tensor, at: Tensor, branches: int, step: int
) -> Reference:
    """Branches for the states before token `at` (N,) of rows `row` (N,), and for those after it."""
    lengths = batch["response_mask"].long().sum(1).cpu()[row]
    ended = at + 1 >= lengths
    on = ~ended
    n = len(row)
    both, since = torch.cat([row, row[on]]), torch.cat([at, at[on]])
    begin = torch.cat([at, at[on] + 1])
    drawn, later = branch(world, batch, both, begin, since, branches, step=step)
    taken, after = drawn.new_zeros(n, branches), drawn.new_zeros(n, branches)
    taken[on], after[on] = drawn[n:], later[n:]
    if bool(ended.any()):
        first = len(both) * branches  # numbers of the noise beyond those of the branches
        taken[ended] = _last_rewards(world, batch, row[ended], at[ended], branches, first, step)
    outcomes = torch.tensor([0.0, 1.0], dtype=drawn.dtype)
    return Reference(
        drawn[:n].numpy(),
        taken.numpy(),
        after.numpy(),
        ended.numpy(),
        bool(torch.isin(torch.cat([drawn, taken]), outcomes).all()),
    )


def _last_rewards(
    world: World, batch: Batch, row: Tensor, at: Tensor, rollouts: int, first: int, step: int
) -> Tensor:
    """(N, K) rewards of the last tokens of responses, drawn again if they are random."""
    if "noise" not in world.plan.needs:
        return batch["scores"].cpu().double()[row, at][:, None].expand(-1, rollouts)
    numbers = first + torch.arange(len(row) * rollouts)
    columns = take(batch, row.repeat_interleave(rollouts).to(world.policy.device))
    since = at.repeat_interleave(rollouts)
    columns["noise"] = _fresh_noise(world, columns, numbers, since, batch.steps, step)
    scores = mdp.score(world.plan, columns)["scores"].cpu().double()
    return scores.gather(1, since[:, None]).view(-1, rollouts)


def _fresh_noise(
    world: World, columns: Mapping[str, Any], numbers: Tensor, since: Tensor, width: int,
    step: int,
) -> Tensor:  # fmt: skip
    """(B, width) random numbers: those before `since` are kept, the others are new."""
    past = columns["noise"]
    fresh = noise.uniforms(world.seed, f"{STREAM}/noise", step, numbers, width).to(past)
    past = torch.nn.functional.pad(past, (0, max(0, width - past.shape[1])))[:, :width]
    later = torch.arange(width, device=past.device) >= since.to(past.device)[:, None]
    return torch.where(later, fresh, past)


def branch(
    world: World, batch: Batch, row: Tensor, begin: Tensor, since: Tensor, rollouts: int, *,
    step: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The rewards of K fresh rollouts after the first `begin` (N,) tokens of `row` from position
    `since` <= `begin` on, and from `begin` on; (N, K) float64 each.

    The length limit applies to the whole response. Samples as many at a time as the batch has rows,
    grouped by similar prefix lengths.
    """
    of = torch.arange(len(row)).repeat_interleave(rollouts)
    numbers = torch.arange(len(of))  # of the noise: a branch of its own each
    paid = torch.zeros(2, len(of), dtype=torch.float64)
    for some in begin[of].argsort(stable=True).split(max(batch.rows, rollouts)):
        i = of[some]
        paid[:, some] = _branch(world, batch, row[i], begin[i], since[i], numbers[some], step)
    return paid[0].view(-1, rollouts), paid[1].view(-1, rollouts)


OF_PROMPT = ("prompts", "answers", "prompt_ids", "prompt_mask", "prompt_index", "group_ids")


def _branch(
    world: World, batch: Batch, row: Tensor, begin: Tensor, since: Tensor, numbers: Tensor,
    step: int,
) -> Tensor:  # fmt: skip
    plan, policy = world.plan, world.policy
    limit = plan.recipe.config.rollout.max_new_tokens
    rows, starts = row.tolist(), begin.tolist()
    there = {i: batch["response_ids"][i].tolist() for i in set(rows)}
    asked = {i: batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist() for i in set(rows)}
    old = [there[i][:t] for i, t in zip(rows, starts, strict=True)]
    prefixes = [asked[i] + tokens for i, tokens in zip(rows, old, strict=True)]
    ids, mask = left_pad(prefixes, policy.pad_id, policy.device)
    prompts = {"prompt_ids": ids, "prompt_mask": mask}
    room = limit - begin
    drawn = respond(
        world, plan.base_sampler, prompts, numbers, stream=STREAM, step=step,
        max_new_tokens=int(room.max()),
    )  # fmt: skip
    length = drawn["response_mask"].long().sum(1).cpu()
    cut = (length > room).to(policy.device)
    kept = torch.minimum(length, room).tolist()
    responses = [
        tokens + new[:n]
        for tokens, new, n in zip(old, drawn["response_ids"].tolist(), kept, strict=True)
    ]
    width = max(map(len, responses))
    end = torch.tensor([len(tokens) for tokens in responses], device=policy.device)
    places = torch.arange(width, device=policy.device)
    live = (places < end[:, None]).float()
    picked = take(batch, row.to(policy.device))
    columns = {
        **{name: picked[name] for name in OF_PROMPT},
        "response_ids": torch.tensor(
            [tokens + [policy.pad_id] * (width - len(tokens)) for tokens in responses],
            device=policy.device,
        ),
        "response_mask": live,
        "response_attention": live,
        "terminated": drawn["terminated"].bool() & ~cut,
        "truncated": drawn["truncated"].bool() | cut,
    }
    columns["responses"] = mdp.decode(world.tokenizer, columns, policy.eos_ids)
    if "response_tokens" in plan.needs:
        columns["response_tokens"] = mdp.decode_tokens(world.tokenizer, columns, policy.eos_ids)
    if "noise" in plan.needs:
        columns["noise"] = live * _fresh_noise(world, picked, numbers, since, width, step)
    scores = mdp.score(plan, columns)["scores"].double().cpu()
    later = [scores * (torch.arange(width) >= first[:, None]) for first in (since, begin)]
    return torch.stack(later).sum(2)
