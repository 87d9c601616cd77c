"""Conversations: when a turn ends, what the environment answers, and which tokens enter the row.

A task that has `respond` holds conversations. The policy writes until EOS or one of the task's
`stops`; then `respond` returns the environment's answer, or None to end the episode. A row is the
first `max_new_tokens` tokens of both:

    policy's turn 1 EOS | answer | policy's turn 2 EOS | answer | ...       response_attention 1
    1 1 1 1         1     0 0 0    1 1 1 1         1     0 0 0              response_mask

None terminates the row. A row that reaches the limit is truncated, even within an answer. The
environment proceeds token by token and the sampler turn by turn; both use `Turns.act`.
"""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import ConversationError, RlzooError, in_short
from rlzoo.mdp.batch import right_pad
from rlzoo.mdp.rules import (
    continued,
    decoded,
    first_that_raises,
    piece_of,
    token_name,
    unknown_character,
)
from rlzoo.plugin.border import border, needs_of
from rlzoo.plugin.call import own
from rlzoo.plugin.columns import TOLD, Columns
from rlzoo.plugin.protocols import Tokenizer
from rlzoo.recipe.plan import Plan

MARK = "rlzoo:answer"  # a placeholder for the policy's text in the chat template


@dataclass
class Conversation:
    """One row as it grows. `turns`: the texts, policy and environment in turn."""

    about: Columns  # column -> this row's entry: what `respond` may take
    limit: int = 0  # tokens that the row may hold
    chat: bool = False  # whether the prompt was rendered by a chat template
    begin: int = 0  # tokens that were there before: `columns` leaves them out
    ids: list[int] = field(default_factory=list)
    turn_ids: list[int] = field(default_factory=list)  # of each token, from 1; 0: an answer's
    turns: list[str] = field(default_factory=list)  # those that have ended
    now: list[int] = field(default_factory=list)  # tokens of the turn that has not
    count: int = 0  # turns of the policy begun
    asks: bool = False  # the policy has spoken, the environment has not
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True)
class Turns:
    """The rules of a plan's conversations, with a model folder's tokenizer and config."""

    plan: Plan
    tokenizer: Tokenizer
    eos_ids: list[int]

    def act(self, rows: Sequence[Conversation], chosen: Sequence[list[int]]) -> list[int]:
        """Append the policy's tokens to each row, up to the end of its turn or of the row, and
        then the environment's answer; returns the number of tokens used."""
        taken = [self._speak(row, tokens) for row, tokens in zip(rows, chosen, strict=True)]
        asking = [row for row in rows if row.asks]
        if asking:
            self._answer(asking)
        return taken

    def _speak(self, row: Conversation, tokens: list[int]) -> int:
        for n, token in enumerate(tokens, 1):
            row.count += not row.now
            row.now.append(token)
            row.ids.append(token)
            row.turn_ids.append(row.count)
            row.asks = ends_turn(self.tokenizer, row.now, self.eos_ids, self.plan.stops)
            row.truncated = not row.asks and len(row.ids) >= row.limit
            if row.asks or row.truncated:
                return n
        return len(tokens)

    def _answer(self, rows: list[Conversation]) -> None:
        for row in rows:
            row.turns.append(self.text(row.now))
        for row, answer in zip(rows, self._respond(rows), strict=True):
            after_eos = row.now[-1] in self.eos_ids
            row.asks, row.now = False, []
            if answer is None:
                row.terminated = True
                continue
            row.turns.append(answer)
            room = row.limit - len(row.ids)
            ids = self._observation(row, answer, after_eos)[:room]
            row.ids += ids
            row.turn_ids += [0] * len(ids)
            row.truncated = len(row.ids) >= row.limit

    def text(self, tokens: list[int]) -> str:
        """A turn's text, without the EOS that ended it."""
        tokens = tokens[:-1] if tokens and tokens[-1] in self.eos_ids else tokens
        return decoded(self.tokenizer, [tokens])[0]

    def texts(self, row: Conversation) -> list[str]:
        """The row's turns, including the unfinished one."""
        return [*row.turns, self.text(row.now)] if row.now else list(row.turns)

    # ------------------------------------------------------------ what the environment answers

    def _respond(self, rows: list[Conversation]) -> list[str | None]:
        respond = self.plan.abilities.respond
        assert respond is not None
        names = needs_of(respond)
        try:
            answers = respond(*_told(rows, names))
        except RlzooError:
            raise
        except (Exception, SystemExit) as error:  # a user's function: name the row, stop
            raise self._fault(
                first_that_raises(lambda row: respond(*_told([row], names)), rows),
                f"respond raised {type(error).__name__}: {error}",
            ) from error
        if not isinstance(answers, list) or len(answers) != len(rows):
            got = f"{len(answers)} of them" if isinstance(answers, list) else type(answers).__name__
            raise self._fault(
                rows[0], f"respond must return a list of {len(rows)} strs or None. Got {got}"
            )
        for row, answer in zip(rows, answers, strict=True):
            if not (answer is None or isinstance(answer, str)):
                raise self._fault(
                    row, f"respond must return strs or None. Got {type(answer).__name__}"
                )
        return answers

    def _observation(self, row: Conversation, answer: str, after_eos: bool) -> list[int]:
        """The tokens of an answer: the text as it is, or as the chat template puts it between
        the policy's turn and its next one."""
        text = answer
        if row.chat:
            text = self._rendered(row, answer, after_eos)
        ids = continued(self.tokenizer, text, self.tokenizer.eos_token_id if after_eos else None)
        alien = unknown_character(self.tokenizer, text, ids)
        if alien is not None:
            raise self._fault(
                row, f"the tokenizer has no token for {alien!r} in the answer {in_short(answer)}"
            )
        return ids

    def _rendered(self, row: Conversation, answer: str, after_eos: bool) -> str:
        from jinja2.exceptions import TemplateError

        role = self.plan.abilities.respond_role
        turns = ("user", "-"), ("assistant", MARK), (role, answer)
        messages = [{"role": who, "content": text} for who, text in turns]
        try:
            whole = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise self._fault(
                row, f"the chat template does not accept an answer from {role!r}: {error}"
            ) from None
        _, mark, text = whole.partition(MARK)
        if not mark:
            raise self._fault(row, "the chat template omits the policy's text")
        if after_eos:  # the template closes the policy's turn; the policy has done so itself
            ends = (token_name(self.tokenizer, i) for i in self.eos_ids)
            text = text.removeprefix(next(filter(text.startswith, ends), ""))
        return text

    def _fault(self, row: Conversation | None, text: str) -> ConversationError:
        """One line that names the task, the prompt and the policy's turn."""
        where = f"task {self.plan.task_name!r}: {text}"
        if row is None:
            where += " (on several rows together, but not on any single row)"
            return ConversationError(where)
        turns = row.turns
        spoken = turns[-1] if len(turns) % 2 else (turns[-2] if turns else "")
        prompt, turn = in_short(row.about["prompts"]), (len(turns) + 1) // 2
        return ConversationError(f"{where} (prompt {prompt}, turn {turn}: {in_short(spoken)})")

    # ------------------------------------------------------------ as columns

    def columns(self, rows: Sequence[Conversation], pad_id: int, device: Any) -> dict[str, Any]:
        """The rollout's columns of some rows, padded to the longest."""
        ids, real = right_pad([row.ids[row.begin :] for row in rows], pad_id)
        turn_ids, _ = right_pad([row.turn_ids[row.begin :] for row in rows], 0)
        tensors = {
            "response_ids": ids,
            "response_mask": (turn_ids > 0).float(),
            "response_attention": real.float(),
            "terminated": torch.tensor([row.terminated for row in rows]),
            "truncated": torch.tensor([row.truncated for row in rows]),
            "turn_ids": turn_ids,
        }
        turns = [self.texts(row) for row in rows]
        if "state_keys" in self.plan.needs:
            tensors["state_keys"] = self._state_keys(rows, turn_ids, turns)
        columns: dict[str, Any] = {n: x.to(device) for n, x in tensors.items()}
        return columns | {"turns": turns, "responses": ["".join(texts) for texts in turns]}

    def _state_keys(
        self, rows: Sequence[Conversation], turn_ids: Tensor, turns: list[list[str]]
    ) -> Tensor:
        """(B, T) int64: at each action the key of the state in which its turn began."""
        states = [
            Conversation(row.about, turns=texts[: 2 * k])  # as it was when turn k + 1 began
            for row, texts in zip(rows, turns, strict=True)
            for k in range(row.count)
        ]
        method = self.plan.abilities.state_keys
        assert method is not None
        with border(f"task {self.plan.task_name!r}: state_keys"):
            keys = method(*_told(states, needs_of(method))) if states else []
        if not isinstance(keys, list) or len(keys) != len(states):
            got = f"{len(keys)} of them" if isinstance(keys, list) else type(keys).__name__
            raise ConversationError(
                f"task {self.plan.task_name!r}: state_keys must return a list of {len(states)} "
                f"keys. Got {got}"
            )
        numbers = iter([self._number(s, key) for s, key in zip(states, keys, strict=True)])
        table = torch.zeros(len(rows), max((row.count for row in rows), default=0) + 1).long()
        for i, row in enumerate(rows):
            for k in range(row.count):
                table[i, k + 1] = next(numbers)
        return table.gather(1, turn_ids)

    def _number(self, state: Conversation, key: Any) -> int:
        """A key as int64: an int that fits as it is, anything else by a hash that never changes."""
        if isinstance(key, int) and -(2**63) <= key < 2**63:
            return int(key)
        if not isinstance(key, Hashable):
            raise self._fault(state, f"state key {in_short(key)} is not hashable")
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)


