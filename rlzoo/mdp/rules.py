"""The rules of the token MDP: which prompts begin an episode, when it ends, and how it is scored.

The environment applies them token by token, and the sampler to whole responses.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import groupby, islice
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from rlzoo.errors import ComponentError, RlzooError, out_of_memory
from rlzoo.format.text import readable, spaced
from rlzoo.ops import at_last_action, masked_sum
from rlzoo.plugin.border import border, needs_of, told, watched
from rlzoo.plugin.call import call, own, scores, zero_off_mask
from rlzoo.plugin.columns import Columns
from rlzoo.plugin.component import Example
from rlzoo.plugin.protocols import Split, Task, Tokenizer, abilities
from rlzoo.recipe.plan import Plan

T = TypeVar("T")

Scorer = Callable[[Columns], Tensor]  # (B,) for outcomes, or (B, T)

PLAIN = (str, int, float, type(None))  # bools are ints


def draw_examples(
    task: Task, name: str, split: str, n: int, generator: torch.Generator
) -> list[Example]:
    """n examples of a task; raises ComponentError, naming the task, if it returns anything else."""
    label = f"task {name!r}: draw"
    with border(label):
        drawn = list(islice(task.draw(cast(Split, split), n, generator), n + 1))
    if len(drawn) != n:
        got = "more" if len(drawn) > n else len(drawn)
        raise ComponentError(f"{label} returned {got} {split} prompts instead of {n}")
    examples = []
    for item in drawn:
        if not isinstance(item, tuple | list) or not 1 <= len(item) <= 3:
            raise ComponentError(
                f"{label} returned {type(item).__name__}, not rlzoo.Example(prompt, answer, index)"
            )
        prompt, answer, index = Example(*item)
        if not isinstance(prompt, str) and not (
            isinstance(prompt, list | tuple)
            and prompt
            and all(isinstance(m, Mapping) and {"role", "content"} <= m.keys() for m in prompt)
        ):
            raise ComponentError(
                f"{label}: a prompt must be a string, or a list of messages with role and content. "
                f"Got {prompt!r}"
            )
        if not _is_plain(answer):
            raise ComponentError(
                f"{label}: an answer must be a string, a number, or lists and mappings of these, "
                f"so that it can be saved. Got {answer!r} for the prompt {prompt!r}"
            )
        if not hasattr(index, "__index__") or not -(2**63) <= operator.index(index) < 2**63:
            raise ComponentError(f"{label}: an index must be a 64-bit int. Got {index!r}")
        examples.append(Example(prompt, answer, operator.index(index)))
    return examples


def demonstration(task: Task, name: str, example: Example, generator: torch.Generator) -> Any:
    """(right, wrong) of a task's `demonstrate`, each a text or a list of turns; raises
    ComponentError, naming the task, if it returns anything else."""
    label, demonstrate = f"task {name!r}: demonstrate", abilities(task).demonstrate
    assert demonstrate is not None
    with border(label):
        pair = demonstrate(example, generator)
    fits = isinstance(pair, tuple | list) and len(pair) == 2
    if not fits or not all(
        isinstance(t, str) for x in pair for t in ([x] if isinstance(x, str) else x)
    ):
        raise ComponentError(f"{label} returned {pair!r}, not (right, wrong), as texts or turns")
    return pair


def _is_plain(x: object) -> bool:
    if isinstance(x, PLAIN):
        return True
    if isinstance(x, list | tuple):
        return all(map(_is_plain, x))
    return isinstance(x, dict) and all(isinstance(k, PLAIN) and _is_plain(v) for k, v in x.items())


def transition(
    tokens: Tensor, positions: Tensor, eos_ids: list[int], limit: int | Tensor, least: int = 0
):
    """(terminated, truncated) after the token at each position: EOS, unless it is among the first
    `least` tokens, or the length limit, of all or of each. Without EOS, episodes have a fixed
    length, and the limit terminates them."""
    over = (positions + 1 >= limit).expand_as(tokens)
    ends = torch.isin(tokens, torch.tensor(eos_ids, device=tokens.device)) & (positions >= least)
    return (ends, ~ends & over) if eos_ids else (over, over & False)


def episode_columns(
    response_ids: Tensor, eos_ids: list[int], limit: int | Tensor, pad_id: int, least: int = 0
):
    """Mask and endings of whole responses (B, T), by the same `transition` as single steps."""
    positions = torch.arange(response_ids.shape[1], device=response_ids.device)
    terminated, truncated = transition(response_ids, positions, eos_ids, limit, least)
    ended = (terminated | truncated).long()
    mask = ended.cumsum(1) - ended == 0  # up to and including the token that ends it
    return {
        "response_mask": mask.float(),
        "response_attention": mask.float(),
        "response_ids": torch.where(mask, response_ids, pad_id),
        "terminated": (terminated & mask).any(1),
        "truncated": (truncated & mask).any(1),
    }


def decode(tokenizer: Tokenizer, columns: Columns, eos_ids: list[int]) -> list[str]:
    """Response texts without the EOS that ended them; other special tokens are visible."""
    lengths = columns["response_attention"].long().sum(1).tolist()
    rows = zip(columns["response_ids"].tolist(), lengths, strict=True)
    return decoded(tokenizer, [ids[: n - (n > 0 and ids[n - 1] in eos_ids)] for ids, n in rows])


def piece_of(tokenizer: Any, i: int) -> str | None:
    """A token's entry in the vocabulary. None for an id without a token: a model's head often has
    more rows than its tokenizer has tokens."""
    with suppress(IndexError, KeyError, OverflowError):  # as several kinds of tokenizers put it
        return tokenizer.convert_ids_to_tokens(i)
    return None


def token_name(tokenizer: Any, i: int) -> str:
    """A token's entry in the vocabulary, or <|300|> for the id 300 without a token."""
    return piece_of(tokenizer, i) or f"<|{i}|>"


