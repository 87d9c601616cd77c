"""Optimizers, and schedules of the learning rate."""

import pytest
import torch
from torch import nn

from rlzoo.errors import ModelError, RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.optimizer import optimizer_of
from rlzoo.step.update import learning_rate


def test_learning_rate_schedules(zoo):
    config = compose(["recipe=grpo", "actor.lr=1.0", "actor.lr_warmup=4",
                      "actor.lr_schedule=linear"], zoo).config.actor  # fmt: skip
    assert [learning_rate(config, s, 0.0) for s in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert learning_rate(config, 9, 0.75) == pytest.approx(0.25)


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.wide, self.head = nn.Embedding(3, 8), nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, ids):
        return self.head(self.wide(self.table(ids)).tanh())


def settings(zoo, *words):
    return compose(["recipe=grpo", "actor.lr=0.01", *words], zoo).config.actor


def trained(optimizers_of):
    """The weights of a toy after three steps of the optimizers that are made for it."""
    toy = Toy()
    optimizers = optimizers_of(toy)
    for step in range(3):
        loss = nn.functional.cross_entropy(toy(torch.tensor([0, 1, 2])), torch.tensor([2, 0, 1]))
        toy.zero_grad()
        (loss * (step + 1)).backward()
        for optimizer in optimizers:
            optimizer.step()
    return dict(toy.named_parameters())


def test_muon_is_torchs_own_for_matrices_and_adamw_for_the_rest(zoo):
    config = settings(zoo, "actor.optimizer=muon")

    def theirs(toy):
        others = [p for n, p in toy.named_parameters() if n != "wide.weight"]
        return [torch.optim.Muon([toy.wide.weight], 0.01, weight_decay=0.0),
                torch.optim.AdamW(others, 0.01, eps=1e-6, weight_decay=0.0)]  # fmt: skip

    expected, found = trained(theirs), trained(lambda toy: [optimizer_of(toy, config)])
    for name, weight in found.items():
        assert torch.equal(weight, expected[name]), name
        assert not torch.equal(weight, Toy().get_parameter(name)), name


def test_muon_of_named_matrices_allows_for_how_a_table_is_stored(zoo):
    config = settings(zoo, "actor.optimizer=muon", "actor.muon=[table, head]")
    optimizer = optimizer_of(toy := Toy(), config)
    scales = {id(p): g.get("scale") for g in optimizer.param_groups for p in g["params"]}
    assert scales[id(toy.table.weight)] == pytest.approx((8 / 3) ** 0.5)  # (3 in, 8 out)
    assert scales[id(toy.head.weight)] == 1
    assert scales[id(toy.wide.weight)] is None


def test_a_name_that_no_matrix_has_is_refused(zoo):
    config = settings(zoo, "actor.optimizer=muon", "actor.muon=[table, wade]")
    with pytest.raises(ModelError) as error:
        optimizer_of(Toy(), config)
    assert "'wade'" in str(error.value)
    assert "wide.weight" in str(error.value)


def test_sgd_is_torchs_own(zoo):
    config = settings(zoo, "actor.optimizer=sgd", "actor.momentum=0.5")
    expected = trained(lambda toy: [torch.optim.SGD(toy.parameters(), 0.01, 0.5)])
    found = trained(lambda toy: [optimizer_of(toy, config)])
    for name, weight in found.items():
        torch.testing.assert_close(weight, expected[name])


@pytest.mark.parametrize(
    "words", [["actor.momentum=0.9"], ["critic.muon=[wide]"], ["actor.optimizer=muon",
              "parallel.strategy=shard"]]
)  # fmt: skip
def test_options_of_another_optimizer_are_refused(zoo, words):
    with pytest.raises(RecipeError) as error:
        make_plan(compose(["recipe=grpo", *words], zoo), zoo)
    assert words[0].split("=")[0] in str(error.value)
