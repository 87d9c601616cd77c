"""JSON schema: the response is JSON that matches a schema."""

import json
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import torch

from rlzoo import Range, RlzooError, component
from rlzoo_zoo.packages import needs
from rlzoo_zoo.rewards.worker import Worker

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_WORKER = Worker("json_worker", "jsonschema")


def check(*, schema, **_):
    needs("jsonschema", "verify")()
    if not schema:
        raise ValueError("schema is missing: a file, or the schema itself")
    load(schema)


@component("reward", check=check)
def json_schema(
    responses,
    *,
    schema: Annotated[str, "a file, or the schema itself"] = "",
    fenced: Annotated[bool, "read the JSON from the last ``` block"] = False,
    timeout: Annotated[float, Range(0.1), "CPU seconds for one response"] = 1.0,
):
    """1 if the response is valid JSON that the schema accepts, otherwise 0, (B,).

    schema: a path, or JSON text that begins with `{`. The draft is the one named by `$schema`,
    otherwise 2020-12. `$ref` can only refer to the schema itself; nothing is downloaded. JSON
    follows RFC 8259, so NaN and Infinity are invalid. The reward checks the form, not the content,
    so combine it with a verifier. It fails when an empty object (`{}`) matches the schema: set
    `required` and `additionalProperties: false`. It runs in a separate process, which ends itself
    if a response takes longer than `timeout`, for example because a `pattern` backtracks; that
    response scores 0.
    Source: JSON Schema 2020-12, by the library jsonschema.
    """
    if not schema:
        raise RlzooError("rewards.json_schema.schema is missing")
    job = {"schema": load(schema), "fenced": fenced, "timeout": timeout}
    return torch.tensor([float(_WORKER.ask(job | {"response": r})) for r in responses])  # (B,)


@lru_cache
def load(schema: str) -> str:
    """The text of a schema; raises ValueError where it cannot be one."""
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
        nodes = list(_nodes(found))
    except json.JSONDecodeError as error:
        raise ValueError(f"{name}:{error.lineno}: not JSON: {error.msg}") from None
    except jsonschema.SchemaError as error:
        raise ValueError(f"{name}: not a schema: {error.json_path}: {error.message}") from None
    except RecursionError:
        raise ValueError(f"{name}: not a schema: it is nested too deeply") from None
    registry: Any = referencing.Registry()  # an empty one: it fetches nothing
    root = referencing.jsonschema.DRAFT202012.create_resource(found)
    resolver = registry.resolver_with_root(root)
    for key, reference in ((k, node.get(k)) for node in nodes for k in REFERENCES):
        try:
            if isinstance(reference, str):
                resolver.lookup(reference)
        except referencing.exceptions.Unresolvable:
            raise ValueError(f"{name}: {key} {reference!r} is not in the schema") from None
    done: dict[int, Any] = {}
    try:
        for node in nodes:
            _refuse_endless(node, lambda ref: resolver.lookup(ref).contents, done, [])
    except (ValueError, RecursionError):
        raise ValueError(f"{name}: its references have no end: one leads to itself") from None
    return text


def _refuse_endless(
    node: Any, target: Callable[[str], Any], done: dict[int, Any], above: list[int]
) -> None:
    """Raise ValueError if what holds for a value refers to itself before it looks into the value:
    every response, however right, would be refused."""
    if not isinstance(node, dict) or id(node) in done:
        return
    if id(node) in above:
        raise ValueError
    lists = (node.get(key) for key in ("allOf", "anyOf", "oneOf"))
    inner = [node.get("not"), node.get("if"), *chain(*(x for x in lists if isinstance(x, list)))]
    inner += [target(node[key]) for key in REFERENCES[:2] if isinstance(node.get(key), str)]
    for schema in inner:
        _refuse_endless(schema, target, done, [*above, id(node)])
    done[id(node)] = node


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in a schema, itself first."""
    if isinstance(node, dict):
        yield node
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(item)
