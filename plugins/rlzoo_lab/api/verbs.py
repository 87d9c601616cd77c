"""The verbs that read, evaluate and compare, as functions. Each declares the options of its verb,
here and on the command line: the signature has their names, types and defaults, and `Options:` in
the docstring has their help (`rlzoo.cli.declared`).

`overrides` are words of the command line, ["estimator.lam=0.9"], or a mapping of keys. A run is a
return value of `rlzoo.run`, or the path of its folder. Each function returns the document that
`--json` prints, which displays itself.
"""

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from rlzoo.cli import every_verb
from rlzoo.cli.declared import given
from rlzoo.errors import UsageError, nearest
from rlzoo.format.console import SafeConsole
from rlzoo.recipe.files import find_config
from rlzoo.runs.store import is_url
from rlzoo_lab.api.document import Document, Rows, perform
from rlzoo_lab.api.notebook import in_notebook
from rlzoo_lab.api.overrides import Overrides, as_words

PathOrRun = str | os.PathLike[str]
Words = Sequence[str]


def sweep(
    recipe: PathOrRun,
    overrides: Overrides = (),
    *,
    jobs: int | None = None,
    dir: PathOrRun | None = None,
    store: str | None = None,
    patience: float | None = None,
    on: str | None = None,
    reference: str | None = None,
    threshold: float | None = None,
    display: bool | None = None,
    **keys: Any,
) -> Document:
    """Train several runs, paired by seed, and compare them: `rlzoo sweep`.

    overrides: a value with commas is swept, "estimator.lam=0,0.95,1"; "seed=0,1,2" replicates. In a
        mapping and in keys, a list is swept: lam=[0, 0.95, 1], seed=range(3).
    display: whether to print a line for each run; default: only in a notebook.

    Options:
        jobs N: runs at a time, each in its own process; default: the executor's capacity
        dir DIR: the sweep's folder; default: runs/sweep-...; repeating the call adds missing runs
        store URL: also copy the folder to a URL after each checkpoint: s3://bucket/a
        patience MINUTES: take over a run without a step for this long; as --on local patience=...
        on EXECUTOR: where to run, with options: "slurm minutes=60"
        reference ROW: the row to compare with
        threshold X: count the steps to this score

    Raises RecipeError before a run starts; Unfinished if all runs fail, or on Ctrl-C.
    """
    asked = given(sweep, locals())
    words = [_recipe(recipe), *as_words(overrides, swept=True), *as_words(keys, swept=True)]
    return perform("sweep", words, asked, console=_console(display))


def compare(
    *runs: PathOrRun | Sequence[PathOrRun],
    by: Words = (),
    reference: str | None = None,
    threshold: float | None = None,
    metric: str | None = None,
    details: bool = False,
    force: bool = False,
    html: PathOrRun | None = None,
    plots: PathOrRun | None = None,
) -> Document:
    """Which configuration is better, by how much, and how certain this is: `rlzoo compare`.

    runs: runs and sweep folders, or a list of them.

    Options:
        by KEY: a two-way table with a column for each value of KEY
        reference ROW: the row to compare with; only pairs with it are tested
        threshold X: count the steps to this score; default: halfway to the best
        metric NAME: an evaluation metric: answer_prob, accuracy, score, ...
        details: show every pair with all tests, seeds and prompts
        force: compare even if task, budget or evaluation differ
        html FILE: write a report with plots
        plots DIR: write the plots as SVG and PNG

    Raises RlzooError if the runs cannot be compared.
    """
    asked = given(compare, locals())
    several = [one if isinstance(one, list | tuple) else [one] for one in runs]
    return perform("compare", map(_place, chain.from_iterable(several)), asked)


