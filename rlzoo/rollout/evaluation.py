"""Evaluates a policy on held-out prompts, sampled by the recipe's `eval` keys and greedily."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import torch

from rlzoo.accel.engine import Meter
from rlzoo.lm.world import World
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import Batch, left_pad, right_pad
from rlzoo.mdp.rules import right_rows
from rlzoo.plugin.component import Example
from rlzoo.recipe.plan import Plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.runs.metrics import GAIN, GREEDY
from rlzoo.runs.metrics import headline as headline
from rlzoo.stats import mean_over, share_over


def evaluate(world: World, n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The line: `eval/accuracy` if the task defines correctness, `eval/answer_prob` if it has one
    answer, and `eval/score`, with 95 % intervals; the mean of each reward; `eval/greedy`. Also the
    results per prompt: `index`, `prompt`, `score`, `right`, `answer_prob`, an array (n,) each.

    One sample a prompt, and one greedy response; a prompt that is drawn twice counts once for the
    intervals. Prompts and noise are the same each time, so evaluations of a run are paired.
    """
    scores: list[float] = []
    index: list[int] = []
    kinds: list[tuple[str, str]] = []
    right: list[bool] = []
    parts = dict.fromkeys(world.plan.rewards, 0.0)
    tokens = cut = 0
    for batch in held_out(world, n):
        scores += batch["sequence_scores"].tolist()
        index += batch["prompt_index"].tolist()
        kinds += zip(batch["prompts"], map(repr, batch["answers"]), strict=True)
        for name, part in zip(parts, batch["score_components"].sum(0).tolist(), strict=True):
            parts[name] += part
        tokens += int(batch["response_mask"].sum())
        cut += int(batch["truncated"].sum())
        marks = right_rows(world.plan, batch)
        right += [] if marks is None else marks.tolist()
    out: dict[str, Any] = {
        "eval/score": sum(scores) / n,
        "eval/samples": n,
        "eval/prompts": len(set(kinds)),
        "eval/tokens": tokens,
        "eval/response_length": tokens / n,
        "eval/truncated": cut / n,
    }
    # A prompt without an index in the task's data is known again by its text.
    prompt = [crc32(repr(k).encode()) for k in kinds]
    index = [p if i < 0 else i for i, p in zip(index, prompt, strict=True)]
    by_prompt: dict[str, Any] = {"index": np.array(index), "prompt": np.array(prompt, np.uint32),
                                 "score": np.array(scores, np.float32)}  # fmt: skip
    out["eval/score_low"], out["eval/score_high"] = mean_over(scores, kinds)
    out |= {f"eval/reward/{name}": part / n for name, part in parts.items()}
    if right:
        out["eval/accuracy"] = sum(right) / n
        out["eval/accuracy_low"], out["eval/accuracy_high"] = share_over(right, kinds)
        by_prompt["right"] = np.array(right, np.uint8)
        if scores == right:  # one number has one interval
            out["eval/score_low"], out["eval/score_high"] = share_over(right, kinds)
    if has_answer_prob(world.plan):
        p = answer_probs(world, n)
        out |= answer_line(p, kinds)
        by_prompt["answer_prob"] = np.array(p, np.float32)
    return out | greedy(world, n), by_prompt


def gain(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, float]:
    """`eval/gain`, the rise of the headline (`right`, else `score`) between two evaluations on the
    same prompts, and its 95 % interval over prompts, paired; {} where they cannot be paired."""
    name = "right" if "right" in after else "score"
    if not before or not {name, "prompt"} <= before.keys():
        return {}
    if before["prompt"].tolist() != after["prompt"].tolist():
        return {}
    rise = (after[name].astype(float) - before[name]).tolist()
    low, high = mean_over(rise, after["prompt"].tolist())
    return {GAIN: sum(rise) / len(rise), f"{GAIN}_low": low, f"{GAIN}_high": high}


def greedy(world: World, n: int, *, split: str = "test") -> dict[str, float]:
    """`eval/greedy`: the accuracy of greedy responses to an evaluation's prompts, one to each; the
    mean score if the task does not define correctness. A prompt that is drawn again counts again,
    and is decoded once."""
    examples = draw(world, split, n, "eval", 0)
    rewards = (bound.component for _, bound in world.plan.rewards.values())
    # Whether a response's score depends only on its prompt, not on noise or other rows.
    alone = "noise" not in world.plan.needs and all(c.couples == "row" for c in rewards)
    kinds = [repr(e) if alone else str(i) for i, e in enumerate(examples)]
    distinct = dict(zip(kinds, examples, strict=True))
    place = {kind: i for i, kind in enumerate(distinct)}
    per_batch = []
    for batch in _respond_to(world, [*distinct.values()], greedy=True):
        right = right_rows(world.plan, batch)
        per_batch.append((batch["sequence_scores"] if right is None else right).cpu())
    values = torch.cat(per_batch)[[place[kind] for kind in kinds]]
    return {GREEDY: sum(float(x.sum()) for x in values.split(_size(world))) / n}


