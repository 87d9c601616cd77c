"""Sampling by agents, which play episodes with the policy over HTTP."""

import ipaddress
import json
import math
import time
import warnings
from typing import Annotated, Any, NamedTuple

import torch

from rlzoo import Range, RlzooError, component, secret
from rlzoo.errors import Unfinished, first_line
from rlzoo.ops import at_last_action
from rlzoo.waiting import pause
from rlzoo_zoo.packages import needs
from rlzoo_zoo.samplers.session_requests import Refused, gist, message, unread
from rlzoo_zoo.samplers.session_server import Job, Server, Session
from rlzoo_zoo.tasks.tools import JSON_CALL, UNREADABLE, read_json

USED = "the session has used its tokens; post its reward"
LONG = "context_length_exceeded"
# Errors of a template that does not expect the messages; jinja has its own too.
OF_TEMPLATES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
TICK = 0.2  # seconds between looks at the clock
GATHER = 0.005  # seconds in which further requests join a batch

SERVERS: dict[tuple[str, int], Server] = {}


def check(*, host, token_from, **_):
    needs("uvicorn", "lab")()
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ValueError(f"host must be an address such as 127.0.0.1. Got {host!r}") from None
    if len(secret(token_from)) < 16:
        raise ValueError(f"token_from: the token in {token_from} must have at least 16 characters")


@component("sampler", check=check)
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
    idle: Annotated[float, Range(0, closed="neither"), "seconds of a silent session"] = 120.0,
    patience: Annotated[float, Range(0, closed="neither"), "seconds without a turn"] = 600.0,
    max_prompt: Annotated[int, Range(1), "maximum tokens of a first request"] = 16384,
):
    """Rows played by agents (B, T): the policy is an OpenAI-compatible chat endpoint, and each row
    of the batch is a session with it.

    An agent posts to /v1/sessions and gets an id and the prompt's messages, answer and index. Its
    base URL is then /v1/sessions/ID, where /chat/completions accepts messages and returns the reply
    with `token_ids` and log-probabilities. A client with a fixed address posts to
    /v1/chat/completions with ID as the model. For a request with `tools`, JSON within <tool_call>
    tags is returned as `tool_calls`. The first request, as the chat template writes it with the
    recipe's `model.system`, is the row's prompt. Each later one repeats the messages so far and
    adds to them: the row keeps the policy's own tokens, and only new messages are tokenized, with
    mask 0. A template that changes earlier turns is refused there. A POST of `{"reward": 1.0}` to
    /v1/sessions/ID/reward ends the session; the reward replaces the score of the task, and `null`
    leaves it. Sampling follows the recipe: a request may limit `max_tokens`, and other settings
    than the recipe's are refused. After its prompt, a row has at most `rollout.max_new_tokens`
    tokens of both speakers. A session whose agent is silent for `idle` seconds is dropped, and its
    row becomes available again; after `patience` seconds without a turn, the run stops with a
    checkpoint. A token is a function of seed, step, row and position, whatever the order of
    requests, so the same agent gives the same run, up to rounding. It supports only one process.
    Evaluations do not use sessions: they use the task, whose own `respond` answers the policy's
    turns.
    Source: OpenAI's chat completions API, with vLLM's token ids.
    """
    server = listening(host, port, token_from)
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(prompt_ids, prompt_mask, strict=True)]
    told = [
        {"messages": m, "prompt": p, "answer": a, "index": int(n)}
        for m, p, a, n in zip(messages, prompts, answers, prompt_index, strict=True)
    ]

    def new(row: int) -> Session:
        return Session(row, rows[row], told[row])

    table = Table(sample, policy, tokenizer, uniforms, max_prompt)
    desk = server.desk
    may_have = {  # the sampling settings that a request may repeat
        "temperature": (policy.temperature,),
        "top_p": (policy.top_p,),
        "top_k": (policy.top_k,) if policy.top_k else (0, -1),
    }
    desk.open([new(row) for row in range(len(rows))], may_have)
    seen = time.monotonic()
    try:
        while not desk.finished():
            jobs = desk.take(TICK)
            if jobs:
                time.sleep(GATHER)
                if table.answer(jobs + desk.take(0)):
                    seen = time.monotonic()
            desk.expire(idle, lambda s: new(s.row))
            if not desk.finished():
                pause(0)
            if time.monotonic() - seen > patience:
                raise Unfinished(
                    f"sampler sessions: no agent took a turn at {host}:{server.port} for "
                    f"{patience:g} s; use `rlzoo resume` to continue from the last checkpoint"
                )
    finally:
        found = desk.close()
    return columns(sorted(found, key=lambda s: s.row), policy)


