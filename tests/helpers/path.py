"""The path that code takes through the core: files entered, functions entered, lines executed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rlzoo

CORE = Path(rlzoo.__file__).parent


@dataclass
class Route:
    """functions: (file, name) in the order they were entered; lines: (file, line) executed."""

    functions: dict[tuple[str, str], int] = field(default_factory=dict)
    lines: set[tuple[str, int]] = field(default_factory=set)

    @property
    def files(self) -> list[str]:
        """Files of the core, as paths below rlzoo/, in the order they were entered."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    def lines_of(self, file: str) -> int:
        return sum(name == file for name, _ in self.lines)


def route(work: Callable[[], Any]) -> Route:
    """What of the core `work` goes through, in this thread."""
    out, known = Route(), {}

    def place(code: Any) -> str | None:
        if code.co_filename not in known:
            path = Path(code.co_filename)
            known[code.co_filename] = (
                path.relative_to(CORE).as_posix() if path.is_relative_to(CORE) else None
            )
        return known[code.co_filename]

    def trace(frame: Any, event: str, _: Any) -> Any:
        file = place(frame.f_code)
        if file is None:
            return None
        out.functions.setdefault((file, frame.f_code.co_qualname), len(out.functions))
        out.lines.add((file, frame.f_lineno))

        def inside(frame: Any, event: str, _: Any) -> Any:
            if event == "line":
                out.lines.add((file, frame.f_lineno))
            return inside

        return inside

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return out
