"""The critic: V(s_t) for each token, from a value head on a separate trunk or on the policy's."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from rlzoo.accel.passes import align
from rlzoo.errors import ModelError
from rlzoo.lm.loading import refuse_ahead, trunk_of
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import widen
from rlzoo.plugin.columns import Columns


class Critic(nn.Module):
    """V(s_t) from a separate trunk and a linear head, which starts at zero.

    With `support` (K,) the head is K wide and V = softmax(value_logits) @ support.
    `start`: (trunk, head weight (1, H) or None) to start from instead of the policy's trunk.
    """

    def __init__(
        self,
        policy: Policy,
        support: Tensor | None = None,
        *,
        shared: bool = False,
        start: tuple[Any, Tensor | None] | None = None,
    ):
        super().__init__()
        # The policy that shares its trunk is not part of this module: its weights are the actor's.
        self._policy = (policy,)
        trunk, weight = start or (None, None)
        self._as_policy = start is None  # of the policy's architecture
        if not shared and trunk is None:
            trunk = copy.deepcopy(trunk_of(policy.model))
        self.trunk: Any = trunk

        def hidden_states(ids: Tensor) -> Tensor:
            return (trunk or trunk_of(policy.model))(input_ids=ids, use_cache=False)[0]

        if start:
            refuse_ahead(hidden_states, policy.device, f"critic.init: {type(trunk).__name__}")
        ids = torch.zeros(1, 1, dtype=torch.long, device=policy.device)
        with torch.no_grad():  # the width of hidden states may be less than the layers'
            hidden = hidden_states(ids)
        self.head = nn.Linear(hidden.shape[-1], 1 if support is None else len(support))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        if weight is not None and support is None:
            self.head.weight.data.copy_(weight)
        double = next(policy.model.parameters()).dtype == torch.float64
        self.head.to(policy.device, torch.float64 if double else torch.float32)
        self.support = None if support is None else support.to(self.head.weight)
        if shared and not policy.traits.plain_head:
            raise ModelError(
                "critic.trunk: shared requires a model whose head is one linear layer, unlike "
                f"that of {type(policy.model).__name__}; use critic.trunk=own"
            )

    def predict(self, columns: Columns) -> Tensor:
        """V, or logits of its bins, before each response token and after the last:
        (B, T + 1[, K])."""
        policy = self._policy[0]
        rows = align(columns, trees=self._as_policy and not policy.traits.no_trees)
        if self.trunk is None:
            hidden = policy.run(rows, lambda h: h)
        else:
            with policy.reading(self.trunk, rows):
                hidden = self.trunk(input_ids=rows.ids, position_ids=rows.place, use_cache=False)[0]
            hidden = hidden[:, -rows.keep :]
        hidden = hidden.flatten(0, 1)[rows.at].to(self.head.weight.dtype)
        out = self.head(hidden).squeeze(-1)
        return widen(out, columns["response_ids"].shape[1] + 1)

    def columns(self, prediction: Tensor) -> dict[str, Tensor]:
        """`value_preds` (B, T), with `value_logits` and `value_support` where there are bins."""
        if self.support is None:
            return {"value_preds": prediction[:, :-1]}
        values = (prediction.softmax(-1) @ self.support)[:, :-1]
        bins = {"value_logits": prediction[:, :-1], "value_support": self.support}
        return {"value_preds": values, **bins}

    @torch.no_grad()
    def values(self, columns: Columns, prediction: Tensor | None = None) -> dict[str, Tensor]:
        """`values` (B, T), before each token, and `last_values` (B,), V(s_T), after each row's last
        token. `prediction`: the output of `predict` for these rows, if available."""
        out = self.predict(columns) if prediction is None else prediction.detach()
        if self.support is not None:
            out = out.softmax(-1) @ self.support
        length = columns["response_attention"].long().sum(1, keepdim=True)
        return {"values": out[:, :-1], "last_values": out.gather(1, length).squeeze(1)}


def freeze(critic: Critic, parts: list[str]) -> None:
    """Train no weight of these parts of the critic's own trunk: `trunk` is all of it, `attention`
    each module whose name ends so (self_attn, attention), any other word a module or weight of that
    name. Raises ModelError if one names no weight."""
    for part in parts:
        ends = {"attention": ("attn", "attention"), "trunk": ("",)}.get(part)
        chosen = [
            weight
            for path, weight in critic.trunk.named_parameters()
            if any(n.lower().endswith(ends) if ends else n == part for n in path.split("."))
        ]
        if not chosen:
            names = {n for name, _ in critic.trunk.named_parameters() for n in name.split(".")}
            raise ModelError(
                f"critic.freeze: the critic's trunk has no weight of {part!r}; write trunk, "
                f"attention, or some of: {', '.join(sorted(n for n in names if not n.isdigit()))}"
            )
        for weight in chosen:
            weight.requires_grad_(False)
