"""Functions as tools: what is called, what is refused, and what cannot stop a run."""

import json
import time

import pytest
import torch

from helpers.tools_for_tests import double, spin, untyped, wait, write
from rlzoo.mdp.turns import Turns, begin
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.supervised.tiny import build_tokenizer
from rlzoo_zoo.tasks.calculate import calculate
from rlzoo_zoo.tasks.calculator import Calculator
from rlzoo_zoo.tasks.tools import JSON_CALL, Tools, read_json

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def tools():
    functions = [double, wait, spin, write]
    return {form: Tools(functions, form=form, seconds=0.2) for form in ("json", "python")}


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_a_call_is_run_and_a_turn_without_one_is_not_answered(tools):
    assert tools["json"].answer("I think " + call("double", text="ab")) == "abab"
    assert tools["json"].answer(call("double", text="ab", times=3, scale=2)) == "ababab"
    both = call("double", text="a") + call("double", text="b")
    assert tools["json"].answer(both) == "aa\nbb"
    assert tools["json"].answer("the answer is [4]") is None
    assert tools["python"].answer('so: [double("ab", times=3)]') == "ababab"
    for text in ("", "abab", "] [", "[double('a')] abab"):
        assert tools["python"].answer(text) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<tool_call>{</tool_call>", "error"),
        ("<tool_call>", "error"),
        ("<tool_call>[1]</tool_call>", "JSON object"),
        ('<tool_call>{"name": "double", "arguments": [1]}</tool_call>', "JSON object"),
        (call("dubble", text="a"), "double"),
        (call("double"), "text"),
        (call("double", text=3), "text must be str"),
        (call("double", text="a", times=True), "times must be int"),
        (call("double", text="a", more=1), "more"),
        (call("double", text="a" * 5000), "characters"),
        ("<tool_call>" + "[" * 3000 + "</tool_call>", "error"),
        (call("write", path="/no/such/place"), "FileNotFoundError"),
        (call("double", text="a")[:-12] + "}</tool_call>", "one JSON object"),
        ('<tool_call>{"name": "double"} {"name": "double"}</tool_call>', "one JSON object"),
        ('<tool_call>{"name": "double", "args": {"text": "a"}}</tool_call>', "args"),
        ('<tool_call>{"name": "double", "arguments": {}, "parameters": {}}</tool_call>', "param"),
        ('<tool_call>{"name": "double", "arguments": "text"}</tool_call>', "error"),
    ],
)
def test_a_broken_call_is_answered_with_its_fault(tools, text, fault):
    answer = tools["json"].answer(text)
    assert answer.startswith("error")
    assert fault in answer


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "parameters": {"a": "}{\\""}}',
        '{"name": "f", "arguments": "{\\"a\\": \\"}{\\\\\\"\\"}"}',
        '{"type": "function", "function": {"name": "f", "arguments": {"a": "}{\\""}}}',
        '```json\n{"id": "1", "name": "f", "arguments": {"a": "}{\\""}}\n```',
    ],
)
def test_a_call_in_the_forms_of_several_models(text):
    assert read_json(text) == ("f", (), {"a": '}{"'})


def test_a_call_may_have_its_end_in_a_string():
    inside = json.dumps({"name": "f", "arguments": {"a": "</tool_call>"}})
    assert JSON_CALL.findall(f"<tool_call>{inside}</tool_call> <tool_call>{{") == [inside, "{"]
    assert JSON_CALL.findall('<tool_call>"</tool_call>') == ['"']


@pytest.mark.parametrize(
    "text", ["[]", "[1]", "[double]", "[double(]", "[double(open('x'))]", "[a.double('x')]",
             "[double(**{})]", "[" + "(" * 3000 + "]", "[double(text='a', text='b')]"],
)  # fmt: skip
def test_a_python_call_has_literals_only(tools, text):
    assert tools["python"].answer(text).startswith("error")


