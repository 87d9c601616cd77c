"""Checks of tasks: objects that draw prompts and score responses."""

from collections.abc import Callable, Hashable, Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rlzoo.errors import RlzooError, nearest
from rlzoo.mdp.batch import take
from rlzoo.mdp.rules import demonstration, draw_examples
from rlzoo.plugin.border import needs_of
from rlzoo.plugin.columns import COLUMNS, RESOURCES
from rlzoo.plugin.component import Example
from rlzoo.plugin.protocols import abilities
from rlzoo_lab.kit.checks.made_up import Columns
from rlzoo_lab.kit.checks.subject import (
    NotApplicable,
    Subject,
    dice,
    equal,
    others,
    small,
    thrown,
)

PROMPTS = 12
MANY = 200
SPLITS = ("train", "test")
MOST = 64  # tokens of a made-up response


def made_as_declared(s: Subject) -> None:
    """It can be made from its options, and it has `draw` and `score`."""
    for task in _made(s):
        for method in ("draw", "score"):
            assert callable(getattr(task, method, None)), f"has no method {method!r}"


def draws_by_the_generator(s: Subject) -> None:
    """The n Examples drawn from either split depend on the generator, and on nothing else."""
    for task in _made(s):
        for split in SPLITS:
            before = thrown()
            drawn, again, other = (_draw(s, task, split, seed) for seed in (0, 0, 1))
            assert before == dice(), "draws from the global generator"
            assert drawn == again, f"draws different {split} prompts from the same generator"
            # Python salts the hash of a text; draws are the same in every process.
            with patch("builtins.hash", lambda x: hash((x,)) ^ 1):
                salted = _draw(s, task, split)
            assert drawn == salted, (
                "draws by hash(), which differs between processes; use zlib.crc32"
            )
            several = len({str(e.prompt) for e in drawn}) == PROMPTS
            ignored = split == "train" and several and drawn == other
            assert not ignored, "draws the same prompts from every generator"
            assert not list(task.draw(split, 0, torch.Generator())), "draws prompts for n = 0"


def holds_prompts_out(s: Subject) -> None:
    """No training prompt is a held-out one, unless there are only a few."""
    task = next(_made(s))
    train, test = ({str(e[:2]) for e in _draw(s, task, split, n=MANY)} for split in SPLITS)
    if len(train) < MANY // 4:
        raise NotApplicable("draws few different prompts")
    both = len(train & test)
    assert both <= len(test) // 4, f"{both} of {len(test)} held-out prompts are training prompts"


def scores_are_finite(s: Subject) -> None:
    """Scores are (B,) or (B, T) and finite for correct, wrong, empty and truncated responses."""
    for task, columns in _answered(s):
        scores = _score(task, columns)
        shape = tuple(columns["response_mask"].shape)
        fits = tuple(scores.shape) in (shape, shape[:1])
        assert fits, f"scores have shape {tuple(scores.shape)}, not (B,) or (B, T) = {shape}"
        assert scores.is_floating_point(), f"scores are {scores.dtype}, not a float"
        assert bool(torch.isfinite(scores).all()), "scores are not finite"
        if scores.ndim == 2:
            off = scores[~columns["response_mask"].bool()]
            assert not off.any(), "scores tokens that are not actions: are scores misplaced?"


def scores_repeat(s: Subject) -> None:
    """The same responses get the same scores in any order of rows, and inputs do not change."""
    for task, columns in _answered(s):
        order = torch.randperm(len(columns["answers"]), generator=torch.Generator().manual_seed(0))
        before = thrown()
        fresh = deepcopy(columns)
        scores = _score(task, columns)
        for name in needs_of(task.score):
            unchanged = equal(columns[name], fresh[name])
            assert unchanged, f"score changes its input {name!r} in place"
        assert before == dice(), "score draws random numbers"
        assert torch.equal(scores, _score(task, fresh)), "scores differ when repeated"
        shuffled = _score(task, take(columns, order))
        assert torch.equal(scores[order], shuffled), "a response's score depends on other rows"


def scores_are_causal(s: Subject) -> None:
    """A score per token does not depend on later tokens: cutting the response changes none."""
    per_token = False
    for task, columns in _answered(s):
        scores = _score(task, columns)
        if scores.ndim == 1:
            continue
        if abilities(task).respond:
            raise NotApplicable("a conversation, which the environment scores step by step")
        per_token = True
        fault = "the score of a token depends on later tokens: off by one?"
        for width in range(1, columns["response_mask"].shape[1]):
            cut = _score(task, _prefix(columns, width))
            small(cut[:, :width] - scores[:, :width], 1e-6, fault)
    if not per_token:
        raise NotApplicable("scores whole responses")


