"""Calculator: a product that a small model cannot compute, with a tool that can."""

import re
import zlib
from typing import Annotated, Literal

import torch

from rlzoo import Example, Range, component
from rlzoo_zoo.numbers import last_number
from rlzoo_zoo.tasks.calculate import calculate
from rlzoo_zoo.tasks.outcomes import LastTurn
from rlzoo_zoo.tasks.tools import Tools


@component("task")
class Calculator(LastTurn):
    """A product of two numbers, `37*48?`. The policy may call `[calculate("37*48")]`, which the
    environment answers with ` 1776 `; then it gives the answer, `1776`.

    digits: number of digits of both numbers. calls: maximum number of turns with a call; 0 removes
    the tool. form: "python" as above, for models without a chat template; "json" makes chat
    messages with a system message that declares the tool, calls as `<tool_call>{...}</tool_call>`,
    and results as messages of the role `tool`. seconds: the time limit of a call. Score (B,): 1.0
    if the last turn is the answer ("json": if its last number is) and the row terminated, otherwise
    0.0. The episode ends with the first turn without a call. An invalid call is answered with an
    error line. A fifth of the pairs of numbers is held out. State key: the turns so far.
    Source: after Schick et al. 2023 (Toolformer), arXiv:2302.04761.
    """

    def __init__(
        self,
        *,
        digits: Annotated[int, Range(1, 6)] = 2,
        calls: Annotated[int, Range(0, 8)] = 2,
        form: Literal["python", "json"] = "python",
        seconds: Annotated[float, Range(0.1)] = 2.0,
    ):
        self.digits, self.calls, self.form = digits, calls, form
        self.tools = Tools([calculate], form=form, seconds=seconds, characters=80)
        self.stops = self.tools.stops if calls else ()
        self.respond_role = "tool" if form == "json" else "user"

    def draw(self, split, n, generator):
        low, high = 10 ** (self.digits - 1), 10**self.digits
        found: list[Example] = []
        while len(found) < n:
            a, b = torch.randint(low, high, (2,), generator=generator).tolist()
            number = zlib.crc32(f"{a}*{b}".encode())
            if (number % 5 == 0) == (split == "test"):
                found.append(Example(self.prompt(a, b), str(a * b), number))
        return found

    def prompt(self, a, b):
        if self.form == "python":
            return f"{a}*{b}?"
        system = [{"role": "system", "content": self.tools.system()}] if self.calls else []
        return [*system, {"role": "user", "content": f"What is {a}*{b}? End with the number."}]

    def respond(self, turns):
        return [self.answer(t) for t in turns]

    def answer(self, turns):
        if len(turns[::2]) > self.calls:
            return None
        result = self.tools.answer(turns[-1])
        return result if result is None or self.form == "json" else f" {result} "

    def state_keys(self, turns):
        return ["".join(t) for t in turns]

    def final(self, text):
        if self.form == "python":
            return text
        return str(last_number(text))

    def demonstrate(self, example, generator):
        # Wrong: an answer without the tool, one digit of which is another.
        answer = example.answer
        place = int(torch.randint(len(answer), (), generator=generator))
        other = (int(answer[place]) + int(torch.randint(1, 10, (), generator=generator))) % 10
        wrong = [f"{answer[:place]}{other}{answer[place + 1 :]}"]
        if not self.calls:
            return [answer], wrong
        text = example.prompt if isinstance(example.prompt, str) else example.prompt[-1]["content"]
        expression = re.findall(r"\d+\*\d+", text)[0]
        call = f'[calculate("{expression}")]'
        if self.form == "json":
            inside = f'{{"name": "calculate", "arguments": {{"expression": "{expression}"}}}}'
            call = f"<tool_call>\n{inside}\n</tool_call>"
        return [call, self.answer([call]), answer], wrong
