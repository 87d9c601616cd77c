"""The policy served to agents: their rows, and what bad clients cannot do."""

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import rlzoo
from helpers.sessions import ONE, TOKEN
from helpers.worlds import changed
from rlzoo import RlzooError
from rlzoo.step.trainer import Trainer
from rlzoo_zoo.samplers import session_server
from rlzoo_zoo.samplers import sessions as module
from rlzoo_zoo.tasks.hi_lo import HiLo

pytestmark = pytest.mark.process  # a server

STUDIES = Path(__file__).parents[3] / "docs/studies"
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def play(world, session, replies=None):
    """An episode of hi-lo, which the agent judges; its reward."""
    task, number = HiLo(), str((int(session["answer"]) - 1) % 15 + 1)
    messages, turns = list(session["messages"]), []
    while True:
        status, answer = world.chat(session, messages)
        if status != 200:
            break
        if replies is not None:
            replies.append((session["index"], answer))
        text, how = (
            answer["choices"][0]["message"]["content"],
            answer["choices"][0]["finish_reason"],
        )
        turns.append(text)
        heard = task.answer(turns, int(number)) if how == "stop" else None
        if heard is None:
            break
        turns.append(heard)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": heard}]
    reward = float(turns[-1:] == [number] and how == "stop")
    assert world.end(session, reward)[0] == 200
    return reward


def player(rounds, replies=None, rewards=None):
    def agent(world):
        for _ in range(rounds):
            reward = play(world, world.begin(), replies)
            if rewards is not None:
                rewards.append(reward)

    return agent


def test_rows_are_what_agents_played_and_log_probs_are_the_scored_ones(world):
    w, replies, rewards = world(), [], []
    experience = w.sample(player(2, replies, rewards), player(2, replies, rewards))
    batch = experience.batch
    mask = batch["response_mask"].bool()
    gap = (batch["sampler_log_probs"] - batch["old_log_probs"]).abs()[mask].max()
    assert gap < 1e-5
    assert sorted(batch["sequence_scores"].tolist()) == sorted(rewards)
    served = [i for _, answer in replies for i in answer["choices"][0]["token_ids"]]
    assert sorted(served) == sorted(batch["response_ids"][mask].tolist())
    assert batch["turn_ids"].max() > 1
    assert (batch["response_attention"].sum() > mask.sum()).item()  # observations are masked
    said = {a["choices"][0]["logprobs"]["content"][0]["logprob"] for _, a in replies}
    firsts = batch["sampler_log_probs"][:, 0].tolist()
    assert {round(x, 5) for x in firsts} <= {round(x, 5) for x in said}
    metrics = w.trainer.update(experience)
    assert metrics["tokens/gen"] > 0


@pytest.mark.parametrize("limit", [26, 9])
def test_agents_in_any_order_give_the_rows_and_the_update_of_the_task_itself(world, zoo, limit):
    """With 9 tokens some rows end in a guess, and some in an answer."""
    words = ["task=hi_lo", "model=turns", "rollout.prompts=8", f"rollout.max_new_tokens={limit}"]
    words += ["rollout.old_log_probs=recomputed", "train.minibatches=2", "device=cpu"]
    w, one = world(*words), rlzoo.open_recipe("grpo", [*words, "rollout.samples=2"], zoo=zoo)
    here = one.sample()
    served = w.sample(player(5), player(6), player(5))
    close = ("sampler_log_probs",)  # other rows in a batch round otherwise
    for name, x in here.batch.items():
        y = served.batch[name]
        if not hasattr(x, "shape"):
            assert x == y or limit == 9  # where a text is cut off is not in the row
        elif name in close:
            assert (x - y).abs().max() < 1e-5
        else:
            assert x.shape == y.shape, name
            assert (x == y).all(), name
    assert here.batch["truncated"].any() == (limit == 9)
    one.update(here)
    w.trainer.update(served)
    weights = zip(*(t.world.policy.model.parameters() for t in (one, w.trainer)), strict=True)
    assert all((x == y).all() for x, y in weights)


