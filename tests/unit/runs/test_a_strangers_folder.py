"""A run folder, a store or a recipe from elsewhere changes nothing outside its folder."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import rlzoo
from helpers.runs import StopAt, untimed
from rlzoo.cli import main
from rlzoo.errors import RecipeError, RunError, UsageError
from rlzoo.recipe.compose import compose
from rlzoo.runs.disk import write_atomically
from rlzoo.runs.folder import create_folder
from rlzoo.runs.lock import is_locked, locked
from rlzoo.runs.store import NOTE, kept_at
from rlzoo_lab.data.comparable import read_sweep
from rlzoo_lab.data.staged import staged
from rlzoo_zoo.stores.url import Store


@pytest.fixture(scope="module")
def micro(model_dir):
    return [f"model.path={model_dir}", "rollout.prompts=2", "rollout.samples=2", "device=cpu",
            "rollout.max_new_tokens=4", "train.steps=3", "train.minibatches=1", "eval.samples=4",
            "run.threads=1", "checkpoint.every=1", "run.save_batches=2"]  # fmt: skip


@pytest.fixture(scope="module")
def half(micro, zoo, tmp_path_factory):
    """A run that was stopped within its second step."""
    place = tmp_path_factory.mktemp("half") / "run"
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*micro, f"run.dir={place}"], zoo=zoo, display=StopAt(2))
    return place


@pytest.fixture
def mine(tmp_path):
    """What is mine, and must stay as it is."""
    place = tmp_path / "mine"
    (place / "src").mkdir(parents=True)
    for name in ("recipe.yaml", "thesis.tex", "src/code.py", "a.safetensors", "model.safetensors",
                 "step-00000001.safetensors", "step-00000009.safetensors"):  # fmt: skip
        (place / name).write_text(f"# {name}\n")
    return place


def held(place):
    return {p: p.read_bytes() if p.is_file() else None for p in sorted(place.rglob("*"))}


@pytest.fixture
def stranger(half, tmp_path):
    return Path(shutil.copytree(half, tmp_path / "run"))


# ---------------------------------------------------------------- links

FILES = ["samples.jsonl", "metrics.jsonl", ".lock", "summary.json", ".summary.json.partial",
         "metrics.csv", ".metrics.csv.partial", "model/model.safetensors", "failed.json",
         ".provenance.json.partial", "batches/step-00000002.json", ".store", ".sent.partial",
         "evaluations/.step-00000002.safetensors.partial"]  # fmt: skip
FOLDERS = ["model", "batches", "evaluations", "checkpoints", "best", ".best.partial",
           "checkpoints/.step-00000002.partial", "tensorboard"]  # fmt: skip


KINDS = ["link", "link to nothing", "hard link"]
LINKS = [(n, k) for n in FILES for k in KINDS] + [(n, k) for n in FOLDERS for k in KINDS[:2]]


@pytest.mark.parametrize(("name", "kind"), LINKS)
def test_a_link_in_a_run_folder_is_refused(zoo, stranger, mine, name, kind):
    before, place = held(mine), stranger / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    target = mine if name in FOLDERS else mine / "thesis.tex"
    if kind == "hard link":
        os.link(target, place)
    else:
        place.symlink_to(target if kind == "link" else mine / "new")
    with pytest.raises(RunError) as said:
        rlzoo.resume(stranger, zoo=zoo)
    assert str(place) in str(said.value) or name in ("metrics.jsonl", ".store")
    assert held(mine) == before


def test_a_run_folder_that_is_a_link_itself_and_links_inside_it_work(
    zoo, micro, stranger, tmp_path
):
    (tmp_path / "there").mkdir()
    stranger.rename(tmp_path / "there" / "run")
    (tmp_path / "runs").symlink_to(tmp_path / "there")
    (tmp_path / "there" / "run" / "latest").symlink_to("checkpoints")
    assert rlzoo.resume(tmp_path / "runs" / "run", zoo=zoo).summary["steps"] == 3
    (tmp_path / "place").mkdir()
    (tmp_path / "own").symlink_to(tmp_path / "place")
    run = rlzoo.run("ppo_gae", [*micro, "train.steps=1", f"run.dir={tmp_path / 'own'}"], zoo=zoo)
    assert (tmp_path / "place" / "summary.json").exists()
    assert run.summary["steps"] == 1


@pytest.mark.parametrize("name", ["samples.jsonl", ".lock", ".recipe.yaml.partial", "model"])
def test_a_new_run_in_a_folder_with_a_link_is_refused(zoo, micro, mine, tmp_path, name):
    before, place = held(mine), tmp_path / "x"
    place.mkdir()
    (place / name).symlink_to(mine if name == "model" else mine / "thesis.tex")
    with pytest.raises(RunError):
        rlzoo.run("ppo_gae", [*micro, f"run.dir={place}"], zoo=zoo)
    assert held(mine) == before


def test_an_aside_is_no_way_out_where_nobody_looked_before(tmp_path, mine):
    before = held(mine)
    (tmp_path / ".page.html.partial").symlink_to(mine / "thesis.tex")
    write_atomically(tmp_path / "page.html", b"new")
    assert (tmp_path / "page.html").read_bytes() == b"new"
    (tmp_path / ".out.partial").symlink_to(mine)
    with (
        pytest.raises(UsageError, match="--out"),
        staged(tmp_path / "out", "--out", keep=Path.exists),
    ):
        pass
    (tmp_path / ".out.partial").unlink()
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "report.json").symlink_to(mine / "thesis.tex")
    with pytest.raises(UsageError), staged(tmp_path / "out", "--out", keep=Path.exists):
        pass
    (tmp_path / ".lock").symlink_to(mine / "thesis.tex")
    with pytest.raises(RunError), locked(tmp_path):
        pass
    assert not is_locked(tmp_path)
    assert held(mine) == before


@pytest.mark.parametrize("verb", ["resume", "report", "doctor", "compare", "eval", "model export"])
@pytest.mark.parametrize(
    "name", ["metrics.jsonl", ".lock", "model/x", "summary.json", "recipe.yaml"]
)
def test_a_pipe_or_a_device_is_refused_before_it_is_read(stranger, tmp_path, capsys, verb, name):
    place = stranger / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    if verb == "doctor":
        place.symlink_to("/dev/zero")
    else:
        os.mkfifo(place)
    out = [str(tmp_path / "out")] * (verb == "model export")
    assert main([*verb.split(), str(stranger), *out]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("rlzoo: ")
    assert "device" in said
    assert "\n" not in said


def test_a_link_to_nothing_within_the_folder_is_refused_before_a_store_is_claimed(
    stranger, tmp_path, capsys
):
    kept = shutil.copytree(stranger, tmp_path / "kept")
    before = held(kept)
    shutil.rmtree(stranger / "checkpoints")
    (stranger / "checkpoints").symlink_to("model")
    assert main(["resume", str(stranger), "--store", f"file://{kept}"]) == 2
    assert "checkpoints: is a broken link" in capsys.readouterr().err
    assert held(kept) == before


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_folder_where_weights_go_is_one_line(stranger, capsys, name):
    (stranger / "model" / name).mkdir(parents=True)
    assert main(["resume", str(stranger)]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert "model cannot be written" in said[-1]
    (stranger / "model" / name).rmdir()
    assert main(["resume", str(stranger)]) == 0


def test_links_within_the_model_s_folder_are_replaced_by_files(stranger):
    (stranger / "model").mkdir(exist_ok=True)
    (stranger / "model" / "tokenizer.json").symlink_to(stranger / "model")
    (stranger / "model" / "config.json").symlink_to(stranger / "recipe.yaml")
    recipe = (stranger / "recipe.yaml").read_bytes()
    assert main(["resume", str(stranger)]) == 0
    assert not any(path.is_symlink() for path in (stranger / "model").iterdir())
    assert (stranger / "recipe.yaml").read_bytes() == recipe


def test_a_file_in_the_place_of_a_folder_is_refused_before_a_store_is_claimed(
    stranger, tmp_path, capsys
):
    shutil.rmtree(stranger / "checkpoints")
    (stranger / "checkpoints").write_text("x" * 1000)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert main(["resume", str(stranger), "--store", f"file://{empty}"]) == 2
    assert "checkpoints: is a file" in capsys.readouterr().err
    assert held(empty) == {}


@pytest.mark.parametrize("mask", [".", [["x"]], 3])
def test_a_batch_s_texts_replace_none_of_its_tensors(stranger, mask, capsys):
    file = max((stranger / "batches").glob("*.json"))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"response_mask": mask}))
    assert main(["trace", str(stranger)]) == 0
    columns = load_file(file.with_suffix(".safetensors"))
    save_file(columns | {"response_mask": torch.ones(3)}, file.with_suffix(".safetensors"))
    assert main(["trace", str(stranger)]) == 2
    del columns["response_mask"]
    save_file(columns, file.with_suffix(".safetensors"))
    assert main(["trace", str(stranger)]) == 2
    assert capsys.readouterr().err.count(f"{file.stem}.safetensors cannot be read") == 2


@pytest.mark.parametrize("verb", ["trace", "diagnose"])
def test_texts_or_tensors_of_another_number_of_rows_are_damage(stranger, verb, capsys):
    file = max((stranger / "batches").glob("*.json"))
    texts = json.loads(file.read_text())
    file.write_text(json.dumps(texts | {"prompts": texts["prompts"][:1]}))
    assert main([verb, str(stranger)]) == 2
    file.write_text(json.dumps(texts))
    columns = load_file(file.with_suffix(".safetensors"))
    save_file(columns | {"values": columns["values"][:1]}, file.with_suffix(".safetensors"))
    assert main([verb, str(stranger)]) == 2
    said = capsys.readouterr().err
    assert "prompts has 1 entries for 4 rows" in said
    assert said.count("\n") == 2


def test_an_option_s_file_that_is_a_link_is_not_followed(stranger, mine, capsys):
    (stranger / "out.jsonl").symlink_to(mine / "thesis.tex")
    before = held(mine)
    words = ["eval", str(stranger), "--checkpoint", "last", "--responses", "4"]
    assert main([*words, "--out", str(stranger / "out.jsonl")]) == 2
    assert "out.jsonl is a link" in capsys.readouterr().err
    assert held(mine) == before


def test_a_sweep_s_folder_with_a_link_is_refused(micro, mine, tmp_path, capsys):
    before, place = held(mine), tmp_path / "sweep"
    (place / "ppo_gae--seed0").mkdir(parents=True)
    (place / "ppo_gae--seed0" / "samples.jsonl").symlink_to(mine / "thesis.tex")
    (place / "sweep.json").write_text('{"keys": [], "rows": []}')
    assert main(["sweep", "ppo_gae", *micro, "seed=0", "--dir", str(place)]) == 2
    assert "samples.jsonl" in capsys.readouterr().err
    assert held(mine) == before


@pytest.mark.parametrize("runs", [["../x"], ["/etc"], ["a/b"], [".."], [""], [3], 7, [[]]])
def test_a_sweep_names_runs_of_its_own_alone(tmp_path, runs):
    rows = [{"label": "a", "values": {}, "words": [], "runs": runs}]
    (tmp_path / "sweep.json").write_text(json.dumps({"words": [], "keys": [], "rows": rows}))
    with pytest.raises(RunError, match=r"sweep\.json cannot be read"):
        read_sweep(tmp_path)


# ---------------------------------------------------------------- notes


@pytest.mark.parametrize("finished", [False, True])
def test_the_note_of_a_store_is_not_obeyed(zoo, stranger, mine, finished):
    before = held(mine)
    (stranger / NOTE).write_text(str(f"file://{mine}"))
    if finished:
        (stranger / "summary.json").write_text('{"steps": 3}')
    with pytest.raises(UsageError, match="--store file:"):
        rlzoo.resume(stranger, zoo=zoo)
    assert held(mine) == before
    (stranger / NOTE).unlink()
    (stranger / "summary.json").unlink(missing_ok=True)
    assert rlzoo.resume(stranger, zoo=zoo).summary["steps"] == 3


@pytest.mark.parametrize("what", ["no run", "a run", "a run that is further"])
def test_a_store_that_holds_something_else_is_not_written_to(zoo, micro, stranger, mine, what):
    """Even where the caller names it."""
    url = f"file://{mine}"
    if what != "no run":  # a run of mine, not this one
        shutil.rmtree(mine)
        words = [*micro, "train.steps=1", "seed=7", f"run.dir={mine.parent / 'other'}"]
        rlzoo.run("ppo_gae", words, zoo=zoo, store=url)
    if what == "a run":
        (mine / "summary.json").unlink()  # not finished: the stranger's is further
        shutil.rmtree(mine / "checkpoints")
    before = held(mine)
    with pytest.raises(RunError, match="other than this run"):
        rlzoo.resume(stranger, zoo=zoo, store=url)
    assert held(mine) == before


def test_a_store_loses_only_what_the_run_sent(zoo, micro, tmp_path):
    url, there = f"file://{tmp_path}/there", tmp_path / "there"
    words = [*micro, "checkpoint.keep=1", f"run.dir={tmp_path / 'run'}"]
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", words, zoo=zoo, display=StopAt(2), store=url)
    for name in ("mine.txt", "checkpoints/mine/weights", "batches/mine.safetensors"):
        (there / name).parent.mkdir(exist_ok=True)
        (there / name).write_text("mine")
    run = rlzoo.resume(tmp_path / "run", zoo=zoo, store=url)
    assert (there / "mine.txt").read_text() == "mine"
    assert (there / "checkpoints/mine/weights").read_text() == "mine"
    assert (there / "batches/mine.safetensors").read_text() == "mine"
    steps = sorted(p.name for p in (there / "checkpoints").glob("step-*"))
    assert steps == [p.name for p in (run.path / "checkpoints").iterdir()] == ["step-00000003"]


def test_overwriting_empties_a_store_of_a_run_alone(zoo, micro, mine, tmp_path):
    url = f"file://{mine}"
    words = [*micro, "train.steps=1", f"run.dir={tmp_path / 'x'}", "run.overwrite=true"]
    before = held(mine)
    with pytest.raises(RunError, match="not a run"):
        rlzoo.run("ppo_gae", words, zoo=zoo, store=url)
    assert held(mine) == before
    (mine / "metrics.jsonl").write_text('{"step": 0}\n')  # a run's folder
    (mine / "summary.json").write_text("{}")
    rlzoo.run("ppo_gae", words, zoo=zoo, store=url)
    for name in ("thesis.tex", "src/code.py", "a.safetensors"):
        assert (mine / name).read_text() == f"# {name}\n"
    assert untimed(mine) == untimed(tmp_path / "x")


def test_a_store_on_a_disk_with_links_is_not_written_to(stranger, mine, tmp_path):
    before = held(mine)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "checkpoints").symlink_to(mine)
    with pytest.raises(RunError, match="is a link"):
        Store(f"file://{tmp_path}/there").begin(stranger)
    (tmp_path / "there" / ".sweep.json.partial").symlink_to(mine / "thesis.tex")
    with pytest.raises(RunError, match="is a link"):
        Store(f"file://{tmp_path}/there").put(stranger / "recipe.yaml")
    assert held(mine) == before


def test_the_keys_of_a_bucket_lead_nowhere_else(tmp_path, monkeypatch):
    store = Store("memory://odd")
    odd = ["", "recipe.yaml", "/etc/x", "../x", "a/../../x", "a//b", "a/", ".hidden"]
    monkeypatch.setattr(store.fs, "ls", lambda *_: [])
    monkeypatch.setattr(store.fs, "find", lambda *_, **__: {name: {} for name in odd})
    assert store.names() == {"recipe.yaml"}


# ---------------------------------------------------------------- recipes


@pytest.fixture
def recipe(micro, zoo, tmp_path, monkeypatch):
    """A recipe file of these lines, composed in a current folder of its own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def made(*lines, words=(), name="s.yaml"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("\n".join(lines))
        return compose([f"recipe={name}", "estimator=grpo", *micro, *words], zoo)

    return made


def test_a_file_replaces_no_run(recipe, stranger, zoo):
    before = held(stranger)
    shutil.copytree(stranger, "best")
    found = recipe("run: {dir: best, overwrite: true}")
    assert found.config.run.overwrite is False
    assert "s.yaml" in found.origins["run.overwrite"]
    with pytest.raises(RunError, match="already exists"), create_folder(found):
        pass
    assert [*held(Path("best")).values()] == [*before.values()]
    with create_folder(recipe("run: {dir: best}", words=["run.overwrite=true"])) as folder:
        assert not folder.checkpoints.exists()


@pytest.mark.parametrize("place", ["../out", "{}/out", "a/../../out", "link/out"])
def test_a_file_chooses_no_place_outside(recipe, tmp_path, place):
    place = place.format(tmp_path)
    os.symlink("..", "link")
    found = recipe(f"run: {{dir: {place}}}")
    with pytest.raises(RecipeError, match=r"run\.dir \(s\.yaml\)"), create_folder(found):
        pass
    assert not (tmp_path / "out").exists()
    with create_folder(recipe("seed: 1", words=[f"run.dir={place}"])):
        assert (tmp_path / "out" / "recipe.yaml").exists()


def test_runs_may_be_a_link(recipe, tmp_path):
    (tmp_path / "scratch").mkdir()
    os.symlink(tmp_path / "scratch", "runs")
    with create_folder(recipe("run: {dir: runs/a}")):
        assert (tmp_path / "scratch" / "a" / "recipe.yaml").exists()


def test_a_recipe_s_name_is_no_path(recipe, tmp_path):
    found = recipe("# ../../../out: a name", "seed: 1", name="x/recipe.yaml")
    with create_folder(found) as folder:
        assert folder.path.parent == Path("runs")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here"]


def test_a_run_that_replaced_another_resumes_without_a_note(zoo, micro, tmp_path):
    words = [*micro, f"run.dir={tmp_path / 'run'}", "run.overwrite=true"]
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", words, zoo=zoo, display=StopAt(2))
    shown = StopAt(None)
    rlzoo.resume(tmp_path / "run", zoo=zoo, display=shown)
    assert [note for note in shown.notes if "overwrite" in note] == []


def test_a_run_that_replaces_another_restores_nothing_of_it(zoo, micro, tmp_path):
    words = [*micro, "train.steps=1", f"run.dir={tmp_path / 'run'}", "run.overwrite=true"]
    rlzoo.run("ppo_gae", words, zoo=zoo)
    (tmp_path / "run" / ".best.former").mkdir()  # killed while it replaced its best policy
    rlzoo.run("ppo_gae", words, zoo=zoo)
    assert not (tmp_path / "run" / "best").exists()


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mfile:///a", "file:///a\nb", "\x00", ""])
def test_a_note_that_is_no_url_is_none(tmp_path, text):
    (tmp_path / NOTE).write_text(text)
    assert kept_at(tmp_path) == ""
