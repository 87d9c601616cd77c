"""A fourth examination (`doctor_blind.py`): 30 faults and 20 healthy runs by an author who had
seen neither the doctor's rules nor the earlier sets.

A fault counts if it ends 0.1 below its control
in held-out score, one seed and 128 samples each, or if what it measures is false by construction.
The thirty, 19 of them in components, were chosen among those before any judging.

The first sitting, read by hand (an alarm is a finding that is not a note):

    faults noticed              26 of 30   (87%)
    cause right                 18 of 30   (60%)  among the first two findings
    harmful remedy               2 of 30   (7%)   three remedies tried, the rest read
    false alarms                 2 of 20   (10%)

Missed: loo sum, anchored, word pay, mixed labels. Noticed with another cause or none: steady,
running gap, terse, same sums, one each, bounded, no tails, discount. Remedies that lead away from
the fault: bounded (to the shipped loss), discount (to policy_loss; estimator.gamma is not listed
among the differences). Alarms: dr_grpo marks, own estimator (its baseline mixes groups, as it
declares). Of the 23 more that do not count, on the way was missed, and whole steps, whole marks
and floats were noticed without their cause.
"""

import random
from pathlib import Path

import doctor_blind as blind
from doctor_blind import Case, below, write_rows

SMALL = [
    "rollout.prompts=16",
    "train.steps=30",
    "eval.samples=128",
    "eval.every=10",
    "run.threads=1",
    "device=cpu",
    "checkpoint.every=0",
]
FAST = "actor.lr=5e-4"
ADD = f"model=nano task=addition {FAST}"
CARRY = f"model=novice task=addition {FAST}"
SPELL = "model=speller task=spelling"
MARK = f"model=blind task=marks {FAST}"
DOOR = f"model=nano task=key_door {FAST}"
TURNS = f"model=turns task=hi_lo {FAST}"
SUMS = (
    f'model=nano task=dataset task.template="{{question}}=" {FAST} '
    "rollout.max_new_tokens=5 task.path={data}/"
)

