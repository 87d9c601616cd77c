"""rlzoo in verl, by verl's own call paths on a CPU: writes what it finds as JSON to the file named.

    python tests/reference/make_bridges.py verl

compute_advantage, the V1 trainer's _compute_advantage, ppo_loss and hydra are verl's, unmodified;
the zoo comes by the entry point `verl.plugins`.
"""

import json
import os
import subprocess
import sys
import types
import warnings
from importlib.metadata import version

import numpy as np
import torch
import verl
from batches import CASES, OPTIONS, SCORE_WEIGHTS, columns, gap, make, options
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from verl import DataProto
from verl.trainer.ppo import core_algos, ray_trainer
from verl.trainer.ppo.utils import need_critic
from verl.trainer.ppo.v1 import trainer_base
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import ActorConfig
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import response_to_nested

from rlzoo import load_zoo
from rlzoo.errors import RlzooError
from rlzoo_bridges import verl as bridge
from rlzoo_bridges.hosts import HOSTS
from rlzoo_bridges.lines import lines

warnings.filterwarnings("ignore")
HOST, ZOO = HOSTS["verl"], load_zoo()
FED = [n for n, c in ZOO.estimators.items() if not HOST.refusal(c, ZOO.columns)]
LOSSES = [n for n, c in ZOO.policy_losses.items() if not HOST.refusal(c, ZOO.columns)]
AGGREGATIONS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean")
PARTS = ["part_a", "part_b"]
CONFIG = {
    "gamma": 0.97, "lam": 0.9, "use_pf_ppo": False, "use_kl_in_reward": False, "kl_penalty": "kl",
    "gdpo_reward_keys": PARTS, "gdpo_reward_weights": SCORE_WEIGHTS,
}  # fmt: skip


def batch_of(x) -> DataProto:
    """verl's names and containers."""
    tensors = {
        "token_level_rewards": x["rewards"], "token_level_scores": x["rewards"].clone(),
        "response_mask": x["response_mask"].long(), "values": x["values"],
        "old_log_probs": x["old_log_probs"], "ref_log_prob": x["ref_log_probs"],
        "rollout_log_probs": x["sampler_log_probs"], "sum_pi_squared": x["sum_pi_squared"],
        "reward_baselines": x["greedy_scores"],
    }  # fmt: skip
    rows = {key: x["score_components"][:, k].numpy() for k, key in enumerate(PARTS)}
    return DataProto.from_dict(tensors=tensors, non_tensors=rows | {"uid": uids(x)})


def uids(x) -> np.ndarray:
    return np.array([f"prompt-{i}" for i in x["group_ids"].tolist()], dtype=object)


def estimators() -> dict:
    worst = 0.0
    for case in CASES:
        x = make(case)
        for name in FED:
            config = OmegaConf.create(CONFIG | {"rlzoo": OPTIONS.get(name, {})})
            data = batch_of(x)
            out = ray_trainer.compute_advantage(data, "rlzoo/" + name, 0.97, 0.9, config=config)
            want = ZOO.estimators[name](columns(x), **options(ZOO.estimators[name]))
            worst = max(worst, gap(out.batch["advantages"], want["advantages"]))
            if "returns" in want:
                worst = max(worst, gap(out.batch["returns"], want["returns"]))
    refused = {}
    for name in sorted(set(ZOO.estimators) - set(FED)):
        try:
            ray_trainer.compute_advantage(batch_of(x), "rlzoo/" + name, config=config)
        except RlzooError as error:
            refused[name] = str(error)
    return {"estimators": len(FED), "batches": len(CASES), "worst": worst, "refused": refused}


