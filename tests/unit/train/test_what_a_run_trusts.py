"""What a resumed run is held to, what ends one that learns nothing, and who cannot spoil it."""

import json
import shutil
import warnings
from importlib.metadata import version

import pytest
import torch

import rlzoo
from helpers.runs import untimed
from rlzoo.errors import CheckpointError, ComponentError, RunError, Unfinished
from rlzoo.runs import provenance
from rlzoo.runs.display import Silent
from rlzoo.step import update
from rlzoo.train.checkpoint import write_manifest

pytestmark = pytest.mark.process  # trainings that are cut off and go on


class Heard(Silent):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def trained(zoo, model_dir, tmp_path_factory):
    """A run of two steps, and the words that made it."""
    path = tmp_path_factory.mktemp("trusted") / "run"
    words = [
        f"model.path={model_dir}",
        "task=reverse",
        "rollout.prompts=2",
        "rollout.samples=2",
        "rollout.max_new_tokens=4",
        "train.steps=2",
        "eval.samples=2",
        "checkpoint.every=1",
        "device=cpu",
        "loggers=[]",
    ]
    rlzoo.run("ppo_gae", [*words, f"run.dir={path}"], zoo=zoo)
    return path, words


@pytest.fixture
def cut(trained, tmp_path):
    """The run as a kill after its first step leaves it."""
    path = tmp_path / "run"
    shutil.copytree(trained[0], path)
    (path / "summary.json").unlink()
    shutil.rmtree(path / "checkpoints" / "step-00000002")
    return path


def resume(path, zoo):
    heard = Heard()
    rlzoo.resume(path, zoo=zoo, display=heard)
    return heard.notes


def test_a_run_says_what_trained_it(trained):
    (part,) = json.loads((trained[0] / provenance.FILE).read_text())
    assert part["from_step"] == 0
    assert part["versions"]["torch"] == version("torch")
    assert {"rlzoo", "transformers", "Python"} <= set(part["versions"])
    said = part["components"]["estimator gae"]
    assert said.startswith(f"rlzoo_zoo.estimators.gae (rlzoo-llm {rlzoo.__version__}), source ")
    assert part["recipe"]["seed"] == 0


def test_nothing_is_said_where_nothing_changed(trained, cut, zoo):
    assert resume(cut, zoo) == ["resumed at step 1"]
    for name in ("metrics.jsonl", "samples.jsonl", provenance.FILE):
        mine, theirs = ((p / name).read_text().splitlines() for p in (cut, trained[0]))
        assert len(mine) == len(theirs), name
    assert (cut / provenance.FILE).read_text() == (trained[0] / provenance.FILE).read_text()


def test_other_versions_and_other_code_are_said_and_written_down(cut, zoo):
    parts = json.loads((cut / provenance.FILE).read_text())
    parts[0]["versions"]["torch"] = "1.0"
    parts[0]["components"]["estimator gae"] = "elsewhere, source 0"
    (cut / provenance.FILE).write_text(json.dumps(parts))
    notes = "\n".join(resume(cut, zoo))
    assert f"changed after step 1: torch: 1.0 -> {version('torch')}" in notes
    assert "changed after step 1: estimator gae: elsewhere, source 0 -> rlzoo_zoo" in notes
    parts = json.loads((cut / provenance.FILE).read_text())
    assert [p["from_step"] for p in parts] == [0, 1]
    assert parts[1]["versions"]["torch"] == version("torch")


DATA = [{"prompt": f"{i}+1=", "answer": f"{i + 1}"} for i in range(40)]
CHANGES = {  # what is changed, how -> the key that is named
    "d.jsonl": (lambda text: text.replace('"answer": "2"', '"answer": "9"'), "task.path"),
    "pay_of_then.py": (lambda text: text.replace("1.0", "-1.0"), "rewards.python.function"),
    "start/tokenizer_config.json": (lambda text: text + "\n", "model.path"),
    "own.py": (lambda text: text + "\n", "estimator own"),
}


