"""A command line that teaches: the first screen, help with examples, words as people type them."""

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from importlib.metadata import PathDistribution

import pytest

from rlzoo.cli import VERBS, brought, described, every_verb, guide, main, parse
from rlzoo.cli.verb import GROUPS, Verb
from rlzoo.errors import ModelError, RlzooError
from rlzoo.lm.loading import resolve_path
from rlzoo.plugin.sketch import load_zoo_after, sketch
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import describe, list_configs
from rlzoo.recipe.plan import make_plan
from rlzoo.recipe.words import name_recipe
from rlzoo_lab.api import completion
from rlzoo_lab.compare.sweep.plan import plan_sweep
from rlzoo_lab.data.variants import spell_out
from rlzoo_zoo.rewards.python import load

EVERY = [*VERBS, *brought()]  # with the parts of verbs


@pytest.fixture
def typed(capsys, tmp_path, monkeypatch):
    """typed("run ppo_gea") -> exit status, stdout, stderr, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(line):
        try:
            status = main(shlex.split(line))
        except SystemExit as left:
            status = left.code
        return status, *capsys.readouterr()

    return call


def test_alone_it_shows_seven_things_to_do_first(typed):
    status, out, err = typed("")
    assert (status, err) == (0, "")
    assert sum(line.startswith("  rlzoo ") for line in out.splitlines()) == 7


@pytest.mark.parametrize("verb", EVERY)
def test_help_of_every_verb_has_examples_that_parse(verb, typed):
    status, out, _ = typed(f"help {verb}")
    assert status == 0
    assert typed(f"{verb} --help")[1] == out
    examples = out.partition("examples:\n")[2].splitlines()
    assert sum(line.startswith("  rlzoo ") for line in examples) >= 1


def test_every_example_is_a_command(zoo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [*guide.FIRST, *(line for verb in EVERY for line in described(verb).examples)]
    for command, _ in lines:
        words = getattr(parse(shlex.split(command)[1:]), "words", [])
        pairs = [word.partition("=") for word in words if "runs/" not in word and "DIR" not in word]
        row = [f"{key}={re.split(',|[.][.]', value)[0]}" for key, _, value in pairs]
        if any(word.startswith("recipe=") for word in row):
            compose(row, zoo)


def test_help_of_run_has_ten_keys_and_where_the_rest_stand(typed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for verb in ("run", "sweep"):
        out = typed(f"{verb} --help")[1]
        keys = out.partition("common keys:")[2]
        assert sum("=..." in line for line in keys.splitlines()) == 10
        assert "rlzoo help keys" in keys
    assert "kl.horizon" in typed("help keys kl")[1]
    assert "did you mean 'temperature'" in typed("help keys temprature")[2]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_help_fits_the_terminal(columns, typed, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in ["", "help", "help keys", *(f"help {verb}" for verb in EVERY)]:
        out = typed(line)[1]
        long = [text for text in out.splitlines() if len(text) > columns]
        assert not long, (line, long)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rnu recipe=ppo_gae", "did you mean 'run'"),
        ("train recipe=ppo_gae", "did you mean 'run'"),
        ("ppo_gae seed=1", "did you mean `rlzoo run ppo_gae`"),
        ("recipe=ppo_gae", "did you mean `rlzoo run recipe=ppo_gae`"),
        ("help rnu", "did you mean 'run'"),
        ("run ppo_gea", "no recipe 'ppo_gea'; did you mean 'ppo_gae'"),
        ("run ppo_gae --jsn", "unrecognized arguments: --jsn; did you mean '--json'"),
        ("run ppo_gae --seed", "--seed: write a recipe's key as seed=VALUE"),
        ("run ppo_gae seed=0 --actor.lr=1e-4", "--actor.lr: write a recipe's key as actor.lr=1e-4"),
        ("run ppo_gae lr=1e-4", "lr (command line): is ambiguous; use actor.lr or critic.lr"),
        ("run grpo lam=.9", "an option of estimators that this recipe does not use: gae, "),
        ("run ppo_gae lam=.9 estimator.lam=.8", "estimator.lam is given twice"),
        ("run ppo_gae lamb=.9", "did you mean 'estimator.lam'"),
        ("run ppo_gae kl_coef=.1", "did you mean 'kl.coef'"),
        ("run ppo_gae stesp=3", "did you mean 'train.steps'"),
        ("sweep ppo_gae estimator=gae,grop seed=0,1", "did you mean 'grpo'"),
        ("sweep ppo_gae estimatr=gae,mc seed=0,1", "did you mean 'estimator'"),
        ("diagnose ppo_gae estimator=gae,gea", "did you mean 'gae'"),
        ("diagnose ppo_gea", "no recipe 'ppo_gea'; did you mean 'ppo_gae'"),
        ("trace ppo_gea", "no recipe 'ppo_gea'; did you mean 'ppo_gae'"),
        ("trace ppo_gae --seed 1", "--seed: write a recipe key as seed=1"),
        ("plugins estimator gdo", "did you mean 'gdpo'"),
        ("recipes gropo", "did you mean 'grpo'"),
        ("resume runs/a train.steps=9", "runs/a is not a run folder"),
        ("model sft a.jsonl --model nano --out b lr=3", "lr=3: did you mean --lr 3?"),
        ("model export runs/a", "required: DIR; for example: rlzoo model export runs/a my-model"),
        ("compare --refrence x a b", "did you mean '--reference'"),
        ("run https://x.y/a.yaml", "curl -LO https://x.y/a.yaml"),
        ("run recipe=https://x.y/a", "curl -LO https://x.y/a"),
        ("show file:///a/b.yml", "curl -LO file:///a/b.yml"),
        ("show grpo task.system=\udce4\udcbd", "task.system (command line): cannot read"),
        ("show grpo model.path=\ud800", "model.path (command line): cannot read"),
    ],
)
def test_a_wrong_word_gets_the_nearest_right_one(line, said, typed):
    status, out, err = typed(line)
    assert status == 2
    assert said in err
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run ppo_gae", ["recipe=ppo_gae"]),
        ("run seed=1 --json ppo_gae", ["seed=1", "recipe=ppo_gae"]),
        ("run my.yaml max_new_tokens=4", ["recipe=my.yaml", "max_new_tokens=4"]),
        ("show ppo_gae", ["recipe=ppo_gae"]),
        ("sweep ppo_gae seed=0,1 --jobs 2", ["recipe=ppo_gae", "seed=0,1"]),
        ("diagnose ppo_gae --noise .1", ["recipe=ppo_gae"]),
        ("eval ppo_gae --prompts 4", ["recipe=ppo_gae"]),
        ("trace ppo_gae --lam .9", ["recipe=ppo_gae"]),
        ("check gae lam=.9", ["lam=.9"]),
    ],
)
def test_words_are_read_as_people_type_them(line, words):
    assert parse(shlex.split(line)).words == words


def test_a_folder_of_a_run_is_no_recipe(tmp_path, monkeypatch, typed):
    (tmp_path / "ppo_gae").mkdir()
    (tmp_path / "ppo_gae" / "recipe.yaml").write_text("seed: 0\n")
    monkeypatch.chdir(tmp_path)
    assert name_recipe(["ppo_gae", "grpo"]) == ["ppo_gae", "recipe=grpo"]
    assert "use `rlzoo resume ppo_gae` to continue it" in typed("run ppo_gae")[2]


def test_a_folder_of_runs_is_no_run(tmp_path, typed):
    (tmp_path / "runs" / "sweep" / "gae--seed0").mkdir(parents=True)
    (tmp_path / "runs" / "sweep" / "gae--seed0" / "recipe.yaml").write_text("seed: 0\n")
    status, _, err = typed("doctor runs/sweep")
    assert status == 2
    assert "runs/sweep/gae--seed0" in err
    assert "`rlzoo compare runs/sweep`" in err


def test_a_short_name_stands_for_the_key_that_ends_so(zoo):
    recipe = compose(["ppo_gae", "lam=.9", "steps=7"], zoo)
    assert recipe.config.estimator.lam == 0.9
    assert recipe.config.train.steps == 7
    assert recipe.origins["estimator.lam"] == "command line"
    assert compose(["ppo_gae", "task=key_door", "distractors=2"], zoo).config.task.distractors == 2
    assert spell_out(["recipe=ppo_gae", "lam=0,1"], zoo)[1] == "estimator.lam=0,1"
    swept = ["recipe=ppo_gae", "estimator=mc,gae", "lam=.5,1", "seed=0..3"]
    assert "estimator.lam=.5,1" in spell_out(swept, zoo)


def test_a_sweep_is_the_same_however_its_keys_are_written(zoo):
    short = plan_sweep(["ppo_gae", "lam=0,1", "seed=0,1"], zoo)
    full = plan_sweep(["recipe=ppo_gae", "estimator.lam=0,1", "seed=0,1"], zoo)
    assert short.path == full.path
    assert [row.label for row in short.rows] == [row.label for row in full.rows]


def test_a_sketch_holds_what_the_zoo_holds(zoo):
    rough = sketch()
    shipped = [c for c in zoo if c.origin.startswith("rlzoo_zoo.")]
    assert len(shipped) > 90
    for c in shipped:
        drawn = rough.shelves[c.kind][c.name]
        assert list(drawn.options) == list(c.options)
        for name in ("label", "origin", "distribution", "doc"):
            assert getattr(drawn, name) == getattr(c, name), c.label


def test_a_sketch_asks_a_distribution_for_its_name_once(monkeypatch):
    """That parses its whole METADATA; every module of the zoo asked twice."""
    plain, read = PathDistribution.read_text, []
    monkeypatch.setattr(
        PathDistribution, "read_text", lambda self, name: read.append(name) or plain(self, name)
    )
    assert len(list(sketch())) > 90
    assert 0 < read.count("METADATA") < 10


@pytest.mark.parametrize(
    "more",
    [
        "@hookimpl\ndef register_estimators(register):\n    register(mine)\n",
        "if True:\n    other = component('kl_penalty')(mine)\n",
    ],
)
def test_a_plugin_that_registers_in_its_own_way_is_asked_itself(more, tmp_path, monkeypatch):
    """Nothing is refused that the plugin might have."""
    file = tmp_path / "odd.py"
    plain = (
        "from rlzoo import component, hookimpl\n@component('estimator')\n"
        "def mine(rewards, *, pull: float = 1.0):\n    '''-r.  Source: a test.'''\n"
        "    return rewards\n"
    )
    file.write_text(plain + more)
    monkeypatch.setenv("RLZOO_PLUGINS", str(file))
    assert sketch() is None
    file.write_text(plain)
    assert list(sketch().estimators["mine"].options) == ["pull"]


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (
            "@hookimpl\ndef register_estimator(register): register(mine)",
            "did you mean 'register_estimators'",
        ),
        ("@hookimpl\ndef estimators(register): register(mine)", "there is no hook 'estimators'"),
        ("", "registers nothing"),
    ],
)
@pytest.mark.filterwarnings("default")
def test_a_plugin_that_registers_nothing_is_named_where_its_component_is_asked_for(
    hook, said, tmp_path, monkeypatch, capfd
):
    file = tmp_path / "odd.py"
    file.write_text(
        "from rlzoo import hookimpl\n"
        "def mine(rewards):\n    '''-r.  Source: a test.'''\n    return rewards\n"
        f"{hook}\n"
    )
    monkeypatch.setenv("RLZOO_PLUGINS", str(file))
    assert main(["run", "ppo_gae", "estimator=mine"]) == 2
    err = capfd.readouterr().err
    assert said in err
    assert "odd.py" in err


def test_no_sketch_no_trial(monkeypatch):
    monkeypatch.setattr("rlzoo.plugin.sketch.load_zoo", lambda: "the zoo")
    tried = []
    assert load_zoo_after(tried.append) == "the zoo"
    assert len(tried) == 1
    monkeypatch.setattr("rlzoo.plugin.sketch.sketch", lambda: None)
    assert load_zoo_after(tried.append) == "the zoo"
    assert len(tried) == 1


@pytest.mark.parametrize("line", ["plugins", "plugins estimators", "plugins samplers"])
def test_a_list_of_the_zoos_own_components_imports_none_of_them(line, typed, monkeypatch, zoo):
    def refuse():
        raise AssertionError("a list imports the zoo")

    monkeypatch.setattr("rlzoo.plugin.registry.load_zoo", refuse)
    listed = typed(line)
    monkeypatch.setattr("rlzoo.plugin.registry.load_zoo", lambda: zoo)
    monkeypatch.setattr("rlzoo.plugin.sketch.sketch", lambda own: None)
    assert typed(line) == listed


def test_a_list_shows_which_plugin_of_others_cannot_be_imported(typed, monkeypatch, tmp_path):
    file = tmp_path / "odd.py"
    file.write_text(
        "from rlzoo import hookimpl\nimport nothing_of_that_name\n"
        "def mine(rewards):\n    return rewards\n"
        "@hookimpl\ndef register_estimators(register):\n    register(mine)\n"
    )
    monkeypatch.setenv("RLZOO_PLUGINS", str(file))
    out = typed("plugins")[1]
    assert "No module named 'nothing_of_that_name'" in " ".join(out.split())
    assert "mine" not in out.split()


def test_plugins_and_recipes_take_words_and_fit_a_screen(typed, monkeypatch, zoo):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("rlzoo.plugin.registry.load_zoo", lambda: zoo)
    _, out, _ = typed("plugins")
    assert len(out.splitlines()) <= 40
    for line in ("plugins estimators", "recipes", "plugins gae", "recipes gae"):
        out = typed(line)[1]
        most = len(list_configs("recipes")) + 2 if line == "recipes" else 45
        assert len(out.splitlines()) <= most, line  # a line each
        assert "gae" in out
    assert "estimator.lam=0.95  a float in [0, 1]" in typed("plugins gae")[1]
    assert "ppo_clip" not in typed("plugins estimators")[1]
    found = json.loads(typed("plugins kl k3 --json")[1])
    assert {"k3", "k3_plus"} <= {c["name"] for c in found["components"]}
    assert {c["kind"] for c in found["components"]} == {"kl_penalty"}
    assert {"broken", "notes"} < found.keys()
    assert [r["name"] for r in json.loads(typed("recipes leave-one-out --json")[1])] == ["rloo"]


def test_show_can_leave_defaults_out(typed):
    values = json.loads(typed("show ppo_gae lam=.9 --changed --json")[1])["values"]
    assert values["estimator.lam"]["origin"] == "command line"
    assert not [key for key, v in values.items() if "default" in v["origin"]]


@pytest.mark.parametrize(
    ("metavar", "said", "prefix", "expected"),
    [
        ("key=value", [], "ppo_", ["ppo_gae", "ppo_mc", "ppo_penalty", "ppo_td0"]),
        ("key=value", ["ppo_gae"], "estimator.l", ["estimator.lam="]),
        ("key=value", ["grpo"], "estimator.e", ["estimator.eps="]),
        (
            "key=value",
            [],
            "estimator=gae_",
            ["estimator=gae_decoupled", "estimator=gae_length_ada"],
        ),
        ("key=value", [], "kl.place=reward,l", ["kl.place=reward,loss"]),
        ("key=value", [], "rewards=[regex,nu", ["rewards=[regex,numeric"]),
        ("key=value", [], "model=sp", ["model=speller"]),
        ("RUN", [], "", ["runs/one"]),
        ("RUN|key=value", [], "runs/", ["runs/one"]),
        ("KIND|WORD", [], "es", ["estimators"]),
        ("NAME", [], "gae_d", ["gae_decoupled"]),
        ("WORD", [], "gs", ["gspo"]),
    ],
)
def test_a_shell_completes(metavar, said, prefix, expected, tmp_path, monkeypatch):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "recipe.yaml").write_text("seed: 0\n")
    monkeypatch.chdir(tmp_path)
    found = completion.words(metavar, said, prefix)
    assert len(found) == len(expected)
    assert all(word.startswith(begun) for word, begun in zip(found, expected, strict=True))


@pytest.mark.process
def test_a_typo_and_a_completion_import_no_torch_no_numpy_and_cost_little(tmp_path):
    """Half a CPU second is promised; on a busy machine it is twice that. With torch it is six."""
    for line in ("run ppo_gea", "sweep ppo_gae sed=0,1"):
        done, seconds = _cli(shlex.split(line), tmp_path)
        assert done.returncode == 2
        assert "did you mean" in done.stderr
        assert done.stdout.strip() == "", line
        assert seconds < 2, line
    for line, expected in (("rlzoo rec", "recipes"), ("rlzoo model sf", "sft"),
                           ("rlzoo model sft --mod", "--model"),
                           ("rlzoo run ppo_gae estimator.l", "estimator.lam=")):  # fmt: skip
        env = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_TYPE": "9",
               "COMP_LINE": line, "COMP_POINT": str(len(line)),
               "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:",
               "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "said")}  # fmt: skip
        _, seconds = _cli([], tmp_path, env)
        assert (tmp_path / "said").read_text().split() == expected.split()
        assert seconds < 2, line


def _cli(words, folder, env=()):
    """A real interpreter, and its CPU seconds; it says which of torch and numpy came in."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print({'torch', 'numpy'} & {*sys.modules} or ''))\n"
        "from rlzoo.cli import main\nraise SystemExit(main())"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=folder,
        env={**os.environ, **dict(env)},
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, sum(after[:2]) - sum(before[:2])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run recipe=ppo", ["'ppo_gae', 'ppo_mc' or 'ppo_penalty'"]),
        ("run ppo_gae reward=python", ["'rewards'"]),
        ("run ppo_gae rollout.n=8", ["'rollout.samples'"]),
        ("run ppo_gae batch_size=32", ["'rollout.prompts'"]),
        ("run ppo_gae estimator=GAE", ["did you mean 'gae'?"]),
        ("run ppo_gae SEED=1", ["'seed'"]),
        ("run ppo_gae beta=.04", ["does not use: ", "'kl.coef'"]),
        ("run ppo_gae kl=off", ["kl (command line)", "kl.coef=0"]),
        ("run ppo_gae kl=none", ["kl.coef=0"]),
        ("run ppo_gae kl=null", ["kl.coef=0"]),
        ("run ppo_gae wandb=true", ["loggers=[wandb]"]),
        ("run ppo_gae exact_match=1", ["is not a key"]),
        ("run ppo_gae grpo=true", ["estimator=grpo"]),
        ("sweep ppo_gae estimator.lam=[0,1]", ["estimator.lam=0,1"]),
        ("sweep ppo_gae actor.lr=[0.1,1]", ["actor.lr=0.1,1"]),
        ("sweep ppo_gae estimator.lam=0:1:0.1", ["0,0.5,1"]),
    ],
)
def test_words_of_other_trainers_and_shells_lead_to_the_key(line, said, typed):
    status, out, err = typed(line)
    assert (status, out) == (2, "")
    assert all(part in err for part in said), err
    assert err.count("\n") == 1


