"""The three tasks: what is drawn, what is right, and that a token's pay needs no later token."""

import pytest
import torch

from rlzoo_zoo.tasks.addition import Addition
from rlzoo_zoo.tasks.key_door import KEYS, KeyDoor
from rlzoo_zoo.tasks.reverse import Reverse

ALL = [
    Addition(),
    Addition(digits=1),
    Addition(digits=3, min_digits=1),
    Addition(digits=6),
    Reverse(),
    Reverse(min_length=1, max_length=12),
    KeyDoor(),
    KeyDoor(keys=8, distractors=1),
]
SPLIT = [task for task in ALL if not isinstance(task, KeyDoor)]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(rows, answers, terminated, noise=None, holes=0):
    """Columns of rows of action tokens (EOS is "" at the end of a terminated row).

    holes: so many columns with mask 0 after each row's first action.
    """
    width = max(len(row) for row in rows) + holes + 2
    mask = torch.zeros(len(rows), width)
    for i, row in enumerate(rows):
        mask[i, : len(row) + holes] = 1
        mask[i, 1 : 1 + holes] = 0
    return {
        "responses": ["".join(row) for row in rows],
        "response_tokens": rows,
        "response_mask": mask,
        "answers": answers,
        "terminated": torch.tensor(terminated),
        "noise": torch.full(mask.shape, 0.5) if noise is None else noise,
    }


def score(task, columns):
    names = task.score.__code__.co_varnames[1 : task.score.__code__.co_argcount]
    return task.score(**{name: columns[name] for name in names})


def scored(task, text, answer, terminated=True):
    """The score of one row whose tokens are characters, summed over tokens where there are some."""
    tokens = [*text, ""] if terminated else [*text]
    return score(task, batch([tokens], [answer], [terminated])).sum().item()


@pytest.mark.parametrize("task", SPLIT)
def test_splits_are_disjoint_and_do_not_depend_on_the_seed(task):
    train = {e.prompt for seed in range(3) for e in task.draw("train", 300, rng(seed))}
    test = {e.prompt for seed in range(3, 6) for e in task.draw("test", 300, rng(seed))}
    assert train
    assert test
    assert not train & test


def test_about_one_prompt_in_five_is_held_out():
    train = {e.prompt for e in Addition(digits=1).draw("train", 3000, rng())}
    test = {e.prompt for e in Addition(digits=1).draw("test", 3000, rng())}
    assert len(train) + len(test) == 100
    assert 12 <= len(test) <= 28


