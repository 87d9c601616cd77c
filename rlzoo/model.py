"""Models: the policy over a transformers causal LM, its frozen reference, and the critic.

Everything is response-aligned: of a row `prompt | response` of P + T tokens, index t of what comes
out is read at position P - 1 + t, before token t. Models stay in eval mode, also in updates:
dropout would make the first epoch's ratio differ from 1.
"""

import contextlib
import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo.batch import trim
from rlzoo.component import RlzooError
from rlzoo.recipe import config_dirs

# transformers is imported inside functions: it takes seconds, and checks come before.


class ModelError(RlzooError):
    """A model folder that is none, or a tokenizer that lacks what is needed."""


def resolve_path(path: str) -> Path:
    """A model folder: as given, or below one of the config folders (`model/tiny`)."""
    for folder in (Path(path).expanduser(), *(d / path for d in config_dirs())):
        if (folder / "config.json").is_file():
            return folder
    what = "is a folder without config.json" if Path(path).is_dir() else "no such folder"
    raise ModelError(f"model.path: {path!r} is no model: {what} (a transformers folder has one)")


def load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: no usable tokenizer: {_first_line(error)}") from None
    tokenizer.padding_side = "left"
    if tokenizer.eos_token_id is None:
        raise ModelError(f"{folder}: the tokenizer has no EOS token, so no response could end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_causal_lm(folder: Path) -> Any:
    """The causal LM in `folder`, float32 master weights, in eval mode."""
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder}: cannot be loaded: {_first_line(error)}") from None
    # A model's own sampling defaults (temperature, top-k, repetition penalty) would change the
    # policy unseen; rlzoo's are the recipe's.
    model.generation_config = GenerationConfig()
    return model.eval()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def pick_device(name: str) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RlzooError(f"device: {name!r} is none; use auto, cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RlzooError(f"device: {name!r} is asked for, and no CUDA device is there")
    return device


def positions(attention_mask: Tensor) -> Tensor:
    """Position ids (B, L) that do not count padding, so that padding moves nothing."""
    return (attention_mask.long().cumsum(-1) - 1).clamp(min=0)


class Policy:
    """softmax(logits / temperature) of a causal LM, and how to sample from it.

    `eos_ids`: tokens that end a response. `top_k`, `top_p` truncate what is sampled from, never
    the policy itself.
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
        self.autocast = autocast
        self.eos_ids = eos_ids(model.config, tokenizer)
        self.pad_id = int(tokenizer.pad_token_id)
        self.value_head: nn.Linear | None = None  # of a critic that shares the trunk

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def frozen_copy(self) -> "Policy":
        """The reference: the same network now, without gradients."""
        twin = copy.copy(self)
        twin.model = copy.deepcopy(self.model).requires_grad_(False)
        twin.value_head = None
        return twin

    def precision(self) -> contextlib.AbstractContextManager:
        if not self.autocast:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def logits(self, columns: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Logits before each response token and after the last, (B, T + 1, V), not yet divided
        by the temperature; and the trunk's hidden states there, (B, T + 1, H), if a critic
        shares it."""
        ids = torch.cat([columns["prompt_ids"], columns["response_ids"]], 1)
        mask = torch.cat([columns["prompt_mask"], columns["response_attention"]], 1).long()
        keep = columns["response_ids"].shape[1] + 1
        hidden: list[Tensor] = []
        with contextlib.ExitStack() as stack:
            if self.value_head is not None:
                trunk = self.model.base_model
                hook = trunk.register_forward_hook(lambda m, i, out: hidden.append(out[0]))
                stack.callback(hook.remove)
            stack.enter_context(self.precision())
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions(mask),
                logits_to_keep=keep,
                use_cache=False,
            )
        return out.logits[:, -keep:], hidden[0][:, -keep:] if hidden else None

    def score(
        self, columns: Mapping[str, Any], *, want: tuple[str, ...] = (), entropy_grad: bool = True
    ) -> dict[str, Tensor]:
        """`log_probs` (B, T) of the response tokens, and what is in `want`:

        entropy, sum_pi_squared: (B, T) of the next-token distribution; values: from a head on the
        shared trunk, (B, T + 1) or (B, T + 1, K).
        """
        cut, _ = trim(columns)
        logits, hidden = self.logits(cut)
        log_pi = (logits[:, :-1].float() / self.temperature).log_softmax(-1)  # (B, T, V)
        out = {"log_probs": log_pi.gather(-1, cut["response_ids"][..., None]).squeeze(-1)}
        if "entropy" in want:
            source = log_pi if entropy_grad else log_pi.detach()
            out["entropy"] = -(source.exp() * source).sum(-1)
        if "sum_pi_squared" in want:
            out["sum_pi_squared"] = (2 * log_pi).exp().sum(-1)
        if "log_pi" in want:
            out["log_pi"] = log_pi
        steps = columns["response_ids"].shape[1]
        out = {name: _widen(x, steps) for name, x in out.items()}
        if "values" in want:
            assert self.value_head is not None
            assert hidden is not None
            values = self.value_head(hidden.float()).squeeze(-1)
            out["values"] = _widen(values, steps + 1)
        return out

    def log_probs(self, columns: Mapping[str, Any]) -> Tensor:
        """log softmax(logits / temperature) of the response tokens, (B, T)."""
        return self.score(columns)["log_probs"]

    @torch.no_grad()
    def generate(
        self,
        prompt_ids: Tensor,
        prompt_mask: Tensor,
        uniforms: Tensor | None,
        max_new_tokens: int | None = None,
    ) -> dict[str, Tensor]:
        """Responses by transformers' generation: token t by inverse CDF at uniforms[:, t] (B, T),
        greedily where `uniforms` is None.

        Returns response_ids (B, T'), sampler_log_probs and old_log_probs (B, T'), T' <= T.
        """
        from transformers import GenerationConfig, LogitsProcessorList

        length = max_new_tokens or (uniforms.shape[1] if uniforms is not None else 0)
        draw = _Draw(self, uniforms)
        config = GenerationConfig(
            max_new_tokens=length,
            do_sample=False,
            use_cache=True,
            eos_token_id=self.eos_ids,
            pad_token_id=self.pad_id,
        )
        with self.precision():
            out = self.model.generate(
                input_ids=prompt_ids,
                attention_mask=prompt_mask.long(),
                generation_config=config,
                logits_processor=LogitsProcessorList([draw]),
            )
        return {
            "response_ids": out[:, prompt_ids.shape[1] :],
            "sampler_log_probs": torch.stack(draw.sampled, 1),
            "old_log_probs": torch.stack(draw.policy, 1),
        }


