"""Samples responses to prompts and checks the sampler's columns; also the resources of samplers and
column plugins: `sample`, `score` and the models."""

import itertools
from collections.abc import Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError, nearest
from rlzoo.mdp import noise, turns
from rlzoo.mdp import rules as mdp
from rlzoo.ops import on_host, put
from rlzoo.plugin.border import Bound, needs_of
from rlzoo.plugin.call import check, has_shape
from rlzoo.plugin.columns import COLUMNS
from rlzoo.rollout.conversation import ahead, continued, converse

if TYPE_CHECKING:  # transformers
    from rlzoo.lm.models import Models

TOKENS = ("response_ids", "sampler_log_probs", "old_log_probs")
# What comes of tokens: a sampler that gives one of these gives all, as one that wraps another does.
EPISODE = ("response_mask", "response_attention", "responses", "terminated", "truncated")
LOG_PROBS = TOKENS[1:]
ABOVE = 1e-3  # nats: what rounding may put a log-probability above 0


def respond(
    models: "Models",
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
    talks: conversations that continue from where they are, instead of new ones.
    greedy: use the most likely token each time, for any sampler and temperature.
    """
    plan, policy = models.plan, models.policy
    limit = max_new_tokens or plan.recipe.config.rollout.max_new_tokens
    uniforms = (
        None if greedy else noise.uniforms(models.seed, f"sample/{stream}", step, rows, limit)
    )
    # A sampler that wraps another draws first what the other would have drawn.
    more = resources(models, prompts, streams(stream, f"{stream}/again"), step, int(rows[0]))

    def speak(prompts: Mapping[str, Any], u: Tensor | None, width: int) -> dict[str, Any]:
        """Columns of at most `width` tokens: a sampler's at u (R, width), greedy without."""
        if u is None:
            return policy.generate(prompts["prompt_ids"], prompts["prompt_mask"], None, width)
        given = {**prompts, **more, "uniforms": put(u, policy.device)}
        drawn = sampler({n: given[n] for n in sampler.needs})
        return _checked(models, sampler, drawn, *u.shape)

    def go_on(live: Tensor, now: Mapping[str, Any], at: Tensor, width: int) -> dict[str, Any]:
        u = None if uniforms is None else ahead(uniforms[live], at, width)
        return speak(now, u, width)

    if plan.conversation and (greedy or "sample" not in sampler.needs):
        drawn = converse(models, talks or turns.begin(prompts, len(rows), limit), prompts, go_on)
    else:
        drawn = speak(prompts, uniforms, limit)
    if "response_mask" not in drawn:
        drawn = _finish(models, drawn, limit)
    _check_log_probs(sampler, drawn)
    if greedy or sampler is plan.base_sampler:
        models.meter.count(drawn["response_mask"])
    return drawn


def _finish(models: "Models", drawn: dict[str, Any], limit: int) -> dict[str, Any]:
    """Mask, endings and texts of sampled `response_ids`."""
    policy = models.policy
    said = on_host(drawn["response_ids"])  # what is drawn is waited for here
    found = mdp.episode_columns(said, policy.eos_ids, limit, policy.pad_id)
    drawn["responses"] = mdp.decode(models.tokenizer, found, policy.eos_ids)
    device = drawn["response_ids"].device
    drawn.update({name: put(x, device) for name, x in found.items()})
    return drawn


def _checked(models: "Models", sampler: Bound, given: Any, rows: int, limit: int) -> dict[str, Any]:
    """A sampler's columns for `rows` rows of at most `limit` tokens, ids in int64, log-probs of
    the width of the policy's; ComponentError, naming it, where they are not that."""

    def fault(text: str) -> ComponentError:
        return ComponentError(f"{sampler.component.label}: returned {text}")

    if not isinstance(given, Mapping):
        raise fault(f"{type(given).__name__}, not a mapping of columns")
    found = dict(given)
    wraps = "sample" in sampler.needs
    known = [n for n, c in COLUMNS.items() if c.stage == "rollout"] if wraps else list(TOKENS)
    if other := [n for n in found if n not in known]:
        close = nearest(str(other[0]), known)
        raise fault(f"a column {other[0]!r}; it may return {', '.join(TOKENS)}{close}")
    needed = [*TOKENS[:2], *(EPISODE if "response_mask" in found else ())]
    if missing := [n for n in needed if n not in found]:
        raise fault(f"no {missing[0]!r}")
    ids = found["response_ids"]
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise fault(f"response_ids is {_told(ids)}, not int64 of shape (B, T)")
    steps = ids.shape[1]
    if len(ids) != rows or not 0 < steps <= limit:
        raise fault(f"response_ids of shape {tuple(ids.shape)}, but {rows} rows of 1 to {limit} "
                    "tokens were requested")  # fmt: skip
    low, high = (int(x) for x in on_host(ids).aminmax())
    if low < 0 or high >= models.policy.vocabulary:
        wrong = low if low < 0 else high
        raise fault(f"token {wrong}, but the model has tokens 0 to {models.policy.vocabulary - 1}")
    double = next(models.policy.model.parameters()).dtype == torch.float64
    for name, x in found.items():
        shape = COLUMNS[name].shape
        if shape == "list":
            if not isinstance(x, list) or len(x) != rows:
                raise fault(f"{name} is not a list of {rows} entries")
        elif not isinstance(x, Tensor) or not has_shape(x, shape, rows, steps):
            raise fault(f"{name} is {_told(x)}, but response_ids has shape {tuple(ids.shape)}")
        elif x.device != ids.device:
            raise fault(f"{name} on {x.device} but response_ids on {ids.device}")
        elif name in LOG_PROBS:
            if not x.is_floating_point():
                raise fault(f"{name} of dtype {x.dtype}, not a float")
            found[name] = x.detach().to(torch.float64 if double else torch.float32)
    found["response_ids"] = ids if ids.dtype == torch.int64 else ids.long()
    return found


def _check_log_probs(sampler: Bound, drawn: Mapping[str, Any]) -> None:
    """Raise a ComponentError, naming the sampler, for an invalid log-prob of a chosen token:
    immediately, or at the end of `rlzoo.plugin.call.together`."""
    mask = drawn["response_mask"]
    for name in LOG_PROBS:
        x = drawn.get(name)
        if x is None:
            continue
        wrong = mask.bool() & ~(x <= ABOVE).logical_and(x.isfinite())

        def fault(name: str = name, x: Tensor = x, wrong: Tensor = wrong) -> ComponentError:
            row, t = wrong.nonzero()[0].tolist()
            return ComponentError(
                f"{sampler.component.label}: returned {name} {float(x[row, t]):g} for token {t} of "
                f"row {row}, which is not a log-probability"
            )

        check(~wrong.any(), fault)


def _told(x: Any) -> str:
    return f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__


def streams(*names: str) -> Iterator[str]:
    """A noise stream for each call: the names, then numbered ones after the last."""
    yield from names
    for i in itertools.count():
        yield f"{names[-1]}{i}"


def resources(
    models: "Models", columns: Mapping[str, Any], streams: Iterator[str], step: int, first: int = 0
) -> dict[str, Any]:
    """The resources for the rows of `columns`; `first`: the first row's number in the batch."""
    rows = (models, columns, streams, step, first)
    return {
        "sample": Sample(*rows),
        "score": Score(*rows),
        "policy": models.policy,
        "reference": models.reference,
        "teacher": models.teacher,
        "tokenizer": models.tokenizer,
        "memory": deepcopy(models.memory),
    }


@dataclass
class _Resource:
    """The rows of `columns`, of which `first` is the first's number in the whole batch."""

    models: "Models"
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
        reference: drawn by the frozen reference instead; this needs `reference` too.

        In a conversation each must be a beginning, before an action, of the batch's row `of` (N,),
        `rows` by default, whose turns it continues."""
        models, limit = self.models, max_new_tokens or self.max_new_tokens
        rows = None if rows is None else on_host(rows)
        if reference:
            models = _by_the_reference(models)
        prompts = {"prompt_ids": prompt_ids, "prompt_mask": prompt_mask}
        talks = None
        if models.plan.conversation:
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
            greedy=greedy,
        )


def _by_the_reference(models: "Models") -> "Models":
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

    def __call__(self, other: Mapping[str, Any]) -> Tensor:
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