def test_help_keys_leads_to_the_options_of_components(typed):
    status, _, err = typed("help keys lam")
    assert status == 2
    assert "`rlzoo plugins lam`" in err
    assert "  gae " in typed("plugins lam")[1]


def test_a_typo_imports_no_torch(tmp_path):
    code = (
        "import sys; from rlzoo.cli import main\n"
        "assert [main(['run', 'ppo_gae', w]) for w in ('n=8', 'wandb=true', 'kl=off')] == [2] * 3\n"
        "assert main(['run', 'recipe=ppo']) == 2 and 'torch' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert ended.returncode == 0, ended.stderr


def test_a_run_for_a_model_leads_to_its_model(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="did you mean") as refused:
        resolve_path(str(tmp_path))
    assert str(tmp_path / "model") in str(refused.value)


def test_a_file_for_a_module_leads_to_the_module():
    with pytest.raises(RlzooError, match="'rw:close'"):
        load("rw.py:close")


def test_recipes_in_a_pipe_are_whole(typed, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    out = typed("recipes")[1]
    recipes = list_configs("recipes")
    assert [line.split(maxsplit=1) for line in out.splitlines()[: len(recipes)]] == [
        [n, describe(p)] for n, p in recipes.items()
    ]


def test_help_names_completion(typed):
    assert "register-python-argcomplete rlzoo" in typed("help")[1]


def test_help_lists_every_verb_once_under_what_a_person_wants(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((100, 24)))
    verbs = {name: described(name) for name in every_verb()}
    assert {verb.group for verb in verbs.values()} == set(GROUPS)
    theirs = Verb("X", "does x", "their.module")
    text = guide.table({"theirs": theirs, **verbs})
    heads = [line for line in text.splitlines() if line in (*GROUPS, "other")]
    assert heads == [*GROUPS, "other"]
    listed = re.findall(r"^  ([a-z]+) ", text, re.MULTILINE)
    assert sorted(listed) == sorted([*verbs, "theirs"])
    assert text.index("\nother\n") < text.index("  theirs ")


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ("tasks", "plugins tasks"),
        ("models", "plugins models"),
        ("run grpo model=gpt2", "a hub id, use model.path"),
        ("run grpo task=math", "gsm8k"),
        ("estimators", "plugins estimators"),
        ("info gae", "plugins"),
        ("version", "--version"),
        ("-V", "--version"),
        ("push runs/a", "model export"),
        ("run grpo --dry-run", "rlzoo show"),
        ("run grpo -o x", "run.dir"),
        ("run resume=run1", "rlzoo resume run1"),
        ("trace ppo_gae --token 3", "'--row'"),
        ("check speller", "model=speller"),
        ("help keys rewards.python.function", "rlzoo plugins python"),
        ("run grpo task.path=data.jsonl", "task=dataset"),
        ("run grpo kl.target=2", "kl.controller=fixed"),
        ("run grpo horizon=9", "kl.controller=fixed"),
        ("run grpo --push-to-hub", "rlzoo model export"),
        ("run recipe ppo_gae", "recipe=NAME"),
        ("run grpo lora=8", "model.lora.rank"),
        ("run grpo bf16=true", "model.autocast"),
        ("run grpo gpu=0", "device"),
        ("sweep ppo_gae lam=0,1 seeds=3", "; did you mean 'seed'?"),
        ("sweep ppo_gae lam=0,1 --seeds 3", "seed=VALUE"),
        ("run grpo --num-generations 8", "rollout.samples=VALUE"),
        ("run grpo gamma=0.9", "td0, turn_gae, vtrace\n"),
    ],
)
def test_a_word_of_other_tools_is_answered_with_the_way(line, way, typed):
    status, out, err = typed(line)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert way in err


