"""Traces: every number is the batch's column, every line of arithmetic is true, nothing clipped."""

import io
import json
import math
import re
import shlex
import shutil
from html.parser import HTMLParser

import pytest
import torch
from rich.cells import cell_len
from safetensors.torch import load_file

import rlzoo
from helpers import ROOT
from helpers.worlds import one_thread
from rlzoo import RlzooError, cli
from rlzoo.cli.verb import perform
from rlzoo.format.console import SafeConsole
from rlzoo.format.text import readable
from rlzoo.lm.loading import load_tokenizer
from rlzoo_lab.diagnose.trace import command, sources
from rlzoo_lab.diagnose.trace import tables as trace
from rlzoo_lab.view import numbers
from rlzoo_lab.view.html import page
from rlzoo_lab.view.numbers import shade
from rlzoo_lab.view.terminal import rendered

threads = pytest.fixture(scope="module", autouse=True)(one_thread)

EXAMPLE = ["--rewards", "0,0,1", "--values", ".3,.4,.6"]
# What estimators may ask for beside rewards and values: two rows of a group.
GROUP = {
    "rewards": "0,0.5,1;0.25,0",
    "values": ".3,.4,.6;.2,.1",
    "bootstrap": "0;.7",
    "old_log_probs": "-1,-2,-.5;-1,-1",
    "sampler_log_probs": "-1,-2.2,-.3;-1.1,-1",
    "ref_log_probs": "-1.5,-2,-.7;-1,-.8",
    "teacher_log_probs": "-.5,-1,-2;-2,-1",
    "sum_pi_squared": ".3,.2,.5;.4,.6",
    "turn_ids": "1,1,2;1,2",
    "state_keys": "7,8,9;7,9",
}


def parse(*words):
    return cli.parse(["trace", *words])


def find(zoo, *words):
    return command.trace(parse(*words), zoo)


def screen(traced, width, *, explain=False):
    console = SafeConsole(width=width, record=True, force_terminal=False, file=io.StringIO())
    for part in rendered(trace.blocks(traced, explain), console):
        console.print(part)
    return console.export_text()


def derivations(traced):
    return [d for _, d in trace.all_derivations(traced)]


