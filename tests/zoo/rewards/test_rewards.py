"""Rewards: what is right, that bad input has one clear line, and that nothing is executed."""

import contextlib
import itertools
import json
import random
import string
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rlzoo
from rlzoo import RlzooError
from rlzoo.errors import RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.kit import checks
from rlzoo_zoo.rewards import math_verify
from rlzoo_zoo.rewards.exact_match import exact_match
from rlzoo_zoo.rewards.json_schema import json_schema
from rlzoo_zoo.rewards.numeric import last_box, last_number, numeric
from rlzoo_zoo.rewards.python import load
from rlzoo_zoo.rewards.regex import regex

QUICK = settings(derandomize=True, deadline=None, max_examples=60)
SCHEMA = '{"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}}'

# (reward, its options), each as it may stand in a recipe
VERIFIERS = {
    "exact_match": {},
    "numeric": {},
    "regex": {"pattern": r"\b{answer}\b"},
    "math_verify": {},
    "json_schema": {"schema": SCHEMA},
}
HOSTILE = [
    "", " ", "\x00", "\ud800", "٤٢", "\u202e42", "{" * 3000, "(" * 3000, "9" * 6000, "1e999999999",
    "1/0", "9**9**9", "\\boxed{" * 500, "\\frac{1}{", "$" * 50, "NaN", "Infinity", "null",
    "a" * 5000 + "!", '{"a": 1e999}', "[" * 3000 + "]" * 3000, "1,2,3,4/5/6", "-" * 500, "42" * 50,
]  # fmt: skip


def scores(function, responses, answers, **options):
    return function(responses, answers, **options).tolist()


# ---------------------------------------------------------------- every verifier


@pytest.mark.parametrize("name", VERIFIERS)
def test_the_kit_finds_no_fault(name, zoo):
    results = checks.run_checks(zoo.rewards[name], zoo, VERIFIERS[name])
    assert [r for r in results if r.passed is False] == []
    silent = {"groups_matter", "token_texts_belong_to_actions"}
    if name == "json_schema":
        silent.add("right_beats_wrong")  # no answer is JSON, so none is paid
    assert {r.name for r in results if r.passed is None} == silent


def call(zoo, name, responses, answers, **more):
    mask = torch.ones(len(responses), 3)
    columns = {"responses": responses, "answers": answers, "response_mask": mask}
    return zoo.rewards[name](columns, **{**VERIFIERS[name], **more})


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.landing] * (n == "math_verify")) for n in VERIFIERS],
)
def test_hostile_responses_get_a_score_like_any_other(name, zoo):
    more = {"timeout": 2.0} if name == "math_verify" else {}
    began = time.monotonic()
    found = call(zoo, name, HOSTILE, ["7"] * len(HOSTILE), **more)
    assert found.tolist() == [0.0] * len(HOSTILE)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("name", VERIFIERS)
def test_responses_are_never_executed(name, zoo, tmp_path):
    mark = tmp_path / "executed"
    code = f"__import__('os').system('touch {mark}')"
    forms = [code, f"\\boxed{{{code}}}", f"${code}$", f"answer: {code}", f"1+{code}", f"{{{code}}}",
             f'{{"a": {code}}}', f"eval({code!r})", f"().__class__; {code}"]  # fmt: skip
    call(zoo, name, forms, ["1"] * len(forms))
    with contextlib.suppress(ValueError):  # not a number
        call(zoo, name, ["1"] * 2, [code + "1", code + " 1"])  # nor answers
    assert not mark.exists()


@pytest.mark.parametrize("name", VERIFIERS)
def test_each_row_is_judged_by_itself(name, zoo):
    draw = random.Random(0)
    responses = ["42", " 42 ", "so 41", "\\boxed{42}", '{"a": 42}', "é42", "", "x = 42"]
    answers = [42, "42", 42.0, ["7", "42"], "42", "42", "0", "42"]
    whole = call(zoo, name, responses, answers).tolist()
    assert len(set(whole)) == 2
    for _ in range(3):
        order = draw.sample(range(len(answers)), len(answers))
        part = order[: draw.randint(1, len(order))]
        again = call(zoo, name, [responses[i] for i in part], [answers[i] for i in part])
        assert again.tolist() == [whole[i] for i in part]


@pytest.mark.parametrize("name", ["exact_match", "numeric", "regex", "math_verify"])
@pytest.mark.parametrize("answer", [None, {}, [], [None], {"a": 1}, b"42"])
def test_what_is_no_answer_is_an_error(name, answer, zoo, golden):
    with golden.refuses(ValueError):
        call(zoo, name, ["42"], [answer])


