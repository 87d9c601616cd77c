"""The table as a page of the docs, docs/architectures.md."""

from collections import Counter
from importlib.metadata import version
from pathlib import Path

from invariants.architecture_table.checks import TOLERANCE, Cell, Row

TEXT = """\
# Architectures

<!-- written by tests/invariants/make_model_table.py -->

{count} tiny random models, with the configurations of transformers' own architectures, and what
rlzoo makes of each: {summary}. What is refused or noted says so on one line; what is
neither and yet not right is **WRONG**, a fault of rlzoo.

```sh
python tests/invariants/make_model_table.py                  # some minutes of one core
python tests/invariants/make_model_table.py gemma3 rwkv      # these alone
```

writes this page and ends with status 1 if a cell is wrong; fifteen rows run in the tests, with half
as many tokens sampled, a third with `pytest -m landing`, the rest with `pytest -m study
tests/invariants`. Made with
transformers {transformers} and torch {torch}.

## How

Each model has two layers of width 16 and a vocabulary of 99, weights drawn so wide that logits
spread over some units, windows and chunks shorter than its rows, and a `generation_config.json`
whose repetition penalty and top-k must not leak. rlzoo loads it by its ordinary path, on a CPU in
float32, and is held against plain transformers: each row alone, without padding, the whole row at
once, in eager attention. falcon-alibi is held against sdpa, transformers' default, which rlzoo takes:
the two differ there by 0.82 nats in transformers itself, whose eager attention adds ALiBi twice.

| column | what is compared | right up to |
|---|---|---|
| log-probs, entropy | of 12 padded responses to 4 prompts, at temperature 0.7; the largest error in nats | 1e-4 |
| values | of a critic of its own with a random head, after the last token, too | 1e-4 |
| actor gradient | of `ppo_clip` and an entropy bonus, over the largest entry | 1e-4 |
| critic gradient | of the squared error, over the largest entry | 1e-4 |
| sampling | 8 prompts of 1 to 10 tokens, 20 new ones: whether each token is where its uniform says, and both log-probs that come with it | 1e-4 |
| top-k, top-p | the same, truncated to 5 tokens, to the nucleus of 0.6, to the nucleus of what the 5 leave | 1e-4 |
| checkpointing | both gradients with `model.gradient_checkpointing=true`, over the largest entry | 1e-5 |
| export | log-probs and greedy tokens after every weight has changed, saved, and loaded by transformers | 1e-4 |
| prompt once | whether a pass reads the prompt of a group once | |

Numbers are the largest error found. A number in brackets is a line below the table.

## The table

{table}

{lines}
"""  # noqa: E501


def write(page: Path, rows: list[Row]) -> None:
    """Write the page of all rows."""
    lines: list[str] = []
    head = ["architecture", *TOLERANCE, "prompt once"]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        noted = [number(note, lines) for note in row.notes]
        cells = [shown(cell, lines) for cell in row.cells.values()]
        once = {True: "yes", False: "no", None: ""}[row.trees]
        table.append("| " + " | ".join([" ".join([row.name, *noted]), *cells, once]) + " |")
    text = TEXT.format(
        count=len(rows),
        summary=summary(rows),
        transformers=version("transformers"),
        torch=version("torch").partition("+")[0],
        table="\n".join(table),
        lines="\n".join(f"{i}. {told(line)}" for i, line in enumerate(lines, 1)),
    )
    page.write_text(text.rstrip() + "\n", encoding="utf-8")


def summary(rows: list[Row]) -> str:
    kinds = Counter(worst(row) for row in rows)
    words = {
        "right": "are right in all of it",
        "noted": "in part, with a note",
        "refused": "are refused in part or whole",
        "wrong": "**are wrong**",
    }
    return ", ".join(f"{kinds[kind]} {text}" for kind, text in words.items() if kinds[kind])


def worst(row: Row) -> str:
    kinds = {cell.kind for cell in row.cells.values()}
    return next(kind for kind in ("wrong", "refused", "noted", "right") if kind in kinds)


def shown(cell: Cell, lines: list[str]) -> str:
    """A cell: its error if it is right, else its kind and the number of its line."""
    size = "" if cell.error is None else f"{cell.error:.0e}".replace("e-0", "e-")
    size = "0" if cell.error == 0 else size
    if cell.kind == "right":
        return size
    kind = "**WRONG**" if cell.kind == "wrong" else cell.kind
    parts = [kind, size, number(cell.text, lines) if cell.text else ""]
    return " ".join(filter(None, parts))


def number(line: str, lines: list[str]) -> str:
    """The line's number in brackets; a new line is added."""
    if line not in lines:
        lines.append(line)
    return f"[{lines.index(line) + 1}]"


def told(line: str) -> str:
    return line.replace("<", "\\<").replace("|", "\\|")
