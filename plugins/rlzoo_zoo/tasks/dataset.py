"""Tasks from data: prompts and answers from the rows of a file, a folder or the hub."""

import re
from decimal import Decimal
from typing import Annotated, Any, Literal

import torch

from rlzoo import Example, Range, RlzooError, component
from rlzoo.errors import DataError, in_short
from rlzoo_zoo.data import MEDIA, column, from_json, hold_out, no_column, prompt_of, read
from rlzoo_zoo.rewards.exact_match import accepted, exact_match, normal
from rlzoo_zoo.rewards.math_verify import refuse_missing, unreadable, verdicts
from rlzoo_zoo.rewards.numeric import numeric
from rlzoo_zoo.rewards.regex import compile_pattern, extract
from rlzoo_zoo.tasks.outcomes import outcome
from rlzoo_zoo.words import has_word

FIELD = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


@component("task")
class Dataset:
    """Each row of a data set is a prompt with its correct answer.

    path: a file (JSON lines or array, CSV, Parquet), several (`a.jsonl,b.csv`, `data/*.jsonl`), a
    folder, or a hub id, for which `subset`, `split` and `test_split` select the data. Held-out
    prompts come from test_split or test_path; otherwise test_fraction of the prompts is held out,
    selected by split_seed. Rows with the same prompt are in the same split. The column `domain`
    selects the teacher of a row in `teacher.domains`. A dot in a column's name leads into it:
    `reward_model.ground_truth`, `answers.0`. A prompt is the column `prompt`, a text or chat
    messages (also as JSON), with the column `tools`, or it is `template` with `{column}` filled in
    (`{{` is a brace). answer_pattern extracts the final answer from the column `answer`: its first
    group, if it has one, at the last match. response_pattern does the same for responses. `checker`
    decides correctness: exact (ignoring outer white space), numeric (the last or boxed number),
    math (math-verify), contains (as whole words), or none. Score (B,): 1.0 if correct and
    terminated. Bad rows stop the run or are skipped and counted: invalid JSON, a missing or null
    column, an empty prompt, characters unknown to the tokenizer, an answer that the checker cannot
    parse, which is tried for each when the data is read. Prompts that exceed max_prompt tokens or
    the model's limit are handled by too_long, which drops them, cuts text at its start or end, or
    stops. `notes` has the counts. A prompt's index is its row's number in the file, and rows of a
    test file continue the numbering. Draws are without replacement until all rows have been drawn.
    Nothing in the data is executed or unpickled.
    Source: the user's data.
    """

    def __init__(
        self,
        *,
        path: str = "",
        format: Literal["auto", "jsonl", "csv", "parquet", "folder", "hub"] = "auto",
        subset: Annotated[str, "configuration of a data set on the hub"] = "",
        split: Annotated[str, "split of a folder or hub id"] = "train",
        test_split: str = "",
        test_path: str = "",
        test_fraction: Annotated[float, Range(0, 1, "neither")] = 0.1,
        split_seed: int = 0,
        prompt: Annotated[str, "the column"] = "prompt",
        template: str = "",
        answer: Annotated[str | None, "the column; null: no answers"] = "answer",
        answer_pattern: str = "",
        response_pattern: str = "",
        domain: Annotated[str | None, "column with the domain of a row"] = None,
        checker: Literal["exact", "numeric", "math", "contains", "none"] = "exact",
        casefold: Annotated[bool, "exact, contains: ignore case"] = False,
        tolerance: Annotated[float, Range(0), "numeric: allowed difference"] = 0.0,
        on_bad_row: Literal["stop", "skip"] = "stop",
        max_prompt: Annotated[int | None, Range(1), "in tokens; null: the model's limit"] = None,
        too_long: Literal["drop", "cut_start", "cut_end", "stop"] = "drop",
    ):
        if not path:
            raise ValueError(
                "path is missing; give a file (JSON, CSV or Parquet), a folder or a hub id"
            )
        if test_path and test_split:
            raise ValueError("give only one of test_path and test_split")
        if answer is None and checker != "none":
            raise ValueError("answer=null requires checker=none: there is nothing to check")
        if checker == "math":
            refuse_missing()
        for pattern in (answer_pattern, response_pattern):
            compile_pattern(pattern)
        self.prompt, self.template, self.answer = prompt, template, answer
        self.fields = [m[1] for m in FIELD.finditer(template) if m[1]]
        self.domain, self.of_index = domain, dict[int, str]()
        self.answer_pattern, self.response_pattern = answer_pattern, response_pattern
        self.checker, self.casefold, self.tolerance = checker, casefold, tolerance
        self.on_bad_row, self.max_prompt, self.too_long = on_bad_row, max_prompt, too_long
        self.notes: list[str] = []
        if answer in self.fields:
            self.notes.append(f"the template shows the answer: {{{answer}}} is its column, and "
                              "{{ }} are braces")  # fmt: skip
        rows = self.load(path, format, subset, split)
        if test_path or test_split:
            first = 1 + max(e.index for e in rows) if test_path else 0
            held = self.load(test_path or path, format, subset, test_split or split, first)
            self.rows = {"train": rows, "test": held}
            known = {repr(e.prompt) for e in rows}
            shared = sum(repr(e.prompt) in known for e in held)
            if shared:
                self.notes.append(
                    f"{shared} of {len(held)} held-out prompts are also training prompts"
                )
        else:
            train, test = hold_out(rows, lambda e: e.prompt, test_fraction, split_seed)
            self.rows = {"train": train, "test": test}
        self.domains = sorted(set(self.of_index.values()))
        if checker == "none":
            self.notes.append("checker=none: the task's own score is always 0")
        else:
            self.is_correct = self.right  # without it the task has no notion of right

    def draw(self, split, n, generator):
        rows = self.rows[split]
        order: list[int] = []
        while len(order) < n:
            order += torch.randperm(len(rows), generator=generator).tolist()
        return [rows[i] for i in order[:n]]

    def score(self, responses, answers, terminated):
        if self.checker == "none":
            return torch.zeros(len(answers), device=terminated.device)
        return outcome(self.right(responses, answers), terminated)

    def domain_of(self, example):
        return self.of_index.get(example.index, "")

    def right(self, responses, answers):
        """(B,) bool, by the same functions that are rewards by themselves."""
        if self.response_pattern:
            responses = [extract(self.response_pattern, r) or "" for r in responses]
        if self.checker in ("exact", "contains"):
            answers = [spellings(answer) for answer in answers]
        if self.checker == "exact":
            return exact_match(responses, answers, casefold=self.casefold, spaces=True) > 0
        if self.checker == "numeric":
            return numeric(responses, answers, tolerance=self.tolerance) > 0
        if self.checker == "math":
            return torch.tensor(verdicts(responses, answers), dtype=torch.bool)
        pairs = zip(responses, answers, strict=True)
        return torch.tensor([any(contains(r, a, self.casefold) for a in accepted(each))
                             for r, each in pairs], dtype=torch.bool)  # fmt: skip

    def fit(self, count, room=None):
        """Apply too_long, once there is a tokenizer: count(prompt) -> tokens. Returns a note.

        room: tokens that the model has for a prompt; None: any number."""
        limit = min((n for n in (self.max_prompt, room) if n is not None), default=None)
        count = counting(count, limit)
        unread = self.leave_out_unread(count)
        if limit is None:
            return unread
        why = f"task.max_prompt={limit} tokens"
        if limit != self.max_prompt:
            why = f"the {limit} tokens that rollout.max_new_tokens leaves of the model's positions"
        total, long = 0, []
        for split, rows in self.rows.items():
            kept: list[Example] = []
            for example in rows:
                if count(example.prompt) <= limit:
                    kept.append(example)
                    continue
                long.append(example.index)
                if self.too_long.startswith("cut"):
                    cut = self.cut(example.prompt, count, limit, why)
                    kept.append(example._replace(prompt=cut))
                elif self.too_long == "stop":
                    shown = str(example.prompt)[:60]
                    raise DataError(f"prompt {example.index} is longer than {why}: {shown!r}...")
            if not kept:
                raise DataError(f"all {len(rows)} {split} prompts are longer than {why}")
            total += len(rows)
            self.rows[split] = kept
        if not long:
            return unread
        done = "dropped" if self.too_long == "drop" else "cut"
        note = f"{len(long)} of {total} prompts longer than {limit} tokens {done}"
        if limit != self.max_prompt:
            note += (
                f", the first in row {long[0]} (task.too_long={self.too_long}): longer than {why}"
            )
        self.notes.append(note)
        return f"{unread}; {note}" if unread else note

    def leave_out_unread(self, count):
        """Prompts that the tokenizer cannot read are bad rows, too. Returns a note."""
        lost, total = [], 0
        for split, rows in self.rows.items():
            kept: list[Example] = []
            for example in rows:
                try:
                    count(example.prompt)
                    kept.append(example)
                except RlzooError as error:
                    lost.append(f"prompt {example.index}: {error}")
                    if self.on_bad_row == "stop":
                        raise DataError(lost[0]) from None
            if not kept:
                raise DataError(f"no {split} prompt can be tokenized ({lost[0]})")
            total += len(rows)
            self.rows[split] = kept
        if not lost:
            return None
        note = f"{len(lost)} of {total} prompts skipped, first {lost[0]}"
        self.notes.append(note)
        return note

    def cut(self, prompt, count, limit, why):
        """The longest end (cut_start) or beginning (cut_end) of a text that is short enough."""
        if not isinstance(prompt, str):
            raise DataError(f"too_long={self.too_long} cuts text, and no chat messages")

        def part(n):
            return prompt[len(prompt) - n :] if self.too_long == "cut_start" else prompt[:n]

        low, high = 0, len(prompt)  # characters: part(low) fits
        while high - low > 1:
            middle = (low + high) // 2
            if count(part(middle)) <= limit:
                low = middle
            else:
                high = middle
        if not low:
            raise DataError(f"too_long={self.too_long} to {why} leaves nothing of {prompt[:60]!r}")
        return part(low)

    # ------------------------------------------------------------ reading

    def load(self, path, format, subset, split, first=0) -> list[Example]:
        """The examples of one file or split, by index from `first`; bad rows stop, or are skipped
        and counted."""
        examples: dict[int, Example] = {}  # by the row's number, as the next two
        places: dict[int, str] = {}
        faults: dict[int, str] = {}
        columns: dict[str, Any] = {}
        media: set[str] = set()
        wanted, found = self.wanted(), set[str]()
        for row in read(path, format=format, subset=subset, split=split):
            fault, places[row.number] = row.fault, row.place
            if row.values is not None:
                media |= {name for name in MEDIA if from_json(row.values.get(name))}
                columns = {**columns, **row.values} if row.values.keys() - columns else columns
                try:
                    examples[row.number] = self.example(row.values, first + row.number, found)
                except ValueError as error:
                    fault = str(error)
            if fault:
                faults[row.number] = fault
                if self.on_bad_row == "stop":
                    break
        faults |= self.refused({number: e.answer for number, e in examples.items()})
        kept = [example for number, example in examples.items() if number not in faults]
        worst = next((f"{places[n]}: {faults[n]}" for n in sorted(faults)), "")
        if faults and self.on_bad_row == "stop":
            raise DataError(worst)
        lost = [name for name in wanted if name not in found]
        if columns and lost:  # in no row: a wrong name, not a bad row
            raise DataError(f"{path}: {no_column(lost[0], columns)}")
        if not kept:
            raise DataError(f"{path}: no usable row{f' ({worst})' if faults else ''}")
        if faults:
            total = len(kept) + len(faults)
            self.notes.append(f"{path}: {len(faults)} of {total} rows skipped, first {worst}")
        if listed := next((e.answer for e in kept if as_text(e.answer)), None):
            self.notes.append(
                f"{path}: answers such as {listed!r} are lists as text, which are "
                f"compared whole; task.answer={self.answer}.0 is the first one"
            )
        if media:
            self.notes.append(f"{path}: prompts are text; not read: {', '.join(sorted(media))}")
        return kept

    def wanted(self) -> list[str]:
        """The columns that are read."""
        answer = [] if self.answer is None else [self.answer]
        domain = [self.domain] if self.domain else []
        return (self.fields if self.template else [self.prompt]) + answer + domain

    def example(self, row, index, found) -> Example:
        """Raises ValueError where the row is of no use. found: gains the columns that it has."""
        values = {}
        for name in self.wanted():
            try:
                value = values[name] = column(row, name)
            except KeyError:
                options = [o for o in ("prompt", "answer", "domain") if getattr(self, o) == name]
                sets = f"; set task.{options[0]}" if options else ""
                raise ValueError(f"{no_column(name, row)}{sets}") from None
            found.add(name)
            if value is None:
                raise ValueError(f"{name!r} is null")
            if any(x != x for x in (value if isinstance(value, list) else [value])):
                raise ValueError(f"{name!r} is NaN")  # how tables write that there is none
        prompt: Any
        if self.template:
            for name in self.fields:
                refuse_structure(name, values[name])
            prompt = FIELD.sub(lambda m: str(values[m[1]]) if m[1] else m[0][0], self.template)
        else:
            prompt = prompt_of(values[self.prompt], row.get("tools"))
        last = {"content": prompt} if isinstance(prompt, str) else prompt[-1]
        if not last["content"].strip() and "tool_calls" not in last:
            raise ValueError("empty prompt")
        answer = None if self.answer is None else self.final(values[self.answer])
        if self.domain:
            # Rows of test_split are numbered as those that are trained on, which come first.
            self.of_index.setdefault(index, str(values[self.domain]))
        return Example(prompt, answer, index)

    def final(self, answer):
        """The answer within the value of its column; raises ValueError."""
        if isinstance(answer, dict) and (self.checker != "none" or self.answer_pattern):
            inner = ", ".join(f"{self.answer}.{key}" for key in answer)
            raise ValueError(
                "an answer must be a string, a number or a list of these, not a mapping; name one "
                f"of its values ({inner})"
            )
        answer = plain(answer)
        if not self.answer_pattern:
            return answer
        found = []
        for text in map(str, answer if isinstance(answer, list) else [answer]):
            if (part := extract(self.answer_pattern, text)) is None:
                raise ValueError(f"answer_pattern does not match ...{text[-40:]!r}")
            found.append(part)
        return found if isinstance(answer, list) else found[0]

    def refused(self, answers) -> dict[int, str]:
        """{number: fault} of each answer, of {number: answer}, with which the checker can do
        nothing: its verifier tries them."""
        faults: dict[int, str] = {}
        if self.checker == "none":
            return faults
        for number, answer in answers.items():
            try:
                if not all(text.strip() for text in accepted(answer)):
                    raise ValueError("empty answer")
                if self.checker == "numeric":
                    numeric([""], [answer])  # raises
            except ValueError as error:
                faults[number] = str(error)
        if self.checker == "math":
            found, left = unreadable({n: a for n, a in answers.items() if n not in faults})
            faults |= found
            if left:
                self.notes.append(f"{left} answers are only read when they are drawn")
        return faults