def against_verl() -> dict:
    """Beside verl's own of the same name, on a batch without holes in responses."""
    x = make("ragged")
    mask = x["response_mask"].bool()

    def run(name, how="none", keep_greedy=False, **more):
        config = OmegaConf.create(CONFIG | more | {"rlzoo": {"whiten": how}})
        data = batch_of(x)
        if not keep_greedy:
            data.batch.pop("reward_baselines")
        out = ray_trainer.compute_advantage(data, name, 0.97, 0.9, config=config)
        return out.batch["advantages"], out.batch["returns"]

    pairs = {
        "gae, whitened": (run("rlzoo/gae", "batch"), run("gae")),
        "rloo": (run("rlzoo/rloo"), run("rloo")),
        "grpo": (run("rlzoo/grpo"), run("grpo")),
        "opo": (run("rlzoo/opo"), run("opo")),
        "remax": (run("rlzoo/remax", keep_greedy=True), run("remax", keep_greedy=True)),
        "reinforce, whitened": (run("rlzoo/reinforce", "batch"), run("reinforce_plus_plus")),
        "otb": (run("rlzoo/otb"), run("optimal_token_baseline")),
    }
    found = {name: gap(a[0][mask], b[0][mask]) for name, (a, b) in pairs.items()}
    found["gae, returns"] = gap(*(p[1][mask] for p in pairs["gae, whitened"]))
    return found


def v1() -> dict:
    """PPOTrainer._compute_advantage of the V1 trainer; its queue is a dict."""
    store: dict = {}

    class Queue:
        @staticmethod
        def kv_batch_get(keys, partition_id, select_fields):
            return TensorDict({k: store[k] for k in select_fields if k in store}, len(keys))

        @staticmethod
        def kv_batch_put(keys, partition_id, fields):
            store.update(fields.items())
            return types.SimpleNamespace(keys=keys, partition_id=partition_id)

    class Meta(types.SimpleNamespace):
        def __len__(self):
            return len(self.keys)

    trainer_base.tq = Queue
    names = {
        "response_mask": "response_mask", "rm_scores": "rewards", "values": "values",
        "rollout_log_probs": "sampler_log_probs", "old_log_probs": "old_log_probs",
        "ref_log_prob": "ref_log_probs",
    }  # fmt: skip
    right, told, worst = [], {}, 0.0
    for name in FED:
        store.clear()
        x = make("multi_turn")
        ends = (x["response_mask"] * torch.arange(1, 10)).amax(1).long()
        rows = [x["response_mask"][i, :n] for i, n in enumerate(ends)]
        mask = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        store.update({k: response_to_nested(x[ours], mask) for k, ours in names.items()})
        store["uid"] = NonTensorStack(*uids(x))
        algorithm = CONFIG | {"adv_estimator": "rlzoo/" + name, "rlzoo": OPTIONS.get(name, {})}
        config = {"algorithm": algorithm, "actor_rollout_ref": {"rollout": {"n": 4}}}
        me = types.SimpleNamespace(config=OmegaConf.create(config), kl_ctrl_in_reward=None)
        keys = [f"{u}_{i}_0" for i, u in enumerate(uids(x))]
        try:
            trainer_base.PPOTrainer._compute_advantage(me, Meta(keys=keys, partition_id="t"), {})
        except RlzooError as error:
            told[name] = str(error)
            continue
        want = ZOO.estimators[name](columns(x), **options(ZOO.estimators[name]))["advantages"]
        got = store["advantages"].to_padded_tensor(0.0)
        worst = max(worst, gap(got, want[:, : got.shape[1]]))
        right.append(name)
    return {"estimators": len(right), "worst": worst, "not handed on": told}


def losses() -> dict:
    """ppo_loss with nested tensors: value and gradient beside rlzoo's loss and aggregation."""
    worst, calls = 0.0, 0
    for case in ("single_turn", "ragged", "multi_turn"):
        x = make(case)
        for name in LOSSES:
            for aggregation in AGGREGATIONS:
                worst = max(worst, one_loss(x, name, aggregation, {}))
                calls += 1
    worst = max(worst, one_loss(x, "ppo_clip", "token-mean", {"clip_low": 0.1, "clip_high": 0.3}))
    return {"losses": len(LOSSES), "calls": calls + 1, "worst": worst}


