"""Decoding by transformers' own loop, for models whose cache cannot drop rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlzoo.mdp.turns import ends_turn

Draw = Callable[[Any, Tensor, Tensor | None, Tensor | None], tuple[Tensor, ...]]


def by_generation(
    draw: Draw,
    names: tuple[str, ...],
    policy: Any,
    model: Any,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    uniforms: Tensor | None,
    limit: int,
) -> dict[str, Tensor]:
    """Like `decode`, but with `model.generate`: a logits processor has `draw` draw the token.

    names: of what `draw` returns.
    """
    from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

    sampled: list[tuple[Tensor, ...]] = []

    def processor(input_ids: Tensor, scores: Tensor) -> Tensor:
        u = None if uniforms is None else uniforms[:, len(sampled)]
        barred = None
        if len(sampled) < policy.min_new_tokens:
            barred = torch.zeros_like(scores[0], dtype=torch.bool)
            barred[policy.eos_ids] = True
        token, *more = draw(policy, scores, u, barred)
        sampled.append(tuple(more))
        return torch.full_like(scores, -torch.inf).scatter_(1, token[:, None], 0)

    def stopped(input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        responses = input_ids[:, prompt_ids.shape[1] :].tolist()
        ends = [ends_turn(policy.tokenizer, row, policy.eos_ids, policy.stops) for row in responses]
        return torch.tensor(ends, device=input_ids.device)

    out = model.generate(
        input_ids=prompt_ids,
        attention_mask=prompt_mask.long(),
        generation_config=GenerationConfig(
            max_new_tokens=limit,
            do_sample=False,
            use_cache=True,
            eos_token_id=policy.eos_ids or [-1],  # the model's own, if none is given
            pad_token_id=policy.pad_id,
        ),
        logits_processor=LogitsProcessorList([processor]),
        stopping_criteria=StoppingCriteriaList([stopped] if policy.stops else []),
    )
    columns = (torch.stack(x, 1) for x in zip(*sampled, strict=True))
    return dict(zip(names, (out[:, prompt_ids.shape[1] :], *columns), strict=False))