def test_a_reward_replaces_the_score_of_a_task_and_null_leaves_it(world):
    def agent(w):
        for reward in (None, -0.5, None, 0.25):
            session, turns = w.begin(), []
            _, answer = w.chat(session, session["messages"])
            turns.append(answer["choices"][0]["message"]["content"])
            right.append(turns[0] == session["answer"])
            assert w.end(session, reward)[0] == 200

    right = []
    batch = world("task=hi_lo", "model=turns").sample(agent).batch
    scores = batch["sequence_scores"].tolist()
    assert scores == [float(right[0]), -0.5, float(right[2]), 0.25]
    assert [len(turns) for turns in batch["turns"]] == [1] * 4


def test_a_stop_of_the_task_ends_a_reply(world, monkeypatch):
    w, seen = world(*ONE), []
    policy = w.trainer.world.policy
    generate = type(policy).generate

    def with_a_longer_row(*given):
        return {
            name: torch.nn.functional.pad(x, (0, 2), value=policy.pad_id * (name[:2] == "re"))
            for name, x in generate(*given).items()
        }

    w.trainer = Trainer(changed(w.trainer.world, stops=tuple("0123456789")))
    monkeypatch.setattr(type(policy), "generate", with_a_longer_row)

    def agent(w):
        session = w.begin()
        _, answer = w.chat(session, session["messages"])
        seen.append(answer["choices"][0])
        w.end(session, 1.0)

    batch = w.sample(agent).batch
    assert seen[0]["finish_reason"] == "stop"
    assert seen[0]["message"]["content"] in tuple("0123456789")
    assert batch["response_mask"].sum() == len(seen[0]["token_ids"]) == 1
    assert not batch["truncated"].any()


def test_a_reply_continues_its_prompt_token_by_token(world):
    w, replies = world("rollout.prompts=1"), []
    batch = w.sample(player(2, replies)).batch
    rows = [
        (p[m.bool()].tolist() + r[a.bool()].tolist())
        for p, m, r, a in zip(
            batch["prompt_ids"], batch["prompt_mask"], batch["response_ids"],
            batch["response_attention"], strict=True,
        )
    ]  # fmt: skip
    for _, answer in replies:
        whole = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
        assert any(row[: len(whole)] == whole for row in rows)


def test_a_chat_template_writes_between_the_turns(world):
    w = world(*ONE, "task.prompt='<'", "rollout.max_new_tokens=90")
    tokenizer = w.trainer.world.policy.tokenizer
    eos = tokenizer.eos_token
    tokenizer.chat_template = TEMPLATE.replace("<eos>", eos)
    seen = {}

    def agent(w):
        session = w.begin()
        messages = [{"role": "user", "content": "3-4"}]
        _, first = w.chat(session, messages, max_tokens=4)
        messages += [first["choices"][0]["message"], {"role": "user", "content": "no"}]
        _, second = w.chat(session, messages, max_tokens=4)
        seen.update(first=first, second=second)
        w.end(session, 1)

    w.sample(agent)
    first = tokenizer.decode(seen["first"]["prompt_token_ids"])
    assert first == f"<user>3-4{eos}<assistant>"
    second = tokenizer.decode(seen["second"]["prompt_token_ids"])
    reply = tokenizer.decode(seen["first"]["choices"][0]["token_ids"])
    closing = "" if reply.endswith(eos) else eos
    assert second == f"{first}{reply}{closing}<user>no{eos}<assistant>"
    assert len(seen["first"]["choices"][0]["token_ids"]) <= 4


CALL = '<tool_call>{"name": "guess", "arguments": {"n":3, "why": "h"}}</tool_call>'


