"""Functions as tools; the worker that runs them imports this file, so it imports little."""

import time


def double(text: str, times: int = 2, scale: float = 1.0) -> str:
    """Repeat a text.

    Args:
        text: the text
        times: how often
        scale: not used
    """
    return text * times


def wait(seconds: float) -> str:
    """Wait.

    Args:
        seconds: how long
    """
    time.sleep(seconds)
    return "done"


def spin(n: int) -> int:
    """Compute a power of n that takes for ever.

    Args:
        n: the base
    """
    return n ** (n**9)


def write(path: str) -> str:
    """Add a line to a file.

    Args:
        path: the file
    """
    with open(path, "a") as file:
        file.write("called\n")
    return "written"


def untyped(x):
    """No type."""
