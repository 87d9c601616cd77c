"""The words of CONTRIBUTING's style sheet: pages, docstrings, comments and messages avoid them."""

import re
from collections import Counter

import pytest

from docs.words import ROOT, files, findings, in_python, in_text

CLEAN = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
"""Files with none of these words, next to the folders below."""
BUDGET = {
    "docs": 0,
    "rlzoo": 0,
    "plugins": 7,
    "configs": 0,
}
"""How many are left to rewrite. Lower these numbers; the aim is 0."""
FINE: dict[tuple[str, str], str] = {}
"""(file, word): why it is right there. At most ten."""


def left(name):
    """The findings in a file or folder that are no exceptions."""
    found = [finding for path in files(ROOT / name) for finding in findings(path)]
    return [f for f in found if (f.path.relative_to(ROOT).as_posix(), f.word) not in FINE]


def worst(found):
    """What to print: how often each word comes, and the first places."""
    words = Counter(f.word.lower() for f in found).most_common(8)
    places = [f"{f.path.relative_to(ROOT)}:{f.line}: {f.word!r} -> {f.better}" for f in found[:20]]
    return f"{words}\n" + "\n".join([*places, "python tests/docs/words.py PATH lists all"])


@pytest.mark.parametrize("name", CLEAN)
def test_it_has_none_of_these_words(name):
    assert left(name) == [], worst(left(name))


@pytest.mark.parametrize("name", BUDGET)
def test_their_number_does_not_grow(name):
    found = left(name)
    assert len(found) <= BUDGET[name], worst(found)


def test_exceptions_are_few_and_used():
    assert len(FINE) <= 10
    for file, word in FINE:
        assert word in [f.word for f in findings(ROOT / file)], (file, word)


def test_every_row_of_the_table_is_found():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("<!-- words -->")[2].partition("<!-- /words -->")[0]
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", table, re.MULTILINE)[2:]
    assert len(rows) > 20
    phrases = [phrase for row, _ in rows for phrase in re.split("[,;] ", row)]
    assert [phrase for phrase in phrases if not list(in_text(phrase))] == []
    assert [better for _, better in rows if list(in_text(better))] == []


@pytest.mark.parametrize(
    "text",
    [
        "a run at\n  hand",
        "Of ten runs, four fail.",
        "It ends; of the rest nothing is left.",
        "an accuracy of .12",
        "The folder is no model.",
        "What a run leaves is\na folder.",
    ],
)
def test_found(text):
    assert len(list(in_text(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`rlzoo tell`\n```text\nNobody said so: .5\n```",
        "[a](alone.md) and https://a.b/alone",
        "There is no critic; version 0.9.1; if you want to know it; 0.12 to 0.5",
        "a letter stands for a token; keep in mind; say 8 rows; apart from that; of course",
        "## What a row holds\n\nA row has tokens. What is a row? What differs: nothing.",
        "the state of the art, a share of all tokens",
    ],
)
def test_not_found(text):
    assert list(in_text(text)) == []


def test_code_is_read_as_text():
    code = '''"""Doc string
of three words."""
key = "alone"
raise Error(f"the file {name} is "
            "in no place")  # a comment
# goes over
# two lines
'''
    assert sorted(in_python(code)) == [
        (1, "Doc string\nof three words."),
        (4, "the file X is in no place"),
        (5, "a comment\ngoes over\ntwo lines"),
    ]


def test_the_readme_and_the_docs_stay_short():
    readme = len((ROOT / "README.md").read_text(encoding="utf-8").split())
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "docs" / "gallery" / "README.md"]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    assert readme <= 700
    assert readme + words <= 35_950
