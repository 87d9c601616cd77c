"""From prompts to a batch: sample responses, and score them."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo import mdp, noise, turns
from rlzoo.batch import Batch, take
from rlzoo.columns import TOLD
from rlzoo.component import Example, RlzooError, needs_of
from rlzoo.plan import Bound
from rlzoo.world import World


def draw(world: World, split: str, n: int, stream: str, step: int) -> list[Example]:
    """n prompts of the task, a function of (seed, stream, step)."""
    generator = noise.generator(world.seed, f"prompts/{stream}", step)
    return [Example(*item) for item in world.plan.task.draw(split, n, generator)]


def left_pad(rows: list[list[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(ids, mask), both (B, P)."""
    width = max(map(len, rows))
    ids = torch.tensor([[pad_id] * (width - len(r)) + r for r in rows], device=device)
    mask = torch.tensor([[0.0] * (width - len(r)) + [1.0] * len(r) for r in rows], device=device)
    return ids, mask


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
    return world.ranks.join(batch, world.policy.pad_id)


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


def _ahead(uniforms: Tensor, at: Tensor, width: int) -> Tensor:
    """uniforms (R, T) from position `at` (R,) on, (R, width); beyond the end anything."""
    place = at[:, None] + torch.arange(width, device=at.device)
    return uniforms.gather(1, place.clamp(max=uniforms.shape[1] - 1))


def _converse(
    world: World,
    talks: list[turns.Conversation],
    prompts: Mapping[str, Any],
    speak: Callable[[Tensor, Mapping[str, Any], Tensor, int], dict[str, Any]],
) -> dict[str, Any]:
    """Whole conversations, a turn of all rows that are not over at a time.

    talks: the rows, with what was said already. speak(live, prompts, at, width): a sampler's
    columns for the rows `live` (R,), which go on at response position `at` (R,), from prompts that
    end with what was said; `width` tokens at most.
    """
    policy = world.policy
    rules = turns.Turns(world.plan, world.tokenizer, policy.eos_ids)
    knows = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    texts = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(prompts["prompt_ids"], prompts["prompt_mask"], strict=True)
    ]
    extra: dict[str, Tensor] = {}  # what the sampler gives beside tokens: (B, T)
    width = max(talk.limit - talk.begin for talk in talks)
    live = torch.arange(len(talks), device=policy.device)
    while len(live):
        some = [talks[i] for i in live.tolist()]
        at = torch.tensor([len(talk.ids) - talk.begin for talk in some], device=policy.device)
        now = take(prompts, live)
        so_far = [texts[i] + talks[i].ids[talks[i].begin :] for i in live.tolist()]
        now["prompt_ids"], now["prompt_mask"] = left_pad(so_far, policy.pad_id, policy.device)
        room = max(talk.limit - len(talk.ids) for talk in some)
        if knows:  # of one row the history, of another the room: together they may be too much
            room = max(1, min(room, knows - now["prompt_ids"].shape[1]))
        drawn = speak(live, now, at, room)
        taken = torch.tensor(rules.act(some, drawn.pop("response_ids").tolist())).to(at)
        for name, x in drawn.items():
            whole = extra.setdefault(name, x.new_zeros(len(talks), width))
            row, t = (torch.arange(x.shape[1], device=x.device) < taken[:, None]).nonzero().T
            whole[live[row], at[row] + t] = x[row, t]
        if not bool(taken.all()):
            raise RlzooError(f"sampler {world.plan.base_sampler.name!r} gave a row without a token")
        live = live[torch.tensor([not talk.over for talk in some], device=live.device)]
    found = rules.columns(talks, policy.pad_id, policy.device)
    steps = found["response_ids"].shape[1]
    return found | {name: x[:, :steps] for name, x in extra.items()}


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


def _talks(
    world: World,
    columns: Mapping[str, Any],
    prompts: Mapping[str, Tensor],
    rows: Tensor | None,
    limit: int,
) -> list[turns.Conversation]:
    """The conversations that go on after some prompts (N, W), each the beginning of a row."""
    longest = world.plan.recipe.config.rollout.max_new_tokens
    every = torch.arange(len(prompts["prompt_ids"]))
    talks = []
    for i, row in enumerate((every if rows is None else rows).tolist()):
        given = prompts["prompt_ids"][i][prompts["prompt_mask"][i].bool()].tolist()
        known = columns["prompt_ids"][row][columns["prompt_mask"][row].bool()].tolist()
        at = len(given) - len(known)
        if at > 0 and "turn_ids" in columns:
            known += columns["response_ids"][row, :at].tolist()
        if given != known:
            raise RlzooError(
                f"sample: in a conversation prompt {i} must begin row {row} of the batch, and does "
                "not; of=... says which row it is of"
            )
        if at > 0:
            talks.append(turns.resume(columns, row, at, min(longest, at + limit)))
        else:
            own = {n: columns[n][row : row + 1] for n in TOLD if n in columns}
            talks += turns.begin(own, 1, limit)
    return talks
