"""Files of rows, and errors that are one line."""

import json

USER = {"role": "user", "content": "hi"}


def write(path, rows):
    """JSON lines, of rows or as they are; the path."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def one_line(caught, *parts):
    """The error caught is a line with these parts."""
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


def said(text):
    return {"role": "assistant", "content": text}
