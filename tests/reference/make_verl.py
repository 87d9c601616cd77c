"""Reference numbers for tests/zoo/test_reference.py: what verl 0.9.1's own functions give.

verl is not a dependency: run this by hand where it is installed, and keep what it writes next to
it, `verl.safetensors` (inputs and outputs) and `verl.json` (versions, options):

    python -m venv env && . env/bin/activate
    pip install torch safetensors omegaconf transformers tensordict packaging numpy
    pip install --no-deps verl==0.9.1
    python tests/reference/make_verl.py

Tensors are named `batch/input` (float64) and `batch/dtype/output`. Each output comes from one
unmodified function of verl; float32 outputs from the same inputs cast to float32.
"""

import importlib.abc
import importlib.machinery
import json
import platform
import sys
import types
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file


class Placeholder(types.ModuleType):
    """Stands in for a module: any name in it is an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """verl's package imports its cluster and logging stack on the way to its arithmetic.

    The arithmetic uses none of these three, so where one is not installed an empty module takes
    its place. Nothing of verl is replaced.
    """

    names = ("ray", "codetiming", "orjson")
    used: set[str] = set()

    def find_spec(self, name, path=None, target=None):
        root = name.split(".")[0]
        if root not in self.names:
            return None
        self.used.add(root)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Placeholder(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(Placeholders())  # last: an installed module is found before

from omegaconf import OmegaConf  # noqa: E402
from verl.trainer.ppo import core_algos as verl  # noqa: E402
from verl.trainer.ppo import rollout_corr_helper as correction  # noqa: E402
from verl.utils.torch_functional import masked_whiten  # noqa: E402
from verl.workers.config.actor import ActorConfig, PolicyLossConfig  # noqa: E402

HERE = Path(__file__).parent
B, T, K = 12, 8, 3  # rows, positions, reward components

# The options of every call; the tests read them from verl.json, so they are said once.
OPTIONS = {
    "gae": {"gamma": 0.97, "lam": 0.9},
    "reinforce": {"gamma": 0.97},
    "clip": {"clip_low": 0.2, "clip_high": 0.28},
    "dual_clip": {"c": 3.0},
    "gspo": {"clip_low": 0.03, "clip_high": 0.04},
    "geo_mean": {"clip_low": 0.4, "clip_high": 0.4},
    "sapo": {"tau_pos": 1.0, "tau_neg": 1.05},
    "dppo_tv": {"clip_low": 0.1, "clip_high": 0.15},
    "dppo_kl": {"clip_low": 0.05, "clip_high": 0.08},
    "dppo": {"cap": 20.0},
    "clip_cov": {"cov_low": 0.1, "cov_high": 1.5},
    "kl_cov": {"fraction": 0.1, "coef": 0.7},
    "dro": {"beta": 0.3},
    "value": {"clip": 0.2},
    "norm": {"length": 32},
    "score_weights": [1.0, 0.5, 2.0],
    "tis": {"token": 1.5, "sequence": 2.0},
    "icepop": {"token": [0.7, 1.4], "sequence": [0.5, 2.5]},
    # k1: the upper bound of the ratio; verl takes its inverse as the lower one.
    "reject": {"token_k1": 1.4, "token_k2": 0.05, "token_k3": 0.05,
               "seq_mean_k1": 1.1, "seq_mean_k2": 0.1, "seq_mean_k3": 0.1},
    "controller": {"coef": 0.1, "target": 0.05, "horizon": 1000.0},
}  # fmt: skip
CONTROLLER_KL = [0.02, 0.08, 0.05, 0.5, 0.049, 0.061]  # mean KL of successive steps
CONTROLLER_N = 64  # samples a step

# ------------------------------------------------------------------------------- inputs


def response_mask(kind: str, g: torch.Generator) -> torch.Tensor:
    steps = torch.arange(T)
    if kind == "full":
        return torch.ones(B, T, dtype=torch.float64)
    length = torch.randint(1, T + 1, (B,), generator=g)
    length[0], length[1] = T, 1
    mask = steps < length[:, None]
    if kind == "turns":  # observations anywhere inside, also at the front
        mask &= torch.rand(B, T, generator=g) < 0.6
        mask[torch.arange(B), torch.where(mask.any(1), mask.double().argmax(1), 0)] = True
    if kind == "empty_row":
        mask[3] = False
    return mask.double()


def make_batch(kind: str, seed: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(1000 * seed + len(kind))

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    mask = response_mask({"outcome": "ragged", "edges": "ragged"}.get(kind, kind), g)
    ids = torch.tensor([7, 7, 7, 7, 3, 3, 3, 11, 11, 11, 5, 5])
    last = (mask * torch.arange(1, T + 1)).argmax(1)
    at_last = torch.nn.functional.one_hot(last, T).double() * mask
    rewards = normal(B, T)
    if kind == "outcome":  # 0/1: group 5 is never solved, group 11 always, 7 and 3 now and then
        rewards = at_last * torch.tensor([1, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0, 0])[:, None]
    if kind == "edges":  # a group of one (9), and two rewards equal up to rounding (5)
        ids = torch.tensor([7, 7, 7, 7, 3, 3, 3, 11, 11, 9, 5, 5])
        mask[10:] = 1
        rewards[10:] = 0
        rewards[10, :7], rewards[11, 7] = 0.1, 0.7
    logits, ref, moved = normal(B, T, 6), 0.4 * normal(B, T, 6), 0.5 * normal(B, T, 6)
    token = torch.randint(6, (B, T, 1), generator=g)
    old = torch.log_softmax(2 * logits, -1)
    far = torch.rand(B, 1, 1, generator=g) < 0.3  # rows whose ratios leave every clip
    new = 2 * logits + moved * (1 + 2 * far)
    frozen = torch.log_softmax(new + ref, -1)  # near enough for k3 < 10, where verl caps it
    new = torch.log_softmax(new, -1)
    sampler = torch.log_softmax(2 * logits + ref.flip(0), -1)
    values = normal(B, T)
    batch = {
        "rewards": rewards,
        "values": values,
        "old_log_probs": old.gather(-1, token)[..., 0],
        "log_probs": new.gather(-1, token)[..., 0],
        "ref_log_probs": frozen.gather(-1, token)[..., 0],
        "sampler_log_probs": sampler.gather(-1, token)[..., 0],
        "sum_pi_squared": old.exp().square().sum(-1),
        "advantages": normal(B, T),
        "row_advantages": normal(B, 1).expand(B, T),
        "returns": values + 0.5 * normal(B, T),
        "value_preds": values + 0.3 * normal(B, T),
        "losses": normal(B, T),
    }  # fmt: skip
    batch = {name: x * mask for name, x in batch.items()}
    # Exact in float32, because verl's GDPO casts them to it.
    components = torch.randint(-8, 9, (B, K), generator=g).double() / 4
    order = torch.randperm(B, generator=g)
    batch |= {
        "response_mask": mask,
        "group_ids": ids,
        "greedy_scores": normal(B),
        "score_components": components,
    }
    return {name: x[order].contiguous() for name, x in batch.items()}


# ------------------------------------------------------------------------------- verl's answers


def actor(low=0.2, high=0.2, **more) -> ActorConfig:
    loss = {k: more.pop(k) for k in list(more) if k in PolicyLossConfig.__dataclass_fields__}
    more |= {
        "clip_ratio_low": low,
        "clip_ratio_high": high,
        "policy_loss": PolicyLossConfig(**loss),
    }
    return ActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, **more)


def estimators(x: dict) -> dict:
    out = {}
    mask, index = x["response_mask"], x["group_ids"].numpy()
    common = {"token_level_rewards": x["rewards"], "response_mask": mask}

    def keep(name, pair, returns=False):
        out[name] = pair[0]
        if returns:
            out[f"{name}.returns"] = pair[1]

    keep(
        "gae",
        verl.compute_gae_advantage_return(values=x["values"], **common, **OPTIONS["gae"]),
        True,
    )
    config = OmegaConf.create(OPTIONS["reinforce"])
    rpp = verl.compute_reinforce_plus_plus_outcome_advantage(config=config, **common)
    keep("reinforce_plus_plus", rpp, True)
    keep(
        "remax",
        verl.compute_remax_outcome_advantage(reward_baselines=x["greedy_scores"], **common),
        True,
    )
    grouped = common | {"index": index}
    for name in ("grpo", "grpo_vectorized"):
        function = verl.get_adv_estimator_fn(name)
        keep(name, function(**grouped))
        keep(f"{name}.no_std", function(norm_adv_by_std_in_grpo=False, **grouped))
    for name in ("rloo", "rloo_vectorized", "opo", "gpg", "reinforce_plus_plus_baseline"):
        keep(name, verl.get_adv_estimator_fn(name)(**grouped))
    if (np.unique(index, return_counts=True)[1] > 1).all():  # it refuses a group of one
        for name, std in (("grpo_passk", True), ("grpo_passk.no_std", False)):
            config = OmegaConf.create({"norm_adv_by_std_in_grpo": std})
            keep(name, verl.compute_grpo_passk_outcome_advantage(config=config, **grouped))
    energy = {"old_log_probs": x["old_log_probs"], "sum_pi_squared": x["sum_pi_squared"]}
    for name in ("optimal_token_baseline", "tir_optimal_token_baseline"):
        for tail in (True, False):
            pair = verl.get_adv_estimator_fn(name)(handle_zero_tail=tail, **energy, **grouped)
            keep(name + ("" if tail else ".tail"), pair)
    keys = [f"reward_{k}" for k in range(K)]
    config = OmegaConf.create(
        {"gdpo_reward_keys": keys, "gdpo_reward_weights": OPTIONS["score_weights"]}
    )
    scores = {key: x["score_components"][:, k].numpy() for k, key in enumerate(keys)}
    attended = torch.ones(
        len(mask), 1 + T, dtype=torch.long
    )  # a prompt of one token; where scores sit is irrelevant
    keep("gdpo", verl.compute_gdpo_outcome_advantage(
        config=config, non_tensor_batch=scores,
        batch={"prompts": attended[:, :1], "attention_mask": attended}, **grouped,
    ))  # fmt: skip
    out["masked_whiten"] = masked_whiten(x["rewards"], mask) * mask
    return out


AGGREGATIONS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
                "seq-mean-token-sum-norm")  # fmt: skip


def with_gradient(function, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A scalar function of one column, and its gradient there."""
    leaf = at.clone().requires_grad_()
    value = function(leaf)
    return value.detach().reshape(1), torch.autograd.grad(value, leaf)[0]