def refuse_structure(name, value):
    """Raise ValueError where a template would print the source of messages or of a mapping."""
    inside = value if isinstance(value, list) else [value, prompt_of(str(value))]
    if any(isinstance(x, (dict, list)) for x in inside):
        raise ValueError(f"{name!r} is not text; name a value in it, as {{{name}.0.content}}")


def as_text(answer):
    """Whether an answer is a list of texts, written as one text."""
    inside = from_json(answer)
    return inside is not answer and isinstance(inside, list) and isinstance((inside or [0])[0], str)


def spellings(answer):
    """An answer with its other spellings: `true` for True, and `12` for 12.0, which a table with
    empty cells has for 12."""
    several = answer if isinstance(answer, list) else [answer]
    more = [str(a).lower() for a in several if isinstance(a, bool)]
    whole = [a for a in several if isinstance(a, float) and a.is_integer() and abs(a) < 1e15]
    return [*several, *more, *map(int, whole)] if more or whole else answer


def plain(answer):
    """A value of a table as one that can be saved; raises ValueError."""
    if isinstance(answer, dict):
        return {key: plain(a) for key, a in answer.items()}
    if isinstance(answer, list):
        return [plain(a) for a in answer]
    if isinstance(answer, Decimal):
        return str(answer)
    if answer is not None and not isinstance(answer, (str, int, float)):
        raise ValueError(f"an answer must be text or a number. Got {in_short(answer)}")
    return answer


def counting(count, limit):
    """`count` with a memory; it counts only the beginning of a far too long text, since a tokenizer
    takes minutes for megabytes."""
    known: dict[str, int] = {}

    def counted(prompt):
        if not isinstance(prompt, str):
            return count(prompt)
        if prompt not in known:
            start = prompt if limit is None else prompt[: 64 * (limit + 64)]
            # Where a text is cut moves few tokens: twice the limit is over it for certain.
            over = len(start) < len(prompt) and count(start) > 2 * limit
            known[prompt] = 2 * limit + 1 if over else count(prompt)
        return known[prompt]

    return counted


def contains(response, answer, casefold):
    answer, response = (normal(x, True, casefold, True, "NFC") for x in (answer, response))
    return has_word(response, answer)
