"""From prompts to a batch: sample responses, score them, add the columns that somebody needs."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlzoo import mdp, noise
from rlzoo.batch import Batch
from rlzoo.component import Example, RlzooError
from rlzoo.contracts import call
from rlzoo.model import Critic, Policy
from rlzoo.plan import Bound, Plan

SCORING_LOGITS = 2**26  # logits held at once in a pass without gradient


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
    _encoded: dict[str, list[int]] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Any:
        return self.policy.tokenizer

    def encode(self, prompt: str) -> list[int]:
        if prompt not in self._encoded:
            self._encoded[prompt] = encode(self.tokenizer, prompt)
        return self._encoded[prompt]

    def forward(self, columns: Mapping[str, Any], *, actor: bool = True) -> dict[str, Tensor]:
        """What an update differentiates: `log_probs`, `entropy`, and the critic's `prediction`."""
        config = self.plan.recipe.config
        shared = self.critic is not None and config.critic.trunk == "shared"
        out: dict[str, Tensor] = {}
        if actor:
            want = ("entropy", "values") if shared else ("entropy",)
            entropy_grad = config.actor.entropy_coef > 0 or "entropy" in self.plan.needs
            out = self.policy.score(columns, want=want, entropy_grad=entropy_grad)
        if self.critic is not None:
            both = shared and actor
            out["prediction"] = out.pop("values") if both else self.critic.predict(columns)
        return out


