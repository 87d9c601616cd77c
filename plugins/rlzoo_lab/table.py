"""The verbs of the lab, as entry points of the group `rlzoo.verbs` name them: no import here."""

from rlzoo.cli.verb import Verb

check = Verb(
    "NAME | model=PATH | --all",
    "hold components or a model to a contract",
    "rlzoo_lab.check",
    examples=(("rlzoo check gae", "hold a component to its contract"),),
    function="rlzoo_lab.api.verbs:check",
)
base = Verb(
    "TASK [key=value ...] --out DIR",
    "a small model that is sometimes right at a task: a start for RL",
    "rlzoo_lab.supervised.base",
    examples=(
        ("rlzoo base addition --out start", "a model that is occasionally right, to start from"),
    ),
)
sweep = Verb(
    "RECIPE key=a,b,c seed=0,1,2 ...",
    "several runs, paired by seed",
    "rlzoo_lab.sweep.command",
    examples=(
        ("rlzoo sweep ppo_gae lam=0,0.8,1 seed=0,1,2,3,4", "three rows, five seeds each"),
        ("rlzoo sweep ppo_gae estimator=gae,rloo seed=0..9", "two estimators, ten seeds"),
        ("rlzoo sweep recipe=ppo_gae,grpo seed=0,1,2", "two methods"),
    ),
    function="rlzoo_lab.api.verbs:sweep",
)
compare = Verb(
    "RUN_OR_SWEEP ...",
    "runs side by side, with intervals and a verdict",
    "rlzoo_lab.compare.command",
    examples=(
        ("rlzoo compare runs/a runs/b", "two runs"),
        ("rlzoo compare runs/sweep-x", "rows"),
    ),
    function="rlzoo_lab.api.verbs:compare",
)
diagnose = Verb(
    "RECIPE estimator=a,b ... | RUN",
    "exact bias and variance of estimators",
    "rlzoo_lab.diagnose.command",
    examples=(
        ("rlzoo diagnose ppo_gae estimator=gae,mc,td0,rloo", "in a small exact world"),
        ("rlzoo diagnose runs/a", "on a batch that a run saved"),
    ),
    function="rlzoo_lab.api.verbs:diagnose",
)
advise = Verb(
    "RECIPE train.steps=N [estimator=a,b ...]",
    "which estimator and lambda to prefer, by a short pilot",
    "rlzoo_lab.advise.command",
    examples=(("rlzoo advise ppo_gae train.steps=60", "a pilot of six steps"),),
    function="rlzoo_lab.api.verbs:advise",
)
trace = Verb(
    "RUN | RECIPE | --rewards R,R,...",
    "one response, token by token",
    "rlzoo_lab.trace.command",
    examples=(
        ("rlzoo trace --rewards 0,0,1 --values .3,.4,.6 --lam .95", "typed numbers"),
        ("rlzoo trace runs/a --row 3 --html a.html", "a response of a run, as a page"),
    ),
    function="rlzoo_lab.api.verbs:trace",
)
doctor = Verb(
    "RUN | --environment",
    "what is wrong with a run, in words",
    "rlzoo_lab.doctor.command",
    examples=(
        ("rlzoo doctor runs/a", "finished or not"),
        ("rlzoo doctor --environment", "versions and devices, for a bug report"),
    ),
)
report = Verb(
    "RUN [--out FILE]",
    "one page of a run: curves, groups, tokens",
    "rlzoo_lab.report.command",
    examples=(
        ("rlzoo report runs/a", "a page in the run's folder"),
        ("rlzoo report runs/a --watch", "again and again, while it runs"),
    ),
    function="rlzoo_lab.api.verbs:report",
)
play = Verb(
    "[--out FILE]",
    "a page on which you move lambda and see what follows",
    "rlzoo_lab.play.command",
    examples=(("rlzoo play --open", "in your browser; it needs no network"),),
)
eval = Verb(
    "RUN | model=... task=...",
    "score a policy: accuracy, pass@k, samples",
    "rlzoo_lab.eval.command",
    examples=(
        ("rlzoo eval runs/a --k 1,4", "accuracy, pass@4, samples"),
        ("rlzoo eval model=tiny task=addition", "an untrained model"),
    ),
    function="rlzoo_lab.api.verbs:evaluate",
)
import_ = Verb(
    "SOURCE --out RUN [--from TRAINER]",
    "a run of TRL, verl, prime-rl, SkyRL or slime as a run folder",
    "rlzoo_lab.imports.command",
    examples=(
        ("rlzoo import trl-output --out runs/a", "then doctor, report and compare it"),
        ("rlzoo import exported.csv --out runs/b", "metrics as wandb exports them"),
    ),
)
fetch = Verb(
    "URL [key=value ...] [--run CHECKSUM]",
    "a recipe from a URL: read it, then train exactly that text",
    "rlzoo_lab.fetch",
    examples=(
        ("rlzoo fetch https://gist.github.com/a/1", "its text, what it touches, its checksum"),
        ("rlzoo fetch URL --run 0123456789ab", "train it, with that checksum only"),
    ),
)
export = Verb(
    "RUN DIR",
    "a run's model as a transformers folder with a model card",
    "rlzoo_lab.export",
    examples=(("rlzoo export runs/a my-model", "a folder for transformers, with its card"),),
    function="rlzoo_lab.api.verbs:export",
)
bench = Verb(
    "[CASE ...] [--peer trl]",
    "speed on this machine",
    "rlzoo_lab.bench.command",
    examples=(
        ("rlzoo bench", "all cases"),
        ("rlzoo bench step --recipes grpo", "one"),
    ),
)
sft = Verb(
    "DATA --model MODEL --out DIR",
    "a supervised start: train on prompts and responses",
    "rlzoo_lab.supervised.sft",
    examples=(("rlzoo sft pairs.jsonl --model nano --out start", "a model to start from"),),
)
reward = Verb(
    "train DATA --model MODEL --out DIR",
    "train a reward model on pairs or steps",
    "rlzoo_lab.supervised.reward",
    examples=(
        ("rlzoo reward train prefs.jsonl --model start --out rm", "from preferences"),
        ("rlzoo reward train steps.jsonl --per-step --model start --out prm", "from judged steps"),
    ),
)
serve = Verb(
    "RECIPE [key=value ...] [--port N]",
    "train while agents play episodes over HTTP",
    "rlzoo_lab.serve",
    examples=(("rlzoo serve grpo model=turns", "an OpenAI-compatible endpoint that learns"),),
)
