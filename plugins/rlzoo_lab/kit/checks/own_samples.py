"""How a policy loss or a correction weights tokens on samples of the policy itself."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.plugin.component import Component
from rlzoo.plugin.registry import Zoo
from rlzoo_lab.kit.checks.losses import pushes
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject


def on_own_samples(component: Component, zoo: Zoo, options: Mapping[str, Any]) -> str:
    """How a policy loss or a correction treats tokens at ratio 1, in words: which tokens get no
    weight, or whether the weight depends on their
    probability. Empty if all tokens of a response are treated alike, with
    the reference at the policy and away from it, or if the component needs columns that only a run
    has."""
    subject = Subject(component, zoo)
    said = []
    for drift in (0.0, 1.0):
        columns = subject.batch()
        mask = columns["response_mask"].bool()
        at = columns["old_log_probs"]
        draw = torch.Generator().manual_seed(0)
        away = drift * torch.randn(at.shape, generator=draw, dtype=at.dtype) * mask
        try:
            if subject.kind == "policy_losses":
                signs, push = pushes(subject, 1.0, ref_log_probs=at + away, **options)
                weight = push / torch.where(signs == 0, 1, signs)
            else:
                columns |= {"log_probs": at, "sampler_log_probs": at, "ref_log_probs": at + away}
                weight = next(iter(subject.tensors(columns, **options).values()))
        except (NotApplicable, RlzooError, AssertionError):
            return ""
        if weight.shape != mask.shape:
            return ""
        said.append(unequal(weight, mask, at.exp()))
    if said[1] and not said[0]:
        return f"once the policy has left the reference, {said[1]}"
    return said[0]


def unequal(weight: Tensor, mask: Tensor, probability: Tensor) -> str:
    """Which tokens get less weight, all (B, T); empty if those of a row are equal."""
    top = weight.masked_fill(~mask, -torch.inf).amax(1, keepdim=True)
    low = weight.masked_fill(~mask, torch.inf).amin(1, keepdim=True)
    rows = mask.any(1)
    if bool(((top - low)[rows] <= 1e-6 * top[rows].abs().clamp(min=1e-9)).all()):
        return ""
    none = mask & (weight.abs() < 1e-9)
    if bool(none.any()):
        left, p = mask & ~none, probability
        share = f"{float(none.sum() / mask.sum()):.0%} of them get no weight"
        steps = mask.cumsum(1)
        if not bool(left.any()):
            return share
        if p[none].max() < p[left].min():
            return f"{share}, those with a probability below {float(p[left].min()):.2g}"
        if p[none].min() > p[left].max():
            return f"{share}, those with a probability above {float(p[left].max()):.2g}"
        if steps[none].max() < steps[left].min():
            return f"{share}, the first {int(steps[none].max())} of each response"
        if steps[none].min() > steps[left].max():
            return f"{share}, those after the first {int(steps[left].max())} of each response"
        return share
    both = torch.stack([weight[mask], probability[mask]]).double()
    corr = float(torch.corrcoef(both)[0, 1])
    if abs(corr) > 0.5:
        return f"the weight {'rises' if corr > 0 else 'falls'} with the token's probability"
    return "the weights within a response differ"
