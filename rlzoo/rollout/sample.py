"""Makes a batch from prompts: samples responses and scores them. Also the resources of samplers and
column plugins: `sample`, `score` and the models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError
from rlzoo.lm.prompts import PromptFormat
from rlzoo.mdp import noise, turns
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import Batch, left_pad
from rlzoo.mdp.rules import draw_examples
from rlzoo.plugin.border import Bound, border, needs_of
from rlzoo.plugin.call import LOG_PROBS
from rlzoo.plugin.columns import Columns
from rlzoo.plugin.component import Example
from rlzoo.rollout.conversation import ahead, continued, converse

if TYPE_CHECKING:  # transformers
    from rlzoo.lm.world import World

MASKS = ("response_mask", "response_attention")
ABOVE = 1e-3  # nats: what rounding may put a log-probability above 0


def draw(world: World, split: str, n: int, stream: str, step: int) -> list[Example]:
    """n prompts of the task, a function of (seed, stream, step)."""
    plan = world.plan
    generator = noise.generator(world.seed, f"prompts/{stream}", step)
    return draw_examples(plan.task, plan.task_name, split, n, generator)


def collect(
    world: World,
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
    """
    sampler = sampler or world.plan.sampler

    def work(part: list[Example], first: int) -> Batch:
        rows = torch.arange(len(part) * samples) + first_row + first * samples
        prompts = _prompts(world, part, samples, rows)
        drawn = respond(world, sampler, prompts, rows, stream=stream, step=step,
                        max_new_tokens=limit, greedy=greedy)  # fmt: skip
        return _scored(world, prompts, drawn, rows, stream, step)

    return world.engine.shares(examples, work, sampler.needs)


def _scored(
    world: World,
    prompts: dict[str, Any],
    drawn: dict[str, Any],
    rows: Tensor,
    stream: str,
    step: int,
) -> Batch:
    """The batch of responses to prompts, with its scores."""
    plan, policy, rollout = world.plan, world.policy, world.plan.recipe.config.rollout
    # Whether the sampler's numbers are those of a pass of the policy: halves round differently.
    other = policy.halves or policy.decoder.copy or rollout.staleness
    exact = policy.traits.sampled_as_scored and not other
    used = "old_entropy" in plan.needs or (plan.one_update and plan.skips_silent)
    if not (used and exact):
        drawn.pop("old_entropy", None)
    if rollout.old_log_probs == "recomputed" or (rollout.old_log_probs == "auto" and not exact):
        drawn.pop("old_log_probs", None)
    elif rollout.old_log_probs == "sampled" and "sampler_log_probs" in drawn:
        # another engine returns no more
        drawn.setdefault("old_log_probs", drawn["sampler_log_probs"])
    if "sampler_log_probs" in drawn:  # of a model in float64 the scores are in float64, too
        drawn |= {n: drawn[n].to(drawn["sampler_log_probs"].dtype) for n in MASKS}
    task_scores = drawn.pop("task_scores", None)
    batch = Batch(drawn.pop("response_mask"))
    batch.update(prompts | drawn)  # agents send prompts of their own
    if plan.needs & {"turns", "noise", "response_tokens"}:
        batch.update(_for_scorers(world, batch, rows, stream, step))
    batch.update(mdp.score(plan, batch, task_scores))
    return batch


def _for_scorers(
    world: World, columns: Columns, rows: Tensor, stream: str, step: int
) -> dict[str, Any]:
    """Columns that scorers may need and no sampler makes."""
    needs, policy, mask = world.plan.needs, world.policy, columns["response_mask"]
    more: dict[str, Any] = {}
    if "turns" in needs and "turns" not in columns and not world.plan.conversation:
        more["turns"] = [[text] for text in columns["responses"]]
    if "noise" in needs:
        uniform = noise.uniforms(world.seed, f"noise/{stream}", step, rows, mask.shape[1])
        more["noise"] = uniform.to(policy.device, torch.float32)
    if "response_tokens" in needs:
        more["response_tokens"] = mdp.decode_tokens(policy.tokenizer, columns, policy.eos_ids)
    return more