def policy_losses(x: dict) -> dict:
    out = {}
    clip, gspo, geo, tv, kl = (
        {"low": OPTIONS[name]["clip_low"], "high": OPTIONS[name]["clip_high"]}
        for name in ("clip", "gspo", "geo_mean", "dppo_tv", "dppo_kl")
    )
    dual = {"clip_ratio_c": OPTIONS["dual_clip"]["c"]}
    cap = {"clip_ratio_c": OPTIONS["dppo"]["cap"]}
    cov, kl_cov = OPTIONS["clip_cov"], OPTIONS["kl_cov"]
    calls = {  # name: (verl's loss, its config, the advantages)
        "vanilla": ("vanilla", actor(**clip, **dual), "advantages"),
        "vanilla.no_dual": ("vanilla", actor(**clip, clip_ratio_c=1e9), "advantages"),
        "gspo": ("gspo", actor(**gspo), "advantages"),
        "gspo.row": ("gspo", actor(**gspo), "row_advantages"),
        "sapo": ("sapo", actor(**OPTIONS["sapo"]), "advantages"),
        "gpg": ("gpg", actor(), "advantages"),
        "cispo": ("cispo", actor(**clip), "advantages"),
        "geo_mean": ("geo_mean", actor(**geo), "row_advantages"),
        "dro": ("dro", actor(dro_beta=OPTIONS["dro"]["beta"]), "advantages"),
        "dppo_tv": ("dppo_tv", actor(**tv, **cap), "advantages"),
        "dppo_kl": ("dppo_kl", actor(**kl, **cap), "advantages"),
        # A ratio of 1 drops every candidate, so that verl's random choice among them is none.
        "clip_cov": ("clip_cov", actor(**clip, clip_cov_ratio=1.0, clip_cov_lb=cov["cov_low"],
                                       clip_cov_ub=cov["cov_high"]), "advantages"),
        "kl_cov": ("kl_cov", actor(kl_cov_ratio=kl_cov["fraction"], ppo_kl_coef=kl_cov["coef"]),
                   "advantages"),
    }  # fmt: skip
    for name, (loss, config, advantages) in calls.items():
        function = verl.get_policy_loss_fn(loss)

        def value(log_prob, function=function, config=config, advantages=advantages):
            return function(x["old_log_probs"], log_prob, x[advantages], x["response_mask"],
                            loss_agg_mode="token-mean", config=config)[0]  # fmt: skip

        out[f"loss.{name}"], out[f"loss.{name}.grad"] = with_gradient(value, x["log_probs"])
    for mode in AGGREGATIONS:
        config = actor(**clip, **dual)
        out[f"loss.vanilla.{mode}"] = verl.compute_policy_loss_vanilla(
            x["old_log_probs"], x["log_probs"], x["advantages"], x["response_mask"],
            loss_agg_mode=mode, config=config,
        )[0].reshape(1)  # fmt: skip
    return out