def diagnose(
    what: PathOrRun,
    overrides: Overrides = (),
    *,
    world: str | None = "outcome",
    critic: str | Words | None = ("exact", "noisy", "zero"),
    noise: float | None = 0.2,
    vocabulary: int | None = 6,
    horizon: int | None = 5,
    samples: int | None = None,
    prompts: int | None = 1,
    fixed_length: bool = False,
    cut: int | None = None,
    kl: bool = False,
    batches: Sequence[int] | None = (4, 16, 64, 256, 1024),
    model: bool = False,
    parameters: bool = False,
    plot: PathOrRun | None = None,
    html: PathOrRun | None = None,
) -> Document:
    """Exact bias and variance of estimators, in a small enumerated world, or on a
    run's own batches: `rlzoo diagnose`.

    what: a recipe or a run. overrides: "estimator=gae,mc", "estimator.lam=0,0.5,1".

    Options:
        world: outcome, graded, dense, key_noise, words
        critic: exact, noisy, zero
        noise: standard deviation of the noisy critic's errors, in reward
        vocabulary: tokens, EOS included
        horizon: maximum episode length in tokens
        samples: samples per prompt; default: the recipe's rollout.samples
        prompts: prompts in the world, with different difficulties
        fixed_length: no EOS: every episode has --horizon tokens
        cut: truncate rows at this length, according to rollout.truncation
        kl: include the recipe's KL in the reward and the objective
        batches: batch sizes in rows; 0: none
        model: use the recipe's model and task, with --vocabulary tokens
        parameters: with a RUN: also gradients in its final parameters
        plot FILE: frontier and cosine curves, .png or .svg
        html FILE: table and plots in one self-contained page
    """
    asked = given(diagnose, locals())
    return perform("diagnose", [*_subject(what), *as_words(overrides, swept=True)], asked)


def trace(
    what: PathOrRun | None = None,
    overrides: Overrides = (),
    *,
    prompt: str | None = None,
    answer: str | None = None,
    row: int | None = 0,
    step: int | None = None,
    fresh: bool = False,
    rewards: Any = None,
    values: Any = None,
    bootstrap: Any = None,
    scores: Any = None,
    kl: Any = None,
    tokens: Words | None = None,
    estimator: str | Words | None = None,
    explain: bool = False,
    html: PathOrRun | None = None,
    **options: Any,
) -> Document:
    """Show one response token by token, with the source of each number: `rlzoo trace`.

    what: a run, a recipe, or nothing if numbers are given: rewards=[0, 0, 1] and values=[0.3, 0.4,
        0.6], a list for each token of one response, a list of lists for a group.
    options: options of estimators, lam=0.95; a list compares several values. With given numbers,
        also other columns.

    Options:
        prompt TEXT: trace a new response to this prompt
        answer TEXT: the correct answer for --prompt
        row N: index of the response in the batch, from 0
        step N: step of the saved batch or checkpoint (default: the last)
        fresh: sample again even if batches were saved
        rewards R,...: typed numbers: reward per token
        scores S,...: typed: score per token; the reward is the score minus kl.coef times --kl
        kl K,...: typed: KL per token
        values V,...: typed: V(s_t), computed before token t
        tokens A,B,...: typed: the texts of the tokens
        bootstrap V: typed: V after the last token (default 0)
        estimator NAME,...: short for estimator=NAME,...
        explain: show the arithmetic
        html FILE: write a page with shaded tokens

    Examples:
        >>> found = rlzoo.trace(rewards=[0, 0, 1], values=[0.3, 0.4, 0.6], lam=0.95)
        >>> found["credits"][0]["columns"]["advantages"]
        [0.651, 0.58, 0.4]
    """
    asked = [*given(trace, locals()), *options.items()]
    return perform("trace", [*_subject(what), *as_words(overrides, swept=True)], asked)


def evaluate(
    what: PathOrRun | None = None,
    overrides: Overrides = (),
    *,
    checkpoint: str | int | None = None,
    prompts: int | str | None = None,
    k: int | Sequence[int] | None = 1,
    responses: int | str | None = None,
    greedy: bool = False,
    split: str | None = "test",
    samples: int | str | None = 6,
    out: PathOrRun | None = None,
) -> Document:
    """Evaluate a policy with accuracy, pass@k and samples: `rlzoo eval`.

    what: a run, or nothing if overrides give ["model=...", "task=..."].

    Options:
        checkpoint WHICH: with a RUN: best, last, or a checkpoint's step
        prompts N: number of prompts; short for eval.samples=N
        k K,...: pass@k and maj@k; samples as many responses as the largest k
        responses N: responses per prompt, if more than the largest k
        greedy: greedy decoding
        split NAME: the task's split: test or train
        samples N: number of samples to show
        out FILE: write all samples as JSON lines
    """
    asked = given(evaluate, locals())
    subject = [] if what is None else [_place(what)]
    return perform("eval", [*subject, *as_words(overrides)], asked)