def encode(tokenizer: Any, prompt: str) -> list[int]:
    """Token ids of a prompt; raises where the tokenizer does not know a character."""
    ids = tokenizer(prompt)["input_ids"]
    unknown = tokenizer.unk_token_id
    if unknown is not None and unknown in ids:
        alien = next((c for c in prompt if unknown in tokenizer(c)["input_ids"]), "?")
        raise RlzooError(f"prompt {prompt!r}: the tokenizer does not know {alien!r}")
    if not ids:
        raise RlzooError(f"prompt {prompt!r} is empty: it has no token")
    return ids


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
    """
    plan = world.plan
    rows = [e for e in examples for _ in range(samples)]
    device = world.policy.device
    ids, mask = left_pad([world.encode(e.prompt) for e in rows], world.policy.pad_id, device)
    number = torch.arange(len(rows)) + first_row
    prompts: dict[str, Any] = {
        "prompts": [e.prompt for e in rows],
        "answers": [e.answer for e in rows],
        "prompt_ids": ids,
        "prompt_mask": mask,
        "prompt_index": torch.tensor([e.index for e in rows], device=device),
        "group_ids": number.to(device) // samples,
    }
    drawn = _sample(world, sampler or plan.sampler, prompts, number, stream=stream, step=step)
    mode = plan.recipe.config.rollout.old_log_probs
    if mode == "recomputed" or (mode == "auto" and world.policy.autocast):
        drawn.pop("old_log_probs", None)  # generation in bfloat16 rounds otherwise than updates do
    batch = Batch(drawn.pop("response_mask"))
    batch.update(prompts)
    batch.update(drawn)
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
) -> dict[str, Any]:
    """Responses by a sampler, with masks, endings and texts; every token is metered."""
    policy = world.policy
    limit = max_new_tokens or world.plan.recipe.config.rollout.max_new_tokens
    uniforms = noise.uniforms(world.seed, f"sample/{stream}", step, rows, limit).to(policy.device)
    given = {
        **prompts,
        # A sampler that wraps another draws first what the other would have drawn alone.
        **_resources(world, prompts, _streams(stream, f"{stream}/again"), step),
        "uniforms": uniforms,
    }
    drawn = dict(sampler({n: given[n] for n in sampler.needs}))
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


def _streams(*names: str) -> Iterator[str]:
    """A noise stream for each call: the names, then numbered ones after the last."""
    yield from names
    for i in itertools.count():
        yield f"{names[-1]}{i}"


def _resources(
    world: World, columns: Mapping[str, Any], streams: Iterator[str], step: int
) -> dict[str, Any]:
    """What column plugins and samplers may ask for beside columns."""
    longest = world.plan.recipe.config.rollout.max_new_tokens

    def sample(
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        *,
        max_new_tokens: int | None = None,
        greedy: bool = False,
        rows: Tensor | None = None,
    ) -> dict[str, Any]:
        """Responses to any prompts. `rows` (N,) names them to the noise, 0, 1, ... by default."""
        limit = max_new_tokens or longest
        if greedy:
            found: dict[str, Any] = world.policy.generate(prompt_ids, prompt_mask, None, limit)
            found = _finish(world, found, limit)
            world.tokens += int(found["response_mask"].sum())
            return found
        return _sample(
            world,
            world.plan.base_sampler,
            {"prompt_ids": prompt_ids, "prompt_mask": prompt_mask},
            torch.arange(len(prompt_ids)) if rows is None else rows,
            stream=next(streams),
            step=step,
            max_new_tokens=limit,
        )

    sample.max_new_tokens = longest  # type: ignore[attr-defined]

    def score(other: Mapping[str, Any]) -> Tensor:
        """Sequence scores (B',) of other responses; `rows` (B',) says to which prompts."""
        rows = other.get("rows")
        index = range(len(other["responses"])) if rows is None else rows.tolist()
        full = dict(other)
        full.setdefault("prompts", [columns["prompts"][i] for i in index])
        full.setdefault("answers", [columns["answers"][i] for i in index])
        full.setdefault("response_attention", other["response_mask"])
        if "noise" in world.plan.needs:
            mask = other["response_mask"]
            numbers = torch.arange(len(mask))
            own = f"noise/{next(streams)}"
            uniform = noise.uniforms(world.seed, own, step, numbers, mask.shape[1])
            full["noise"] = uniform.to(mask)
        if "response_tokens" in world.plan.needs:
            full["response_tokens"] = mdp.decode_tokens(world.tokenizer, full, world.policy.eos_ids)
        return mdp.score(world.plan, full)["sequence_scores"]

    return {
        "sample": sample,
        "score": score,
        "policy": world.policy,
        "reference": world.reference,
        "tokenizer": world.tokenizer,
    }


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
        value = call(bound.component, given, bound.options)
        batch.add(bound.name, value, bound.component.shape)


def _keep_forward(world: World, batch: Batch, step: int) -> None:
    """Where one update follows on the whole batch, its forward pass serves the columns, too."""
    world.kept = None
    useful = world.critic is not None or "old_log_probs" not in batch
    if world.plan.one_update and useful and _chunk(world, batch) >= batch.rows:
        actor = step >= world.plan.recipe.config.train.critic_warmup
        with torch.enable_grad():
            world.kept = world.forward(batch, actor=actor)
        if "old_log_probs" not in batch and actor:
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
            ours = policy.score(columns, want=("log_pi",))["log_pi"]
            theirs = reference.score(columns, want=("log_pi",))
            kl = (ours.exp() * (ours - theirs["log_pi"])).sum(-1)
            return torch.stack([theirs["log_probs"], kl], -1)

        both = in_chunks(world, batch, pair)
        batch.add("ref_log_probs", both[..., 0])
        batch.add("full_kl", both[..., 1])
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
    """`function` over chunks of rows, so that a pass never holds more than `SCORING_LOGITS`."""
    size = _chunk(world, batch)
    if size >= batch.rows:
        return function(batch)
    rows = torch.arange(batch.rows, device=batch["response_mask"].device)
    return torch.cat([function(batch.select(part)) for part in rows.split(size)])


def _chunk(world: World, batch: Batch) -> int:
    vocabulary = world.policy.model.config.get_text_config().vocab_size
    return max(1, SCORING_LOGITS // (vocabulary * (batch.steps + 1)))
