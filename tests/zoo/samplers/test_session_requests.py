"""The fields of agents' requests: obeyed, harmless, or refused by name; null is absent."""

import json

import pytest

from rlzoo_zoo.samplers.session_requests import (
    FIXED,
    HARMLESS,
    Refused,
    completion,
    given,
    message,
    parsed,
    reward,
    unread,
)

SAID = [{"role": "user", "content": "hi"}]
RECIPE = {"temperature": (0.7,), "top_p": (1.0,), "top_k": (0, -1)}


def read(**fields):
    return completion({"messages": SAID, **fields}, RECIPE)


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"max_tokens": 3, "max_completion_tokens": None}, 3),
        ({"max_tokens": None, "max_completion_tokens": 4}, 4),
        ({"max_tokens": 3, "max_completion_tokens": 4}, 3),  # at most each
        ({"max_tokens": None, "max_completion_tokens": None}, None),
        ({}, None),
    ],
)
def test_the_limits_of_a_reply(fields, most):
    assert read(**fields)["most"] == most


def test_null_is_absent_for_every_field():
    names = {*FIXED, *HARMLESS, *RECIPE, "tools", "max_tokens", "unknown"}
    assert read(**dict.fromkeys(names)) == read()
    nulls = dict.fromkeys(("name", "tool_calls", "refusal", "audio", "function_call"))
    assert message({**SAID[0], **nulls}) == SAID[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.7}, {"top_p": 1}, {"top_k": -1}, {"top_k": 0}, {"n": 1},
        {"stream": False}, {"stop": []}, {"logprobs": True}, {"logprobs": False},
        {"top_logprobs": 0}, {"presence_penalty": 0.0}, {"logit_bias": {}}, {"tool_choice": "auto"},
        {"response_format": {"type": "text"}}, {"parallel_tool_calls": True}, {"user": "me"},
        {"metadata": {"a": "b"}}, {"model": "gpt"}, {"tools": []}, {"store": False},
    ],
)  # fmt: skip
def test_fields_that_change_nothing(fields):
    assert read(**fields) == read()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0), ("temperature", 1), ("temperature", "0.7"), ("top_p", 0.9),
        ("top_p", True), ("top_k", 5), ("n", 2), ("n", True), ("stream", True), ("stream", 0),
        ("stop", ["a"]), ("stop", "a"), ("logprobs", 5), ("top_logprobs", 2), ("seed", 1),
        ("presence_penalty", 0.5), ("frequency_penalty", -1), ("logit_bias", {"1": 5}),
        ("response_format", {"type": "json_object"}), ("tool_choice", "none"),
        ("tool_choice", "required"), ("parallel_tool_calls", False), ("functions", []),
        ("function_call", "auto"), ("reasoning_effort", "low"), ("stream_options", {}),
        ("chat_template_kwargs", {"enable_thinking": False}), ("max_token", 3), ("temprature", 1),
        ("max_tokens", 0), ("max_tokens", True), ("max_tokens", 2.5), ("max_tokens", "3"),
        ("max_completion_tokens", -1), ("tools", {}), ("add_generation_prompt", False),
        ("continue_final_message", True), ("continue_final_message", "no"), ("messages", None),
    ],
)  # fmt: skip
def test_what_is_not_obeyed_is_refused_by_its_name(field, value):
    with pytest.raises(Refused, match=field) as caught:
        read(**{field: value})
    assert caught.value.status_code == 400


@pytest.mark.parametrize("says", [None, "maybe", 1])
def test_whether_a_reply_continues_the_assistants_message_is_asked(says, golden):
    own = [*SAID, {"role": "assistant", "content": "a"}]
    with golden.refuses(Refused):
        completion({"messages": own, "continue_final_message": says}, RECIPE)
    for goes_on in (True, False):
        found = completion({"messages": own, "continue_final_message": goes_on}, RECIPE)
        assert found["goes_on"] is goes_on


