"""Models of several architectures, made once, and worlds around them."""

import pytest

from helpers.architectures import (
    CONFIGS,
    SMALL,
    save_model,
)
from helpers.worlds import recipe_of
from rlzoo.lm.build import build_world
from rlzoo.recipe.plan import make_plan


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("architectures")
    return {name: save_model(root / name, name) for name in CONFIGS}


@pytest.fixture
def make(zoo, folders):
    """make(architecture, *words, recipe=...): its world."""

    def build(name, *words, recipe="ppo_gae"):
        path = folders.get(name, name)
        words = [f"recipe={recipe}", f"model.path={path}", *SMALL, *words]
        return build_world(make_plan(recipe_of(words, zoo), zoo))

    return build


@pytest.fixture(scope="module")
def bare(folders):
    """bare(name): the model as transformers loads it, loaded once."""
    from transformers import AutoModelForCausalLM

    loaded = {}

    def load(name):
        if name not in loaded:
            loaded[name] = AutoModelForCausalLM.from_pretrained(folders[name]).eval()
        return loaded[name]

    return load