def _widen(x: Tensor, steps: int) -> Tensor:
    """Pad dimension 1 with zeros to `steps`: the padding that `trim` took away."""
    missing = steps - x.shape[1]
    if missing == 0:
        return x
    return torch.cat([x, x.new_zeros(x.shape[0], missing, *x.shape[2:])], 1)


def eos_ids(config: Any, tokenizer: Any) -> list[int]:
    """Every token that ends a response: the tokenizer's EOS and the model's own list."""
    listed = getattr(config, "eos_token_id", None)
    listed = listed if isinstance(listed, list) else [listed]
    return sorted({int(i) for i in [tokenizer.eos_token_id, *listed] if i is not None})


class _Draw:
    """A logits processor that draws the token itself and leaves generation one choice.

    transformers' own sampling takes its noise from one stream for the whole batch; here each row
    has its own uniform, and the token is where the cumulative distribution passes it.
    """

    def __init__(self, policy: Policy, uniforms: Tensor | None):
        self.temperature = policy.temperature
        self.top_k, self.top_p = policy.top_k, policy.top_p
        self.uniforms = uniforms
        self.sampled: list[Tensor] = []
        self.policy: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        log_pi = (scores.float() / self.temperature).log_softmax(-1)  # (B, V)
        if self.uniforms is None:
            token = log_pi.argmax(-1, keepdim=True)
            log_mu = log_pi
        else:
            log_mu = truncate(log_pi, self.top_k, self.top_p)
            cdf = log_mu.exp().cumsum(-1, dtype=torch.float64)
            u = self.uniforms[:, len(self.sampled), None].to(cdf)
            # `right`: the first entry above u, so a token of probability 0 is never drawn.
            token = torch.searchsorted(cdf, u * cdf[:, -1:], right=True)
            token = token.clamp(max=cdf.shape[1] - 1)
        self.sampled.append(log_mu.gather(1, token).squeeze(1))
        self.policy.append(log_pi.gather(1, token).squeeze(1))
        return torch.full_like(scores, -torch.inf).scatter_(1, token, 0)