def test_calls_of_tools_come_as_fields_and_may_be_repeated_in_other_words(world, monkeypatch):
    w, seen = world(*ONE, "task.prompt='<'", "rollout.max_new_tokens=90"), {}
    tokenizer = w.trainer.world.policy.tokenizer
    tokenizer.chat_template = TEMPLATE.replace("<eos>", tokenizer.eos_token)
    decode = type(tokenizer).decode
    tools = [{"type": "function", "function": {"name": "guess", "parameters": {}}}]

    def agent(w):
        session = w.begin()
        messages = [{"role": "user", "content": "3-4"}]
        monkeypatch.setattr(tokenizer, "decode", lambda *a, **k: f"hi {CALL}")
        _, first = w.chat(session, messages, max_tokens=4, tools=tools)
        _, plain = w.chat(session, messages, max_tokens=4)  # the same messages: the same reply
        seen["choice"] = first["choices"][0]
        assert plain == first
        (call,) = seen["choice"]["message"]["tool_calls"]
        call["function"]["arguments"] = json.dumps({"n": 3, "why": "h"}, indent=1)
        again = {"role": "assistant", "content": "hi ", "tool_calls": [call]}
        bad = {**again, "tool_calls": [{"function": {"name": "guess", "arguments": "{"}}]}
        other = {**again, "tool_calls": [{"function": {"name": "guess", "arguments": "{}"}}]}
        new = {"role": "tool", "content": "12", "tool_call_id": call["id"]}
        assert w.chat(session, [*messages, bad, new])[0] == 400
        assert w.chat(session, [*messages, other, new])[0] == 409
        monkeypatch.setattr(tokenizer, "decode", lambda *a, **k: decode(tokenizer, *a, **k))
        status, second = w.chat(session, [*messages, again, new], max_tokens=4)
        assert status == 200, second
        seen["second"] = tokenizer.decode(second["prompt_token_ids"])
        w.end(session, 1)

    w.sample(agent)
    assert seen["choice"]["finish_reason"] == "tool_calls"
    assert seen["choice"]["message"]["content"] == "hi "
    assert seen["second"].endswith(f"<tool>12{tokenizer.eos_token}<assistant>")


def test_what_a_template_or_tokenizer_cannot_write_is_that_requests_fault_alone(world):
    """Faults of a request do not end the run; nor do edits of what was rendered."""
    w = world(*ONE, "rollout.max_new_tokens=90")
    tokenizer = w.trainer.world.policy.tokenizer
    template = TEMPLATE.replace("<eos>", tokenizer.eos_token)
    tokenizer.chat_template = (
        "{{ tools | tojson if tools }}{{ messages[0].content + 1 if messages[0].content == 'add' }}"
        "{{ 1 // 0 if messages[0].content == 'divide' }}{{ messages[0].a.b.c.d }}"
        "{{ raise_exception('no') if messages[0].role == 'odd' }}" + template
    ).replace("messages[0].a.b.c.d", "messages[0].tool_calls[0].function.arguments.a.upper()"
              " if messages[0].tool_calls")  # fmt: skip
    hi, more = {"role": "user", "content": "hi"}, {"role": "user", "content": "3"}
    call = {"function": {"name": "f", "arguments": {"a": "x"}}}

    def calling(arguments):
        return {"role": "assistant", "tool_calls": [{"function": {"name": "f", **arguments}}]}

    first = [
        *([{"role": "user", "content": text}] for text in ("add", "divide", "é")),
        [{"role": "odd", "content": "x"}],
        [{**hi, "refusal": "no"}],
        [calling({"arguments": '{"a": "\\ud800"}'}), hi],
        [calling({"arguments": '{"\\udfff": 1}'}), hi],
        [calling({"arguments": '{"a":' * 975 + "1" + "}" * 975}), hi],
        [calling({"arguments": {"a": 3}}), hi],
        [{**calling({"arguments": {}}), "content": "no a"}, hi],
    ]
    found = {}

    def agent(w):
        session = w.begin()
        found["first"] = [w.chat(session, messages)[0] for messages in first]
        found["tools"] = [w.chat(session, [hi], tools=[x])[0] for x in (3, "f", [{}])]
        _, answer = w.chat(session, [{**calling(call["function"]), "content": "-"}, hi],
                           max_tokens=2, tools=[{"a": 1}])  # fmt: skip
        reply = answer["choices"][0]["message"]
        said = [{**calling(call["function"]), "content": "-"}, hi, reply]
        edits = {
            "dropped": [hi, reply, more], "inserted": [hi, *said, more],
            "edited": [said[0], {**hi, "content": "ho"}, reply, more], "nothing new": said,
            "reply": [*said[:2], {**reply, "content": reply["content"] + "!"}, more],
        }  # fmt: skip
        found["edits"] = {n: w.chat(session, m, tools=[{"a": 1}])[0] for n, m in edits.items()}
        for tools in (None, [{"a": 2}]):
            status, answer = w.chat(session, [*said, more], tools=tools)
            assert (status, "tools" in answer["error"]["message"]) == (409, True)
        assert w.chat(session, [*said, more], tools=[{"a": 1}], max_tokens=2)[0] == 200
        w.end(session, 1)

    w.sample(agent)
    assert found["first"] == [400] * len(first)
    assert found["tools"] == [400] * 3
    assert {n: s for n, s in found["edits"].items() if s != 409} == {"nothing new": 400}  # asked


