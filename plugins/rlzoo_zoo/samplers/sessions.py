"""Sampling by agents, which play episodes with the policy over HTTP."""

import ipaddress
import json
import math
import time
from typing import Annotated, Any

import torch

from rlzoo import Range, RlzooError, hookimpl, secret
from rlzoo.ops import at_last_action
from rlzoo_zoo.samplers.session_server import Job, Refused, Server, Session, message
from rlzoo_zoo.tasks.tools import JSON_CALL, UNREADABLE, read_json

MARK = "rlzoo:reply"  # in place of the policy's text, to find what a template writes after it
TICK = 0.2  # seconds between looks at the clock
GATHER = 0.005  # seconds in which further requests join a batch

SERVERS: dict[tuple[str, int], Server] = {}


def sessions(
    sample,
    policy,
    tokenizer,
    prompt_ids,
    prompt_mask,
    prompts,
    messages,
    answers,
    prompt_index,
    uniforms,
    *,
    inner: str = "transformers",
    host: Annotated[str, "address to listen on"] = "127.0.0.1",
    port: Annotated[int, Range(0, 65535)] = 8011,
    token_from: Annotated[str, "environment variable with the agents' token"] = "RLZOO_TOKEN",
    idle: Annotated[
        float,
        Range(0, closed="neither"),
        "seconds without a request after which a session is dropped",
    ] = 120.0,
    patience: Annotated[
        float, Range(0, closed="neither"), "seconds without a turn after which the run stops"
    ] = 600.0,
):
    """Rows played by agents (B, T): the policy is an OpenAI-compatible chat endpoint, and each row
    of the batch is a session with it.

    An agent posts to /v1/sessions and gets an id and the prompt's messages, answer and index. Its
    base URL is then /v1/sessions/ID, where /chat/completions accepts messages and returns the reply
    with `token_ids` and log-probabilities. A client with a fixed address posts to
    /v1/chat/completions with ID as the model. For a request with `tools`, JSON within <tool_call>
    tags is returned as `tool_calls`. Each request repeats the messages so far and adds to them: the
    row keeps the policy's own tokens, and only new messages are tokenized, with mask 0. A POST of
    `{"reward": 1.0}` to /v1/sessions/ID/reward ends the session; the reward replaces the score of
    the task, and `null` leaves it. Sampling follows the recipe, not the request, except for
    `max_tokens`. A row has at most `rollout.max_new_tokens` tokens of both speakers. A session
    whose agent is silent for `idle` seconds is dropped, and its row becomes available again; after
    `patience` seconds without a turn, the run stops at its last checkpoint. A token is a function
    of seed, step, row and position, whatever the order of requests, so the same agent gives the
    same run, up to rounding. It supports only one process. Evaluations do not use sessions: they
    use the task, whose own `respond` answers the policy's turns.
    Source: OpenAI's chat completions API, with vLLM's token ids.
    """
    server = listening(host, port, token_from)
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(prompt_ids, prompt_mask, strict=True)]
    opened = [
        Session(i, row, {"messages": m, "prompt": p, "answer": a, "index": int(n)})
        for i, (row, m, p, a, n) in enumerate(
            zip(rows, messages, prompts, answers, prompt_index, strict=True)
        )
    ]
    table = Table(sample, policy, tokenizer, uniforms)
    desk = server.desk
    desk.open(opened)
    seen = time.monotonic()
    try:
        while not desk.finished():
            jobs = desk.take(TICK)
            if jobs:
                time.sleep(GATHER)
                if table.answer(jobs + desk.take(0)):
                    seen = time.monotonic()
            desk.expire(idle, lambda s: Session(s.row, s.prompt, s.about))
            if time.monotonic() - seen > patience:
                raise RlzooError(
                    f"sampler sessions: no agent took a turn at {host}:{server.server_port} for "
                    f"{patience:g} s; use `rlzoo resume` to continue from the last checkpoint"
                )
    finally:
        found = desk.close()
    return columns(sorted(found, key=lambda s: s.row), policy)


