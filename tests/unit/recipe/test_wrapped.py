"""The trees that tests make at once are omegaconf's own, node by node."""

import pytest
from omegaconf import OmegaConf, ReadonlyConfigError

from helpers.wrapped import quickly
from rlzoo.recipe.compose import compose

ODD = {
    "list": [1, [2, "x"], {"y": None}], "empty": {}, "none": [], "text": "a ?", "float": 1e-3,
    "missing": "???", "of": "${float}", "truth": True,
}  # fmt: skip


def told(node, parent=None):
    """All that a node holds, and those in it."""
    own = dict(vars(node))
    assert own.pop("_parent") is parent
    own.pop("_flags_cache")
    content = own.pop("_content", None)
    inner = content.items() if isinstance(content, dict) else enumerate(content or ())
    return type(node), type(content), own, [(key, told(value, node)) for key, value in inner]


@pytest.fixture
def slowly():
    return OmegaConf.create.__wrapped__  # conftest.py wraps it


@pytest.mark.parametrize("name", ["odd", "ppo_gae", "smollm2_sums"])
def test_they_are_omegaconfs(name, zoo, slowly):
    tree = ODD
    if name != "odd":
        tree = OmegaConf.to_container(compose([f"recipe={name}"], zoo).config)
    assert told(quickly(slowly)(tree)) == told(slowly(tree))


def test_they_resolve_and_are_read_only(slowly):
    tree = quickly(slowly)(ODD)
    assert (tree.of, tree.list[1][1]) == (1e-3, "x")
    tree = quickly(slowly)({"a": {"b": 1}})
    OmegaConf.set_readonly(tree, True)
    with pytest.raises(ReadonlyConfigError):
        tree.a.b = 2
