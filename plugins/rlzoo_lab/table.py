"""The verbs of the lab for entry points of the group `rlzoo.verbs`: no import here."""

from rlzoo.cli.verb import Verb

show = Verb(
    "RECIPE [key=value ...] [--for TRAINER]",
    "show the resolved recipe and the origin of each value",
    "rlzoo_lab.api.show",
    examples=(
        ("rlzoo show ppo_gae lam=0.9", "every value and its origin"),
        ("rlzoo show ppo_gae --changed", "only values that differ from the defaults"),
        ("rlzoo show grpo --for verl", "the lines that start it in verl"),
        ("rlzoo show --for trl", "the components that TRL supports"),
    ),
    group="train",
)
new = Verb(
    "KIND NAME",
    "scaffold a plugin package",
    "rlzoo_lab.kit.new",
    examples=(("rlzoo new estimator my_estimator", "a package with a function and a test"),),
    group="plug in",
)
check = Verb(
    "NAME | model=PATH | verl:NAME | FILE.py:FUNCTION | --all",
    "check that components, functions of other trainers, or a model meet their contract",
    "rlzoo_lab.kit.command",
    examples=(
        ("rlzoo check gae", "check one component"),
        ("rlzoo check verl:grpo", "check verl's own function"),
        ("rlzoo check mine.py:advantages --map pay=rewards", "check yours"),
    ),
    group="plug in",
)
model = Verb(
    "sft|reward|base|export ...",
    "make a model before RL, or export one after",
    "",
    examples=(
        ("rlzoo model sft pairs.jsonl --model nano --out start", "fine-tune on pairs"),
        ("rlzoo model reward prefs.jsonl --model start --out rm", "train a reward model"),
        ("rlzoo model base addition --out start", "train a small model for a task"),
        ("rlzoo model export runs/a my-model", "write a run's model with a model card"),
    ),
    group="train",
)
base = Verb(
    "TASK [key=value ...] --out DIR",
    "train a small model that sometimes solves a task, as a start for RL",
    "rlzoo_lab.supervised.base",
    examples=(
        ("rlzoo model base addition --out start", "train a model that occasionally adds correctly"),
    ),
    group="train",
)
sweep = Verb(
    "RECIPE key=a,b,c seed=0,1,2 ...",
    "train several runs, paired by seed",
    "rlzoo_lab.compare.sweep.command",
    examples=(
        (
            "rlzoo sweep ppo_gae lam=0,0.8,1 seed=0,1,2,3,4",
            "compare three rows with five seeds each",
        ),
        (
            "rlzoo sweep ppo_gae estimator=gae,rloo seed=0..9",
            "compare two estimators with ten seeds",
        ),
        ("rlzoo sweep recipe=ppo_gae,grpo seed=0,1,2", "two methods"),
    ),
    group="compare",
)
compare = Verb(
    "RUN_OR_SWEEP ...",
    "compare runs, with intervals and a verdict",
    "rlzoo_lab.compare.command",
    examples=(
        ("rlzoo compare runs/a runs/b", "two runs"),
        ("rlzoo compare runs/sweep-x", "rows"),
    ),
    group="compare",
)
diagnose = Verb(
    "RECIPE estimator=a,b ... | RUN",
    "compute the exact bias and variance of estimators",
    "rlzoo_lab.diagnose.command",
    examples=(
        ("rlzoo diagnose ppo_gae estimator=gae,mc,td0,rloo", "in a small world, exactly"),
        ("rlzoo diagnose runs/a", "on a batch that a run saved"),
    ),
    group="compare",
)
trace = Verb(
    "[RUN] | RECIPE | --rewards R,R,...",
    "show one response token by token",
    "rlzoo_lab.diagnose.trace.command",
    examples=(
        ("rlzoo trace --rewards 0,0,1 --values 0.3,0.4,0.6 --lam 0.95", "typed numbers"),
        ("rlzoo trace runs/a --row 3 --html a.html", "write a response of a run as a page"),
    ),
    group="study",
)
doctor = Verb(
    "[RUN] [--retrain] | --environment",
    "report what is wrong with a run",
    "rlzoo_lab.doctor.retrain.command",
    examples=(
        ("rlzoo doctor runs/a", "a finished or unfinished run"),
        ("rlzoo doctor runs/a --retrain", "find the cause by training again"),
        ("rlzoo doctor --environment", "versions and devices for a bug report"),
    ),
    group="study",
)
report = Verb(
    "[RUN] [--out FILE]",
    "write a page about a run: curves, groups, tokens",
    "rlzoo_lab.doctor.report.command",
    examples=(
        ("rlzoo report runs/a", "write a page to the run's folder"),
        ("rlzoo report runs/a --watch", "rewrite the page while it trains"),
    ),
    group="study",
)
play = Verb(
    "[--out FILE]",
    "write an interactive page that shows the effect of lambda",
    "rlzoo_lab.api.play",
    examples=(("rlzoo play --open", "open the page in your browser; it works offline"),),
    group="study",
)
eval = Verb(
    "[RUN] | model=... task=...",
    "score a policy: accuracy, pass@k, samples",
    "rlzoo_lab.compare.eval.command",
    examples=(
        ("rlzoo eval runs/a --k 1,4", "accuracy, pass@4, samples"),
        ("rlzoo eval model=tiny task=addition", "an untrained model"),
    ),
    group="compare",
)
import_ = Verb(
    "SOURCE --out RUN [--from TRAINER]",
    "convert a run of TRL, verl, prime-rl, SkyRL or slime to a run folder",
    "rlzoo_lab.imports.command",
    examples=(
        ("rlzoo import trl-output --out runs/a", "afterwards, use doctor, report and compare"),
        ("rlzoo import exported.csv --out runs/b", "metrics exported from wandb"),
    ),
    group="carry over",
)
export = Verb(
    "RUN DIR",
    "write a run's model as a transformers folder with a model card",
    "rlzoo_lab.supervised.export",
    examples=(("rlzoo model export runs/a my-model", "a transformers folder with a model card"),),
    group="carry over",
)
sft = Verb(
    "DATA --model MODEL --out DIR",
    "fine-tune a model on prompts and responses",
    "rlzoo_lab.supervised.sft",
    examples=(
        ("rlzoo model sft pairs.jsonl --model nano --out start", "train a model to start from"),
    ),
    group="train",
)
reward = Verb(
    "DATA --model MODEL --out DIR",
    "train a reward model on pairs or steps",
    "rlzoo_lab.supervised.reward",
    examples=(
        ("rlzoo model reward prefs.jsonl --model start --out rm", "from preferences"),
        (
            "rlzoo model reward steps.jsonl --per-step --model start --out prm",
            "train on judged steps",
        ),
    ),
    group="train",
)
serve = Verb(
    "RECIPE [key=value ...] [--port N]",
    "train while agents play episodes over HTTP",
    "rlzoo_lab.api.serve",
    examples=(
        ("rlzoo serve grpo model=turns", "serve an OpenAI-compatible endpoint and train its model"),
    ),
    group="train",
)
