"""How the functions of each library are called: one table. No library is imported here.

A name after the colon is one that the library registers, one of `names`, or an attribute of its
module. Arguments that are in no table are known by their names (`names`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rlzoo_lab.kit.foreign import calls


@dataclass(frozen=True)
class Make:
    """A value that the library makes: the result of a call of `path`, "module:name"."""

    path: str
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Named:
    """A function by a name of ours.

    path: "module:name", or a name in the library's module. values: argument -> value.
    arguments: argument -> column, or a function of columns. wrap: makes a plain function of it.
    kind, couples: if the arguments do not determine them, or rows are coupled on purpose.
    """

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Callable[..., Any]] | None = None
    kind: str = ""
    couples: str = ""


Names = dict[str, tuple[Named, ...]]


@dataclass(frozen=True)
class Library:
    """registries: kind -> the mapping of registered functions in its module. values: kind ->
    argument -> value. average: the function with which its losses are averaged. wrap: of registered
    functions."""

    title: str
    module: str
    registries: Mapping[str, str] = field(default_factory=dict)
    names: Names = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    average: str = ""
    wrap: Callable[[Any], Callable[..., Any]] | None = None


def _each(path: str, argument: str, *choices: str, **more: Any) -> Names:
    return {choice: (Named(path, {argument: choice}, **more),) for choice in choices}


# fmt: off
_TRL_LOSS = "GRPOTrainer._compute_loss"
_RLOO = "trl.trainer.rloo_trainer:RLOOTrainer"
_MAKER = "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker"
_WITHOUT = {"self": None}  # a method that reads nothing of its object
_CLIP = {"eps_clip": 0.2, "eps_clip_high": 0.2}
_NEMO, _NEMO_LOSS = "nemo_rl.algorithms.advantage_estimator", "nemo_rl.algorithms.loss"
_NEMO_GAE = {"gae_lambda": 0.95, "gae_gamma": 1.0, "normalize_advantages": False,
             "gae_lambda_value": None, "gae_lambda_policy": None, "length_adaptive_alpha": 0}
_CONFIG = Make(f"{_NEMO}:AdvEstimatorConfig")


def _nemo(cls: str, config: Any, method: str = "compute_advantage", **more: Any) -> Named:
    loss = Make(f"{_NEMO_LOSS}:ClippedPGLossConfig")
    made = Make(f"{_NEMO}:{cls}", {"estimator_config": config, "loss_config": loss})
    other = {"prompt_ids": None} if config is _NEMO_GAE and method == "compute_advantage" else {}
    return Named(f"{cls}.{method}", {"self": made, **other}, **more)


def _nemo_loss(**config: Any) -> tuple[Named]:
    made = Make(f"{_NEMO_LOSS}:ClippedPGLossConfig", {"reference_policy_kl_penalty": 0, **config})
    return (Named(f"{_NEMO_LOSS}:ClippedPGLossFn.__call__",
                  {"self": Make(f"{_NEMO_LOSS}:ClippedPGLossFn", {"cfg": made})},
                  {"next_token_logprobs": "log_probs", "data": calls.nemo_batch,
                   "global_valid_seqs": lambda response_mask: response_mask.any(1).sum(),
                   "global_valid_toks": lambda response_mask: response_mask.sum()}),)


def _slime(path: str, **values: float) -> tuple[Named]:
    minus_log_ratio = {"ppo_kl": lambda log_probs, old_log_probs: old_log_probs - log_probs}
    return (Named(path, _CLIP | values, minus_log_ratio, kind="policy_losses"),)


def _prime(path: str, config: str) -> tuple[Named]:
    def inputs(log_probs: Any, sampler_log_probs: Any, advantages: Any, response_mask: Any) -> Any:
        return SimpleNamespace(
            trainer_logprobs=log_probs, inference_logprobs=sampler_log_probs,
            advantages=advantages, loss_mask=response_mask.bool(), loss_weights=None)

    return (Named(path, {"loss_config": Make(f"prime_rl.configs.trainer:{config}")},
                  {"inputs": inputs}, kind="policy_losses"),)


LIBRARIES = {
    "verl": Library(
        "verl", "verl.trainer.ppo.core_algos",
        {"estimators": "ADV_ESTIMATOR_REGISTRY", "policy_losses": "POLICY_LOSS_REGISTRY"},
        {
            "value_loss": (Named("compute_value_loss", {"cliprange_value": 0.2}),),
            "whiten": (Named("verl.utils.torch_functional:masked_whiten", couples="batch"),),
            **_each("kl_penalty", "kl_penalty", "k1", "abs", "k2", "k3", "k1+", "k3+"),
            **_each("agg_loss", "loss_agg_mode", "token-mean", "token-sum", "seq-mean-token-sum",
                    "seq-mean-token-mean", "seq-mean-token-sum-norm"),
        },
        {
            "estimators": {"config": Make("verl.trainer.config:AlgoConfig")},
            "policy_losses": {"config": Make("verl.workers.config:ActorConfig", {
                "strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1})},
        },
        "agg_loss",
    ),
    "trl": Library("TRL", "trl.trainer.grpo_trainer", names={
        **_each(_TRL_LOSS, "loss_type", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo",
                wrap=calls.trl_loss),
        "grpo": (Named("GRPOTrainer._generate_and_score_completions", wrap=calls.trl_advantages),
                 Named(_TRL_LOSS, {"loss_type": "grpo"}, wrap=calls.trl_loss)),
        "luspo": (Named(_TRL_LOSS, {"loss_type": "luspo", "importance_sampling_level": "sequence"},
                        wrap=calls.trl_loss),),
        "rloo": (Named(f"{_RLOO}._generate_and_score_completions", wrap=calls.trl_advantages),
                 Named(f"{_RLOO}._compute_loss", {"loss_type": ""}, wrap=calls.trl_loss)),
        "whiten": (Named("trl.experimental.ppo.ppo_trainer:masked_whiten", couples="batch"),),
    }),
    "openrlhf": Library("OpenRLHF", "openrlhf.models.loss", average="aggregate_loss", names={
        "gae": (Named(f"{_MAKER}.get_advantages_and_returns", _WITHOUT),),
        "reinforce": (Named(f"{_MAKER}.get_cumulative_returns", _WITHOUT),),
        "ppo": (Named("PolicyLoss"),),
        "dual_clip": (Named("PolicyLoss", {"dual_clip": 3.0}),),
        "gspo": (Named("PolicyLoss", {"policy_loss_type": "gspo"}),),
        "value_loss": (Named("ValueLoss", {"clip_eps": 0.2}),),
        **_each("openrlhf.models.utils:compute_approx_kl", "kl_estimator", "k1", "k2", "k3"),
    }),
    "skyrl": Library(
        "SkyRL", "skyrl.backends.skyrl_train.utils.ppo_utils",
        {"estimators": "AdvantageEstimatorRegistry._functions",
         "policy_losses": "PolicyLossRegistry._functions"},
        {"value_loss": (Named("ppo_critic_loss", kind="value_losses"),),
         "whiten": (Named("masked_whiten", couples="batch"),)},
        {kind: {"config": Make("skyrl.train.config:AlgorithmConfig")}
         for kind in ("estimators", "policy_losses", "value_losses")},
        "reduce_loss",
    ),
    "nemo_rl": Library("NeMo-RL", _NEMO, names={
        "grpo": (_nemo("GRPOAdvantageEstimator", _CONFIG, wrap=calls.nemo_advantages),),
        "reinforce_plus_plus": (_nemo("ReinforcePlusPlusAdvantageEstimator", _CONFIG,
                                      wrap=calls.nemo_advantages, couples="batch"),),
        "gae": (_nemo("GeneralizedAdvantageEstimator", _NEMO_GAE),
                _nemo("GeneralizedAdvantageEstimator", _NEMO_GAE, "_compute_gae")),
        "ppo": _nemo_loss(), "dual_clip": _nemo_loss(ratio_clip_c=3.0),
        "cispo": _nemo_loss(use_cispo=True),
        "gspo": _nemo_loss(sequence_level_importance_ratios=True, token_level_loss=False),
        **_each("nemo_rl.algorithms.utils:calculate_kl", "kl_type", "k1", "k2", "k3",
                arguments={"logprobs_reference": "ref_log_probs"}),
    }),
    "slime": Library("slime", "slime.utils.ppo_utils", names={
        "gae": (Named("chunked_gae"),), "vanilla_gae": (Named("vanilla_gae"),),
        "ppo": _slime("compute_policy_loss"), "cispo": _slime("compute_cispo_loss"),
        "dual_clip": _slime("compute_policy_loss", eps_clip_c=3.0),
        **_each("compute_approx_kl", "kl_loss_type", "k1", "k2", "k3", "low_var_kl"),
    }),
    "prime_rl": Library("prime-rl", "prime_rl.trainer.rl.loss", names={
        "default": _prime("default_loss_fn", "DefaultLossConfig"),
        "ipo": _prime("ipo_loss_fn", "IPOLossConfig"),
    }),
    "rllm": Library(
        "rLLM", "rllm.trainer.algorithms.advantage", {"estimators": "RLLM_ADV_ESTIMATOR_REGISTRY"},
        values={"estimators": {
            "algorithm_config": Make("rllm.trainer.algorithms.config:AlgorithmConfig")}},
        wrap=calls.of_groups,
    ),
}
