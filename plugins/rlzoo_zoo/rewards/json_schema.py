"""JSON schema: the response is JSON of a declared form."""

import importlib.util
import json
import math
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import torch

from rlzoo import RlzooError, hookimpl

FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


def json_schema(
    responses,
    *,
    schema: Annotated[str, "a file, or the schema itself"] = "",
    fenced: Annotated[bool, "the JSON stands in the last ``` block"] = False,
):
    """1 where the response is valid JSON that the schema accepts, else 0, (B,).

    schema: a path, or JSON text that begins with `{`; the draft that its `$schema` names, else
    2020-12. `$ref` leads inside the schema only: nothing is fetched. JSON as RFC 8259 has it, so
    NaN and Infinity are none. It pays the form, not the truth: give it beside a verifier of the
    content. Breaks where the form can be met by nothing (`{}`): say what is `required`, and
    `additionalProperties: false`. A `pattern` that backtracks without end is not stopped.
    Source: JSON Schema 2020-12, by the library jsonschema.
    """
    if not schema:
        raise RlzooError("rewards.json_schema.schema is missing")
    validator = load(schema)
    return torch.tensor([float(valid(validator, r, fenced)) for r in responses])  # (B,)


def valid(validator: Any, response: str, fenced: bool) -> bool:
    if fenced:
        blocks = FENCE.findall(response)
        if not blocks:
            return False
        response = blocks[-1]
    try:
        found = json.loads(response, parse_constant=_none_such, parse_float=_finite)
        return validator.is_valid(found)
    except (ValueError, RecursionError, OverflowError):  # no JSON, nested without end, too large
        return False


def _none_such(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no number")
    return number


@lru_cache
def load(schema: str) -> Any:
    """The validator of a schema; raises ValueError where it cannot be one."""
    import jsonschema
    import referencing.exceptions
    import referencing.jsonschema

    text, name = schema, "schema"
    if not schema.lstrip().startswith("{"):
        name = schema
        try:
            text = Path(os.path.expanduser(schema)).read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"schema: cannot read {schema!r}: {error.strerror}") from None
    try:
        found = json.loads(text)
        kind = jsonschema.validators.validator_for(found, jsonschema.Draft202012Validator)
        kind.check_schema(found)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name}:{error.lineno}: not JSON: {error.msg}") from None
    except jsonschema.SchemaError as error:
        raise ValueError(f"{name}: not a schema: {error.json_path}: {error.message}") from None
    registry: Any = referencing.Registry()  # an empty one: it fetches nothing
    root = referencing.jsonschema.DRAFT202012.create_resource(found)
    resolver = registry.resolver_with_root(root)
    for reference in _references(found):
        try:
            resolver.lookup(reference)
        except referencing.exceptions.Unresolvable:
            raise ValueError(f"{name}: $ref {reference!r} leads nowhere in the schema") from None
    return kind(found, registry=registry)


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [r for item in node for r in _references(item)]
    if not isinstance(node, dict):
        return []
    here = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return here + [r for item in node.values() for r in _references(item)]


def check(*, schema, fenced):
    if importlib.util.find_spec("jsonschema") is None:
        raise RlzooError("needs jsonschema: pip install 'rlzoo-llm[verify]'")
    if not schema:
        raise ValueError("schema is missing: a file, or the schema itself")
    load(schema)


@hookimpl
def register_rewards(register):
    register(json_schema, check=check)