# ---------------------------------------------------------------- exact match


def test_exact_match_by_its_declared_normalisation():
    def right(response, answer, **options):
        return bool(exact_match([response], [answer], **options))

    assert right(" 42\n", "42")
    assert not right(" 42\n", "42", strip=False)
    assert right("Yes", "yes", casefold=True)
    assert right("STRASSE", "straße", casefold=True)
    assert not right("Yes", "yes")
    assert right("a \t b", "a b", spaces=True)
    assert not right("a \t b", "a b")
    assert right("e\u0301", "é")  # composed or not
    assert not right("e\u0301", "é", unicode="none")
    assert right("４２", "42", unicode="NFKC")
    assert not right("４２", "42")
    assert right("42", 42)
    assert not right("42", 42.0)
    assert right("True", True)
    assert right("b", ["a", "b"])
    assert not right("c", ["a", "b"])


@QUICK
@given(st.text())
def test_a_text_matches_itself_alone(text):
    assert bool(exact_match([text], [text]))
    assert not bool(exact_match([text + "x"], [text]))


# ---------------------------------------------------------------- numeric


def test_the_last_box():
    assert last_box(r"\boxed{1} then \boxed{\frac{1}{2}} and 7") == r"\frac{1}{2}"
    assert last_box(r"\boxed{\boxed{5}}") == r"\boxed{5}"
    assert last_box(r"\boxed{5} and \boxed{6") == "5"
    assert last_box(r"\fbox{3} }") == "3"
    assert last_box("{5}") is None


def test_which_number_counts():
    both = r"\boxed{5}, that is 7"
    assert scores(numeric, [both] * 2, ["5", "7"]) == [1, 0]
    assert scores(numeric, [both] * 2, ["5", "7"], find="last") == [0, 1]
    assert scores(numeric, [both, "5"], ["5", "5"], find="boxed") == [1, 0]
    assert scores(numeric, [r"\boxed{none} 5"], ["5"]) == [0]


def test_numbers_are_compared_exactly_within_the_tolerance(golden):
    assert scores(numeric, ["0.1", "1/10", "0.10000001"], [0.1] * 3) == [1, 1, 0]
    assert scores(numeric, ["0.3333"], ["1/3"], tolerance=1e-3) == [1]
    assert scores(numeric, ["99", "101.1"], [100, 100], relative=0.01) == [1, 0]
    assert scores(numeric, ["so 42"], [["7", 42]]) == [1]
    with golden.refuses(ValueError):
        numeric(["42"], ["forty"])


@QUICK
@given(st.integers(-(10**12), 10**12), st.integers(0, 4))
def test_separators_change_no_number(number, decimals):
    text = f"{number:,}." + "0" * decimals if decimals else f"{number:,}"
    assert last_number(f"= {text}") == number


# ---------------------------------------------------------------- regular expressions


def test_regex_searches_or_matches_in_full():
    rows = ["<answer> 42 </answer>", "x<answer>42</answer>", "<answer>41</answer>", "42"]
    pattern = r"<answer>\s*{answer}\s*</answer>"
    assert scores(regex, rows, ["42"] * 4, pattern=pattern) == [1, 1, 0, 0]
    assert scores(regex, rows, ["42"] * 4, pattern=pattern, match="full") == [1, 0, 0, 0]
    assert scores(regex, rows, [None] * 4, pattern=r"\d{2}") == [1, 1, 1, 1]  # looks at no answer
    assert scores(regex, ["a+b", "aab"], ["a+b"] * 2, pattern="{answer}") == [1, 0]  # as it is
    assert scores(regex, ["A\nb"] * 2, ["x"] * 2, pattern="a.b") == [0, 0]
    assert scores(regex, ["A\nb"], ["x"], pattern="a.b", ignorecase=True, dotall=True) == [1]
    assert scores(regex, ["no"], [["yes", "no"]], pattern="^{answer}$") == [1]


def test_a_pattern_that_backtracks_is_stopped():
    began = time.monotonic()
    rows = ["a" * 40, "a" * 40 + "b"]
    assert scores(regex, rows, ["", ""], pattern="^(a|aa)+b$", timeout=0.2)[0] == 0
    assert scores(regex, ["ok"], [""], pattern="ok", timeout=0.2) == [1]
    assert time.monotonic() - began < 5


# ---------------------------------------------------------------- mathematics