def doctor(
    run: PathOrRun | None = None,
    *,
    retrain: bool = False,
    runs: int | None = None,
    dir: PathOrRun | None = None,
    environment: bool = False,
    display: bool | None = None,
) -> Document:
    """Find the faults of a run, the most severe first, with remedies: `rlzoo doctor`.

    display: whether to print a line for each retraining; default: only in a notebook.
    Raises RunError if the folder is not a run, and UsageError unless exactly one argument is given.

    Options:
        retrain: train again with differences from the recipe reset, to find the cause
        runs N: train at most N times; default: 8
        dir DIR: the folder of these runs; default: runs/doctor-...
        environment: print versions, devices, plugins and terminal for a bug report
    """
    asked = given(doctor, locals())
    words = [] if run is None else [_place(run)]
    return perform("doctor", words, asked, console=_console(display) if retrain else None)


def _console(display: bool | None) -> SafeConsole:
    """Where a verb that trains several runs prints its progress."""
    told = in_notebook() if display is None else display
    # A kernel claims to be a terminal, but it cannot redraw a table.
    terminal = False if in_notebook() else None
    return SafeConsole(quiet=not told, force_jupyter=False, force_terminal=terminal)


def report(run: PathOrRun, out: PathOrRun | None = None, *, watch: float | None = None) -> Document:
    """Write a page about a run, finished or not, with curves, groups and tokens: `rlzoo report`.
    The document's "report" is its path.

    Options:
        out FILE: where to write the page; default: RUN/report.html
        watch SECONDS: while the run trains, rewrite the page every N seconds
    """
    return perform("report", [_place(run)], given(report, locals()))


def check(name: str | None = None, overrides: Overrides = (), *, all: bool = False) -> Rows:
    """Check whether components, or a model, meet their contract: `rlzoo check`. `status` is 0 if
    all pass.

    name: a component's name, or "model=PATH". overrides: its options, "lam=0.5".
    Returns a list of dicts: kind, component, file, name, passed (None: the check does not apply),
    message.

    Options:
        all: check every component

    Examples:
        >>> rlzoo.check("gae").status
        0
    """
    asked = given(check, locals())
    return perform("check", [*([] if name is None else [name]), *as_words(overrides)], asked)


def export(
    run: PathOrRun,
    directory: PathOrRun,
    *,
    checkpoint: str | int | None = None,
    merge: bool = False,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    trust_remote_code: bool = False,
) -> Document:
    """Write a run's model as a transformers folder with a model card: `rlzoo export`.

    directory: a new or empty folder.

    Options:
        checkpoint WHICH: best, last, or a checkpoint's step; default: the end of training
        merge: merge a LoRA adapter into its base model
        trust_remote_code: run the model's own code
        dtype: the weights' dtype; default: unchanged
    """
    return perform("export", [_place(run), Path(directory)], given(export, locals()))


def verb(name: str, *words: PathOrRun, **options: Any) -> Document | Rows:
    """Any command by its name, including those of plugins:
    `rlzoo.verb("sft", "data.jsonl", model="nano", out="start")`.

    words, options: those of the verb; True gives an option without a value. Raises RlzooError.
    """
    if name not in every_verb():
        raise UsageError(f"there is no verb {name!r}{nearest(name, every_verb())}")
    return perform(name, words, options.items())


def _recipe(recipe: PathOrRun) -> str:
    return f"recipe={os.fspath(recipe)}"


def _place(run: PathOrRun) -> Any:
    """A path that cannot be read as an option; a URL as it is."""
    return run if is_url(run) else Path(run)


def _subject(what: PathOrRun | None) -> list[Any]:
    """A run's folder as it is; anything else is a recipe, by its name or file."""
    if what is None:
        return []
    text = os.fspath(what)
    if is_url(text) or (Path(text) / "recipe.yaml").is_file():
        return [_place(text)]
    a_file = text.endswith((".yaml", ".yml")) or find_config("recipes", text) is not None
    a_folder = not a_file and ("/" in text or not isinstance(what, str))
    return [Path(text) if a_folder else _recipe(text)]