@pytest.fixture(scope="module")
def run_folder(zoo, model_dir, tmp_path_factory):
    """A short run with a critic and a reference, its last two batches saved."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = [
        f"model.path={model_dir}", f"run.dir={folder}", "run.save_batches=2", "device=cpu",
        "task=reverse_dense", "rollout.prompts=4", "rollout.samples=4", "rollout.max_new_tokens=5",
        "rollout.truncation=bootstrap", "train.steps=3", "train.minibatches=2", "eval.samples=8",
        "checkpoint.every=1", "actor.lr=0.02", "critic.lr=0.05", "kl.coef=0.1",
    ]  # fmt: skip
    rlzoo.run("ppo_gae", words, zoo=zoo)
    return folder


# ---------------------------------------------------------------- typed numbers


def test_the_worked_example_prints_numbers_and_derivation(capsys):
    assert perform(command, parse(*EXAMPLE, "--lam", ".95")) == 0
    out = capsys.readouterr().out
    for number in ("0.651", "0.58", "0.4"):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.])", out)
    assert "delta_2 = r_2 + gamma * V_3 - V_2 = 1 + 1 * 0 - 0.6 = 0.4" in out
    assert "A_2 = delta_2 = 0.4" in out
    assert "A_1 = delta_1 + gamma * lam * A_2 = 0.2 + 1 * 0.95 * 0.4 = 0.58" in out
    assert "A_0 = delta_0 + gamma * lam * A_1 = 0.1 + 1 * 0.95 * 0.58 = 0.651" in out
    assert "return_0 = A_0 + V_0 = 0.651 + 0.3 = 0.951" in out


def test_several_estimators_side_by_side(zoo):
    traced = find(zoo, *EXAMPLE, "--estimator", "gae,mc,td0", "--lam", "0.95")
    found = {c.label: c.columns["raw_advantages"] for c in traced.credits}
    assert found["gae"] == pytest.approx([0.651, 0.58, 0.4])
    assert found["mc"] == pytest.approx([0.7, 0.6, 0.4])
    assert found["td0"] == pytest.approx([0.1, 0.2, 0.4])


def test_swept_options_and_those_that_only_some_estimators_have(zoo):
    traced = find(zoo, *EXAMPLE, "estimator=gae,mc", "estimator.lam=0,1")
    assert [c.label for c in traced.credits] == ["gae lam=0", "gae lam=1", "mc"]
    gae0, gae1, mc = (c.columns["raw_advantages"] for c in traced.credits)
    assert gae1 == pytest.approx(mc)
    assert gae0 == traced.credits[0].columns["delta"]


def test_the_default_estimator_is_that_of_the_defaults_file(zoo, tmp_path, monkeypatch):
    from rlzoo.recipe.files import config_dirs

    shutil.copytree(config_dirs()[-1], tmp_path / "configs")
    file = tmp_path / "configs" / "defaults.yaml"
    file.write_text(file.read_text().replace("name: gae", "name: td0"))
    monkeypatch.chdir(tmp_path)
    assert find(zoo, *EXAMPLE).credits[0].name == "td0"


def test_bootstrap_negative_numbers_and_rows(zoo):
    traced = find(zoo, "--rewards", "-.01,-.01,-1", "--values", "-.3,.4,.6", "--bootstrap", "-.7",
                  "--gamma", ".5")  # fmt: skip
    credit = traced.credits[0]
    assert credit.columns["delta"] == pytest.approx([0.49, -0.11, -1.95])
    assert traced.bootstrap == -0.7
    assert "delta_2 = r_2 + gamma * V_3 - V_2 = -1 + 0.5 * (-0.7) - 0.6 = -1.95" in (
        derivations(traced)[0].lines
    )
    two = find(zoo, "--rewards", "0,1;0,0,0", "--estimator", "rloo", "--row", "1")
    assert two.credits[0].columns["raw_advantages"] == [-1, -1, -1]


def test_holes_are_stepped_over_and_left_blank(zoo):
    traced = find(zoo, "--rewards", "0,9,1", "--values", ".3,9,.6", "--response_mask", "1,0,1")
    credit = traced.credits[0]
    assert credit.columns["delta"] == pytest.approx([0.3, None, 0.4])
    assert credit.columns["raw_advantages"] == pytest.approx([0.68, None, 0.4])
    assert any("gamma * V_2 - V_0" in line for line in derivations(traced)[0].lines)
    row = next(line for line in screen(traced, 100).splitlines() if line.startswith(" 1"))
    assert row.split() == ["1"]


def test_ratio_and_clipping_of_typed_log_probs(zoo):
    traced = find(zoo, *EXAMPLE, "--old_log_probs", "-1,-1,-1", "--log-probs", "-1,-.5,-3",
                  "policy_loss=ppo_clip", "whiten=batch")  # fmt: skip
    assert traced.columns["ratio"] == pytest.approx([1, math.exp(0.5), math.exp(-2)])
    # Whitened advantages are +, +, -: the second leaves the interval upwards, the third downwards.
    assert traced.credits[0].clipped == ["no", "high", "low"]
    plain = find(zoo, *EXAMPLE, "--old_log_probs", "-1,-1,-1", "--log-probs", "-1,-.5,-3",
                 "policy_loss=surrogate")  # fmt: skip
    assert plain.credits[0].clipped is None


def test_tokens_that_the_loss_leaves_out_are_told(zoo):
    """`high_entropy` learns from the most open ones alone; clipped ones among them stay told."""
    traced = find(zoo, "--rewards", "0,0,1,0", "--values", ".3,.4,.6,.2", "--entropy", "2,.1,.3,1",
                  "--old_log_probs", "-1,-1,-1,-1", "--log-probs", "-1,-1,-1,-3", "whiten=none",
                  "policy_loss=high_entropy", "policy_loss.fraction=.5")  # fmt: skip
    assert traced.credits[0].clipped == ["no", "left out", "left out", "low"]
    text = screen(traced, 100)
    assert text.count("left out") == 2


def test_a_new_batch_is_one_table_in_80_columns(zoo, run_folder):
    """The columns that say nothing there are left out, and the others have fewer digits."""
    traced = find(zoo, str(run_folder), "--fresh")
    assert {"log_probs", "ratio"} <= traced.columns.keys()
    for width in (80, 100, 140):
        lines = [line.split() for line in screen(traced, width).splitlines()]
        [head] = [words for words in lines if words[:2] == ["t", "token"]]
        assert {"KL", "score", "reward", "value", "delta", "return"} <= {*head}
        assert not {"ratio", "clipped"} & {*head}


@pytest.mark.parametrize("words", [["RUN", "--row", "99"], ["RUN", "--fresh", "--row", "99"],
                                   ["RUN", "--step", "9"], ["RUN", "--prompt", "ab=", "--row", "9"],
                                   ["recipe=grpo", "--row", "999"]])  # fmt: skip
def test_what_is_not_there_is_refused_before_a_model_is_loaded(zoo, run_folder, monkeypatch, words):
    loads = []
    for name in ("build_policy", "build_world"):
        monkeypatch.setattr(sources, name, lambda *_, name=name: loads.append(name))
    words = [str(run_folder) if word == "RUN" else word for word in words]
    with pytest.raises(RlzooError, match=r"^--(row|step) 9+: "):
        find(zoo, *words)
    assert loads == []


# ---------------------------------------------------------------- the arithmetic is true


def holds(line):
    """Whether what stands before the last `=` of a line evaluates to what stands behind it."""
    *parts, value = line.split(", the same")[0].split(" = ")
    expression = parts[-1] if parts else ""
    if not re.fullmatch(r"[\d.eE+\-*/() ]+|exp\([\d.eE+\-() ]+\)", expression):
        return None
    return math.isclose(eval(expression, {"exp": math.exp}), float(value), rel_tol=1e-3,
                        abs_tol=1e-3)  # fmt: skip


def test_every_line_of_every_estimator_that_typed_numbers_can_serve(zoo):
    served = 0
    for name, estimator in zoo.estimators.items():
        words = [f"--{column}={text}" for column, text in GROUP.items()]
        for row in ("0", "1"):
            try:
                traced = find(zoo, *words, "--estimator", name, "--row", row)
            except RlzooError as error:
                excused = re.search("needs|exists only in conversations", str(error))
                if excused:
                    continue
                raise
            credit = traced.credits[0]
            checked = [holds(line) for d in derivations(traced) for line in d.lines]
            assert False not in checked, (name, derivations(traced))
            assert len(credit.derivations) >= 1
            assert credit.derivations[-2 if credit.whitened else -1].lines
            served += "values" in estimator.needs and checked.count(True) > 0
    assert served >= 5


def test_a_strangers_recursion_is_found_and_named(tmp_path):
    (tmp_path / "slow_credit.py").write_text(
        "from rlzoo import hookimpl, td_lambda\n"
        "def slow_credit(rewards, values, bootstrap_values, response_mask, *,\n"
        "                gamma: float = 1.0, decay: float = 0.5):\n"
        '    """Mine."""\n'
        "    return td_lambda(rewards, values, bootstrap_values, response_mask,\n"
        "                     gamma=gamma, lam=decay)\n"
        "@hookimpl\n"
        "def register_estimators(register):\n"
        "    register(slow_credit)\n"
    )
    zoo = rlzoo.load_zoo(plugins=[str(tmp_path / "slow_credit.py")])
    traced = find(zoo, *EXAMPLE, "--estimator", "slow_credit", "--decay", ".25")
    assert traced.credits[0].columns["raw_advantages"] == pytest.approx([0.175, 0.3, 0.4])
    lines = next(d for d in derivations(traced) if d.column == "advantage").lines
    assert lines[1] == "A_1 = delta_1 + gamma * decay * A_2 = 0.2 + 1 * 0.25 * 0.4 = 0.3"


def test_group_estimators_are_spelled_out_too(zoo):
    rloo = find(zoo, "--rewards", "1;0;0", "--estimator", "rloo")
    lines = next(d for d in derivations(rloo) if d.column == "advantage").lines
    assert lines[-1].startswith("A_0 = R_0 - 0.5 * R_1 - 0.5 * R_2 = 1 - 0.5 * 0 - 0.5 * 0 = 1")
    grpo = find(zoo, "--rewards", "0,1;0,0;0,0", "--estimator", "grpo")
    lines = next(d for d in derivations(grpo) if d.column == "advantage").lines
    assert "(R_0 - mean_g) / std_g = (1 - 0.333333) / 0.577351 = 1.1547" in lines[-1]


# ---------------------------------------------------------------- of a run


def columns_of(run_folder, step):
    tensors = load_file(run_folder / "batches" / f"step-{step:08d}.safetensors")
    texts = json.loads((run_folder / "batches" / f"step-{step:08d}.json").read_text())
    return tensors | texts


@pytest.mark.parametrize("row", [0, 5, 15])
def test_every_number_is_the_saved_batchs_column(zoo, run_folder, row):
    traced = find(zoo, str(run_folder), "--row", str(row))
    batch = columns_of(run_folder, 3)
    length = int(batch["response_mask"][row].sum())
    assert traced.prompt == batch["prompts"][row]
    assert traced.rows == 16
    assert len(traced.tokens) == length
    shared = {"old_log_probs", "ref_log_probs", "scores", "rewards", "values"}
    assert shared <= set(traced.columns)
    for name in shared:
        assert traced.columns[name] == batch[name][row, :length].tolist(), name
    (credit,) = traced.credits
    for name in ("raw_advantages", "advantages", "returns"):
        assert credit.columns[name] == batch[name][row, :length].tolist(), name
    assert traced.bootstrap == batch["bootstrap_values"][row].item()
    kl = (batch["old_log_probs"] - batch["ref_log_probs"])[row, :length]
    assert traced.columns["kl"] == pytest.approx(kl.tolist(), abs=1e-6)
    after = torch.cat([batch["values"][row, 1:length], batch["bootstrap_values"][row, None]])
    delta = batch["rewards"][row, :length] + after - batch["values"][row, :length]
    assert credit.columns["delta"] == pytest.approx(delta.tolist(), abs=1e-6)


def test_the_ratio_of_a_saved_batch_is_the_final_policys(zoo, run_folder):
    from rlzoo.lm.loading import load_causal_lm, load_tokenizer
    from rlzoo.lm.policy import Policy

    model = run_folder / "model"
    policy = Policy.of(load_causal_lm(model), load_tokenizer(model))
    for step in (2, 3):
        batch = columns_of(run_folder, step)
        with torch.no_grad():
            ratio = (policy.log_probs(batch) - batch["old_log_probs"]).exp()
        traced = find(zoo, str(run_folder), "--step", str(step), "--row", "5")
        length = len(traced.tokens)
        assert traced.columns["ratio"] == pytest.approx(ratio[5, :length].tolist(), abs=1e-5)
        assert max(abs(r - 1) for r in traced.columns["ratio"]) > 1e-3  # it has learnt since
        clipped = [
            "high" if r > 1.2 and a > 0 else "low" if r < 0.8 and a < 0 else "no"
            for r, a in zip(ratio[5].tolist(), batch["advantages"][5].tolist(), strict=True)
        ]
        assert traced.credits[0].clipped == clipped[:length]


def test_other_estimators_on_the_saved_batch(zoo, run_folder):
    batch = columns_of(run_folder, 3)
    traced = find(zoo, str(run_folder), "--row", "2", "estimator=gae,mc,grpo")
    length = len(traced.tokens)
    for credit, name in zip(traced.credits, ("gae", "mc", "grpo"), strict=True):
        raw = zoo.estimators[name](batch, **credit.options)["advantages"][2, :length]
        assert credit.columns["raw_advantages"] == pytest.approx(raw.tolist(), abs=1e-6)
    assert "delta" not in traced.credits[2].columns
    assert "returns" not in traced.credits[2].columns
    assert all(holds(line) is not False for d in derivations(traced) for line in d.lines)


def test_a_fresh_batch_of_a_checkpoint_has_ratio_one(zoo, run_folder):
    traced = find(zoo, str(run_folder), "--fresh", "--row", "3")
    assert "checkpoint of step 3" in traced.source
    assert traced.columns["ratio"] == pytest.approx([1.0] * len(traced.tokens), abs=1e-5)
    assert set(traced.credits[0].clipped) == {"no"}
    assert all(holds(line) is not False for d in derivations(traced) for line in d.lines)
    assert find(zoo, str(run_folder), "--fresh", "--row", "3").columns == traced.columns
    earlier = find(zoo, str(run_folder), "--fresh", "--step", "2", "--row", "3")
    assert "checkpoint of step 2" in earlier.source
    assert earlier.columns != traced.columns


def test_prompts_known_unknown_and_told(zoo, run_folder):
    sample = json.loads((run_folder / "samples.jsonl").read_text().splitlines()[0])
    known = sample["prompt"]
    traced = find(zoo, str(run_folder), "--prompt", known, "--row", "1")
    assert traced.prompt == known
    assert traced.answer == sample["answer"]
    assert traced.credits
    stranger = known[:1] * 2 + known[-1:]
    silent = find(zoo, str(run_folder), "--prompt", stranger)
    assert "Not scored" in silent.notes[-1]
    assert silent.credits == []
    assert "scores" not in silent.columns
    assert "old_log_probs" in silent.columns
    assert "response" in screen(silent, 80)
    told = find(zoo, str(run_folder), "--prompt", stranger, "--answer", "ab")
    assert told.answer == "ab"
    assert told.credits
    assert told.columns["old_log_probs"] == silent.columns["old_log_probs"]


def test_a_prompt_is_typed_without_the_template_that_the_samples_show(zoo, model_dir, tmp_path):
    """It goes through the template once, and its answer is known."""
    folder = shutil.copytree(model_dir, tmp_path / "model")
    tokenizer = load_tokenizer(folder)
    tokenizer.chat_template = "{{ messages[0].content }}{% if add_generation_prompt %}~{% endif %}"
    tokenizer.save_pretrained(folder)
    words = ["model.chat=always", "task=reverse_dense", "rollout.prompts=2", "rollout.samples=2",
             "rollout.max_new_tokens=5", "train.steps=1", "eval.samples=2", "device=cpu",
             f"run.dir={tmp_path / 'run'}"]  # fmt: skip
    rlzoo.run("grpo", [f"model.path={folder}", *words], zoo=zoo)
    sample = json.loads((tmp_path / "run" / "samples.jsonl").read_text().splitlines()[0])
    typed = sample["prompt"].removesuffix("~")
    assert typed != sample["prompt"]
    traced = find(zoo, str(tmp_path / "run"), "--prompt", typed)
    assert traced.prompt == sample["prompt"]
    assert traced.answer == sample["answer"]
    assert not any("Not scored" in note for note in traced.notes)


def test_a_recipe_without_a_run(zoo, model_dir):
    words = [f"model.path={model_dir}", "device=cpu", "rollout.prompts=2", "rollout.samples=3"]
    traced = find(zoo, "recipe=grpo", *words, "--estimator", "grpo,rloo,gae", "--row", "4")
    assert [c.name for c in traced.credits] == ["grpo", "rloo", "gae"]
    assert traced.rows == 6
    assert "values" in traced.columns  # gae asked for them, though the recipe has no critic
    drawn = find(zoo, "recipe=grpo", *words, "--prompt", "1+20=", "--answer", "21")
    assert drawn.answer == "21"
    alone = find(zoo, "recipe=grpo", *words)
    assert "values" not in alone.columns
    assert alone.bootstrap is None


def test_a_damaged_checkpoint_and_none_at_all(zoo, run_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run_folder, copy)
    (copy / "checkpoints" / "step-00000003" / "actor.safetensors").write_bytes(b"rubbish")
    traced = find(zoo, str(copy), "--fresh")
    assert "checkpoint of step 2" in traced.source
    assert any("step-00000003 is damaged" in note for note in traced.notes)
    shutil.rmtree(copy / "checkpoints")
    assert any("base model" in note for note in find(zoo, str(copy), "--fresh").notes)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([*EXAMPLE, "--lamb", ".3"], "--lamb: is neither an option.*did you mean 'lam'"),
        ([*EXAMPLE, "--lam", "2"], r"estimator.lam \(command line\): must be a float in \[0, 1\]"),
        ([*EXAMPLE, "--lam"], "--lam needs a value"),
        (
            [*EXAMPLE, "estimator=mc", "--lam", "1"],
            "--lam: .*mc: gamma",
        ),
        ([*EXAMPLE, "--estimator", "ga"], "no estimator 'ga'; did you mean 'gae'"),
        ([*EXAMPLE, "seed=0,1"], "rlzoo sweep"),
        ([*EXAMPLE, "--row", "1"], "responses 0 to 0"),
        ([*EXAMPLE, "--prompt", "x"], "do not use a model"),
        (["--rewards", "0,1"], "needs 'values': give --values"),
        (["--values", "0,1"], "need --rewards"),
        (["--rewards", "0,x", "--values", "0,1"], "'x' is not a number"),
        (["--rewards", "0,1", "--values", "1"], "--values has length 1 but --rewards has length 2"),
        (["nowhere"], "nowhere is not a run folder: no such folder"),
        (["nowhere", "recipe=grpo"], "not a run folder|only one of"),
        (["recipe=ppo_gea"], "did you mean 'ppo_gae'"),
        (["recipe=ppo_gae", "--answer", "1"], "--answer requires --prompt"),
    ],
)
def test_bad_input_is_one_line(zoo, words, text):
    with pytest.raises(RlzooError, match=text) as error:
        find(zoo, *words)
    assert "\n" not in str(error.value)


def test_bad_steps_rows_and_needs_of_a_run(zoo, run_folder):
    for words, text in (
        (["--step", "1"], "has steps 2, 3"),
        (["--row", "16"], "responses 0 to 15"),
        (["--prompt", "abc", "--row", "4"], "has 4 responses"),
        (["--estimator", "otb"], "needs 'sum_pi_squared'.*--fresh"),
        (["--prompt", "é"], "the tokenizer has no token for 'é'"),
    ):
        with pytest.raises(RlzooError, match=text):
            find(zoo, str(run_folder), *words)


def test_a_prompt_in_any_language_is_read_and_scored_with_the_answer_of_the_task(zoo):
    words = ["recipe=ppo_gae", "rollout.prompts=2", "device=cpu"]
    traced = find(zoo, *words, "--prompt", "你知道1+1=2吗？")
    assert (traced.prompt, traced.answer) == ("你知道1+1=2吗？", "知道，1+1=2。")
    assert {"知", "道"} <= {token.text for token in traced.tokens}
    assert traced.score in (0.0, 1.0)
    traced = find(zoo, *words, "task=reverse", "--prompt", "好")
    assert "reader on reverse" in traced.source
    assert traced.score is None  # the task never has this prompt
    with pytest.raises(RlzooError, match="no token for '好'"):
        find(zoo, *words, "model=nano", "--prompt", "好")


# ---------------------------------------------------------------- screens


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("estimators", ["gae", "gae,mc,td0", "gae,grpo"])
def test_nothing_is_clipped_at_any_width(zoo, run_folder, width, estimators):
    traced = find(zoo, str(run_folder), f"estimator={estimators}", "--row", "1")
    out = screen(traced, width, explain=True)
    assert "…" not in out
    assert max(map(cell_len, out.splitlines())) <= width
    for header in ("log-prob", "ref", "KL", "score", "reward", "value", "delta", "advantage",
                   "return", "ratio", "clipped"):  # fmt: skip
        assert header in out, header
    for credit in traced.credits:
        for value in credit.columns["raw_advantages"]:
            assert {numbers.number(value), numbers.number(value, 3)} & {*out.split()}


def test_one_table_where_the_terminal_is_wide(zoo, run_folder):
    traced = find(zoo, str(run_folder))
    for width, tables in ((80, 2), (140, 1)):
        lines = screen(traced, width).splitlines()
        assert sum(set(line.strip()) == {"─"} for line in lines) == tables


def test_wide_and_broken_characters_stay_aligned(zoo):
    traced = find(zoo, *EXAMPLE, "--rewards", "0,0,1,0,0", "--values", ".1,.2,.3,.4,.5")
    for token, text in zip(
        traced.tokens, ["你好", r"\xe4\xbd", "◌\u0301", "a", "カタカナ"], strict=True
    ):
        token.text = text
    lines = screen(traced, 80).splitlines()
    start = next(i for i, line in enumerate(lines) if "───" in line) + 1
    points = set()
    for line in lines[start : start + 5]:
        value = re.search(r"0\.[1-5] ", line)  # V, the first number with a point
        points.add(cell_len(line[: value.start()]))
    assert len(points) == 1


@pytest.mark.parametrize(
    ("decoded", "piece", "shown"),
    [
        ("a", "a", "a"),
        (" the", "Ġthe", "␣the"),
        ("\n", "Ċ", r"\n"),
        ("你", "ä½ł", "你"),
        ("\ufffd", "ä½", r"\xe4\xbd"),
        ("\ufffd", "<0xE4>", r"\xe4"),
        ("", "</s>", "</s>"),
        ("lo", "▁lo", "␣lo"),
        (" lo", "▁lo", "␣lo"),
        ("lo", "lo", "lo"),
        ("", "▁", "␣"),
        ("  ", "▁▁▁", "␣␣␣"),
        ("▁", "▁", "▁"),  # a vocabulary of characters
        ("\u200d", "x", r"\u200d"),
        ("\x1b[31m", "x", r"\x1b[31m"),
        ("\u0301", "x", "◌\u0301"),
    ],
)
def test_tokens_that_cannot_be_printed_are_escaped(decoded, piece, shown):
    assert readable(decoded, piece) == shown


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.651, "0.651"), (0.58, "0.58"), (-0.0, "0"), (1.0, "1"), (-1e-6, "-1e-06"), (None, ""),
     (123456.0, "1.235e+05"), (0.00004, "4e-05"), (0.12345, "0.1235"), (float("nan"), "nan")],
)  # fmt: skip
def test_numbers_have_no_more_digits_than_they_need(x, text):
    assert numbers.number(x) == text


def test_colour_says_sign_and_size():
    (blue, strong), (_, weak) = shade(2.0, 2.0), shade(0.5, 2.0)
    (orange, _) = shade(-1.0, 2.0)
    assert strong == 1
    assert weak == 0.25
    assert blue != orange
    assert shade(0.0, 2.0) is None
    assert shade(1e-7, 1e-7) is None  # rounding


def test_json_is_one_document_with_every_column(zoo, run_folder, capsys):
    assert perform(command, parse(str(run_folder), "--json", "estimator=gae,td0")) == 0
    document = json.loads(capsys.readouterr().out)
    length = len(document["tokens"])
    assert {len(v) for v in document["columns"].values()} == {length}
    assert [c["name"] for c in document["credits"]] == ["gae", "td0"]
    assert {"delta", "raw_advantages", "advantages", "returns"} == set(
        document["credits"][0]["columns"]
    )


class Balance(HTMLParser):
    """Tags that are open; text seen."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_is_whole_and_needs_nothing_else(zoo, run_folder, tmp_path, capsys):
    file = tmp_path / "trace.html"
    assert perform(command, parse(str(run_folder), "--row", "1", "--html", str(file))) == 0
    traced = find(zoo, str(run_folder), "--row", "1")
    html = file.read_text()
    parser = Balance()
    parser.feed(html)
    assert parser.open == []
    namespace = "http://www.w3.org/2000/svg"  # a name, which nothing fetches
    assert not re.search(r"https?:|src=|@import|url\(", html.replace(namespace, ""))
    assert "prefers-color-scheme: dark" in html
    for value in traced.credits[0].columns["advantages"]:
        assert numbers.number(value).replace("-", "\u2212") in parser.text
    assert "A_0 = delta_0 + gamma * lam * A_1" in parser.text
    traced.tokens[0].text = "<script>alert(1)"
    assert "<script>alert" not in page("", trace.blocks(traced, True))
    with pytest.raises(RlzooError, match="there is no folder"):
        perform(command, parse(*EXAMPLE, "--html", str(tmp_path / "no" / "file.html")))
    capsys.readouterr()


