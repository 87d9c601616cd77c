"""A fifth set of `doctor_blind.py`, by an author who had not read the doctor.

The keys below were written before any run was judged.

- **Harmful.** A fault counts only if its gain in held-out accuracy is at most 60 % of the
  control's, and it ends more than twice the binomial error of the difference below it.
  Of those that count, the first 30 in the order of `CASES` are the examination.
- **Healthy.** The gain is above twice its binomial error and at least 60 % of the gain of the
  control of the same task and model. The first 20 that are count.
- **Noticed**: a finding that is a warning or a problem, and not merely an accident of another
  matter: it says that the run does not learn, learns less, or has the fault's symptom.
- **Cause right**: the first finding, or the one that the doctor marks as the most likely cause,
  names a key or component of `keys` as what is to blame. A list of differences from the defaults,
  or of three or more suspects of which it is one, is not enough. An experiment counts if its
  outcome blames that key or component, and only that (or that and others that a user would remove
  with no harm: at most two).
- **Harmful remedy**: advice of the first finding, or of the marked cause, that keeps the fault and
  makes the run worse or hides it, as in `wrong`; or, when tried, ends below the faulty run by more
  than twice the binomial error.
- **False alarm**: a warning or problem on a healthy run. Notes and hints are none.

Outcome with the 81 rules of then: by reading, 28 of 30 noticed and 23 causes right; with
`--retrain` on the 11 without a sure cause, 29 and 27; no harmful remedy; no alarm on 20 healthy
runs. With seed 1, 28 of the 30 are harmful again (not "epsilon too large", whose control collapses,
and "cool sampler"), 19 of the 20 healthy, and 2 of these 19 are alarmed ("own weights and reward",
"seasoning, no KL").

Missed: over-trained start. Noticed without the cause: answers without carry (blames the held-out
prompts), pattern takes a digit (blames actor.lr; the experiment then clears task.answer_pattern,
since without the pattern the answers are worked ones). The experiments found: loss at the end,
only confident tokens, prompts cut at the start (by reading in the second finding), entropy with
the wrong sign (not noticed by reading). Close calls that count as right: wrong eos (the model or
the limit, not that it is EOS), cool sampler, only two marks. Of the 19 more that do not count, by
reading, two were missed (adapter without effect, digits rotated) and three noticed without the
cause (layers swapped, sum or difference, stops after two).
"""

import json
import math
import random
import re
import shutil
from pathlib import Path

import doctor_blind as blind
from doctor_blind import write_rows

SAMPLES = 256  # of an evaluation
SMALL = [
    "rollout.prompts=16",
    "rollout.samples=8",
    "train.steps=24",
    f"eval.samples={SAMPLES}",
    "eval.every=8",
    "run.threads=1",
    "device=cpu",
    "checkpoint.every=0",
]
FILE = (
    'model=novice task=dataset task.template="{question}=" rollout.max_new_tokens=5 actor.lr=7e-4'
)


def Case(name, base, fault, cause, keys, wrong):
    """`keys`: what must be named, any of these; `wrong`: remedies that keep the fault and make it
    worse, or hide it."""
    words = (re.escape(w) for w in map(str.strip, keys.split(",")) if " " not in w)
    return blind.Case(name, base, fault, f"{cause} To name: {keys}. Not: {wrong}", "|".join(words))