class Table:
    """The policy's side of the sessions: from messages to tokens, and back."""

    def __init__(self, sample, policy, tokenizer, uniforms):
        self.sample, self.policy, self.tokenizer = sample, policy, tokenizer
        self.limit, self.uniforms = sample.max_new_tokens, uniforms

    def answer(self, jobs: list[Job]) -> int:
        """Answer requests for completions, all in one batch; how many got a reply."""
        ready: list[tuple[Job, list[int], int]] = []
        for job in jobs:
            try:
                ready.append((job, *self.heard(job.session, job.body)))
            except Refused as refused:
                job.finish(refused)
        try:
            self.draw(ready)
        finally:
            for job, _, _ in ready:
                if job.answer is None:
                    job.finish(Refused(500, "the run ends", "server_error"))
        return len(ready)

    def draw(self, ready: list[tuple[Job, list[int], int]]) -> None:
        """The replies to some requests, with what they add and how many tokens they may have."""
        if not ready:
            return
        contexts = [job.session.prompt + job.session.ids + new for job, new, _ in ready]
        width = max(map(len, contexts))
        pad, device = self.policy.pad_id, self.policy.device
        ids = torch.tensor([[pad] * (width - len(c)) + c for c in contexts], device=device)
        lengths = torch.tensor([len(c) for c in contexts], device=device)[:, None]
        mask = (torch.arange(width, device=device) >= width - lengths).float()
        most = max(most for _, _, most in ready)
        rows = torch.tensor([job.session.row for job, _, _ in ready], device=device)
        at = torch.tensor([len(job.session.ids) + len(new) for job, new, _ in ready], device=device)
        place = (at[:, None] + torch.arange(most, device=device)).clamp(max=self.limit - 1)
        noise = self.uniforms[rows].gather(1, place)
        drawn = self.sample(ids, mask, max_new_tokens=most, rows=rows, uniforms=noise)
        replies = drawn["response_ids"].tolist()
        counts = drawn["response_mask"].sum(1).long().tolist()
        log_probs = drawn["sampler_log_probs"].tolist()
        for (job, new, most), reply, n, lp in zip(ready, replies, counts, log_probs, strict=True):
            n = self.end_of_turn(reply[: min(n, most)])
            job.finish(self.replied(job, new, reply[:n], lp[:n]))

    def end_of_turn(self, ids: list[int]) -> int:
        """How many of the tokens there are up to the one that completes a stop of the task."""
        for n in range(1, len(ids) if self.policy.stops else 0):
            if self.stopped(ids[:n]):
                return n
        return len(ids)

    def stopped(self, ids: list[int]) -> bool:
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        return any(stop in text for stop in self.policy.stops)

    def heard(self, session: Session, body: dict[str, Any]) -> tuple[list[int], int]:
        """The tokens that a request adds to its session, and how many the reply may have."""
        new = self.new_tokens(session, body)
        room = left = self.limit - len(session.ids) - len(new)
        if self.policy.limit:
            room = min(
                room, self.policy.limit[0] - len(session.prompt) - len(session.ids) - len(new)
            )
        if session.full or room < 1:
            if session.turns and not session.full:  # as a conversation's row: full, in an answer
                self.note(session, new[: len(new) + left])
            session.full = True
            raise Refused(400, f"the session has used its {self.limit} tokens; post its reward",
                          "context_length_exceeded")  # fmt: skip
        return new, min(room, body["most"] or room)

    def new_tokens(self, session: Session, body: dict[str, Any]) -> list[int]:
        messages, known = body["messages"], session.messages
        if not known:
            ids = self.encode(self.rendered(messages, body["tools"]))
            start = session.prompt
            return ids[len(start) :] if ids[: len(start)] == start else ids
        if messages[: len(known)] != known or len(messages) == len(known):
            raise Refused(
                409, "a session's messages are append-only; repeat those so far, then add new ones"
            )
        return self.encode(self.between(session, messages[len(known) :]))

    def rendered(self, messages, tools=None) -> str:
        if not self.tokenizer.chat_template:
            return "".join(m["content"] for m in messages)
        from jinja2.exceptions import TemplateError

        try:
            return self.tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError, RecursionError) as error:
            raise Refused(400, f"the chat template does not accept the messages: {error}") from None

    def between(self, session: Session, new) -> str:
        """The template's text after the policy's turn, up to its next one."""
        if not self.tokenizer.chat_template:
            return "".join(m["content"] for m in new)
        opening = [{"role": "user", "content": "-"}, {"role": "assistant", "content": MARK}]
        _, found, text = self.rendered([*opening, *new]).partition(MARK)
        if not found:
            raise Refused(400, "the chat template omits the policy's text")
        if session.ids[-1] in self.policy.eos_ids:
            for i in self.policy.eos_ids:
                eos = self.tokenizer.convert_ids_to_tokens(i)
                if text.startswith(eos):
                    return text.removeprefix(eos)
        return text

    def encode(self, text: str) -> list[int]:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
        unknown = self.tokenizer.unk_token_id
        if unknown is not None and unknown in ids:
            raise Refused(400, "the tokenizer has no token for a character of the messages")
        return ids

    def note(self, session: Session, new: list[int]) -> None:
        """Add messages of others to a session's row."""
        if session.turns:
            session.turns.append(self.tokenizer.decode(new, skip_special_tokens=False))
        session.ids += new
        session.turn_ids += [0] * len(new)
        session.log_probs += [0.0] * len(new)

    def replied(self, job: Job, new: list[int], reply: list[int], log_probs: list[float]):
        """Note a turn in its session; the answer to its request."""
        session, body = job.session, job.body
        self.note(session, new)
        turn = max(session.turn_ids, default=0) + 1
        before = len(session.prompt) + len(session.ids)
        session.ids += reply
        session.turn_ids += [turn] * len(reply)
        session.log_probs += log_probs
        eos = reply[-1] in self.policy.eos_ids
        ended = eos or self.stopped(reply)
        text = self.tokenizer.decode(reply[:-1] if eos else reply, skip_special_tokens=False)
        session.turns.append(text)
        session.full = not ended and len(session.ids) >= self.limit
        said = {"role": "assistant", "content": text}
        if body["tools"]:
            said |= called(text, f"{session.id}-{turn}")
        session.messages = [*body["messages"], message(said)]
        told = [
            {"token": self.tokenizer.decode([i]), "logprob": lp, "bytes": None, "top_logprobs": []}
            for i, lp in zip(reply, log_probs, strict=True)
        ]
        finished = "stop" if ended else "length"
        choice = {
            "index": 0,
            "message": said,
            "finish_reason": "tool_calls" if "tool_calls" in said else finished,
            "logprobs": {"content": told},
            "token_ids": reply,
        }
        usage = {"prompt_tokens": before, "completion_tokens": len(reply)}
        answer = {
            "id": f"{session.id}-{turn}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": "policy",
            "choices": [choice],
            "prompt_token_ids": (session.prompt + session.ids)[:before],
            "usage": usage | {"total_tokens": before + len(reply)},
        }
        session.last = (body["messages"], answer)
        return answer


