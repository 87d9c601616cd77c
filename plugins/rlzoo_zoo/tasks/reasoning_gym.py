"""Tasks of reasoning-gym, by name: made by rule, judged by their own verifiers."""

import ast
import importlib.util
import inspect
import sys
import textwrap
from contextlib import redirect_stdout
from fractions import Fraction
from functools import cache
from operator import add, mul, sub, truediv
from typing import Annotated

import torch
import yaml

from rlzoo import Example, Range, hookimpl
from rlzoo.errors import nearest
from rlzoo_zoo.rewards.regex import compile_pattern
from rlzoo_zoo.tasks.dataset import extract

HELD_OUT = 5  # one item in this many
LONGEST = 10_000  # characters of an answer that are judged


class ReasoningGym:
    """Questions of one of reasoning-gym's data sets; a response is judged by its verifier.

    dataset: its name; size: how many items there are, one in five held out; seed: for the items;
    config: further settings of the data set, a list of `name=value`; template: the prompt, where
    `{question}` stands for the question; answer_pattern: takes the answer out of the response, its
    first group at its last match (with no match the answer is empty), "" takes all of it. Score
    (B,): what the verifier gives, often 0 .. 1 with parts, where the row terminated, else 0; right
    is a score of 1. Some of its verifiers `eval` the answer: here they read literals and plain
    arithmetic instead, and data sets for which that cannot be done are refused. A prompt's index is
    its item's; an item that the rule makes twice may be on both sides. An answer over 10,000
    characters, or at which a verifier fails, scores 0.
    Source: Stojanovski et al. 2025, arXiv:2505.24760.
    """

    def __init__(
        self,
        *,
        dataset: str = "chain_sum",
        size: Annotated[int, Range(2)] = 1000,
        seed: Annotated[int, Range(0)] = 0,
        config: list[str] = [],  # noqa: B006
        template: str = "{question}\n",
        answer_pattern: str = "",
    ):
        if importlib.util.find_spec("reasoning_gym") is None:
            raise ValueError("needs reasoning-gym: pip install 'rlzoo-llm[reasoning-gym]'")
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        if dataset not in DATASETS:
            raise ValueError(f"no data set {dataset!r}{nearest(dataset, DATASETS)}")
        if "{question}" not in template:
            raise ValueError(f"template must hold {{question}}. Got {template!r}")
        compile_pattern(answer_pattern)
        disarm(DATASETS[dataset][0], dataset)
        settings = dict(map(setting, config))
        try:
            self.items = reasoning_gym.create_dataset(dataset, size=size, seed=seed, **settings)
        except (TypeError, ValueError, AssertionError) as error:
            raise ValueError(f"{dataset}: {error}") from None
        self.template, self.answer_pattern = template, answer_pattern
        self.size = len(self.items)
        self.item = cache(self.items.__getitem__)  # some take seconds to make

    def draw(self, split, n, generator):
        held = range(0, self.size, HELD_OUT)
        numbers = held if split == "test" else [i for i in range(self.size) if i % HELD_OUT]
        order: list[int] = []
        while len(order) < n:
            order += torch.randperm(len(numbers), generator=generator).tolist()
        return [self.example(numbers[i]) for i in order[:n]]

    def example(self, number):
        item = self.item(number)
        prompt = self.template.replace("{question}", item["question"])
        return Example(prompt, item["answer"], number)

    def score(self, responses, prompt_index, terminated):
        return torch.where(terminated, self.grade(responses, prompt_index).to(terminated.device), 0)

    def is_correct(self, responses, prompt_index):
        return self.grade(responses, prompt_index) >= 1

    def grade(self, responses, prompt_index):
        pairs = zip(responses, prompt_index.tolist(), strict=True)
        return torch.tensor([self.judge(text, number) for text, number in pairs])  # (B,)

    def judge(self, text, number):
        answer = extract(self.answer_pattern, text) or "" if self.answer_pattern else text.strip()
        if len(answer) > LONGEST:
            return 0.0
        try:
            with redirect_stdout(sys.stderr):  # some print
                score = float(self.items.score_answer(answer, self.item(number)))
        except FAILURES:  # a verifier that expects a form: the response has another
            return 0.0
        return score if 0 <= score <= 1 else 0.0


FAILURES = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError,
    RecursionError, MemoryError, SyntaxError, StopIteration,
)  # fmt: skip


def setting(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"config: expected name=value, got {text!r}")
    return name.strip(), yaml.safe_load(value)


# ---------------------------------------------------------------- nothing is executed


def arithmetic(text):
    """The value of numbers, + - * / and brackets, exactly; ValueError on anything else."""
    steps = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv}

    def value(node):
        if isinstance(node, ast.BinOp) and type(node.op) in steps:
            return steps[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return Fraction(node.value)
        raise ValueError("not arithmetic")

    return value(ast.parse(text.strip(), mode="eval").body)


INSTEAD = {"eval": ast.literal_eval, "parse_expr": arithmetic}
EXECUTES = {*INSTEAD, "exec", "compile", "sympify"}


def disarm(kind, name):
    """Give a verifier's module harmless functions in place of those that execute text; raises
    ValueError where it calls them in another way."""
    if name == "composite":
        raise ValueError(
            "composite mixes data sets that have their own verifiers; choose one of them"
        )
    source = textwrap.dedent(inspect.getsource(kind.score_answer))
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in EXECUTES:
            raise ValueError(f"{name}: its verifier executes responses ({called.attr})")
        if isinstance(called, ast.Name) and called.id in EXECUTES:
            if called.id not in INSTEAD:
                raise ValueError(f"{name}: its verifier executes responses ({called.id})")
            setattr(sys.modules[kind.__module__], called.id, INSTEAD[called.id])


@hookimpl
def register_tasks(register):
    register(ReasoningGym)