def ends_turn(
    tokenizer: Tokenizer, tokens: Sequence[int], eos_ids: Sequence[int], stops: Sequence[str]
) -> bool:
    """Whether the last of a turn's tokens ends it: EOS, or the one that completes a stop."""
    return tokens[-1] in eos_ids or first_stop(tokenizer, tokens, 1, stops) is not None


def first_stop(
    tokenizer: Tokenizer, tokens: Sequence[int], new: int, stops: Sequence[str]
) -> int | None:
    """How many of a turn's tokens there are once a stop is complete, which one of the last `new`
    tokens completes, if any. A stop has at most as many tokens as bytes."""
    far, n = reach(stops), len(tokens)
    if not stops or not _holds(tokenizer, tokens[max(0, n - new + 1 - far) :], stops):
        return None
    ends = range(n - new + 1, n + 1)
    return next((i for i in ends if _holds(tokenizer, tokens[max(0, i - far) : i], stops)), None)


def reach(stops: Sequence[str]) -> int:
    """The maximum number of tokens of a stop."""
    return max((len(stop.encode()) for stop in stops), default=0)


def _holds(tokenizer: Tokenizer, tokens: Sequence[int], stops: Sequence[str]) -> bool:
    text = tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    complete = [stop for stop in stops if stop in text]
    if not complete:
        return False
    hides = any(piece_of(tokenizer, i) is None for i in tokens)  # ids within the stop, say
    return not hides or any(stop in decoded(tokenizer, [tokens])[0] for stop in complete)


