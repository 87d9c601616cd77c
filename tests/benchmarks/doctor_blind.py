"""A blind examination of `rlzoo doctor`: faults on which no rule was written, and healthy runs.

    python tests/benchmarks/doctor_blind.py RUNS           # train what is not there yet
    python tests/benchmarks/doctor_blind.py RUNS --judge   # what the doctor finds in each run
    python tests/benchmarks/doctor_blind.py RUNS --json findings.json

Each fault has a control: the same run without the fault. A fault counts if the control learns and
the fault ends HARM below it on held-out prompts; the others are listed as harmless, not judged.
Planted too, and dropped because they did no harm in 24 steps: duplicates unpaid, a baseline of one,
an entropy penalty, attention dropout, A*PO's beta times a thousand; and because the control did not
learn: a critic trained on other rows (key_door, lam=.5), SDPO on any answer.

The first sitting, of 42 rules that had not seen these cases, read by the sentences: of 32 faults 22
noticed, 5 causes right (template, int reward, whitened by row, KL without reference, LoRA alpha;
the keys also match `values swapped`, where the critic was blamed), 5 with harmful advice, 0 of 20
healthy runs alarmed. A doctor that was changed after reading this table is examined by another.
The criteria were written before any finding was seen. `cause`: whether the first warning or problem
matches `keys`; a reader decides by the sentence `right`, since words match by chance. `harmful`:
advice that matches would make the run worse, or send the user away from the fault.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[2])]

CONFIGS = Path(__file__).parents[2] / "configs"
HARM = 0.08  # of accuracy over 256 held-out responses: over two standard errors of a difference
SEED, HEALTHY_SEED = 611, 700  # of faults and their controls; of the first healthy run
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


class Case(NamedTuple):
    """`fault` is added to `base`, which is the control's. `right` and `keys` judge the first
    finding, `harmful` all advice."""

    name: str
    planted: str
    recipe: str
    base: str
    fault: str
    right: str
    keys: str
    harmful: str = r"[Rr]aise actor\.lr|[Ll]ower actor\.lr|[Tt]urn the sign"
    false: bool = False  # what is measured is false: a fault, wherever the curve ends


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


# ---------------------------------------------------------------- making the runs


def prepare(out: Path) -> dict[str, str]:
    """The plugin, data and model folders that the cases name."""
    import random

    draw = random.Random(5)
    data, models = out / "data", out / "models"
    for folder in (data, models):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("doctor_blind_plugin.py"), out / "house.py")
    sums = [(a, b) for a in range(100) for b in range(100)]
    draw.shuffle(sums)
    held, train = sums[:1000], sums[1000:6000]
    small = [(a, b) for a in range(10) for b in range(10)]

    def write(name, pairs, row):
        lines = [json.dumps(row(a, b)) for a, b in pairs]
        (data / f"{name}.jsonl").write_text("\n".join(lines) + "\n")

    def plain(a, b):
        return {"prompt": f"{a}+{b}=", "answer": str(a + b)}

    def bare(a, b):
        return {"question": f"{a}+{b}", "answer": str(a + b)}

    write("train", train, plain)
    write("held_out", held, plain)
    write("easy", small, plain)
    write("leak", train, lambda a, b: {"prompt": f"{a + b};{a}+{b}=", "answer": str(a + b)})
    write("bare", train, bare)
    write("bare_held_out", held, bare)
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
    return {"data": str(data), "models": str(models)}


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def slug(text: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", text.replace("{data}/", ""))[:120]


def jobs(out: Path) -> dict[Path, tuple[str, str]]:
    """Each run's folder, recipe and words: faults, their controls (once each), healthy runs."""
    found: dict[Path, tuple[str, str]] = {}
    for c in CASES:
        found[control_of(out, c)] = (c.recipe, c.base)
        found[out / "faults" / slug(c.name)] = (c.recipe, f"{c.base} {c.fault}")
    for i, (recipe, words) in enumerate(HEALTHY):
        found[out / "healthy" / f"{i:02}_{recipe}"] = (recipe, words)
    return found


def control_of(out: Path, c: Case) -> Path:
    return out / "controls" / slug(f"{c.recipe} {c.base}")


def train(folder: Path, recipe: str, words: list[str], zoo: Any) -> None:
    """In a fork, so that what a component keeps in memory dies with it."""
    import rlzoo

    folder.parent.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        warnings.simplefilter("ignore")
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            rlzoo.run(recipe, [*words, f"run.dir={folder}", "run.overwrite=true"], zoo=zoo)
    except rlzoo.RlzooError as error:
        folder.mkdir(exist_ok=True)
        (folder / "refused.txt").write_text(str(error))
    except Exception:  # the child's end, whatever it was: the parent goes on
        traceback.print_exc()
    finally:
        os._exit(0)