def other_losses(x: dict) -> dict:
    out = {}
    mask = x["response_mask"]
    for mode in AGGREGATIONS:

        def total(losses, mode=mode, **more):
            return verl.agg_loss(losses, mask, mode, **more)

        out[f"agg.{mode}"], out[f"agg.{mode}.grad"] = with_gradient(total, x["losses"])
    out["agg.constant"], out["agg.constant.grad"] = with_gradient(
        lambda losses: total(losses, loss_scale_factor=OPTIONS["norm"]["length"]), x["losses"]
    )
    for name, clip in (("clipped_mse", OPTIONS["value"]["clip"]), ("mse", 1e9)):

        def critic(preds, clip=clip):
            return verl.compute_value_loss(preds, x["returns"], x["values"], mask, clip)[0]

        out[f"value.{name}"], out[f"value.{name}.grad"] = with_gradient(critic, x["value_preds"])
    for name in ("k1", "k2", "k3", "abs", "k1+", "k2+", "k3+", "abs+"):
        out[f"kl.{name}"] = verl.kl_penalty(x["log_probs"], x["ref_log_probs"], name) * mask
        out[f"kl.{name}.grad"] = with_gradient(
            lambda p, name=name: (verl.kl_penalty(p, x["ref_log_probs"], name) * mask).sum(),
            x["log_probs"],
        )[1]
    gap = x["old_log_probs"] - x["sampler_log_probs"]
    for level in ("token", "sequence"):
        for name in ("tis", "icepop"):
            bound = OPTIONS[name][level]
            bound = "_".join(map(str, bound)) if isinstance(bound, list) else bound
            weights, _ = correction.compute_rollout_correction_weights(gap, mask, level, bound)
            out[f"{name}.{level}"] = weights
    for name, bound in OPTIONS["reject"].items():
        kept, _ = correction.compute_rollout_rejection_mask(gap, mask, name, bound)
        out[f"reject.{name}"] = kept
    return out