@pytest.mark.parametrize("text", ["no call", "<tool_call>{</tool_call>", f"{CALL}<tool_call>[]"])
def test_what_is_no_readable_call_stays_a_text(text):
    assert module.called(text, "s-1") == {}
    assert module.called(CALL, "s-1")["tool_calls"][0]["function"]["name"] == "guess"


def test_a_client_with_one_address_names_the_session_as_its_model(world):
    def agent(w):
        session, other = w.begin(), w.begin()
        for one in (session, other):
            body = {"messages": one["messages"], "model": one["id"]}
            status, answer = w.ask("/v1/chat/completions", body)
            assert (status, answer["id"]) == (200, f"{one['id']}-1")
        assert w.ask("/v1/chat/completions", {**body, "model": "policy"})[0] == 410
        assert w.end(session, 0.5)[0] == w.end(other, -0.5)[0] == 200

    batch = world("rollout.prompts=1").sample(agent).batch
    assert batch["sequence_scores"].tolist() == [0.5, -0.5]


def test_repeated_requests_get_the_same_reply_and_changed_ones_none(world):
    def agent(w):
        session, other = w.begin(), w.begin()
        first = w.chat(session, session["messages"])
        assert w.chat(session, session["messages"]) == first
        text = first[1]["choices"][0]["message"]["content"]
        more = [*session["messages"], {"role": "assistant", "content": text + "!"}]
        assert w.chat(session, [*more, {"role": "user", "content": " hi "}])[0] == 409
        assert w.end(session, 0.5) == w.end(session, 0.5)
        assert w.end(session, 1.0)[0] == 409
        assert w.chat(session, session["messages"])[0] == 409
        w.chat(other, other["messages"])
        w.end(other, -0.5)

    batch = world("rollout.prompts=1").sample(agent).batch
    assert batch["sequence_scores"].tolist() == [0.5, -0.5]
    assert batch["turn_ids"].max() == 1


def test_a_request_repeated_while_it_waits_gets_the_same_reply(world):
    def agent(w):
        session = w.begin()
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(w.chat, session, session["messages"]) for _ in range(4)]
        replies = [one.result() for one in asked]
        assert replies == [(200, replies[0][1])] * 4
        w.end(session, 1.0)

    batch = world(*ONE).sample(agent).batch
    assert batch["turn_ids"].max() == 1


