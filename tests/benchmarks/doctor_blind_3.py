"""A third examination (`doctor_blind.py`): 43 faults and 27 healthy runs by authors who had
seen neither the doctor's rules nor the earlier sets.

A fault counts if it ends 0.1 below its control in held-out accuracy, or score, or if what it
measures is false by construction. Healthy runs learn, each by a pair of recipe and task that no
control has.

The first sitting, read by hand (an alarm is a finding that is not a note):

    faults noticed              36 of 43   (84%)
    cause right                 27 of 43   (63%)  among the first two findings
    harmful remedy               0 of 43   (0%)   eight remedies tried, the rest read
    false alarms                 5 of 27   (19%)

Missed: ranks, best as baseline, ratio to reference, hot evaluation, epsilon, long warm-up,
entropy bonus. Noticed with another cause or none: effort, reward so far, clamped loss,
pi not log pi, sure only, KL adapts up, cut prompts, other format, short rollouts. Alarms on healthy
runs: 02_dapo, 05_ppo_gae, 08_remax, 09_dapo, 25_pkpo.
"""

import random
from pathlib import Path

import doctor_blind as blind
from doctor_blind import below, numbered, write_rows

SMALL = ["eval.samples=256", "device=cpu", "checkpoint.every=0", "run.threads=1"]
ADD = "task=addition rollout.prompts=32 train.steps=40 actor.lr=3e-4 eval.every=10"
MARK = "model=blind rollout.prompts=16 train.steps=60 actor.lr=5e-4 eval.every=15"
FILE = (
    "model=novice task=dataset rollout.max_new_tokens=5 rollout.prompts=32 train.steps=40 "
    "actor.lr=3e-4 eval.every=10"
)
BASES = {  # of the controls: recipe and words
    "grpo": ("grpo", f"{ADD} model=novice"),
    "ppo": ("ppo_gae", f"{ADD} model=novice"),
    "shared": ("ppo_gae", f"{ADD} model=novice critic.trunk=shared"),
    "marks": ("grpo", f"{MARK} task=marks"),
    "plain": ("grpo", f"{MARK} task=marks estimator=reinforce whiten=batch"),
    "spell": ("ppo_gae", "task=spelling model=speller estimator.lam=0.8 train.steps=24 "
              "eval.every=8"),
    "hi_lo": ("grpo", "task=hi_lo model=turns actor.lr=1e-3 rollout.prompts=16 train.steps=40 "
              "eval.every=10"),
    "file": ("grpo", f"{FILE} task.path={{data}}/train.jsonl task.test_path={{data}}/test.jsonl"),
    "teach": ("opd", "task=addition model=novice teacher.name=nano rollout.prompts=32 "
              "train.steps=40 actor.lr=1e-3 eval.every=10"),
    "bf16": ("grpo", f"{ADD} model=novice actor.lr=1e-4 train.steps=60"),
}  # fmt: skip


def Case(name, base, fault, cause, false=False):
    return blind.Case(name, base, fault, cause, false=false)


