"""Resources of column plugins in an enumerated world: samples, scores, a tokenizer."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo.plugin.call import call
from rlzoo_lab.kit.oracle.episodes import text_of
from rlzoo_lab.kit.oracle.oracle import Oracle


class Resources:
    """`sample`, `score` and `tokenizer` of the enumerated world, for column plugins of a batch
    whose rows have the prompts `prompt` (B,).

    `random`: whether a draw was made: then a column is one draw, and must be made several times.
    """

    def __init__(self, oracle: Oracle, prompt: Tensor, generator: torch.Generator):
        self.oracle, self.prompt, self.generator = oracle, prompt, generator
        self.random = False

    def handles(self) -> dict[str, Any]:
        tree = self.oracle.tree

        def sample(
            prompt_ids, prompt_mask, *, max_new_tokens=None, greedy=False, rows=None, of=None
        ):
            return self._sample(prompt_ids, prompt_mask, max_new_tokens, greedy)

        sample.max_new_tokens = tree.horizon  # type: ignore[attr-defined]
        return {"sample": sample, "score": self._score, "tokenizer": _Tokenizer()}

    def states_after(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B,) the state that prompt and tokens (B, P) lead to; -1 where an episode has ended."""
        tree, roots = self.oracle.tree, self.oracle.tree.vocabulary
        at = torch.full((len(ids),), -1)
        for token, real in zip(ids.unbind(1), mask.bool().unbind(1), strict=True):
            below = tree.child[at.clamp(min=0), token.clamp(max=tree.vocabulary - 1)]
            moved = torch.where(token >= roots, token - roots, torch.where(at >= 0, below, -1))
            at = torch.where(real, moved, at)
        return at

    def _sample(self, ids: Tensor, mask: Tensor, limit: int | None, greedy: bool) -> dict[str, Any]:
        oracle, tree = self.oracle, self.oracle.tree
        at = self.states_after(ids, mask)
        self.random |= not greedy
        tokens, masks, log_probs = [], [], []
        for _ in range(min(limit or tree.horizon, tree.horizon)):
            here, alive = at.clamp(min=0), at >= 0
            if greedy:
                token = oracle.logits[here].argmax(-1)
            else:
                token = torch.multinomial(oracle.pi[here], 1, generator=self.generator)[:, 0]
            tokens.append(torch.where(alive, token, 0))
            masks.append(alive)
            log_probs.append(torch.where(alive, oracle.log_pi[here, token], 0))
            at = torch.where(alive, tree.child[here, token], -1)
        drawn, real = torch.stack(tokens, 1), torch.stack(masks, 1)
        texts = torch.where(real, drawn, -1).tolist()
        return {
            "response_ids": drawn,
            "response_mask": real.double(),
            "response_attention": real.double(),
            "terminated": at < 0,
            "truncated": at >= 0,
            "old_log_probs": torch.stack(log_probs, 1),
            "sampler_log_probs": torch.stack(log_probs, 1),
            "responses": ["".join(text_of(row)) for row in texts],
        }

    def _score(self, columns: Mapping[str, Any]) -> Tensor:
        tree = self.oracle.tree
        ids, mask = columns["response_ids"], columns["response_mask"].bool()
        at = self.prompt[columns.get("rows", torch.arange(len(ids)))]
        total = torch.zeros(len(ids), dtype=torch.float64)
        for token, real in zip(ids.unbind(1), mask.unbind(1), strict=True):
            here, acts = at.clamp(min=0), real & (at >= 0)
            token = token.clamp(max=tree.vocabulary - 1)
            gained, coin = self.oracle.rewards[here, token], self.oracle.coin[here, token]
            if bool((coin > 0).any()):
                self.random = True
                side = torch.randint(2, coin.shape, generator=self.generator) * 2 - 1
                gained = gained + coin * side
            total += torch.where(acts, gained, 0)
            at = torch.where(acts, tree.child[here, token], at)
        return total


class _Tokenizer:
    """Letters for tokens, for a plugin that decodes its samples."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(text_of(list(map(int, ids))))

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [self.decode(row) for row in rows]

    def convert_ids_to_tokens(self, i: int) -> str:
        return self.decode([i])


def supply(
    zoo: Any,
    names: Iterable[str],
    columns: dict[str, Any],
    handles: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Add to `columns` what column plugins can make of them, and of the handles, until `names` are
    there; returns the names that cannot be computed, and the missing inputs."""

    def make(name: str) -> str:
        """The missing resource, or an empty string."""
        if name in columns or name in handles:
            return ""
        plugin = zoo.columns.get(name)
        if plugin is None:
            return name
        for need in plugin.needs:
            if lack := make(need):
                return f"{name} (which needs {lack})"
        inputs = {n: columns[n] if n in columns else handles[n] for n in plugin.needs}
        inputs["response_mask"] = columns["response_mask"]
        value = call(plugin, inputs, plugin.check_options((options or {}).get(name, {})))
        like = columns["response_mask"].dtype
        floats = isinstance(value, Tensor) and value.is_floating_point()
        columns[name] = value.to(like) if floats else value
        return ""

    return [lack for name in names if (lack := make(name))]
