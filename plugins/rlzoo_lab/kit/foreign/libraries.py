"""How the functions of each library are called: one table. No library is imported here.

A name after the colon is one that the library registers, one of `names`, or an attribute of its
module. Arguments that are in no table are known by their names (`names`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlzoo_lab.kit.foreign import in_trl


@dataclass(frozen=True)
class Make:
    """A value that the library makes: the result of a call of `path`, "module:name"."""

    path: str
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Named:
    """A function by a name of ours.

    path: "module:name", or a name in the library's module. values: argument -> value.
    arguments: argument -> column. wrap: makes a plain function of what is there.
    kind, couples: if the arguments do not determine them, or rows are coupled on purpose.
    """

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    wrap: Callable[[Any], Callable[..., Any]] | None = None
    kind: str = ""
    couples: str = ""


@dataclass(frozen=True)
class Library:
    """registries: kind -> the mapping of registered functions in its module. values: kind ->
    argument -> value. average: the function with which its losses are averaged."""

    title: str
    module: str
    registries: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, tuple[Named, ...]] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    average: str = ""


def _each(path: str, argument: str, *choices: str, **more: Any) -> dict[str, tuple[Named, ...]]:
    return {choice: (Named(path, {argument: choice}, **more),) for choice in choices}


_TRL_LOSSES = ("bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo")
_GRPO, _RLOO = "GRPOTrainer", "trl.trainer.rloo_trainer:RLOOTrainer"
_TRL_LOSS = (f"{_GRPO}._compute_loss", "loss_type")
_MAKER = "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker"
_WITHOUT = {"self": None}  # a method that reads nothing of its object

LIBRARIES = {
    "verl": Library(
        "verl",
        "verl.trainer.ppo.core_algos",
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
            "policy_losses": {
                "config": Make(
                    "verl.workers.config:ActorConfig",
                    {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1},
                )
            },
        },
        "agg_loss",
    ),
    "trl": Library(
        "TRL",
        "trl.trainer.grpo_trainer",
        names={
            "grpo": (
                Named(f"{_GRPO}._generate_and_score_completions", wrap=in_trl.grpo),
                Named(_TRL_LOSS[0], {"loss_type": "grpo"}, wrap=in_trl.grpo_loss),
            ),
            **_each(*_TRL_LOSS, *_TRL_LOSSES, wrap=in_trl.grpo_loss),
            "luspo": (
                Named(
                    _TRL_LOSS[0],
                    {"loss_type": "luspo", "importance_sampling_level": "sequence"},
                    wrap=in_trl.grpo_loss,
                ),
            ),
            "rloo": (
                Named(f"{_RLOO}._generate_and_score_completions", wrap=in_trl.rloo),
                Named(f"{_RLOO}._compute_loss", wrap=in_trl.rloo_loss),
            ),
            "whiten": (Named("trl.experimental.ppo.ppo_trainer:masked_whiten", couples="batch"),),
        },
    ),
    "openrlhf": Library(
        "OpenRLHF",
        "openrlhf.models.loss",
        names={
            "gae": (Named(f"{_MAKER}.get_advantages_and_returns", _WITHOUT),),
            "reinforce": (Named(f"{_MAKER}.get_cumulative_returns", _WITHOUT),),
            "ppo": (Named("PolicyLoss"),),
            "dual_clip": (Named("PolicyLoss", {"dual_clip": 3.0}),),
            "gspo": (Named("PolicyLoss", {"policy_loss_type": "gspo"}),),
            "value_loss": (Named("ValueLoss", {"clip_eps": 0.2}),),
            **_each("openrlhf.models.utils:compute_approx_kl", "kl_estimator", "k1", "k2", "k3"),
        },
        average="aggregate_loss",
    ),
    "skyrl": Library(
        "SkyRL",
        "skyrl.backends.skyrl_train.utils.ppo_utils",
        {
            "estimators": "AdvantageEstimatorRegistry._functions",
            "policy_losses": "PolicyLossRegistry._functions",
        },
        {
            "value_loss": (Named("ppo_critic_loss"),),
            "whiten": (Named("masked_whiten", couples="batch"),),
        },
        {kind: {"config": Make("skyrl.train.config:AlgorithmConfig")}
         for kind in ("estimators", "policy_losses", "value_losses")},
        "reduce_loss",
    ),
}  # fmt: skip
