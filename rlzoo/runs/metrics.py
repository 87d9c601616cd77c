"""Metrics by name: what a line of metrics.jsonl may hold. Written by train, read by tools.

Losses report more, by names of their own, under `actor/` and `critic/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
score/* | reward | | of the responses' scores, before KL
score/NAME | reward | several rewards | mean of each reward by itself, before its weight
score/right_corr | | a notion of right | correlation of the score with whether the response is \
right, over at most 64 responses; not there where either does not vary
score/noise | reward | a text that comes twice | standard deviation of the scores of one text as \
an answer to one prompt: 0 wherever a score follows from prompt and response
score/at_end | share | | of the scores' absolute size, what stands at the last action of its \
response; not there where all scores are 0
score/paid_tokens | tokens | | actions of a response with a score that is not 0, of responses that \
have one
rewards/* | reward | | of the responses' rewards: scores minus the KL penalty where it is \
placed in the reward
response_length/* = | tokens | | actions in a response, the end-of-sequence token included
turns/* | turns | conversations | the policy's turns in a response
prompt_length/* = | tokens | | tokens in a prompt
prompts/distinct | share | | different prompts, or answers to them, among those of the step
response/truncated | share | | responses that ran into the length limit
response/eos | share | | responses that ended by themselves
response/right | share | a notion of right | right answers that ended by themselves, of at most 64 \
responses
response/distinct | share | | different texts among the responses of the step
group/distinct | share | | different texts among the responses of a group, over all groups
group/no_signal | share | | groups whose samples all got the same score: group estimators learn \
nothing there
sampler/log_prob_gap | nats | | mean of abs(log pi - log mu), mu what was sampled from, \
pi scored in a pass (of 4 rows, where old_log_probs are the sampler's): 0 unless top-k, top-p, \
rounding or a faulty cache part the two
actor/ref_kl | nats per token | a reference | mean of log pi - log pi_ref at rollout
actor/ref_kl_per_response | nats per response | a reference | the same, summed over each response; \
what an adaptive controller steers by
actor/teacher_kl | nats per token | a teacher | mean of log pi - log pi_teacher at rollout
[estimator]
raw_advantages/* | reward | | what the estimator gave
raw_advantages/score_corr | | | correlation of a response's score with the mean of its \
raw advantages: above 0 wherever advantages follow scores; not there where either does not vary
advantages/* | | | what the loss gets: after whitening, if the recipe whitens
returns/* | reward | a critic | the critic's targets
values/* | reward | a critic | V(s_t) at rollout
critic/vf_explained_var | | a critic | 1 - Var(G - V) / Var(G), G the *Monte Carlo* returns, \
whatever the estimator's targets are; 0 where G does not vary
critic/vf_explained_var/first | | a critic | the same, in the first third of each response's tokens
critic/vf_explained_var/middle | | a critic | in the middle third
critic/vf_explained_var/last | | a critic | in the last third
critic/vf_explained_var/prompt | | a critic | at each response's first token, where V knows the \
prompt alone
critic/vf_ceiling/prompt | | a critic, several samples | what a perfect critic would explain \
there: the share of Var(G) that lies between prompts, by their groups
critic/vf_bias | reward | a critic | mean of V - G: above 0 the critic promises too much
critic/vf_slope | | a critic that varies | slope of G on V: 1 if it is calibrated, below 1 if its \
differences are exaggerated, 0 if they say nothing
critic/mc_corr | | a critic | correlation over tokens of the raw advantages with Monte Carlo \
returns less V: 1 where the estimator trusts what happened (lam = 1), less the more it trusts the \
critic
critic/last_corr | | a critic | correlation over responses that ended of the raw advantage at the \
last action with its reward less V: 1 whatever lambda is
[update]
actor/pull_corr | | a loss of the batch alone | correlation over tokens of -d(policy loss)/d(log \
pi) at ratio 1 with the raw advantages: above 0 wherever the loss raises what has a good advantage
actor/untaught_ends | share | | responses whose first action has a raw advantage of exactly 0, \
or no gradient from the policy loss, though another action has both; or the same of their last, \
whichever are more
critic/vf_loss = | | a critic | the value loss, mean over the step's optimizer steps
critic/grad_norm = | | a critic | length of the critic's gradient before clipping, mean over \
optimizer steps
critic/lr = | | a critic | learning rate of the critic in this step
actor/pg_loss = | | an update | the policy loss, without KL and entropy terms; mean over optimizer \
steps
actor/kl_loss = | nats | KL in the loss | the KL penalty placed in the loss, before its \
coefficient, aggregated like the policy loss
actor/kl_coef = | | | the coefficient of the KL penalty; 0 where there is none
actor/ppo_kl = | nats per token | an update | mean of log pi_old - log pi during the update: how \
far the update has gone from the policy that sampled
actor/ratio_mean | | an update | mean of pi / pi_old during the update; 1 before the first \
optimizer step
actor/first_ratio_gap | nats | an update | mean of abs(log pi - log pi_old) in the first \
optimizer step of the step, before anything has changed: 0 but for rounding, or old_log_probs are \
not the policy's
actor/entropy = | nats | an update | entropy of the next-token distribution during the update, \
weighted like the loss
actor/grad_norm = | | an update | length of the actor's gradient before clipping, mean over \
optimizer steps
actor/lr = | | | learning rate of the actor in this step
train/skipped | | | optimizer steps left out because loss or gradient was not finite
[loop]
step | | | the number of the step, from 1
perf/tokens | tokens | | generated so far, extra rollouts of column plugins and samplers included; \
evaluations are not
perf/tokens_per_second | 1/s | | tokens generated in this step over its time
perf/seconds | s | | since the run began, earlier parts of a resumed run included
tokens/gen | tokens | | generated in this step by the sampler, those that it drew again included
tokens/columns | tokens | | generated in this step by column plugins
timing_s/gen | s | | prompts, sampling and scoring
timing_s/columns | s | | reference, critic and column plugins
timing_s/adv = | s | | KL in the reward, estimator, whitening
timing_s/update | s | | the optimizer steps
[evaluation]
step | | | steps done so far: 0 before the first
eval/accuracy | share | a notion of right | right answers that ended by themselves
eval/accuracy_low | share | a notion of right | its 95 % interval over prompts (Wilson), lower end
eval/accuracy_high | share | a notion of right | upper end
eval/greedy | share or reward | | accuracy, or score without a notion of right, of one greedy \
response to each of the same prompts
eval/answer_prob | share | a task with one answer | mean P(the answer, then EOS) over the prompts, \
its tokens given and not sampled: what accuracy is an estimate of, without the noise of sampling
eval/answer_prob_low | share | a task with one answer | its 95 % interval over prompts (Student), \
lower end
eval/answer_prob_high | share | a task with one answer | upper end
eval/score | reward | | mean score
eval/score_low | reward | | its 95 % interval over prompts (Student), lower end
eval/score_high | reward | | upper end
eval/reward/NAME | reward | | mean of each reward by itself, before its weight: a learned score \
beside a true one
eval/samples | | | how many
eval/prompts | | | different prompts among them
eval/tokens | tokens | | sampled for it
eval/response_length | tokens | | mean
eval/truncated | share | | responses that ran into the length limit
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


def is_evaluation(line: Mapping[str, Any]) -> bool:
    """Whether a line of metrics.jsonl is of an evaluation; the others are of a training step."""
    return any(key.startswith("eval/") for key in line)


def evaluation_text(evaluation: Mapping[str, Any]) -> str:
    """`accuracy 0.812 [0.787, 0.835], greedy 0.903`"""
    what, value, low, high = headline(evaluation)
    greedy = f", greedy {evaluation[GREEDY]:.3f}" if GREEDY in evaluation else ""
    return f"{what} {value:.3f} [{low:.3f}, {high:.3f}]{greedy}"


def headline(evaluation: Mapping[str, Any]) -> tuple[str, float, float, float]:
    """(what, value, low, high): the accuracy where there is one, else the score."""
    key = ACCURACY if ACCURACY in evaluation else SCORE
    value, low, high = (evaluation[f"{key}{suffix}"] for suffix in ("", "_low", "_high"))
    return key.removeprefix("eval/"), value, low, high
