"""A third set of `doctor_blind.py`: other faults, other healthy runs.

A fault counts where held-out accuracy (or the score) ends at least 0.1 below the control's, or
where the number itself is false (`false=True`).

The first sitting, judged by a reader: 70 of the 78 faults noticed, 56 causes right; 2 of the 24
healthy runs alarmed. Six doubtful remedies were tried: one made its run worse, that of `sure`.
"""

import json
import random
from pathlib import Path

import doctor_blind as blind
import doctor_blind_0 as first
from doctor_blind import below, numbered, write_rows
from doctor_blind_0 import LORA, PLAIN, SMALL, A, Case, D, S, T, only

from rlzoo_zoo.tasks.spelling import Spelling

R = "task=reverse model=nano"
M = "task=marks model=blind actor.lr=2e-3 rollout.samples=8"
N = f"{A} train.steps=40 eval.every=10"
W = "task=seasoning model=nano actor.lr=1e-3"
S0 = "task=spelling model=speller"
C = (  # letters in a hidden style, judged by case
    "task=dataset model=speller actor.lr=5e-4 rollout.max_new_tokens=10 task.path={data}/case.jsonl"
)

# fmt: off
CASES = [
    # estimators
    Case("a row late", "each response has the advantage of the row before", "dr_grpo", A,
         "estimator=neighbour", "advantages do not belong to these responses' rewards",
         r"advantage"),
    Case("from the start", "the return at a token sums what came before it, not what follows",
         "reinforce_pp", A, "estimator=from_the_start",
         "only the last token gets credit: the estimator", r"advantage|credit|last token"),
    Case("skips bad batches", "the estimator zeroes the whole batch if any group is flat", "grpo",
         A, "estimator=skips_bad_batches",
         "the estimator's advantages are all zero though scores differ within groups",
         r"advantage"),
    Case("values swapped", "the TD error has V_t and V_t+1 exchanged", "ppo_gae", S,
         "estimator=next_minus_now",
         "advantages do not follow the rewards: the estimator or its use of values",
         r"advantage|estimator"),
    Case("along tokens", "advantages are standardised along the tokens of a row", "dr_grpo", N,
         "estimator=along_tokens", "the longest responses have advantage 0: the estimator",
         r"advantage"),
    Case("last of group", "all responses of a group have the advantage of its last", "rloo", A,
         "estimator=last_of_group", "advantages are equal for right and wrong responses of a group",
         r"advantage"),
    Case("integers", "advantages are cut to integers", "dr_grpo", A, "estimator=to_integers",
         "advantages are zero where scores differ: the estimator", r"advantage"),
    Case("eps of grpo", "estimator.eps=1e6 divides each advantage away", "grpo", A,
         "estimator.eps=1e6", "advantages are tiny against the scores: estimator.eps",
         r"advantage|eps", r"[Ll]ower actor\.lr"),
    # losses, penalties, weights
    Case("upside down", "the loss's ratio is pi_old / pi", "grpo", A, "policy_loss=upside_down",
         "the policy loss pushes the wrong way", r"loss|wrong way|sign|away"),
    Case("shifted", "the loss compares log-probs with old ones of the next position", "dapo", A,
         "policy_loss=shifted", "the loss credits other tokens than those that were sampled",
         r"loss|ratio"),
    Case("sure", "the entropy bonus has the wrong sign and is large", "grpo", M,
         "policy_loss=sure", "entropy collapsed early: the loss drives it down", r"entropy"),
    Case("abs", "the loss takes abs() of the advantages", "grpo", M, "policy_loss=absolute_gain",
         "the policy loss pushes wrong responses up", r"loss|wrong way|sign|push"),
    Case("KL turned", "k1 is log pi_ref - log pi, in the reward", "rloo", A,
         "kl.name=k1_turned kl.coef=1.0", "the KL penalty pays for distance from the reference",
         r"KL|reference"),
    Case("KL of 10", "kl.coef=10", "grpo", A, "kl.coef=10",
         "the KL penalty holds the policy at the reference: kl.coef", r"KL|kl"),
    Case("KL adapts", "an adaptive coefficient with a target of 1e-5 nats and a short horizon",
         "rloo", N, "kl.controller=adaptive kl.target=1e-5 kl.horizon=20",
         "the KL coefficient grew until the penalty outweighs the reward", r"KL|kl"),
    Case("k1 in the loss", "k1 in the loss, whose gradient is noise, with kl.coef=30", "grpo", A,
         "kl.name=k1 kl.coef=30", "k1 in the loss adds only noise: kl.name, kl.coef", r"KL|kl|k1"),
    Case("after the first", "the aggregation gives the first token weight 0", "grpo", A,
         "aggregation=after_first", "the first token gets no gradient: the aggregation",
         r"aggregation|first token|no gradient|weight"),
    Case("end alone", "the aggregation weighs only EOS", "rloo", A, "aggregation=end_alone",
         "all tokens but the last get no gradient: the aggregation",
         r"aggregation|last token|no gradient|weight"),
    Case("wrongs alone", "a column keeps wrong responses where it should keep right ones", "grpo",
         M, "correction=wrongs_alone", "the correction leaves out right responses",
         r"correction|right responses|weight"),
    Case("clip of GSPO", "clip widths below GSPO's in PPO's loss, four epochs", "grpo",
         f"{A} train.epochs=4", "policy_loss.clip_low=3e-6 policy_loss.clip_high=4e-6",
         "nearly all tokens are clipped: policy_loss.clip_*", r"clip"),
    # critics
    Case("critic flees", "the critic's loss has the wrong sign", "ppo_gae", S,
         "value_loss=away_from_target critic.lr=1e-2", "the critic is worse than a constant",
         r"critic|value"),
    Case("critic of 2", "critic.lr=2", "ppo_gae", S, "critic.lr=2",
         "the critic diverges: critic.lr", r"critic"),
    Case("shared swamped", "critic.coef=1e4 on a shared trunk", "ppo_gae",
         f"{A} critic.trunk=shared", "critic.coef=1e4",
         "the value loss swamps the policy's gradient: critic.coef", r"critic|coef|trunk|shared"),
    Case("warm-up for ever", "train.critic_warmup is longer than the run", "vc_ppo", N,
         "train.critic_warmup=500", "the actor is never updated: train.critic_warmup",
         r"critic_warmup|warm-?up"),
    # rewards and gaming
    Case("judge dies", "the reward service is gone after six batches; its fallback is 0", "rloo",
         N, only("dying_judge"), "the reward is constant 0 from a step on, right responses too",
         r"reward|score"),
    Case("judge flips", "nine of ten verdicts are a coin's", "grpo", A, only("flaky_judge"),
         "the reward is not what is right: noise", r"reward|score|noise"),
    Case("short is good", "2 less for each token", "dr_grpo",
         f"{R} train.steps=40 eval.every=10 actor.lr=1e-3", only("short_is_good"),
         "brevity is paid: responses shrink", r"length|short|reward"),
    Case("much spice", "the judge likes ever more of what is good in measure", "grpo",
         f"{W} train.steps=40 eval.every=10",
         "rewards.much_spice.weight=1 rewards.verifier.weight=0",
         "the reward rises while the score falls: an over-optimised reward", r"reward|score"),
    Case("nines", "a 9 in the response convinces the judge", "grpo", A, only("likes_nines"),
         "wrong responses are paid, those with a 9", r"reward|not what is right"),
    Case("echo", "similarity to the prompt is paid, not the answer", "ppo_gae", A, only("echo"),
         "the reward is not what is right", r"reward|not what is right"),
    Case("clipped at zero", "rewards in [0, 1] are clipped to [-1, 0]", "grpo", A,
         only("clipped_at_zero"), "the reward is constant although some responses are right",
         r"reward|constant|score|same"),
    Case("slice", "the last characters are not compared", "dapo", A, only("cut_at_end"),
         "wrong responses are paid", r"reward|not what is right"),
    Case("a token late", "per-token rewards are stored a position late", "ppo_td0", D,
         only("late_by_a_token"), "rewards are not at the tokens that earned them, the last lost",
         r"reward|score|token"),
    Case("both ways", "for every second prompt less is better", "rloo", A, only("both_ways"),
         "wrong responses are paid for half of the prompts", r"reward|not what is right"),
    Case("novelty", "a bonus for responses never seen before outweighs right", "grpo", N,
         only("new_alone"), "the reward is not what is right, and changes with time", r"reward"),
    # samplers
    Case("old engine", "the sampler keeps the first weights", "grpo", f"{N} actor.lr=1e-3",
         "sampler=first_weights",
         "the sampler's policy is not the trained one: the gap of log-probs grows",
         r"sampl|gap|stale|off-policy"),
    Case("one seed", "all samples of a prompt are one", "grpo", A, "sampler=one_seed",
         "samples of a group are identical", r"identical|same|distinct|no signal|group"),
    Case("bit flips", "two of three rows have another first token than was sampled", "ppo_gae", A,
         "sampler=bit_flips", "sampler's log-probs are not those of its tokens",
         r"sampl|gap|log-prob"),
    Case("banned", "the sampler writes 2 for each 1", "grpo", A, "sampler=banned",
         "sampler's log-probs are not those of its tokens", r"sampl|gap|log-prob"),
    # tasks and data
    Case("liar", "the environment mixes up hi and lo for half of the numbers", "grpo",
         f"{T} train.steps=40 eval.every=10", "task=lying_hi_lo rollout.max_new_tokens=26",
         "the environment's answers are inconsistent, or there is hardly any learning",
         r"environment|task|learn"),
    Case("short talk", "max_new_tokens=9 ends conversations after two turns", "grpo",
         f"{T} train.steps=40 eval.every=10", "rollout.max_new_tokens=9",
         "conversations are cut: rollout.max_new_tokens", r"truncat|max_new_tokens|limit|cut"),
    Case("one pool", "held-out prompts are the 24 prompts of training", "grpo", A,
         "task=one_pool rollout.max_new_tokens=5", "held-out prompts are training prompts",
         r"held.out|prompts|train", false=True),
    Case("narrowing", "from the fourth step on a batch is one prompt", "rloo", N,
         "task=narrowing_addition rollout.max_new_tokens=5", "the same prompt again and again",
         r"prompt|distinct"),
    Case("half blind", "sums of three digits never score", "grpo", A,
         "task=half_blind rollout.max_new_tokens=5", "right responses are not paid: the verifier",
         r"reward|right|verifier|score"),
    Case("noisy labels", "four of five training answers are another row's", "rloo", PLAIN,
         "task.path={data}/noisy.jsonl", "training answers are wrong", r"answer|label|data"),
    Case("varchar", "training answers are cut to two characters", "dapo", PLAIN,
         "task.path={data}/varchar.jsonl", "training answers are wrong, or differ from held-out",
         r"answer|label|data"),
    Case("duplicates", "the training file is one row 3,000 times", "grpo", PLAIN,
         "task.path={data}/one_row.jsonl", "only one distinct prompt", r"prompt|distinct|row"),
    Case("easy only", "training prompts have one digit, held-out ones two", "rloo", PLAIN,
         "task.path={data}/easy.jsonl", "training prompts differ from held-out ones",
         r"held.out|train|differ|generali"),
    Case("tiny test", "the held-out file has three rows", "grpo", PLAIN,
         "task.test_path={data}/three.jsonl", "held-out accuracy rests on three prompts",
         r"held.out|prompts|few", false=True),
    Case("tolerance", "task.tolerance=60: near sums count as right", "grpo",
         f"{PLAIN} task.checker=numeric", "task.tolerance=60",
         "wrong responses are judged right: task.tolerance", r"toleranc|right|start|signal",
         false=True),
    Case("case folded", "task.casefold=True although case is what should be learnt", "rloo", C,
         "task.casefold=True", "everything is judged right: task.casefold",
         r"casefold|right|start|signal", false=True),
    Case("cut prompts", "task.max_prompt=4 cuts the first characters of prompts", "rloo", PLAIN,
         "task.max_prompt=4 task.too_long=cut_start", "prompts are cut: task.max_prompt",
         r"cut|prompt"),
    Case("plus sign", "training answers read +42", "dr_grpo", PLAIN,
         "task.path={data}/plus.jsonl", "no training response is ever right: the answers' form",
         r"answer|form|never right|right"),
    # configuration
    Case("greedy rollouts", "rollout.top_k=1", "grpo", A, "rollout.top_k=1",
         "samples of a group are identical: rollout.top_k", r"identical|same|top_k|distinct"),
    Case("cold rollouts", "rollout.temperature=0.15, evaluations at 1", "rloo", A,
         "rollout.temperature=0.15", "rollouts are colder than evaluations: no signal",
         r"temperature"),
    Case("hot rollouts", "rollout.temperature=6", "grpo", A, "rollout.temperature=6",
         "rollouts are too hot: rollout.temperature", r"temperature"),
    Case("three tokens", "max_new_tokens=3, where sums of three digits need four", "grpo", A,
         "rollout.max_new_tokens=3", "responses are cut: rollout.max_new_tokens",
         r"truncat|max_new_tokens|limit|cut"),
    Case("eval of two", "eval.max_new_tokens=2", "ppo_gae", A, "eval.max_new_tokens=2",
         "held-out responses are cut: eval.max_new_tokens", r"eval.*(truncat|max_new|cut|limit)",
         false=True),
    Case("cold evaluation", "eval.temperature=0.01 hides that a rate of 1e-7 learns nothing",
         "grpo", A, "eval.temperature=0.01 actor.lr=1e-7",
         "evaluation is near greedy, and the policy does not learn: rate",
         r"temperature|lr|learn", false=True),
    Case("rate of LLMs", "actor.lr=1e-6 on sixty thousand parameters", "reinforce_pp", A,
         "actor.lr=1e-6", "the rate is too small", r"lr|rate|learn", r"[Ll]ower actor\.lr"),
    Case("long warm-up", "actor.lr_warmup=5000 in a short run", "ppo_gae", A,
         "actor.lr_warmup=5000", "the warm-up never ends", r"warm", r"[Ll]ower actor\.lr"),
    Case("eps of 1", "actor.eps=1", "grpo", A, "actor.eps=1",
         "AdamW's epsilon swallows the steps: actor.eps", r"eps", r"[Ll]ower actor\.lr"),
    Case("decay", "actor.weight_decay=150", "grpo", A, "actor.weight_decay=150",
         "weight decay shrinks the weights: actor.weight_decay", r"decay"),
    Case("norm of 1e-9", "actor.max_grad_norm=1e-9", "rloo", A, "actor.max_grad_norm=1e-9",
         "gradients are clipped to nothing: actor.max_grad_norm", r"grad_norm|clip",
         r"[Ll]ower actor\.lr"),
    Case("entropy of 3", "actor.entropy_coef=3", "grpo", A, "actor.entropy_coef=3",
         "the entropy bonus outweighs the reward: actor.entropy_coef", r"entropy"),
    Case("tiny batch", "one prompt, two samples a step", "grpo", A,
         "rollout.prompts=1 rollout.samples=2 train.minibatches=1",
         "batches are too small: rollout.prompts", r"batch|small|prompts|no signal|group"),
    Case("patience of one", "stop.patience=1 stop.min_delta=0.3", "rloo", A,
         "stop.patience=1 stop.min_delta=0.3", "the run was ended early by stop.*",
         r"stop|patience|early"),
    Case("stop at KL", "stop.max_kl=0.002", "grpo", A, "stop.max_kl=0.002",
         "the run was ended early by stop.max_kl", r"stop|max_kl|early"),
    Case("gamma", "estimator.gamma=0.02", "reinforce_pp", R, "estimator.gamma=0.02",
         "early tokens get no credit: estimator.gamma", r"gamma|discount"),
    Case("low alpha", "model.lora.alpha=1e-3", "grpo", LORA, "model.lora.alpha=1e-3",
         "the adapter hardly acts: model.lora.alpha", r"alpha|lora|LoRA|learn",
         r"[Ll]ower actor\.lr"),
    Case("half weights", "model.dtype=bfloat16 and a rate below its spacing", "rloo",
         f"{A} actor.lr=1e-4 train.steps=60 eval.every=15", "model.dtype=bfloat16",
         "steps are lost in bfloat16 weights: model.dtype", r"bfloat16|dtype|rounding|lost"),
    Case("wrong base", "the base has never seen the task", "grpo", R, "model=blind",
         "the base is never right: no signal", r"never right|base|no_response|right"),
    Case("own teacher", "the teacher is the student's own base", "opd",
         f"{A} model=novice actor.lr=5e-4 train.steps=40 eval.every=10", "teacher.name=novice",
         "the teacher is no other than the policy: nothing to learn from it", r"teacher"),
    Case("ice", "icepop's bounds are both 1, with a bfloat16 sampler", "grpo",
         f"{A} rollout.dtype=bfloat16", "correction=icepop correction.low=1 correction.high=1",
         "the correction drops nearly all tokens: correction.low, .high",
         r"correction|icepop|drop"),
    Case("tiny scale", "rewards.verifier.weight=1e-6 with no division by the spread", "dr_grpo",
         A, "rewards.verifier.weight=1e-6", "the reward's scale is lost against eps: the weight",
         r"weight|scale|eps|reward", r"[Ll]ower actor\.lr"),
    Case("many epochs", "10 epochs without a clip", "rloo",
         f"{A} policy_loss=surrogate actor.lr=5e-4", "train.epochs=10",
         "too many passes over each batch: train.epochs", r"epochs|passes|KL|ratio"),
    Case("stale", "rollouts are 12 steps old, uncorrected, at a high rate", "rloo",
         f"{A} policy_loss=surrogate actor.lr=5e-4", "rollout.staleness=12",
         "rollouts are stale: rollout.staleness", r"stale|off-policy"),
    Case("one turn", "task.turns=1: one guess at the number", "gigpo",
         "actor.lr=5e-4 rollout.prompts=16", "task.turns=1",
         "one turn is too few for the task: task.turns", r"turn|learn|right"),
]

