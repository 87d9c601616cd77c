"""From prompts to a batch: sample responses, and score them."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.lm.world import World
from rlzoo.mdp import noise, turns
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import Batch, concatenate, left_pad
from rlzoo.plugin.component import Example, needs_of
from rlzoo.recipe.plan import Bound
from rlzoo.rollout.conversation import _ahead, _converse, _talks


def draw(world: World, split: str, n: int, stream: str, step: int) -> list[Example]:
    """n prompts of the task, a function of (seed, stream, step)."""
    generator = noise.generator(world.seed, f"prompts/{stream}", step)
    return [Example(*item) for item in world.plan.task.draw(split, n, generator)]


def collect(
    world: World,
    examples: list[Example],
    samples: int,
    *,
    stream: str,
    step: int,
    first_row: int = 0,
    sampler: Bound | None = None,
) -> Batch:
    """Sample `samples` responses to each prompt and score them: the columns up to `scores`.

    first_row: number of the first row, for batches that are parts of one.
    sampler: the plan's unless another is given.
    Several ranks share the prompts, and all of them get the whole batch.
    """
    sampler = sampler or world.plan.sampler
    if len(examples) < world.ranks.count:  # too few to share: each does them all
        with world.sampling(sampler.needs):
            return _collect(world, examples, samples, first_row, sampler, stream=stream, step=step)
    mine, before = world.ranks.block(len(examples)), world.tokens
    first_row += mine.start * samples
    some = examples[mine.start : mine.stop]
    with world.sampling(sampler.needs):
        batch = _collect(world, some, samples, first_row, sampler, stream=stream, step=step)
    world.tokens = before + sum(world.ranks.gather(world.tokens - before))
    if world.ranks.count == 1:
        return batch
    own = {n: x.cpu() if isinstance(x, Tensor) else x for n, x in batch.items()}
    return concatenate(world.ranks.gather(own), world.policy.pad_id, world.policy.device)


def _collect(
    world: World,
    examples: list[Example],
    samples: int,
    first_row: int,
    sampler: Bound,
    *,
    stream: str,
    step: int,
) -> Batch:
    plan = world.plan
    rows = [e for e in examples for _ in range(samples)]
    device = world.policy.device
    ids, mask = left_pad([world.encode(e.prompt) for e in rows], world.policy.pad_id, device)
    number = torch.arange(len(rows)) + first_row
    prompts: dict[str, Any] = {
        "prompts": [world.form.text(e.prompt) for e in rows],
        "messages": [world.form.messages(e.prompt) for e in rows],
        "answers": [e.answer for e in rows],
        "prompt_ids": ids,
        "prompt_mask": mask,
        "prompt_index": torch.tensor([e.index for e in rows], device=device),
        "group_ids": number.to(device) // samples,
    }
    drawn = respond(world, sampler, prompts, number, stream=stream, step=step)
    mode = plan.recipe.config.rollout.old_log_probs
    if mode == "recomputed" or (mode == "auto" and world.policy.autocast):
        drawn.pop("old_log_probs", None)  # generation in bfloat16 rounds otherwise than updates do
    if "sampler_log_probs" in drawn:  # of a model in float64 the scores are in float64, too
        kind = drawn["sampler_log_probs"].dtype
        drawn |= {n: drawn[n].to(kind) for n in ("response_mask", "response_attention")}
    batch = Batch(drawn.pop("response_mask"))
    batch.update(prompts)
    batch.update(drawn)
    if "turns" in plan.needs and "turns" not in batch:
        batch.add("turns", [[text] for text in batch["responses"]])
    limit = batch.steps
    if "noise" in plan.needs:
        uniform = noise.uniforms(world.seed, f"noise/{stream}", step, number, limit)
        batch.add("noise", uniform.to(device, torch.float32))
    if "response_tokens" in plan.needs:
        batch.add(
            "response_tokens", mdp.decode_tokens(world.tokenizer, batch, world.policy.eos_ids)
        )
    batch.update(mdp.score(plan, batch))
    return batch


def respond(
    world: World,
    sampler: Bound,
    prompts: Mapping[str, Any],
    rows: Tensor,
    *,
    stream: str,
    step: int,
    max_new_tokens: int | None = None,
    talks: list[turns.Conversation] | None = None,
) -> dict[str, Any]:
    """Responses by a sampler, with masks, endings and texts; every token is metered.

    talks: conversations that go on from where they are, instead of new ones.
    """
    policy = world.policy
    limit = max_new_tokens or world.plan.recipe.config.rollout.max_new_tokens
    uniforms = noise.uniforms(world.seed, f"sample/{stream}", step, rows, limit).to(policy.device)
    # A sampler that wraps another draws first what the other would have drawn alone.
    more = resources(world, prompts, streams(stream, f"{stream}/again"), step, int(rows[0]))

    def speak(prompts: Mapping[str, Any], uniforms: Tensor) -> dict[str, Any]:
        given = {**prompts, **more, "uniforms": uniforms}
        return dict(sampler({n: given[n] for n in sampler.needs}))

    if world.plan.conversation and "sample" not in sampler.needs:
        drawn = _converse(
            world,
            talks or turns.begin(prompts, len(rows), limit),
            prompts,
            lambda live, now, at, width: speak(now, _ahead(uniforms[live], at, width)),
        )
    else:
        drawn = speak(prompts, uniforms)
    if "response_mask" not in drawn:
        drawn = _finish(world, drawn, limit)
    if sampler is world.plan.base_sampler:
        world.tokens += int(drawn["response_mask"].sum())
    return drawn


def _finish(world: World, drawn: dict[str, Any], limit: int) -> dict[str, Any]:
    """Mask, endings and texts of sampled `response_ids`."""
    policy = world.policy
    drawn.update(mdp.episode_columns(drawn["response_ids"], policy.eos_ids, limit, policy.pad_id))
    drawn["responses"] = mdp.decode(world.tokenizer, drawn, policy.eos_ids)
    return drawn


def streams(*names: str) -> Iterator[str]:
    """A noise stream for each call: the names, then numbered ones after the last."""
    yield from names
    for i in itertools.count():
        yield f"{names[-1]}{i}"


def resources(
    world: World, columns: Mapping[str, Any], streams: Iterator[str], step: int, first: int = 0
) -> dict[str, Any]:
    """What column plugins and samplers may ask for beside columns. `first`: the number that the
    first of these rows has in the whole batch."""
    longest = world.plan.recipe.config.rollout.max_new_tokens

    def sample(
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        *,
        max_new_tokens: int | None = None,
        greedy: bool = False,
        rows: Tensor | None = None,
        of: Tensor | None = None,
    ) -> dict[str, Any]:
        """Responses to any prompts. `rows` (N,) names them to the noise, 0, 1, ... by default.

        In a conversation each must be a beginning, before an action, of the batch's row `of` (N,),
        `rows` by default: it tells what the environment knows."""
        limit = max_new_tokens or longest
        prompts = {"prompt_ids": prompt_ids, "prompt_mask": prompt_mask}
        talks = None
        if world.plan.conversation:
            talks = _talks(world, columns, prompts, rows if of is None else of, limit)
        if greedy:
            generate = world.policy.generate
            if talks:
                found = _converse(
                    world, talks, prompts,
                    lambda live, now, at, width: generate(
                        now["prompt_ids"], now["prompt_mask"], None, width
                    ),
                )  # fmt: skip
            else:
                found = _finish(world, generate(prompt_ids, prompt_mask, None, limit), limit)
            world.tokens += int(found["response_mask"].sum())
            return found
        return respond(
            world,
            world.plan.base_sampler,
            prompts,
            first + (torch.arange(len(prompt_ids)) if rows is None else rows),
            stream=next(streams),
            step=step,
            max_new_tokens=limit,
            talks=talks,
        )

    sample.max_new_tokens = longest  # type: ignore[attr-defined]

    def score(other: Mapping[str, Any]) -> Tensor:
        """Sequence scores (B',) of other responses; `rows` (B',) says to which prompts."""
        rows = other.get("rows")
        index = range(len(other["responses"])) if rows is None else rows.tolist()
        full = dict(other)
        for name in ("prompts", "messages", "answers"):
            full.setdefault(name, [columns[name][i] for i in index])
        full.setdefault("response_attention", other["response_mask"])
        if "turns" in world.plan.needs and not world.plan.conversation:
            full["turns"] = [[text] for text in full["responses"]]
        if "noise" in world.plan.needs:
            mask = other["response_mask"]
            numbers = first + torch.arange(len(mask))
            own = f"noise/{next(streams)}"
            uniform = noise.uniforms(world.seed, own, step, numbers, mask.shape[1])
            full["noise"] = uniform.to(mask)
        if "response_tokens" in world.plan.needs:
            full["response_tokens"] = mdp.decode_tokens(world.tokenizer, full, world.policy.eos_ids)
        missing = [n for n in needs_of(world.plan.task.score) if n not in full]
        if missing:
            raise RlzooError(
                f"score: task {world.plan.task_name!r} scores by {missing[0]!r}, which responses "
                "beside the batch's own do not have"
            )
        return mdp.score(world.plan, full)["sequence_scores"]

    return {
        "sample": sample,
        "score": score,
        "policy": world.policy,
        "reference": world.reference,
        "tokenizer": world.tokenizer,
    }
