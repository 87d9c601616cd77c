"""From prompts to a batch: sample responses, score them, add the columns that somebody needs."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo import mdp, noise, turns
from rlzoo.batch import Batch, lengths, pack, take
from rlzoo.columns import TOLD
from rlzoo.component import Example, RlzooError, needs_of
from rlzoo.contracts import call
from rlzoo.model import Critic, Policy
from rlzoo.plan import Bound, Plan
from rlzoo.pretrained import Prompt, PromptFormat
from rlzoo.ranks import ALONE, Ranks
from rlzoo.shard import whole


@dataclass
class World:
    """A run's plan and models. `tokens` meters every token generated through it."""

    plan: Plan
    policy: Policy
    reference: Policy | None = None
    critic: Critic | None = None
    seed: int = 0
    tokens: int = 0
    kept: dict[str, Tensor] | None = None  # a forward pass that the update need not repeat
    room: float = 1.0  # the share of a pass's usual size that fits into memory
    ranks: Ranks = ALONE
    notes: list[str] = field(default_factory=list)  # what the run's reader should know
    _encoded: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy.stops = self.plan.stops

    @property
    def tokenizer(self) -> Any:
        return self.policy.tokenizer

    @cached_property
    def form(self) -> PromptFormat:
        model = self.plan.recipe.config.model
        return PromptFormat(self.tokenizer, model.chat, model.system)

    def encode(self, prompt: Prompt) -> list[int]:
        text = self.form.text(prompt)
        if text not in self._encoded:
            self._encoded[text] = self.form.encode(prompt)
        return self._encoded[text]

    @property
    def shared(self) -> bool:
        """Whether the critic is a head on the policy's trunk."""
        return self.critic is not None and self.critic.trunk is None

    @property
    def sharded(self) -> bool:
        """Whether weights are spread over ranks."""
        return self.ranks.count > 1 and self.plan.recipe.config.parallel.strategy == "shard"

    def sampling(self, needs: Iterable[str] = ()) -> AbstractContextManager:
        """Within, ranks may sample apart from each other: weights that are spread are whole."""
        if not self.sharded:
            return nullcontext()
        asked = [self.policy, *([self.reference] if "reference" in needs else [])]
        return whole({m: None for p in asked if p is not None for m in p.model.modules()})

    def networks(self) -> dict[str, nn.Module]:
        """What is trained, by the name of its optimizer."""
        found: dict[str, nn.Module] = {"actor": self.policy.model}
        return found if self.critic is None else found | {"critic": self.critic}

    def forward(
        self, columns: Mapping[str, Any], *, actor: bool = True, critic: bool = True
    ) -> dict[str, Tensor]:
        """What an update differentiates: `log_probs`, `entropy`, and the critic's `prediction`."""
        config = self.plan.recipe.config
        critic = critic and self.critic is not None
        both = actor and critic and self.shared
        out: dict[str, Tensor] = {}
        if actor:
            entropy_grad = config.actor.entropy_coef > 0 or "entropy" in self.plan.needs
            want = ("entropy", "values") if both else ("entropy",)
            out = self.policy.score(columns, want=want, entropy_grad=entropy_grad)
        if critic:
            assert self.critic is not None
            out["prediction"] = out.pop("values") if both else self.critic.predict(columns)
        return out

    def parts(self, columns: Mapping[str, Any], *, grad: bool = False) -> list[Tensor]:
        """The rows (R,) of each pass over `columns`: sorted by length, as many as fit."""
        train = self.plan.recipe.config.train
        rows = len(columns["response_mask"])
        if grad and train.microbatch:
            order = pack(columns, 1)
            size = max(1, int(train.microbatch * self.room))
            return list(torch.cat(order).split(size)) if order else []
        budget = train.token_budget if grad else None
        if budget is None:
            budget = self.policy.room(grad=grad)
        else:
            _refuse_short_budget(columns, budget)
        budget = int(budget * self.room)
        if self.ranks.count > 1:  # something to do for each
            positions = sum(int(x.sum()) for x in lengths(columns))
            budget = min(budget, positions // self.ranks.count)
        parts = pack(columns, max(1, budget), trees=self.policy.trees(columns))
        # A single pass keeps the order of its rows: nothing need be sorted back.
        return [torch.arange(rows, device=parts[0].device)] if len(parts) == 1 else parts

    def passes(
        self,
        columns: Mapping[str, Any],
        parts: list[Tensor],
        function: Callable[[Mapping[str, Any]], Tensor],
    ) -> Tensor:
        """`function` of all rows, (B, ...), a pass for each of `parts`; ranks share them."""
        done = [function(take(columns, part)) for part in self.ranks.share(parts)]
        if self.sharded and self.ranks.idle(len(parts)):  # passes are collectives
            function(take(columns, parts[0]))
        if self.ranks.count > 1:
            shares = self.ranks.gather([x.cpu() for x in done])
            done = [x.to(self.policy.device) for share in shares for x in share]
            parts = [part for i in range(self.ranks.count) for part in parts[i :: self.ranks.count]]
        return torch.cat(done)[torch.cat(parts).argsort()]

    def fitted(self, attempt: Callable[[], Any]) -> Any:
        """What `attempt` gives; should memory run out, once in a run it is made again, with half
        the rows in a pass from then on. How rows are cut changes no gradient."""
        try:
            return attempt()
        except RuntimeError as error:
            # Ranks would no longer agree on who does which pass.
            if not _out_of_memory(error) or self.room < 1 or self.ranks.count > 1:
                raise
        # Not in `except`: there the traceback holds on to what the failed pass allocated.
        self.room, self.kept = 0.5, None
        self.notes.append("out of memory; going on with half the rows in a pass (same gradient)")
        if self.policy.device.type == "cuda":
            torch.cuda.empty_cache()
        return attempt()


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _refuse_short_budget(columns: Mapping[str, Any], budget: int) -> None:
    prompt, response = lengths(columns)
    longest = max((prompt + response).tolist(), default=0)
    if budget < longest:
        raise RlzooError(
            f"train.token_budget: {budget} positions are less than the longest row, which has "
            f"{longest}"
        )


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
    drawn = _sample(world, sampler, prompts, number, stream=stream, step=step)
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


def _sample(
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
    resources = _resources(world, prompts, _streams(stream, f"{stream}/again"), step, int(rows[0]))

    def speak(prompts: Mapping[str, Any], uniforms: Tensor) -> dict[str, Any]:
        given = {**prompts, **resources, "uniforms": uniforms}
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


def _streams(*names: str) -> Iterator[str]:
    """A noise stream for each call: the names, then numbered ones after the last."""
    yield from names
    for i in itertools.count():
        yield f"{names[-1]}{i}"


def _resources(
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
        return _sample(
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


# ---------------------------------------------------------------- columns


@torch.no_grad()
def add_columns(world: World, batch: Batch, *, stream: str, step: int) -> None:
    """The columns that the plan asks for: from the policy, the reference, the critic, plugins."""
    needs = world.plan.needs
    _keep_forward(world, batch, step)
    _add_policy_columns(world, batch)
    if "ref_log_probs" in needs and "ref_log_probs" not in batch:
        assert world.reference is not None
        batch.add("ref_log_probs", in_chunks(world, batch, world.reference.log_probs))
    if world.critic is not None:
        both = in_chunks(world, batch, lambda c: _values(world, c, world.kept))
        values, after = both[:, :-1], both[:, -1]
        batch.add("values", values)
        mode = world.plan.recipe.config.rollout.truncation
        keep = batch["truncated"] & (mode == "bootstrap")
        batch.add("bootstrap_values", torch.where(keep, after, 0))
    resources = _resources(world, batch, _streams(f"{stream}/columns"), step)
    for bound in world.plan.columns:
        given = {
            **{n: batch[n] for n in bound.needs if n in batch},
            **resources,
            "response_mask": batch["response_mask"],
        }
        with world.sampling() if "sample" in bound.needs else nullcontext():
            value = call(bound.component, given, bound.options)
        batch.add(bound.name, value, bound.component.shape)


def _keep_forward(world: World, batch: Batch, step: int) -> None:
    """Where one update follows on the whole batch, its forward pass serves the columns, too."""
    world.kept = None
    useful = world.critic is not None or "old_log_probs" not in batch
    alone = world.ranks.count == 1
    if not (world.plan.one_update and useful and alone):
        return
    actor = step >= world.plan.recipe.config.train.critic_warmup

    def attempt() -> dict[str, Tensor] | None:
        one = len(world.parts(batch, grad=True)) == 1
        return world.forward(batch, actor=actor) if one else None

    with torch.enable_grad():
        world.kept = world.fitted(attempt)
    if world.kept is not None and "old_log_probs" not in batch and actor:
        batch.add("old_log_probs", world.kept["log_probs"].detach())


def _values(world: World, columns: Mapping[str, Any], kept: dict[str, Tensor] | None) -> Tensor:
    """V before each token and after the last, side by side, (B, T + 1)."""
    assert world.critic is not None
    values, after = world.critic.values(columns, kept["prediction"] if kept else None)
    return torch.cat([values, after[:, None]], 1)


def _add_policy_columns(world: World, batch: Batch) -> None:
    """`old_log_probs` where sampling did not give them, `sum_pi_squared`, `full_kl`."""
    needs, policy, reference = world.plan.needs, world.policy, world.reference
    want = ("sum_pi_squared",) if "sum_pi_squared" in needs else ()
    if "full_kl" in needs:
        assert reference is not None

        def pair(columns: Mapping[str, Any]) -> Tensor:
            return torch.stack(policy.full_kl(columns, reference), -1)

        both = in_chunks(world, batch, pair)
        batch.add("full_kl", both[..., 0])
        batch.add("ref_log_probs", both[..., 1])
    if want or "old_log_probs" not in batch:

        def score(columns: Mapping[str, Any]) -> Tensor:
            out = policy.score(columns, want=want)
            return torch.stack([out["log_probs"], *(out[n] for n in want)], -1)

        scored = in_chunks(world, batch, score)
        if "old_log_probs" not in batch:
            batch.add("old_log_probs", scored[..., 0])
        for i, name in enumerate(want, 1):
            batch.add(name, scored[..., i])


def in_chunks(
    world: World, batch: Batch, function: Callable[[Mapping[str, Any]], Tensor]
) -> Tensor:
    """`function` of the batch's rows, (B, ...), in as many passes as memory asks for."""

    def attempt() -> Tensor:
        parts = world.parts(batch)
        return function(batch) if len(parts) == 1 else world.passes(batch, parts, function)

    return world.fitted(attempt)