def called(text: str, name: str) -> dict[str, Any]:
    """The fields of a reply with `<tool_call>`s, which have ids that begin with `name`; none where
    it has no call, or one that cannot be read."""
    try:
        calls = [read_json(call) for call in JSON_CALL.findall(text)]
    except UNREADABLE:
        return {}
    if not calls:
        return {}
    functions = [{"name": c.name, "arguments": json.dumps(c.named)} for c in calls]
    return {
        "content": text.partition("<tool_call>")[0] or None,
        "tool_calls": [
            {"id": f"{name}-{i}", "type": "function", "function": function}
            for i, function in enumerate(functions)
        ],
    }


def columns(found: list[Session], policy) -> dict[str, Any]:
    """The rollout's columns of finished sessions."""
    width = max(len(s.ids) for s in found)

    def padded(lists, pad):
        return torch.tensor([x + [pad] * (width - len(x)) for x in lists], device=policy.device)

    turn_ids = padded([s.turn_ids for s in found], 0)
    mask = (turn_ids > 0).float()
    full = torch.tensor([s.full for s in found], device=policy.device)
    posted = [math.nan if s.reward is None else s.reward for s in found]  # NaN: the task scores
    rewards = torch.tensor(posted, device=policy.device)
    by_task = rewards.isnan()[:, None]
    return {
        "response_ids": padded([s.ids for s in found], policy.pad_id),
        "response_mask": mask,
        "response_attention": padded([[1.0] * len(s.ids) for s in found], 0.0),
        "sampler_log_probs": padded([s.log_probs for s in found], 0.0),
        "turn_ids": turn_ids,
        "terminated": ~full,
        "truncated": full,
        "responses": ["".join(s.turns) for s in found],
        "turns": [s.turns for s in found],
        "task_scores": at_last_action(rewards.nan_to_num(), mask).masked_fill(by_task, math.nan),
    }


def listening(host: str, port: int, token_from: str) -> Server:
    """The server of this process at an address; it starts with the first batch."""
    if (host, port) not in SERVERS:
        try:
            SERVERS[host, port] = Server(host, port, secret(token_from))
        except OSError as error:
            raise RlzooError(
                f"sampler sessions: cannot listen on {host}:{port}: {error.strerror}"
            ) from None
    return SERVERS[host, port]


def check(*, host, token_from, **_):
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"host must be an address such as 127.0.0.1. Got {host!r}") from None
    if len(secret(token_from)) < 16:
        raise ValueError(f"token_from: the token in {token_from} must have at least 16 characters")


@hookimpl
def register_samplers(register):
    register(sessions, check=check)
