"""Makes a batch from prompts: samples responses and scores them. Also the resources of samplers and
column plugins: `sample`, `score` and the models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError
from rlzoo.lm.prompts import PromptFormat
from rlzoo.mdp import noise, turns
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import Batch, concatenate, left_pad
from rlzoo.mdp.rules import draw_examples
from rlzoo.ops import on_host, put
from rlzoo.plugin.border import Bound, border, needs_of
from rlzoo.plugin.call import LOG_PROBS, check
from rlzoo.plugin.columns import Columns
from rlzoo.plugin.component import Example
from rlzoo.rollout.conversation import ahead, continued, converse

if TYPE_CHECKING:  # transformers
    from rlzoo.lm.models import Models

MASKS = ("response_mask", "response_attention")
ABOVE = 1e-3  # nats: what rounding may put a log-probability above 0


def draw(models: Models, split: str, n: int, stream: str, step: int) -> list[Example]:
    """n prompts of the task, a function of (seed, stream, step)."""
    plan = models.plan
    generator = noise.generator(models.seed, f"prompts/{stream}", step)
    return draw_examples(plan.task, plan.task_name, split, n, generator)


def collect(
    models: Models,
    examples: list[Example],
    samples: int,
    *,
    stream: str,
    step: int,
    first_row: int = 0,
    sampler: Bound | None = None,
    limit: int | None = None,
    greedy: bool = False,
) -> Batch:
    """Sample `samples` responses to each prompt and score them: the columns up to `scores`.

    first_row: number of the first row, for batches that are parts of one.
    sampler: the plan's unless another is given. limit: the most tokens of a response. As `sampler`,
    greedy: use the most likely token each time.
    Several ranks share the prompts, and all of them get the whole batch.
    """
    plan, policy, ranks, meter = models.plan, models.policy, models.ranks, models.meter
    sampler, before = sampler or plan.sampler, meter.tokens
    shared = ranks.count > 1 and len(examples) >= ranks.count  # fewer: each rank does them all
    if shared:
        mine = ranks.block(len(examples))
        examples, first_row = examples[mine.start : mine.stop], first_row + mine.start * samples
    rows = torch.arange(len(examples) * samples) + first_row
    prompts = _prompts(models, examples, samples, rows)
    with models.whole(sampler.needs) if models.sharded else nullcontext():
        drawn = respond(models, sampler, prompts, rows, stream=stream, step=step,
                        max_new_tokens=limit, greedy=greedy)  # fmt: skip
    if models.recomputes:
        drawn.pop("old_log_probs", None)
    elif plan.recipe.config.rollout.old_log_probs == "sampled" and "sampler_log_probs" in drawn:
        # another engine returns no more
        drawn.setdefault("old_log_probs", drawn["sampler_log_probs"])
    if "sampler_log_probs" in drawn:  # of a model in float64 the scores are in float64, too
        kind = drawn["sampler_log_probs"].dtype
        drawn |= {n: put(on_host(drawn[n]).to(kind), policy.device) for n in MASKS}
    task_scores = drawn.pop("task_scores", None)
    batch = Batch(drawn.pop("response_mask"))
    batch.update(prompts | drawn)  # agents send prompts of their own
    if "turns" in plan.needs and "turns" not in batch:
        batch.add("turns", [[text] for text in batch["responses"]])
    if "noise" in plan.needs:
        uniform = noise.uniforms(models.seed, f"noise/{stream}", step, rows, batch.steps)
        batch.add("noise", put(uniform.to(torch.float32), policy.device))
    if "response_tokens" in plan.needs:
        texts = mdp.decode_tokens(models.tokenizer, batch, policy.eos_ids)
        batch.add("response_tokens", texts)
    batch.update(mdp.score(plan, batch, task_scores))
    if not shared:
        return batch
    meter.tokens = before + sum(ranks.gather(meter.tokens - before))
    own = {n: x.cpu() if isinstance(x, Tensor) else x for n, x in batch.items()}
    return concatenate(ranks.gather(own), policy.pad_id, policy.device)


def _prompts(models: Models, examples: list[Example], samples: int, rows: Tensor) -> dict[str, Any]:
    """The examples' prompts as the policy and components read them, by column: `samples` rows of
    each. rows: (N,) their numbers."""
    form, plan, policy = models.prompt_format, models.plan, models.policy
    domain_of = plan.abilities.domain_of
    with border(f"task {plan.task_name!r}: domain_of"):
        domains = [str(domain_of(e)) if domain_of else "" for e in examples]
    read: dict[str, list[Any]] = {
        "prompts": [form.text(e.prompt) for e in examples],
        "messages": [form.messages(e.prompt) for e in examples],
        "answers": [e.answer for e in examples],
        "domains": domains,
        "prompt_ids": form.encode_each(e.prompt for e in examples),
        "prompt_index": [e.index for e in examples],
    }
    each = {name: [x for x in values for _ in range(samples)] for name, values in read.items()}
    ids, mask = left_pad(each.pop("prompt_ids"), policy.pad_id, policy.device)
    return {
        **each,
        "prompt_ids": ids,
        "prompt_mask": mask,
        "prompt_index": put(torch.tensor(each["prompt_index"]), policy.device),
        "group_ids": put(rows // samples, policy.device),
    }


def respond(
    models: Models,
    sampler: Bound,
    prompts: Columns,
    rows: Tensor,
    *,
    stream: str,
    step: int,
    max_new_tokens: int | None = None,
    talks: list[turns.Conversation] | None = None,
    turn: Tensor | None = None,
    greedy: bool = False,
) -> dict[str, Any]:
    """Responses by a sampler, with masks, endings and texts; every token is metered.

    rows: (N,) int64, the numbers of these rows to the noise.
    talks: conversations that continue from where they are, instead of new ones.
    turn: (N, T) the noise of a single turn, which no environment answers.
    greedy: use the most likely token each time, for any sampler and temperature.
    """
    plan, policy = models.plan, models.policy
    limit = max_new_tokens or plan.recipe.config.rollout.max_new_tokens
    uniforms = turn
    if turn is None and not greedy:
        uniforms = noise.uniforms(models.seed, f"sample/{stream}", step, rows, limit)
    # A sampler that wraps another draws first what the other would have drawn.
    more = resources(models, prompts, (stream, f"{stream}/again"), step, int(rows[0]))

    def speak(prompts: Columns, u: Tensor | None, width: int) -> dict[str, Any]:
        """Columns of at most `width` tokens: a sampler's at u (R, width), greedy without."""
        if u is None:
            return policy.generate(prompts["prompt_ids"], prompts["prompt_mask"], None, width)
        return sampler({**prompts, **more, "uniforms": put(u, policy.device)})

    def go_on(live: Tensor, now: Columns, at: Tensor, width: int) -> dict[str, Any]:
        u = None if uniforms is None else ahead(uniforms[live], at, width)
        return speak(now, u, width)

    if plan.conversation and turn is None and (greedy or "sample" not in sampler.needs):
        drawn = converse(models, talks or turns.begin(prompts, len(rows), limit), prompts, go_on)
    else:
        drawn = speak(prompts, uniforms, limit)
    _finish(models, sampler, drawn, limit, prompts["prompt_mask"])
    if greedy or sampler is plan.base_sampler:
        models.meter.tokens += int(on_host(drawn["response_mask"]).sum())
    return drawn


