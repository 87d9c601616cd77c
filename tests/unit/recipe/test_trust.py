"""What a stranger's recipe may not: read the environment, have code of a model run."""

import pytest
import yaml

from rlzoo.cli import main
from rlzoo.errors import RecipeError
from rlzoo.plugin.permissions import VARIABLE
from rlzoo.recipe.compose import compose

BASE = {"estimator": "gae", "rewards": {"http": {"url": "http://127.0.0.1:9/"}}}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """recipe(**changes): words that choose a stranger's file."""
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    monkeypatch.delenv(VARIABLE, raising=False)

    def make(**changes):
        file = tmp_path / "stranger.yaml"
        file.write_text(yaml.safe_dump(BASE | changes))
        return [f"recipe={file}", "model=nano", "task=reverse"]

    return make


def reading(place):
    return {"rewards": {"http": {"url": f"http://127.0.0.1:9/{place}"}}}


@pytest.mark.parametrize(
    "changes",
    [
        reading("${oc.env:HF_TOKEN}"),
        reading("${ oc.env : HF_TOKEN }"),
        reading("${oc.env:HF_TOKEN,none}"),
        reading("${oc.decode:${oc.env:HF_TOKEN}}"),
        reading("${oc.env:${task.name}}"),
        reading("\\${oc.env:HF_TOKEN}"),
        reading("${${model.system}}") | {"model": {"system": "oc.env:HF_TOKEN"}},
        reading("${model.system}") | {"model": {"system": "${oc.env:HF_TOKEN}"}},
        {"model": {"lora": {"targets": ["${oc.env:HF_TOKEN}"]}}},
        {"model": {"shape": {"hidden_size": "${oc.env:HF_TOKEN}"}}},
    ],
)
def test_a_recipe_reads_no_environment_variable(changes, recipe, zoo):
    with pytest.raises(RecipeError) as caught:
        compose(recipe(**changes), zoo)
    text = str(caught.value)
    assert "s3cret" not in text
    assert "\n" not in text
    assert "--allow-env HF_TOKEN" in text or "may refer only to" in text


def test_no_reference_is_put_together_from_pieces(recipe, zoo):
    """A resolved value is read again: it must not become a reference of its own."""
    pieces = {"device": "$", "model": {"system": "{oc.env:HF_TOKEN}"}}
    with pytest.raises(RecipeError, match="reference") as caught:
        compose(recipe(**reading("${device}${model.system}"), **pieces), zoo)
    assert (caught.value.key, caught.value.kind) == ("rewards.http.url", "bad-reference")


def test_the_command_line_lets_a_recipe_read_one_name(recipe, zoo, monkeypatch):
    words = recipe(**reading("${oc.env:HF_TOKEN}"))
    monkeypatch.setenv(VARIABLE, "OTHER, HF_TOKEN")
    found = compose(words, zoo)
    assert found.config.rewards.http.url.endswith("/s3cret")
    stored = found.to_yaml()
    assert "s3cret" not in stored  # what is stored is what was written
    assert yaml.safe_load(stored)["rewards"]["http"]["url"].endswith("/${oc.env:HF_TOKEN}")
    monkeypatch.setenv(VARIABLE, "OTHER")
    with pytest.raises(RecipeError, match="--allow-env HF_TOKEN"):
        compose(words, zoo)


def test_what_refers_to_a_secret_is_stored_as_it_was_written(recipe, zoo, monkeypatch):
    monkeypatch.setenv(VARIABLE, "HF_TOKEN")
    system = {"model": {"system": "${oc.env:HF_TOKEN}"}}
    found = compose(recipe(**reading("${model.system}"), **system), zoo)
    assert found.config.rewards.http.url.endswith("/s3cret")
    assert "s3cret" not in found.to_yaml()


def test_a_plain_reference_is_resolved_and_stored_as_before(recipe, zoo):
    found = compose(recipe(**reading("${task.name}")), zoo)
    assert found.config.rewards.http.url == "http://127.0.0.1:9/reverse"
    assert "${" not in found.to_yaml()


def test_allow_env_is_an_option_of_every_verb(recipe, capsys, monkeypatch):
    words = recipe(**reading("${oc.env:HF_TOKEN}"))
    assert main(["show", *words]) == 2
    assert "s3cret" not in "".join(capsys.readouterr())
    assert main(["show", "--json", "--allow-env", "HF_TOKEN", *words]) == 0
    said = "".join(capsys.readouterr())
    assert "s3cret" not in said
    assert "${oc.env:HF_TOKEN}" in said
    assert main(["show", *words]) == 2  # the word was for that command


def test_headers_are_read_only_from_a_name_that_is_allowed(recipe, capsys, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "Postgres: //user:s3cret@db/x")
    words = recipe(rewards={"http": {"url": "http://127.0.0.1:9/", "headers_from": "DATABASE_URL"}})
    assert main(["show", *words]) == 2
    said = capsys.readouterr().err
    assert "--allow-env DATABASE_URL" in said
    assert "s3cret" not in said
    assert main(["show", *words, "--allow-env", "DATABASE_URL"]) == 0


def test_code_of_a_model_runs_on_the_word_of_the_command_line_alone(recipe, zoo):
    words = recipe(model={"trust_remote_code": True})
    found = compose(words, zoo)
    assert found.config.model.trust_remote_code is False
    assert "only the command line" in found.origins["model.trust_remote_code"]
    assert compose([*words, "model.trust_remote_code=true"], zoo).config.model.trust_remote_code
