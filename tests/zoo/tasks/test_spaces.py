"""Spaces of gymnasium as text: each kind is played, what cannot be text is refused by name."""

import math
import sys
import types
from fractions import Fraction

import gymnasium
import numpy
import pytest
from gymnasium import spaces

from rlzoo.errors import RlzooError
from rlzoo_zoo.tasks.gymnasium import Gymnasium
from rlzoo_zoo.tasks.spaces import describe, read, shown, written

BIT, TWO = spaces.Discrete(2), spaces.Discrete(3, start=-1)
UNIT = spaces.Box(0, 1, (2,))


class Env(gymnasium.Env):
    """Three turns; observes `observe(turn)`, and keeps the actions."""

    def __init__(self, action, observe=int, reward=1.0, sees=None):
        self.action_space, self.observe, self.reward, self.said = action, observe, reward, []
        self.observation_space = sees or spaces.Discrete(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.observe(0), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.said.append(action)
        self.turn += 1
        return self.observe(self.turn), self.reward, self.turn > 2, False, {}


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))

    def make(*args, **options):
        gymnasium.registry.pop("Own-v0", None)
        gymnasium.register(id="Own-v0", entry_point=lambda **_: Env(*args, **options),
                           disable_env_checker=True)  # fmt: skip
        return Gymnasium(games=["Own-v0"])

    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    return make


ACTIONS = [
    (BIT, "so 1", 1), (BIT, "2", None), (BIT, "-1", None), (BIT, "0.5", None), (BIT, "1.0", 1),
    (BIT, "动作是1。", 1), (BIT, "18, not 1", None), (BIT, "", None), (TWO, "- 1", -1),
    (TWO, "1", 1), (TWO, "2", None), (BIT, "9" * 30, None),
    (spaces.Discrete(2000), "1,024", 1024),
    (spaces.MultiDiscrete([2, 3]), "1 2", [1, 2]), (spaces.MultiDiscrete([2, 3]), "1,2", [1, 2]),
    (spaces.MultiDiscrete([2, 3]), "2 2", None), (spaces.MultiDiscrete([2, 3]), "1", None),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), "[[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
    (spaces.MultiDiscrete([2, 3], start=[1, -5]), "2 -3", [2, -3]),
    (spaces.MultiDiscrete([2, 3], start=[1, -5]), "0 -3", None),
    (spaces.MultiBinary(3), "1 0 1", [1, 0, 1]), (spaces.MultiBinary(3), "1 0 2", None),
    (spaces.MultiBinary([2, 2]), "1 0 0 1", [[1, 0], [0, 1]]),
    (spaces.MultiBinary(3), "1 0 256", None), (spaces.MultiBinary(3), "1 0 -255", None),
    (spaces.Box(-2, 2, (1,)), "0.1234567891", [0.1234567891]),
    (spaces.Box(-2, 2, (1,)), "0.30000000000000004", [0.3]),
    (spaces.Box(-2, 2, (1,)), "2.1", None), (spaces.Box(-2, 2, (1,)), "nan", None),
    (spaces.Box(-2, 2, ()), "−1.5", -1.5), (spaces.Box(-2, 2, ()), "1e-3", 0.001),
    (spaces.Box(-math.inf, math.inf, (1,)), "1e30", [1e30]),
    (spaces.Box(-math.inf, math.inf, (1,)), "1e300", None),
    (spaces.Box(-math.inf, math.inf, (1,), dtype=numpy.float64), "1e300", [1e300]),
    (UNIT, "0.5,0.25", [0.5, 0.25]), (UNIT, "0.1, 7 0.5 1/4", [0.5, 0.25]), (UNIT, "0.5", None),
    (spaces.Box(0, 255, (2,), dtype=numpy.uint8), "0 255", [0, 255]),
    (spaces.Box(0, 255, (2,), dtype=numpy.uint8), "0 256", None),
    (spaces.Box(0, 255, (2,), dtype=numpy.uint8), "0 -1", None),
    (spaces.Box(0, 255, (2,), dtype=numpy.uint8), "0 1.5", None),
    (spaces.Box(numpy.array([0, 5]), numpy.array([1, 9]), dtype=int), "1 7", [1, 7]),
    (spaces.Text(10), "abc", "abc"), (spaces.Text(10), " abc\n", "abc"),
    (spaces.Text(10), "a b", None), (spaces.Text(2), "abc", None),
    (spaces.Text(5, charset="ab "), "a b ", "a b "), (spaces.Text(3), "", None),
]  # fmt: skip


@pytest.mark.parametrize(("space", "text", "action"), ACTIONS)
def test_an_action_is_read_within_its_bounds(space, text, action):
    found = read(space, text)
    if action is None:
        assert found is None
    else:
        assert space.contains(found)
        if isinstance(action, str):
            assert found == action
        else:
            numpy.testing.assert_allclose(found, action, rtol=1e-6)


NESTED = spaces.Dict({"b": spaces.Tuple([BIT, UNIT]), "a": spaces.MultiBinary(2)})


def test_the_numbers_of_nested_spaces_are_in_order():
    found = read(NESTED, "1 0 0 0.5 1")  # keys are sorted by gymnasium
    assert found["a"].tolist() == [1, 0]
    assert found["b"][0] == 0
    assert found["b"][1].tolist() == [0.5, 1]
    assert read(NESTED, "1 0 2 0.5 1") is read(NESTED, "1 0 0 0.5") is None


