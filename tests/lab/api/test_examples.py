"""The examples in the docstrings of public names run and give what they show."""

import doctest
import inspect

import pytest

import rlzoo

SHOWN = {"check", "compare_scores", "trace"}
FOUND = {
    name: tests[0]
    for name in rlzoo.__all__
    if inspect.isfunction(function := getattr(rlzoo, name))
    and (tests := doctest.DocTestFinder(recurse=False).find(function, name, globs={}))
    and tests[0].examples
}


def test_these_have_examples():
    assert set(FOUND) >= SHOWN


@pytest.mark.parametrize("name", sorted(FOUND))
def test_an_example_gives_what_it_shows(name, zoo):
    said = []
    test = FOUND[name]
    test.globs = {"rlzoo": rlzoo}
    doctest.DocTestRunner().run(test, out=said.append)
    assert said == []
