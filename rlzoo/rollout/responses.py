"""Responses to prompts, by a sampler; and what samplers and column plugins may ask for beside
columns: `sample`, `score`, the models."""

import itertools
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.lm.models import Models
from rlzoo.mdp import noise, turns
from rlzoo.mdp import rules as mdp
from rlzoo.ops import on_host, put
from rlzoo.plugin.component import needs_of
from rlzoo.recipe.plan import Bound
from rlzoo.rollout.conversation import ahead, continued, converse
from rlzoo.rollout.drawn import check_log_probs, checked


def respond(
    models: Models,
    sampler: Bound,
    prompts: Mapping[str, Any],
    rows: Tensor,
    *,
    stream: str,
    step: int,
    max_new_tokens: int | None = None,
    talks: list[turns.Conversation] | None = None,
    greedy: bool = False,
) -> dict[str, Any]:
    """Responses by a sampler, with masks, endings and texts; every token is metered.

    rows: (N,) int64, the numbers of these rows to the noise.
    talks: conversations that go on from where they are, instead of new ones.
    greedy: the likeliest token each time instead, whatever the sampler and its temperature.
    """
    plan, policy = models.plan, models.policy
    limit = max_new_tokens or plan.recipe.config.rollout.max_new_tokens
    if greedy:
        return _greedy(models, prompts, limit, talks)
    uniforms = noise.uniforms(models.seed, f"sample/{stream}", step, rows, limit)
    # A sampler that wraps another draws first what the other would have drawn alone.
    more = resources(models, prompts, streams(stream, f"{stream}/again"), step, int(rows[0]))

    def speak(prompts: Mapping[str, Any], uniforms: Tensor) -> dict[str, Any]:
        given = {**prompts, **more, "uniforms": put(uniforms, policy.device)}
        drawn = sampler({n: given[n] for n in sampler.needs})
        return checked(models, sampler, drawn, *uniforms.shape)

    if plan.conversation and "sample" not in sampler.needs:
        drawn = converse(
            models,
            talks or turns.begin(prompts, len(rows), limit),
            prompts,
            lambda live, now, at, width: speak(now, ahead(uniforms[live], at, width)),
        )
    else:
        drawn = speak(prompts, uniforms)
    if "response_mask" not in drawn:
        drawn = _finish(models, drawn, limit)
    check_log_probs(sampler, drawn)
    if sampler is plan.base_sampler:
        models.meter.count(drawn["response_mask"])
    return drawn


def _greedy(
    models: Models,
    prompts: Mapping[str, Tensor],
    limit: int,
    talks: list[turns.Conversation] | None,
) -> dict[str, Any]:
    """The likeliest token each time, with masks, endings and texts; metered."""
    generate = models.policy.generate
    if models.plan.conversation:
        drawn = converse(
            models,
            talks or turns.begin(prompts, len(prompts["prompt_ids"]), limit),
            prompts,
            lambda live, now, at, width: generate(
                now["prompt_ids"], now["prompt_mask"], None, width
            ),
        )
    else:
        drawn = generate(prompts["prompt_ids"], prompts["prompt_mask"], None, limit)
        drawn = _finish(models, drawn, limit)
    models.meter.count(drawn["response_mask"])
    return drawn


def _finish(models: Models, drawn: dict[str, Any], limit: int) -> dict[str, Any]:
    """Mask, endings and texts of sampled `response_ids`."""
    policy = models.policy
    said = on_host(drawn["response_ids"])  # what is drawn is waited for here
    found = mdp.episode_columns(said, policy.eos_ids, limit, policy.pad_id)
    drawn["responses"] = mdp.decode(models.tokenizer, found, policy.eos_ids)
    device = drawn["response_ids"].device
    drawn.update({name: put(x, device) for name, x in found.items()})
    return drawn


def streams(*names: str) -> Iterator[str]:
    """A noise stream for each call: the names, then numbered ones after the last."""
    yield from names
    for i in itertools.count():
        yield f"{names[-1]}{i}"


