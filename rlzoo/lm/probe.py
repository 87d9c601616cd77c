"""Probes a model, in seconds, before it trains: its passes must agree.

Rows of unequal length are scored together and one by one, sampled with the cache, laid out as a
tree, differentiated. A path that disagrees is ruled out by the model's traits, which are returned:
the policy that is probed stays as it is. A model that cannot be scored, sampled or trained is
refused. Passes use the weights' dtype without autocast, so that no fault looks like rounding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlzoo.accel import recompute
from rlzoo.accel.decode import Decoder
from rlzoo.accel.hf_internals import attention_of, plain_cache
from rlzoo.accel.passes import Aligned, Traits, align
from rlzoo.errors import ModelError
from rlzoo.lm.loading import refuse_ahead
from rlzoo.lm.policy import Policy
from rlzoo.lm.weights import said_by

LONGEST = 64  # positions of a probe

# The distance of two ways to compute a thing, and its bound; the messages within it and beyond,
# each with a place for the distance.
Agreement = tuple[float, float, str, str]

WINDOWS = re.compile(r"(window|window_size|chunk_size|block_size|index_topk)$")


@dataclass(frozen=True)
class Trial:
    """passed: None if it does not apply. off: the disagreement; None if a pass raised an error."""

    name: str
    passed: bool | None
    message: str
    off: float | None = None


@dataclass(frozen=True)
class Probed:
    """traits: what passes of the model may do. static: whether a cache of a fixed shape serves.
    findings: by name, in words. notes: lines for the user."""

    traits: Traits
    static: bool
    findings: dict[str, str]
    notes: list[str]


def layout(policy: Policy) -> Traits:
    """The traits that decide how rows are laid out and scored. Raises ModelError if the model is
    not causal."""
    refuse_ahead(
        lambda ids: policy.run(Aligned(ids, ids, 2)), policy.device, type(policy.model).__name__
    )
    no_trees = never_trees(policy.model) or trees_disagree(policy)
    return replace(policy.traits, plain_head=plain_head(policy), no_trees=no_trees)


def examine(policy: Policy, *, checkpointing: bool = False) -> tuple[list[Trial], Traits]:
    """Findings about a model: `head`, `scoring`, `trees`, `gradient`, `sampling`; `static cache`
    where the policy has one; with `checkpointing` that, too. And its traits, as far as they were
    found out."""
    linear = {True: "one linear layer", False: "more than a linear layer"}
    head = _tried("head", lambda: (0.0, 0.0, linear[plain_head(policy)], ""))
    if not head.passed:
        return [head], policy.traits
    traits = layout(policy)
    trees = Trial("trees", None if traits.no_trees else True, traits.no_trees or "as rows")
    with probed(replace(policy, traits=traits)) as twin:
        columns = _rows(twin)
        scored = _tried("scoring", lambda: _scoring(twin, columns))
        if scored.passed is False:
            return [head, scored, trees], traits
        gradient = _tried(
            "gradient", lambda: (0.0, 0.0, "finite" if _gradients(twin, columns) else "", "")
        )
        findings = [head, scored, trees, gradient]
        if checkpointing and gradient.passed:
            findings.append(_tried("checkpointing", lambda: _checkpointing(twin, columns)))
        # Last: a model that keeps its state on itself keeps no graph then.
        sampled, traits = _sampled(twin, columns)
        findings.append(sampled)
        if policy.decoder.static:
            twin = replace(twin, traits=traits)
            findings.append(_tried("static cache", lambda: _static(twin, columns)))
    return findings, traits


def enforce(policy: Policy, path: str) -> Probed:
    """Examine the model of a run. A path that disagrees is ruled out; raises ModelError if a
    required one does not work."""
    findings, traits = examine(policy, checkpointing=policy.recompute)
    static, notes = policy.decoder.static, []
    for f in findings:
        if f.name == "checkpointing" and f.passed is False:
            raise ModelError(f"model.gradient_checkpointing: {path}: {f.message}")
        if f.name == "sampling" and not traits.sampled_as_scored:
            notes.append(
                f"{path}: with a cache, sampled log-probs are {f.off:.2g} nats off; "
                "rollout.old_log_probs=auto uses a full pass"
            )
        elif f.name == "static cache" and f.passed is False:
            static = False
            notes.append(f"{path}: sampling uses a growing cache, because {f.message}")
        elif f.passed is False:
            raise ModelError(f"{path}: {f.name}: {f.message}")
        if f.name == "sampling" and not traits.pads:
            notes.append(
                f"{path}: the model is sensitive to padding, so prompts are grouped by length"
            )
        if f.name == "trees" and traits.no_trees and not never_trees(policy.model):
            notes.append(
                f"{path}: each pass has one row and prompts are not shared, because {f.message}"
            )
    return Probed(traits, static, {f.name: f.message for f in findings}, notes)


@contextmanager
def probed(policy: Policy) -> Iterator[Policy]:
    """A policy over the same network for trials, without autocast and EOS."""
    # Flash attention supports half precision only.
    plain = attention_of(policy.model.config) in ("sdpa", "eager")
    with torch.random.fork_rng():
        yield replace(
            policy, autocast=policy.autocast and not plain, recompute=False, value_head=None,
            eos_ids=[policy.vocabulary], min_new_tokens=0, stops=(), temperature=1.0,
            top_k=0, top_p=1.0, decoder=Decoder(),
        )  # fmt: skip


def plain_head(policy: Policy) -> bool:
    """Whether the logits come from a linear head followed by nothing except a soft cap."""
    lm_head = policy.model.get_output_embeddings()
    if type(lm_head) is not nn.Linear:
        return False
    # Not of padding, whose embedding may be 0: then all logits are, whatever is done to them.
    ids = torch.tensor([[1, 2], [3, 4]], device=policy.device)
    ids = torch.where(ids == policy.pad_id, 5, ids) % policy.vocabulary
    trial = Aligned(ids, torch.zeros_like(ids), 2)
    seen: list[Tensor] = []
    hook = lm_head.register_forward_hook(lambda module, given, out: seen.append(out))
    with torch.no_grad():
        got = policy.run(trial, lambda hidden: F.linear(hidden, lm_head.weight, lm_head.bias))
    hook.remove()
    return len(seen) == 1 and bool(got.any()) and torch.equal(seen[0], got)


def _tried(name: str, check: Callable[[], Agreement]) -> Trial:
    """A model's own code may raise anything, which is also a finding."""
    try:
        off, bound, right, wrong = check()
    except torch.OutOfMemoryError:
        return Trial(name, None, "not enough memory for this check")
    except Exception as error:
        return Trial(name, False, said_by(error))
    if off > bound:
        return Trial(name, False, wrong.format(f"{off:.2g}"), off)
    return Trial(name, True, right.format(f"{off:.0e}"), off)


