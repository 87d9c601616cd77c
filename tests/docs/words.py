"""Lists words of CONTRIBUTING's style sheet to replace: `python tests/docs/words.py PATH...`.

Reads Markdown and notebooks (without code), Python (docstrings, comments and strings of three words
or more: help texts, errors, warnings) and YAML (comments). Folders are searched for these.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# (pattern, better). A space matches any white space, so that a phrase may go over a line's end.
# A lower-case letter matches a capital, too; `Of` only itself.
WORDS = [
    (r"tells?|told", "reports, shows, prints; is set, is given; (told apart) distinguished"),
    (r"(?<!, )(?<!you )say(?! \.?\d)|says|said", "reports, states, prints, means"),
    (r"stands?(?![- ](?:for|in|alone)\b)|stood", "is"),
    (r"bears?|borne", "supports, has, withstands"),
    (r"hears?|heard", "receives, detects"),
    (r"(?<!in )minds?", "depends on, is sensitive to"),
    (r"(?<!you )(?<!to )want|wants|wanted", "needs, requires, uses"),
    (r"(?<!you )(?<!to )(?<!we )know|knows|knew", "has, supports, contains, recognizes"),
    (r"lies?|lain", "is, are"),
    (r"(?<!you )ask for|asks|asked", "needs, requires, uses; is requested"),
    (r"speaks? of|spoken of", "mentions, is about"),
    (r"nobody|somebody|whoever", "no component, no user; a user; any component that"),
    (r"besides?", "next to, compared with; also"),
    (r"(?<!let )(?<!stand-)alone", "only"),
    (r"anew", "again, from scratch"),
    (r"at hand", "available"),
    (r"(?<!set )apart(?! from)", "separate; except"),
    (r"parted by", "separated by"),
    (r"of one's own", "your own, custom"),
    (r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|other|better|worse|fewer)\w+",
     "is not a"),
    (r"(?<!there )(?:is|are|was|were) (?-i:none)", "is not one, has none"),
    (r"there (?:is|was) no need", "not needed"),
    (r"(?:has|have|had) (?:not|none)(?=[.,;:)])", "does not have"),
    (r"(?-i:Of) (?!course)\w+|(?<=[;:] )(?-i:of) (?:a|an|the|all|any|each|every|those|them|\d+)",
     "begin with the subject"),
    (r"there(?:of|in|to|from)|where(?:of|in|from)|hereof", "its, in it, in which"),
    (r"such as (?:are|is|have|has)", "those that"),
    (r"less (?:the|its|their|that of)", "minus (arithmetic)"),
    (r"now and then", "occasionally"),
    (r"(?:goes|go|went|gone|going) on(?! to)", "resumes, continues"),
    (r"of (?:then|now)", "earlier, current"),
    (r"as ever|over again", "as usual; again"),
    (r"what there is", "what is available"),
    (r"put(?:s|ting)? right", "fixes, corrects"),
    (r"dice", "sampling; (without) greedy decoding"),
    (r"likeliest", "most likely"),
    (r"strangers?", "third-party, untrusted, unknown"),
    (r"so many", "this many, N"),
    (r"(?:is|are|was|were) to be", "must be, should be"),
    (r"(?:holds?|held) (?:it |them )?to (?:its|their|the)", "checks that it meets"),
    (r"(?-i:What|Who) (?!is |are |do |does |did |can )(?=(?:[^.?!|:\n]|\n(?!\n)){9,160}\.(?:\s|$))",
     "begin with a noun as the subject, not with a clause"),
    (r"kin|lest|befell|by gravity", "related; so that ... not; happened to; by severity"),
]  # fmt: skip
EITHER = "|".join(rf"(?P<w{i}>{pattern})" for i, (pattern, _) in enumerate(WORDS))
PATTERN = re.compile(
    rf"\b(?=[a-z])(?:{EITHER})\b".replace(" ", r"\s")
    + r"|(?<![\w.\])}/])(?P<number>\.\d+)\b(?!\.)",
    re.IGNORECASE,
)
"""Finds a word; the name of its group is `number` or w and an index into WORDS."""
CODE = re.compile(
    r"^[ ]*```.*?^[ ]*```[ ]*$|<!-- words -->.*?<!-- /words -->|<!--.*?-->|`+[^`]*`+"
    r"|(?<=\])\([^)\s]*\)|https?:\S+",
    re.MULTILINE | re.DOTALL,
)
PROSE = re.compile(r"[A-Za-z]{2,},? [a-z]+,? [a-z]+")
COMMENT = re.compile(r"(?:^\s*|\s\s)#:? (?!type:|fmt:|noqa)(.+)$")
KINDS = {".md", ".py", ".ipynb", ".yaml", ".yml"}


class Finding(NamedTuple):
    path: Path
    line: int
    word: str
    better: str


def blanked(text: str) -> str:
    """Without code, links and indentation; lines stay."""
    text = CODE.sub(lambda m: re.sub(r"[^\n]", "#", m[0]), text)
    return re.sub(r"\n[ \t]+", "\n", text)


def in_text(text: str) -> Iterator[tuple[int, str, str]]:
    """(line from 0, word, better word) of each finding in running text."""
    text = blanked(text)
    for match in PATTERN.finditer(text):
        kind = match.lastgroup or ""
        better = f"0{match[0]}" if kind == "number" else WORDS[int(kind[1:])][1]
        yield text.count("\n", 0, match.start()), " ".join(match[0].split()), better


def strings(tree: ast.AST) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, text) of each string in the code; a value in an f-string is an X."""
    nodes: list[Any] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.Constant) else "X" for v in node.values]
            yield node.lineno, node.end_lineno or 0, "".join(map(str, parts))
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node.lineno, node.end_lineno or 0, node.value
        else:
            nodes.extend(ast.iter_child_nodes(node))