def resources(
    models: Models, columns: Mapping[str, Any], streams: Iterator[str], step: int, first: int = 0
) -> dict[str, Any]:
    """The resources for the rows of `columns`. `first`: the number that the first of these rows
    has in the whole batch."""
    rows = (models, columns, streams, step, first)
    return {
        "sample": Sample(*rows),
        "score": Score(*rows),
        "policy": models.policy,
        "reference": models.reference,
        "teacher": models.teacher,
        "tokenizer": models.tokenizer,
    }


@dataclass
class _Resource:
    """The rows of `columns`, of which `first` is the first's number in the whole batch."""

    models: Models
    columns: Mapping[str, Any]
    streams: Iterator[str]
    step: int
    first: int


class Sample(_Resource):
    """`sample`: responses to any prompts. `max_new_tokens`: the recipe's length limit."""

    @property
    def max_new_tokens(self) -> int:
        return self.models.plan.recipe.config.rollout.max_new_tokens

    def __call__(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        *,
        max_new_tokens: int | None = None,
        greedy: bool = False,
        rows: Tensor | None = None,
        of: Tensor | None = None,
        reference: bool = False,
    ) -> dict[str, Any]:
        """Responses to prompts (N, P). `rows` (N,) names them to the noise, 0, 1, ... by default.
        reference: drawn by the frozen reference instead; who asks for that needs `reference` too.

        In a conversation each must be a beginning, before an action, of the batch's row `of` (N,),
        `rows` by default: it tells what the environment knows."""
        models, limit = self.models, max_new_tokens or self.max_new_tokens
        rows = None if rows is None else on_host(rows)
        if reference:
            models = _by_the_reference(models)
        prompts = {"prompt_ids": prompt_ids, "prompt_mask": prompt_mask}
        talks = None
        if models.plan.conversation:
            talks = continued(models, self.columns, prompts, rows if of is None else of, limit)
        if greedy:
            return _greedy(models, prompts, limit, talks)
        return respond(
            models,
            models.plan.base_sampler,
            prompts,
            self.first + (torch.arange(len(prompt_ids)) if rows is None else rows),
            stream=next(self.streams),
            step=self.step,
            max_new_tokens=limit,
            talks=talks,
        )


def _by_the_reference(models: Models) -> Models:
    """The same models, the policy's place taken by its frozen reference."""
    sampler = models.plan.base_sampler
    if "policy" not in sampler.needs:
        raise RlzooError(f"sampler {sampler.name!r} draws from no policy but the one it knows; "
                         "take sampler=transformers")  # fmt: skip
    assert models.reference is not None
    twin = copy(models)
    twin.policy = models.reference
    return twin


class Score(_Resource):
    """`score`: what other responses to the batch's prompts are worth."""

    def __call__(self, other: Mapping[str, Any]) -> Tensor:
        """Sequence scores (N,) of other responses; their `rows` (N,) say to which prompts."""
        models, plan = self.models, self.models.plan
        rows = other.get("rows")
        index = range(len(other["responses"])) if rows is None else on_host(rows).tolist()
        full = dict(other)
        for name in ("prompts", "messages", "answers"):
            full.setdefault(name, [self.columns[name][i] for i in index])
        mask = other["response_mask"]
        full.setdefault("response_attention", mask)
        if "turns" in plan.needs and not plan.conversation:
            full["turns"] = [[text] for text in full["responses"]]
        if "noise" in plan.needs:
            numbers = self.first + torch.arange(len(mask))
            stream = f"noise/{next(self.streams)}"
            uniforms = noise.uniforms(models.seed, stream, self.step, numbers, mask.shape[1])
            full["noise"] = put(uniforms.to(mask.dtype), mask.device)
        if "response_tokens" in plan.needs:
            full["response_tokens"] = mdp.decode_tokens(
                models.tokenizer, full, models.policy.eos_ids
            )
        missing = [n for n in needs_of(plan.task.score) if n not in full]
        if missing:
            raise RlzooError(
                f"score: task {plan.task_name!r} scores by {missing[0]!r}, which responses "
                "beside the batch's own do not have"
            )
        return mdp.score(plan, full)["sequence_scores"]
