"""A reward over HTTP: your own endpoint scores the responses."""

import json
import urllib.parse
import warnings
from http.client import HTTPException
from typing import Annotated, Any, Literal

import torch

from rlzoo import Range, RlzooError, component, secret
from rlzoo.errors import Unfinished, nearest
from rlzoo.waiting import pause
from rlzoo_zoo.request import request

FIELDS = ("prompts", "responses", "response_tokens", "answers")
MOST = 2**26  # bytes of an answer
LARGEST = 3e38  # of a float32; no comparison with NaN holds
SEND = ["prompts", "responses"]


def check(*, url, send, headers_from, per_token, **_):
    place = urllib.parse.urlsplit(url)
    if not url:
        raise RlzooError("url is missing")
    if place.scheme not in ("http", "https") or not place.hostname:
        raise ValueError(f"url must begin with http:// or https:// and name a host. Got {url!r}")
    if place.username or place.password:
        raise ValueError("url: secrets do not belong in a recipe; use headers_from")
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
    timeout: Annotated[float, Range(0, closed="neither"), "timeout of a request in seconds"] = 30.0,
    retries: Annotated[int, Range(0), "number of further attempts"] = 3,
    backoff: Annotated[
        float, Range(0), "seconds before the second attempt; doubles after each attempt"
    ] = 1.0,
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
    do not belong in recipes: `headers_from` names an environment variable for them, which the
    command line must allow with `--allow-env NAME`. A run is deterministic only if the endpoint is.
    Source: the user.
    """
    check(url=url, send=send, headers_from=headers_from, per_token=per_token)
    columns = dict(zip(FIELDS, (prompts, responses, response_tokens, answers), strict=True))
    post = _Endpoint(url, headers(headers_from), timeout, retries, backoff)
    scores = torch.zeros_like(response_mask) if per_token else response_mask.new_zeros(len(answers))
    for start in range(0, len(answers), batch):
        part = slice(start, start + batch)
        body = {name: columns[name][part] for name in send}
        try:
            found = post(_encoded(body))
        except Unanswered as failure:
            if on_failure == "stop":
                raise
            warnings.warn(f"{failure}; {len(answers[part])} responses score 0", stacklevel=2)
            continue
        if per_token:
            texts = response_tokens[part]  # of actions
            rows = _numbers(found, len(texts), post.place, "lists")
            for i, (row, said) in enumerate(zip(rows, texts, strict=True), start):
                given = _numbers(row, len(said), post.place, f"scores of response {i}")
                scores[i, response_mask[i].bool()] = torch.tensor(given).to(scores)
        else:
            scores[part] = torch.tensor(_numbers(found, len(answers[part]), post.place, "scores"))
    return scores


class HttpError(Unfinished):
    """An invalid answer after the run had begun."""


class Unanswered(HttpError):
    """No attempt was answered."""


class _Endpoint:
    """post(body) -> the `scores` of the answer, as they came."""

    def __init__(self, url, headers, timeout, retries, backoff):
        parts = urllib.parse.urlsplit(url)
        self.place = f"{parts.scheme}://{parts.netloc}"  # a path may hold a secret
        self.url, self.timeout, self.retries, self.backoff = url, timeout, retries, backoff
        self.headers = {"Content-Type": "application/json", **headers}

    def __call__(self, body: bytes) -> Any:
        for attempt in range(self.retries + 1):
            if attempt:
                pause(self.backoff * 2 ** (attempt - 1))
            try:
                answer = request(self.url, body, self.headers, seconds=self.timeout, most=MOST)
            except (OSError, HTTPException) as error:  # refused, reset, timed out, no such host
                reason = str(getattr(error, "reason", error)) or type(error).__name__
                continue
            if len(answer.body) > MOST:
                raise HttpError(f"{self.place} sent more than {MOST // 2**20} MiB")
            if 200 <= answer.status < 300:
                return self.scores(answer.body)
            reason = f"status {answer.status}"
            if answer.status not in (408, 429) and answer.status < 500:
                raise HttpError(f"{self.place} answered with {reason}")
        tries = f"{self.retries + 1} attempts" if self.retries else "one attempt"
        raise Unanswered(f"{self.place} did not answer after {tries} ({reason})")

    def scores(self, text: bytes) -> Any:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise HttpError(f"{self.place} did not return JSON: {text[:60]!r}") from None
        if not isinstance(found, dict) or "scores" not in found:
            raise HttpError(f'{self.place} returned no "scores": {text[:60]!r}')
        return found["scores"]


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


def headers(variable: str) -> dict[str, str]:
    """The headers in an environment variable; what is wrong is named without its value."""
    if not variable:
        return {}
    try:
        text = secret(variable)
    except RlzooError as error:
        raise RlzooError(f"headers_from: {variable}: {error}") from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if line.strip():
            if not colon or not name.strip():
                raise ValueError(
                    f"headers_from: line {number} of {variable!r} is not of the form 'Name: value'"
                )
            found[name.strip()] = value.strip()
    return found
