"""What a sampler gave, looked at before anything is made of it: a fault is the sampler's."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import ComponentError, nearest
from rlzoo.lm.models import Models
from rlzoo.ops import on_host
from rlzoo.plugin.call import check, has_shape
from rlzoo.plugin.columns import COLUMNS
from rlzoo.recipe.plan import Bound

TOKENS = ("response_ids", "sampler_log_probs", "old_log_probs")
# What comes of tokens: a sampler that gives one of these gives all, as one that wraps another does.
EPISODE = ("response_mask", "response_attention", "responses", "terminated", "truncated")
LOG_PROBS = TOKENS[1:]
ABOVE = 1e-3  # nats: what rounding may put a log-probability above 0


def checked(models: Models, sampler: Bound, given: Any, rows: int, limit: int) -> dict[str, Any]:
    """A sampler's columns for so many rows of at most `limit` tokens, ids in int64, log-probs of
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
        raise fault(f"a column {other[0]!r}; it gives {', '.join(TOKENS)}{close}")
    needed = [*TOKENS[:2], *(EPISODE if "response_mask" in found else ())]
    if missing := [n for n in needed if n not in found]:
        raise fault(f"no {missing[0]!r}")
    ids = found["response_ids"]
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
        raise fault(f"response_ids that are {_told(ids)}, not int64 of shape (B, T)")
    steps = ids.shape[1]
    if len(ids) != rows or not 0 < steps <= limit:
        raise fault(f"response_ids of shape {tuple(ids.shape)}; {rows} rows of 1 to {limit} tokens "
                    "were asked for")  # fmt: skip
    low, high = (int(x) for x in on_host(ids).aminmax())
    if low < 0 or high >= models.policy.vocabulary:
        wrong = low if low < 0 else high
        raise fault(f"token {wrong}; the model knows 0 to {models.policy.vocabulary - 1}")
    double = next(models.policy.model.parameters()).dtype == torch.float64
    for name, x in found.items():
        shape = COLUMNS[name].shape
        if shape == "list":
            if not isinstance(x, list) or len(x) != rows:
                raise fault(f"{name} that are no list of {rows}")
        elif not isinstance(x, Tensor) or not has_shape(x, shape, rows, steps):
            raise fault(f"{name} that are {_told(x)}, beside response_ids {tuple(ids.shape)}")
        elif x.device != ids.device:
            raise fault(f"{name} on {x.device}, response_ids on {ids.device}")
        elif name in LOG_PROBS:
            if not x.is_floating_point():
                raise fault(f"{name} of dtype {x.dtype}, not a float")
            found[name] = x.detach().to(torch.float64 if double else torch.float32)
    found["response_ids"] = ids if ids.dtype == torch.int64 else ids.long()
    return found


def check_log_probs(sampler: Bound, drawn: Mapping[str, Any]) -> None:
    """Raise a ComponentError, naming the sampler, for a log-prob of a chosen token that is none: at
    once, or where that is waited for (`rlzoo.plugin.call.together`)."""
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
                f"row {row}, which is no log-probability"
            )

        check(~wrong.any(), fault)


def _told(x: Any) -> str:
    return f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
