"""The first set of `doctor_blind.py`: faults on which no rule was written, and healthy runs.

A fault counts if the control learns and the fault ends 0.08 below it on held-out prompts: over two
standard errors of a difference of 256 responses.
Planted too, and dropped because they did no harm in 24 steps: duplicates unpaid, a baseline of one,
an entropy penalty, attention dropout, A*PO's beta times a thousand; and because the control did not
learn: a critic trained on other rows (key_door, lam=.5), SDPO on any answer.

The first sitting, of 42 rules that had not seen these cases, read by the sentences: of 32 faults 22
noticed, 5 causes right (template, int reward, whitened by row, KL without reference, LoRA alpha;
the keys also match `values swapped`, where the critic was blamed), 5 with harmful advice, 0 of 20
healthy runs alarmed. A doctor that was changed after reading this table is examined by another.
The criteria were written before any finding was seen.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import doctor_blind as blind
from doctor_blind import below, numbered, write_rows

CONFIGS = blind.HERE.parents[1] / "configs"
SMALL = [
    "rollout.prompts=16",
    "train.steps=24",
    "eval.samples=256",
    "eval.every=8",
    "device=cpu",
    "checkpoint.every=0",
    "run.threads=1",
]
A = "task=addition model=nano"
K = "task=key_door model=nano"
S = "task=spelling model=speller estimator.lam=0.8"
D = "task=reverse_dense model=nano"
T = "task=hi_lo model=turns actor.lr=5e-4"
LORA = f"{A} model.lora.rank=8 actor.lr=2e-3"
FILE = "model=nano task=dataset rollout.max_new_tokens=5 task.test_path={data}/held_out.jsonl"
PLAIN = f"{FILE} task.path={{data}}/train.jsonl"
BARE = (
    "model=nano task=dataset rollout.max_new_tokens=5 "
    "task.path={data}/bare.jsonl task.test_path={data}/bare_held_out.jsonl"
)


def Case(name, planted, recipe, base, fault, right, keys,
         harmful=r"[Rr]aise actor\.lr|[Ll]ower actor\.lr|[Tt]urn the sign",
         false=False):  # fmt: skip
    """A fault whose first finding should be `right`."""
    return blind.Case(name, (recipe, base), fault, f"{planted}; right: {right}", keys, harmful,
                      false)  # fmt: skip


def only(name):
    return f"rewards={name}"


CASES = [
    # data
    Case("easy prompts", "trained on sums of one digit, held out are sums of two", "grpo", PLAIN,
         "task.path={data}/easy.jsonl",
         "training prompts are too easy or are solved already, or they differ from the held-out",
         r"easy|solved|already|all right|differ|distribution|no_signal"),
    Case("answer in prompt", "training prompts hold the answer, held-out ones do not", "ppo_gae",
         PLAIN, "task.path={data}/leak.jsonl",
         "training and held-out prompts differ, or learning does not carry over to held-out ones",
         r"leak|differ|generali|held.out|prompts"),
    Case("template", "the prompt template ends with a line end where the base wants `=`", "grpo",
         BARE + " task.template='{question}='", 'task.template="{question}\\n"',
         "the prompt's form, the template, or a base that is (almost) never right on these prompts",
         r"template|form|never right|hardly|no_response_is_right|too hard|base"),
    Case("prompts cut", "task.max_prompt=4 cuts the start of each prompt", "ppo_gae", PLAIN,
         "task.max_prompt=4 task.too_long=cut_start",
         "prompts are cut, or task.max_prompt or task.too_long",
         r"max_prompt|too_long|\bcut\b"),
    # rewards
    Case("cached reward", "a cache whose key is the prompt: all samples of a prompt get one score",
         "grpo", A, only("match_cached"),
         "the samples of a prompt all get the same score, whatever they are",
         r"same (score|reward)|no_signal|equal|within"),
    Case("slow verifier", "responses over two characters time out and score 0", "ppo_gae", A,
         only("match_quick"),
         "the reward is not what is right: right responses get 0, the long ones",
         r"not what is right|reward_is_not|long|length"),
    Case("quota", "the reward service answers 0 from step 7 on", "rloo", A, only("match_quota"),
         "the reward became constant or 0 at some step, or it fell suddenly and differs from right",
         r"constant|from step|since|same|not what is right|reward_falling"),
    Case("int reward", "a cast to int makes every share below 1 a 0", "ppo_gae", D, only("whole"),
         "the reward is 0 on (almost) all responses", r"constant|always 0|same|all 0|zero|rarely"),
    Case("capped reward", "the reward of a row is capped at .25", "ppo_gae", D, only("capped"),
         "the reward is at a ceiling, or hardly varies, or is not what is right",
         r"cap|ceiling|max|not what is right|saturat|same"),
    # estimators, losses, aggregations
    Case("sum over the past", "GAE sums TD errors of the past, not of the future", "ppo_gae", S,
         "estimator=gae_running estimator.lam=0.8",
         "the estimator, or advantages that do not follow what comes after the token",
         r"advantages?_|estimator"),
    Case("values swapped", "delta is r + V_t - V_{t+1}", "ppo_gae", S,
         "estimator=gae_swapped estimator.lam=0.8",
         "the estimator's sign of the values, or advantages or returns that do not fit the scores",
         r"advantages?_|estimator|critic_(worse|diverges|is_off)"),
    Case("size of the advantage", "GRPO's advantage without its sign", "grpo", A,
         "estimator=grpo_size", "advantages: their sign, or that they do not follow the scores",
         r"advantages?_|advantage"),
    Case("whitened by row", "each row's advantages are standardised by themselves", "ppo_gae", A,
         "estimator=gae_rows", "advantages, which do not follow the scores from row to row",
         r"advantages?_|advantage|whiten"),
    Case("first token unweighted", "the loss leaves out each response's first token", "ppo_gae", K,
         "aggregation=late_mean", "tokens are left out of the loss: the aggregation or a mask",
         r"aggregation|mask|first (token|action)"),
    Case("last token alone", "the loss counts each response's last token alone", "grpo", A,
         "aggregation=final_mean", "tokens are left out of the loss: the aggregation or a mask",
         r"aggregation|mask|last (token|action)"),
    Case("loss without advantages", "the loss is -log p: each sample is imitated", "rloo", A,
         "policy_loss=likely", "the policy loss: it does not follow the advantages",
         r"policy_loss|loss (does|ignores|is)"),
    Case("KL without reference", "the KL penalty forgets the reference: it is log p", "ppo_gae", A,
         "kl=log_ratio kl.place=reward kl.coef=0.3", "the KL penalty or its coefficient",
         r"\bkl|kl_|KL"),
    # optimizer, LoRA, correction, methods' own options
    Case("LoRA on one matrix", "rank 1 on k_proj alone", "grpo", LORA,
         "model.lora.rank=1 model.lora.targets=[k_proj]", "model.lora.rank or model.lora.targets",
         r"lora", r"[Ll]ower actor\.lr|[Tt]urn the sign"),
    Case("LoRA alpha", "model.lora.alpha=4000", "grpo", LORA, "model.lora.alpha=4000",
         "model.lora.alpha, or an update that is too large", r"lora|update_too_large|actor\.lr",
         r"[Rr]aise actor\.lr|[Tt]urn the sign"),
    Case("correction cap", "tis with cap 1e-6 multiplies the loss by 1e-6", "grpo",
         f"{A} correction.name=tis", "correction.cap=0.000001",
         "the correction, or its cap", r"correction|tis|\bcap\b"),
    # budget and early stops
    Case("KL stop", "stop.max_kl=0.0005 ends the run at once", "grpo", A, "stop.max_kl=0.0005",
         "the run ended early, by stop.max_kl", r"max_kl|stopped|ended|early"),
    Case("token budget", "train.tokens=1000 ends the run after a few steps", "rloo", A,
         "train.tokens=1000", "the run ended early, by train.tokens",
         r"train\.tokens|budget|ended|early|few steps|stopped"),
    Case("impatient stop", "stop.patience=1 with stop.min_delta=.2", "ppo_gae", A,
         "eval.every=4 stop.patience=1 stop.min_delta=0.2", "the run ended early, by stop.patience",
         r"patience|min_delta|stopped|ended|early"),
    # evaluation
    Case("hot evaluation", "eval.temperature=3", "grpo", A, "eval.temperature=3",
         "eval.temperature, or evaluation and training differ in how they sample",
         r"eval\.temperature|evaluat"),
    Case("short evaluation", "eval.max_new_tokens=2 cuts the answers", "ppo_gae", A,
         "eval.max_new_tokens=2", "eval.max_new_tokens, or evaluation cuts the answers",
         r"eval\.max_new_tokens|evaluat"),
    # model folders
    Case("digit ends", "the config lists the character 1 among the ends", "grpo", A,
         "model.path={models}/ends", "the end token, eos_token_id, or responses that end too early",
         r"eos|EOS|end(s|ed)? (token|too|early)|early"),
    Case("tokenizer of another", "the folder's tokenizer swaps 2 with 7 and 3 with 8", "grpo", A,
         "model.path={models}/swapped",
         "the model folder or tokenizer, or a base that is hardly ever right at the start",
         r"token|model|base|never right|no_response_is_right|hardly"),
    Case("base of another task", "model=speller is to add", "grpo", A, "model=speller",
         "the base is never right on this task: the model or the task is wrong",
         r"no_response_is_right|never right|base|model|hard|constant|same"),
    # conversations
    Case("first turn alone", "the loss counts the first turn alone", "ppo_gae", T,
         "policy_loss=clip_turn", "turns are left out of the loss: the policy loss or a mask",
         r"turn|policy_loss|mask"),
    Case("lying environment", "hi and lo change places, in training alone", "ppo_gae", T,
         "task=hi_lo_house rollout.max_new_tokens=26",
         "training and held-out differ: the environment, the task, or train up and held out down",
         r"differ|environment|task|held.out"),
    # teachers
    Case("teacher of another task", "the teacher is a speller", "opd", f"{A} model=novice",
         "teacher.name=speller", "the teacher: it is bad at this task", r"teacher",
         r"[Rr]aise actor\.lr|[Tt]urn the sign"),
    Case("teacher is the student", "the teacher is the model that is trained", "opd",
         f"{A} model=novice", "teacher.name=novice",
         "the teacher: it agrees with the student, so there is no signal", r"teacher|agree"),
]  # fmt: skip

HEALTHY = [
    ("grpo", "task=spelling model=speller"),
    ("rloo", "task=spelling model=speller"),
    ("dapo", "task=reverse model=nano"),
    ("drpo", A),
    ("delightful", A),
    ("high_entropy", A),
    ("vimpo", f"{A} rollout.prompts=8"),
    ("a_star_po", A),
    ("iw_opd", "task=addition model=novice"),
    ("vopd", "task=addition model=novice"),
    ("turn_clip", "actor.lr=5e-4"),
    ("ppo_gae", T),
    ("mopd", "task=addition model=novice"),
    ("vineppo", "task=reverse model=nano"),
    ("grpo", LORA),
    ("ppo_gae", PLAIN),
    ("remax", "task=reverse_dense model=nano"),
    ("gpg", f"{K} task.keys=8"),
    ("grpo", f"{A} rollout.staleness=1 correction.name=tis"),
    ("ppo_gae", f"{A} value_loss=bce"),
]


def prepare(out: Path) -> None:
    draw = random.Random(5)
    data, models = out / "data", out / "models"
    sums = [(a, b) for a in range(100) for b in range(100)]
    draw.shuffle(sums)
    held, train = sums[:1000], sums[1000:6000]
    small = [(a, b) for a in range(10) for b in range(10)]

    def plain(a, b):
        return {"prompt": f"{a}+{b}=", "answer": str(a + b)}

    def bare(a, b):
        return {"question": f"{a}+{b}", "answer": str(a + b)}

    def leak(a, b):
        return {"prompt": f"{a + b};{a}+{b}=", "answer": str(a + b)}

    for name, pairs, row in (
        ("train", train, plain), ("held_out", held, plain), ("easy", small, plain),
        ("leak", train, leak), ("bare", train, bare), ("bare_held_out", held, bare),
    ):  # fmt: skip
        write_rows(data / f"{name}.jsonl", (row(a, b) for a, b in pairs))
    for name in ("ends", "swapped"):
        shutil.copytree(CONFIGS / "model" / "nano", models / name, dirs_exist_ok=True)
    change(models / "ends" / "config.json", eos_token_id=[1, 21])
    change(models / "ends" / "generation_config.json", eos_token_id=[1, 21])
    file = models / "swapped" / "tokenizer.json"
    found = json.loads(file.read_text())
    words = json.loads((CONFIGS / "model" / "nano" / "tokenizer.json").read_text())
    words = words["model"]["vocab"]
    for a, b in ("27", "38"):
        found["model"]["vocab"][a], found["model"]["vocab"][b] = words[b], words[a]
    file.write_text(json.dumps(found))


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


SET = blind.Set(
    0, CASES, numbered(HEALTHY), SMALL, prepare, below(0.08, learns=True), seeds=(611, 745)
)