@pytest.fixture(scope="module")
def named(model_dir, tmp_path_factory):
    """A run of two steps whose data, reward, model and plugin are files of the user's."""
    place = tmp_path_factory.mktemp("named")
    shutil.copytree(model_dir, place / "start")
    (place / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in DATA))
    (place / "pay_of_then.py").write_text("def f(p, r, a): return [1.0 * len(x) for x in r]")
    (place / "own.py").write_text(
        "from rlzoo import hookimpl\n"
        "def own(sequence_rewards, response_mask):\n"
        "    return sequence_rewards[:, None] * response_mask\n"
        "@hookimpl\ndef register_estimators(register): register(own)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.syspath_prepend(place)
        own = rlzoo.load_zoo(["own.py"])
        rlzoo.run("grpo", ["model.path=start", "task=dataset", "task.path=d.jsonl",
                           "estimator=own", "rewards.python.function=pay_of_then:f",
                           "rollout.prompts=2", "rollout.samples=2", "rollout.max_new_tokens=4",
                           "train.steps=2", "eval.samples=2", "checkpoint.every=1", "device=cpu",
                           "loggers=[]", "run.dir=run"], zoo=own)  # fmt: skip
        (place / "run/summary.json").unlink()
        shutil.rmtree(place / "run/checkpoints/step-00000002")
        yield place, own


@pytest.mark.parametrize("file", [None, *CHANGES])
def test_other_contents_of_what_a_recipe_names_are_said_once(file, named):
    place, own = named
    path = place / f"run-{file}".replace("/", "-")
    shutil.copytree(place / "run", path)
    changed, key = CHANGES.get(file, (str, None))
    if file:
        text = (place / file).read_text()
        (place / file).write_text(changed(text))
        assert (place / file).read_text() != text
    notes = [note for note in resume(path, own) if note.startswith("changed")]
    if file:
        (place / file).write_text(text)
        assert [n.partition(": ")[2].partition(": ")[0] for n in notes] == [key]
        assert any(name in notes[0] for name in (file, "start"))
    else:
        assert notes == []
    parts = json.loads((path / provenance.FILE).read_text())
    assert [p["from_step"] for p in parts] == [0, 1][: 1 + bool(file)]


def change(path, old, new):
    file = path / "recipe.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_an_edited_recipe_is_refused_and_its_keys_are_named(cut, zoo):
    change(cut, "seed: 0", "seed: 5")
    with pytest.raises(RunError, match="seed: 0 -> 5; restore it"):
        resume(cut, zoo)


def test_how_far_a_run_goes_may_change_and_is_said(cut, zoo):
    change(cut, "steps: 2", "steps: 3")
    assert any("train.steps: 2 -> 3" in note for note in resume(cut, zoo))
    assert json.loads((cut / "summary.json").read_text())["steps"] == 3


def test_another_runs_checkpoint_is_refused(cut, trained, zoo, tmp_path):
    other = tmp_path / "other"
    rlzoo.run("ppo_gae", [*trained[1], f"run.dir={other}", "actor.lr=0.5"], zoo=zoo)
    shutil.rmtree(cut / "checkpoints" / "step-00000001")
    shutil.copytree(other / "checkpoints" / "step-00000001", cut / "checkpoints" / "step-00000001")
    with pytest.raises(CheckpointError, match="belongs to another run"):
        resume(cut, zoo)


def test_lost_metrics_are_refused(cut, zoo):
    (cut / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match="lacks the evaluation before training"):
        resume(cut, zoo)


def say(checkpoint, **state):
    """Change what a checkpoint says of itself; None: it does not say it."""
    file = checkpoint / "state.json"
    said = json.loads(file.read_text()) | state
    file.write_text(json.dumps({k: v for k, v in said.items() if v is not None}))
    (checkpoint / "manifest.json").unlink()
    write_manifest(checkpoint)


def test_a_run_from_before_this_file_goes_on(cut, zoo):
    (cut / provenance.FILE).unlink()
    say(cut / "checkpoints" / "step-00000001", identity=None, updated=None)
    assert resume(cut, zoo) == ["resumed at step 1"]


def test_a_run_of_a_version_with_other_keys_goes_on(cut, zoo):
    """What a later version adds stands at its default, which is no edit; another value is one. What
    it took away had no effect."""
    change(cut, "  skip_no_signal: true\n", "  token_budget: null\n")
    file = cut / provenance.FILE
    (part,) = json.loads(file.read_text())
    del part["recipe"]["train.skip_no_signal"]
    part["recipe"]["train.token_budget"] = None
    part["identity"] = "as that version made it"
    file.write_text(json.dumps([part]))
    say(cut / "checkpoints" / "step-00000001", identity=part["identity"])
    assert resume(cut, zoo) == ["resumed at step 1"]


@pytest.mark.parametrize("name", ["summary.json", provenance.FILE])
@pytest.mark.parametrize("text", ["[]", "{", "", '[{"from_step": 0, "recipe": {}, "versions": {}, '
                                  '"components": {}, "contents": ["x"]}]'])  # fmt: skip
def test_a_damaged_file_of_a_run_is_one_line(cut, zoo, name, text):
    (cut / name).write_text(text)
    with pytest.raises(RunError, match=name) as caught:
        resume(cut, zoo)
    assert "\n" not in str(caught.value)


def test_a_run_that_learns_nothing_ends_with_a_problem(trained, zoo, tmp_path, monkeypatch):
    def spoiled(*arguments, **options):
        sums = gradients(*arguments, **options)
        for name in ("actor/pg_loss", "critic/vf_loss"):
            sums[name] = torch.nan
        return sums

    gradients = update.gradients
    monkeypatch.setattr(update, "gradients", spoiled)
    path = tmp_path / "run"
    with pytest.raises(Unfinished, match="nothing was learned: .* every update was skipped"):
        rlzoo.run("ppo_gae", [*trained[1], f"run.dir={path}"], zoo=zoo)
    assert not (path / "summary.json").exists()
    monkeypatch.setattr("rlzoo.train.loop.IN_VAIN", 2)
    words = [*trained[1], "train.steps=50", f"run.dir={tmp_path / 'long'}"]
    with pytest.raises(Unfinished, match="for 2 steps"):
        rlzoo.run("ppo_gae", words, zoo=zoo)


LOGGER = """
from rlzoo import hookimpl

class Faulty:
    '''Source: here.'''
    def __init__(self, path, *, where: str = ""):
        self.where = where
        if where == "init":
            raise OSError("no such board")

    def log(self, metrics):
        metrics.clear()
        if self.where == "log":
            raise OSError("no such board")

    def close(self):
        if self.where == "close":
            raise SystemExit(0)

class Good:
    '''Source: here.'''
    def __init__(self, path):
        self.lines = []
        self.path = path

    def log(self, metrics):
        self.lines.append(metrics["step"])

    def close(self):
        (self.path / "heard.txt").write_text(str(self.lines))

@hookimpl
def register_loggers(register):
    register(Faulty)
    register(Good)
"""


@pytest.fixture(scope="module")
def with_loggers(tmp_path_factory):
    file = tmp_path_factory.mktemp("loggers") / "loggers_of_a_stranger.py"
    file.write_text(LOGGER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return rlzoo.load_zoo([file])


@pytest.mark.parametrize("where", ["log", "close"])
def test_a_logger_that_raises_costs_itself(where, trained, with_loggers, tmp_path):
    heard, path = Heard(), tmp_path / "run"
    words = [f"run.dir={path}", "loggers=[faulty,good]", f"loggers.faulty.where={where}"]
    rlzoo.run("ppo_gae", [*trained[1], *words], zoo=with_loggers, display=heard)
    (note,) = (n for n in heard.notes if "faulty" in n)
    assert note.startswith("logger 'faulty' raised ")
    assert note.endswith("the run continues without it")
    assert (path / "summary.json").exists()
    assert (path / "model" / "config.json").exists()
    assert (path / "heard.txt").read_text() == "[0, 1, 2, 2]"  # nobody's line was spoilt


def test_a_logger_that_cannot_begin_is_one_line(trained, with_loggers, tmp_path):
    words = [f"run.dir={tmp_path / 'run'}", "loggers=[faulty]", "loggers.faulty.where=init"]
    with pytest.raises(ComponentError, match="logger 'faulty' .* raised OSError: no such board"):
        rlzoo.run("ppo_gae", [*trained[1], *words], zoo=with_loggers)


def damage(checkpoint, fault):
    """A checkpoint that is damaged though its manifest vouches for it."""
    state, actor = checkpoint / "state.json", checkpoint / "actor.safetensors"
    if fault.startswith("state.json "):
        state.write_text(fault.removeprefix("state.json "))
    elif fault == "no manifest of weights":
        actor.write_bytes(actor.read_bytes()[:100])
        (checkpoint / "manifest.json").write_text("{}")
        return
    else:
        name, _, how = fault.partition(" ")
        file = checkpoint / name
        data = file.read_bytes()
        changed = {"cut": data[:-9], "empty": b"", "header": b"9" * 8 + data[8:], "other": b"[]"}
        file.write_bytes(changed[how])
    write_manifest(checkpoint)


@pytest.mark.parametrize(
    "fault",
    ["no manifest of weights", "actor.safetensors cut", "actor.safetensors empty",
     "actor.safetensors header", "critic_optimizer.safetensors cut", "state.json other",
     "state.json []", 'state.json {"a": 1}', 'state.json {"step": "2"}'],
)  # fmt: skip
def test_a_checkpoint_that_is_falsely_vouched_for_is_not_taken(fault, trained, zoo, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(trained[0], path)
    (path / "summary.json").unlink()
    damage(path / "checkpoints" / "step-00000002", fault)
    notes = resume(path, zoo)
    assert "step-00000002 is damaged" in notes[0]
    assert "resumed at step 1" in notes[1]
    assert untimed(path) == untimed(trained[0])
    for step in (1, 2):
        damage(path / "checkpoints" / f"step-0000000{step}", fault)
    (path / "summary.json").unlink()
    with pytest.raises(CheckpointError, match="every checkpoint is damaged"):
        resume(path, zoo)


def test_a_checkpoint_of_an_earlier_version_is_not_called_damaged(cut, zoo):
    checkpoint = cut / "checkpoints" / "step-00000001"
    state = json.loads((checkpoint / "state.json").read_text()) | {"optimizers": {}}
    (checkpoint / "state.json").write_text(json.dumps(state))
    write_manifest(checkpoint)
    with pytest.raises(CheckpointError) as refused:
        resume(cut, zoo)
    assert "damaged" not in str(refused.value)
    assert str(cut / "recipe.yaml") in str(refused.value)  # with which to train again
    assert checkpoint.is_dir()
