"""docs/questions.md, in both languages: what code and commands print
is what the pages show."""

import ast
import re
import shlex

import pytest

from helpers import ROOT
from rlzoo.cli import main

PAGE, CHINESE = ROOT / "docs" / "questions.md", ROOT / "docs" / "questions.zh.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RULES = re.compile(r"[─━┃│┏┓┗┛┡┩╇┳┻└┘┴]+")


def fences(page):
    """(language, content, line) of each fenced block."""
    text = page.read_text(encoding="utf-8")
    return [(m[1], m[2], text.count("\n", 0, m.start(2))) for m in FENCE.finditer(text)]


def with_output(page=PAGE):
    """(language, code, line, the output shown or None) of each block that is not itself output."""
    found = fences(page)
    after = [*found[1:], ("", "", 0)]
    return [
        (kind, code, line, output if next_kind == "text" else None)
        for (kind, code, line), (next_kind, output, _) in zip(found, after, strict=True)
        if kind != "text"
    ]


def words_of(text):
    """Its words and numbers: how a table is drawn and where a line is wrapped do not matter."""
    return RULES.sub(" ", text).split()


def missing(shown, printed):
    """The first part of `shown` (its parts are cut at lines of `...`) that does not stand in
    `printed` after the parts before it; None if all do. Without `...` it is the whole."""
    found = words_of(printed)
    parts = [words_of(part) for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    if len(parts) == 1:
        return None if parts[0] == found else shown
    at = 0
    for i, part in enumerate(parts):
        ends = range(at, len(found) - len(part) + 1)
        if i == 0 and part:
            ends = range(1)
        start = next((k for k in ends if found[k : k + len(part)] == part), None)
        if start is None or (part and i == len(parts) - 1 and start + len(part) != len(found)):
            return " ".join(part)
        at = start + len(part)
    return None


def test_output_is_compared_word_by_word():
    printed = "head\n a   b │ 1.0\n\n 2 ──\ntail\n"
    assert missing("head a b 1.0 2 tail", printed) is None
    assert missing("...\n a b 1.0\n...\ntail\n", printed) is None
    assert missing("head\n...\n2\n...\n", printed) is None
    assert missing("...\na b 1.1\n...\n", printed) == "a b 1.1"
    assert missing("...\n2\n...\na b\n...\n", printed) == "a b"  # the order counts
    assert missing("a b\n...\n", printed) == "a b"  # the beginning is not left out
    assert missing("...\nb 1.0\n", printed) == "b 1.0"  # nor is the end
    assert missing("head\n", printed) == "head\n"


COMMANDS = [block for block in with_output() if block[0] == "bash"]


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: f"line{block[2]}")
def test_commands_print_what_is_shown(block, monkeypatch, capsys):
    _, code, _, shown = block
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("RLZOO_PLUGINS", raising=False)
    assert shown is not None
    for line in code.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line)
        assert program == "rlzoo"
        assert main(words) == 0
    printed = capsys.readouterr().out
    assert missing(shown, printed) is None, printed


def test_code_runs_and_prints_what_is_shown(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLZOO_PLUGINS", raising=False)
    space = {"__name__": "questions"}
    for kind, code, line, shown in with_output():
        if kind == "python":
            exec(compile("\n" * line + code, str(PAGE), "exec"), space)
            printed = capsys.readouterr().out
            assert missing(shown or "", printed) is None, printed


def test_both_languages_show_the_same():
    """Commands and all output are equal; Python is on the English page; no number is of its own."""
    ours, theirs = ([block[:2] for block in fences(page)] for page in (PAGE, CHINESE))
    assert [block for block in ours if block[0] != "python"] == theirs
    pages = [page.read_text(encoding="utf-8") for page in (PAGE, CHINESE)]
    code_named, sections = ([re.findall(p, t) for t in pages] for p in (NAMED, r"(?m)^## "))
    assert code_named[0] == code_named[1]
    assert len(sections[0]) == len(sections[1])
    for english, chinese in zip(*(re.split(r"(?m)^## ", text) for text in pages), strict=True):
        numbers = (set(re.findall(r"\d+\.\d+", text)) for text in (chinese, english))
        assert next(numbers) - next(numbers) == set(), chinese.splitlines()[0]


NAMED = re.compile(r"`([\w/]+\.py):(\w+)`")


@pytest.mark.parametrize(
    ("file", "name"), sorted(set(NAMED.findall(PAGE.read_text(encoding="utf-8"))))
)
def test_the_code_that_is_named_is_there(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    assert name in [node.name for node in tree.body if isinstance(node, kinds)]


def test_every_question_names_a_number():
    """A section without a block would be an opinion."""
    text = PAGE.read_text(encoding="utf-8")
    for section in re.split(r"(?m)^## ", text)[1:]:
        assert FENCE.search(section), section.splitlines()[0]
