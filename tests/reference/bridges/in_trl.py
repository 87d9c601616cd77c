"""rlzoo in TRL: trainings on a CPU beside TRL's own; writes what it finds to a JSON file.

python tests/reference/make_bridges.py trl
"""

import json
import os
import random
import sys
import tempfile
import warnings
from importlib.metadata import version

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from rlzoo import load_zoo
from rlzoo.errors import RlzooError
from rlzoo.recipe.files import list_configs
from rlzoo_bridges.hosts import HOSTS
from rlzoo_bridges.lines import lines
from rlzoo_bridges.trl import ZooGRPOTrainer

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
HOST, ZOO = HOSTS["trl"], load_zoo()
MODEL = sys.argv[1]
FED = [n for n, c in ZOO.estimators.items() if not HOST.refusal(c, ZOO.columns)]
LOSSES = [n for n, c in ZOO.policy_losses.items() if not HOST.refusal(c, ZOO.columns)]
SAMPLES = 4


def right(completions, answer, **_):
    return [float(c.strip() == a) for c, a in zip(completions, answer, strict=True)]


def digits(completions, **_):
    return [sum(c.isdigit() for c in text) / 4 for text in completions]


def train(cls, steps=2, config=None, **kwargs):
    """(the trainer, its advantages of each rollout, the losses it logged)"""
    random.seed(0)
    pairs = [(random.randint(10, 99), random.randint(10, 99)) for _ in range(16)]
    data = Dataset.from_list([{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in pairs])
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(**{
            "output_dir": folder, "per_device_train_batch_size": 16, "num_generations": SAMPLES,
            "max_completion_length": 6, "max_steps": steps, "learning_rate": 1e-3, "beta": 0.0,
            "temperature": 2.0, "report_to": [], "logging_steps": 1, "save_strategy": "no",
            "use_cpu": True,
            "bf16": False, "seed": 1, "gradient_checkpointing": False, "disable_tqdm": True,
            **(config or {}),
        })  # fmt: skip
        model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        trainer = cls(model=model, reward_funcs=[right, digits], args=args, train_dataset=data,
                      processing_class=tokenizer, **kwargs)  # fmt: skip
        seen: list = []
        inner = trainer._generate_and_score_completions

        def spy(inputs):
            out = inner(inputs)
            mask = out["completion_mask"]
            advantages = out["advantages"]
            wide = advantages if advantages.dim() == 2 else advantages[:, None].expand_as(mask)
            scores = getattr(trainer, "_zoo_scores", None)
            seen.append((wide.clone() * mask, mask.clone(), scores))
            return out

        trainer._generate_and_score_completions = spy
        trainer.train()
    return trainer, seen, [line["loss"] for line in trainer.state.log_history if "loss" in line]


def by_hand(name, mask, scores) -> torch.Tensor:
    """The zoo's estimator on a rollout of TRL, written out."""
    mask, total = mask.float(), scores.sum(1)
    last = (mask * torch.arange(1, mask.shape[1] + 1)).argmax(1)
    rewards = torch.nn.functional.one_hot(last, mask.shape[1]) * total[:, None]
    columns = {
        "rewards": rewards, "scores": rewards, "sequence_rewards": total, "sequence_scores": total,
        "response_mask": mask, "group_ids": torch.arange(len(mask)) // SAMPLES,
        "score_components": scores, "score_weights": torch.ones(scores.shape[1]),
    }  # fmt: skip
    return ZOO.estimators[name](columns)["advantages"]


def trainings() -> dict:
    """Two steps with each estimator, each time with another policy loss; and with each loss."""
    worst, runs, moved = 0.0, 0, 0
    count = max(len(FED), len(LOSSES))
    for i in range(count):
        name, loss = FED[i % len(FED)], LOSSES[i % len(LOSSES)]
        trainer, seen, losses = train(ZooGRPOTrainer, estimator=name, policy_loss=loss)
        for advantages, mask, scores in seen:
            worst = max(worst, (advantages - by_hand(name, mask, scores)).abs().max().item())
        assert len(losses) == 2, losses
        assert all(map(torch.isfinite, map(torch.tensor, losses)))
        fresh = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
        pairs = zip(trainer.model.parameters(), fresh.parameters(), strict=True)
        moved += any(not torch.equal(a, b) for a, b in pairs)
        runs += 1
    return {"estimators": len(FED), "losses": len(LOSSES), "runs": runs, "weights moved in": moved,
            "worst": worst}  # fmt: skip


def against_trl() -> dict:
    """The same training by TRL alone: advantages of the first rollout, and all losses."""
    found = {}
    pairs = {
        "grpo, eps 1e-4": ({"estimator": "grpo", "options": {"eps": 1e-4}}, {}),
        "dr_grpo": ({"estimator": "dr_grpo"}, {"scale_rewards": "none"}),
    }
    for what, (ours, theirs) in pairs.items():
        (_, a, la), (_, b, lb) = train(ZooGRPOTrainer, config=theirs, **ours), train(
            GRPOTrainer, config=theirs)  # fmt: skip
        assert a[0][0].abs().max() > 0.1  # there is a signal
        found[f"{what}: advantages"] = (a[0][0] - b[0][0]).abs().max().item()
        found[f"{what}: losses"] = max(abs(x - y) for x, y in zip(la, lb, strict=True))
    grpo = {"estimator": "grpo", "options": {"eps": 1e-4}}
    for kind in ("grpo", "bnpo", "dr_grpo", "dapo"):
        more = {"loss_type": kind, "num_iterations": 2, "beta": 0.02,
                "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}  # fmt: skip
        _, seen, la = train(ZooGRPOTrainer, 4, more, **grpo, policy_loss="ppo_clip")
        assert len(set(seen[0][1].sum(1).tolist())) > 1  # responses of several lengths
        lb = train(GRPOTrainer, 4, more)[2]
        gap = max(abs(x - y) for x, y in zip(la, lb, strict=True))
        found[f"ppo_clip, loss_type={kind}, KL, 2 iterations: losses"] = gap
    return found


def refusals() -> dict:
    told = {}
    for what, given in {
        "gae": {"estimator": "gae"},
        "gea": {"estimator": "gea"},
        "tpo": {"policy_loss": "tpo"},
        "option": {"estimator": "grpo", "options": {"epz": 1}},
        "sequence level": {"policy_loss": "cispo",
                           "config": {"importance_sampling_level": "sequence"}},
    }.items():  # fmt: skip
        try:
            train(ZooGRPOTrainer, 1, given.pop("config", None), **given)
        except RlzooError as error:
            told[what] = str(error)
    return told


def command_lines() -> dict:
    """GRPOConfig takes the settings of every recipe that TRL can run."""
    composed, refused = 0, {}
    for recipe in list_configs("recipes"):
        try:
            text = lines("trl", [f"recipe={recipe}"], ZOO).files["train.py"]
        except RlzooError as error:
            refused[recipe] = str(error)
            continue
        names: dict = {}
        settings = text[: text.index("trainer =")].replace(
            "output_dir='out'", "output_dir='/tmp/out', use_cpu=True, bf16=False"
        )
        exec(settings, names)
        composed += isinstance(names["config"], GRPOConfig)
    return {"recipes": composed, "refused": refused}


def main(out: str) -> None:
    result = {
        "versions": {n: version(n) for n in ("trl", "torch", "transformers")},
        "refusals": refusals(),
        "command lines": command_lines(),
        "against trl": against_trl(),
        "trainings": trainings(),
    }
    with open(out, "w") as file:
        json.dump(result, file, indent=1)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[2])
