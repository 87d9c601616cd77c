"""The policy, over a transformers causal LM, and its frozen reference.

Everything is response-aligned: in a row `prompt | response` of P + T tokens, index t of an output
is read at position P - 1 + t, before token t. Models stay in eval mode, also in updates:
dropout would make the first epoch's ratio differ from 1.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlzoo.accel import head, hf_internals, recompute
from rlzoo.accel.decode import Decoder, truncate
from rlzoo.accel.passes import Aligned, Traits, align
from rlzoo.accel.shard import whole
from rlzoo.errors import ModelError
from rlzoo.lm.loading import eos_ids, limit_of
from rlzoo.mdp.batch import widen


@dataclass(frozen=True, eq=False)
class Policy:
    """softmax(logits / temperature) of a causal LM, and how to sample from it.

    `Policy.of` makes one. `eos_ids`: tokens that end a response, but are not sampled among the
    first `min_new_tokens`; if empty, responses have a fixed length. `stops`: texts that end a turn
    of a conversation. `top_k` and then `top_p` truncate the sampling distribution, and with
    `replay` the policy too: a pass over rows with `kept_tokens` has softmax over these. limit:
    (positions of the longest row, what they are called). softcap: the bound of the logits, which a
    pass removes from the model's config. recompute: gradient checkpointing. adapter: False is the
    same network with its LoRA adapters off. value_head: that of a critic which shares the trunk.
    """

    model: Any
    tokenizer: Any
    vocabulary: int
    pad_id: int
    eos_ids: list[int]
    limit: tuple[int, str] | None
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    autocast: bool = False
    softcap: float | None = None
    min_new_tokens: int = 0
    replay: bool = False
    stops: tuple[str, ...] = ()
    recompute: bool = False
    adapter: bool = True
    value_head: nn.Linear | None = None
    traits: Traits = field(default_factory=Traits)
    decoder: Decoder = field(default_factory=Decoder)

    @classmethod
    def of(cls, model: Any, tokenizer: Any, *, autocast: bool = False, **more: Any) -> "Policy":
        """The policy of a model, whose config names its end tokens and its limit."""
        # float64 is for checking numbers: nothing casts it.
        autocast = autocast and next(model.parameters()).dtype != torch.float64
        text, pad_id = model.config.get_text_config(), int(tokenizer.pad_token_id)
        ends, limit = eos_ids(model.config, tokenizer), limit_of(model.config)
        softcap = getattr(text, "final_logit_softcapping", None)
        return cls(
            model, tokenizer, text.vocab_size, pad_id, ends, limit,
            autocast=autocast, softcap=softcap, **more,
        )  # fmt: skip

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @cached_property
    def bytes_of_position(self) -> dict[bool, int]:
        """Bytes that a pass holds for each of its positions: activations of all layers where there
        is a gradient (True), of one where there is none."""
        config = self.model.config.get_text_config()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        inner = max(inner) if isinstance(inner, (list, tuple)) else inner  # the widest layer's
        one, layers = 10 * config.hidden_size + 4 * inner, config.num_hidden_layers  # floats
        # With checkpointing, each layer's input, and one layer.
        every = one + layers * config.hidden_size if self.recompute else one * layers
        return {True: 4 * (every + self.vocabulary), False: 4 * one}

    @cached_property
    def halves(self) -> bool:
        """Whether passes compute in half precision, whose rounding differs from pass to pass."""
        half = (torch.float16, torch.bfloat16)
        return self.autocast or any(w.dtype in half for w in self.model.parameters())

    def frozen_copy(self) -> "Policy":
        """The reference: a copy of the network as it is now, without gradients, which samples by
        itself. With LoRA it is the same network with its adapters off."""
        lora, decoder = hf_internals.has_adapters(self.model), replace(self.decoder, copy=None)
        model = self.model if lora else copy.deepcopy(self.model).requires_grad_(False)
        return replace(self, model=model, adapter=not lora, value_head=None, decoder=decoder)

    @torch.no_grad()
    def move_towards(self, other: "Policy", share: float) -> None:
        """Move the weights by `share` of the way to those of `other`, the same network."""
        for weight, new in zip(self.model.parameters(), other.model.parameters(), strict=True):
            weight.lerp_(new, share)

    def adapted(self) -> AbstractContextManager:
        """In this context, the network has its adapters on or off, as this policy has them."""
        return nullcontext() if self.adapter else _without_adapters(self.model)

    def precision(self) -> AbstractContextManager:
        """In this context, matrix products are of the precision of this policy's passes."""
        if not self.autocast:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @contextmanager
    def reading(self, network: Any, rows: Aligned) -> Iterator[None]:
        """In this context, `network` (the model, or a critic's trunk) reads `rows` with this
        policy's precision and with its adapters on or off. Raises ModelError for a row that the
        model cannot read correctly."""
        if self.limit and rows.longest > self.limit[0]:
            raise ModelError(f"a row of {rows.longest} tokens exceeds {self.limit[1]}")
        line = hf_internals.in_line(network, rows.line) if rows.line else nullcontext()
        again = recompute.within(network) if self.recompute else nullcontext()
        with self.adapted(), self.precision(), line, again:
            yield

    def logits(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Logits before each response token and after the last, (B, T + 1, V), not yet divided
        by the temperature; T is the longest response here."""
        rows = align(columns)
        return self.run(rows).flatten(0, 1)[rows.at]

    def run(self, rows: Aligned, function: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The model's output (R, keep, V).

        function: takes the last hidden states (R, keep, H) and replaces the model's head, so that
            the logits are never all in memory.
        """
        changes: list[tuple[Any, str, Any]] = []
        if function is not None:
            changes.append((self.model.get_output_embeddings(), "forward", function))
        if function is not None and self.softcap is not None:  # `function` applies it
            config = self.model.config.get_text_config()
            changes.append((config, "final_logit_softcapping", None))
        with self.reading(self.model, rows), hf_internals.changed(*changes):
            return self.model(
                input_ids=rows.ids,
                position_ids=rows.place,
                logits_to_keep=rows.keep,
                use_cache=False,
            ).logits

    def log_prob_stats(
        self,
        columns: Mapping[str, Tensor],
        *,
        want: tuple[str, ...] = (),
        entropy_grad: bool = True,
        accumulate: bool = False,
    ) -> dict[str, Tensor]:
        """`log_probs` (B, T) of the tokens that the policy chose, 0 elsewhere, and of `want`:

        entropy, sum_pi_squared: (B, T) of the next-token distribution; values: from a head on the
        shared trunk, (B, T + 1) or (B, T + 1, K); log_pi: (B, T, V), which needs room;
        observation_nll: (B,), see `with_observations`. accumulate: see `rlzoo.accel.head`.
        """
        if "observation_nll" in want:
            more = tuple(name for name in want if name != "observation_nll")
            how = {"entropy_grad": entropy_grad, "accumulate": accumulate}
            return self.with_observations(columns, want=more, **how)
        fused = self.traits.plain_head and "log_pi" not in want
        rows = align(columns, trees=not self.traits.no_trees and "log_pi" not in want)
        size = columns["response_ids"].shape
        picked, ids, where = chosen_tokens(columns, rows)
        kept = kept_of(columns)
        names = ("log_probs", *(n for n in ("entropy", "sum_pi_squared") if n in want))

        def table(hidden: Tensor) -> Tensor:
            """(R, T + 1, K): a column for each of `names`, then the value head's."""
            lm_head = self.model.get_output_embeddings()
            stats = head.log_prob_stats(
                hidden.flatten(0, 1)[picked],  # nothing is spent on padding
                lm_head.weight, lm_head.bias, ids, self.temperature, self.softcap, kept=kept,
                want=names[1:], entropy_grad=entropy_grad, accumulate=accumulate,
            )  # fmt: skip
            out = _placed(torch.stack([*stats.values()], -1), where, size)
            if "values" not in want:
                return out
            assert self.value_head is not None
            values = self.value_head(hidden.flatten(0, 1)[rows.at].to(self.value_head.weight.dtype))
            return torch.cat([out, widen(values.to(out.dtype), size[1] + 1)], -1)

        if fused:
            scored = self.run(rows, table)
            out = {n: scored[:, :-1, i] for i, n in enumerate(names)}
            if "values" in want:
                out["values"] = scored[..., len(names) :].squeeze(-1)
            return out
        logits = head.wide(self.run(rows).flatten(0, 1)[picked]) / self.temperature
        if kept is not None:
            logits = logits.masked_fill(~head.unpacked(kept, logits.shape[-1]), -torch.inf)
        log_pi = logits.log_softmax(-1)
        source = log_pi if entropy_grad else log_pi.detach()
        stats = {
            "log_probs": log_pi.gather(-1, ids[:, None]),
            "entropy": -(source.exp() * source.clamp(min=head.LEAST)).sum(-1, keepdim=True),
            "sum_pi_squared": (2 * source).exp().sum(-1, keepdim=True),
        }
        out = {n: _placed(stats[n], where, size)[:, :-1, 0] for n in names}
        if "log_pi" in want:
            out["log_pi"] = _placed(log_pi, where, size)[:, :-1]
        if "values" in want:
            out |= self.log_prob_stats(columns, want=("values",)) | out
        return out

    def with_observations(self, columns: Mapping[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """`log_prob_stats`, and `observation_nll` (B,): the mean -log pi of the tokens in a
        response that the environment wrote, 0 without any."""
        mask = columns["response_mask"]
        seen = columns["response_attention"] - mask
        all_of_it = {**columns, "response_mask": columns["response_attention"]}
        out = self.log_prob_stats(all_of_it, **options)
        nll = -(out["log_probs"] * seen).sum(1) / seen.sum(1).clamp(min=1)
        masks = {2: mask, 3: mask[..., None]}
        chosen = {n: x * masks[x.ndim] for n, x in out.items() if n != "values"}
        return {**out, **chosen, "observation_nll": nll}

    @torch.no_grad()
    def kept_tokens(self, columns: Mapping[str, Tensor]) -> Tensor:
        """The column `kept_tokens` (B, T, K) of responses as if this policy sampled them."""
        whole = {name: x for name, x in columns.items() if name != "kept_tokens"}
        log_pi = self.log_prob_stats(whole, want=("log_pi",))["log_pi"]
        log_pi[:, : self.min_new_tokens, self.eos_ids] = -torch.inf
        log_mu = truncate(log_pi.flatten(0, 1).log_softmax(-1), self.top_k, self.top_p)
        bits = head.packed(log_mu > -torch.inf).unflatten(0, log_pi.shape[:2])
        return bits.where(columns["response_mask"].bool()[..., None], 0)

    def log_probs(self, columns: Mapping[str, Tensor]) -> Tensor:
        """log softmax(logits / temperature) of the response tokens, (B, T)."""
        return self.log_prob_stats(columns)["log_probs"]

    @torch.no_grad()
    def full_kl(self, columns: Mapping[str, Tensor], other: "Policy") -> dict[str, Tensor]:
        """`full_kl`, KL(self, other) over the whole vocabulary, and the other's log-probs as
        `ref_log_probs`; both (B, T)."""
        if not (self.traits.plain_head and other.traits.plain_head):
            ours, theirs = (p.log_prob_stats(columns, want=("log_pi",)) for p in (self, other))
            kl = head.divergence(ours["log_pi"], theirs["log_pi"])
            return {"full_kl": kl, "ref_log_probs": theirs["log_probs"]}
        with whole(dict.fromkeys([self.model, other.model])):  # heads are needed after the pass
            sides = []
            for policy in (self, other):  # they may not be alike: each has a layout of its own
                rows = align(columns, trees=not policy.traits.no_trees)
                picked, ids, where = chosen_tokens(columns, rows)
                hidden = policy.run(rows, lambda h: h).flatten(0, 1)[picked]
                lm_head = policy.model.get_output_embeddings()
                sides.append((hidden.to(lm_head.weight.dtype), lm_head.weight, lm_head.bias))
            caps, kept = (self.softcap, other.softcap), kept_of(columns)
            kl = head.full_kl(sides[0], sides[1], self.temperature, caps, kept)
            stats = head.log_prob_stats(*sides[1], ids, other.temperature, other.softcap, kept=kept)
        size = columns["response_ids"].shape
        table = _placed(torch.stack([kl, stats["log_probs"]], -1), where, size)[:, :-1]
        return {"full_kl": table[..., 0], "ref_log_probs": table[..., 1]}

    @torch.no_grad()
    def generate(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        uniforms: Tensor | None,
        max_new_tokens: int | None = None,
    ) -> dict[str, Tensor]:
        """Responses to prompts (B, P): token t by inverse CDF at uniforms[:, t] (B, T), greedily
        where `uniforms` is None.

        Returns response_ids, sampler_log_probs, old_log_probs and old_entropy (B, T'), T' <= T;
        with `replay` also kept_tokens (B, T', K).
        """
        limit = max_new_tokens or (uniforms.shape[1] if uniforms is not None else 0)
        room = self.room(prompt_mask, limit)
        drawn = self.decoder.generate(self, prompt_ids, prompt_mask, uniforms, room)
        wrong = (~drawn["old_log_probs"].isfinite()).nonzero()
        if len(wrong):
            row, t = wrong[0].tolist()
            raise ModelError(
                f"the model's logits are NaN or infinite: response token {t} of row {row} has no "
                "log-probability, so nothing can be sampled; the weights may be broken, or "
                "model.dtype or model.attention may overflow"
            )
        return drawn

    def room(self, prompt_mask: Tensor, limit: int) -> int | Tensor:
        """The new tokens that fit after prompts (B, P): `limit`, or (B, 1) on the host where the
        model's positions end before that. Raises ModelError where they do so for all rows."""
        if not self.limit or prompt_mask.shape[1] + limit <= self.limit[0]:
            return limit
        lengths = prompt_mask.cpu().long().sum(1, keepdim=True)
        room = (self.limit[0] - lengths).clamp(max=limit)
        if int(room.max()) < limit:
            raise ModelError(
                f"rollout.max_new_tokens: prompts of {int(lengths.min())} tokens and {limit} new "
                f"tokens exceed {self.limit[1]}"
            )
        return room


@contextmanager
def _without_adapters(model: Any) -> Iterator[None]:
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


def chosen_tokens(columns: Mapping[str, Tensor], rows: Aligned) -> tuple[Tensor, Tensor, Tensor]:
    """For the N tokens that the policy chose, (N,) each: where they were chosen (`Aligned.at`),
    their ids, and their places in (R, T + 1) laid flat."""
    mask = columns["response_mask"].bool()
    picked = rows.at[:, :-1][mask[:, : rows.at.shape[1] - 1]]
    return picked, columns["response_ids"][mask], F.pad(mask, (0, 1)).flatten().nonzero()[:, 0]


def kept_of(columns: Mapping[str, Tensor]) -> Tensor | None:
    """The packed `kept_tokens` (N, K) of the chosen tokens."""
    kept = columns.get("kept_tokens")
    return None if kept is None else kept[columns["response_mask"].bool()]


def _placed(x: Tensor, where: Tensor, size: torch.Size) -> Tensor:
    """(R, T + 1, K): rows of x (N, K) put to their places `where` (N,) in (R, T + 1) laid flat, 0
    elsewhere."""
    full = x.new_zeros(size[0] * (size[1] + 1), x.shape[1])
    return full.index_copy(0, where, x).view(size[0], size[1] + 1, -1)