def test_the_verifier_of_another_task_scores_sessions_too(world):
    seen = []

    def agent(w):
        for _ in range(2):
            session = w.begin()
            _, answer = w.chat(session, session["messages"])
            text = answer["choices"][0]["message"]["content"]
            seen.append((session["answer"] == text, w.end(session, None)[0]))

    words = ["task=addition", "model=nano", "rollout.prompts=1"]
    batch = world(*words).sample(agent).batch
    assert seen == [(bool(x), 200) for x in batch["sequence_scores"].tolist()]


def test_a_full_session_is_truncated_and_keeps_its_reward(world):
    def agent(w):
        session = w.begin()
        messages = list(session["messages"])
        for _ in range(30):
            status, answer = w.chat(session, messages)
            if status != 200:
                assert answer["error"]["type"] == "context_length_exceeded"
                break
            messages += [answer["choices"][0]["message"], {"role": "user", "content": " hi "}]
        w.end(session, 0.25)

    batch = world(*ONE).sample(agent).batch
    assert batch["truncated"].tolist() == [True]
    assert batch["sequence_scores"].tolist() == [0.25]
    assert batch["response_ids"].shape[1] <= 26


def test_a_silent_agents_row_goes_to_another(world):
    w = world("sampler.idle=0.3")

    def silent(w):
        w.chat(w.begin(), [{"role": "user", "content": "1-15:"}])

    def leaves(w):
        session = w.begin()
        assert w.ask(session["path"], method="DELETE")[1]["deleted"] is True

    def late(w):
        session = w.begin()
        time.sleep(1.0)
        assert w.end(session, 1e6)[0] in (409, 410)

    rewards = []
    batch = w.sample(silent, leaves, late, player(4, rewards=rewards)).batch
    assert sorted(batch["sequence_scores"].tolist()) == sorted(rewards)


def test_a_session_with_its_reward_cannot_be_given_up_and_says_so():
    desk = session_server.Desk()
    desk.open([session_server.Session(row, [1], {}) for row in range(2)], {})
    paid, left = desk.hand_out(), desk.hand_out()
    paid.turns.append("a turn")
    desk.reward(paid.id, 1.0)
    assert desk.give_up(paid.id) is False
    assert desk.give_up(left.id) is True


def test_an_agent_that_died_while_it_waited_gets_no_row(world):
    w = world(*ONE, "sampler.patience=10", "sampler.idle=60")
    place, head = ("127.0.0.1", w.server.port), f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"
    for _ in range(3):  # before a session is open
        with socket.create_connection(place) as client:
            client.sendall(
                f"POST /v1/sessions HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n{{}}".encode()
            )
            time.sleep(0.1)
    assert w.sample(player(1)).batch.rows == 1


def test_without_agents_the_run_stops_with_a_line(world, golden):
    with golden.refuses(RlzooError):
        world("sampler.patience=0.2").sample()


