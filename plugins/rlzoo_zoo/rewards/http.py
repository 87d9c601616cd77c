"""A reward over HTTP: your own endpoint scores the responses."""

import json
import warnings
from typing import Annotated, Any, Literal

import torch

from rlzoo import Range, RlzooError, component
from rlzoo.errors import Unfinished, in_short, nearest
from rlzoo.waiting import pause
from rlzoo_zoo.request import Endpoint, Later, check_url, headers

FIELDS = ("prompts", "responses", "response_tokens", "answers")
LARGEST = 3e38  # of a float32; no comparison with NaN holds
SEND = ["prompts", "responses"]


def check(*, url, send, headers_from, per_token, **_):
    check_url(url)
    for name in send:
        if name not in FIELDS:
            raise ValueError(f"send: there is no field {name!r}{nearest(name, FIELDS)}")
    if not send:
        raise ValueError(f"send: choose at least one of {', '.join(FIELDS)}")
    if per_token and "response_tokens" not in send:
        raise ValueError("per_token: the endpoint needs the tokens; add response_tokens to send")
    headers(headers_from)


@component("reward", check=check)
def http(
    prompts,
    responses,
    response_tokens,
    answers,
    response_mask,
    *,
    url: Annotated[str, "http:// or https://"] = "",
    send: Annotated[list[str], "any of prompts, responses, response_tokens and answers"] = SEND,
    per_token: Annotated[bool, "the endpoint returns a list of scores for each response"] = False,
    batch: Annotated[int, Range(1), "responses per request"] = 64,
    timeout: Annotated[float, Range(0, closed="neither"), "seconds for a request"] = 30.0,
    retries: Annotated[int, Range(0), "number of further attempts"] = 3,
    backoff: Annotated[float, Range(0), "seconds before a second attempt; then doubled"] = 1.0,
    on_failure: Annotated[Literal["stop", "zero"], "what to do if no attempt is answered"] = "stop",
    headers_from: Annotated[str, "an environment variable with lines 'Name: value'"] = "",
):
    """The endpoint's score of each response, (B,), or of each of its tokens, (B, T).

    It posts {"responses": [...], ...}, with lists of at most `batch` items and only the fields in
    `send`. The endpoint returns {"scores": [...]} with a finite number for each response, or with
    per_token, a list with a number for each item of its response_tokens. Refused connections,
    timeouts, incomplete answers and the statuses 408, 429 and 5xx are retried. If all attempts
    fail, the run stops with its last checkpoint intact, or on_failure=zero scores that request 0
    with a warning. Any other invalid answer is an immediate error, since it would recur: another
    status, a redirect (which is not followed), no JSON, more than 64 MiB, the wrong shape. Secrets
    belong in the variable of `headers_from`, which `--allow-env NAME` must allow. A run is
    deterministic only if the endpoint is.
    Source: the user.
    """
    check(url=url, send=send, headers_from=headers_from, per_token=per_token)
    columns = dict(zip(FIELDS, (prompts, responses, response_tokens, answers), strict=True))
    endpoint = Endpoint(url, headers(headers_from), timeout, HttpError)
    scores = torch.zeros_like(response_mask) if per_token else response_mask.new_zeros(len(answers))
    for start in range(0, len(answers), batch):
        part = slice(start, start + batch)
        body = {name: columns[name][part] for name in send}
        try:
            found = asked(endpoint, _encoded(body), retries, backoff)
        except Unanswered as failure:
            if on_failure == "stop":
                raise
            warnings.warn(f"{failure}; {len(answers[part])} responses score 0", stacklevel=2)
            continue
        if not isinstance(found, dict) or "scores" not in found:
            raise HttpError(f'{endpoint.place} returned no "scores": {in_short(found)}')
        found = found["scores"]
        if per_token:
            texts = response_tokens[part]  # of actions
            rows = _numbers(found, len(texts), endpoint.place, "lists")
            for i, (row, said) in enumerate(zip(rows, texts, strict=True), start):
                given = _numbers(row, len(said), endpoint.place, f"scores of response {i}")
                scores[i, response_mask[i].bool()] = torch.tensor(given).to(scores)
        else:
            scores[part] = torch.tensor(
                _numbers(found, len(answers[part]), endpoint.place, "scores")
            )
    return scores


class HttpError(Unfinished):
    """An invalid answer after the run had begun."""


class Unanswered(HttpError):
    """No attempt was answered."""


def asked(endpoint: Endpoint, body: bytes, retries: int, backoff: float) -> Any:
    """The JSON of an answer, of the first attempt or a later one; raises Unanswered."""
    for attempt in range(retries + 1):
        if attempt:
            pause(backoff * 2 ** (attempt - 1))
        try:
            return endpoint.ask(body=body)
        except Later as later:
            reason = later
    tries = f"{retries + 1} attempts" if retries else "one attempt"
    raise Unanswered(f"{endpoint.place} did not answer after {tries} ({reason})")


def _numbers(found: Any, n: int, place: str, what: str) -> list:
    """`found` as a list of n finite numbers, or of n lists."""
    if not isinstance(found, list) or len(found) != n:
        got = f"{len(found)}" if isinstance(found, list) else type(found).__name__
        raise HttpError(f"{place} must return {n} {what}. Got {got}")
    kind = list if what == "lists" else (int, float)
    for i, x in enumerate(found):
        right = isinstance(x, kind) and not isinstance(x, bool)
        if not right or (kind is not list and not abs(x) <= LARGEST):
            raise HttpError(f"{place}: item {i} of the {what} is {x!r}")
    return found


def _encoded(body: dict[str, list]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise RlzooError(f"the request cannot be written as JSON: {error}") from None