# ---------------------------------------------------------------- rows to try


def _rows(policy: Policy) -> dict[str, Tensor]:
    """Two long rows and a short one, beyond every window that the config names if it is narrow.

    Rows are longer if some layers are not plain full attention, since errors of a state add up."""
    limit = min(LONGEST, policy.limit[0] if policy.limit else LONGEST)
    short = [n for n in windows(policy.model.config).values() if n <= LONGEST - 8]
    plain = not never_trees(policy.model)
    length = min(limit, max([12 if plain else 36, *(n + 8 for n in short)]))
    new = max(1, length // 3 if plain else 2 * length // 3)
    p, ids = length - new, _tokens(policy, 3, length)
    mask = torch.ones(3, p, device=policy.device)
    mask[2, : p - 1] = 0  # one token: shorter than the width of any convolution
    prompts = {"prompt_ids": ids[:, :p].where(mask > 0, policy.pad_id), "prompt_mask": mask}
    ones = torch.ones(3, new, device=policy.device)
    return prompts | {
        "response_ids": ids[:, p:], "response_mask": ones, "response_attention": ones
    }  # fmt: skip


def _tokens(policy: Policy, rows: int, length: int) -> Tensor:
    """Token ids (rows, length), of all over the vocabulary, none of them padding if it has more
    than two."""
    ids = torch.arange(1, rows * length + 1, device=policy.device) * 7919 % policy.vocabulary
    if policy.vocabulary <= 2:
        return ids.view(rows, length)
    other = (policy.pad_id + 1) % policy.vocabulary
    return torch.where(ids == policy.pad_id, other, ids).view(rows, length)


def windows(config: Any) -> dict[str, int]:
    """The config's limits on how far a token sees: windows, chunks, blocks."""
    settings = config.get_text_config().to_dict()
    return {n: x for n, x in settings.items() if WINDOWS.search(n) and type(x) is int and x > 0}


def _off(a: Tensor, b: Tensor) -> float:
    """The largest difference; infinite if a value is NaN. Tokens may be switched off, by -inf."""
    off = (a - b).abs().masked_fill(a == b, 0)
    return float(off.nan_to_num(nan=torch.inf).max())


@torch.no_grad()
def _tolerance(policy: Policy, columns: Mapping[str, Tensor], scored: Tensor) -> float:
    """The difference (nats) allowed between two ways to compute the log-probs `scored`: small
    compared with the one that another prompt makes, so that it suits random weights, too."""
    if policy.halves:
        return 0.3
    ids, mask = columns["prompt_ids"], columns["prompt_mask"]
    ids = torch.where(mask * mask.flip(0) > 0, ids.flip(0), ids)
    effect = _off(policy.log_probs({**columns, "prompt_ids": ids}), scored)
    return max(2e-5, min(2e-4, 0.01 * effect))


# ---------------------------------------------------------------- what is checked


@torch.no_grad()
def _scoring(policy: Policy, columns: Mapping[str, Tensor]) -> Agreement:
    """A row's log-probs do not depend on the other rows of its pass."""
    together = policy.log_probs(columns)
    if bool(together.isnan().any()):
        raise ModelError("log-probs are not finite")
    weights = next(policy.model.parameters()).dtype
    if weights == torch.float64 != together.dtype:
        raise ModelError("model.dtype: float64 is not preserved; the log-probs are float32")
    alone = torch.cat(
        [policy.log_probs({n: x[i : i + 1] for n, x in columns.items()}) for i in range(3)]
    )
    return (
        _off(together, alone), 10 * _tolerance(policy, columns, alone),
        "independent of the other rows, within {} nats",
        "a row's log-probs change by {} nats when the other rows of the batch change",
    )  # fmt: skip


def _sampled(policy: Policy, columns: Mapping[str, Tensor]) -> tuple[Trial, Traits]:
    """Tokens sampled with the cache have the same log-probs as in a full pass; or they have if no
    prompt is padded; or they are not scored as they are sampled."""
    traits = replace(policy.traits, pads=True)
    finding = _tried("sampling", lambda: _sampling(replace(policy, traits=traits), columns))
    if finding.passed is not False or finding.off is None:
        return finding, traits
    apart = replace(traits, pads=False)
    again = _tried("sampling", lambda: _sampling(replace(policy, traits=apart), columns))
    if again.passed:
        return replace(again, message=f"{again.message} if no prompt is padded"), apart
    return finding, replace(traits, sampled_as_scored=False)


def _drawn(policy: Policy, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Responses to the prompts, at noise that is always the same."""
    steps = columns["response_ids"].shape[1]
    uniforms = torch.linspace(0.05, 0.95, 3 * steps, device=policy.device).view(steps, 3).T
    return policy.generate(columns["prompt_ids"], columns["prompt_mask"], uniforms)


@torch.no_grad()
def _sampling(policy: Policy, columns: Mapping[str, Tensor]) -> Agreement:
    drawn = _drawn(policy, columns)
    rows = {**columns, "response_ids": drawn["response_ids"]}
    scored = policy.log_probs(rows)
    return (
        _off(drawn["old_log_probs"], scored), _tolerance(policy, rows, scored),
        "equal to that of a full pass, within {} nats", "{} nats from that of a full pass",
    )  # fmt: skip


@torch.no_grad()
def _static(policy: Policy, columns: Mapping[str, Tensor]) -> Agreement:
    """A cache of fixed shape gives the same tokens and log-probs as a growing one."""
    grown, fixed = (
        _drawn(replace(policy, decoder=Decoder(static=static)), columns) for static in (False, True)
    )
    scored = policy.log_probs({**columns, "response_ids": grown["response_ids"]})
    return (
        _off(grown["old_log_probs"], fixed["old_log_probs"]), _tolerance(policy, columns, scored),
        "equal to a growing cache, within {} nats",
        "log-probs are off by {} nats with a cache of fixed shape",
    )  # fmt: skip


def _gradients(policy: Policy, columns: Mapping[str, Tensor]) -> list[Tensor]:
    """Gradients of the log-probs' sum in weights of one dimension: few, and in every layer. Raises
    ModelError unless the largest entry is finite and not 0."""
    trained = [w for w in policy.model.parameters() if w.requires_grad]
    small = [w for w in trained if w.ndim == 1] or trained
    with torch.enable_grad():
        loss = policy.log_probs(columns).sum()
        reached = torch.autograd.grad(loss, small, allow_unused=True)
    gradients = [x for x in reached if x is not None]
    largest = max(float(x.abs().max()) for x in gradients)
    if not 0 < largest < torch.inf:
        raise ModelError(f"the largest entry of the gradient is {largest}")
    return gradients


def _checkpointing(policy: Policy, columns: Mapping[str, Tensor]) -> Agreement:
    """Gradient checkpointing does not change the gradient."""
    again = replace(policy, recompute=True)
    recompute.allow(policy.model)
    pairs = list(zip(_gradients(policy, columns), _gradients(again, columns), strict=True))
    off = max(_off(a, b) for a, b in pairs) / max(float(a.abs().max()) for a, _ in pairs)
    bound = 0.1 if policy.halves else 1e-3
    wrong = "its gradient is off by {} of the largest entry"
    return off, bound, "the same gradient, within {}", wrong


# ---------------------------------------------------------------- trees


def never_trees(model: Any) -> str:
    """Why the config rules trees out; empty if every layer attends to all earlier positions."""
    config = model.config.get_text_config()
    if (kind := attention_of(config)) != "sdpa":
        return f"{kind} attention"
    if kinds := sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"}):
        return f"layers of {', '.join(kinds)}"
    return ", ".join(f"{name} {n}" for name, n in windows(model.config).items())


@torch.no_grad()
def trees_disagree(policy: Policy) -> str:
    """Why a group may not be read as a tree, determined by a trial; empty if it may."""
    with probed(policy) as twin:
        try:
            ids = _tokens(twin, 4, 3)
            cache = twin.model(input_ids=ids[:2], use_cache=True).past_key_values
            if not plain_cache(cache):
                return f"its cache contains more than keys and values ({type(cache).__name__})"
            one = torch.ones(2, 3, device=twin.device)
            short = torch.tensor([[1.0] * 3, [1, 1, 0]], device=twin.device)
            columns = {"prompt_ids": ids[:1].repeat(2, 1), "prompt_mask": one}
            columns |= {"response_ids": ids[2:], "response_attention": short}
            other = {**columns, "prompt_ids": (columns["prompt_ids"] + 1) % twin.vocabulary}
            real = torch.cat([one[:, :1], short], 1) > 0
            rows, tree, apart = (
                twin.run(x).flatten(0, 1)[x.at][real]
                for x in (align(columns), align(columns, trees=True), align(other))
            )
        except Exception as error:
            return said_by(error)
    off, effect = _off(rows, tree), _off(rows, apart)
    if off > (0.2 if twin.halves else 0.01) * effect:
        return f"logits are off by {off:.2g}, and another prompt changes them by {effect:.2g}"
    return ""