def controller() -> torch.Tensor:
    o = OPTIONS["controller"]
    control = verl.AdaptiveKLController(o["coef"], o["target"], o["horizon"])
    trace = []
    for kl in CONTROLLER_KL:
        control.update(kl, CONTROLLER_N)
        trace.append(control.value)
    return torch.tensor(trace, dtype=torch.float64)


def refusal(function, *args, **kwargs) -> str:
    """What it raises, or an empty string."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def facts() -> dict[str, bool | str]:
    """What docs/agreement.md says about verl's behaviour beyond its numbers, as observed here."""
    x = make_batch("ragged", 0)
    mask, grouped = x["response_mask"], {"index": x["group_ids"].numpy()}
    common = {"token_level_rewards": x["rewards"], "response_mask": mask}
    one = torch.zeros_like(mask)
    one[0, 0] = 1

    def loss(name, mode="token-mean", config=None):
        columns = x["old_log_probs"], x["log_probs"], x["advantages"], mask
        return verl.get_policy_loss_fn(name)(
            *columns, loss_agg_mode=mode, config=config or actor()
        )[0]  # fmt: skip

    def ignores_mode(name):
        return bool(loss(name, "token-mean") == loss(name, "seq-mean-token-sum"))

    plain = ActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True)
    wide = ActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, clip_ratio=0.5)
    no_std = OmegaConf.create({"norm_adv_by_std_in_grpo": False})
    advantages, returns = verl.compute_gae_advantage_return(
        values=x["values"] + 1, **common, **OPTIONS["gae"]
    )
    noisy = common | {"token_level_rewards": x["rewards"] + 9 * (1 - mask)}
    rloo = verl.compute_rloo_vectorized_outcome_advantage
    half = torch.full((1, 1), 0.5, dtype=torch.float64).log()  # pi / mu = 1/2
    kept, _ = correction.compute_rollout_rejection_mask(half, torch.ones(1, 1), "token_k1", "0.9_4")
    cap = plain.get("clip_ratio_c", 20.0)
    far = torch.full((1,), 25.0, dtype=torch.float64)
    vectorized = verl.compute_grpo_vectorized_outcome_advantage
    return {
        "gae_nonzero_off_mask": bool((advantages * (1 - mask)).abs().max() > 0),
        "gae_returns_nonzero_off_mask": bool((returns * (1 - mask)).abs().max() > 0),
        "rewards_off_mask_count": not torch.equal(rloo(**noisy, **grouped)[0],
                                                  rloo(**common, **grouped)[0]),
        "geo_mean_ignores_aggregation": ignores_mode("geo_mean"),
        "sapo_ignores_aggregation": ignores_mode("sapo"),
        "gspo_ignores_aggregation": ignores_mode("gspo"),
        "clip_ratio_ignored": bool(loss("vanilla", config=plain) == loss("vanilla", config=wide)),
        "dppo_cap_is_dual_clip": cap == plain.clip_ratio_c == 3.0,
        "grpo_vectorized_ignores_no_std": torch.equal(
            vectorized(config=no_std, **common, **grouped)[0],
            vectorized(**common, **grouped)[0],
        ),
        "grpo_vectorized_is_float32": bool(
            (vectorized(**common, **grouped)[0]
             - verl.compute_grpo_outcome_advantage(**common, **grouped)[0]).abs().max() > 1e-9
        ),
        "token_k1_bounds_mu_over_pi": bool(kept.item() == 1),
        "register_gae_again": refusal(verl.register_adv_est("gae"), len).split(":")[0],
        "whiten_one_token": refusal(masked_whiten, x["rewards"], one).split(":")[0],
        "passk_group_of_one": refusal(
            verl.compute_grpo_passk_outcome_advantage, config=no_std, index=np.arange(B), **common
        ).split(":")[0],
        "full_kl": refusal(verl.kl_penalty, half, half, "full").split(":")[0],
        "k3_plus_gradient_at_gap_25": with_gradient(
            lambda p: verl.kl_penalty(p, far, "k3+").sum(), 0 * far
        )[1].item(),
        "k3_at_gap_12": verl.kl_penalty(torch.zeros(1), torch.full((1,), 12.0), "k3").item(),
    }  # fmt: skip