@pytest.mark.process
def test_math_verify_compares_what_is_meant():
    rows = [
        (r"\boxed{\frac{2}{4}}", "0.5"), ("so x=3", "3"), ("3", "x=3"), (r"$\{2,1\}$", r"\{1,2\}"),
        ("I get 1/2.", r"\frac{1}{2}"), ("42", 42), ("7", ["8", "7"]), ("1,000", "1000"),
    ]  # fmt: skip
    responses, answers = map(list, zip(*rows, strict=True))
    assert scores(math_verify.math_verify, responses, answers) == [1] * len(rows)
    assert scores(math_verify.math_verify, ["41", "none", ""], ["42"] * 3) == [0, 0, 0]


@pytest.mark.landing
@pytest.mark.process
def test_math_verify_works_in_any_thread_and_survives_a_response_without_end():
    found = []
    endless = r"$\sum_{n=1}^{10^{12}} n^{n}$"

    def judge():
        found.append(scores(math_verify.math_verify, [endless, "5", "6"], ["5"] * 3, timeout=1.0))

    threads = [threading.Thread(target=judge) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [[0, 1, 0]] * 2


def test_a_missing_package_is_named(zoo, monkeypatch, golden):
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: None)
    options = {"schema": SCHEMA, "fenced": False}
    for name, given_options in (("math_verify", {"timeout": 1.0}), ("json_schema", options)):
        with golden.refuses(RlzooError):
            zoo.rewards[name].refuse(given_options)


@pytest.mark.parametrize(
    "pattern",
    ["((a{1000}){1000}){100}", "(((a{999}){999}){999}){999}", "(" * 2000 + "a" + ")" * 2000, "(?R)",
     "a(?1)?(b)", "(?&x)(?<x>a)", "[" * 3000, "(?V1)" + "[" * 3000, "a{99999999999999999999}"],
)  # fmt: skip
def test_a_pattern_without_end_is_no_pattern(pattern, zoo, monkeypatch, golden):
    monkeypatch.setattr("rlzoo_zoo.rewards.regex.PATIENCE", 0.4)
    began = time.process_time()
    given = {"match": "search", "ignorecase": False, "dotall": False, "timeout": 1.0}
    with golden.refuses(ValueError) as said:
        zoo.rewards["regex"].refuse({"pattern": pattern, **given})
    assert len(str(said.error)) < 300
    assert time.process_time() - began < 5


def test_repeats_beside_each_other_are_a_pattern(zoo):
    pattern = r"^.{0,2000}x.{0,2000}y.{0,2000}\(?R\) \{1000000\}$"
    assert scores(regex, ["axby(R) {1000000}", "axby"], ["", ""], pattern=pattern) == [1, 0]
    assert scores(regex, ["{9999}{9999}"], ["{9999}{9999}"], pattern="{answer}") == [1]


# ---------------------------------------------------------------- JSON schema


def test_json_schema_accepts_valid_json_alone():
    rows = [
        '{"a": 1}',
        '{"a": 1.5}',
        "{}",
        "not json",
        '{"a": 1} and more',
        '{"a": NaN}',
        "[1]",
        "",
    ]
    assert json_schema(rows, schema=SCHEMA).tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    fenced = ['so:\n```json\n{}\n```\n```json\n{"a": 1}\n```', '{"a": 1}', "```\n{}\n```"]
    assert json_schema(fenced, schema=SCHEMA, fenced=True).tolist() == [1, 0, 0]


def test_json_has_no_infinite_numbers():
    rows = ["1e3", "NaN", "Infinity", "-Infinity", "1e999", "1" * 5000]
    assert json_schema(rows, schema='{"type": "number"}').tolist() == [1, 0, 0, 0, 0, 1]


def test_a_fence_is_json_in_any_case():
    rows = ["```JSON\n1\n```", "```Json \n1\n```", "```yaml\n1\n```"]
    assert json_schema(rows, schema='{"type": "number"}', fenced=True).tolist() == [1, 1, 0]


def test_a_fence_in_a_string_is_a_part_of_it():
    rows = ['```json\n"use ```x``` here"\n```', '```\n"a"```', '```\n"a"\n  ```\nor ```b```']
    assert json_schema(rows, schema='{"type": "string"}', fenced=True).tolist() == [1, 1, 1]


SLOW = ["x", *"abcdefghijklmnopqrstuvwxyz"]
BRANCHING = {n: {"anyOf": [{"$ref": f"#/$defs/{m}"}] * 2} for n, m in itertools.pairwise(SLOW)}