def _finish(
    models: Models, sampler: Bound, drawn: dict[str, Any], limit: int, prompt_mask: Tensor
) -> None:
    """Add mask, endings and texts to sampled `response_ids`; conversations have them already.

    Raises a ComponentError, naming the sampler, for a column that it lacks, or for an invalid
    log-prob of a chosen token: immediately, or at the end of `rlzoo.plugin.call.together`.
    """
    policy = models.policy
    if "response_mask" not in drawn:
        said = on_host(drawn["response_ids"])  # what is drawn is waited for here
        found = mdp.episode_columns(
            said, policy.eos_ids, policy.room(prompt_mask, limit), policy.pad_id
        )
        drawn["responses"] = mdp.decode(models.tokenizer, found, policy.eos_ids)
        drawn |= {name: put(x, policy.device) for name, x in found.items()}
    elif missing := sorted(models.plan.needs & {"turn_ids", "state_keys"} - drawn.keys()):
        raise ComponentError(f"{sampler.component.label}: returned no {missing[0]!r}")
    mask = drawn["response_mask"]
    for name in (n for n in LOG_PROBS if n in drawn):
        x = drawn[name]
        wrong = mask.bool() & ~(x <= ABOVE).logical_and(x.isfinite())

        def fault(name: str = name, x: Tensor = x, wrong: Tensor = wrong) -> ComponentError:
            row, t = wrong.nonzero()[0].tolist()
            return ComponentError(
                f"{sampler.component.label}: returned {name} {float(x[row, t]):g} for token {t} of "
                f"row {row}, which is not a log-probability"
            )

        check(~wrong.any(), fault)