CONTROLS = {  # name: (recipe, words)
    "add": ("grpo", ADD),
    "add_mc": ("ppo_mc", ADD),
    "carry": ("grpo", CARRY),
    "carry_ppo": ("ppo_gae", CARRY + " estimator.lam=0.5"),
    "carry_td": ("ppo_gae", CARRY + " estimator.lam=0"),
    "carry_reward_kl": ("rloo", CARRY + " kl.place=reward kl.name=k1 kl.coef=0.2"),
    "carry_stale": ("grpo", CARRY + " rollout.staleness=2 correction=tis"),
    "carry_pg": ("rloo", CARRY + " policy_loss=surrogate"),
    "spell": ("ppo_gae", SPELL + " train.steps=40"),
    "spell_group": ("grpo", SPELL + " train.steps=40"),
    "mark": ("grpo", MARK + " train.steps=40 actor.lr=1e-3"),
    "door": ("ppo_mc", DOOR + " policy_loss=reinforce"),
    "turns": ("rloo", TURNS + " train.steps=40"),
    "plain": ("grpo", f"model=novice task=plain_sums rollout.max_new_tokens=5 {FAST}"),
    "file": ("grpo", SUMS + "sums.jsonl"),
}
CASES = [  # the thirty that count
    # components of one's own
    Case("table", "carry", "estimator=table_centred",
         "the estimator transposes its (prompts, samples) table before flattening it, so that "
         "advantages go to other rows"),
    Case("earned", "spell_group", "estimator=earned",
         "the estimator credits a token with the rewards before it instead of those after it"),
    Case("loo sum", "carry", "estimator=loo_sum",
         "the leave-one-out mean contains the sample's own reward (the sum of G over G - 1), so "
         "that a solved group is pushed down"),
    Case("td traces", "carry_ppo", "estimator=td_traces",
         "the estimator's TD error uses the value of the token before instead of the one after"),
    Case("ranks", "carry", "estimator=ranks",
         "the estimator takes argsort for ranks (it must be applied twice): unrelated to rewards"),
    Case("steady", "carry", "estimator=steady",
         "the smoothed scores are kept by row of the batch, so rows mix old scores of other "
         "prompts"),
    Case("anchored", "add", "policy_loss=anchored_clip",
         "the policy loss clips the ratio to the frozen reference instead of the old policy"),
    Case("next token", "door", "policy_loss=next_token_pg",
         "the policy loss shifts log-probs by one that are aligned: the first token never learns"),
    Case("cost", "carry_ppo", "value_loss=cost_mse",
         "the value loss has the sign of the return wrong: the critic learns -G"),
    Case("running gap", "carry_reward_kl", "kl.name=running_gap",
         "the KL penalty subtracts a token's reference log-prob from the whole response's sum"),
    Case("by answer", "carry", "rewards=[by_answer]",
         "the reward repeats the list of answers instead of each answer: wrong rows' answers"),
    Case("last found", "carry", "rewards=[last_found]",
         "the reward's pattern lacks a +: only the last digit is compared"),
    Case("word pay", "spell", "rewards=[word_pay]",
         "the reward pays a word at the token before the word (and the first at the end)"),
    Case("terse", "carry", "rewards=[terse]",
         "the reward subtracts in uint8: wrong and long wraps round to 255"),
    Case("same sums", "plain", "task=same_sums",
         "the task seeds its own generator: the same prompts in every step"),
    Case("cut sums", "plain", "task=cut_sums",
         "the task's is_correct compares only the first digit"),
    Case("one each", "carry", "aggregation=one_each",
         "the aggregation weighs only the last token of each response"),
    Case("bounded", "carry_stale", "correction=bounded_weights",
         "the correction is the log of the importance weight: the exp is missing"),
    Case("no tails", "mark", "sampler=no_tails",
         "the sampler squeezes the uniforms to .35 .. .65: samples are not the policy's"),
    # settings and data
    Case("grad norm", "carry", "actor.max_grad_norm=1e-6",
         "actor.max_grad_norm is so small that AdamW's eps swamps the gradient"),
    Case("critic first", "carry_ppo", "train.critic_warmup=30",
         "train.critic_warmup covers the whole run: the actor is never updated"),
    Case("short eval", "add", "eval.max_new_tokens=2",
         "eval.max_new_tokens cuts off the evaluations' responses, not the rollout's"),
    Case("hot", "add", "rollout.temperature=3",
         "rollout.temperature is 3: samples are noise, and the evaluated policy is another"),
    Case("discount", "door", "estimator.gamma=0.5",
         "estimator.gamma is .5: the reward for the key, 9 tokens later, is discounted to nothing"),
    Case("bonus", "carry", "actor.entropy_coef=0.5",
         "actor.entropy_coef is so large that the entropy bonus outweighs the reward"),
    Case("tied", "carry", "kl.coef=5",
         "kl.coef is so large that the policy cannot leave the reference"),
    Case("old policy", "carry", "rollout.staleness=20",
         "rollout.staleness is most of the run: samples come from a much older policy"),
    Case("joined", "file", "task.path={data}/joined.jsonl",
         "the file's answers are shifted by a row"),
    Case("few", "file", "task.path={data}/few.jsonl task.test_path={data}/few.jsonl",
         "test_path is the training file: held-out accuracy is training accuracy"),
    Case("mixed labels", "file", "task.path={data}/mixed.jsonl",
         "half of the file's rows have a wrong answer (off by one in the tens)"),
    # more that do harm: judged, not counted
    Case("regret", "carry", "estimator=regret",
         "the estimator's baseline is the group's best reward: no advantage is ever positive"),
    Case("flipped", "spell_group", "estimator=to_go_other_prompt",
         "the estimator flips the batch's rows: each gets the advantage of another row"),
    Case("abs weight", "carry", "policy_loss=weighted_likelihood",
         "the policy loss takes the absolute value of the advantage: bad samples are reinforced"),
    Case("whole steps", "carry_pg", "policy_loss=whole_steps",
         "the policy loss casts advantages to integers: most of them become 0"),
    Case("probability", "mark", "policy_loss=plain_probability",
         "the policy loss uses the probability instead of its log: rare tokens hardly learn"),
    Case("log gap", "carry_reward_kl", "kl.name=log_gap",
         "the KL penalty has the wrong sign: leaving the reference is rewarded"),
    Case("on the way", "carry", "rewards=[on_the_way]",
         "the reward tests answer.startswith(response): an empty or cut response is right"),
    Case("whole marks", "spell_group", "rewards=[whole_marks]",
         "the reward casts a fractional score to an integer: it is nearly always 0"),
    Case("share right", "carry", "rewards=[share_right]",
         "the reward compares the response with itself: it pays length, not rightness"),
    Case("late sums", "plain", "task=late_sums",
         "the task's answer is computed before the operands are drawn: that of another prompt"),
    Case("book sums", "plain", "task=book_sums",
         "the task ignores the split: held-out prompts are the training prompts"),
    Case("inverse length", "carry", "aggregation=inverse_length",
         "the aggregation's mask is inverted: weights lie on padding"),
    Case("trusted", "carry_stale", "correction=trusted_weights",
         "the correction keeps the tokens outside its interval and drops those within"),
    Case("by prompt", "mark", "sampler=by_prompt",
         "the sampler uses one noise for all samples of a prompt: they are identical"),
    Case("warmup", "carry", "actor.lr_warmup=2000",
         "actor.lr_warmup is far longer than the run: the learning rate stays near 0"),
    Case("decay", "add", "actor.weight_decay=20",
         "actor.weight_decay is so large that it shrinks the weights within the run"),
    Case("rate", "carry", "actor.lr=0.02",
         "actor.lr is far too large: the policy collapses"),
    Case("short", "add", "rollout.max_new_tokens=3",
         "rollout.max_new_tokens leaves no room for three digits and EOS, or two and EOS barely"),
    Case("cold", "carry", "rollout.temperature=0.1",
         "rollout.temperature is .1: a group's samples are alike, and there is no signal"),
    Case("floats", "file", "task.path={data}/floats.jsonl",
         "the file's answers are floats as text (42.0), which the exact checker compares"),
    Case("template", "file", 'task.template="{question}"',
         "the template lacks the = that ends a prompt as the model knows it"),
    Case("tags", "file", "task.response_pattern=<answer>(.*?)</answer>",
         "response_pattern looks for tags that the model never writes"),
    Case("operand", "file", "task.path={data}/worked.jsonl task.answer=solution "
         "task.answer_pattern=^(\\d+)",
         "answer_pattern takes the first operand out of the solution, not the result"),
]  # fmt: skip
HEALTHY = {  # name: (recipe, words)
    "grpo addition": ("grpo", f"{ADD} seed=1"),
    "ppo_gae carry": ("ppo_gae", f"{CARRY} seed=2"),
    "rloo hi_lo": ("rloo", f"{TURNS} train.steps=40 seed=1"),
    "dapo reverse": ("dapo", f"model=nano task=reverse {FAST}"),
    "dr_grpo marks": ("dr_grpo", f"{MARK} actor.lr=1e-3 train.steps=40"),
    "ppo_gae spelling": ("ppo_gae", f"{SPELL} train.steps=40 seed=1"),
    "gspo carry": ("gspo", CARRY),
    "cispo addition": ("cispo", ADD),
    "remax addition": ("remax", ADD),
    "reinforce_pp carry": ("reinforce_pp", CARRY),
    "maxrl carry": ("maxrl", CARRY),
    "raft addition": ("raft", ADD),
    "ppo_mc door": ("ppo_mc", DOOR),
    "gigpo hi_lo": ("gigpo", f"{TURNS} train.steps=40"),
    "opo reverse dense": ("opo", f"model=nano task=reverse_dense {FAST}"),
    "own estimator": ("grpo", f"{CARRY} estimator=median_centred"),
    "own loss": ("grpo", f"{CARRY} policy_loss=soft_clip seed=3"),
    "own reward": ("grpo", f"{CARRY} rewards=[partial]"),
    "own task": ("ppo_gae", f"model=nano task=plain_sums rollout.max_new_tokens=5 {FAST}"),
    "own correction": ("grpo", f"{CARRY} rollout.staleness=1 correction=capped_weights"),
}


def prepare(out: Path) -> None:
    rng = random.Random(4)
    pairs = [(rng.randrange(10, 100), rng.randrange(10, 100)) for _ in range(800)]
    right = [str(a + b) for a, b in pairs]

    def write(name: str, answers: list[str], **more: list[str]) -> None:
        rows = [
            {"question": f"{a}+{b}", "answer": c} for (a, b), c in zip(pairs, answers, strict=False)
        ]
        for key, values in more.items():
            for row, value in zip(rows, values, strict=True):
                row[key] = value
        write_rows(out / "data" / name, rows)

    write("sums.jsonl", right)
    write("floats.jsonl", [f"{c}.0" for c in right])
    write("joined.jsonl", right[1:] + right[:1])
    write("worked.jsonl", right, solution=[f"{a} and {b} make {a + b}" for a, b in pairs])
    write("few.jsonl", right[:24])
    write("mixed.jsonl", [str(int(c) + 10 * (i % 2)) for i, c in enumerate(right)])


SET = blind.Set(4, CASES, HEALTHY, SMALL, prepare, below(0.1), CONTROLS)
