"""A second blind examination of `rlzoo doctor`: other faults, other healthy runs.

    python tests/benchmarks/doctor_blind_1.py RUNS           # train what is not there yet
    python tests/benchmarks/doctor_blind_1.py RUNS --judge   # what the doctor finds in each run

The machinery, and what counts as a fault, are those of doctor_blind.py.

The first sitting: of 24 faults that did harm 19 noticed, 11 causes right by the first sentence, no
harmful advice; 3 of 20 healthy runs alarmed (one of them did fall, 0.97 to 0.84, in the end). The
rules of data, centred advantages, momentum and rounding were written after it.
"""

import json
import random
import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

import doctor_blind as blind  # noqa: E402
from doctor_blind import LORA, PLAIN, A, Case, D, S, T, only  # noqa: E402

COLS = (
    "model=nano task=dataset rollout.max_new_tokens=5 task.template='{a}+{b}=' "
    "task.path={data}/columns.jsonl task.test_path={data}/columns_held_out.jsonl"
)
R = "task=reverse model=nano"
TEN = f"{A} rewards=ten_more"

CASES = [
    # data
    Case("labels shifted", "each training prompt has the answer of the row before", "ppo_gae",
         PLAIN, "task.path={data}/shifted.jsonl",
         "the training answers are wrong, or training and held-out data differ",
         r"answer|label|data|differ|no_response_is_right|never right|hardly"),
    Case("wrong column", "task.answer names the column of the first operand", "grpo", COLS,
         "task.answer=a", "the answers are not those of the prompts: task.answer or the data",
         r"answer|column|never right|no_response_is_right|hardly|base"),
    Case("padded answers", "training answers have four digits, 0042", "rloo", PLAIN,
         "task.path={data}/padded.jsonl",
         "the training answers' form is not what responses look like, or differs from held-out",
         r"answer|form|differ|never right|no_response_is_right|hardly|constant|same"),
    Case("off by one", "a script wrote a+b+1 as the training answer", "reinforce_pp", PLAIN,
         "task.path={data}/off_by_one.jsonl",
         "the training answers are wrong, or train and held-out rules differ",
         r"answer|label|data|differ|train.*held|held.*train|never right|no_response_is_right"),
    Case("template twice", "task.template names the column a twice, b never", "dr_grpo", COLS,
         "task.template='{a}+{a}='",
         "the prompt does not hold what is asked: task.template, or a base that is never right",
         r"template|prompt|never right|no_response_is_right|hardly|answer|base"),
    Case("response pattern", "task.response_pattern takes one digit out of each response",
         "ppo_gae", PLAIN, r"task.response_pattern=(\d)",
         "task.response_pattern, or responses that are right are judged wrong",
         r"response_pattern|pattern|extract|never right|no_response_is_right|judged"),
    Case("held-out form", "held-out prompts lack the `=` that training prompts end with", "grpo",
         PLAIN, "task.test_path={data}/no_equals.jsonl",
         "held-out prompts differ from training prompts, in form or source",
         r"held.out|differ|test_path|generali|form"),
    Case("loader seeded anew", "the loader's seed is set at each call: 16 prompts, for ever",
         "ppo_gae", A, "task=addition_again rollout.max_new_tokens=5",
         "the same few prompts are trained on again and again",
         r"same prompts|few prompts|prompts? (are|is|come)|repeat|distinct|different prompt"),
    # rewards
    Case("first digit", "the reward looks at the first digit of the answer", "grpo", A,
         only("first_digit"), "the reward is not what is right: wrong responses are paid",
         r"not what is right|reward_is_not|verifier|reward"),
    Case("reward a batch late", "each batch gets the scores of the batch before", "rloo", A,
         only("late_score"), "scores are not those of these responses",
         r"not what is right|reward_is_not|reward"),
    Case("in, swapped", "the reward is `response in answer`: any part of the answer is right",
         "ppo_gae", A, only("part_of_answer"),
         "the reward is not what is right: wrong, short responses are paid",
         r"not what is right|reward_is_not|short|length|empty"),
    Case("time-outs paid", "a response that hits the limit counts as right", "grpo", A,
         only("right_or_cut"), "truncated responses are paid: the reward is not what is right",
         r"truncat|not what is right|reward_is_not|limit|cut"),
    Case("overlong at two", "rewards.overlong.max_length=2: all right sums are too long", "dapo", A,
         "rewards.overlong.max_length=2 rewards.overlong.weight=4",
         "rewards.overlong: its length or weight punishes right responses",
         r"overlong|length|short"),
    Case("case ignored", "the reward ignores case, in which alone words differ", "grpo",
         "task=spelling model=speller", only("caseless"),
         "the reward is (almost) the same for all responses",
         r"same|constant|no_signal|ceiling|all right|not what is right"),
    Case("offset unwhitened", "rewards of 10 and 11 without a baseline: whiten=none",
         "reinforce_pp", TEN, "whiten=none",
         "whiten, or no baseline: all advantages are positive",
         r"whiten|baseline|one sign|positive|offset|centred|mean"),
    # estimators
    Case("baseline twice", "the group's mean is subtracted twice", "dr_grpo", A,
         "estimator=baseline_twice",
         "the advantages: negative for right responses, or not centred",
         r"advantages?|baseline|centred|mean"),
    Case("leave-one-out sum", "the sum of the other rewards is the baseline, not their mean",
         "rloo", A, "estimator=rloo_sum",
         "the advantages: negative for right responses, or not centred",
         r"advantages?|baseline|centred|mean"),
    Case("advantages late", "each token gets the advantage of three tokens before", "ppo_gae", S,
         "estimator=gae_late estimator.lam=0.8",
         "advantages are shifted against tokens, or do not follow the rewards",
         r"advantages?_|shift|estimator|token"),
    Case("EOS not paid", "the estimator drops each response's last action and its reward",
         "ppo_gae", A, "estimator=gae_unended",
         "the estimator, or advantages that do not follow the scores",
         r"advantages?_|estimator|critic|last"),
    Case("teacher a token late", "the teacher's log-probs are shifted by one token", "opd",
         f"{A} model=novice", "estimator=opd_late",
         "teacher log-probs or advantages are not those of the tokens: estimator",
         r"teacher|advantages?_|estimator|shift", r"[Rr]aise actor\.lr|[Tt]urn the sign"),
    # losses
    Case("ratio upside down", "the ratio is old over new", "grpo", A,
         "policy_loss=clip_inverse",
         "the policy loss raises what it should lower: its sign or ratio",
         r"policy_loss|loss|ratio|wrong way|sign"),
    Case("ratio detached", "the ratio is detached: no gradient", "dr_grpo", A,
         "policy_loss=clip_detached", "the policy loss gives no gradient",
         r"policy_loss|gradient|does not (move|change|learn)|loss"),
    Case("bounds swapped", "clamp's bounds are swapped: ratio and advantage meet .8 alone",
         "ppo_gae", A, "policy_loss=clip_swapped",
         "the policy loss or its clipping: positive advantages have no gradient",
         r"policy_loss|clip|gradient"),
    Case("KL rewarded", "the KL penalty has the wrong sign: distance is paid", "reinforce_pp",
         f"{A} kl.coef=0.3", "kl=minus_k1 kl.place=reward kl.coef=0.3",
         "the KL penalty: its sign, or that it is negative", r"\bkl|kl_|KL"),
    Case("last turn alone", "the loss counts the last turn alone", "turn_gae",
         "rollout.prompts=16 actor.lr=5e-4", "policy_loss=clip_last_turn",
         "turns are left out of the loss: the policy loss or a mask", r"turn|policy_loss|mask"),
    # samplers
    Case("one seed", "all samples of a prompt are drawn with the same numbers", "grpo", A,
         "sampler=one_seed", "the samples of a prompt are the same: the sampler or its seed",
         r"same|sampler|identical|duplicate|no_signal|seed"),
    Case("half the numbers", "the sampler's uniform numbers end at .5", "cispo", A,
         "sampler=half", "the sampler does not sample from the policy",
         r"sampler|sampl|off.policy|evaluat"),
    Case("log-probs lost", "the sampler hands over old log-probs of zero", "ppo_gae", A,
         "sampler=forgetful rollout.old_log_probs=sampled",
         "old_log_probs or sampler_log_probs are wrong", r"old_log_probs|log.prob|sampler|ratio"),
    # settings
    Case("betas", "actor.betas=[0.9995,0.9995]: the momentum of the whole run", "grpo", A,
         "actor.betas=[0.9995,0.9995] actor.lr=1e-3",
         "actor.betas, or an update that is too large", r"betas|momentum|actor\.lr|too large",
         r"[Rr]aise actor\.lr|[Tt]urn the sign"),
    Case("bfloat16 weights", "model.dtype=bfloat16 rounds small steps away", "ppo_gae",
         f"{A} actor.lr=1e-4", "model.dtype=bfloat16",
         "model.dtype: updates are lost in rounding", r"dtype|bfloat16|precision|round"),
    Case("group of one", "rollout.samples=1: a group has nothing to compare with", "dr_grpo", A,
         "rollout.samples=1 rollout.prompts=64", "rollout.samples: groups of one give no signal",
         r"rollout\.samples|group|one sample|no_signal",),
    Case("minutes", "train.minutes=0.02 ends the run after a few steps", "rloo", A,
         "train.minutes=0.02", "the run ended early, by train.minutes",
         r"train\.minutes|budget|ended|early|few steps|stopped"),
    Case("many epochs, no ratio", "opo, without a ratio, takes 12 epochs of 4 mini-batches", "opo",
         A, "train.epochs=12 train.minibatches=4", "train.epochs or train.minibatches: too many "
         "steps on one batch for a loss without a ratio",
         r"train\.epochs|minibatches|epochs|off.policy", r"[Rr]aise actor\.lr|[Tt]urn the sign"),
    Case("stale samples", "rollout.staleness=16 in 24 steps", "ppo_gae", A,
         "rollout.staleness=16", "rollout.staleness: samples come from an old policy",
         r"staleness|stale|old policy|off.policy"),
    Case("long rows dropped", "truncated rows are dropped at a limit of four tokens; held-out "
         "responses have seven", "ppo_gae", R,
         "rollout.max_new_tokens=4 rollout.truncation=drop eval.max_new_tokens=7",
         "rollout.max_new_tokens or rollout.truncation: long responses are never learned from",
         r"max_new_tokens|truncat|drop|limit"),
    Case("inverted filter", "a filter keeps the groups without signal, drops the others", "gspo",
         A, "correction=flat_groups", "the correction weighs all signal with 0",
         r"correction|flat_groups|weigh|filter|no gradient|gradient"),
    Case("value loss over all", "critic.coef=3000 on a shared trunk", "ppo_gae",
         f"{A} critic.trunk=shared", "critic.coef=3000",
         "critic.coef: the value loss drowns the policy's on the shared trunk",
         r"critic\.coef|shared|trunk|value loss"),
]  # fmt: skip

