"""Mix: a weighted sum of the advantages of several estimators."""

import inspect
import json
import re
from functools import cache
from typing import Annotated

from rlzoo import RlzooError, hookimpl, load_zoo
from rlzoo.ops import whiten

PARTS, WEIGHTS = ["dr_grpo", "mc"], [0.5, 0.5]


def mix(
    rewards,
    values,
    bootstrap_values,
    sequence_rewards,
    response_mask,
    group_ids,
    *,
    parts: Annotated[list[str], "estimators, such as grpo or gae(lam=0.9)"] = PARTS,
    weights: Annotated[list[float], "one weight for each part"] = WEIGHTS,
    normalize: Annotated[list[bool], "one flag for each part; empty: none"] = [],  # noqa: B006
):
    """A = sum_k w_k N_k(A_k), (B, T), where A_k are the advantages of part k.

    N_k standardizes A_k over the action tokens of the batch (mean 0, population standard deviation
    1) if `normalize` is true for it; otherwise N_k changes nothing. A mix needs the columns and
    models of its parts, which are computed only once. A part is the name of an estimator, with its
    options in parentheses: `gae(lam=0.9,gamma=1)`. The critic's target is that of the first part
    that reads `values`. Weights may be negative and need not add up to 1. With one part of weight
    1, a mix equals that part. Metrics that discount use gamma = 1. A group of one gets the sum of
    the results of its parts. It fails when parts have different units, such as rewards and nats:
    the larger one dominates, so normalize them. Source: the documentation of rlzoo; requested in
    huggingface/trl issue 7291.
    """
    given = [rewards, values, bootstrap_values, sequence_rewards, response_mask, group_ids]
    options = {"parts": parts, "weights": weights, "normalize": normalize}
    columns = dict(zip(inspect.signature(mix).parameters, given, strict=False))
    function = mixture(**options)
    return function(*(columns[name] for name in needs_of(function)))


def mixture(*, parts, weights, normalize):
    """The function for these options: its parameters are the columns that the parts need."""
    if not parts or len(weights) != len(parts) or len(normalize) not in (0, len(parts)):
        raise RlzooError(
            "estimator 'mix': give at least one part, one weight per part, and normalize empty or "
            f"one per part. Got parts={parts}, weights={weights}, normalize={normalize}"
        )
    chosen = [_read(text) for text in parts]
    needs = [name for component, _ in chosen for name in component.needs]
    names = list(dict.fromkeys([*needs, "response_mask"]))
    flags = normalize or [False] * len(parts)

    def mixed(*inputs, **options):
        columns = dict(zip(names, inputs, strict=True))
        total, returns = 0, None
        for (component, own), weight, flag in zip(chosen, weights, flags, strict=True):
            found = component(columns, **own)
            part = found["advantages"]
            total = total + weight * (whiten(part, columns["response_mask"]) if flag else part)
            returns = found.get("returns") if returns is None else returns
        return total if returns is None else (total, returns)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    vars(mixed)["__signature__"] = signature
    return mixed


def needs_of(function):
    return tuple(inspect.signature(function).parameters)


def _read(text):
    """(component, its checked options) of a part such as `gae(lam=0.9)`."""
    shape = re.fullmatch(r"\s*([\w./-]+)\s*(?:\((.*)\))?\s*", text)
    if shape is None:
        raise RlzooError(f"estimator 'mix': part {text!r} is not of the form NAME(OPTION=VALUE)")
    name, inside = shape.group(1), shape.group(2) or ""
    if name.rpartition("/")[2] == "mix":
        raise RlzooError("estimator 'mix': a mix cannot be a part of a mix")
    options = {}
    for pair in filter(str.strip, inside.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise RlzooError(f"estimator 'mix': part {text!r}: {pair.strip()!r} has no value")
        options[key.strip()] = _value(value.strip())
    component = _zoo().estimators[name]
    return component, component.check_options(options)


def _value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


@cache
def _zoo():
    return load_zoo()


@hookimpl
def register_estimators(register):
    register(mix, couples="batch", resolve=mixture)