def answers_row_by_row(s: Subject) -> None:
    """`respond` and `state_keys` answer each row by itself and always in the same way."""
    for task, columns in _answered(s):
        has = abilities(task)
        if not has.respond:
            raise NotApplicable("is not a conversation")
        stops = has.stops
        fits = isinstance(stops, tuple) and all(isinstance(x, str) and x for x in stops)
        assert fits, f"stops must be a tuple of non-empty strings. Got {stops!r}"
        examples = _draw(s, task, "train")
        said = [(e, ["?!"]) for e in examples]
        for e, turns in zip(examples, columns["turns"], strict=True):
            said += [(e, turns[:k]) for k in range(1, len(turns) + 1, 2)]
        begun = [(e, turns[:k]) for e, turns in said for k in range(0, len(turns), 2)]
        _each_by_itself(has.respond, "respond", said, (str, type(None)))
        if has.state_keys:
            _each_by_itself(has.state_keys, "state_keys", begun, Hashable)


def _each_by_itself(
    method: Callable[..., list[Any]], name: str, rows: list[tuple[Example, list[str]]], kind: Any
) -> None:
    given = _told([e for e, _ in rows], [turns for _, turns in rows])

    def call(index: list[int]) -> list[Any]:
        return _call(method, take(given, torch.tensor(index)))

    before, fresh = thrown(), deepcopy(given)
    answers = call(list(range(len(rows))))
    assert isinstance(answers, list), f"{name} returns {type(answers).__name__}, not a list"
    assert len(answers) == len(rows), f"{name} returns {len(answers)} entries for {len(rows)} rows"
    for answer in answers:
        assert isinstance(answer, kind), f"{name} gives {type(answer).__name__}"
    assert before == dice(), f"{name} draws random numbers"
    assert given["turns"] == fresh["turns"], f"{name} changes its input 'turns' in place"
    alone = [call([i])[0] for i in reversed(range(len(rows)))][::-1]
    assert alone == answers, f"the result of {name} for a row depends on the other rows"


def right_is_right(s: Subject) -> None:
    """`is_correct` is a bool per response, agrees with `demonstrate`, and has higher scores."""
    for task, columns in _answered(s):
        columns["noise"] = 0.5 * columns["response_mask"]  # its median: no luck in the scores
        has = abilities(task)
        if not has.is_correct:
            raise NotApplicable("has no is_correct")
        correct = _call(has.is_correct, columns)
        kind = getattr(correct, "dtype", type(correct).__name__)
        assert kind == torch.bool, f"is_correct returns {kind}, not a tensor of bool"
        assert correct.shape == (len(columns["answers"]),), "is_correct does not have shape (B,)"
        kinds = columns["kinds"]
        if has.one_answer:
            # The answer itself, for demonstrations may be of several.
            said = [str(a) for a in columns["answers"]]
            given = columns | {"responses": said, "turns": [[text] for text in said]}
            marks = _call(has.is_correct, given)
            assert bool(marks.all()), "has one_answer, but Example.answer is wrong"
            given = given | {"responses": [f"{text} " for text in said]}
            marks = _call(has.is_correct, given)
            assert not marks.any(), "has one_answer, but other answers are also correct"
        if not has.demonstrate:
            continue
        scores = _score(task, columns)
        total = scores.sum(-1) if scores.ndim == 2 else scores
        right, wrong = kinds == 0, kinds == 1
        assert bool(correct[right].all()), "is_correct rejects its correct demonstrations"
        assert not correct[wrong].any(), "is_correct accepts its wrong demonstrations"
        gap = float(total[right].mean() - total[wrong].mean())
        assert gap > 0, "correct responses do not score higher than wrong ones"


def _made(s: Subject) -> Iterator[Any]:
    """The task at its defaults, then with each option changed."""
    try:
        yield s.component()
    except (RlzooError, ImportError) as error:
        raise NotApplicable(f"not available here: {error}") from None
    except ValueError as error:
        if any(o.default == "" for o in s.component.options.values()):  # one that must be set
            raise NotApplicable(f"requires options to be set: {error}") from None
        raise
    for name, option in s.component.options.items():
        for value in others(option):
            s.options = {name: value}
            try:
                yield s.component(**s.options)
            except (RlzooError, ValueError):  # options that only go together
                continue
    s.options = {}


def _draw(s: Subject, task: Any, split: str, seed: int = 0, n: int = PROMPTS) -> list[Example]:
    return draw_examples(task, s.component.name, split, n, torch.Generator().manual_seed(seed))


def _score(task: Any, columns: Columns) -> Tensor:
    return torch.as_tensor(_call(task.score, columns))


def _call(method: Callable[..., Any], columns: Columns) -> Any:
    """A task's method on the columns that it needs."""
    return method(*(columns[name] for name in needs_of(method)))


