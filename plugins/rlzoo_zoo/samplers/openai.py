"""Sampling by a server with OpenAI's completions API and token ids, such as `vllm serve`."""

import json
import tempfile
import threading
import time
import warnings
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Annotated, Any

from rlzoo import Range, RlzooError, component
from rlzoo.errors import Unfinished
from rlzoo.waiting import pause
from rlzoo_zoo.request import Endpoint, Later, check_url, headers
from rlzoo_zoo.samplers import elsewhere

FIRST, LONGEST = 0.5, 30.0  # seconds waited before a server is tried again: doubled from, up to
FRESH = 5.0  # seconds in which no server dies, starts again and loads a model
FOLDER = "{folder}"
VLLM = [
    '/collective_rpc {"method": "reload_weights", "kwargs": {"weights_path": "{folder}"}}',
    "/reset_prefix_cache",
]
PLAIN = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_p": 0.0}

SERVERS: dict = {}  # (url, headers_from, folder, timeout) -> what is known of it


def check(*, url, reload, folder, headers_from, **_):
    check_url(url)
    if url.rstrip("/").endswith("/v1"):
        raise ValueError(f"url must be that of the server, without /v1. Got {url!r}")
    for call in reload:
        _read(call)
    if folder and not Path(folder).is_dir():
        raise ValueError(f"folder: there is no folder {folder!r}")
    headers(headers_from)


@component("sampler", check=check, caution=elsewhere.OFF_POLICY)
def openai(
    policy,
    prompt_ids,
    prompt_mask,
    uniforms,
    *,
    url: Annotated[str, "URL of the server, without /v1"] = "http://127.0.0.1:8000",
    model: Annotated[str, "its name on the server; empty: the only one there"] = "",
    reload: Annotated[
        list[str],
        "calls that make the server load {folder}, each a path and JSON; []: it keeps its weights",
    ] = VLLM,
    folder: Annotated[str, "folder for the weights; empty: a temporary one"] = "",
    requests: Annotated[int, Range(1), "maximum number of concurrent requests"] = 64,
    timeout: Annotated[float, Range(0, closed="neither"), "seconds for a request"] = 600.0,
    patience: Annotated[float, Range(0), "seconds for a server that is away or full"] = 120.0,
    headers_from: Annotated[str, "an environment variable with lines 'Name: value'"] = "",
):
    """Responses to prompts (B, P) of at most T tokens from an HTTP server, with its
    `sampler_log_probs` (B, T').

    It first writes the weights, `model.safetensors` and `config.json`, to a new folder below
    `folder`, which the server must see under the same path, and sends a POST for each call in
    `reload`; the default works with vLLM started with VLLM_SERVER_DEV_MODE=1. It then sends a POST
    to /v1/completions for each row with token ids, `return_token_ids`, `logprobs`, and a seed from
    the row's first uniform number. Refused and broken connections, timeouts, aborted responses and
    the statuses 408, 429 and 5xx are retried after growing waits, or after Retry-After; after a
    429, with half as many concurrent requests. A server that did not answer may have restarted, so
    it first gets the weights again. After `patience` seconds without an answer, the run stops with
    its last checkpoint intact. Any other invalid answer is an immediate error. Secrets belong in
    the variable of `headers_from`, which `--allow-env NAME` must allow. `old_log_probs` come from
    the policy; correction=tis, icepop or rejection accounts for the difference. A resumed run gives
    the same numbers if the server samples the same tokens for the same seed.
    Source: OpenAI's completions API, with vLLM's `return_token_ids`.
    """
    key = (url, headers_from, folder, timeout)
    if key not in SERVERS:
        SERVERS[key] = Server(url, headers(headers_from), folder, timeout)
    rows, settings = elsewhere.asked(policy, prompt_ids, prompt_mask, uniforms)
    more = {**PLAIN, "return_token_ids": True, **({"model": model} if model else {})}
    asks = [{**one, **more, "prompt": row} for row, one in zip(rows, settings, strict=True)]
    found = SERVERS[key].draw(policy, asks, reload, requests, patience)
    try:
        return elsewhere.columns(policy, found, uniforms)
    except RlzooError as error:
        raise ServerError(f"{SERVERS[key].place}: {error}") from None


class ServerError(Unfinished):
    """An invalid answer, or none, after the run had begun."""

    def __init__(self, text):
        super().__init__(f"sampler openai: {text}")