def decoding(world: World) -> World:
    """The world whose policy has `eval.temperature`, `eval.top_k` and `eval.top_p`. Its tokens do
    not count toward the run's budget."""
    how = world.plan.recipe.config.eval
    policy = replace(
        world.policy, temperature=how.temperature, top_k=how.top_k, top_p=how.top_p, replay=False
    )
    return replace(world, engine=replace(world.engine, policy=policy, meter=Meter()))


def has_answer_prob(plan: Plan) -> bool:
    """Whether the probability of a correct response can be computed: the task has one answer, and
    evaluations do not truncate the policy."""
    how, rollout = plan.recipe.config.eval, plan.recipe.config.rollout
    whole = how.top_k == 0 and how.top_p == 1 and rollout.min_new_tokens == 0
    return plan.abilities.one_answer and whole


@torch.no_grad()
def answer_probs(world: World, n: int, split: str = "test") -> list[float]:
    """P(the response is the answer, as the tokenizer cuts it, and then EOS) for each of the n
    prompts, by a forward pass. 0 if the length limit leaves no room for EOS."""
    policy, limit = world.policy, response_limit(world.plan)
    examples = draw(world, split, n, "eval", 0)
    reader = world.prompt_format
    prompts = [reader.encode(e.prompt) for e in examples]
    texts = [reader.gap * reader.templated(e.prompt) + str(e.answer) for e in examples]
    answers = [mdp.continued(policy.tokenizer, text, *ids[-1:])
               for text, ids in zip(texts, prompts, strict=True)]  # fmt: skip
    ids, mask = left_pad(prompts, policy.pad_id, policy.device)
    total, engine = torch.zeros(len(examples), dtype=torch.float64), decoding(world).engine
    for end in [[eos] for eos in policy.eos_ids] or [[]]:
        given, real = right_pad([[*a, *end] for a in answers], policy.pad_id)
        columns = {"prompt_ids": ids, "prompt_mask": mask}
        columns["response_ids"] = given.to(policy.device)
        columns["response_mask"] = columns["response_attention"] = real.to(mask)
        scored = engine.scores(columns, ("log_probs",))
        total += scored["log_probs"].double().sum(1).exp().cpu()
    # Without EOS, a response has a fixed length.
    fits = torch.tensor(
        [len(a) < limit if policy.eos_ids else len(a) == limit for a in answers], dtype=torch.bool
    )
    return torch.where(fits, total, 0.0).tolist()


def answer_line(p: list[float], prompts: Sequence[Hashable]) -> dict[str, float]:
    """The metric and its interval over the prompts."""
    low, high = mean_over(p, prompts)
    name = "eval/answer_prob"
    return {name: sum(p) / len(p), f"{name}_low": low, f"{name}_high": high}


def response_limit(plan: Plan) -> int:
    """The maximum number of tokens in a held-out response."""
    config = plan.recipe.config
    return config.eval.max_new_tokens or config.rollout.max_new_tokens


def held_out(
    world: World, n: int, samples: int = 1, *, split: str = "test", greedy: bool = False
) -> Iterator[Batch]:
    """Batches of `samples` responses to each of n prompts: all prompts once, then once more, ...
    Sample j of prompt i is row j * n + i to the noise, however many rows make a batch."""
    examples = draw(world, split, n, "eval", 0)
    for first in range(0, n * samples, n):
        yield from _respond_to(world, examples, first=first, greedy=greedy)


def _respond_to(
    world: World, examples: list[Example], *, first: int = 0, greedy: bool = False
) -> Iterator[Batch]:
    """Batches of a response to each of the examples, whose rows are `first`, ... to the noise."""
    size = _size(world)
    for start in range(0, len(examples), size):
        yield collect(
            decoding(world),
            examples[start : start + size],
            1,
            stream="eval",
            step=0,
            first_row=first + start,
            sampler=world.plan.base_sampler,
            limit=response_limit(world.plan),
            greedy=greedy,
        )


def _size(world: World) -> int:
    """The number of rows at once, at most that of training."""
    rollout = world.plan.recipe.config.rollout
    return rollout.prompts * rollout.samples
