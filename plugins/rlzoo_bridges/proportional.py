"""Whether a policy loss is proportional to the advantages: found out by trying."""

from functools import cache
from typing import Any

import torch


@cache
def proportional(component: Any) -> bool:
    """Whether c times the advantages give c times the loss, as few numbers show."""
    g = torch.Generator().manual_seed(0)
    old = -torch.rand(4, 6, dtype=torch.float64, generator=g)
    new = old + 0.5 * torch.randn(4, 6, dtype=torch.float64, generator=g)
    advantages = torch.randn(4, 6, dtype=torch.float64, generator=g)
    columns = {"log_probs": new, "old_log_probs": old, "response_mask": torch.ones_like(old)}
    once, many = (component({**columns, "advantages": c * advantages})[0] for c in (1.0, 1e-3))
    return torch.allclose(1e-3 * once, many, rtol=1e-6, atol=1e-12)
