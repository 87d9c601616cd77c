"""The process in which the reward `json_schema` holds responses to a schema: patterns backtrack,
references multiply, and neither can be stopped within the run's own process."""

import json
import math
import re
import sys
from functools import lru_cache
from typing import Any

from rlzoo_zoo.json_text import none_such

# A fence within a string is neither at the beginning of a line nor at the end of one.
FENCE = re.compile(r"(?ims)```(?:json)?[ \t]*\n(.*?)(?:^[ \t]*```|```[ \t]*$)")


def judge(job: dict[str, Any]) -> dict[str, Any]:
    return {"right": valid(job["schema"], job["response"], job["fenced"])}


def valid(schema: str, response: str, fenced: bool) -> bool:
    if fenced:
        blocks = FENCE.findall(response)
        if not blocks:
            return False
        response = blocks[-1]
    try:
        found = json.loads(response, parse_constant=none_such, parse_float=_finite)
        return validator(schema).is_valid(found)
    except (ValueError, RecursionError, OverflowError):  # no JSON, nested without end, too large
        return False


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a number")
    return number


@lru_cache
def validator(schema: str) -> Any:
    """The validator of a schema's text, which has been checked."""
    import jsonschema
    import referencing

    found = json.loads(schema)
    kind = jsonschema.validators.validator_for(found, jsonschema.Draft202012Validator)
    return kind(found, registry=referencing.Registry())  # an empty one: it fetches nothing


if __name__ == "__main__":
    import jsonschema  # noqa: F401  (before memory is limited)

    from rlzoo_zoo.rewards.math_worker import serve

    sys.set_int_max_str_digits(0)  # RFC 8259 has no limit; time is limited
    serve(judge)
