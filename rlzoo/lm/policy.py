"""The policy, over a transformers causal LM, and its frozen reference.

Everything is response-aligned: in a row `prompt | response` of P + T tokens, index t of an output
is read at position P - 1 + t, before token t. Models stay in eval mode, also in updates:
dropout would make the first epoch's ratio differ from 1.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlzoo.accel import attention, head, hf_internals, recompute
from rlzoo.accel.decode import decode, few_rows, wide
from rlzoo.accel.layout import Aligned, align
from rlzoo.accel.memory import activations
from rlzoo.accel.sampling_copy import SamplingCopy
from rlzoo.accel.shard import whole
from rlzoo.errors import ModelError
from rlzoo.lm.contract import never_trees, trees_disagree
from rlzoo.lm.loading import eos_ids, limit_of
from rlzoo.mdp.batch import widen
from rlzoo.ops import on_host, pick, put
from rlzoo.plugin.border import out_of_memory
from rlzoo.plugin.call import check


class Policy:
    """softmax(logits / temperature) of a causal LM, and how to sample from it.

    `eos_ids`: tokens that end a response. `top_k` and then `top_p` truncate the sampling
    distribution, never the policy itself. `adapter`: False is the same network with its LoRA
    adapters off.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        autocast: bool = False,
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        # float64 is for checking numbers: nothing casts it.
        self.autocast = autocast and next(model.parameters()).dtype != torch.float64
        # Unless the model's contract rules it out:
        self.sampled_as_scored = True
        self.weights = ""  # checksum of the files that it was loaded from
        self.pads = True  # prompts of unequal length are sampled together
        # Sampled with a cache of a fixed shape, by a copy of the network, in a dtype without
        # autocast, at most this many rows at a time:
        self.static = False
        self.sampled_by: SamplingCopy | None = None
        self.sampled_in: str | None = None
        self.most_rows: int | None = None
        self.notes: list[str] = []  # gains a line when memory runs out
        self.limit = limit_of(model.config)
        self.adapter = True
        self.recompute = False  # gradient checkpointing
        self.compiled = False  # whether the model's layers are
        self.runner: Callable = model  # what is called: the model, or what spreads it over ranks
        config = model.config.get_text_config()
        self.vocabulary = int(config.vocab_size)
        self.softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self.eos_ids = eos_ids(model.config, tokenizer)
        self.pad_id = int(tokenizer.pad_token_id)
        self.stops: tuple[str, ...] = ()  # texts that end a turn of a conversation
        self.value_head: nn.Linear | None = None  # of a critic that shares the trunk

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def bytes_of_position(self, *, grad: bool) -> int:
        """Bytes that a pass holds for each of its positions: activations of all layers where there
        is a gradient, of one where there is none."""
        config = self.model.config.get_text_config()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        inner = max(inner) if isinstance(inner, (list, tuple)) else inner  # the widest layer's
        sizes = config.hidden_size, inner, config.num_hidden_layers
        floats = activations(*sizes, grad=grad, recompute=self.recompute)
        return 4 * (floats + (self.vocabulary if grad else 0))

    @cached_property
    def no_trees(self) -> str:
        """Why groups are not read as trees, each prompt once; empty if they are: every layer must
        use plain full attention, and a trial must agree."""
        return never_trees(self.model) or trees_disagree(self)

    @property
    def halves(self) -> bool:
        """Whether passes compute in half precision, whose rounding differs from pass to pass."""
        half = (torch.float16, torch.bfloat16)
        return self.autocast or any(w.dtype in half for w in self.model.parameters())

    def frozen_copy(self) -> "Policy":
        """The reference: a copy of the network as it is now, without gradients. With LoRA it is
        the same network with its adapters off."""
        if hf_internals.has_adapters(self.model):
            return self.but(value_head=None, sampled_by=None, adapter=False)
        model = copy.deepcopy(self.model).requires_grad_(False)
        return self.but(value_head=None, sampled_by=None, model=model, runner=model)

    def but(self, **changed: Any) -> "Policy":
        """A policy like this one over the same network, with some other attributes."""
        twin = copy.copy(self)
        for name, value in changed.items():
            setattr(twin, name, value)
        return twin

    @contextmanager
    def probed(self) -> Iterator["Policy"]:
        """A policy over the same network for trials, without autocast and EOS."""
        # Flash attention supports half precision only.
        plain = hf_internals.attention_of(self.model.config) in ("sdpa", "eager")
        with torch.random.fork_rng():
            yield self.but(
                autocast=self.autocast and not plain, recompute=False, value_head=None,
                eos_ids=[self.vocabulary], stops=(), temperature=1.0, top_k=0, top_p=1.0,
                sampled_by=None, sampled_in=None, static=False,
            )  # fmt: skip

    @contextmanager
    def sampling_at(self, temperature: float, top_k: int, top_p: float) -> Iterator[None]:
        """In this context, the policy has this temperature and this truncation for sampling."""
        before = self.temperature, self.top_k, self.top_p
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        try:
            yield
        finally:
            self.temperature, self.top_k, self.top_p = before

    def precision(self) -> AbstractContextManager:
        """In this context, matrix products are of the precision of this policy's passes."""
        if not self.autocast:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    @contextmanager
    def reading(self, network: Any, rows: Aligned | None = None) -> Iterator[None]:
        """In this context, `network` (the model, or a critic's trunk) reads `rows`, or samples if
        there are none, with this policy's precision and with its adapters on or off. Raises
        ModelError for a row that the model cannot read correctly."""
        if rows is not None and self.limit and rows.longest > self.limit[0]:
            raise ModelError(f"a row of {rows.longest} tokens exceeds {self.limit[1]}")
        with ExitStack() as stack:
            if not self.adapter:
                self.model.disable_adapters()
                stack.callback(self.model.enable_adapters)
            if rows is not None or self.sampled_in is None:
                stack.enter_context(self.precision())
            if rows is not None:
                stack.enter_context(attention.over(network, rows))
                if self.recompute:
                    stack.enter_context(recompute.within(network))
            yield

    def logits(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Logits before each response token and after the last, (B, T + 1, V), not yet divided
        by the temperature; T is the longest response here."""
        rows = align(columns)
        return self.run(rows).flatten(0, 1)[rows.at]

    def run(self, rows: Aligned, function: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The model's output (R, keep, V).

        function: takes the last hidden states (R, keep, H) and replaces the model's head, so that
            the logits are never all in memory and a wrapper (for several ranks, say) sees an
            ordinary pass.
        """
        with ExitStack() as stack:
            stack.enter_context(self.reading(self.model, rows))
            if function is not None:
                lm_head = self.model.get_output_embeddings()
                stack.enter_context(hf_internals.forward_of(lm_head, function))
                if self.softcap is not None:  # `function` applies it
                    config = self.model.config.get_text_config()
                    stack.enter_context(hf_internals.without_softcap(config))
            return self.runner(
                input_ids=rows.ids,
                position_ids=rows.place,
                logits_to_keep=rows.keep,
                use_cache=False,
            ).logits

    @cached_property
    def plain_head(self) -> bool:
        """Whether the logits come from a linear head followed by nothing except a soft cap."""
        lm_head = self.model.get_output_embeddings()
        if type(lm_head) is not nn.Linear:
            return False
        # Not of padding, whose embedding may be 0: then all logits are, whatever is done to them.
        ids = torch.tensor([[1, 2], [3, 4]], device=self.device)
        ids = torch.where(ids == self.pad_id, 5, ids) % self.vocabulary
        probe = Aligned(ids, torch.zeros_like(ids), 2)
        seen: list[Tensor] = []
        hook = lm_head.register_forward_hook(lambda module, given, out: seen.append(out))
        with torch.no_grad():
            got = self.run(probe, lambda hidden: F.linear(hidden, lm_head.weight, lm_head.bias))
        hook.remove()
        return len(seen) == 1 and bool(got.any()) and torch.equal(seen[0], got)

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
        rows = align(columns, trees=not self.no_trees)
        size = columns["response_ids"].shape
        if "log_pi" in want:
            chosen = columns["response_ids"][:, : rows.at.shape[1] - 1]
            log_pi = (wide(self.logits(columns)[:, :-1]) / self.temperature).log_softmax(-1)
            log_probs = log_pi.gather(-1, chosen[..., None]).squeeze(-1)
            return {"log_probs": widen(log_probs, size[1]), "log_pi": widen(log_pi, size[1])}
        picked, ids, where = chosen_tokens(columns, rows)
        names = ["log_probs", *(n for n in ("entropy", "sum_pi_squared") if n in want)]

        def table(hidden: Tensor) -> Tensor:
            """(R, T + 1, K): a column for each of `names`, then the value head's."""
            lm_head = self.model.get_output_embeddings()
            found = head.log_prob_stats(
                hidden.flatten(0, 1)[picked],  # nothing is spent on padding
                lm_head.weight,
                lm_head.bias,
                ids,
                self.temperature,
                self.softcap,
                entropy="entropy" in want,
                entropy_grad=entropy_grad,
                sum_pi_squared="sum_pi_squared" in want,
                accumulate=accumulate,
            )
            out = _placed([found[n] for n in names], where, size)
            if "values" not in want:
                return out
            assert self.value_head is not None
            values = self.value_head(hidden.flatten(0, 1)[rows.at].to(self.value_head.weight.dtype))
            return torch.cat([out, widen(values.to(out.dtype), size[1] + 1)], -1)

        def table_of_logits(logits: Tensor) -> Tensor:
            """The same from logits (R, keep, V), if the head is more than a linear layer."""
            log_pi = (wide(logits.flatten(0, 1)[picked]) / self.temperature).log_softmax(-1)
            source = log_pi if entropy_grad else log_pi.detach()
            found = {
                "log_probs": log_pi.gather(-1, ids[:, None])[:, 0],
                "entropy": -(source.exp() * source.clamp(min=head.LEAST)).sum(-1),
                "sum_pi_squared": (2 * source).exp().sum(-1),
            }
            return _placed([found[n] for n in names], where, size)

        scored = self.run(rows, table) if self.plain_head else table_of_logits(self.run(rows))
        out = {n: scored[:, :-1, i] for i, n in enumerate(names)}
        if "values" in want:
            out["values"] = scored[..., len(names) :].squeeze(-1)
        return out

    def with_observations(self, columns: Mapping[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """`log_prob_stats`, and `observation_nll` (B,): the mean -log pi of the tokens in a
        response that the environment wrote, 0 without any."""
        mask = columns["response_mask"]
        seen = columns["response_attention"] - mask
        all_of_it = {**columns, "response_mask": columns["response_attention"]}
        out = self.log_prob_stats(all_of_it, **options)
        nll = -(out["log_probs"] * seen).sum(1) / seen.sum(1).clamp(min=1)
        own = {name: x * mask for name, x in out.items() if name != "values"}
        return {**out, **own, "observation_nll": nll}

    def log_probs(self, columns: Mapping[str, Tensor]) -> Tensor:
        """log softmax(logits / temperature) of the response tokens, (B, T)."""
        return self.log_prob_stats(columns)["log_probs"]

    @torch.no_grad()
    def full_kl(self, columns: Mapping[str, Tensor], other: "Policy") -> dict[str, Tensor]:
        """`full_kl`, KL(self, other) over the whole vocabulary, and the other's log-probs as
        `ref_log_probs`; both (B, T)."""
        if not (self.plain_head and other.plain_head):
            ours, theirs = (p.log_prob_stats(columns, want=("log_pi",)) for p in (self, other))
            kl = head.divergence(ours["log_pi"], theirs["log_pi"])
            return {"full_kl": kl, "ref_log_probs": theirs["log_probs"]}
        with whole(dict.fromkeys([self.model, other.model])):  # heads are needed after the pass
            sides = []
            for policy in (self, other):  # they may not be alike: each has a layout of its own
                rows = align(columns, trees=not policy.no_trees)
                picked, ids, where = chosen_tokens(columns, rows)
                hidden = policy.run(rows, lambda h: h).flatten(0, 1)[picked]
                lm_head = policy.model.get_output_embeddings()
                sides.append((hidden.to(lm_head.weight.dtype), lm_head.weight, lm_head.bias))
            caps = (self.softcap, other.softcap)
            kl = head.full_kl(sides[0], sides[1], self.temperature, caps)
            stats = head.log_prob_stats(*sides[1], ids, other.temperature, other.softcap)
        size = columns["response_ids"].shape
        found = _placed([kl, stats["log_probs"]], where, size)[:, :-1]
        return {"full_kl": found[..., 0], "ref_log_probs": found[..., 1]}

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

        Returns response_ids (B, T'), sampler_log_probs and old_log_probs (B, T'), T' <= T.
        """
        limit = max_new_tokens or (uniforms.shape[1] if uniforms is not None else 0)
        model = self.model if self.sampled_by is None else self.sampled_by.follow()
        # A cache grows by a token a call: compiled layers would be compiled again and again.
        how = torch.compiler.set_stance("force_eager") if self.compiled else few_rows(model)
        most = self.most_rows
        with self.reading(self.model), how:
            drawn = self._by_parts(
                model, prompt_ids, prompt_mask, uniforms, self.room(prompt_mask, limit)
            )
        if self.most_rows != most:
            self.notes.append(
                f"out of memory while sampling; continuing with {self.most_rows} rows at a time "
                "(same tokens)"
            )
        finite = drawn["old_log_probs"].isfinite()

        def fault() -> ModelError:
            row, t = (~finite).nonzero()[0].tolist()
            return ModelError(
                f"the model's logits are NaN or infinite: response token {t} of row {row} has no "
                "log-probability, so nothing can be sampled; the weights may be broken, or "
                "model.dtype or model.attention may overflow"
            )

        check(finite.all(), fault)  # all at once, since each check waits for the device
        return drawn

    def room(self, prompt_mask: Tensor, limit: int) -> int | Tensor:
        """The new tokens that fit after prompts (B, P): `limit`, or (B, 1) on the host where the
        model's positions end before that. Raises ModelError where they do so for all rows."""
        if not self.limit or prompt_mask.shape[1] + limit <= self.limit[0]:
            return limit
        lengths = on_host(prompt_mask).long().sum(1, keepdim=True)
        room = (self.limit[0] - lengths).clamp(max=limit)
        if int(room.max()) < limit:
            raise ModelError(
                f"rollout.max_new_tokens: prompts of {int(lengths.min())} tokens and {limit} new "
                f"tokens exceed {self.limit[1]}"
            )
        return room

    def _by_parts(
        self, model: Any, ids: Tensor, mask: Tensor, uniforms: Tensor | None, room: int | Tensor
    ) -> dict[str, Tensor]:
        """Like `generate`, at most `most_rows` rows at a time and, unless the model `pads` and has
        the same `room` for all, of one length, which does not change tokens. If memory runs out,
        fewer rows at a time."""
        lengths = on_host(mask).long().sum(1)
        parts = [torch.arange(len(lengths))]
        if not self.pads or isinstance(room, Tensor):
            parts = [(lengths == n).nonzero()[:, 0] for n in lengths.unique().tolist()]
        done: list[tuple[Tensor, dict[str, Tensor]]] = []
        while parts:
            rows = parts.pop(0)
            if self.most_rows and len(rows) > self.most_rows:
                parts = [*rows.split(self.most_rows), *parts]
                continue
            some, seen = pick(ids, rows), pick(mask, rows)
            if not self.pads:  # none is padded
                columns = put(on_host(seen).any(0).nonzero()[:, 0], seen.device)
                some, seen = some[:, columns], seen[:, columns]
            u = None if uniforms is None else pick(uniforms, rows)
            try:
                limit = room if isinstance(room, int) else int(room[rows].max())
                done.append((rows, decode(self, model, some, seen, u, limit)))
                continue
            except RuntimeError as error:
                if not out_of_memory(error) or len(rows) == 1:
                    raise
            # Not in `except`: there the traceback holds on to what was allocated.
            self.most_rows, parts = (len(rows) + 1) // 2, [rows, *parts]
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        if len(done) == 1:
            return done[0][1]
        back = torch.cat([rows for rows, _ in done]).argsort()
        width = max(drawn["response_ids"].shape[1] for _, drawn in done)
        found = {}
        for name in done[0][1]:
            pad = self.pad_id if name == "response_ids" else 0
            wide = [F.pad(x[name], (0, width - x[name].shape[1]), value=pad) for _, x in done]
            found[name] = pick(torch.cat(wide), back)
        return found


def chosen_tokens(columns: Mapping[str, Tensor], rows: Aligned) -> tuple[Tensor, Tensor, Tensor]:
    """For the N tokens that the policy chose, (N,) each: where they were chosen (`Aligned.at`),
    their ids, and their places in (R, T + 1) laid flat."""
    mask = on_host(columns["response_mask"]).bool()
    found = (
        on_host(rows.at)[:, :-1][mask[:, : rows.at.shape[1] - 1]],
        on_host(columns["response_ids"])[mask],
        F.pad(mask, (0, 1)).flatten().nonzero()[:, 0],
    )
    picked, ids, where = (put(x, rows.ids.device) for x in found)
    return picked, ids, where


def _placed(found: Sequence[Tensor], where: Tensor, size: torch.Size) -> Tensor:
    """(R, T + 1, K): K columns (N,) put to their places `where` (N,) in (R, T + 1) laid flat, 0
    elsewhere."""
    x = torch.stack([*found], -1)
    full = x.new_zeros(size[0] * (size[1] + 1), len(found))
    return full.index_copy(0, where, x).view(size[0], size[1] + 1, len(found))
