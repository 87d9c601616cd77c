"""A task that says it has one answer is held to it."""

import pytest

from helpers.zoo import ZOO
from rlzoo.plugin.component import read_component
from rlzoo_lab.kit import checks


def tasks():
    addition = ZOO.tasks["addition"].function

    class Sloppy(addition):
        """Any response that holds the sum is right.  Source: here."""

        def is_correct(self, responses, answers):
            import torch

            return torch.tensor([a in r for r, a in zip(responses, answers, strict=True)])

    class Wrapped(addition):
        """The answer is the sum, and right is `= 42`.  Source: here."""

        def is_correct(self, responses, answers):
            return super().is_correct(responses, [f"= {a}" for a in answers])

    return {Sloppy: "has one_answer, but other answers are also correct",
            Wrapped: "has one_answer, but Example.answer is wrong"}  # fmt: skip


@pytest.mark.parametrize(("task", "said"), tasks().items())
def test_one_answer_means_one(task, said):
    component = read_component("tasks", task, "a test")
    results = {result.name: result for result in checks.run_checks(component, ZOO)}
    assert results["right_is_right"].message.startswith(said)