CONTROLS = {  # name: (recipe, words)
    "carry": ("grpo", "model=novice task=addition actor.lr=7e-4"),
    "carry_ppo": ("ppo_gae", "model=novice task=addition actor.lr=5e-4"),
    "carry_pp": ("reinforce_pp", "model=novice task=addition actor.lr=5e-4"),
    "carry_lora": (
        "grpo",
        "model=novice task=addition actor.lr=3e-3 model.lora.rank=8 model.lora.alpha=16",
    ),
    "letters": ("ppo_gae", "model=speller task=spelling"),
    "commands": ("grpo", "model=blind task=marks actor.lr=7e-4"),
    "commands_mc": ("ppo_mc", "model=blind task=marks actor.lr=7e-4"),
    "sums": ("dr_grpo", "model=nano task=addition actor.lr=5e-4"),
    "mirror": ("reinforce_pp", "model=nano task=reverse_dense actor.lr=5e-4"),
    "guess": ("grpo", "model=turns task=hi_lo actor.lr=7e-4"),
    "doors": ("ppo_mc", "model=nano task=key_door actor.lr=7e-4"),
    "spice": ("grpo", "model=nano task=seasoning actor.lr=7e-4"),
    "file": (
        "rloo",
        f"{FILE} task.path={{data}}/a/train.jsonl task.test_path={{data}}/a/test.jsonl",
    ),
}
CASES = [  # the first 30 that are harmful are the examination
    Case("warm-up longer than the run", "carry", "actor.lr_warmup=400",
         "The learning rate warms up over 400 steps, but the run has 24.", "actor.lr_warmup",
         "raise lr_warmup; lower actor.lr"),
    Case("argsort once", "commands", "estimator=ranked",
         "The estimator ranks with one argsort, so the advantages are an order of rows, not "
         "ranks.", "estimator, ranked", "change the loss or the data; lower actor.lr"),
    Case("answers without carry", "file", "task.path={data}/b/train.jsonl",
         "The training file's answers were computed without carry, so training rewards the "
         "mistake.", "task.path, the answers of the data", "train longer; raise actor.lr"),
    Case("controller runs away", "carry_ppo",
         "kl.controller=adaptive kl.target=0.002 kl.horizon=40",
         "The adaptive KL controller has a tiny target and horizon, and its coefficient grows "
         "fast.", "kl.controller, kl.target, kl.horizon, kl.coef",
         "lower kl.target; raise kl.coef"),
    Case("ratio upside down", "carry", "policy_loss=two_sided",
         "The loss takes pi_old / pi, so its gradient has the wrong sign.",
         "policy_loss, two_sided", "raise actor.lr; train longer; more epochs"),
    Case("well-formed is right", "carry", "rewards=[checked]",
         "The reward pays every response of digits as if it were right, so all score the same.",
         "rewards.checked", "raise actor.lr; a higher entropy bonus only"),
    Case("nucleus too small", "commands", "rollout.top_p=0.3",
         "Sampling from a nucleus of 0.3 never tries most commands.", "rollout.top_p",
         "lower rollout.temperature or rollout.top_p"),
    Case("returns of the past", "carry_pp", "estimator=return_per_token",
         "The estimator sums the rewards up to a token instead of from it on.",
         "estimator, return_per_token", "raise actor.lr; remove whitening"),
    Case("wrong eos", "sums", "model.path={models}/m1",
         "The model's config has another token than its own as EOS, so no response ends rightly.",
         "model.path, eos_token_id", "a lower rollout.max_new_tokens"),
    Case("critic pretrains all run", "carry_ppo", "train.critic_warmup=21",
         "The actor is trained only in the last 3 of 24 steps: the critic's warm-up takes 21.",
         "train.critic_warmup", "raise critic_warmup; lower actor.lr"),
    Case("loss at the end", "carry", "aggregation=outcome_token",
         "The aggregation gives weight only to each row's last token, so no digit is trained.",
         "aggregation, outcome_token", "raise actor.lr; a longer run"),
    Case("pattern takes a digit", "file",
         "task.path={data}/c/train.jsonl task.test_path={data}/c/test.jsonl "
         "task.answer_pattern=(\\d)",
         "answer_pattern takes only the last digit of the worked answer as the right answer.",
         "task.answer_pattern, the data's answers", "shorter responses; train on"),
    Case("entropy bonus too large", "commands", "actor.entropy_coef=0.5",
         "The entropy bonus outweighs the reward.", "actor.entropy_coef",
         "raise entropy_coef or temperature"),
    Case("values added", "letters", "estimator=from_critic",
         "The loop of GAE has the values' signs swapped: it adds V_t and subtracts V_{t+1}.",
         "estimator, from_critic", "a higher critic.lr only; raise actor.lr"),
    Case("beginnings pay", "carry", "task=totals rollout.max_new_tokens=5",
         "The task's score pays any beginning of the answer, the empty one too.",
         "task, totals, the task's score", "more training; a higher actor.lr"),
    Case("copied clip", "guess", "policy_loss.clip_low=3e-4 policy_loss.clip_high=4e-4",
         "GSPO's clip is used with a loss that clips per token.",
         "policy_loss.clip_low, policy_loss.clip_high", "lower the clip; more epochs"),
    Case("only confident tokens", "commands", "correction=confident",
         "The correction drops the tokens that the policy is unsure of: those that must be "
         "learned.", "correction, confident", "lower the temperature"),
    Case("over-trained start", "carry", "model.path={models}/m2",
         "The base model is nearly deterministic: samples of a prompt are equal.",
         "model.path (the base has no entropy), rollout.temperature", "lower the temperature"),
    Case("epsilon too large", "mirror", "actor.eps=0.02",
         "AdamW's eps is larger than the gradients, so steps are tiny.", "actor.eps",
         "lower actor.lr; raise eps"),
    Case("same seed per request", "carry", "sampler=repeatable",
         "The sampler uses the same random numbers in each row, so a group's samples are equal.",
         "sampler, repeatable", "a larger group only; lower temperature"),
    Case("odd answers inverted", "sums", "rewards=[odd_ones]",
         "The reward is inverted for prompts whose answer is odd.", "rewards.odd_ones",
         "raise actor.lr; train longer"),
    Case("norm limit too small", "sums", "actor.max_grad_norm=1e-5",
         "The gradient norm limit is so small that AdamW's eps dominates.", "actor.max_grad_norm",
         "lower max_grad_norm; lower actor.lr"),
    Case("shifted labels", "carry", "estimator=label_shift",
         "The estimator shifts the advantages by one token, so the first token is never trained.",
         "estimator, label_shift", "raise actor.lr"),
    Case("prompts cut at the start", "file", "task.max_prompt=4 task.too_long=cut_start",
         "Prompts longer than 4 tokens lose their beginning, and with it the first number.",
         "task.max_prompt, task.too_long", "lower max_prompt; train longer"),
    Case("old policy", "guess", "rollout.staleness=16",
         "Responses come from the policy of 16 steps ago.", "rollout.staleness",
         "more epochs; raise staleness; raise actor.lr"),
    Case("entropy with the wrong sign", "commands",
         "policy_loss=with_entropy policy_loss.bonus=0.5",
         "The loss adds the entropy instead of subtracting it, and so reduces it.",
         "policy_loss, with_entropy, policy_loss.bonus", "raise bonus; lower temperature"),
    Case("scores arrive late", "carry", "rewards=[queued]",
         "Scores are those of the previous batch.", "rewards.queued",
         "raise actor.lr; larger batches only"),
    Case("value loss rules the trunk", "letters", "critic.trunk=shared critic.coef=200",
         "With a shared trunk, the value loss's coefficient of 200 swamps the policy's gradient.",
         "critic.coef, critic.trunk", "raise critic.coef"),
    Case("weights upside down", "sums", "policy_loss=tempered_awr policy_loss.beta=0.5",
         "The advantage-weighted loss has exp(-A / beta), so bad responses weigh most.",
         "policy_loss, tempered_awr", "lower beta; raise actor.lr"),
    Case("minus in training prompts", "sums", "task=ledger rollout.max_new_tokens=5",
         "Training prompts have a minus where held-out prompts have a plus.",
         "task, ledger, the task's prompts", "raise actor.lr"),
    Case("evaluation too hot", "carry", "eval.temperature=3.0",
         "Evaluations sample at temperature 3 and hide what the policy learned.",
         "eval.temperature", "raise actor.lr; lower rollout.temperature"),
    Case("cool sampler", "carry", "sampler=focused",
         "The sampler draws at temperature 0.25, but reports the log-probs at 1.",
         "sampler, focused", "lower temperature; raise actor.lr"),
    Case("only two marks", "commands", "task=stamps rollout.max_new_tokens=7",
         "Training prompts have only the marks A and B, held-out ones all four.",
         "task, stamps, the task's prompts", "train longer; raise actor.lr"),
    Case("no loss on policy", "doors", "policy_loss=trust_ratio",
         "The loss has a gradient only where the ratio has left the interval; it starts at 1.",
         "policy_loss, trust_ratio", "lower actor.lr"),
    Case("answers shuffled", "file", "task.path={data}/d/train.jsonl",
         "The training file's answers were sorted apart from the questions.",
         "task.path, the answers of the data", "train longer; raise actor.lr"),
    Case("too hot", "sums", "rollout.temperature=4.0",
         "Responses are sampled at temperature 4 and are nearly random.", "rollout.temperature",
         "raise temperature; add an entropy bonus"),
    Case("paid to drift", "carry_ppo", "kl=drift kl.coef=0.5",
         "The KL penalty has the wrong sign, so the policy is paid for leaving the reference.",
         "kl.name, drift, kl.coef", "raise kl.coef"),
    Case("layers swapped", "sums", "model.path={models}/m3",
         "The two layers of the model were swapped in conversion, so it answers nothing rightly.",
         "model.path, the base model", "lower actor.lr"),
    Case("adapter without effect", "carry_lora", "model.lora.alpha=0.02",
         "The adapters are scaled by 0.02 / 8.", "model.lora.alpha",
         "lower lora.alpha; raise the rank only"),
    Case("pays for length", "carry", "rewards=[thorough] rollout.max_new_tokens=12",
         "The reward pays 0.4 for each character, so long responses win over right ones.",
         "rewards.thorough", "raise rollout.max_new_tokens"),
    Case("hard prompts only", "sums", "estimator=hard_first",
         "The weight for hard prompts becomes negative where more than a quarter is right.",
         "estimator, hard_first", "raise actor.lr"),
    Case("reinforce off policy", "commands_mc",
         "policy_loss=reinforce train.epochs=10 actor.lr=4e-3",
         "A loss without ratio or clip takes 40 large steps on each batch.",
         "policy_loss, train.epochs, actor.lr", "more epochs; raise actor.lr"),
    Case("sum or difference", "file", "task.path={data}/e/train.jsonl",
         "Each training question is there twice, once with a wrong answer that is more common.",
         "task.path, the answers of the data", "raise actor.lr"),
    Case("stops after two", "sums", "sampler=short",
         "The sampler draws only two tokens, so no response of two digits can end.",
         "sampler, short", "lower rollout.max_new_tokens"),
    Case("limit too short", "guess", "rollout.max_new_tokens=9",
         "The length limit cuts conversations before the last guesses.", "rollout.max_new_tokens",
         "lower it; a truncation penalty"),
    Case("new answers only", "carry", "rewards=[novel]",
         "The reward pays a right answer only the first time that any run of the process saw it.",
         "rewards.novel", "train longer"),
    Case("critic cannot move", "letters", "critic.lr=1e-6 estimator.lam=0.3",
         "The critic hardly learns, and lam=0.3 relies on it.", "critic.lr, estimator.lam",
         "lower lam; lower critic.lr"),
    Case("anchored critic", "letters", "value_loss=anchored estimator.lam=0.3",
         "The value loss holds the critic at its old values, and lam=0.3 relies on it.",
         "value_loss, anchored, estimator.lam", "lower lam"),
    Case("digits rotated", "sums", "model.path={models}/m4",
         "The tokenizer is another one than the model was trained with: its digits are rotated.",
         "model.path, the tokenizer", "raise actor.lr"),
    Case("answers on another row", "sums", "task=sheet rollout.max_new_tokens=5",
         "The task's score sorts the answers, so rows are compared with others' answers.",
         "task, sheet, the task's score", "raise actor.lr"),
    Case("short pays", "guess", "rewards.overlong={max_length:6,buffer:4,weight:3.0}",
         "The length penalty is larger than the reward and begins below the answers' length.",
         "rewards.overlong", "a larger weight; a lower limit"),
    Case("easy prompts only", "file", "task.path={data}/f/train.jsonl",
         "The training file has only sums without carry, which the model can do already.",
         "task.path, the prompts of the data", "raise actor.lr"),
    Case("regrets", "commands", "estimator=to_best",
         "The estimator subtracts the group's best, so nothing is ever reinforced.",
         "estimator, to_best", "raise actor.lr"),
    Case("coarse sampler", "commands", "sampler=rounded sampler.bits=3 sampler.noise=0.5",
         "The sampler's weights are rounded to 3 bits with noise: it samples from another policy.",
         "sampler, sampler.bits, sampler.noise", "fewer bits; lower actor.lr"),
    Case("any digits of it", "carry", "rewards=[digits_match]",
         "The reward pays any response whose digits occur in the answer, in any number.",
         "rewards.digits_match", "raise actor.lr"),
]  # fmt: skip