class Server(Endpoint):
    """A server and the folder that its weights are read from."""

    def __init__(self, url, headers, folder, timeout):
        super().__init__(url.rstrip("/"), headers, timeout, ServerError)
        self.folder = tempfile.TemporaryDirectory(prefix="rlzoo-weights-", dir=folder or None)
        self.weights: Any = None  # the fingerprint of those that it has, and since when
        self.seen = 0.0
        self.name = ""

    def draw(self, policy, asks, reload, requests, patience):
        """(tokens, log-probabilities, cut for length) of each; raises ServerError."""
        now = elsewhere.fingerprint(policy)
        found: dict[int, Any] = {}
        waits = _Waits(self.place, patience)
        while len(found) < len(asks):
            try:
                if reload and (self.weights != now or time.monotonic() - self.seen > FRESH):
                    self.hand_over(policy, reload)
                    self.weights, self.seen = now, time.monotonic()
                if not self.name:
                    self.name = asks[0].get("model") or self.served()
                left = [i for i in range(len(asks)) if i not in found]
                self.round(asks, left, requests, found, waits)
                self.seen = time.monotonic()
            except Later as later:
                if later.full:
                    requests, self.seen = max(1, requests // 2), time.monotonic()
                else:
                    self.weights = None
                waits.after(later)
        return [found[i] for i in range(len(asks))]

    def hand_over(self, policy, reload):
        """Put the weights into the folder and have the server load them."""
        from safetensors.torch import save_file

        place = Path(self.folder.name)
        whole = {name: x.contiguous() for name, x in elsewhere.weights(policy).items()}
        save_file(whole, place / "model.safetensors", metadata={"format": "pt"})
        policy.model.config.save_pretrained(place)
        for call in reload:
            path, body = _read(call)
            hint = " (see sampler.reload; vLLM requires VLLM_SERVER_DEV_MODE=1)"
            self.ask(path, json.dumps(_filled(body, str(place))).encode(), hint)

    def served(self):
        """The name of the one model that is served."""
        answer = self.ask("/v1/models")
        try:
            names = [str(one["id"]) for one in answer["data"]]
        except (TypeError, LookupError):
            raise ServerError(f"{self.place}/v1/models lists no models") from None
        if len(names) != 1:
            raise ServerError(
                f"{self.place} serves {', '.join(names) or 'nothing'}; choose one with "
                "sampler.model"
            )
        return names[0]

    def round(self, asks, left, requests, found, waits):
        """Request all of `left`, `requests` at a time. Raises Later once one must be sent
        again, when those under way have ended; what was answered is `found`."""
        trouble = threading.Event()

        def attempt(i):
            if trouble.is_set():
                return i, None
            try:
                return i, self.completion(asks[i])
            except Later as later:
                trouble.set()
                return i, later
            except ServerError:
                trouble.set()
                raise

        faults = []
        with ThreadPool(min(requests, len(left))) as pool:  # its threads hold nothing up at the end
            for i, answer in pool.imap_unordered(attempt, left):
                if isinstance(answer, Later):
                    faults.append(answer)
                elif answer is not None:
                    found[i] = answer
                    waits.answered()
        if faults:  # one that is away counts for more than one that is full
            raise min(faults, key=lambda later: later.full)

    def completion(self, ask):
        answer = self.ask("/v1/completions", json.dumps({"model": self.name, **ask}).encode())
        try:
            (choice,) = answer["choices"]
            ended = choice.get("finish_reason")
            if ended not in ("stop", "length"):  # a server that is shutting down answers so
                raise Later(f"a response ended with {ended!r}")
            tokens, said = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        except (TypeError, LookupError, ValueError, AttributeError):
            tokens, said, ended = None, None, None
        if not _numbers(tokens, int) or not _numbers(said, (int, float)):
            raise ServerError(
                f"{self.place} does not return token ids and log-probabilities; it must support "
                "return_token_ids and logprobs, as vLLM does from 0.11"
            )
        return tokens, said, ended == "length"


class _Waits:
    """Growing waits while there is no answer, for `patience` seconds in all."""

    def __init__(self, place, patience):
        self.place, self.patience = place, patience
        self.answered()

    def answered(self):
        self.began, self.next = None, FIRST

    def after(self, later):
        """Wait; raises ServerError where that would be for too long."""
        now = time.monotonic()
        seconds = max(self.next, later.seconds)
        if self.began is None:
            self.began = now
            if not later.full:
                warnings.warn(
                    f"sampler openai: {self.place} did not answer ({later}); retrying for "
                    f"{self.patience:g} s",
                    stacklevel=2,
                )
        left = self.began + self.patience - now
        if left <= 0 or later.seconds > left:
            raise ServerError(
                f"{self.place} did not answer for {self.patience:g} s ({later}); restart the "
                "server, then use `rlzoo resume` to continue from the last checkpoint"
            ) from None
        pause(min(seconds, left))
        self.next = min(2 * self.next, LONGEST)


def _read(call: str) -> tuple[str, Any]:
    """(path, body) of a call of `reload`; raises ValueError."""
    path, _, body = call.partition(" ")
    if not path.startswith("/"):
        raise ValueError(
            f"reload: a call must be a path that begins with /, a space and JSON. Got {call!r}"
        )
    try:
        return path, json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise ValueError(f"reload: there is no JSON after the path in {call!r}") from None


def _filled(body: Any, folder: str) -> Any:
    """A body with the folder in place of its mark."""
    if isinstance(body, dict):
        return {name: _filled(x, folder) for name, x in body.items()}
    if isinstance(body, list):
        return [_filled(x, folder) for x in body]
    return body.replace(FOLDER, folder) if isinstance(body, str) else body


def _numbers(found: Any, kind: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(x, kind) and not isinstance(x, bool) for x in found
    )
