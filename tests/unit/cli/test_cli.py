"""The command line as a user types it: exit codes, one line on stderr, JSON alone on stdout."""

import json

import pytest

from helpers.forks import finished
from rlzoo.cli import every_verb, main
from rlzoo.errors import Stopped


@pytest.fixture
def cli(capsys):
    """cli(*words) -> exit status, stdout, stderr, all in this process."""

    def call(*words):
        try:
            status = main(list(words))
        except SystemExit as left:  # argparse
            status = left.code
        return status, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "recipe=ppo_gea"], "did you mean 'ppo_gae'"),
        (["run", "recipe=ppo_gae", "estimator=mc", "estimator.lam=1"], "no option 'lam'"),
        (["run", "recipe=ppo_gae", "estimator.lam=0,1"], "sweep"),
        (["run", "recipe=grpo", "rollout.samples=1"], "at least 2"),
        (["run", "recipe=grpo", "model.path=/nowhere"], "'/nowhere' is not a model"),
        (["run", "recipe=grpo", "device=warp"], "device (command line): 'warp'"),
        (["show"], "give a recipe, for example ppo_gae"),
        (["resume", "nowhere"], "nowhere is not a run folder"),
        (["check"], "NAME of a component, or --all"),
        (["check", "gea"], "did you mean 'gae'"),
        (["new", "estimater", "x"], "did you mean 'estimator'"),
        (["model", "base", "huge", "--out", "x"], "there is no base or task 'huge'"),
    ],
)
def test_bad_input_exits_2_with_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists()


LONG = {"word": "x" * 60_000, "words": "ab cd " * 9000, "list": ",".join(["0.25"] * 9000)}