HEALTHY = {  # name: (recipe, words)
    "cispo carry": ("cispo", "model=novice task=addition actor.lr=7e-4"),
    "vargrad carry": ("vargrad", "model=novice task=addition actor.lr=7e-4"),
    "opo marks": ("opo", "model=blind task=marks actor.lr=1e-3 train.minibatches=2"),
    "pkpo marks": ("pkpo", "model=blind task=marks actor.lr=1e-3"),
    "maxrl carry": ("maxrl", "model=novice task=addition actor.lr=7e-4 seed=3"),
    "raft carry": ("raft", "model=novice task=addition actor.lr=2e-3"),
    "remax sums": ("remax", "model=nano task=addition actor.lr=1e-3"),
    "sapo guess": ("sapo", "model=turns task=hi_lo actor.lr=7e-4"),
    "turn_gae guess": ("turn_gae", "actor.lr=7e-4"),
    "gpg mirror": ("gpg", "model=nano task=reverse_dense actor.lr=1.5e-3"),
    "constant bonus": (
        "grpo",
        "model=novice task=addition actor.lr=7e-4 rewards.regex.pattern=.* "
        "rewards.regex.weight=2.0",
    ),
    "few prompts, many samples": (
        "rloo",
        "model=novice task=addition actor.lr=7e-4 rollout.prompts=8 rollout.samples=16",
    ),
    "many prompts, two samples": (
        "rloo",
        "model=blind task=marks actor.lr=7e-4 rollout.prompts=64 rollout.samples=2",
    ),
    "warmer": ("dr_grpo", "model=novice task=addition actor.lr=7e-4 rollout.temperature=1.2"),
    "cosine and betas": (
        "cfpo",
        "model=novice task=addition actor.lr=1.5e-3 actor.lr_schedule=cosine actor.lr_warmup=3 "
        "actor.betas=[0.9,0.95] actor.weight_decay=0.1",
    ),
    "shared trunk": ("ppo_gae", "model=speller task=spelling critic.trunk=shared critic.coef=0.1"),
    "adapters": (
        "dr_grpo",
        "model=novice task=addition actor.lr=5e-3 model.lora.rank=4 model.lora.alpha=8",
    ),
    "rounded with tis": (
        "grpo",
        "model=nano task=key_door actor.lr=7e-4 sampler=rounded sampler.bits=8 correction=tis",
    ),
    "one step old": ("grpo", "model=turns task=hi_lo actor.lr=7e-4 rollout.staleness=1"),
    "own baseline": ("grpo", "model=blind task=marks actor.lr=7e-4 estimator=batch_centred"),
    "own weights and reward": (
        "grpo",
        "model=novice task=addition actor.lr=7e-4 aggregation=by_root rewards=[graded]",
    ),
    "own loss and task": (
        "rloo",
        "model=novice task=middle actor.lr=1e-3 policy_loss=log_ratio train.minibatches=1 "
        "rollout.max_new_tokens=5",
    ),
    "own file": (
        "reinforce_pp_baseline",
        f"{FILE} task.path={{data}}/a/train.jsonl task.test_path={{data}}/a/test.jsonl",
    ),
    "seasoning, no KL": ("grpo", "model=nano task=seasoning actor.lr=1e-3 kl.place=none"),
    "high lambda critic": (
        "vapo",
        "model=blind task=marks actor.lr=7e-4 train.critic_warmup=2",
    ),
    "dapo sums": ("dapo", "model=nano task=addition actor.lr=7e-4"),
    "softmax marks": ("softmax_grpo", "model=blind task=marks actor.lr=1e-3"),
    "up, two epochs": ("up", "model=novice task=addition actor.lr=5e-4 train.epochs=2"),
    "linear decay": (
        "ppo_gae",
        "model=novice task=addition actor.lr=1.5e-3 actor.lr_schedule=linear actor.lr_warmup=2 "
        "actor.eps=1e-5 critic.lr=3e-3",
    ),
    "tight on doors": ("grpo", "model=nano task=key_door actor.lr=1e-3 policy_loss.clip_high=0.1"),
}
UNHEALTHY = {  # they learn less than the rule above demands
    "vargrad carry",
    "opo marks",
    "raft carry",
    "few prompts, many samples",
    "cosine and betas",
    "high lambda critic",
}