@pytest.mark.parametrize(
    ("schema", "response", "other"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, json.dumps("a" * 34 + "!"), '"aaa"'),
        ({"patternProperties": {"^(a+)+$": {"type": "number"}}}, json.dumps({"a" * 34 + "!": 1}),
         '{"a": 1}'),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
         json.dumps({"a" * 34 + "!": 1}), '{"a": 1}'),
        ({"$ref": "#/$defs/x", "$defs": {**BRANCHING, "z": {"maximum": 1}}}, "2", "1"),
        ({"type": "integer"}, "9" * 3_000_000, "9" * 5000),
    ],
)  # fmt: skip
def test_a_response_that_takes_too_long_scores_nothing(schema, response, other):
    began, schema = time.monotonic(), json.dumps(schema)
    assert json_schema([response, other], schema=schema, timeout=0.5).tolist() == [0, 1]
    assert time.monotonic() - began < 10


def test_a_schema_may_be_a_file(tmp_path):
    file = tmp_path / "form.json"
    file.write_text(SCHEMA)
    assert json_schema(['{"a": 1}', "{}"], schema=str(file)).tolist() == [1, 0]


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "none.json",
        '{"type": "objekt"}',
        '{"type": ',
        '{"$ref": "#/none"}',
        '{"$ref": "http://localhost:1/x.json"}',
        '{"$dynamicRef": "http://localhost:1/x"}',
        '{"pattern": "("}',
        '{"patternProperties": {"[": {}}}',
        '{"not": ' * 2000 + "{}" + "}" * 2000,
        '{"$ref": "#"}',
        '{"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}, "items": '
        '{"$ref": "#/$defs/a"}}',
    ],
)
def test_what_is_no_schema_is_told_before_a_run(schema, golden, zoo):
    with golden.refuses((ValueError, RlzooError)):
        zoo.rewards["json_schema"].refuse({"schema": schema, "fenced": False})


def test_a_schema_that_refers_to_itself_in_a_part_of_the_value_has_an_end():
    tree = (
        '{"type": "object", "properties": {"pattern": {"$ref": "#"}, "b": {"$dynamicRef": "#n"}}, '
        '"additionalProperties": false, "$dynamicAnchor": "n"}'
    )
    rows = ['{"pattern": {"b": {}}}', '{"pattern": 1}', "[" * 5000]
    assert json_schema(rows, schema=tree).tolist() == [1, 0, 0]


# ---------------------------------------------------------------- the user's function


def test_python_names_what_is_not_there(zoo, golden):
    def plan(function):
        words = ["recipe=grpo", "model=nano", "rewards=python"]
        return make_plan(compose([*words, f"rewards.python.function={function}"], zoo), zoo)

    module = "helpers.rewards_for_tests"
    assert plan(f"{module}:letters")
    for function in (f"{module}:leters", "no_such_module:f", module, f"{module}:one_argument"):
        with golden.refuses(RecipeError):
            plan(function)


def test_python_finds_a_module_in_the_current_folder(tmp_path, monkeypatch):
    name = "reward_" + "".join(random.Random(1).choices(string.ascii_lowercase, k=8))
    (tmp_path / f"{name}.py").write_text("def f(prompts, responses, answers):\n    return [1.0]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in __import__("sys").path if p])
    assert load(f"{name}:f")([], [], []) == [1.0]


# ---------------------------------------------------------------- together, in a run


def test_verifiers_are_named_components_with_weights(words, tmp_path):
    asked = ["rewards=[exact_match,numeric,regex]", r"rewards.regex.pattern=\d+$",
             "rewards.regex.weight=0.1", f"run.dir={tmp_path}/run"]  # fmt: skip
    run = rlzoo.run("grpo", [*words, *asked])
    steps = [line for line in run.metrics if "reward/mean" in line]
    assert all(f"score/{name}" in steps[0] for name in ("exact_match", "numeric", "regex"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_reward_is_as_wide_as_the_model(zoo, dtype):
    rows = {"response_mask": torch.ones(2, 3, dtype=dtype), "group_ids": torch.zeros(2).long()}
    rows["response_mask"][1, 2:] = 0
    rows["task_scores"] = torch.tensor([[0, 0, 1 / 3], [0, 0.2, 0]], dtype=dtype)
    found = zoo.rewards["length"](rows)
    m = (rows["task_scores"].sum() / 2).item()
    assert found.dtype == dtype
    assert found.tolist() == pytest.approx([-m, -m * 2 / 3], rel=4 * torch.finfo(dtype).eps)