@pytest.mark.parametrize("task", ALL)
def test_draws_follow_the_generator_and_indices_name_prompts(task):
    first, again, other = (task.draw("train", 200, rng(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 200
    index_of = {}
    for example in first + other:
        assert index_of.setdefault(example.prompt, example.index) == example.index
        assert 0 <= example.index < 2**63
    assert len(set(index_of.values())) == len(index_of)


def test_answers_are_sums_and_operands_have_their_digits():
    for digits in (1, 2, 3):
        examples = Addition(digits=digits).draw("train", 500, rng())
        pairs = [tuple(map(int, e.prompt[:-1].split("+"))) for e in examples]
        assert [str(a + b) for a, b in pairs] == [e.answer for e in examples]
        assert all(e.prompt == f"{a}+{b}=" for e, (a, b) in zip(examples, pairs, strict=True))
        assert 9 * 10 ** (digits - 1) <= max(max(p) for p in pairs) < 10**digits
        assert abs(sum(map(sum, pairs)) / 1000 - (10**digits - 1) / 2) < 0.06 * 10**digits


def test_lengths_of_reverse_are_uniform(golden):
    examples = Reverse(min_length=2, max_length=4).draw("test", 900, rng())
    assert all(e.prompt == e.answer[::-1] + ">" for e in examples)
    counts = [sum(len(e.answer) == n for e in examples) for n in (2, 3, 4)]
    assert sum(counts) == 900
    assert min(counts) > 240
    with golden.refuses(ValueError):
        Reverse(min_length=6)


@pytest.mark.parametrize("task", ALL)
def test_demonstrations_are_right_and_wrong_and_well_formed(task):
    generator = rng()
    for example in task.draw("train", 100, generator):
        right, wrong = task.demonstrate(example, generator)
        assert task.is_correct([right, wrong], [example.answer] * 2).tolist() == [True, False]
        assert len(right) == len(wrong)
        assert right.isdigit() == wrong.isdigit()
        assert not (wrong[0] == "0" and len(wrong) > 1)


@pytest.mark.parametrize("more", [{}, {"digits": 3, "min_digits": 1}])
def test_additions_are_the_same_however_many_are_asked_for(more):
    task = Addition(**more)
    for split in ("train", "test"):
        one, many = rng(), rng()
        singly = [task.draw(split, 1, one)[0] for _ in range(40)]
        assert singly == task.draw(split, 40, many)
        assert torch.equal(one.get_state(), many.get_state())


@pytest.mark.parametrize(
    ("text", "terminated", "expected"),
    [("42", True, 1), ("42", False, 0), ("43", True, 0), ("042", True, 0), ("", True, 0)],
)
def test_addition_by_hand(text, terminated, expected):
    assert scored(Addition(), text, "42", terminated) == expected


@pytest.mark.parametrize(
    ("text", "terminated", "dense", "sparse"),
    [
        ("cba", True, 1, 1),
        ("cba", False, 3 / 4, 0),
        ("cbx", True, 3 / 4, 0),  # two letters and EOS in its place
        ("xcb", True, 1 / 4, 0),  # shifted: only EOS is in its place
        ("cb", True, 2 / 4, 0),
        ("cbaa", True, 3 / 4, 0),
        ("", True, 0, 0),
    ],
)
def test_reverse_by_hand(text, terminated, dense, sparse):
    assert scored(Reverse(dense=True), text, "cba", terminated) == pytest.approx(dense)
    assert scored(Reverse(), text, "cba", terminated) == sparse


def test_dense_reverse_pays_tokens_of_several_characters_where_they_stand():
    rows = [["cb", "a", ""], ["c", "xa", ""], ["cba", ""], ["cbax", ""]]
    columns = batch(rows, ["cba"] * 4, [True] * 4)
    expected = [[0.5, 0.25, 0.25], [0.25, 0.25, 0.25], [0.75, 0.25, 0], [0.75, 0, 0]]
    assert torch.equal(score(Reverse(dense=True), columns)[:, :3], torch.tensor(expected))


def test_dense_reverse_sums_to_one_exactly_where_it_is_right():
    generator, task = rng(), Reverse(min_length=1, max_length=7, dense=True)
    rows, answers, terminated = [], [], []
    for i, example in enumerate(task.draw("train", 400, generator)):
        text = task.demonstrate(example, generator)[i % 2]
        terminated.append(i % 3 > 0)
        rows.append([*text, ""] if terminated[-1] else [*text])
        answers.append(example.answer)
    columns = batch(rows, answers, terminated)
    sums = score(task, columns).sum(1)
    right = task.is_correct(columns["responses"], answers) & columns["terminated"]
    assert 0 < right.sum() < 400
    assert torch.equal((sums - 1).abs() < 1e-5, right)
    assert torch.equal(score(Reverse(), columns), right.float())


def test_key_door_by_hand():
    task = KeyDoor(distractors=2)
    assert scored(task, "qab", "q") == 1
    assert scored(task, "qab", "q", terminated=False) == 0
    assert scored(task, "mab", "q") == 0
    assert scored(task, "qabc", "q") == 0
    assert scored(task, "qa", "q") == 0
    columns = batch([[*"qab", ""]], ["q"], [True], noise=torch.full((1, 6), 0.841344746))
    assert torch.allclose(score(task, columns), torch.tensor([[0, 0.5, 0.5, 1, 0, 0]]), atol=1e-6)


def test_no_door_is_opened_by_its_own_letter():
    assert len(set(KEYS)) == 8
    assert all(key != door for key, door in zip(KEYS, "abcdefgh", strict=True))


def test_the_noise_of_key_door_has_mean_zero_and_no_token_moves_it():
    task, noise = KeyDoor(distractors=8, sigma=0.5), torch.rand(4000, 12, generator=rng())
    noise[0, :2], noise[1, :2] = 0, 1 - 2.0**-24  # the ends of float32's uniform numbers
    one = score(task, batch([[*"aaaaaaaaa", ""]] * 4000, ["q"] * 4000, [True] * 4000, noise))
    two = score(task, batch([[*"zyxwvutsr", "!"]] * 4000, ["m"] * 4000, [False] * 4000, noise))
    assert torch.equal(one, two)
    assert one.isfinite().all()
    assert torch.equal(one[:, [0, 9, 10, 11]], torch.zeros(4000, 4))
    assert abs(one[:, 1:9].mean()) < 0.01
    assert abs(one[:, 1:9].std() - 0.5) < 0.01


@pytest.mark.parametrize("task", [KeyDoor(distractors=3), Reverse(dense=True)])
@pytest.mark.parametrize("holes", [0, 2])
def test_a_token_is_paid_alike_on_the_prefix_that_ends_with_it(task, holes):
    """What a token environment pays step by step is what the whole response is paid."""
    rows = [[*"qabc", ""], [*"qab", ""], [*"cbaxyz"], [""], ["cb", "xa", ""]]
    answers, done = ["q", "cba", "cba", "q", "cbxa"], [True, True, False, True, True]
    columns = batch(rows, answers, done, torch.rand(5, 8 + holes, generator=rng()), holes)
    whole = score(task, columns)
    assert whole.abs().sum() > 0
    assert torch.equal(whole, whole * columns["response_mask"])
    for steps in range(1, 7):
        prefix = [row[:steps] for row in rows]
        ended = [d and steps >= len(r) for d, r in zip(done, rows, strict=True)]
        part = batch(prefix, answers, ended, columns["noise"], holes)
        mask = torch.zeros(whole.shape)
        mask[:, : part["response_mask"].shape[1]] = part["response_mask"][:, : mask.shape[1]]
        part["response_mask"] = mask
        assert torch.equal(score(task, part), whole * mask)


def test_mixed_difficulty_draws_each_number_of_digits(golden):
    sums = [e.prompt for e in Addition(digits=3, min_digits=1).draw("train", 600, rng())]
    longest = [max(map(len, p.rstrip("=").split("+"))) for p in sums]
    counts = [longest.count(d) for d in (1, 2, 3)]
    assert min(counts) > 120
    with golden.refuses(ValueError):
        Addition(digits=1, min_digits=2)
