"""Games as conversations: the same from the cache and from the seed, and the same for every row."""

import math
import random
from itertools import pairwise, product

import numpy
import pytest
import torch

import rlzoo
from rlzoo import Example
from rlzoo_zoo.tasks.episodes import Episodes, Position
from rlzoo_zoo.tasks.gymnasium import Gymnasium
from rlzoo_zoo.tasks.players import Demonstrated, either

ONE_PLAYER = ("GuessTheNumber-v0", "FrozenLake-v0", "LightsOut-v0", "PigDice-v0", "Blackjack-v0")
TWO_PLAYERS = ("Nim-v0", "TicTacToe-v0", "KuhnPoker-v0")
ARENA = (*ONE_PLAYER, *TWO_PLAYERS)
GEM = ("game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:Minesweeper-v0-easy")


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


class Dice(Episodes):
    """Rolls by the global generators: `+` adds a roll of Python's, anything else one of numpy's;
    over at 12 or more. Each turn pays its roll."""

    def __init__(self, *, fails="", seed_matters=True, **options):
        self.fails, self.made, self.steps, self.honest = fails, 0, 0, seed_matters
        defaults = {"seeds": 10, "turns": 8, "pays": "turn", "success": 12.0, "stop": "", "held": 8}
        super().__init__(["dice"], **defaults | options)

    def start(self, game, seed):
        self.made += 1
        start = random.randint(1, 6) if self.honest else self.made
        return [start], f"you have {start}"

    def step(self, live, move):
        self.steps += 1
        if move == self.fails:
            raise KeyError(move)
        roll = random.randint(1, 6) if move == "+" else int(numpy.random.randint(1, 7))
        live[0] += roll
        return f"you have {live[0]}", roll, live[0] >= 12

    def moves(self, live, text):
        return ["+", "-"]


def landing(*cases):
    return [pytest.param(case, marks=pytest.mark.landing) for case in cases]


def play(task, answer, said):
    """The turns that follow when the policy plays `said`, and whether the episode is over."""
    turns = []
    for text in said:
        turns.append(text)
        (heard,) = task.respond([turns], [answer])
        if heard is None:
            return turns, True
        turns.append(heard)
    return turns, False