def test_words_and_options_may_come_in_any_order(zoo, run_folder):
    one = parse(str(run_folder), "--row", "3", "estimator=gae,mc", "--gamma=.9", "--explain")
    assert one.words == [str(run_folder), "estimator=gae,mc"]
    assert one.flags == [("gamma", ".9")]
    assert one.row == 3
    assert one.explain


DOCS = ROOT / "docs" / "trace.md"
TYPED = re.findall(
    r"^```text\n\$ rlzoo trace (--(?:rewards|scores) .*)\n((?:.*\n)*?)```$", DOCS.read_text(), re.M
)


def test_the_docs_show_typed_traces():
    assert len(TYPED) == 2


@pytest.mark.parametrize(("words", "shown"), TYPED, ids=[words for words, _ in TYPED])
def test_the_docs_show_what_is_printed(words, shown, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    perform(command, parse(*shlex.split(words)))
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == shown.splitlines()


def test_rounding_of_a_model_is_0_and_a_typed_number_is_not():
    """And a recipe's mini-batches are no matter where nothing is trained."""
    from types import SimpleNamespace

    from rlzoo_lab.diagnose.trace.tables import table
    from rlzoo_lab.diagnose.trace.trace import TYPED, Token

    def cells(source):
        traced = SimpleNamespace(
            source=source, tokens=[Token(t, "a", True) for t in range(3)], credits=[],
            columns={"values": [2e-7, -9e-6, 2e-5]}, bootstrap=None,
        )  # fmt: skip
        made = table(traced, [(None, "values", "value")])
        return [cell.strip() for cell in made.columns[2].cells]

    assert cells("a recipe") == ["0", "0", "2e-05"]
    assert cells(TYPED) == ["2e-07", "-9e-06", "2e-05"]


def test_a_trace_of_a_recipe_needs_no_rows_for_its_mini_batches(model_dir):
    few = ["rollout.prompts=1", "rollout.samples=1", f"model.path={model_dir}"]
    traced = rlzoo.trace("ppo_gae", few, prompt="1+1=")
    assert traced["tokens"]