# By the keys above and the rules that doctor_ablation.py left: the rule of the first finding above
# a note, or "", and whether the fault was noticed (n), its cause right by reading (r), or only by
# experiments (e, with the rules of before). A run whose first rule is another one now is marked.
VERDICTS = {
    "warm-up longer than the run": ("optimizer_setting_is_harmful", "nr"),
    "argsort once": ("component_fails_its_check", "nr"),
    "answers without carry": ("data_differ_before_training", "n"),  # blames held-out prompts
    "controller runs away": ("kl_too_strong", "nr"),
    "ratio upside down": ("component_fails_its_check", "nr"),
    "well-formed is right": ("component_fails_its_check", "nr"),
    "nucleus too small": ("sampler_and_policy_disagree", "nr"),
    "returns of the past": ("component_fails_its_check", "nr"),
    "wrong eos": ("length_limit_too_short", "nr"),  # it asks for the end-of-sequence token
    "critic pretrains all run": ("actor_not_trained", "nr"),
    "loss at the end": ("kl_exploding", "nr"),  # as the most likely suspect
    "pattern takes a digit": (
        "no_signal_in_groups",
        "n",
    ),  # experiments say: no setting
    "entropy bonus too large": ("entropy_bonus_too_strong", "nr"),
    "values added": ("component_fails_its_check", "nr"),
    "copied clip": ("clip_too_narrow", "nr"),
    "only confident tokens": ("update_too_large", "ne"),
    "over-trained start": ("update_too_large", "n"),
    "epsilon too large": ("optimizer_setting_is_harmful", "nr"),
    "same seed per request": ("samples_are_copies", "nr"),
    "odd answers inverted": ("component_fails_its_check", "nr"),
    "norm limit too small": ("optimizer_setting_is_harmful", "nr"),
    "shifted labels": ("component_fails_its_check", "nr"),
    "prompts cut at the start": ("prompts_are_cut", "nr"),
    "entropy with the wrong sign": ("", "e"),
    "scores arrive late": ("component_fails_its_check", "nr"),
    "value loss rules the trunk": ("kl_exploding", "nr"),
    "weights upside down": ("component_fails_its_check", "nr"),
    "evaluation too hot": ("evaluation_samples_differently", "nr"),
    "cool sampler": ("sampler_and_policy_disagree", "nr"),  # names temperature among three
    "only two marks": ("training_and_held_out_differ", "nr"),
}