CASES = [
    # rewards
    Case("stale answers", "grpo", "rewards=[by_group]",
         "The reward caches answers by group id, and group ids begin again at each step: rows are "
         "scored against answers of the first batch."),
    Case("late judge", "grpo", "rewards=[judged]",
         "The reward returns the scores of the previous batch, one batch late."),
    Case("majority", "grpo", "rewards=[agreement]",
         "The reward pays agreement with the group's majority, not rightness, and the majority "
         "answer is wrong."),
    Case("lenient", "grpo", "rewards=[numeric] rewards.numeric.tolerance=10",
         "The reward's tolerance of 10 accepts the forgotten carry: wrong answers are paid."),
    Case("effort", "hi_lo", "rewards.effort.weight=1",
         "A bonus for each turn pays more than ending early: the policy prolongs the episode."),
    # estimators
    Case("reward so far", "plain", "estimator=to_go",
         "The estimator sums rewards from the start, not from the end: only the last token gets "
         "credit."),
    Case("ranks", "grpo", "estimator=ranked",
         "argsort is taken for ranks: advantages do not follow the rewards."),
    Case("shifted", "spell", "estimator=next_token estimator.lam=0.8",
         "Advantages are shifted by one token: each token gets its predecessor's credit."),
    Case("best as baseline", "grpo", "estimator=from_best",
         "The baseline is the group's best reward: no advantage is positive, the policy only "
         "unlearns."),
    Case("summed baseline", "grpo", "estimator=moving",
         "The moving baseline averages sums over the batch, not means: all advantages are "
         "negative."),
    # losses, masks, KL
    Case("clamped loss", "marks", "policy_loss=clamped",
         "log pi is clamped at -1, which removes the gradient of every less likely token."),
    Case("ratio to reference", "grpo", "policy_loss=from_reference",
         "The loss clips the ratio to the reference, not to the rollout policy: learning ends once "
         "tokens have left 0.8 .. 1.2 of the reference."),
    Case("pi, not log pi", "marks", "policy_loss=expected",
         "The loss weighs by pi, not by pi / pi_old: unlikely tokens have almost no gradient."),
    Case("start masked", "marks", "correction=skip_start",
         "A mask drops the first two tokens from the loss, with them the command that decides."),
    Case("sure only", "marks", "correction=confident",
         "A mask drops tokens under probability 0.5 from the loss: what must be learned is never "
         "trained."),
    Case("KL turned", "ppo", "kl.name=turned kl.coef=0.2",
         "The KL penalty has the wrong sign: it pays for leaving the reference."),
    Case("KL adapts up", "grpo", "kl.controller=adaptive kl.target=0.001 kl.horizon=200",
         "The adaptive KL target is far too low: the coefficient grows until the policy is held at "
         "the reference."),
    # critics
    Case("shared, heavy", "shared", "critic.coef=200",
         "The value loss with coefficient 200 dominates the shared trunk and its gradient clip."),
    Case("warm-up", "ppo", "train.critic_warmup=36",
         "Critic warm-up takes 36 of 40 steps: the actor is hardly trained."),
    # samplers
    Case("one seed a prompt", "grpo", "sampler=seeded",
         "All samples of a group use the same noise: they are equal, no group has a signal."),
    Case("engine not synced", "marks", "sampler=engine",
         "The sampler keeps the first weights: rollouts never come from the trained policy.",
         True),
    Case("nucleus", "grpo", "rollout.top_p=0.5",
         "top_p=0.5 removes the rarer right continuation: nothing is explored."),
    Case("cold", "marks", "rollout.temperature=0.1",
         "Sampling at temperature 0.1 makes groups nearly equal: no exploration."),
    # data and tasks
    Case("labels without carry", "file", "task.path={data}/nocarry.jsonl",
         "The training labels forget the carry: wrong answers are paid, right ones are not."),
    Case("easy prompts", "file", "task.path={data}/easy.jsonl",
         "The training prompts need no carry, the held-out prompts do."),
    Case("few prompts", "file", "task.path={data}/few.jsonl",
         "Eight training prompts: the policy fits them and does not generalise."),
    Case("cut prompts", "file", "task.max_prompt=5 task.too_long=cut_start",
         "Prompts are cut at their start to 5 tokens: the first digit is lost, also when scored."),
    Case("other format", "file", "task.path={data}/spaced.jsonl",
         "Training prompts have another format (spaces) than held-out prompts."),
    Case("repeated prompts", "grpo", "task=repeated rollout.prompts=8",
         "The task seeds its own generator: each step has the same eight prompts."),
    # evaluation
    Case("tested on train", "file", "task.path={data}/few.jsonl task.test_path={data}/few.jsonl",
         "The held-out file is the training file: accuracy is that of memorised prompts.", True),
    Case("hot evaluation", "grpo", "eval.temperature=2.5",
         "Evaluation samples at temperature 2.5: accuracy is that of another distribution.", True),
    Case("short evaluation", "grpo", "eval.max_new_tokens=3",
         "The evaluation's length limit cuts right answers of three digits before EOS.", True),
    # configuration
    Case("short rollouts", "grpo", "rollout.max_new_tokens=3 eval.max_new_tokens=5",
         "The rollout's length limit cuts answers of three digits before EOS: they are never "
         "paid."),
    Case("weight decay", "grpo", "actor.weight_decay=10",
         "Weight decay of 10 shrinks the weights and destroys the policy."),
    Case("epsilon", "marks", "actor.eps=0.1",
         "AdamW's epsilon of 0.1 is far above the gradients: steps are almost zero."),
    Case("long warm-up", "marks", "actor.lr_warmup=1000",
         "The learning rate warms up over 1000 steps, the run has 60."),
    Case("many epochs", "ppo", "train.epochs=8 train.minibatches=8 actor.lr=3e-3 "
         "policy_loss.clip_low=1 policy_loss.clip_high=10",
         "64 unclipped updates at a high rate on each batch: far off-policy, the policy breaks."),
    Case("entropy bonus", "grpo", "actor.entropy_coef=0.3",
         "The entropy bonus of 0.3 outweighs the reward: the policy becomes random."),
    Case("bfloat16 weights", "bf16", "model.dtype=bfloat16",
         "Steps of 1e-4 are lost in bfloat16 weights."),
    Case("max_kl", "marks", "stop.max_kl=0.05",
         "stop.max_kl=0.05 ends the run after few steps."),
    Case("discount", "plain", "estimator.gamma=0.3",
         "gamma=0.3 leaves the command, five tokens before the reward, without credit."),
    # references and teachers
    Case("teacher is student", "teach", "teacher.name=novice",
         "The teacher is the student's own base: there is nothing to learn."),
    Case("foreign teacher", "teach", "teacher.name=speller",
         "The teacher was trained on another task and cannot add: its log-probs pull away from "
         "right answers."),
]  # fmt: skip