def encoded(turns, terminated, width):
    """turn_ids and response_mask (1, width) with three tokens a turn and two an answer."""
    ids = [[k // 2 + 1] * 3 if k % 2 == 0 else [0] * 2 for k in range(len(turns))]
    row = [i for part in ids for i in part]
    row = torch.tensor([row + [0] * (width - len(row))])
    return {
        "turns": [turns],
        "turn_ids": row,
        "response_mask": (row > 0).float(),
        "terminated": torch.tensor([terminated]),
    }


# ---------------------------------------------------------------- the shared part


def test_one_step_a_turn_from_the_cache_and_a_replay_without_it():
    task = Dice(turns=4)
    task.steps = task.made = 0
    turns, over = play(task, "dice 3", ["+", "-", "+", "-"])
    assert over
    assert task.made == 1
    assert task.steps == len(turns[::2])  # one a turn, none is repeated
    fresh = Dice(turns=4)
    for k in range(1, len(turns), 2):  # each from its history alone, in any order
        assert fresh.respond([turns[:k]], ["dice 3"]) == [turns[k]]
    assert fresh.respond([turns], ["dice 3"]) == [None]


def test_a_row_is_not_disturbed_by_others_nor_by_the_bound_of_the_cache():
    said = [[random.Random(i).choice("+-") for _ in range(6)] for i in range(12)]
    single = [play(Dice(), f"dice {i % 5}", row)[0] for i, row in enumerate(said)]
    task = Dice(held=1)
    for k in range(6):
        for i in reversed(range(len(said))):
            history = single[i][: 2 * k + 1]
            if len(history) == 2 * k + 1:
                (answer,) = task.respond([history], [f"dice {i % 5}"])
                assert answer == (single[i] + [None])[2 * k + 1]
    assert len(task.live) <= 1
    assert len(task.seen) <= 16


def test_branches_of_one_history_are_those_of_separate_games():
    task = Dice()
    for moves in product("+-", repeat=3):
        for k in range(4):
            assert task.position("dice 1", moves[:k]) == Dice().position("dice 1", moves[:k])


def test_the_global_random_state_stays_as_it_was():
    random.seed(5)
    numpy.random.seed(5)
    wanted = random.Random(5).random(), numpy.random.RandomState(5).rand()
    first = play(Dice(), "dice 1", ["+", "-", "-"])
    assert (random.random(), numpy.random.rand()) == wanted
    assert play(Dice(), "dice 1", ["+", "-", "-"]) == first  # which depends on it in no way


def test_scores_per_turn_in_sum_and_of_the_last():
    turns, over = play(Dice(), "dice 2", ["+"] * 8)
    assert over
    totals = [Dice().position("dice 2", ()).text, *turns[1::2]]
    totals = [int(text.split()[-1]) for text in totals]
    rolls = [b - a for a, b in pairwise(totals)]
    last = Dice().position("dice 2", turns[::2]).rewards[-1]
    rolls.append(last)
    columns = encoded(turns, True, 60)
    scores = Dice().score(answers=["dice 2"], **columns)
    assert scores.shape == (1, 60)
    places = [5 * k + 2 for k in range(len(rolls))]  # the third token of each turn
    assert scores[0, places].tolist() == rolls
    assert scores.sum() == sum(rolls)
    assert Dice(pays="sum").score(answers=["dice 2"], **columns).tolist() == [sum(rolls)]
    assert Dice(pays="last").score(answers=["dice 2"], **columns).tolist() == [last]
    assert Dice().is_correct([turns], ["dice 2"]).tolist() == [sum(rolls) >= 12]
    cut = encoded(turns, False, 60)  # the last turn was cut off: it has not been played
    assert Dice().score(answers=["dice 2"], **cut).sum() == sum(rolls[:-1])
    assert Dice(pays="last").score(answers=["dice 2"], **cut).tolist() == [0]


def test_an_episode_ends_after_the_last_turn():
    assert play(Dice(turns=1), "dice 1", ["+", "+"]) == (["+"], True)


def test_a_game_that_depends_on_more_than_its_seed_is_refused(golden):
    with golden.refuses(ValueError):
        Dice(seed_matters=False)


def test_a_move_at_which_the_game_fails_ends_the_episode_without_reward():
    task = Dice(fails="boom")
    with pytest.warns(UserWarning, match="KeyError"):
        turns, over = play(task, "dice 1", ["boom"])
    assert over
    assert task.score(answers=["dice 1"], **encoded(turns, True, 5)).sum() == 0


def test_the_splits_share_no_seed_and_an_index_is_of_one_game_and_seed():
    task = Dice()
    train, test = ({e.answer for e in task.draw(s, 200, rng())} for s in ("train", "test"))
    assert train.isdisjoint(test)
    assert (len(train), len(test)) == (8, 2)
    drawn = task.draw("train", 200, rng(1))
    assert len({(e.answer, e.index) for e in drawn}) == 8
    assert isinstance(drawn[0], Example)


def test_the_state_is_the_observation():
    assert Dice().state_keys([[], ["+", "a"], ["+", "b", "-", "a"]]) == ["", "a", "a"]


# ---------------------------------------------------------------- gymnasium


def test_frozen_lake_by_hand():
    task = Gymnasium(config=["is_slippery=false"])
    (example,) = task.draw("train", 1, rng())
    assert "from 0 to 3" in example.prompt
    right = ["2", "2", "go 1", "1", "1", "2"]
    turns, over = play(task, example.answer, right)
    assert (over, turns[1], turns[3]) == (True, "\n1\n", "\n2\n")
    columns = encoded(turns, True, 40)
    assert task.score(answers=[example.answer], **columns)[0].nonzero().tolist() == [[27]]
    assert task.is_correct([turns], [example.answer]).tolist() == [True]
    for text in ("", "x", "4", "-1", "1.5", "9" * 30):
        assert play(task, example.answer, [text]) == ([text, "\nnot a move\n"], False)
    turns, over = play(task, example.answer, ["2", "1"])  # into a hole
    assert over
    assert not task.is_correct([turns], [example.answer]).item()


def test_a_drawing_keeps_the_mark_of_the_player():
    task = Gymnasium(show="text", config=["is_slippery=false"])
    assert "[S]FFF\nFHFH" in task.position("FrozenLake-v1 1", ()).text
    assert "S[F]FF\nFHFH" in task.position("FrozenLake-v1 1", ("2",)).text


@pytest.mark.parametrize("game", ["FrozenLake-v1", "CartPole-v1", "Blackjack-v1", "Pendulum-v1"])
def test_replays_of_gymnasium(game):
    replay(lambda: Gymnasium(games=[game], turns=12), game, 4)


def test_an_id_that_does_not_exist_offers_the_nearest(golden):
    with golden.refuses(ValueError):
        Gymnasium(games=["FrozenLake-v11"])


def test_a_subclass_with_another_text_and_another_parse():
    class Words(Gymnasium):
        def obs_to_text(self, env, observation):
            return f"row {observation // 4} column {observation % 4}"

        def parse(self, env, text):
            return {"left": 0, "down": 1, "right": 2, "up": 3}.get(text.strip())

        def moves(self, live, text):
            return ["left", "down", "right", "up", "?"]

    task = Words(config=["is_slippery=false"])
    assert play(task, "FrozenLake-v1 1", ["right", "1"])[0][1::2] == [
        "\nrow 0 column 1\n",
        "\nnot a move\n",
    ]


# ---------------------------------------------------------------- libraries of games


def replay(make, game, games):
    """Random games, long and with invalid moves: another task answers the same from each history,
    in another order. The number of turns that were compared."""
    first, second, chooser = make(), make(), random.Random(0)
    told = []
    for i in range(games):
        answer, turns = f"{game} {i}", []
        while len(turns) < 24:
            text = first.position(answer, turns[::2]).text
            choices = first.moves(first.live[answer, *turns[::2]][0], text)
            turns.append(chooser.choice([*choices, "?!", "x" * 50]))
            (heard,) = first.respond([turns], [answer])
            told.append((answer, list(turns), heard))
            if heard is None:
                break
            turns.append(heard)
    chooser.shuffle(told)
    for answer, turns, heard in told:
        assert second.respond([turns], [answer]) == [heard]
        assert second.position(answer, turns[::2]) == first.position(answer, turns[::2])
    return len(told)


@pytest.mark.parametrize("game", ARENA)
def test_replays_of_textarena(game):
    pytest.importorskip("textarena")
    from rlzoo_zoo.tasks.textarena import Textarena

    assert replay(lambda: Textarena(games=[game], turns=12, seat=-1), game, 6) > 10


@pytest.mark.parametrize("game", GEM)
def test_replays_of_gem(game):
    pytest.importorskip("gem")
    from rlzoo_zoo.tasks.gem import Gem

    assert replay(lambda: Gem(games=[game], turns=12), game, 6) > 10


def test_guess_the_number_of_textarena_by_hand():
    pytest.importorskip("textarena")
    from rlzoo_zoo.tasks.textarena import Textarena

    task = Textarena()
    (example,) = task.draw("train", 1, rng())
    low, high, turns = 1, 20, []
    while True:
        turns.append(f"[{(low + high) // 2}]")
        (heard,) = task.respond([turns], [example.answer])
        if heard is None:
            break
        assert turns[-1] not in heard  # only what is new, and not the policy's own move
        low, high = (
            ((low + high) // 2 + 1, high) if "higher" in heard else (low, (low + high) // 2 - 1)
        )
        turns.append(heard)
    assert task.is_correct([turns], [example.answer]).item()
    assert task.score(answers=[example.answer], **encoded(turns, True, 60)).tolist() == [1.0]


def test_the_other_seat_makes_valid_moves_and_the_policy_can_win_and_lose():
    pytest.importorskip("textarena")
    from rlzoo_zoo.tasks.textarena import Textarena

    task = Textarena(games=["Nim-v0"], seat=1, opponent="first")
    ends = set()
    for i in range(30):
        turns, chooser = [], random.Random(i)
        while True:
            turns.append(chooser.choice([f"[{a} {b}]" for a in range(3) for b in (1, 2)]))
            (heard,) = task.respond([turns], [f"Nim-v0 {i}"])
            if heard is None:
                break
            assert "Player 0 attempted" not in heard
            turns.append(heard)
        ends.add(task.score(answers=[f"Nim-v0 {i}"], **encoded(turns, True, 99)).item())
    assert ends == {-1.0, 1.0}


@pytest.mark.parametrize("game", ["GuessTheNumber-v0", "Mastermind-v0", "Nim-v0", "Secretary-v0"])
def test_scripted_players_of_textarena_win_and_chance_does_not(game):
    pytest.importorskip("textarena")
    from rlzoo_zoo.tasks.textarena import Textarena

    demonstrated(Textarena(games=[game]))


@pytest.mark.parametrize("game", ["GuessTheNumber-v0-easy", "Mastermind-v0-easy"])
def test_scripted_players_of_gem_win_and_chance_does_not(game):
    pytest.importorskip("gem")
    from rlzoo_zoo.tasks.gem import Gem

    demonstrated(Gem(games=[f"game:{game}"]))


def demonstrated(task):
    draw = rng()
    for example in task.draw("train", 8, draw):
        right, wrong = task.demonstrate(example, draw)
        assert task.is_correct([right, wrong], [example.answer] * 2).tolist() == [True, False]
        assert play(task, example.answer, right[::2]) == (right, True)


class Coin(Demonstrated):
    """Heads wins, in one move."""

    shown = staticmethod(str)

    def __init__(self, player, chance):
        self.players = {"coin": (player, chance)}

    def domain_of(self, example):
        return "coin"

    def position(self, answer, moves):
        return Position("toss", over=len(moves) == 1)

    def is_correct(self, turns, answers):
        return torch.tensor([t == ["heads"] for t in turns])


def test_demonstrations_are_the_first_game_that_is_won_and_the_first_that_is_lost():
    toss = either("heads", "tails")[0]
    example = Example("toss", "coin 1", 1)
    found = [Coin(toss, toss).both(example, rng(seed)) for seed in range(8)]
    assert found == [(["heads"], ["tails"])] * 8

    def heads(seen, generator):
        return "heads"

    def tails(seen, generator):
        return "tails"

    # A player that may lose shows the game that it lost; where chance cannot lose, its form is "?".
    assert Coin(tails, heads).both(example, rng()) == (["tails"], ["?"])


def test_no_demonstration_without_a_player_or_the_first_move():
    pytest.importorskip("textarena")
    from rlzoo_zoo.tasks.textarena import Textarena

    assert Textarena(games=["Nim-v0"]).demonstrate is not None
    assert Textarena(games=["Nim-v0"], seat=1).demonstrate is None
    assert Textarena(games=["Nim-v0"], success=1.5).demonstrate is None
    assert Textarena(games=["Nim-v0", "FrozenLake-v0"]).demonstrate is None


def test_no_demonstration_where_the_last_reward_is_a_part_of_a_win():
    pytest.importorskip("gem")
    from rlzoo_zoo.tasks.gem import Gem

    whole, part = "game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy"
    has = [Gem(games=[g], pays=p).demonstrate for g in (whole, part) for p in ("sum", "last")]
    assert [x is not None for x in has] == [True, True, True, False]


def test_lines_keeps_the_last_lines_of_what_is_heard_and_changes_no_game():
    pytest.importorskip("textarena")
    from rlzoo_zoo.tasks.textarena import Textarena

    short, whole = (Textarena(games=["Nim-v0"], lines=n) for n in (3, 0))
    (example,) = short.draw("train", 1, rng())
    assert example.prompt == "\n  pile 0: 3\n  pile 1: 4\n  pile 2: 5\n"
    (heard,), (all_of_it,) = (t.respond([["[0 1]"]], [example.answer]) for t in (short, whole))
    assert heard.count("\n") == 4
    assert all_of_it.endswith(heard)
    assert len(all_of_it) > len(heard)


def test_a_game_that_cannot_start_is_refused_with_a_line():
    pytest.importorskip("textarena")
    from rlzoo_zoo.tasks.textarena import Textarena

    with pytest.raises(ValueError, match="Nim-v0"):
        Textarena(games=["Nim-v9"])


# ---------------------------------------------------------------- in a recipe


@pytest.mark.parametrize("recipe", ["gigpo", *landing("turn_gae", "turn_clip", "grpo")])
def test_recipes_of_turns_take_a_game(zoo, recipe):
    words = ["task=gymnasium", "model=turns", "task.turns=4", "task.stop=' '"]
    words += ["rollout.max_new_tokens=24", "rollout.prompts=2", "rollout.samples=2"]
    trainer = rlzoo.open_recipe(recipe, words, zoo=zoo)
    batch, metrics = trainer.step()
    assert batch["scores"].shape == batch["response_mask"].shape
    assert batch["turn_ids"].max() > 1
    assert math.isfinite(metrics["actor/pg_loss"])