def rewritten(form, tokenizer) -> str:
    """What the chat template writes in another way in a later request: `replies`, or those with
    `reasoning`; empty if neither, or if it does not accept such a conversation."""
    from jinja2.exceptions import TemplateError

    def text(*messages):
        said = form.messages([{"role": r, "content": c} for r, c in messages])
        return tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)

    user = ("user", "-")
    try:
        for kind, reply in {"replies": "a1", "reasoning": "<think>\na1\n</think>\n\na1"}.items():
            if not text(user, ("assistant", reply), user).startswith(text(user) + reply):
                return kind
    except (TemplateError, *OF_TEMPLATES):
        pass
    return ""


class Heard(NamedTuple):
    """A request's part of its session."""

    new: list[int]  # tokens before the reply
    most: int  # tokens that the reply may have
    shown: str  # the conversation up to the reply
    said: list[dict[str, Any]]  # its messages, with the policy's replies as it wrote them


class Table:
    """The policy's side of the sessions: from messages to tokens, and back."""

    def __init__(self, sample, policy, tokenizer, uniforms, max_prompt):
        self.sample, self.policy, self.tokenizer = sample, policy, tokenizer
        self.max_prompt = max_prompt
        self.limit, self.uniforms = sample.max_new_tokens, uniforms
        self.form = sample.prompt_format
        self.chat = bool(tokenizer.chat_template) and self.form.chat != "never"
        end = self.form.end_of_turn if self.chat else None
        self.ends = {*policy.eos_ids, *([] if end is None else [end])}
        if self.chat and (kind := rewritten(self.form, tokenizer)):
            warnings.warn(
                f"sampler sessions: the chat template writes {kind} in another way in the next "
                "request, which is then refused (409): sessions may end after one reply",
                stacklevel=2,
            )

    def answer(self, jobs: list[Job]) -> int:
        """Answer requests for completions, all in one batch; how many got a reply."""
        ready: list[tuple[Job, Heard]] = []
        for job in jobs:
            try:
                ready.append((job, self.heard(job.session, job.body)))
            except Refused as refused:
                job.finish(refused)
        try:
            self.draw(ready)
        finally:
            for job, _ in ready:
                if not job.answer.done():
                    job.finish(Refused(500, "the run ends", "server_error"))
        return len(ready)

    def draw(self, ready: list[tuple[Job, Heard]]) -> None:
        """The replies to some requests."""
        if not ready:
            return
        contexts = [before(job.session) + h.new for job, h in ready]
        prompts = [job.session.prompt if job.session.turns else h.new for job, h in ready]
        at = [len(c) - len(prompt) for c, prompt in zip(contexts, prompts, strict=True)]
        ids, mask = left_padded(contexts, self.policy)
        most, device = max(h.most for _, h in ready), self.policy.device
        rows = torch.tensor([job.session.row for job, _ in ready], device=device)
        place = torch.tensor(at, device=device)[:, None] + torch.arange(most, device=device)
        noise = self.uniforms[rows].gather(1, place.clamp(max=self.limit - 1))
        drawn = self.sample(ids, mask, max_new_tokens=most, rows=rows, uniforms=noise)
        replies = drawn["response_ids"].tolist()
        counts = drawn["response_mask"].sum(1).long().tolist()
        log_probs = drawn["sampler_log_probs"].tolist()
        for (job, h), reply, n, lp in zip(ready, replies, counts, log_probs, strict=True):
            n = self.end_of_turn(reply[: min(n, h.most)])
            job.finish(self.replied(job, h, reply[:n], lp[:n]))

    def end_of_turn(self, ids: list[int]) -> int:
        """How many of the tokens there are up to the one that ends the turn."""
        for n in range(1, len(ids)):
            if ids[n - 1] in self.ends or (self.policy.stops and self.stopped(ids[:n])):
                return n
        return len(ids)

    def stopped(self, ids: list[int]) -> bool:
        text = self.text(ids)
        return any(stop in text for stop in self.policy.stops)

    def text(self, ids: list[int]) -> str:
        from rlzoo.lm import decoded  # here: it imports torch's models

        return decoded(self.tokenizer, [ids])[0]

    def heard(self, session: Session, body: dict[str, Any]) -> Heard:
        """Read a request for a completion; raises Refused."""
        if session.turns and session.full:
            raise Refused(400, USED, LONG)
        messages, known = body["messages"], session.messages
        if list(map(gist, messages[: len(known)])) != list(map(gist, known)) or (
            len(messages) == len(known)
        ):
            raise Refused(
                409, "repeat the session's messages so far, then add new ones; for another, or a "
                "shortened conversation, post the reward and begin a session"
            )  # fmt: skip
        said = [*session.said, *messages[len(known) :]]
        shown = self.rendered(session, said, body)
        new = self.encoded(session, shown)
        first = not session.turns
        room = self.limit if first else self.limit - len(session.ids) - len(new)
        if self.policy.limit:
            room = min(room, self.policy.limit[0] - len(before(session)) - len(new))
        if first and len(new) > self.max_prompt:
            room = min(room, self.max_prompt - len(new))
        if room < 1:
            session.full = True
            if first:
                most = len(new) + room
                raise Refused(400, f"the messages have {len(new)} tokens, of which {most} can be "
                                   "read; send shorter ones, or post the reward", LONG)  # fmt: skip
            self.note(session, new[: len(new) + room])  # as a conversation: full, in an answer
            raise Refused(400, USED, LONG)
        return Heard(new, min(room, body["most"] or room), shown, said)

    def rendered(self, session: Session, said, body: dict[str, Any]) -> str:
        """The conversation as text, up to the policy's next word."""
        template = self.tokenizer.get_chat_template(tools=body["tools"]) if self.chat else ""
        if (field := unread(said, template)) is not None:
            raise Refused(400, f"the chat template does not read {field[:60]} of a message")
        if not self.chat:
            if body["tools"] or any("tool_calls" in m for m in said):
                raise Refused(400, "tools need a chat template, and the tokenizer has none")
            if not session.turns and len(said) > 1:
                raise Refused(400, "without a chat template, a session begins with one message")
            return "".join(m["content"] for m in said)
        from jinja2.exceptions import TemplateError

        said = self.form.messages(said)  # with the recipe's system message
        how = {"continue_final_message": True} if body["goes_on"] else {}
        try:
            return self.tokenizer.apply_chat_template(
                said,
                tools=body["tools"],
                tokenize=False,
                add_generation_prompt=not body["goes_on"],
                **how,
            )
        except (TemplateError, *OF_TEMPLATES) as error:
            said = first_line(error)[:300]
            raise Refused(400, f"the chat template does not accept the messages: {said}") from None

    def encoded(self, session: Session, shown: str) -> list[int]:
        """The tokens of a conversation's text that its row does not have."""
        try:
            if not session.turns:
                return self.form.tokens(shown) if self.chat else self.form.encode(shown)
            return self.form.tokens(self.after_reply(session, shown), follows=True)
        except (RlzooError, TypeError, ValueError) as error:
            said = first_line(error).rpartition(": ")[2][:300]
            raise Refused(400, f"the messages cannot be tokenized: {said}") from None

    def after_reply(self, session: Session, shown: str) -> str:
        """The text after the policy's last reply, whose ends a template may strip. Raises Refused
        where what was there before is written in another way now."""
        rest, both = (
            shown[len(session.shown) :],
            {session.turns[-1], session.written or session.turns[-1]},
        )
        forms = [strip(x) for x in both for strip in (str, str.rstrip, str.lstrip, str.strip)]
        found = max((form for form in forms if rest.startswith(form)), key=len, default=None)
        if not shown.startswith(session.shown) or found is None:
            raise Refused(
                409, "the chat template writes the earlier messages in another way than before: "
                "keep the tools, or use a template that does not change earlier turns"
            )  # fmt: skip
        rest = rest[len(found) :]
        if self.chat and session.ids[-1] in self.ends:  # the policy has closed its turn itself
            for i in self.ends:
                if rest.lstrip().startswith(end := self.text([i])):
                    return rest.lstrip().removeprefix(end)
        return rest

    def note(self, session: Session, new: list[int]) -> None:
        """Add messages of others to a session's row."""
        session.turns.append(self.text(new))
        session.ids += new
        session.turn_ids += [0] * len(new)
        session.log_probs += [0.0] * len(new)

    def replied(self, job: Job, h: Heard, reply: list[int], log_probs: list[float]):
        """Note a turn in its session; the answer to its request."""
        session, body = job.session, job.body
        if session.turns:
            self.note(session, h.new)
        else:
            read = [{**m, "content": m["content"] or ""} for m in body["messages"]]
            read = self.form.messages(read) if self.chat else read
            session.prompt = h.new
            session.about = {**session.about, "prompt": h.shown, "messages": read}
        turn = max(session.turn_ids, default=0) + 1
        before = len(session.prompt) + len(session.ids)
        session.ids += reply
        session.turn_ids += [turn] * len(reply)
        session.log_probs += log_probs
        eos = reply[-1] in self.ends
        ended = eos or self.stopped(reply)
        words = reply[:-1] if eos else reply
        text = self.text(words)
        last = session.prompt[-1:] if turn == 1 else session.ids[-len(reply) - 1 : -len(reply)]
        start, whole = map(self.text, (last, last + words))
        session.written = whole.removeprefix(start)  # with a space that a text cannot begin with
        session.turns.append(text)
        session.full = not ended and len(session.ids) >= self.limit
        said = {"role": "assistant", "content": text}
        if body["tools"]:
            said |= called(text, f"{session.id}-{turn}")
        session.shown = h.shown
        session.said = grown(h.said, {"role": "assistant", "content": text}, body["goes_on"])
        session.messages = grown(body["messages"], message(said), body["goes_on"])
        told: list[dict[str, Any]] = [
            {"token": self.text([i]), "logprob": lp, "bytes": None, "top_logprobs": []}
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


def grown(messages, reply: dict[str, Any], goes_on: bool) -> list[dict[str, Any]]:
    """Messages with the policy's reply, which may continue the last."""
    if not goes_on:
        return [*messages, reply]
    *rest, last = messages
    return [*rest, {**last, **reply, "content": last["content"] + (reply["content"] or "")}]


def before(session: Session) -> list[int]:
    """The tokens of a session so far: none before the first reply."""
    return session.prompt + session.ids if session.turns else []


def left_padded(rows: list[list[int]], policy) -> tuple[Any, Any]:
    """(ids, mask), both (B, P)."""
    width = max(map(len, rows))
    ids = [[policy.pad_id] * (width - len(row)) + row for row in rows]
    mask = [[0.0] * (width - len(row)) + [1.0] * len(row) for row in rows]
    return torch.tensor(ids, device=policy.device), torch.tensor(mask, device=policy.device)


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
    width = max(1, *(len(s.ids) for s in found))
    if silent := sum(not s.turns for s in found):
        warnings.warn(
            f"sampler sessions: {silent} sessions ended before the policy's first turn, as their "
            "messages were too long; their rows have no tokens, so their rewards do not count",
            stacklevel=2,
        )

    def padded(lists, pad):
        return torch.tensor([x + [pad] * (width - len(x)) for x in lists], device=policy.device)

    turn_ids = padded([s.turn_ids for s in found], 0)
    mask = (turn_ids > 0).float()
    full = torch.tensor([s.full for s in found], device=policy.device)
    posted = [math.nan if s.reward is None else s.reward for s in found]  # NaN: the task scores
    rewards = torch.tensor(posted, device=policy.device)
    by_task = rewards.isnan()[:, None]
    prompt_ids, prompt_mask = left_padded([s.prompt for s in found], policy)
    return {
        "prompts": [s.about["prompt"] for s in found],
        "messages": [s.about["messages"] for s in found],
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
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
    """The server of this process at an address; it starts with the first batch. A run's own token
    replaces that of the run before."""
    if (host, port) not in SERVERS:
        try:
            SERVERS[host, port] = Server(host, port, secret(token_from))
        except OSError as error:
            raise RlzooError(
                f"sampler sessions: cannot listen on {host}:{port}: {error.strerror}"
            ) from None
    SERVERS[host, port].token = secret(token_from)
    return SERVERS[host, port]