def _prompts(world: World, examples: list[Example], samples: int, rows: Tensor) -> dict[str, Any]:
    """The examples' prompts as the policy and components read them, by column: `samples` rows of
    each. rows: (N,) their numbers."""
    form, plan, policy = world.prompt_format, world.plan, world.policy
    domain_of = plan.abilities.domain_of
    with border(f"task {plan.task_name!r}: domain_of"):
        domains = [str(domain_of(e)) if domain_of else "" for e in examples]
    read: dict[str, list[Any]] = {
        "prompts": [form.text(e.prompt) for e in examples],
        "messages": [form.messages(e.prompt) for e in examples],
        "answers": [e.answer for e in examples],
        "domains": domains,
    }
    each = {name: [x for x in values for _ in range(samples)] for name, values in read.items()}
    home = torch.arange(len(examples)).repeat_interleave(samples)
    ids, mask = left_pad([form.encode(e.prompt) for e in examples], policy.pad_id, policy.device)
    return {
        **each,
        "prompt_ids": ids[home],
        "prompt_mask": mask[home],
        "prompt_index": torch.tensor([e.index for e in examples])[home].to(policy.device),
        "group_ids": (rows // samples).to(policy.device),
    }


def respond(
    world: World,
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
    plan, policy = world.plan, world.policy
    limit = max_new_tokens or plan.recipe.config.rollout.max_new_tokens
    uniforms = turn
    if turn is None and not greedy:
        uniforms = noise.uniforms(world.seed, f"sample/{stream}", step, rows, limit)
    # A sampler that wraps another draws first what the other would have drawn.
    more = resources(world, prompts, (stream, f"{stream}/again"), step, int(rows[0]))

    def speak(prompts: Columns, u: Tensor | None, width: int) -> dict[str, Any]:
        """Columns of at most `width` tokens: a sampler's at u (R, width), greedy without."""
        if u is None:
            return policy.generate(prompts["prompt_ids"], prompts["prompt_mask"], None, width)
        return sampler({**prompts, **more, "uniforms": u.to(policy.device)})

    def go_on(live: Tensor, now: Columns, at: Tensor, width: int) -> dict[str, Any]:
        return speak(now, None if uniforms is None else ahead(uniforms[live], at, width), width)

    if plan.conversation and turn is None and (greedy or "sample" not in sampler.needs):
        talks = talks or [turns.begin(prompts, i, limit) for i in range(len(rows))]
        drawn = converse(plan, policy, talks, prompts, go_on)
    else:
        drawn = speak(prompts, uniforms, limit)
    _finish(world, sampler, drawn, limit, prompts["prompt_mask"])
    if greedy or sampler is plan.base_sampler:
        world.engine.meter.tokens += int(drawn["response_mask"].sum())
    return drawn


def _finish(
    world: World, sampler: Bound, drawn: dict[str, Any], limit: int, prompt_mask: Tensor
) -> None:
    """Add mask, endings and texts to sampled `response_ids`; conversations have them already.
    Raises ComponentError for a column that the sampler lacks, or an invalid log-prob."""
    policy = world.policy
    if "response_mask" not in drawn:
        ids, room = drawn["response_ids"].cpu(), policy.room(prompt_mask, limit)
        columns = mdp.episode_columns(
            ids, policy.eos_ids, room, policy.pad_id, policy.min_new_tokens
        )
        drawn["responses"] = mdp.decode(policy.tokenizer, columns, policy.eos_ids)
        drawn |= {name: x.to(policy.device) for name, x in columns.items()}
    elif missing := sorted(world.plan.needs & {"turn_ids", "state_keys"} - drawn.keys()):
        raise ComponentError(f"{sampler.component.label}: returned no {missing[0]!r}")
    mask = drawn["response_mask"]
    for name in (n for n in LOG_PROBS if n in drawn):
        x = drawn[name]
        wrong = (mask.bool() & ~(x <= ABOVE).logical_and(x.isfinite())).nonzero()
        if len(wrong):
            row, t = wrong[0].tolist()
            raise ComponentError(
                f"{sampler.component.label}: returned {name} {float(x[row, t]):g} for token {t} of "
                f"row {row}, which is not a log-probability"
            )


# ---------------------------------------------------------------- resources


def resources(
    world: World, columns: Columns, streams: Sequence[str], step: int, first: int = 0
) -> dict[str, Any]:
    """The resources for the rows of `columns`. streams: the noise streams of the first calls; later
    calls number the last one. first: the first row's number in the batch."""
    later = (f"{streams[-1]}{i}" for i in itertools.count())
    rows = (world, columns, itertools.chain(streams, later), step, first)
    return {
        "sample": Sampling(*rows),
        "score": Scoring(*rows),
        "policy": world.policy,
        "reference": world.engine.reference,
        "teacher": world.engine.teachers.get(None),
        "tokenizer": world.policy.tokenizer,
        "memory": deepcopy(world.memory),
    }


@dataclass
class _Resource:
    """The rows of `columns`, of which `first` is the first's number in the whole batch."""

    world: World
    columns: Columns
    streams: Iterator[str]
    step: int
    first: int


class Sampling(_Resource):
    """`sample`: responses to any prompts. `max_new_tokens`: the recipe's length limit.
    `prompt_format`: how texts and messages become tokens."""

    @property
    def prompt_format(self) -> PromptFormat:
        return self.world.prompt_format

    @property
    def max_new_tokens(self) -> int:
        return self.world.plan.recipe.config.rollout.max_new_tokens

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
        world, limit = self.world, max_new_tokens or self.max_new_tokens
        rows = None if rows is None else rows.cpu()
        if reference:
            world = _by_the_reference(world)
        prompts = {"prompt_ids": prompt_ids, "prompt_mask": prompt_mask}
        talks = None
        if world.plan.conversation and uniforms is None:
            talks = continued(
                self.max_new_tokens, self.columns, prompts, rows if of is None else of, limit
            )
        return respond(
            world,
            world.plan.base_sampler,
            prompts,
            self.first + (torch.arange(len(prompt_ids)) if rows is None else rows),
            stream="" if greedy else next(self.streams),  # it draws nothing
            step=self.step,
            max_new_tokens=limit,
            talks=talks,
            turn=uniforms,
            greedy=greedy,
        )


def _by_the_reference(world: World) -> World:
    """The same world, with the frozen reference in place of the policy."""
    sampler = world.plan.base_sampler
    if "policy" not in sampler.needs:
        raise RlzooError(f"sampler {sampler.name!r} can only sample from the current policy; "
                         "set sampler=transformers")  # fmt: skip
    return replace(world, engine=replace(world.engine, policy=world.engine.reference))


class Scoring(_Resource):
    """`score`: scores other responses to the batch's prompts."""

    def __call__(self, other: Columns) -> Tensor:
        """Sequence scores (N,) of other responses; their `rows` (N,) give their prompts."""
        world, plan = self.world, self.world.plan
        rows = other.get("rows")
        index = range(len(other["responses"])) if rows is None else rows.tolist()
        full = dict(other)
        for name in ("prompts", "messages", "answers"):
            full.setdefault(name, [self.columns[name][i] for i in index])
        mask = other["response_mask"]
        full.setdefault("response_attention", mask)
        numbers = self.first + torch.arange(len(mask))
        stream = next(self.streams) if "noise" in plan.needs else ""
        full |= _for_scorers(world, full, numbers, stream, self.step)
        missing = [n for n in needs_of(plan.task.score) if n not in full]
        if missing:
            raise RlzooError(
                f"score: task {plan.task_name!r} scores with {missing[0]!r}, which only the "
                "batch's own responses have"
            )
        return mdp.score(plan, full)["sequence_scores"]
