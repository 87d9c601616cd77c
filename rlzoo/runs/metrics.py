"""Metrics by name: the keys of a line in metrics.jsonl. Written by train, read by tools.

Losses report additional metrics under `actor/` and `critic/`. The lab's metrics.yaml has the
meaning of each.
"""

from collections.abc import Mapping

# The names that more than one file writes or reads.
REWARD = "reward/mean"
SCORE_STD = "score/std"
LENGTH = "response_length/mean"
TRUNCATED = "response/truncated"
NO_SIGNAL = "group/no_signal"
LOG_PROB_GAP = "sampler/log_prob_gap"
EXPLAINED_VARIANCE = "critic/vf_explained_var"
PROMPT_EXPLAINED = "critic/vf_explained_var/prompt"
PROMPT_CEILING = "critic/vf_ceiling/prompt"
VALUE_BIAS = "critic/vf_bias"
REF_KL = "actor/ref_kl"
REF_KL_PER_RESPONSE = "actor/ref_kl_per_response"
KL_COEF = "actor/kl_coef"
PPO_KL = "actor/ppo_kl"
RATIO = "actor/ratio_mean"
FIRST_RATIO_GAP = "actor/first_ratio_gap"
RIGHT_CORR = "score/right_corr"
RIGHT = "response/right"
DISTINCT_IN_GROUP = "group/distinct"
SCORE_NOISE = "score/noise"
ADVANTAGE_CORR = "raw_advantages/score_corr"
DISTINCT = "prompts/distinct"
PULL_CORR = "actor/pull_corr"
MC_CORR = "critic/mc_corr"
ENTROPY = "actor/entropy"
SKIPPED = "train/skipped"
TOKENS = "perf/tokens"
SECONDS = "perf/seconds"
SCORE = "eval/score"
ACCURACY = "eval/accuracy"
GREEDY = "eval/greedy"
ANSWER_PROB = "eval/answer_prob"
EVAL_LENGTH = "eval/response_length"
GAIN = "eval/gain"


# The core's names below actor/ and critic/, which a loss's own metrics must not have.
OURS = {
    "actor": ("ref_kl", "ref_kl_per_response", "teacher_kl", "pull_corr", "pg_loss", "kl_loss",
              "kl_coef", "ppo_kl", "ratio_mean", "first_ratio_gap", "entropy", "grad_norm", "lr"),
    "critic": ("vf_explained_var", "vf_explained_var/prompt", "vf_ceiling/prompt", "vf_bias",
               "mc_corr", "vf_loss", "grad_norm", "lr"),
}  # fmt: skip


def is_evaluation(line: Mapping[str, float]) -> bool:
    """Whether a line of metrics.jsonl belongs to an evaluation rather than a training step."""
    return any(key.startswith("eval/") for key in line)


def evaluation_text(evaluation: Mapping[str, float]) -> str:
    """`accuracy 0.812 [0.787, 0.835], greedy 0.903`"""
    what, value, low, high = headline(evaluation)
    greedy = f", greedy {evaluation[GREEDY]:.3f}" if GREEDY in evaluation else ""
    return f"{what} {value:.3f} [{low:.3f}, {high:.3f}]{greedy}"


def headline(evaluation: Mapping[str, float]) -> tuple[str, float, float, float]:
    """(what, value, low, high): the accuracy if there is one, else the score."""
    key = ACCURACY if ACCURACY in evaluation else SCORE
    value, low, high = (evaluation[f"{key}{suffix}"] for suffix in ("", "_low", "_high"))
    return key.removeprefix("eval/"), value, low, high