@pytest.mark.parametrize("value", LONG)
@pytest.mark.parametrize(
    "words",
    [
        ["{}"], ["run", "grpo", "seed={}"], ["run", "grpo", "{}=1"], ["run", "grpo", "lam=[{}]"],
        ["run", "grpo", "estimator={}"], ["run", "long.yaml"], ["sweep", "grpo", "seed=a,{}"],
        ["trace", "--rewards", "{}", "--values", "x{}"], ["check", "gae", "{}=1"],
        ["import", "{}", "--out", "o"], ["new", "task", "{}"],
        ["eval", "{}"], ["help", "keys", "{}"], ["compare", "long.csv"],
        ["run", "grpo", "task=dataset", "task.path=long.jsonl", "task.prompt={}"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_long_value_is_shortened(words, value, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = LONG[value]
    (tmp_path / "long.yaml").write_text(f"seed: {text}\n")
    (tmp_path / "long.csv").write_text(f'name,seed,score\na,"{text}",1\n')
    (tmp_path / "long.jsonl").write_text(json.dumps({"question": text}))
    status, out, err = cli(*(word.replace("{}", text) for word in words))
    assert status in (1, 2)
    assert out == ""
    assert err
    assert max(map(len, err.splitlines())) < 1100
    assert "Traceback" not in err


def test_usage_errors_exit_2(cli):
    short = (["model", "export"], "usage: rlzoo model export RUN")
    for words, said in ((["fly"], "no verb 'fly'"), short):
        status, _, err = cli(*words)
        assert status == 2
        assert said in err


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(name in out for name in every_verb())


@pytest.mark.process
def test_a_process_leaves_json_alone_on_stdout_and_a_broken_plugin_out(
    words, tmp_path, monkeypatch
):
    (tmp_path / "bad.py").write_text("import nothing_there\n")
    monkeypatch.setenv("RLZOO_PLUGINS", str(tmp_path / "bad.py"))
    words = ["run", "recipe=ppo_gae", *words, f"run.dir={tmp_path / 'a'}", "--json"]
    done = finished(main, words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["path"] == str(tmp_path / "a")
    assert document["steps"] == 3
    assert "held-out" in done.stderr
    assert "bad.py left out: ModuleNotFoundError" in done.stderr


def test_run_in_plain_text_ends_with_tables(cli, words, tmp_path):
    status, out, err = cli("run", "recipe=grpo", *words, f"run.dir={tmp_path / 'a'}")
    assert status == 0, err
    assert "last samples" in out
    assert "before" in out
    assert "\x1b" not in out
    status, _, err = cli("run", "recipe=grpo", *words, f"run.dir={tmp_path / 'a'}")
    assert status == 2
    assert "already exists" in err


def test_a_reward_that_raises_exits_1_without_a_traceback(cli, words, tmp_path, monkeypatch):
    (tmp_path / "bad_reward.py").write_text("def f(p, r, a):\n    raise ValueError('no')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    status, _, err = cli("run", "recipe=grpo", *words, "rewards=python",
                         "rewards.python.function=bad_reward:f", "run.dir=a")  # fmt: skip
    assert status == 1
    assert "reward 'python' raised ValueError: no (at bad_reward.py:2) on prompt" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["plugins", "recipes"])
def test_lists_have_a_table_and_json(name, capsys):
    assert main([name]) == 0
    assert "grpo" in capsys.readouterr().out
    assert main([name, "--json"]) == 0
    json.loads(capsys.readouterr().out)


def test_plugins_lists_needs_options_source_and_origin(capsys):
    main(["plugins", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["broken"] == []
    assert len(document["components"]) >= 50
    gae = next(c for c in document["components"] if c["name"] == "gae")
    assert gae["needs"] == ["rewards", "values", "bootstrap_values", "response_mask"]
    assert gae["options"]["lam"] == {"type": "a float in [0, 1]", "default": 0.95}
    assert "1506.02438" in gae["source"]
    assert "rlzoo-llm" in gae["origin"]


@pytest.mark.parametrize(
    "words",
    [
        ["trace", "--rewards", "0,0,1", "--values", ".3,.4,.6", "--lam", "1", "whiten=none"],
        ["trace", "whiten=none", "--rewards", "0,0,1", "--lam", "1", "--values", ".3,.4,.6"],
    ],
)
def test_words_and_options_come_in_any_order(words, capsys):
    assert main([*words, "--json"]) == 0
    traced = json.loads(capsys.readouterr().out)
    assert "0.7" in json.dumps(traced)
    assert "0.651" not in json.dumps(traced)


def test_show_says_where_each_value_came_from(capsys):
    assert main(["show", "recipe=ppo_gae", "estimator.lam=0.5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["values"]["estimator.lam"] == {"value": 0.5, "origin": "command line"}
    assert document["critic"] is True
    assert main(["show", "recipe=grpo"]) == 0
    assert "models: actor, reference" in capsys.readouterr().out


def test_check_exits_1_where_a_component_fails(tmp_path, monkeypatch, capsys):
    (tmp_path / "leaky.py").write_text(
        "from rlzoo import hookimpl\n"
        "def leaky(rewards, response_mask):\n"
        "    '''Reads the whole batch.  Source: a test.'''\n"
        "    return rewards - rewards.mean()\n"
        "@hookimpl\n"
        "def register_estimators(register):\n"
        "    register(leaky)\n"
    )
    monkeypatch.setenv("RLZOO_PLUGINS", str(tmp_path / "leaky.py"))
    assert main(["check", "leaky"]) == 1
    assert "FAILED" in capsys.readouterr().out
    assert main(["check", "gae", "--json"]) == 0
    assert all(r["passed"] is not False for r in json.loads(capsys.readouterr().out))


def test_a_second_signal_does_not_hide_how_to_continue(monkeypatch, capsys):
    def stopped_twice(*_):
        try:
            raise Stopped("stopped by SIGTERM", 15)
        except Stopped:
            again = KeyboardInterrupt()
            again.add_note("`rlzoo resume a` continues the run")
            raise again  # noqa: B904

    monkeypatch.setattr("rlzoo.cli.perform", stopped_twice)
    assert main(["recipes"]) == 143
    assert (
        capsys.readouterr().err == "rlzoo: stopped by SIGTERM; `rlzoo resume a` continues the run\n"
    )