SPACES = [BIT, TWO, UNIT, NESTED, *{str(a[0]): a[0] for a in ACTIONS[12:]}.values()]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_sampled_action_is_read_as_it_is_written(space):
    space.seed(1)
    for _ in range(20):
        action = space.sample()
        assert written(read(space, written(action))) == written(action)


@pytest.mark.parametrize(
    ("space", "form"),
    [
        (TWO, "a number from -1 to 1"), (UNIT, "2 numbers, each from 0 to 1"),
        (spaces.MultiDiscrete([2, 3]), "2 numbers: from 0 to 1; from 0 to 2"),
        (spaces.Box(-2.5, math.inf, (1,)), "a number from -2.5 to inf"),
        (spaces.Text(7), "a text of 1 to 7 characters"),
        (spaces.MultiBinary(3), "3 numbers, each from 0 to 1"),
        (spaces.Dict({"turn": BIT, "push": UNIT}),
         "3 numbers: push from 0 to 1; push from 0 to 1; turn from 0 to 1"),
    ],
)  # fmt: skip
def test_the_form_of_an_action(space, form):
    assert describe(space) == form


@pytest.mark.parametrize("space", SPACES[3:], ids=str)
def test_each_space_is_played(space, made):
    task = made(space)
    assert describe(space) in task.position("Own-v0 1", ()).text
    space.seed(1)
    move = written(space.sample())
    assert task.position("Own-v0 1", (move, "", move)).rewards == (1, 0, 1)


@pytest.mark.parametrize(
    "space",
    [spaces.Sequence(BIT), spaces.Dict({"a": spaces.Text(3)}), spaces.Tuple([]),
     spaces.Graph(UNIT, UNIT), spaces.OneOf([BIT, UNIT]), spaces.Box(0, 1, (0,))],
    ids=str,
)  # fmt: skip
def test_an_action_that_cannot_be_text_is_refused_by_its_space(space, made, golden):
    with golden.refuses(ValueError) as error:
        made(space)
    assert str(space)[:6] in str(error.error)
    assert len(str(error.error)) < 400


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (7, "7"), (12345, "12345"), (True, "1"), (0.30000000000000004, "0.3"), (1 / 3, "0.3333"),
        (12345.678, "12346"), (math.nan, "nan"), (-math.inf, "-inf"), (1e20, "1e+20"),
        ("a 1", "a 1"),
        (numpy.float32(0.1), "0.1"), (numpy.array([[1, 20000]]), "1 20000"),
        ((1, numpy.array([2.0, 3.5])), "1 2 3.5"), ({"a": 1, "b": (2, [3])}, "a: 1\nb: 2 3"),
        (numpy.array(5), "5"), (10**30, str(10**30)),
    ],
)  # fmt: skip
def test_an_observation_is_shown(observation, text):
    assert shown(observation) == text


def test_a_nan_is_observed_but_not_rewarded(made):
    task = made(BIT, lambda turn: numpy.array([math.nan, turn]))
    assert task.position("Own-v0 1", ("1",)).text == "nan 1"


@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "x", 1j, numpy.ones(2), {}])
def test_a_reward_that_is_no_number_is_refused_at_the_start(made, reward, golden):
    """Not taken for a move at which the game fails: it would be 0 for ever."""
    with golden.refuses((ValueError, RlzooError)):
        made(spaces.Text(1), reward=reward)


@pytest.mark.parametrize(
    ("reset", "step", "said"),
    [
        (numpy.array([7, 8]), (1, 0.5, False, False, {}), "reset"),  # gym's before 0.26
        (0, (1, 0.5, False, False, {}), "reset"),
        ((0, {}), (1, 0.5, False, {}), "step"),  # too
        ((0, {}), (1, 0.5, "False", False, {}), "step"),
        ((0, {}), (1, 0.5, numpy.array([True, False]), False, {}), "step"),
        ((0, {}), (1, 0.5, None, False, {}), "step"),
        ((0, {}), (None, 0.5, True, False, {}), "NoneType"),
        ((0, {}), (1, 0.5, numpy.array([True]), numpy.bool_(False), {}), None),
    ],
)
def test_an_environment_of_another_interface_is_refused(made, monkeypatch, reset, step, said):
    monkeypatch.setattr(Env, "reset", lambda self, **_: reset)
    monkeypatch.setattr(Env, "step", lambda self, action: step)
    if said:
        with pytest.raises((ValueError, RlzooError), match=said):
            made(spaces.Text(1))
    else:
        assert made(spaces.Text(1)).position("Own-v0 1", ("1",)).over


@pytest.mark.parametrize("reward", [numpy.array([0.5]), numpy.float32(0.5), Fraction(1, 2)])
def test_a_reward_of_one_number(made, reward):
    assert made(BIT, reward=reward).position("Own-v0 1", ("1",)).rewards == (0.5,)


def test_an_image_is_refused_before_it_is_a_prompt(made, golden):
    image = spaces.Box(0, 255, (64, 64, 3), dtype=numpy.uint8)
    with golden.refuses(ValueError):
        made(BIT, lambda turn: numpy.zeros((64, 64, 3), numpy.uint8), sees=image)


def test_the_module_of_an_id_is_imported(made, monkeypatch, golden):
    made(BIT)
    monkeypatch.setitem(sys.modules, "own_games", types.ModuleType("own_games"))
    task = Gymnasium(games=["own_games:Own-v0"])
    (example,) = task.draw("train", 1, None)
    assert example.answer.startswith("own_games:Own-v0 ")
    with golden.refuses(ValueError):
        Gymnasium(games=["no_such_games:Own-v0"])
    with golden.refuses(ValueError):
        Gymnasium(games=["own_games:Own-v1"])