# ---------------------------------------------------------------- resources


def resources(
    models: Models, columns: Columns, streams: Sequence[str], step: int, first: int = 0
) -> dict[str, Any]:
    """The resources for the rows of `columns`.

    streams: the noise streams of the first calls; later calls number the last one. first: the
    first row's number in the batch.
    """
    later = (f"{streams[-1]}{i}" for i in itertools.count())
    rows = (models, columns, itertools.chain(streams, later), step, first)
    return {
        "sample": Sample(*rows),
        "score": Score(*rows),
        "policy": models.policy,
        "reference": models.reference,
        "teacher": models.teachers.get(None),
        "tokenizer": models.tokenizer,
        "memory": deepcopy(models.memory),
    }


@dataclass
class _Resource:
    """The rows of `columns`, of which `first` is the first's number in the whole batch."""

    models: Models
    columns: Columns
    streams: Iterator[str]
    step: int
    first: int


class Sample(_Resource):
    """`sample`: responses to any prompts. `max_new_tokens`: the recipe's length limit.
    `prompt_format`: how texts and messages become tokens."""

    @property
    def prompt_format(self) -> PromptFormat:
        return self.models.prompt_format

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
        uniforms: Tensor | None = None,
        reference: bool = False,
    ) -> dict[str, Any]:
        """Responses to prompts (N, P). `rows` (N,) names them to the noise, 0, 1, ... by default.
        uniforms: their noise (N, T), for one turn of the policy that no environment answers.
        reference: drawn by the frozen reference instead; this needs `reference` too.

        In a conversation each must be a beginning, before an action, of the batch's row `of` (N,),
        `rows` by default, whose turns it continues."""
        models, limit = self.models, max_new_tokens or self.max_new_tokens
        rows = None if rows is None else on_host(rows)
        if reference:
            models = _by_the_reference(models)
        prompts = {"prompt_ids": prompt_ids, "prompt_mask": prompt_mask}
        talks = None
        if models.plan.conversation and uniforms is None:
            talks = continued(models, self.columns, prompts, rows if of is None else of, limit)
        return respond(
            models,
            models.plan.base_sampler,
            prompts,
            self.first + (torch.arange(len(prompt_ids)) if rows is None else rows),
            stream="" if greedy else next(self.streams),  # it draws nothing
            step=self.step,
            max_new_tokens=limit,
            talks=talks,
            turn=uniforms,
            greedy=greedy,
        )


def _by_the_reference(models: Models) -> Models:
    """The same models, with the frozen reference in place of the policy."""
    sampler = models.plan.base_sampler
    if "policy" not in sampler.needs:
        raise RlzooError(f"sampler {sampler.name!r} can only sample from the current policy; "
                         "set sampler=transformers")  # fmt: skip
    assert models.reference is not None
    twin = copy(models)
    twin.policy = models.reference
    return twin


class Score(_Resource):
    """`score`: scores other responses to the batch's prompts."""

    def __call__(self, other: Columns) -> Tensor:
        """Sequence scores (N,) of other responses; their `rows` (N,) give their prompts."""
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
                f"score: task {plan.task_name!r} scores with {missing[0]!r}, which only the "
                "batch's own responses have"
            )
        return mdp.score(plan, full)["sequence_scores"]