def truncate(log_pi: Tensor, top_k: int, top_p: float) -> Tensor:
    """log pi (B, V) restricted to the top k and to the nucleus of mass p, normalised again."""
    if top_k <= 0 and top_p >= 1:
        return log_pi
    ordered, index = log_pi.sort(-1, descending=True)
    drop = torch.zeros_like(ordered, dtype=torch.bool)
    if top_k > 0:
        drop[:, top_k:] = True
    if top_p < 1:  # the token that passes p stays
        drop |= ordered.exp().cumsum(-1) - ordered.exp() >= top_p
    ordered = ordered.masked_fill(drop, -torch.inf).log_softmax(-1)
    return torch.empty_like(log_pi).scatter_(-1, index, ordered)


class Critic(nn.Module):
    """V(s_t) from a trunk of its own and a linear head, which starts at zero.

    With `support` (K,) the head is K wide and V = softmax(value_logits) @ support.
    """

    def __init__(self, policy: Policy, support: Tensor | None = None, *, shared: bool = False):
        super().__init__()
        # The policy that shares its trunk is no part of this module: its weights are the actor's.
        self._policy = (policy,)
        self.trunk: Any = None if shared else copy.deepcopy(policy.model.base_model)
        width = policy.model.config.get_text_config().hidden_size
        self.head = nn.Linear(width, 1 if support is None else len(support))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.head.to(policy.device)
        self.support = None if support is None else support.to(policy.device)
        if shared:
            policy.value_head = self.head

    def predict(self, columns: Mapping[str, Any]) -> Tensor:
        """V, or logits of its bins, before each response token and after the last:
        (B, T + 1[, K])."""
        policy = self._policy[0]
        if self.trunk is None:
            return policy.score(columns, want=("values",))["values"]
        cut, width = trim(columns)
        ids = torch.cat([cut["prompt_ids"], cut["response_ids"]], 1)
        mask = torch.cat([cut["prompt_mask"], cut["response_attention"]], 1).long()
        with policy.precision():
            hidden = self.trunk(
                input_ids=ids, attention_mask=mask, position_ids=positions(mask), use_cache=False
            )[0]
        out = self.head(hidden[:, -(width + 1) :].float()).squeeze(-1)
        return _widen(out, columns["response_ids"].shape[1] + 1)

    def columns(self, prediction: Tensor) -> dict[str, Tensor]:
        """`value_preds` (B, T), with `value_logits` and `value_support` where there are bins."""
        if self.support is None:
            return {"value_preds": prediction[:, :-1]}
        values = prediction.softmax(-1) @ self.support
        return {
            "value_preds": values[:, :-1],
            "value_logits": prediction[:, :-1],
            "value_support": self.support,
        }

    @torch.no_grad()
    def values(
        self, columns: Mapping[str, Any], prediction: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(values (B, T), V(s_T) (B,)): before each token, and after each row's last token."""
        out = self.predict(columns) if prediction is None else prediction.detach()
        if self.support is not None:
            out = out.softmax(-1) @ self.support
        length = columns["response_attention"].long().sum(1, keepdim=True)
        return out[:, :-1], out.gather(1, length).squeeze(1)