def train_all(out: Path, which: str) -> None:
    names = prepare(out)
    os.environ["RLZOO_PLUGINS"] = str(out / "house.py")
    import torch
    import transformers.models.auto.tokenization_auto
    import transformers.models.llama.modeling_llama  # noqa: F401

    import rlzoo
    import rlzoo.train.loop

    torch.set_num_threads(1)
    zoo = rlzoo.load_zoo()
    for i, (folder, (recipe, words)) in enumerate(jobs(out).items()):
        done = (folder / "summary.json").exists() or (folder / "refused.txt").exists()
        if done or not re.search(which, str(folder.relative_to(out))):
            continue
        began = sum(os.times()[:4])
        seed = f"seed={HEALTHY_SEED + i if 'healthy' in folder.parts else SEED}"
        filled = [re.sub(r"\{(data|models)\}", lambda m: names[m[1]], w) for w in words.split()]
        train(folder, recipe, [*SMALL, *filled, seed], zoo)
        spent = sum(os.times()[:4]) - began
        print(f"{spent:5.1f} s  {folder.relative_to(out)}  {curve(folder)}", flush=True)


# ---------------------------------------------------------------- judging


def curve(folder: Path) -> str | tuple[float, float]:
    """Held-out accuracy at the first and the last evaluation; the verifier's score without one."""
    if (folder / "refused.txt").exists():
        return (folder / "refused.txt").read_text()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [{"eval/reward/verifier": r["eval/score"], **r} for r in rows if "eval/score" in r]
    found = [r.get("eval/accuracy", r["eval/reward/verifier"]) for r in rows]
    return found[0], found[-1]


def judge(out: Path, only_these: str) -> dict[str, Any]:
    os.environ["RLZOO_PLUGINS"] = str(out / "house.py")
    import rlzoo

    def findings(folder):
        document = json.loads(json.dumps(dict(rlzoo.doctor(str(folder)))))
        return [f for f in document["findings"] if f["severity"] != "note"]

    report: dict[str, Any] = {"faults": [], "harmless": [], "healthy": []}
    for c in CASES:
        folder, control = out / "faults" / slug(c.name), control_of(out, c)
        if not re.search(only_these, c.name) or not folder.exists():
            continue
        begun, end = curve(control)
        row = {"name": c.name, "planted": c.planted, "right": c.right, "control": [begun, end]}
        if (folder / "refused.txt").exists():
            text = (folder / "refused.txt").read_text()
            found = [{"severity": "refused", "rule": "", "what": text, "advice": ""}]
        else:
            row["fault"] = curve(folder)
            if not c.false and min(end - begun, end - row["fault"][1]) < HARM:
                report["harmless"].append(row)
                continue
            found = findings(folder)
        first = f"{found[0]['rule']}: {found[0]['what']}" if found else ""
        row["findings"] = [{k: f[k] for k in ("severity", "rule", "what", "advice")} for f in found]
        row["noticed"] = bool(found)
        row["cause_by_keys"] = bool(found and re.search(c.keys, first))
        row["harmful_advice"] = [f["advice"] for f in found if re.search(c.harmful, f["advice"])]
        report["faults"].append(row)
    for i, (recipe, words) in enumerate(HEALTHY):
        folder = out / "healthy" / f"{i:02}_{recipe}"
        if folder.exists() and re.search(only_these, f"{recipe} {words}"):
            ends = curve(folder)
            report["healthy"].append({"run": f"{recipe} {words}", "ends": ends,
                                      "findings": findings(folder)})  # fmt: skip
    return report


def show(report: dict[str, Any]) -> None:
    for row in report["faults"]:
        print(f"\n{row['name']}: {row['planted']}")
        print(f"  control {row['control']}, fault {row.get('fault')}; right: {row['right']}")
        for f in row["findings"]:
            print(f"  {f['severity']} {f['rule']}: {f['what']}\n      try: {f['advice']}")
        print(f"  noticed {row['noticed']}, keys {row['cause_by_keys']}, "
              f"harmful {row['harmful_advice']}")  # fmt: skip
    for row in report["harmless"]:
        print(f"\nharmless, not judged: {row['name']} {row['fault']}, control {row['control']}")
    print()
    for row in report["healthy"]:
        said = "; ".join(f"{f['rule']}: {f['what']}" for f in row["findings"])
        print(f"{'ALARM' if said else 'ok   '} {row['run']} {row['ends']} {said}")
    n, rows = len(report["faults"]), report["faults"]
    print(f"\n{n} faults: {sum(r['noticed'] for r in rows)} noticed, "
          f"{sum(r['cause_by_keys'] for r in rows)} cause by keys, "
          f"{sum(bool(r['harmful_advice']) for r in rows)} with harmful advice; "
          f"{len(report['healthy'])} healthy: "
          f"{sum(bool(r['findings']) for r in report['healthy'])} alarmed")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--judge", action="store_true", help="train nothing")
    parser.add_argument("--only", default="", help="runs that match")
    parser.add_argument("--json", type=Path, help="write the findings there")
    asked = parser.parse_args()
    began = time.time()
    if not asked.judge and not asked.json:
        train_all(asked.runs.resolve(), asked.only)
        print(f"{time.time() - began:.0f} s, {sum(os.times()[:4]):.0f} CPU s")
        return
    report = judge(asked.runs.resolve(), asked.only)
    show(report)
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
