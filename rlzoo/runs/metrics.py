"""Metrics by name: the keys of a line in metrics.jsonl. Written by train, read by tools.

Losses report additional metrics under `actor/` and `critic/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# The names that more than one file writes or reads.
REWARD = "reward/mean"
SCORE_STD = "score/std"
LENGTH = "response_length/mean"
TRUNCATED = "response/truncated"
NO_SIGNAL = "group/no_signal"
LOG_PROB_GAP = "sampler/log_prob_gap"
EXPLAINED_VARIANCE = "critic/vf_explained_var"
THIRDS = ("first", "middle", "last")  # of each response's actions
PROMPT_EXPLAINED = "critic/vf_explained_var/prompt"
PROMPT_CEILING = "critic/vf_ceiling/prompt"
VALUE_BIAS = "critic/vf_bias"
VALUE_SLOPE = "critic/vf_slope"
PG_LOSS = "actor/pg_loss"
REF_KL = "actor/ref_kl"
REF_KL_PER_RESPONSE = "actor/ref_kl_per_response"
KL_COEF = "actor/kl_coef"
PPO_KL = "actor/ppo_kl"
RATIO = "actor/ratio_mean"
FIRST_RATIO_GAP = "actor/first_ratio_gap"
RIGHT_CORR = "score/right_corr"
RIGHT = "response/right"
DISTINCT_TEXTS = "response/distinct"
DISTINCT_IN_GROUP = "group/distinct"
SCORE_NOISE = "score/noise"
AT_END = "score/at_end"
PAID_TOKENS = "score/paid_tokens"
ADVANTAGE_CORR = "raw_advantages/score_corr"
DISTINCT = "prompts/distinct"
UNTAUGHT = "actor/untaught_ends"
PULL_CORR = "actor/pull_corr"
MC_CORR = "critic/mc_corr"
LAST_CORR = "critic/last_corr"
ENTROPY = "actor/entropy"
SKIPPED = "train/skipped"
TOKENS = "perf/tokens"
SECONDS = "perf/seconds"
SCORE = "eval/score"
ACCURACY = "eval/accuracy"
GREEDY = "eval/greedy"
ANSWER_PROB = "eval/answer_prob"
EVAL_LENGTH = "eval/response_length"


@dataclass(frozen=True)
class Metric:
    """A key of a line, or a pattern of keys: `*` is each of mean, std, min, max; NAME a plugin's.

    maker: who writes it; when: the runs and steps that have it, empty for all; verl: whether verl
    calls the same number so.
    """

    name: str
    unit: str
    maker: str
    when: str
    meaning: str
    verl: bool


# name, = where verl's is the same | unit | when it is there | meaning. A line "[...]" names the
# maker of those below it.
_TABLE = """
[rollout]
reward/mean | reward | | mean score of the responses, the same as `score/mean`
score/* | reward | | responses' scores, before KL
score/NAME | reward | several rewards | mean of each reward before its weight
score/right_corr | | a verifier | correlation of a response's score with its correctness, over \
at most 64 responses; absent if either is constant
score/noise | reward | repeated texts | standard deviation of the scores of the same response to \
the same prompt; 0 if scores are deterministic
score/at_end | share | | share of the scores' absolute size at the last action; absent if all \
scores are 0
score/paid_tokens | tokens | | actions with a nonzero score per response that has one
rewards/* | reward | | scores minus the KL penalty, if it is placed in the reward
response_length/* = | tokens | | actions in a response, including EOS
turns/* | turns | conversations | the policy's turns in a response
prompt_length/* = | tokens | | tokens in a prompt
prompts/distinct | share | | different prompts (or answers) among the step's prompts
response/truncated | share | | responses that reached the length limit
response/eos | share | | responses that ended with EOS
response/right | share | a verifier | correct responses that ended, out of at most 64
response/distinct | share | | different texts among the step's responses
group/distinct | share | | different texts within a group, over all groups
group/no_signal | share | | groups with equal scores, which give group estimators no signal
sampler/log_prob_gap | nats | | mean of abs(log pi - log mu), where mu is the sampler; 0 up to \
rounding without top-k and top-p (measured on 4 rows if old_log_probs are the sampler's)
actor/ref_kl | nats per token | a reference | mean of log pi - log pi_ref at rollout
actor/ref_kl_per_response | nats per response | a reference | the same, summed over each \
response; input of an adaptive controller
actor/teacher_kl | nats per token | a teacher | mean of log pi - log pi_teacher at rollout
[estimator]
raw_advantages/* | reward | | output of the estimator
raw_advantages/score_corr | |  | correlation of a response's score with its mean raw advantage; \
above 0 if advantages follow scores; absent if either is constant
advantages/* | |  | input of the loss, after whitening
returns/* | reward | a critic | the critic's targets
values/* | reward | a critic | V(s_t) at rollout
critic/vf_explained_var | | a critic | 1 - Var(G - V) / Var(G), where G is the *Monte Carlo* \
return; 0 if G is constant
critic/vf_explained_var/first | | a critic | the same, for the first third of each response
critic/vf_explained_var/middle | | a critic | for the middle third
critic/vf_explained_var/last | | a critic | for the last third
critic/vf_explained_var/prompt | | a critic | for the first token, where V depends on the prompt \
only
critic/vf_ceiling/prompt | | a critic, several samples | what a perfect critic would explain \
there: the share of Var(G) between prompts
critic/vf_bias | reward | a critic | mean of V - G; positive if the critic is too optimistic
critic/vf_slope | | a critic that varies | slope of G on V: 1 if calibrated, below 1 if \
differences are exaggerated, 0 if they are uninformative
critic/mc_corr | | a critic | correlation over tokens of raw advantages with G - V: 1 at lam = 1, \
lower the more the estimator relies on the critic
critic/last_corr | | a critic | correlation over ended responses of the last action's raw \
advantage with its reward minus V: 1 for any lambda
[update]
actor/pull_corr | | a loss that reads only the batch | correlation over tokens of -d(policy \
loss)/d(log pi) at ratio 1 with raw advantages; above 0 if the loss raises good tokens
actor/untaught_ends | share | | responses whose first (or last) action has no raw advantage or no \
gradient although another action has both
critic/vf_loss = | | a critic | value loss, mean over optimizer steps
critic/grad_norm = | | a critic | gradient norm of the critic before clipping, mean over \
optimizer steps
critic/lr = | | a critic | learning rate of the critic
actor/pg_loss = | | an update | policy loss without KL and entropy terms, mean over optimizer steps
actor/kl_loss = | nats | KL in the loss | KL penalty in the loss before its coefficient, \
aggregated like the policy loss
actor/kl_coef = | |  | coefficient of the KL penalty; 0 without one
actor/ppo_kl = | nats per token | an update | mean of log pi_old - log pi during the update
actor/ratio_mean | | an update | mean of pi / pi_old during the update
actor/first_ratio_gap | nats | an update | mean of abs(log pi - log pi_old) in the first \
optimizer step; 0 up to rounding, unless old_log_probs are wrong
actor/entropy = | nats | an update | entropy of the next-token distribution during the update, \
weighted like the loss
actor/grad_norm = | | an update | gradient norm of the actor before clipping, mean over optimizer \
steps
actor/lr = | |  | learning rate of the actor
train/skipped | |  | optimizer steps skipped because loss or gradient was not finite
[loop]
step | |  | the number of the step, from 1
perf/tokens | tokens | | tokens generated so far, including extra rollouts of plugins, excluding \
evaluations
perf/tokens_per_second | 1/s | | tokens of this step per second
perf/seconds | s | | time since the run began, including the time before a resume
tokens/gen | tokens | | tokens generated in this step by the sampler, including repeated draws
tokens/columns | tokens | | tokens generated in this step by column plugins
timing_s/gen | s | | prompts, sampling and scoring
timing_s/columns | s | | reference, critic and column plugins
timing_s/adv = | s | | KL in the reward, estimator, whitening
timing_s/update | s | | the optimizer steps
[evaluation]
step | |  | steps done so far: 0 before the first
eval/accuracy | share | a verifier | correct responses that ended
eval/accuracy_low | share | a verifier | lower end of its 95 % interval over prompts (Wilson)
eval/accuracy_high | share | a verifier | upper end
eval/greedy | share or reward | | accuracy (or score) of greedy decoding on the same prompts
eval/answer_prob | share | a task with one answer | mean P(the answer, then EOS): the expected \
accuracy, without sampling noise
eval/answer_prob_low | share | a task with one answer | lower end of its 95 % interval over \
prompts (Student)
eval/answer_prob_high | share | a task with one answer | upper end
eval/score | reward | | mean score
eval/score_low | reward | | lower end of its 95 % interval over prompts (Student)
eval/score_high | reward | | upper end
eval/reward/NAME | reward | | mean of each reward before its weight
eval/samples | |  | number of samples
eval/prompts | |  | number of different prompts
eval/tokens | tokens | | tokens sampled for the evaluation
eval/response_length | tokens | | mean length of the responses
eval/truncated | share | | responses that reached the length limit
"""

METRICS: list[Metric] = []

_maker = ""
for _line in _TABLE.strip().splitlines():
    if _line.startswith("["):
        _maker = _line.strip("[]")
        continue
    _name, _unit, _when, _meaning = (part.strip() for part in _line.split("|", 3))
    METRICS.append(
        Metric(_name.removesuffix(" ="), _unit, _maker, _when, _meaning, _name.endswith(" ="))
    )


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