@pytest.mark.parametrize("count", [44, pytest.param(200, marks=pytest.mark.landing)])
def test_hostile_requests_lose_nothing_and_stop_nothing(world, monkeypatch, count):
    monkeypatch.setattr(session_server, "READ", 0.5)
    rewards = []

    def statuses(w):
        """Bad requests, each refused with its own status."""
        session = w.begin()
        chat, end = f"{session['path']}/chat/completions", f"{session['path']}/reward"
        good = session["messages"]
        bad = [
            (401, lambda: w.ask("/v1/models", token="guess")),
            (401, lambda: w.ask(chat, {"messages": good}, token="")),
            (404, lambda: w.ask("/v1/none", {})),
            (404, lambda: w.ask("/../etc/passwd")),
            (410, lambda: w.ask("/v1/sessions/none/reward", {"reward": 1})),
            (400, lambda: w.ask(chat, raw=b"{")),
            (400, lambda: w.ask(chat, raw=b"[" * 100_000)),
            (400, lambda: w.ask(chat, raw=b"\xff\xfe")),
            (400, lambda: w.ask(chat, {"messages": [{"role": "user", "content": "\ud800"}]})),
            (400, lambda: w.ask(chat, {"messages": [{"role": "assistant", "tool_calls": 3}]})),
            (400, lambda: w.ask(chat, [1])),
            (400, lambda: w.ask(chat, {"messages": []})),
            (400, lambda: w.ask(chat, {"messages": ["x"]})),
            (400, lambda: w.ask(chat, {"messages": [{"role": "user", "content": 3}]})),
            (400, lambda: w.ask(chat, {"messages": good * 3000})),
            (400, lambda: w.ask(chat, {"messages": [{"role": "user", "content": "1" * 99}]})),
            (400, lambda: w.ask(chat, {"messages": good, "stream": True})),
            (400, lambda: w.ask(chat, {"messages": good, "n": 2})),
            (400, lambda: w.ask(chat, {"messages": good, "max_tokens": -1})),
            (409, lambda: w.ask(end, {"reward": 1})),  # before a turn
            (400, lambda: w.ask(end, raw=b'{"reward": NaN}')),
            (400, lambda: w.ask(end, raw=b'{"reward": 1e999}')),
            (400, lambda: w.ask(end, {"reward": "9"})),
            (400, lambda: w.ask(end, {"reward": True})),
        ]
        for i in range(count):
            wanted, request = bad[i % len(bad)]
            status, _ = request()
            assert status == wanted, (i % len(bad), status)
            if i % len(bad) == 15:  # too long: this session may end without a turn
                w.ask(session["path"], method="DELETE")
                session = w.begin()
                chat, end = f"{session['path']}/chat/completions", f"{session['path']}/reward"
        w.ask(session["path"], method="DELETE")

    def sockets(w):
        """Requests that are cut off, huge, or never end."""
        place = ("127.0.0.1", w.server.port)
        head = b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\n"
        head += f"Authorization: Bearer {TOKEN}\r\n".encode()
        for text in (
            b"", b"\x00" * 5000, b"GET", b"GET / HTTP/9.9\r\n\r\n", head,
            head + b"Content-Length: 50\r\n\r\n{",
            head + b"Content-Length: 99999999999\r\n\r\n", head + b"Content-Length: x\r\n\r\n",
            b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", head + b"A: b\r\n" * 300 + b"\r\n",
        ):  # fmt: skip
            with socket.create_connection(place) as client:
                client.sendall(text)
        slow = [socket.create_connection(place) for _ in range(20)]
        for _ in range(4):  # a byte at a time, beyond the time for a request
            time.sleep(0.2)
            for client in slow:
                with contextlib.suppress(OSError):
                    client.send(b"G")
        for client in slow:
            client.settimeout(5)
            with contextlib.suppress(ConnectionError):
                assert client.recv(100) == b""  # cut
            client.close()

    w = world("sampler.idle=5", "sampler.max_prompt=60")
    batch = w.sample(statuses, sockets, player(4, rewards=rewards)).batch
    assert sorted(batch["sequence_scores"].tolist()) == sorted(rewards)
    assert w.sample(player(4)).batch.rows == 4  # and the next round comes, too


def test_a_session_whose_first_message_is_too_long_can_go_on_or_end(world):
    w = world("sampler.max_prompt=20", "rollout.prompts=1")

    def agent(w):
        one, other = w.begin(), w.begin()
        for session in (one, other):
            assert w.end(session, 1)[0] == 409  # before any request
            status, answer = w.chat(session, [{"role": "user", "content": "1" * 21}])
            assert (status, answer["error"]["type"]) == (400, "context_length_exceeded")
        assert w.chat(one, [{"role": "user", "content": "1" * 20}])[0] == 200
        assert w.end(one, 0.5)[0] == w.end(other, -1)[0] == 200

    with pytest.warns(UserWarning, match="1 sessions ended before"):
        experience = w.sample(agent)
    assert experience.batch["sequence_scores"].tolist() == [0.5, 0]
    assert experience.batch["response_mask"].any(1).tolist() == [True, False]
    assert experience.batch["truncated"].tolist()[1]
    assert not w.trainer.update(experience)["train/skipped"]


