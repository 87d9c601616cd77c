"""Learned rewards: the data, the supervised start, the reward model, and PPO against it."""

import argparse
import importlib.util
import json
import math
import re
import resource
import shlex
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GPT2Config,
)

import rlzoo
from helpers import ROOT
from helpers.reward_models import make_tokenizer, spoiled
from helpers.rows import write
from rlzoo import RlzooError
from rlzoo.cli.verb import perform
from rlzoo_lab.supervised import fit, implicit_reward, process_reward, reward_models, sft
from rlzoo_lab.supervised import reward as trainer
from rlzoo_lab.supervised.pairs import read_preferences
from rlzoo_lab.supervised.tiny import EOS
from rlzoo_zoo.tasks.seasoning import Seasoning


def parsed(module, *words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    module.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


# ---------------------------------------------------------------- judging


def test_a_report_on_pairs_by_hand():
    found = trainer.judged([math.log(3), math.log(3), math.log(3), -math.log(3), 0.0])
    assert found["accuracy"] == pytest.approx(3.5 / 5)
    assert found["log_loss"] == pytest.approx((3 * math.log(4 / 3) + math.log(4) + math.log(2)) / 5)
    assert found["margin"] == pytest.approx(2 * math.log(3) / 5)
    low, high = found["accuracy_interval"]
    assert low < 0.7 < high
    assert trainer.judged([1e6, -1e6])["log_loss"] == pytest.approx(5e5)


@pytest.mark.parametrize(
    ("module", "held", "guess"),
    [
        (trainer, {"accuracy_interval": [0.245, 0.635]}, True),
        (trainer, {"accuracy_interval": [0.55, 0.9]}, False),
        # Three in four are right: who calls all of them right is right as often.
        (implicit_reward, {"accuracy_interval": [0.6, 0.8], "share_right": 0.75}, True),
        (implicit_reward, {"accuracy_interval": [0.8, 0.9], "share_right": 0.25}, False),
        (process_reward, {"accuracy_interval": [0.6, 0.8], "share_right": 0.25}, True),
        (process_reward, {"accuracy_interval": [0.8, 0.9], "share_right": 0.75}, False),
    ],
)
def test_a_held_out_accuracy_of_a_guess_is_named(module, held, guess):
    more = {"accuracy": 0.5, "above": None, "steps": 9, "accuracy_of_right": None,
            "accuracy_of_wrong": None, "first_error_found": 0.5, "log_loss": 0.7,
            "margin": 0.1}  # fmt: skip
    report = {"held_out": {**more, **held}, "lr": 1e-5, "epochs": 1.0,
              "score": {"mean": 0.0, "std": 1.0}}  # fmt: skip
    lines = list(module._shown(report))
    assert any("--lr (1e-05 now)" in line for line in lines) == guess


# ---------------------------------------------------------------- training


def letters(generator, n):
    return "".join(chr(97 + int(i)) for i in torch.randint(26, (n,), generator=generator))


def preference_file(path, n=240):
    """The response with the `a` is the better one."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for i in range(n):
        prompt, word = letters(generator, 3) + ":", letters(generator, 3).replace("a", "b")
        good, bad = word[:1] + "a" + word[1:], word + "z"
        rows.append({"prompt": prompt, "chosen": good, "rejected": bad, "i": i})
    return write(path, rows)


def weights_of(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.process
def test_a_reward_model_learns_what_is_preferred(tmp_path, model_dir, capsys):
    data = preference_file(tmp_path / "pairs.jsonl")
    words = [data, "--model", model_dir, "--lr", "0.02", "--batch", "32", "--epochs"]
    status = perform(trainer, parsed(trainer, *words, "4", "--out", tmp_path / "one", "--json"))
    printed = capsys.readouterr()
    report = json.loads(printed.out)  # one document, nothing else
    assert "loss" in printed.err
    assert status == 0
    assert report == json.loads((tmp_path / "one" / "report.json").read_text())
    assert report["pairs"] == {"trained": 216, "held_out": 24, "bad_rows": 0, "too_long": 0}
    assert report["held_out"]["accuracy"] > 0.9
    assert report["held_out"]["margin"] > 0.5

    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "one")
    assert model.config.num_labels == 1
    assert model.config.pad_token_id == tokenizer.pad_token_id != tokenizer.eos_token_id
    with torch.no_grad():  # as transformers alone would score it
        inputs = tokenizer([f"xyz:{w}{EOS}" for w in ("bac", "bcdz")], return_tensors="pt",
                           padding=True, return_token_type_ids=False)  # fmt: skip
        good, bad = model.eval()(**inputs).logits[:, 0]
    assert good > bad

    for name, seed in (("two", "0"), ("again", "0"), ("three", "1")):
        more = [*words, "1", "--out", tmp_path / name, "--seed", seed]
        assert perform(trainer, parsed(trainer, *more)) == 0
    assert "held-out pair accuracy" in capsys.readouterr().out
    assert weights_of(tmp_path / "two") == weights_of(tmp_path / "again")
    assert weights_of(tmp_path / "two") != weights_of(tmp_path / "three")


def test_a_tokenizer_that_pads_with_eos_gets_a_pad_of_its_own(tmp_path):
    config = GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=48, vocab_size=99)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    make_tokenizer(pad="eos").save_pretrained(tmp_path)
    model, tokenizer = trainer.new(tmp_path)
    assert tokenizer.pad_token_id == model.config.pad_token_id == 99
    assert model.get_input_embeddings().num_embeddings == 100
    assert (
        reward_models.score(model, [reward_models.encode(tokenizer, "ab:", "cd")]).isfinite().all()
    )


def test_pairs_that_are_too_long_are_left_out_and_counted(tmp_path, model_dir, golden):
    file = preference_file(tmp_path / "pairs.jsonl", 40)
    long = {"prompt": "p:", "chosen": "a" * 20, "rejected": "b"}
    write(file, [*file.read_text().splitlines(), long, "{"])
    words = [file, "--model", model_dir, "--out", tmp_path / "out", "--max-length", "12",
             "--epochs", "1"]  # fmt: skip
    report = trainer.run(parsed(trainer, *words, "--on-bad-row", "skip")).document
    assert report["pairs"]["too_long"] == 1
    assert report["pairs"]["bad_rows"] == 1
    assert report["pairs"]["trained"] + report["pairs"]["held_out"] == 40
    words[4], words[6] = tmp_path / "other", "3"
    with golden.refuses(RlzooError):
        trainer.run(parsed(trainer, *words, "--on-bad-row", "skip"))


def test_labels_are_the_response_alone():
    batch = sft.batch_of([([5, 6], [7, 1]), ([5, 6, 8], [1])], fill=0)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 1], [5, 6, 8, 1]]
    assert batch["labels"].tolist() == [[-100, -100, 7, 1], [-100, -100, -100, 1]]
    padded = sft.batch_of([([5], [1]), ([5, 6], [1])], fill=1)
    assert padded["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert padded["labels"].tolist() == [[-100, 1, -100], [-100, -100, 1]]


@pytest.mark.landing
@pytest.mark.process
def test_a_supervised_start_learns_the_response_and_to_end(tmp_path, model_dir, capsys):
    generator = torch.Generator().manual_seed(0)
    rows = [{"prompt": letters(generator, 3) + ":", "completion": "ok"} for _ in range(240)]
    data = write(tmp_path / "rows.jsonl", rows)
    words = [data, "--model", model_dir, "--lr", "0.02", "--batch", "32", "--epochs"]
    assert perform(sft, parsed(sft, *words, "6", "--out", tmp_path / "one", "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["held_out"]["loss"] < 0.1 < report["held_out"]["loss_before"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "one")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "one").eval()
    prompt = tokenizer("qrs:", return_tensors="pt", return_token_type_ids=False)
    ids = model.generate(**prompt, max_new_tokens=6, do_sample=False)
    assert tokenizer.decode(ids[0]) == f"qrs:ok{EOS}"
    for name in ("two", "again"):
        assert perform(sft, parsed(sft, *words, "1", "--out", tmp_path / name)) == 0
    assert "held-out loss" in capsys.readouterr().out
    assert weights_of(tmp_path / "two") == weights_of(tmp_path / "again")


def test_the_prompt_is_no_part_of_the_loss(tmp_path, model_dir):
    """Prompts that no model could guess cost nothing: the loss is that of the response."""
    rows = [{"prompt": chr(97 + i), "response": ""} for i in range(20)]
    data = write(tmp_path / "rows.jsonl", rows)
    words = [data, "--model", model_dir, "--out", tmp_path / "out", "--epochs", "20"]
    report = sft.run(parsed(sft, *words, "--lr", "0.02", "--batch", "8")).document
    assert report["held_out"]["loss"] < 0.05


@pytest.mark.parametrize("chat", ["always", "never"])
def test_a_model_taught_with_the_template_names_the_key_that_keeps_it(
    chat, tmp_path, model_dir, capsys
):
    model = shutil.copytree(model_dir, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer.save_pretrained(model)
    rows = [{"prompt": chr(97 + i), "response": "ok"} for i in range(20)]
    words = [write(tmp_path / "rows.jsonl", rows), "--model", model, "--chat", chat]
    assert perform(sft, parsed(sft, *words, "--epochs", "1", "--out", tmp_path / "out")) == 0
    assert ("model.chat=always" in capsys.readouterr().out) == (chat == "always")


def test_the_order_of_the_rows_follows_the_seed(capsys, tmp_path_factory):
    def order(seed):
        seen = []

        def collate(items):
            seen.extend(items)
            return {"input": torch.tensor(items, dtype=torch.float)[:, None]}

        arguments = argparse.Namespace(epochs=2, lr=0.1, batch=4, seed=seed, device="cpu")
        model = torch.nn.Linear(1, 1)
        fit.fit(model, range(12), collate, lambda m, x: m(**x).mean(), arguments, "test",
                tmp_path_factory.mktemp("fit"))  # fmt: skip
        return seen

    first = order(1)
    assert sorted(first[:12]) == sorted(first[12:]) == list(range(12))
    assert first[:12] != first[12:]
    assert order(1) == first != order(2)
    assert capsys.readouterr().out == ""


def test_a_training_of_one_step_trains(tmp_path):
    model = torch.nn.Linear(1, 1)
    before = model.bias.item()
    arguments = argparse.Namespace(epochs=1, lr=0.1, batch=4, seed=0, device="cpu")
    collate = lambda items: {"input": torch.ones(len(items), 1)}  # noqa: E731
    fit.fit(model, range(4), collate, lambda m, x: m(**x).mean(), arguments, "test", tmp_path)
    assert before - model.bias.item() == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        ["--model", "nan0"],
        ["--epochs", "0"],
        ["--lr", "-1"],
        ["--batch", "0"],
        ["--test-fraction", "1"],
        ["--max-length", "1"],
        ["--device", "cuba"],
        ["--out", "."],
    ],
)
@pytest.mark.parametrize("module", [trainer, sft])
def test_bad_arguments_are_one_line(tmp_path, monkeypatch, module, change, golden):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": p, "chosen": "a", "rejected": "b", "response": "a"} for p in "pqr"]
    write(tmp_path / "rows.jsonl", rows)
    words = ["rows.jsonl", "--model", "nano", "--out", "out", *change]
    with golden.refuses(RlzooError):
        module.run(parsed(module, *words))
    assert not (tmp_path / "out").exists()


@pytest.mark.process
def test_errors_in_the_data_come_before_torch(tmp_path):
    code = (
        "import argparse, sys\nfrom rlzoo import RlzooError\n"
        "from rlzoo_lab.supervised import reward\n"
        "parser = argparse.ArgumentParser()\nreward.add_arguments(parser)\n"
        "words = ['nowhere.jsonl', '--model', 'nano', '--out', 'out']\n"
        "try: reward.run(parser.parse_args(words))\n"
        "except RlzooError as error: print(error)\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "no file 'nowhere.jsonl'" in done.stdout


def test_a_classifier_of_two_labels_is_no_start_for_a_reward_model(tmp_path, golden):
    data = preference_file(tmp_path / "pairs.jsonl", 20)
    place = spoiled(tmp_path, "labels")
    words = [data, "--model", place, "--out", tmp_path / "out"]
    with golden.refuses(RlzooError):
        trainer.run(parsed(trainer, *words))


# ---------------------------------------------------------------- the true score


def test_seasoning_by_hand():
    task = Seasoning(best=4)
    texts = ["", "bcd", "bad", "aabaa", "aaaaa", "aaaaaaaa", "a" * 16, "eeee"]
    assert task.score(texts, ["a"] * 8).tolist() == [0, 0, 1 / 4, 1, 3 / 4, 0, 0, 0]


def test_seasoning_holds_out_prompts():
    draw = Seasoning().draw
    drawn = {s: draw(s, 300, torch.Generator().manual_seed(0)) for s in ("train", "test")}
    prompts = {split: {e.prompt for e in rows} for split, rows in drawn.items()}
    assert prompts["train"].isdisjoint(prompts["test"])
    for example in drawn["train"]:
        assert re.fullmatch(r"[^aeiou]{3}\+[aeiou]:", example.prompt)
        assert example.prompt[-2] == example.answer


# ---------------------------------------------------------------- the three stages


@pytest.fixture(scope="module")
def script():
    path = ROOT / "docs" / "studies" / "three_stages.py"
    spec = importlib.util.spec_from_file_location("three_stages", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def walk():
    """The commands of docs/stages.md, as lists of words."""
    text = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
    block = re.search(r"```bash\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[1]
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines() if line.strip()]


@pytest.mark.landing
def test_the_three_stages_run(script, tmp_path, capsys):
    """The walk of the docs, a few steps of each."""
    data, model, judge = (tmp_path / name for name in ("data.jsonl", "sft", "reward"))
    script.main(["demonstrations", str(data), "--n", "200"])
    first = ["--epochs", "1", "--lr", "0.003"]
    sft.run(parsed(sft, data, "--model", "nano", "--out", model, *first))
    script.main(["preferences", str(data), "--n", "60", "--model", str(model)])
    assert len(read_preferences(data).rows) == 60
    trainer.run(parsed(trainer, data, "--model", model, "--out", judge, *first))
    words = [word for word in walk()[4] if "=" in word and "runs/" not in word]
    words = [w for w in words if not w.startswith(("recipe=", "kl.coef=", "seed="))]
    words += [f"model.path={model}", f"rewards.reward_model.path={judge}", "kl.coef=0.2"]
    words += ["train.steps=2", "rollout.prompts=4", "eval.every=1", "eval.samples=8", "device=cpu"]
    runs = []
    for seed in (0, 1):
        path = tmp_path / "ppo" / f"seed{seed}"
        run = rlzoo.run("ppo_gae", [*words, f"seed={seed}", f"run.dir={path}"])
        runs.append(run)
    evaluations = [line for line in runs[0].metrics if "eval/score" in line]
    assert len(evaluations) == 3
    for line in evaluations:  # the reward is what was learned; the true score is only watched
        assert line["eval/score"] == pytest.approx(line["eval/reward/reward_model"], abs=1e-5)
        assert 0 <= line["eval/reward/verifier"] <= 1
    rows = [{"label": "coef=0.2", "runs": ["seed0", "seed1"]}]
    (tmp_path / "ppo" / "sweep.json").write_text(json.dumps({"rows": rows}))
    capsys.readouterr()
    script.main(["curves", str(tmp_path / "ppo"), "--plot", str(tmp_path / "curves.svg")])
    printed = capsys.readouterr().out
    assert printed.count("\n| ") == 4  # the rule and three evaluations
    assert "coef=0.2: true, start to end" in printed
    assert "<svg" in (tmp_path / "curves.svg").read_text()
    script.main(["probe", str(judge)])
    assert "| another vowel |" in capsys.readouterr().out


def test_the_interval_is_students(script):
    mean, low, high = script.interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3
    assert (low, high) == pytest.approx((3 - 1.9632, 3 + 1.9632), abs=2e-3)


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.study
def test_the_walk_shows_what_it_says(script, tmp_path):
    """The very commands of the docs: the reward model is right in 90 % of held-out pairs, PPO
    against it raises the true score, and without a KL penalty it ends by ruining it."""
    before = cpu_seconds()
    for words in walk():
        words = [word.replace("runs/walk", str(tmp_path)) for word in words]
        runner = {"python": [sys.executable], "rlzoo": [sys.executable, "-m", "rlzoo"]}
        subprocess.run([*runner[words[0]], *words[1:]], cwd=ROOT, check=True)
    assert cpu_seconds() - before < 600  # ten minutes on one idle core
    report = json.loads((tmp_path / "reward" / "report.json").read_text())
    assert report["held_out"]["accuracy"] >= 0.9
    rows = script.read_curves(str(tmp_path / "ppo"))
    assert [len(curves["true"]) for curves in rows.values()] == [5, 5]
    free, held = script.judge(rows).values()

    def low(found, name):
        return found[name][1]

    def high(found, name):
        return found[name][2]

    assert low(held, "true, start to end") > 0
    assert low(free, f"true, start to step {script.PEAK}") > 0
    assert high(free, f"true, step {script.PEAK} to end") < 0
    assert low(free, f"learned, step {script.PEAK} to end") > 0