def test_what_takes_too_long_ends_and_the_next_call_is_answered(tools):
    began = time.monotonic()
    assert "0.2 s" in tools["json"].answer(call("wait", seconds=30.0))
    assert "0.2 s" in tools["json"].answer(call("spin", n=9))
    assert time.monotonic() - began < 8
    assert tools["json"].answer(call("double", text="x")) == "xx"


def test_the_same_call_runs_once(tools, tmp_path):
    path = tmp_path / "calls"
    for _ in range(3):
        assert tools["json"].answer(call("write", path=str(path))) == "written"
    assert path.read_text() == "called\n"


def test_results_are_cut(tools):
    assert len(tools["json"].answer(call("double", text="a", times=10_000))) == 400


def test_functions_that_cannot_be_declared_are_refused(golden):
    with golden.refuses(ValueError):
        Tools([untyped])

    def inner(x: int) -> int:
        """No.

        Args:
            x: a number
        """
        return x

    with golden.refuses(ValueError):
        Tools([inner])


def test_the_declaration_has_names_types_and_descriptions():
    message = Tools([double]).system()
    for part in ('"double"', '"times"', '"integer"', "how often", "<tools>"):
        assert part in message
    assert "double(text: str" in Tools([double], form="python").system()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12*(3+4)", "84"), ("1/3", "1/3"), ("-2 - .5", "-5/2"), ("0.1+0.2", "3/10"),
        ("1.1*3", "33/10"), ("3.", "3"), ("1.5e-3 * 2", "3/1000"), ("  (0.7 +0.1)*10", "8"),
        ("0.123456789012345678901", "123456789012345678901/1000000000000000000000"),
        ("1e400/1e399", "10"), ("7×8", "56"), ("１２−６÷４", "21/2"), ("2.50*2", "5"),
    ],
)  # fmt: skip
def test_calculate_is_exact(text, value):
    assert calculate(text) == value


@pytest.mark.parametrize("text", ["x", "2**3", "f(1)", "1 if 1 else 2", "'a'*9", "True+1", "1e999",
                                  "1e-99999999999"])  # fmt: skip
def test_calculate_computes_nothing_else(text):
    with pytest.raises(ValueError):
        calculate(text)


def test_calculator_by_hand():
    task = Calculator()
    said = ['[calculate("37*48")]']
    assert task.respond([said]) == [" 1776 "]
    turns = [*said, " 1776 ", "1776"]
    assert task.respond([turns]) == [None]
    yes = torch.tensor([True])
    assert task.score([turns], ["1776"], yes).tolist() == [1]
    assert task.score([["1776"]], ["1776"], yes).tolist() == [1]
    assert task.score([turns], ["1776"], ~yes).tolist() == [0]
    assert task.score([turns[:2]], ["1776"], ~yes).tolist() == [0]
    assert task.respond([[*said, "x", *said, "x", *said]]) == [None]  # the third call is too many
    assert Calculator(calls=0).respond([said]) == [None]
    assert Calculator(form="json").final("所以答案是1,776。") == "1776"


def test_results_are_masked_tokens_of_the_row(zoo):
    words = ["recipe=grpo", "task=calculator", "model=turns", "rollout.max_new_tokens=40"]
    plan = make_plan(compose(words, zoo), zoo)
    tokenizer = build_tokenizer()
    rules = Turns(plan, tokenizer, [tokenizer.eos_token_id])
    told = {"prompts": ["3*4?"], "messages": [[{"role": "user", "content": "3*4?"}]],
            "answers": ["12"], "prompt_index": torch.tensor([1])}  # fmt: skip
    row = begin(told, 0, 40)
    rules.act([row], [tokenizer('[calculate("3*4")]')["input_ids"]])
    assert row.turn_ids == [1] * 18 + [0] * 4
    rules.act([row], [[*tokenizer("12")["input_ids"], tokenizer.eos_token_id]])
    columns = rules.columns([row], 0, "cpu")
    assert columns["response_mask"][0].tolist() == [1] * 18 + [0] * 4 + [1] * 3
    assert columns["terminated"].tolist() == [True]
    assert plan.task.score(columns["turns"], ["12"], columns["terminated"]).tolist() == [1]