def decoded(tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[str]:
    """The text of each row of token ids, special tokens included. An id that decodes to nothing is
    shown by its `token_name`, so that a verifier cannot take `4<|300|>2` for `42`."""
    hidden = {i: name for i in {i for row in rows for i in row} if (name := _hidden(tokenizer, i))}
    if not hidden:
        return tokenizer.batch_decode([list(row) for row in rows], skip_special_tokens=False)
    return ["".join(_parts(tokenizer, row, hidden)) for row in rows]


@lru_cache(maxsize=2**18)
def _hidden(tokenizer: Any, i: int) -> str:
    """The name of an id that decodes to nothing; empty for all others."""
    piece = piece_of(tokenizer, i)
    if piece and (piece.strip(" ▁") == "" or tokenizer.decode([i], skip_special_tokens=False)):
        return ""
    return piece or f"<|{i}|>"


def _parts(tokenizer: Any, row: Iterable[int], hidden: Mapping[int, str]) -> Iterator[str]:
    began = False
    for unseen, ids in groupby(row, hidden.__contains__):
        if unseen:
            yield from (hidden[i] for i in ids)
        else:
            shown = list(ids)
            text = tokenizer.decode(shown, skip_special_tokens=False)
            yield spaced(text, piece_of(tokenizer, shown[0])) if began else text
        began = True


def token_texts(tokenizer: Any, ids: Iterable[int]) -> dict[int, str]:
    """Tokens as a reader can see them; special tokens are shown by name."""
    special, texts = set(tokenizer.all_special_ids), {}
    for i in dict.fromkeys(ids):
        piece, (text,) = token_name(tokenizer, i), decoded(tokenizer, [[i]])
        texts[i] = piece if i in special else readable(text, piece)
    return texts


def unknown_character(tokenizer: Tokenizer, text: str, ids: list[int]) -> str | None:
    """A character of `text` that the tokenizer does not have, if `ids`, its tokens, show one.

    The unknown token may be BOS or EOS as well (OPT, GPT-2), and be added, or written in the text.
    """
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown not in ids:
        return None

    def alien(part: str) -> bool:
        return unknown in tokenizer(part, add_special_tokens=False)["input_ids"]

    parts = [part for part in text.split(tokenizer.unk_token) if alien(part)]
    return next((c for part in parts for c in part if alien(c)), "?") if parts else None


def continued(tokenizer: Tokenizer, text: str, after: int | None = None) -> list[int]:
    """Token ids of a text that follows another, without the space that some tokenizers add at the
    beginning ("first" of Metaspace's schemes: Llama 2), or after any special token ("always", as
    Mistral 7B 0.1). after: the token before it, if that may be a special one."""
    if not spaces_after_special(tokenizer) or after in tokenizer.added_tokens_decoder:
        return _after_eos(tokenizer, text)
    for mark in "\n=a1":
        before, both = (tokenizer(t, add_special_tokens=False)["input_ids"]
                        for t in (mark, mark + text))  # fmt: skip
        if tokenizer.unk_token_id not in before and both[: len(before)] == before:
            return both[len(before) :]
    return _after_eos(tokenizer, text)


@lru_cache(maxsize=8)
def spaces_after_special(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer adds a space to a text after a special token."""
    first = (piece_of(tokenizer, i) or "" for c in "a1" for i in _after_eos(tokenizer, c)[:1])
    return any(piece.startswith(("▁", "Ġ")) for piece in first)


def _after_eos(tokenizer: Tokenizer, text: str) -> list[int]:
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    eos = tokenizer.added_tokens_decoder.get(tokenizer.eos_token_id)
    if eos is None or eos.rstrip:  # it would take the text's own space
        return plain
    after = tokenizer(eos.content + text, add_special_tokens=False)["input_ids"]
    return after[1:] if after[0] == tokenizer.eos_token_id else plain


def decode_tokens(tokenizer: Tokenizer, columns: Columns, eos_ids: list[int]) -> list[list[str]]:
    """Each token that the policy chose, decoded by itself, with the space that it begins with; EOS
    reads as the empty string."""
    texts: dict[int, str] = dict.fromkeys(eos_ids, "")
    rows = []
    masks = columns["response_mask"].tolist()
    for ids, mask in zip(columns["response_ids"].tolist(), masks, strict=True):
        chosen = [i for i, m in zip(ids, mask, strict=True) if m]
        for i in chosen:
            if i not in texts:
                texts[i] = spaced(decoded(tokenizer, [[i]])[0], piece_of(tokenizer, i))
        rows.append([texts[i] for i in chosen])
    return rows


def score(plan: Plan, columns: Columns, task_scores: Tensor | None = None) -> dict[str, Tensor]:
    """`scores` (B, T) and their components, from the rollout's columns.

    An outcome (B,) lands at the last action, and is 0 as long as the row has not ended. Truncated
    rows pay the recipe's penalty. task_scores: (B, T), in place of the task's where not NaN.
    """
    mask, out = columns["response_mask"], {}
    if any("task_scores" in bound.needs for _, bound in plan.rewards.values()):
        label = f"task {plan.task_name!r}"
        out["task_scores"] = _per_token(partial(_task_scores, plan), columns, label)
        if task_scores is not None:
            out["task_scores"] = task_scores.where(~task_scores.isnan(), out["task_scores"])
    known = {**columns, **out}
    total, parts = torch.zeros_like(mask), []
    for name, (weight, bound) in plan.rewards.items():
        # Without a border of its own: `_per_token` names the row as well.
        scorer = partial(call, bound.component, options=bound.options)
        part = _per_token(scorer, known, f"reward {name!r}")
        total = total + weight * part
        parts.append(masked_sum(part, mask))
    if (rollout := plan.recipe.config.rollout).truncation == "penalty":
        fine = rollout.truncation_penalty * columns["truncated"].to(mask.dtype)
        total = total - at_last_action(fine, mask)
    return out | {
        "score_components": torch.stack(parts, 1),
        "score_weights": mask.new_tensor([weight for weight, _ in plan.rewards.values()]),
        "scores": total,
        "sequence_scores": masked_sum(total, mask),
    }


def pays_at_the_end(plan: Plan, columns: Columns) -> bool:
    """Whether all scores are outcomes, judging by what the scorers return for these rows. If so,
    unfinished rows need no scoring."""
    known = dict(columns)
    if any("task_scores" in bound.needs for _, bound in plan.rewards.values()):
        raw = _task_scores(plan, columns)
        if raw.ndim > 1:
            return False
        known["task_scores"] = at_last_action(raw, columns["response_mask"])
    for _, bound in plan.rewards.values():
        part = bound(known)
        # From `task_scores` only, it has a token's shape by form; its value for a 0 decides.
        of_outcome = bound.needs == ("task_scores",)
        if part.ndim > 1 and not (of_outcome and not part[known["task_scores"] == 0].any()):
            return False
    return True


def right_rows(plan: Plan, batch: Columns) -> Tensor | None:
    """Which responses are correct (B,) bool; None if the task does not define correctness."""
    correct = plan.abilities.is_correct
    if correct is None:
        return None
    label, ended = f"task {plan.task_name!r}: is_correct", batch["terminated"]
    with border(label):
        right = torch.as_tensor(correct(*(own(batch[name]) for name in needs_of(correct))))
    if right.dtype != torch.bool or right.shape != ended.shape:
        got = f"{right.dtype} of shape {tuple(right.shape)}"
        raise ComponentError(f"{label} returned {got}, not bools of shape {tuple(ended.shape)}")
    return right.to(ended.device) & ended  # a cut-off answer does not count


def _task_scores(plan: Plan, columns: Columns) -> Tensor:
    """The scores of the task's own scorer, (B,) or (B, T)."""
    output = plan.task.score(*(own(columns[name]) for name in needs_of(plan.task.score)))
    return scores(
        output,
        columns["response_mask"],
        lambda text: ComponentError(f"task {plan.task_name!r} {text}"),
    )


def _per_token(scorer: Scorer, columns: Columns, label: str) -> Tensor:
    """Call a scorer and return (B, T); reports an error or NaN with prompt and response."""
    mask = columns["response_mask"]
    try:
        with watched(label):
            out = scorer(columns).to(mask.dtype)
    except (RlzooError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a user's function may raise anything: name the row
        if out_of_memory(error):
            raise
        row = first_that_raises(lambda i: scorer(_row_of(columns, i)), range(len(mask)))
        raise ComponentError(f"{label} raised {told(error)} {_show_row(columns, row)}") from error
    if out.ndim == 1:
        ended = columns["terminated"] | columns["truncated"]
        out = at_last_action(torch.where(ended, out, 0), mask)
    out = zero_off_mask(out, mask)
    if len(wrong := (~torch.isfinite(out).all(1)).nonzero()):
        where = _show_row(columns, int(wrong[0]))
        raise ComponentError(f"{label} returned NaN or infinity {where}")
    return out


def first_that_raises(function: Callable[[T], object], items: Iterable[T]) -> T | None:
    """The first item for which a user's function raises anything; None if none does by itself."""
    for item in items:
        try:
            function(item)
        except KeyboardInterrupt:
            raise
        except BaseException:  # the same border as where it was called for all
            return item
    return None


def _row_of(columns: Columns, i: int) -> Columns:
    rows = len(columns["response_mask"])
    return {n: x[i : i + 1] if len(x) == rows else x for n, x in columns.items()}


def _show_row(columns: Columns, row: int | None) -> str:
    if row is None:
        return "(on the whole batch, but not on any single row)"
    return f"on prompt {columns['prompts'][row]!r}, response {columns['responses'][row]!r}"