HEALTHY = [
    *((recipe, A) for recipe in ("ripo", "cppo", "cfpo", "aspo", "up", "luspo", "deepseek_v3_2")),
    ("opd", f"{A} model=novice"),
    ("rloo", f"{LORA} model.lora.rank=4"),
    ("grpo", "task=reverse model=tiny"),
    ("dr_grpo", "task=spelling model=speller"),
    ("ppo_gae", "task=key_door model=tiny"),
    ("grpo", "task=marks model=blind actor.lr=1e-3"),
    ("reinforce_pp", D),
    ("ppo_gae", f"{S} critic.trunk=shared"),
    ("dapo", PLAIN),
    ("gspo", R),
    ("rloo", f"{A} eval.temperature=0.5"),
    ("grpo", f"{COLS} train.steps=14 eval.every=7"),
    ("grpo", f"{T} kl.coef=0"),
]


def prepare(out: Path) -> dict[str, str]:
    """The plugin, data and model folders that the cases name."""
    data = out / "data"
    names = blind_prepare(out)
    shutil.copy(Path(__file__).with_name("doctor_blind_1_plugin.py"), out / "house.py")
    draw = random.Random(11)
    sums = [(a, b) for a in range(100) for b in range(100)]
    draw.shuffle(sums)
    held, train = sums[:1000], sums[1000:6000]

    def write(name, rows):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def rows(pairs, answer=lambda a, b: str(a + b), end="="):
        return [{"prompt": f"{a}+{b}{end}", "answer": answer(a, b)} for a, b in pairs]

    def columns(pairs):
        return [{"a": str(a), "b": str(b), "answer": str(a + b)} for a, b in pairs]

    plain = rows(train)
    late = [plain[-1], *plain]
    write("shifted", [{**p, "answer": q["answer"]} for p, q in zip(plain, late, strict=False)])
    write("padded", rows(train, lambda a, b: f"{a + b:04}"))
    write("off_by_one", rows(train, lambda a, b: str(a + b + 1)))
    write("no_equals", rows(held, end=""))
    write("columns", columns(train))
    write("columns_held_out", columns(held))
    return names


blind_prepare = blind.prepare
blind.CASES, blind.HEALTHY, blind.prepare = CASES, HEALTHY, prepare

if __name__ == "__main__":
    blind.main()