def _answered(s: Subject) -> Iterator[tuple[Any, Columns]]:
    """The task, and drawn prompts with right, wrong, empty and cut-off responses."""
    for task in _made(s):
        draw = torch.Generator().manual_seed(1)
        examples = _draw(s, task, "train")
        rows, kinds = [], []
        for i, example in enumerate(examples):
            right, wrong = [str(example.answer)], ["?" + str(example.answer)]
            if abilities(task).demonstrate:
                pair = demonstration(task, s.component.name, example, draw)
                right, wrong = ([x] if isinstance(x, str) else x[::2] for x in pair)
            kind = i % 5  # right, wrong, empty, right but cut off, not even begun
            turns, over = _talk(task, example, (right, wrong, [""], right, [])[kind])
            if kind == 3 and len(turns) % 2:
                over = False  # the last turn has no end
            kinds.append(kind)
            rows.append((turns, over))
        columns = encoded(examples, rows, abilities(task).stops, torch.tensor(kinds))
        unknown = [n for n in needs_of(task.score) if n not in columns]
        known = {**COLUMNS, **RESOURCES, **s.zoo.columns}
        for name in unknown:
            assert name in known, f"score: there is no column {name!r}{nearest(name, known)}"
        if unknown:
            raise NotApplicable(f"scores with {', '.join(unknown)}, which exists only in a run")
        yield task, columns


def _talk(task: Any, example: Example, said: list[str]) -> tuple[list[str], bool]:
    """The turns that follow the policy's `said`, and whether the episode is over."""
    turns: list[str] = []
    for text in said:
        turns.append(text[: MOST - 1])
        told, respond = _told([example], [turns]), abilities(task).respond
        (answer,) = _call(respond, told) if respond else (None,)
        if not isinstance(answer, str):
            return turns, True
        turns.append(answer)
    return turns, False


def _told(examples: list[Example], turns: list[list[str]]) -> Columns:
    """The environment's arguments for some rows."""
    talks = [[{"role": "user", "content": e.prompt}] if isinstance(e.prompt, str) else e.prompt
             for e in examples]  # fmt: skip
    return {
        "prompts": ["\n".join(m["content"] for m in talk) for talk in talks],
        "messages": talks,
        "answers": [e.answer for e in examples],
        "prompt_index": torch.tensor([e.index for e in examples]),
        "turns": deepcopy(turns),
    }


def encoded(
    examples: list[Example],
    rows: list[tuple[list[str], bool]],
    stops: tuple[str, ...],
    kinds: Tensor,
) -> Columns:
    """Rollout columns as if each character were a token, of (turns, whether it is over)."""
    tokens = [_tokens(turns, over, stops) for turns, over in rows]
    steps = max(len(row) for row in tokens) + 2
    mask, ids, attention, turn_ids = (torch.zeros(len(tokens), steps) for _ in range(4))
    for row, said in enumerate(tokens):
        for t, (token, turn) in enumerate(said):
            ids[row, t] = ord(token) if token else 1
            turn_ids[row, t], mask[row, t], attention[row, t] = turn, turn > 0, 1
    noise = torch.rand(mask.shape, generator=torch.Generator().manual_seed(2))
    terminated = torch.tensor([over for _, over in rows])
    return _told(examples, [turns for turns, _ in rows]) | {
        "kinds": kinds,
        "responses": ["".join(turns) for turns, _ in rows],
        "response_tokens": [[token for token, turn in said if turn] for said in tokens],
        "response_ids": ids.long(),
        "response_mask": mask,
        "response_attention": attention,
        "turn_ids": turn_ids.long(),
        "terminated": terminated,
        "truncated": ~terminated,
        "noise": noise * mask,
    }


def _tokens(turns: list[str], over: bool, stops: tuple[str, ...]) -> list[tuple[str, int]]:
    """(character, turn of the policy or 0) of a row; EOS, "", ends a turn that no stop ends."""
    tokens: list[tuple[str, int]] = []
    for k, text in enumerate(turns):
        turn = k // 2 + 1 if k % 2 == 0 else 0
        tokens += [(char, turn) for char in text]
        ends = over or k + 1 < len(turns)
        if turn and ends and not text.endswith(stops):
            tokens.append(("", turn))
    return tokens


def _prefix(columns: Columns, width: int) -> Columns:
    """The batch as it was after `width` tokens: a row that had not ended has not ended."""
    two = {n: x for n, x in columns.items() if isinstance(x, Tensor) and x.ndim == 2}
    cut = columns | {name: x[:, :width] for name, x in two.items()}
    ended = columns["response_mask"].sum(1) <= width
    cut["terminated"] = columns["terminated"] & ended
    cut["truncated"] = ~cut["terminated"]
    cut["response_tokens"] = [row[:width] for row in columns["response_tokens"]]
    cut["responses"] = ["".join(row) for row in cut["response_tokens"]]
    return cut


ALL = (
    made_as_declared, draws_by_the_generator, holds_prompts_out, scores_are_finite, scores_repeat,
    scores_are_causal, right_is_right, answers_row_by_row,
)  # fmt: skip