def test_help_of_help_lists_the_verbs(typed):
    assert typed("help help") == typed("help")


@pytest.mark.parametrize(
    "verb", ["doctor", "doctor --retrain", "report", "trace", "eval", "resume"]
)
def test_run_is_the_latest_by_default(verb, typed, tmp_path):
    assert "there is no run in runs/" in typed(verb)[2]
    for name, when in (("b", 2), ("c", 1), ("sweep", 3)):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("")
        os.utime(folder / "metrics.jsonl", (when, when))
        (folder / ("sweep.json" if name == "sweep" else "recipe.yaml")).write_text("seed: x")
    said = "the latest run, runs/b"
    assert said in typed(verb)[2]
    assert said not in typed(f"{verb} runs/c")[2]


def test_models_and_presets_are_listed(typed):
    listed = typed("plugins models")[1]
    assert {line.split()[0] for line in listed.splitlines()} >= set(list_configs("model"))
    assert "gsm8k" in typed("plugins tasks")[1]
    assert "speller" in typed("plugins speller")[1]
    found = json.loads(typed("plugins marks_dense --json")[1])
    assert found["presets"]["task"].keys() == {"marks_dense"}


def test_a_file_is_a_word(zoo, tmp_path, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.jsonl").write_text('{"prompt": "1", "answer": "1"}\n')
    recipe = compose(["grpo", "task=a,b.jsonl", "rewards=sub/rw.py:close"], zoo)
    assert recipe.config.task.name == "dataset"
    assert recipe.config.task.path == "a,b.jsonl"
    assert dict(recipe.config.rewards) == {"python": {"function": "sub.rw:close", "weight": 1.0}}
    assert compose(["grpo", "rewards=os.path:join"], zoo).config.rewards.python.function == (
        "os.path:join"
    )
    assert compose(["grpo", "task=reverse"], zoo).config.task.name == "reverse"
    status, _, err = typed("run grpo a,b.jsonl")
    assert (status, "task=a,b.jsonl" in err) == (2, True)


@pytest.mark.filterwarnings("error")
def test_a_reward_that_is_only_added_is_named(zoo):
    added = ["grpo", "rewards.length.weight=0.1"]
    assert make_plan(compose(added, zoo), zoo).warnings == ()  # its share is given
    option = "rewards.regex.pattern=a"
    [text] = make_plan(compose(["grpo", option], zoo), zoo).warnings
    assert "added to verifier; rewards=[regex] replaces" in text
    assert make_plan(compose(["grpo", "rewards=[regex]", option], zoo), zoo).warnings == ()


def test_the_version_of_a_checkout_names_its_commit(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    form = r"rlzoo \d+\.\d+\.\d+( \([0-9a-f]{7,}(-dirty)?\))?\n"
    assert re.fullmatch(form, capsys.readouterr().out)