def begin(columns: Columns, row: int, limit: int) -> Conversation:
    """A new conversation from a row of the columns of prompts."""
    given = {name: columns[name] for name in TOLD if name in columns}
    about = {n: (x.cpu() if isinstance(x, Tensor) else x)[row] for n, x in given.items()}
    plain = "\n".join(m["content"] for m in about.get("messages") or [])
    return Conversation(about, limit, chat=about.get("prompts") != plain)


def resume(columns: Columns, row: int, at: int, limit: int) -> Conversation:
    """A batch's row as it was before its action at response position `at`."""
    turn_ids = columns["turn_ids"].cpu()[row, : at + 1].tolist()
    ids = columns["response_ids"].cpu()[row, :at].tolist()
    turn = turn_ids.pop()
    now = [i for i, k in zip(ids, turn_ids, strict=True) if k == turn]
    return replace(
        begin(columns, row, limit), begin=at, ids=ids, turn_ids=turn_ids, now=now,
        turns=columns["turns"][row][: 2 * (turn - 1)], count=turn if now else turn - 1,
    )  # fmt: skip


def _told(rows: Sequence[Conversation], names: Sequence[str]) -> list[Any]:
    """The columns `names` of some rows, in the form that `respond` takes."""
    arguments: list[Any] = []
    for name in names:
        values: list[Any] = [row.turns if name == "turns" else row.about[name] for row in rows]
        index = name == "prompt_index"  # other values are copied: a task may change them
        arguments.append(torch.tensor([int(v) for v in values]) if index else own(values))
    return arguments
