"""`rlzoo check FILE.py:FUNCTION` and `LIBRARY:NAME`, in an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlzoo.errors import RlzooError
from rlzoo_lab.kit import foreign

HERE = Path(__file__).resolve().parent

MINE = '''
import torch

def advantages(token_level_rewards, response_mask, index, epsilon=1e-6):
    """As in a trainer."""
    scores = token_level_rewards.sum(-1)
    out = torch.zeros_like(scores)
    for name in set(index):
        rows = [i for i, other in enumerate(index) if other == name]
        if len(rows) > 1:
            group = scores[rows]
            out[rows] = (group - group.mean()) / (group.std() + epsilon)
    return out[:, None] * response_mask

def loss(logps, old_logps, advantages, mask, clip=0.2):
    ratio = (logps - old_logps).exp()
    both = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return -(both * mask).sum() / mask.sum().clamp(min=1)

def unknown(pay, response_mask):
    return pay * response_mask

def leaves(rewards, response_mask):
    raise SystemExit(3)

def nothing(rewards, response_mask):
    pass

HERE = 3

class Critic:
    def __init__(self, clip=0.2):
        self.clip = clip

    def __call__(self, values, old_values, returns, action_mask):
        near = old_values + (values - old_values).clamp(-self.clip, self.clip)
        worse = torch.maximum((values - returns) ** 2, (near - returns) ** 2)
        return (worse * action_mask).sum() / action_mask.sum().clamp(min=1)
'''

# In the manner of a library with registries, config objects, and a function that averages.
VERL = {
    "verl/__init__.py": "",
    "verl/trainer/__init__.py": "",
    "verl/trainer/config.py": "class AlgoConfig:\n    scale = 2.0\n",
    "verl/workers/__init__.py": "",
    "verl/workers/config.py": """
class ActorConfig:
    def __init__(self, strategy, rollout_n, ppo_micro_batch_size_per_gpu):
        self.clip_ratio = 0.2
""",
    "verl/trainer/ppo/__init__.py": "",
    "verl/trainer/ppo/core_algos.py": """
import torch

def agg_loss(loss_mat, loss_mask, loss_agg_mode):
    return (loss_mat * loss_mask).sum() / loss_mask.sum().clamp(min=1)

def to_go(token_level_rewards, response_mask, gamma, config=None, **rest):
    kept, total = torch.zeros_like(token_level_rewards), 0
    for t in reversed(range(kept.shape[1])):
        m = response_mask[:, t]
        total = m * (token_level_rewards[:, t] + gamma * total) + (1 - m) * total
        kept[:, t] = total * m
    return kept * config.scale, kept

def vanilla(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean",
            config=None, rollout_is_weights=None):
    ratio = (log_prob - old_log_prob).exp()
    near = ratio.clamp(1 - config.clip_ratio, 1 + config.clip_ratio)
    each = -torch.minimum(ratio * advantages, near * advantages)
    return agg_loss(loss_mat=each, loss_mask=response_mask, loss_agg_mode=loss_agg_mode), {}

ADV_ESTIMATOR_REGISTRY = {"to_go": to_go, "rlzoo/gae": to_go}
POLICY_LOSS_REGISTRY = {"vanilla": vanilla}
""",
}


OTHERS = {
    "slime/__init__.py": "",
    "slime/utils/__init__.py": "",
    "slime/utils/ppo_utils.py": """
import torch

def chunked_gae(rewards, values, gamma, lambd):
    return rewards - values, rewards

vanilla_gae = chunked_gae

def compute_policy_loss(ppo_kl, advantages, eps_clip, eps_clip_high, eps_clip_c=None):
    ratio = (-ppo_kl).exp()
    near = ratio.clamp(1 - eps_clip, 1 + eps_clip_high)
    return -torch.minimum(ratio * advantages, near * advantages), None

def compute_cispo_loss(ppo_kl, log_probs, advantages, eps_clip, eps_clip_high):
    near = (-ppo_kl).exp().clamp(1 - eps_clip, 1 + eps_clip_high)
    return near.detach() * advantages * log_probs, None

def compute_approx_kl(log_probs, log_probs_base, kl_loss_type):
    return log_probs - log_probs_base