def write_data(data: Path) -> None:
    rng = random.Random(5)
    pairs = sorted({(rng.randrange(100), rng.randrange(100)) for _ in range(1400)})
    rng.shuffle(pairs)
    test, train = pairs[:300], pairs[300:]

    def plain(a: int, b: int) -> str:
        return str(a + b)

    def careless(a: int, b: int) -> str:
        return str((a // 10 + b // 10) % 10 * 10 + (a + b) % 10)

    def save(path: str, rows: list[tuple[int, int]], answers: list[str]) -> None:
        write_rows(data / path, ({"question": f"{a}+{b}", "answer": c}
                                 for (a, b), c in zip(rows, answers, strict=True)))  # fmt: skip

    def all_of(pairs: list[tuple[int, int]], how: object) -> list[str]:
        return [how(a, b) for a, b in pairs]  # type: ignore[operator]

    save("a/train.jsonl", train, all_of(train, plain))
    save("a/test.jsonl", test, all_of(test, plain))
    save("b/train.jsonl", train, all_of(train, careless))
    for name, rows in (("train", train), ("test", test)):
        save(f"c/{name}.jsonl", rows, [f"{a}+{b}={a + b}" for a, b in rows])
    save("d/train.jsonl", train, sorted(all_of(train, plain), key=int))
    thrice = [(p, how(*p)) for p in train for how in (plain, careless, careless)]
    rng.shuffle(thrice)
    save("e/train.jsonl", [p for p, _ in thrice], [c for _, c in thrice])
    easy = [(a, b) for a, b in train if a % 10 + b % 10 < 10 and a // 10 + b // 10 < 10]
    save("f/train.jsonl", easy, all_of(easy, plain))


def write_models(models: Path) -> None:
    from safetensors.torch import load_file, save_file

    shipped = blind.HERE.parents[1] / "configs" / "model"

    def change(name: str, source: str) -> Path:
        shutil.copytree(shipped / source, models / name, dirs_exist_ok=True)
        return models / name

    def edit(file: Path, how: object) -> None:
        document = json.loads(file.read_text())
        how(document)  # type: ignore[operator]
        file.write_text(json.dumps(document, indent=1))

    m1 = change("m1", "nano")  # the config of another vocabulary
    for file in ("config.json", "generation_config.json"):
        edit(m1 / file, lambda d: d.update(eos_token_id=2))
    edit(m1 / "tokenizer_config.json", lambda d: d.update(eos_token="<unk>"))
    m2 = change("m2", "novice")  # logits eight times as large
    weights = load_file(m2 / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * 8
    save_file(weights, m2 / "model.safetensors", {"format": "pt"})
    m3 = change("m3", "nano")  # layers 0 and 1 swapped
    swap = {"0": "1", "1": "0"}
    weights = {
        re.sub(r"layers\.(\d)", lambda m: f"layers.{swap[m[1]]}", k): v
        for k, v in load_file(m3 / "model.safetensors").items()
    }
    save_file(weights, m3 / "model.safetensors", {"format": "pt"})
    m4 = change("m4", "nano")

    def rotate(document: dict) -> None:
        vocab = document["model"]["vocab"]
        old = dict(vocab)
        for d in range(10):
            vocab[str(d)] = old[str((d + 1) % 10)]

    edit(m4 / "tokenizer.json", rotate)


def prepare(out: Path) -> None:
    write_data(out / "data")
    write_models(out / "models")


def harmful(control: list[float], faulty: list[float]) -> bool:
    """Whether a fault ends clearly below its control: the rule of this file's docstring."""
    p, q = control[-1], faulty[-1]
    error = math.sqrt((p * (1 - p) + q * (1 - q)) / SAMPLES)
    return q - control[0] <= 0.6 * (p - control[0]) and p - q > 2 * error


def rates(report: list[dict]) -> None:
    """The examination's rates, by VERDICTS, and which first findings differ from them."""
    rules = {row["name"]: [f["rule"] for f in blind.above_notes(row["findings"])] for row in report}
    for at, (name, (rule, verdict)) in enumerate(VERDICTS.items()):
        now = next(iter(rules.get(name, [])), "")
        mark = "" if now == rule else f"  CHANGED: {now or 'nothing'}; judge it again"
        print(f"{at:02} {verdict:3}{name:30}{rule}{mark}")
    count = len(VERDICTS)
    noticed = sum("n" in v for _, v in VERDICTS.values())
    after = sum(bool(v) for _, v in VERDICTS.values())
    right = sum("r" in v for _, v in VERDICTS.values())
    found = sum("r" in v or "e" in v for _, v in VERDICTS.values())
    print(f"reading: noticed {noticed} of {count}, cause right {right} of {count}")
    print(f"with experiments: noticed {after} of {count}, cause right {found} of {count}")
    sound = [row["name"] for row in report if "cause" not in row][:20]
    alarms = [name for name in sound if rules[name]]
    print(f"false alarms: {len(alarms)} of {len(sound)} healthy {alarms}")


SET = blind.Set(
    5, CASES, HEALTHY, SMALL, prepare, harmful, CONTROLS, idle=UNHEALTHY, numbered=True, rates=rates
)
