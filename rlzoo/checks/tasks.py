"""Checks of tasks: objects that draw prompts and score responses."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from rlzoo.checks.made_up import Columns
from rlzoo.checks.subject import NotApplicable, Subject, others, show
from rlzoo.component import Example, RlzooError, needs_of

PROMPTS = 12
SPLITS = ("train", "test")
MOST = 64  # tokens of a made-up response


def made_as_declared(s: Subject) -> None:
    """Its options alone make it, and it has `draw` and `score`."""
    for options, task in _made(s):
        for method in ("draw", "score"):
            assert callable(getattr(task, method, None)), f"has no method {method!r}{show(options)}"


def draws_by_the_generator(s: Subject) -> None:
    """The generator alone decides what is drawn: n Examples of either split, the same again."""
    for options, task in _made(s):
        for split in SPLITS:
            before = torch.get_rng_state()
            drawn, again = _draw(task, split), _draw(task, split)
            assert torch.equal(before, torch.get_rng_state()), "draws from the global generator"
            assert drawn == again, f"draws other {split} prompts from the same generator"
            assert len(drawn) == PROMPTS, f"draws {len(drawn)} of {PROMPTS} prompts{show(options)}"
            for example in drawn:
                right = isinstance(example, Example) and isinstance(example.prompt, str)
                assert right, f"draws {type(example).__name__}, not rlzoo.Example(prompt, ...)"
            assert task.draw(split, 0, torch.Generator()) == [], "draws something when asked for 0"


def scores_are_finite(s: Subject) -> None:
    """(B,) or (B, T), finite, of right, wrong, empty and truncated responses alike."""
    for options, task, columns in _answered(s):
        scores = _score(task, columns)
        shape = tuple(columns["response_mask"].shape)
        assert tuple(scores.shape) in (shape, shape[:1]), (
            f"scores are {tuple(scores.shape)}, not (B,) or (B, T) = {shape}{show(options)}"
        )
        assert scores.is_floating_point(), f"scores are {scores.dtype}, not a float{show(options)}"
        assert bool(torch.isfinite(scores).all()), f"scores are not finite{show(options)}"
        if scores.ndim == 2:
            off = scores[~columns["response_mask"].bool()]
            assert not off.any(), f"scores tokens where no action is{show(options)}: misplaced?"


def scores_repeat(s: Subject) -> None:
    """The same responses get the same scores, in any order of rows; inputs stay as they were."""
    for options, task, columns in _answered(s):
        order = torch.randperm(len(columns["answers"]), generator=torch.Generator().manual_seed(0))
        before = torch.get_rng_state()
        fresh = deepcopy(columns)
        scores = _score(task, columns)
        for name in needs_of(task.score):
            x, y = columns[name], fresh[name]
            equal = torch.equal(x, y) if isinstance(x, Tensor) else x == y
            assert equal, f"score changes its input {name!r} in place{show(options)}"
        assert torch.equal(before, torch.get_rng_state()), "score draws random numbers"
        assert torch.equal(scores, _score(task, fresh)), (
            f"scores differ when repeated{show(options)}"
        )
        shuffled = {
            n: x[order] if isinstance(x, Tensor) else [x[i] for i in order.tolist()]
            for n, x in columns.items()
        }
        assert torch.equal(scores[order], _score(task, shuffled)), (
            f"the score of a response depends on the other rows{show(options)}"
        )


def scores_are_causal(s: Subject) -> None:
    """A score per token needs no later token: cut the response, and what was paid stays paid."""
    per_token = False
    for options, task, columns in _answered(s):
        scores = _score(task, columns)
        if scores.ndim == 1:
            continue
        per_token = True
        for width in range(columns["response_mask"].shape[1]):
            cut = _score(task, _prefix(columns, width))[:, :width]
            gap = (cut - scores[:, :width]).abs()
            assert not gap.numel() or float(gap.max()) < 1e-6, (
                f"the score of a token depends on later tokens{show(options)}: one too early?"
            )
    if not per_token:
        raise NotApplicable("scores whole responses")


def padding_is_not_scored(s: Subject) -> None:
    """A wider batch scores alike: appended padding changes nothing."""
    for options, task, columns in _answered(s):
        steps = columns["response_mask"].shape[1]
        wide = {
            n: torch.nn.functional.pad(x, (0, 5)) if isinstance(x, Tensor) and x.ndim == 2 else x
            for n, x in columns.items()
        }
        scores, wider = _score(task, columns), _score(task, wide)
        wider = wider[:, :steps] if wider.ndim == 2 else wider
        assert torch.equal(scores, wider), f"scores padding{show(options)}"


def right_is_right(s: Subject) -> None:
    """`is_correct` is a bool per response; what `demonstrate` calls right is, and scores more."""
    for options, task, columns in _answered(s):
        columns["noise"] = 0.5 * columns["response_mask"]  # its median: no luck in the scores
        if not hasattr(task, "is_correct"):
            raise NotApplicable("has no notion of right")
        correct = task.is_correct(*(columns[n] for n in needs_of(task.is_correct)))
        assert isinstance(correct, Tensor), f"is_correct gives {type(correct).__name__}, no tensor"
        assert correct.dtype == torch.bool, f"is_correct gives {correct.dtype}, not bool"
        assert correct.shape == (len(columns["answers"]),), "is_correct is not (B,)"
        if not hasattr(task, "demonstrate"):
            continue
        kinds = columns["kinds"]
        scores = _score(task, columns)
        total = scores.sum(-1) if scores.ndim == 2 else scores
        right, wrong = kinds == 0, kinds == 1
        assert bool(correct[right].all()), f"its right demonstrations are wrong{show(options)}"
        assert not correct[wrong].any(), f"its wrong demonstrations are right{show(options)}"
        assert float(total[right].mean()) > float(total[wrong].mean()), (
            f"right responses score no more than wrong ones{show(options)}"
        )


# ---------------------------------------------------------------- helpers


def _made(s: Subject) -> Iterator[tuple[dict, Any]]:
    """The task at its defaults, then with each option changed."""
    try:
        yield {}, s.component()
    except (RlzooError, ImportError) as error:
        raise NotApplicable(f"not to be had here: {error}") from None
    for name, option in s.component.options.items():
        for value in others(option):
            try:
                yield {name: value}, s.component(**{name: value})
            except (RlzooError, ValueError):  # options that only go together
                continue


def _draw(task: Any, split: str) -> list[Example]:
    return task.draw(split, PROMPTS, torch.Generator().manual_seed(0))


def _score(task: Any, columns: Columns) -> Tensor:
    return torch.as_tensor(task.score(*(columns[name] for name in needs_of(task.score))))


def _answered(s: Subject) -> Iterator[tuple[dict, Any, Columns]]:
    """Options, task, and drawn prompts with right, wrong, empty and cut-off responses."""
    for options, task in _made(s):
        draw = torch.Generator().manual_seed(1)
        examples = _draw(task, "train")
        texts, kinds = [], []
        for i, example in enumerate(examples):
            right, wrong = str(example.answer), "?" + str(example.answer)
            if hasattr(task, "demonstrate"):
                right, wrong = task.demonstrate(example, draw)
            kinds.append(i % 5)  # right, wrong, empty, right but cut off, not even begun
            texts.append((right, wrong, "", right, "")[i % 5][: MOST - 1])
        columns = _encoded(examples, texts, torch.tensor(kinds))
        unknown = [n for n in needs_of(task.score) if n not in columns]
        if unknown:
            raise NotApplicable(f"scores by {', '.join(unknown)}, which only a run has")
        yield options, task, columns


def _encoded(examples: list[Example], texts: list[str], kinds: Tensor) -> Columns:
    """Rollout columns as if each character were a token; kinds 0 to 2 end with EOS."""
    terminated = kinds < 3
    tokens = [
        [*text, *([""] if end else [])]
        for text, end in zip(texts, terminated.tolist(), strict=True)
    ]
    length = torch.tensor([len(row) for row in tokens])
    steps = int(length.max()) + 2
    mask = (torch.arange(steps) < length[:, None]).to(torch.float32)
    ids = torch.zeros(len(tokens), steps, dtype=torch.long)
    for row, texts_of_row in enumerate(tokens):
        for t, token in enumerate(texts_of_row):
            ids[row, t] = ord(token) if token else 1
    noise = torch.rand(mask.shape, generator=torch.Generator().manual_seed(2))
    return {
        "kinds": kinds,
        "prompts": [e.prompt for e in examples],
        "answers": [e.answer for e in examples],
        "prompt_index": torch.tensor([e.index for e in examples]),
        "responses": texts,
        "response_tokens": tokens,
        "response_ids": ids,
        "response_mask": mask,
        "response_attention": mask.clone(),
        "terminated": terminated,
        "truncated": ~terminated,
        "noise": noise * mask,
    }


def _prefix(columns: Columns, width: int) -> Columns:
    """The batch as it was after `width` tokens: a row that had not ended has not ended."""
    cut = {
        n: x[:, :width] if isinstance(x, Tensor) and x.ndim == 2 else x for n, x in columns.items()
    }
    ended = columns["response_mask"].sum(1) <= width
    cut["terminated"] = columns["terminated"] & ended
    cut["truncated"] = ~cut["terminated"]
    cut["response_tokens"] = [row[:width] for row in columns["response_tokens"]]
    cut["responses"] = ["".join(row) for row in cut["response_tokens"]]
    return cut


ALL = (
    made_as_declared, draws_by_the_generator, scores_are_finite, scores_repeat, scores_are_causal,
    padding_is_not_scored, right_is_right,
)  # fmt: skip