""",
    "rllm/__init__.py": "",
    "rllm/trainer/__init__.py": "",
    "rllm/trainer/algorithms/__init__.py": "",
    "rllm/trainer/algorithms/config.py": "class AlgorithmConfig:\n    scale = 2.0\n",
    "rllm/trainer/algorithms/advantage.py": """
def centred(rewards, algorithm_config, **kwargs):
    out = [algorithm_config.scale * (x - x.mean()) for x in rewards]
    return out, out

RLLM_ADV_ESTIMATOR_REGISTRY = {"centred": centred}
""",
}


def rlzoo(*words, where, path=()):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "rlzoo", *words]
    return subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def results(name, words=(), maps=()):
    return {
        f"{kind} {r.name}": r for kind, _, _, some in foreign.check(name, words, maps) for r in some
    }


@pytest.mark.parametrize("name", ["advantages", "loss", "Critic"])
def test_a_right_function_of_a_file_passes(folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    found = results(f"mine.py:{name}")
    assert {n: r.message for n, r in found.items() if r.passed is False} == {}
    assert sum(r.passed is True for r in found.values()) >= 12


def test_its_arguments_are_told(folder, monkeypatch):
    monkeypatch.chdir(folder)
    told = results("mine.py:advantages")["estimator arguments"].message
    assert told == (
        "token_level_rewards = rewards, response_mask = response_mask, index = group_ids; "
        "at its default: epsilon"
    )


def test_an_unknown_argument_is_one_line_until_it_is_mapped(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(RlzooError, match=r"no column is known for its argument 'pay'"):
        results("mine.py:unknown")
    with pytest.raises(RlzooError, match=r"no column 'reward'; did you mean 'rewards'"):
        results("mine.py:unknown", maps=["pay=reward"])
    found = results("mine.py:unknown", maps=["pay=rewards"])
    assert found["estimator reward_raises_its_own_advantage"].passed


def test_a_loss_of_one_number_is_judged_by_its_gradient(folder, monkeypatch):
    wrong = MINE.replace("(both * mask).sum() / mask.sum().clamp(min=1)", "both.mean()")
    (folder / "mine.py").write_text(wrong)
    monkeypatch.chdir(folder)
    failed = {n for n, r in results("mine.py:loss").items() if r.passed is False}
    assert {"policy_loss padding_is_not_read", "policy_loss holes_are_stepped_over"} <= failed


def test_without_the_zoo_on_its_path(folder):
    """Only the core and the lab are there: no component of the zoo is loaded."""
    root = HERE.parents[3]
    for name, source in (("rlzoo", root), ("rlzoo_lab", root / "plugins")):
        (folder / "path" / name).parent.mkdir(exist_ok=True)
        (folder / "path" / name).symlink_to(source / name)
    code = (
        "import sys; sys.modules['rlzoo_zoo'] = None\n"
        "from rlzoo_lab.kit import foreign\n"
        "rows = foreign.check('mine.py:advantages', [], [])\n"
        "print([r.name for *_, some in rows for r in some if r.passed is False])"
    )
    env = os.environ | {"PYTHONPATH": str(folder / "path")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_registered_names_of_a_library(folder):
    for name, text in VERL.items():
        (folder / "path" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "path" / name).write_text(text)
    done = rlzoo("check", "verl:all", "--json", where=folder, path=[folder / "path"])
    rows = json.loads(done.stdout)
    seen = {(r["kind"], r["component"]) for r in rows}
    assert ("estimator", "verl:to_go") in seen
    assert ("policy_loss", "verl:vanilla") in seen
    assert ("estimator", "verl:rlzoo/gae") not in seen
    of = {(r["component"], r["name"]): r for r in rows}
    assert of["verl:to_go", "past_reward_is_no_credit"]["passed"]
    # The loss per token is seen before it is averaged: what rows share can be told.
    assert of["verl:vanilla", "couples_as_declared"]["passed"]
    assert "REINFORCE" in of["verl:vanilla", "praise_raises_the_probability"]["message"]
    assert "verl.utils cannot" not in done.stderr


def test_arguments_that_are_made_of_columns(folder):
    for name, text in OTHERS.items():
        (folder / "path" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "path" / name).write_text(text)
    failed = {}
    for name in ("slime:ppo", "slime:cispo", "rllm:all"):
        done = rlzoo("check", name, "--json", where=folder, path=[folder / "path"])
        rows = json.loads(done.stdout)
        failed[name] = {r["name"] for r in rows if r["passed"] is False}
        assert sum(r["passed"] is True for r in rows) > 12
    signs = {"praise_raises_the_probability"}  # the fault of that cispo
    assert failed == {"slime:ppo": set(), "slime:cispo": signs, "rllm:all": set()}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verl:"], "rlzoo: verl:: write verl:FUNCTION"),
        (["mine.py"], "rlzoo: mine.py: write mine.py:FUNCTION"),
        (["mine.py:HERE"], "rlzoo: mine.py:HERE: 3 cannot be called"),
        (["mine.py:leaves"], "rlzoo: mine.py:leaves: it cannot be called with rewards = rewards, "
         "response_mask = response_mask: SystemExit: 3 (at mine.py:24)"),
        (["mine.py:nothing"], "rlzoo: mine.py:nothing: it cannot be called with rewards = rewards, "
         "response_mask = response_mask: returned None, not advantages of (13, 12)"),
        (["mine.py:loss", "couples=all"],
         "rlzoo: couples=all: must be one of row, group, batch"),
        (["trl:grpo"], "rlzoo: TRL is not installed"),
        (["nowhere.py:f"], "rlzoo: there is no file nowhere.py"),
        (["mine.py:advantage"], "rlzoo: mine.py has no 'advantage'; did you mean 'advantages'?"),
        (["mine.py:loss", "clipp=1"],
         "rlzoo: mine.py:loss: has no argument 'clipp'; did you mean 'clip'?"),
        (["mine.py:loss", "--map", "x"], "rlzoo: --map must be THEIRS=OURS. Got x"),
    ],
)  # fmt: skip
def test_one_line_for_what_cannot_be(folder, words, line):
    done = rlzoo("check", *words, where=folder)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", line)


def test_checks_are_pytest_tests_without_the_zoo(folder):
    (folder / "test_mine.py").write_text(
        "import sys; sys.modules['rlzoo_zoo'] = None\n"
        "import rlzoo\nfrom mine import loss, unknown\n"
        "@rlzoo.parametrize_with_checks([loss])\n"
        "def test_loss(check): check()\n"
        "@rlzoo.parametrize_with_checks([unknown], map={'pay': 'rewards'}, gain=3)\n"
        "def test_unknown(check): check()\n"
    )
    mine = MINE.replace(
        "def unknown(pay, response_mask):", "def unknown(pay, response_mask, gain):"
    )
    (folder / "mine.py").write_text(
        mine.replace("return pay * response_mask", "return -gain * pay")
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    failed = {x.split("::")[1].split(" ")[0] for x in done.stdout.splitlines() if "FAILED" in x}
    assert failed == {"test_unknown[unknown-reward_raises_its_own_advantage]"}, done.stdout
    assert "passed" in done.stdout
    assert "skipped" in done.stdout


def test_diagnose_takes_an_estimator_of_a_file(folder, monkeypatch):
    monkeypatch.chdir(folder)
    words = ["diagnose", "recipe=grpo", "estimator=grpo,mine.py:advantages", "--batches", "0"]
    done = rlzoo(*words, "--horizon", "3", "--vocabulary", "3", "--json", where=folder)
    rows = json.loads(done.stdout)["estimators"]
    ours, theirs = (
        {n: x for n, x in r.items() if isinstance(x, float) and "seconds" not in n} for r in rows
    )
    assert [r["estimator"] for r in rows] == ["grpo", "mine.py:advantages"]
    assert theirs == pytest.approx(ours, rel=1e-6, abs=1e-9)
    words[2], mapped = "estimator=mine.py:unknown", ["--map", "pay=rewards"]
    done = rlzoo(*words, *mapped, "--horizon", "3", "--vocabulary", "3", "--json", where=folder)
    assert [r["estimator"] for r in json.loads(done.stdout)["estimators"]] == ["mine.py:unknown"]
    done = rlzoo("diagnose", "recipe=grpo", "--map", "pay=rewards", where=folder)
    assert done.stderr.strip() == "rlzoo: --map: is for estimator=FILE.py:FUNCTION"
    done = rlzoo("diagnose", "recipe=grpo", "estimator=mine.py:loss", where=folder)
    assert done.stderr.strip().endswith("estimator=mine.py:loss: it is not an advantage estimator")
