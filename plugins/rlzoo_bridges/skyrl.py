"""rlzoo in SkyRL: its command line, with the zoo in its registries.

    python -m rlzoo_bridges.skyrl trainer.algorithm.advantage_estimator=rlzoo/gae_decoupled \\
        trainer.critic.model.path=MODEL rlzoo.estimator.lam_actor=0.9 ...

Words that begin with `rlzoo.estimator.` and `rlzoo.policy_loss.` are options of the chosen ones;
all others are SkyRL's own. From your own script: `register(...)` before `initialize_ray`.
"""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from omegaconf import OmegaConf
from skyrl.backends.skyrl_train.utils import ppo_utils

from rlzoo.errors import RlzooError, UsageError
from rlzoo_bridges import calls
from rlzoo_bridges.columns import Columns, numbered
from rlzoo_bridges.hosts import HOSTS, PREFIX

HOST = HOSTS["skyrl"]
OPTIONS = {"rlzoo.estimator.": "estimators", "rlzoo.policy_loss.": "policy_losses"}
CHOICES = {
    "trainer.algorithm.advantage_estimator": "estimators",
    "trainer.algorithm.policy_loss_type": "policy_losses",
}


def estimate(
    name, options, token_level_rewards, response_mask, index, values=None, gamma=None, lambd=None,
    config=None, **_,
):  # fmt: skip
    """(advantages, returns) as SkyRL's compute_advantages_and_returns returns them."""
    rewards = token_level_rewards
    given = {} if values is None else {"values": values.to(rewards.dtype)}

    def scores() -> Any:
        if getattr(config, "use_kl_in_reward", False):
            raise KeyError("use_kl_in_reward=false")
        return rewards

    own = {
        "rewards": rewards,
        "scores": scores,
        "response_mask": response_mask.to(rewards.dtype),
        "group_ids": lambda: numbered(index, rewards.device),
        "values": lambda: given["values"],
    }
    usual = {"gamma": gamma, "lam": lambd}
    return calls.estimate(HOST, name, Columns(HOST, own), options, usual)


def lose(
    name, options, log_probs, old_log_probs, advantages, config=None, loss_mask=None,
    rollout_logprobs=None,
):  # fmt: skip
    """(the loss, metrics): a sum over `loss_mask`, for its mean is in the advantages."""
    correction = getattr(config, "off_policy_correction", None)
    mask = log_probs.new_ones(log_probs.shape) if loss_mask is None else loss_mask
    losses, metrics = calls.lose(
        HOST, name, log_probs, old_log_probs, advantages, mask != 0, options
    )
    if correction is not None:
        losses, mask, told = ppo_utils.apply_off_policy_correction(
            losses, old_log_probs, rollout_logprobs, mask, correction
        )
        metrics |= told
    return ppo_utils.reduce_loss(losses, mask), metrics


def register(
    estimator: Mapping[str, Any] | None = None, policy_loss: Mapping[str, Any] | None = None
) -> None:
    """Everything that SkyRL can feed into its registries, under `rlzoo/NAME`.

    estimator, policy_loss: options of the one that will be chosen.
    """
    for kind, call, registry, options in (
        ("estimators", estimate, ppo_utils.AdvantageEstimatorRegistry, estimator),
        ("policy_losses", lose, ppo_utils.PolicyLossRegistry, policy_loss),
    ):
        for name, component in calls.zoo().shelves[kind].items():
            if not HOST.refusal(component, calls.zoo().columns):
                registry.register(PREFIX + name, partial(call, name, dict(options or {})))


def sort_words(words: list[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """(the options of each kind, SkyRL's own words); raises RlzooError where what they choose
    cannot run in SkyRL, or does not exist."""
    options: dict[str, dict[str, Any]] = {kind: {} for kind in OPTIONS.values()}
    chosen: dict[str, str] = {}
    rest = []
    for word in words:
        key, _, text = word.partition("=")
        kind = next((k for start, k in OPTIONS.items() if key.startswith(start)), None)
        if kind:
            options[kind][key.split(".", 2)[2]] = OmegaConf.from_cli([f"x={text}"]).x
            continue
        rest.append(word)
        if key in CHOICES and text.startswith(PREFIX):
            chosen[CHOICES[key]] = text
    for kind, given in options.items():
        if kind in chosen:
            calls.find(HOST, kind, chosen[kind], given or None)
        elif given:
            raise UsageError(f"options for {kind} are set, but no {kind} of rlzoo is selected")
    return options, rest


def main(words: list[str]) -> None:
    options, rest = sort_words(words)
    register(options["estimators"], options["policy_losses"])
    from skyrl.train.entrypoints import main_base

    sys.argv = [sys.argv[0], *rest]
    main_base.main()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RlzooError as error:
        raise SystemExit(f"rlzoo: {error}") from None