def one_loss(x, name, aggregation, own) -> float:
    rows, steps = x["response_mask"].shape
    prompt = 3  # verl's log-probabilities cover the prompt, and are shifted by one
    flat = torch.zeros(rows, prompt + steps, dtype=torch.float64)
    flat[:, prompt - 1 : -1] = x["log_probs"]
    leaf = flat.reshape(-1).clone().requires_grad_()
    offsets = torch.arange(0, rows * (prompt + steps) + 1, prompt + steps)
    nested = torch.nested.nested_tensor_from_jagged(leaf, offsets=offsets)

    def nest(t):
        return torch.nested.as_nested_tensor(list(t), layout=torch.jagged)

    data = TensorDict(
        {
            "prompts": nest(torch.zeros(rows, prompt, dtype=torch.long)),
            "responses": nest(torch.zeros(rows, steps, dtype=torch.long)),
            "response_mask": nest(x["response_mask"]),
            "old_log_probs": nest(x["old_log_probs"]),
            "advantages": nest(x["advantages"]),
        },
        batch_size=rows,
    )
    tokens = int(x["response_mask"].sum())
    for key, value in {"dp_size": 1, "batch_num_tokens": tokens, "global_batch_size": rows}.items():
        tensordict_utils.assign_non_tensor_data(data, key, value)
    chosen = bridge.PolicyLossConfig(loss_mode="rlzoo/" + name, rlzoo=own)
    config = ActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True,
                         loss_agg_mode=aggregation, policy_loss=chosen)  # fmt: skip
    value, _ = ppo_loss(config, {"log_probs": nested}, data)
    value.backward()
    gradient = leaf.grad.reshape(rows, -1)[:, prompt - 1 : -1]
    at = x["log_probs"].clone().requires_grad_()
    per_token, _ = ZOO.policy_losses[name](columns(x) | {"log_probs": at}, **own)
    weights = ZOO.aggregations[aggregation.replace("-", "_")]({"response_mask": x["response_mask"]})
    want = (weights * per_token).sum()
    want.backward()
    return max(gap(gradient, at.grad), abs(value.item() - want.item()))


def command_lines() -> dict:
    """hydra composes the docs' line and those of each recipe; verl's dataclasses take them."""
    plain = ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "critic.strategy=fsdp",
             "actor_rollout_ref.model.path=x"]  # fmt: skip
    docs = [
        "algorithm.adv_estimator=rlzoo/gae_decoupled", "critic.enable=true",
        "+algorithm.rlzoo.lam_actor=0.9",
        "actor_rollout_ref.actor.policy_loss.loss_mode=rlzoo/cispo",
        "actor_rollout_ref.actor.policy_loss._target_=rlzoo_bridges.verl.PolicyLossConfig",
        "+actor_rollout_ref.actor.policy_loss.rlzoo.clip_high=0.3",
    ]  # fmt: skip
    from rlzoo.recipe.files import list_configs

    composed, refused = 0, {}
    place = os.path.join(os.path.dirname(verl.__file__), "trainer", "config")
    with initialize_config_dir(place, version_base=None):
        config = compose("ppo_trainer", overrides=plain + docs)
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        assert need_critic(config)
        assert isinstance(actor.policy_loss, bridge.PolicyLossConfig)
        assert dict(actor.policy_loss.rlzoo) == {"clip_high": 0.3}
        assert dict(config.algorithm.rlzoo) == {"lam_actor": 0.9}
        for recipe in list_configs("recipes"):
            try:
                words = lines("verl", [f"recipe={recipe}"], ZOO).words
            except RlzooError as error:
                refused[recipe] = str(error)
                continue
            config = compose("ppo_trainer", overrides=plain + words)
            actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
            core_algos.get_adv_estimator_fn(config.algorithm.adv_estimator)
            core_algos.get_policy_loss_fn(actor.policy_loss.loss_mode)
            composed += 1
    return {"recipes": composed, "refused": refused}


def loud() -> dict:
    """What `import verl` says where the command line asks for what cannot be, or does not exist."""
    found = {}
    for name in ("rlzoo/gigpo", "rlzoo/gea"):
        code = f"import sys; sys.argv += ['algorithm.adv_estimator={name}']; import verl"
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True,
                              text=True)  # fmt: skip
        found[name] = [done.returncode, done.stderr.strip().splitlines()[-1]]
    return found


def main(out: str) -> None:
    torch.manual_seed(0)
    result = {
        "versions": {n: version(n) for n in ("verl", "torch", "hydra-core", "omegaconf", "ray")},
        "estimators": estimators(),
        "against verl": against_verl(),
        "V1": v1(),
        "losses": losses(),
        "command lines": command_lines(),
        "loud": loud(),
    }
    with open(out, "w") as file:
        json.dump(result, file, indent=1)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