@pytest.mark.parametrize(
    ("body", "value"),
    [({"reward": 1}, 1.0), ({"reward": -0.5, "note": None}, -0.5), ({"reward": None}, None)],
)
def test_a_reward(body, value):
    assert reward(body) == value


@pytest.mark.parametrize(
    "body",
    [
        {}, {"rewards": 1.0}, {"rewrad": 1}, {"score": 1}, {"reward": 1, "rewards": 2},
        {"reward": "1"}, {"reward": True}, {"reward": []}, {"reward": 1e10}, {"Reward": 1},
    ],
)  # fmt: skip
def test_what_is_not_a_reward(body):
    with pytest.raises(Refused) as caught:
        reward(body)
    assert caught.value.status_code == 400


def test_a_misspelt_field_has_the_nearest_name(golden):
    with golden.refuses(Refused):
        reward({"rewrad": 1})
    with golden.refuses(Refused):
        read(max_token=3)
    with golden.refuses(Refused):
        given({"index": 3}, ())


def nested(depth, of="[]"):
    return '{"a": ' * depth + of + "}" * depth


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "\\ud800"}', '{"\\udfff": 1}', '["\\ud83d"]', '"\\ud800"', "NaN", "[Infinity]", "{",
        "[" * 100_000, nested(975), nested(110), '{"a": ' + "9" * 5000 + "}", "", b"\xff",
        '{"a": 1, "a": 1}', '[{"a": {"b": 1, "b": 2}}]',
    ],
    ids=range(15),
)  # fmt: skip
def test_what_is_not_json_of_texts(text, golden):
    with golden.refuses(ValueError):
        parsed(text)
    with pytest.raises(Refused):
        message(
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}
        )


def test_what_is():
    for text in ('{"a": "\\ud83d\\ude00"}', nested(90), "[1e999]", "null"):
        assert parsed(text) == json.loads(text)


CALL = {"id": "1", "function": {"name": "f", "arguments": '{"x": 1}'}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"text": "b"}]}, {"content": "ab"}),
        ({"content": "a", "name": "Ann"}, {"content": "a", "name": "Ann"}),
        ({"role": "assistant"}, {"content": ""}),
        ({"role": "tool", "content": "1", "tool_call_id": "1"},
         {"content": "1", "tool_call_id": "1"}),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]},
         {"content": None, "tool_calls": [{"type": "function", "id": "1",
                                           "function": {"name": "f", "arguments": {"x": 1}}}]}),
    ],
)  # fmt: skip
def test_a_message_reaches_the_template_as_it_was_sent(given, found):
    given = {"role": "user", **given}
    assert message(given) == {"role": given["role"], **found}


@pytest.mark.parametrize(
    "given",
    [
        {"content": 3}, {}, {"content": [3]}, {"content": [{"type": "image_url", "text": "a"}]},
        {"content": [{"type": "text"}]}, {"content": "a", "tool_calls": "f"},
        {"content": "a", "tool_calls": [{}]}, {"role": 3, "content": "a"},
        {"content": "a", "tool_calls": [{"function": "f"}]},
    ],
)  # fmt: skip
def test_what_is_not_a_message(given):
    with pytest.raises(Refused):
        message({"role": "user", **given})


@pytest.mark.parametrize(
    ("field", "template", "found"),
    [
        ("tool_call_id", "", None), ("name", "", None), ("tool_calls", "", None),
        ("contnet", "{{ m.content }}", "contnet"), ("function_call", "", "function_call"),
        ("weight", "{{ m.weight }}", None), ("thinking", "{{ m.reasoning_content }}", None),
        ("reasoning_content", "{{ m.content }}", "reasoning_content"),
    ],
)  # fmt: skip
def test_a_field_of_a_message_that_the_template_does_not_read(field, template, found):
    assert unread([*SAID, {**SAID[0], field: "x"}], template) == found
    assert unread([{**SAID[0], field: []}], template) is None  # as clients send