def main() -> None:
    torch.manual_seed(0)
    names = ["full0", "ragged0", "ragged1", "turns0", "turns1", "empty_row0", "outcome0", "edges0"]
    tensors = {"controller/float64/adaptive": controller()}
    for name in names:
        batch = make_batch(name[:-1], int(name[-1]))
        tensors |= {f"{name}/{column}": x for column, x in batch.items()}
        for dtype in (torch.float64, torch.float32):
            x = {n: c.to(dtype) if c.is_floating_point() else c for n, c in batch.items()}
            answers = estimators(x) | policy_losses(x) | other_losses(x)
            place = f"{name}/{str(dtype).removeprefix('torch.')}"
            tensors |= {f"{place}/{key}": y.detach() for key, y in answers.items()}
    save_file({k: v.contiguous() for k, v in tensors.items()}, HERE / "verl.safetensors")
    described = {
        "versions": {"verl": version("verl"), "torch": torch.__version__, "numpy": np.__version__,
                     "python": platform.python_version()},
        "placeholders": sorted(Placeholders.used),
        "batches": names,
        "facts": facts(),
        "controller": {"kl": CONTROLLER_KL, "n": CONTROLLER_N},
        "options": OPTIONS,
    }  # fmt: skip
    (HERE / "verl.json").write_text(json.dumps(described, indent=1) + "\n")


if __name__ == "__main__":
    main()