HEALTHY = [
    ("grpo", f"{A} rollout.samples=8 train.steps=40 eval.every=10"),
    ("rloo", f"{A} rollout.prompts=32 kl.coef=0"),
    ("ppo_gae", f"{A} actor.lr=4e-4 critic.lr=2e-3"),
    ("reinforce_pp", f"{R} rollout.prompts=24"),
    ("dapo", f"{R} policy_loss.clip_high=0.3"),
    ("dr_grpo", f"{D} rollout.prompts=24"),
    ("ppo_mc", f"{D} critic.lr=5e-4"),
    ("ppo_gae", f"{S} train.steps=40 eval.every=10"),
    ("reinforce_pp", f"{S0} rollout.prompts=24"),
    ("gspo", f"{A} rollout.samples=6 train.minibatches=2"),
    ("grpo", f"{M} actor.lr=7e-4 train.steps=60 eval.every=15"),
    ("maxrl", f"{A} rollout.prompts=24"),
    ("reinforce_pp_baseline", f"{LORA} model.lora.rank=4"),
    ("turn_gae", f"{T} rollout.prompts=32 train.steps=40 eval.every=10"),
    ("cispo", f"{PLAIN} train.steps=30 eval.every=10"),
    ("sapo", f"{A} actor.lr_schedule=cosine actor.lr=5e-4"),
    ("opd", f"{A} actor.lr=5e-4 model=novice teacher.name=nano train.steps=40 eval.every=10"),
    ("remax", f"{A} actor.lr=1e-3"),
    ("gigpo", "actor.lr=1e-3 rollout.prompts=24"),
    ("rloo", f"{PLAIN} train.epochs=2 rollout.prompts=12"),
    ("otb", f"{A} actor.entropy_coef=0.01"),
    ("grpo", W),
    ("luspo", f"{A} rollout.samples=5"),
    ("delightful", f"{R} actor.lr=4e-4"),
]
# fmt: on


def prepare(out: Path) -> None:
    first.prepare(out)
    data, draw = out / "data", random.Random(23)
    rows = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    held = [json.loads(line) for line in (data / "held_out.jsonl").read_text().splitlines()]

    def write(name, rows):
        write_rows(data / f"{name}.jsonl", rows)

    answers = [row["answer"] for row in rows]
    write("noisy", [
        {**row, "answer": draw.choice(answers)} if i % 5 else row for i, row in enumerate(rows)
    ])  # fmt: skip
    write("one_row", rows[:1] * 3000)
    write("plus", [{**row, "answer": f"+{row['answer']}"} for row in rows])
    write("varchar", [{**row, "answer": row["answer"][:2]} for row in rows])
    write("three", held[:3])
    words = Spelling().words
    write("case", [
        {"prompt": f"{a}{b}>", "answer": words[a] + words[b]} for a in words for b in words
    ])  # fmt: skip


SET = blind.Set(
    2, CASES, numbered(HEALTHY), SMALL, prepare, below(0.1, learns=True), seeds=(1907, 4211)
)