def in_python(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of docstrings, of strings that are prose, and of comments."""
    inside: set[int] = set()
    for first, last, value in strings(ast.parse(text)):
        inside.update(range(first, last))  # a comment may follow on the last
        if PROSE.search(value):
            yield first, value
    lines = text.splitlines()
    block: list[str] = []  # comment lines that follow one another are one text
    for number, line in enumerate([*lines, ""], 1):
        match = None if number in inside else COMMENT.search(line)
        if block and (match is None or line[: match.start(1)].strip() != "#"):
            yield number - len(block), "\n".join(block)
            block = []
        if match:
            block.append(match[1])


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """(first line, running text) of each part of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from in_python(text)
    elif path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        yield from ((1, "".join(c["source"])) for c in cells if c["cell_type"] == "markdown")
    elif path.suffix == ".md":
        yield 1, text
    else:
        found = (COMMENT.search(line) for line in text.splitlines())
        yield from ((i, m[1]) for i, m in enumerate(found, 1) if m)


@cache
def findings(path: Path) -> list[Finding]:
    """Of a file, in the order of its lines."""
    found = [
        Finding(path, first + line, word, better)
        for first, text in texts(path)
        for line, word, better in in_text(text)
    ]
    return sorted(found, key=lambda f: f.line)


def files(path: Path) -> list[Path]:
    """What is read of a folder; docs/components is written from docstrings, which are."""
    if path.is_file():
        return [path]
    return [
        p
        for p in sorted(path.rglob("*"))
        if p.suffix in KINDS
        and not {"components", "__pycache__", ".venv"} & set(p.relative_to(path).parts)
    ]


if __name__ == "__main__":
    total = 0
    for file in (f for name in sys.argv[1:] or ["."] for f in files(Path(name))):
        for _, line, word, better in findings(file):
            total += 1
            print(f"{file}:{line}: {word!r} -> {better}")
    print(f"{total} findings", file=sys.stderr)