ANNEALED = "actor.lr_schedule=linear"
NOVICE = f"task=addition model=novice {ANNEALED}"
HEALTHY = [
    ("dr_grpo", f"{MARK} task=marks rollout.samples=8 train.steps=50 eval.every=25 {ANNEALED}"),
    ("rloo", f"{NOVICE} rollout.prompts=48 train.steps=30 actor.lr=5e-4 eval.every=15"),
    ("dapo", f"{NOVICE} rollout.prompts=24 train.steps=40 actor.lr=5e-4 eval.every=20"),
    ("gspo", f"{MARK} task=marks rollout.prompts=24 actor.lr=1e-3 {ANNEALED}"),
    ("cispo", "task=hi_lo model=turns rollout.prompts=16 train.steps=40 actor.lr=1e-3 "
     f"eval.every=20 {ANNEALED}"),
    ("ppo_gae", "task=marks_dense model=blind rollout.prompts=16 train.steps=45 actor.lr=8e-4"),
    ("reinforce_pp_baseline", "task=local_search model=turns rollout.prompts=16 train.steps=24 "
     "actor.lr=1e-3 eval.every=8"),
    ("rloo", f"task=spelling model=speller train.steps=24 eval.every=8 {ANNEALED}"),
    ("remax", f"{NOVICE} rollout.prompts=64 rollout.samples=2 train.steps=36 actor.lr=4e-4 "
     "eval.every=12"),
    ("dapo", "task=local_search model=turns rollout.prompts=16 train.steps=24 actor.lr=1e-3 "
     "eval.every=8"),
    ("ppo_mc", "task=spelling model=speller task.pay=end train.steps=30 rollout.prompts=24 "
     f"eval.every=15 {ANNEALED}"),
    ("gigpo", "task=hi_lo model=turns rollout.samples=8 rollout.prompts=12 train.steps=40 "
     f"actor.lr=1e-3 eval.every=20 {ANNEALED}"),
    ("turn_gae", "task=hi_lo model=turns rollout.prompts=24 train.steps=40 actor.lr=1e-3 "
     f"eval.every=20 {ANNEALED}"),
    ("maxrl", "task=addition_mixed model=novice rollout.samples=8 rollout.prompts=24 "
     f"train.steps=30 actor.lr=3e-4 eval.every=10 {ANNEALED}"),
    ("sapo", f"task=reverse model=nano train.steps=30 rollout.prompts=24 actor.lr=3e-4 {ANNEALED} "
     "eval.every=15"),
    ("gmpo", f"{NOVICE} rollout.prompts=20 rollout.samples=6 train.steps=40 actor.lr=4e-4 "
     "eval.every=10"),
    ("hl_gauss_ppo", f"{NOVICE} rollout.prompts=32 train.steps=40 actor.lr=4e-4 eval.every=20"),
    ("raft", f"{NOVICE} rollout.prompts=64 train.steps=30 actor.lr=5e-4 eval.every=10"),
    ("impala", f"{NOVICE} rollout.prompts=40 train.steps=40 actor.lr=4e-4 eval.every=20"),
    ("grpo", "task=local_search model=turns rollout.prompts=16 train.steps=24 actor.lr=1e-3 "
     f"eval.every=8 {ANNEALED}"),
    ("dr_grpo", "task=addition model=tiny model.lora.rank=4 actor.lr=2e-3 rollout.prompts=16 "
     f"train.steps=20 eval.every=10 {ANNEALED}"),
    ("vopd", f"{NOVICE} teacher.name=nano train.steps=40 rollout.prompts=16 actor.lr=1e-3"),
    ("drpo", f"{NOVICE} rollout.prompts=32 train.steps=30 actor.lr=4e-4 eval.every=10"),
    ("gpg", f"{NOVICE} rollout.temperature=0.9 rollout.prompts=40 train.steps=40 actor.lr=5e-4"),
    ("cfpo", f"task=reverse model=nano train.steps=30 rollout.prompts=24 actor.lr=3e-4 {ANNEALED} "
     "eval.every=15"),
    ("pkpo", f"{MARK} task=marks rollout.samples=8 rollout.prompts=12 {ANNEALED}"),
    ("softmax_grpo", f"{NOVICE} task.min_digits=1 rollout.prompts=32 train.steps=30 actor.lr=4e-4"),
]  # fmt: skip


def prepare(out: Path) -> None:
    pairs = [(a, b) for a in range(100) for b in range(100)]
    random.Random(3).shuffle(pairs)
    test, rows = pairs[:1000], pairs[1000:5000]

    def forget(a, b):
        return sum((a // p + b // p) % 10 * p for p in (1, 10))

    def write(name, pairs, prompt="{}+{}=", add=lambda a, b: a + b):
        write_rows(out / "data" / f"{name}.jsonl",
                   ({"prompt": prompt.format(a, b), "answer": str(add(a, b))}
                    for a, b in pairs))  # fmt: skip

    write("train", rows)
    write("test", test)
    write("nocarry", rows, add=forget)
    write("easy", [r for r in rows if forget(*r) == sum(r)])
    write("few", rows[:8])
    write("spaced", rows, prompt="{} + {} = ")


SET = blind.Set(3, CASES, numbered(HEALTHY), SMALL, prepare, below(0.1), BASES, seeds=(47, 100))