def test_idle_connections_without_the_token_keep_no_agent_out(world, monkeypatch):
    monkeypatch.setattr(session_server, "CONNECTIONS", 4)
    w = world(*ONE)

    def agent(w):
        place = ("127.0.0.1", w.server.port)
        idle = [socket.create_connection(place) for _ in range(12)]
        assert player(1)(w) is None
        holds = [socket.create_connection(place) for _ in range(4)]
        for one in holds:  # with the token, and a body that does not come
            head = f"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
            one.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
        time.sleep(0.3)
        assert w.ask("/v1/models")[0] == 503
        for one in [*idle, *holds]:
            one.close()

    w.sample(agent)
    deadline = time.monotonic() + 5
    while w.server.http.server_state.tasks and time.monotonic() < deadline:
        time.sleep(0.02)
    assert w.ask("/v1/models")[0] == 200


def test_faults_of_http_are_answered(world):
    w = world(*ONE)
    for method, path, token, status in (
        ("PUT", "/v1/models", TOKEN, 405), ("OPTIONS", "/", TOKEN, 404), ("GET", "/x", "", 404),
        ("GET", "/v1/models", "", 401), ("POST", "/v1/models", TOKEN, 405),
    ):  # fmt: skip
        found = w.ask(path, method=method, token=token)
        assert found[0] == status
        assert found[1]["error"]["message"]
        assert ("/v1/sessions" in found[1]["error"]["message"]) == (status in (404, 405))
    for text in (b"rubbish\r\n\r\n", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", w.server.port)) as client:
            client.sendall(text)
            assert client.recv(100).split()[1] == b"400"


def test_a_runs_token_replaces_that_of_the_run_before(world, monkeypatch):
    w = world(*ONE)
    monkeypatch.setenv("RLZOO_TOKEN", "another-token-for-a-second-run")
    assert module.listening("127.0.0.1", 0, "RLZOO_TOKEN") is w.server
    assert w.ask("/v1/models")[0] == 401
    assert w.ask("/v1/models", token="another-token-for-a-second-run")[0] == 200


def test_a_weak_token_or_none_is_refused_before_a_model_loads(world, monkeypatch, golden):
    monkeypatch.setenv("RLZOO_TOKEN", "short")
    with golden.refuses(RlzooError):
        world()
    monkeypatch.delenv("RLZOO_ALLOW_ENV")
    with golden.refuses(RlzooError):
        world()


@pytest.mark.landing
@pytest.mark.parametrize("library", ["verifiers", "openenv"])
def test_loops_of_other_libraries_play_episodes(world, monkeypatch, library):
    """docs/studies/agents.py: rows are what was served, and training goes on."""
    for needed in ("verifiers.v1", "openenv.core", "fastmcp", "uvicorn"):
        pytest.importorskip(needed)
    monkeypatch.syspath_prepend(str(STUDIES))
    import agents

    w = world("rollout.prompts=1")
    play, rewards = agents.PLAYERS[library](), []

    def agent(w):
        for _ in range(2):
            rewards.append(play(w.url, w.begin()))

    experience = w.sample(agent)
    batch = experience.batch
    mask = batch["response_mask"].bool()
    gap = (batch["sampler_log_probs"] - batch["old_log_probs"]).abs()[mask].max()
    assert gap < 1e-5
    assert sorted(batch["sequence_scores"].tolist()) == sorted(rewards)
    turns = [[t for t in turns if t] for turns in batch["turns"]]
    for (*said, reward), number in zip(turns, batch["prompt_index"].tolist(), strict=True):
        assert said[1::2] == [agents.heard(guess, number % 15 + 1) for guess in said[:-1:2]]
        assert float(reward) == (said[-1] == str(number % 15 + 1))
    assert w.trainer.update(experience)["tokens/gen"] > 0
