"""The verbs that read, evaluate and compare, as functions. Each declares the options of its verb,
here and on the command line: the signature has their names, types, defaults and help
(`rlzoo_lab.view.declared`).

`overrides` are words of the command line, ["estimator.lam=0.9"], or a mapping of keys. A run is a
return value of `rlzoo.run`, or the path of its folder. Each function returns the document that
`--json` prints, which displays itself.
"""

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from rlzoo.cli import every_verb, no_verb
from rlzoo.errors import UsageError
from rlzoo.format.console import SafeConsole
from rlzoo.recipe.files import find_config
from rlzoo.runs.store import is_url
from rlzoo_lab.api.arguments import Overrides, as_words, given
from rlzoo_lab.api.document import Document, Rows, perform
from rlzoo_lab.api.notebook import in_notebook

PathOrRun = str | os.PathLike[str]
Words = Sequence[str]


def sweep(
    recipe: PathOrRun,
    overrides: Overrides = (),
    *,
    jobs: Annotated[
        int | None, "N", "runs at a time, each in its own process; default: the executor's capacity"
    ] = None,
    dir: Annotated[
        PathOrRun | None,
        "DIR",
        "the sweep's folder; default: runs/sweep-...; repeating the call adds missing runs",
    ] = None,
    store: Annotated[
        str | None, "URL", "also copy the folder to a URL after each checkpoint: s3://bucket/a"
    ] = None,
    patience: Annotated[
        float | None,
        "MINUTES",
        "take over a run without a step for this long; as --on local patience=...",
    ] = None,
    on: Annotated[str | None, "EXECUTOR", 'where to run, with options: "slurm minutes=60"'] = None,
    reference: Annotated[str | None, "ROW", "the row to compare with"] = None,
    threshold: Annotated[float | None, "X", "count the steps to this score"] = None,
    display: bool | None = None,
    **keys: Any,
) -> Document:
    """Train several runs, paired by seed, and compare them: `rlzoo sweep`.

    overrides: a value with commas is swept, "estimator.lam=0,0.95,1"; "seed=0,1,2" replicates. In a
        mapping and in keys, a list is swept: lam=[0, 0.95, 1], seed=range(3).
    display: whether to print a line for each run; default: only in a notebook.

    Raises RecipeError before a run starts; Unfinished if all runs fail, or on Ctrl-C.
    """
    asked = given(sweep, locals())
    words = [_recipe(recipe), *as_words(overrides, swept=True), *as_words(keys, swept=True)]
    return perform("sweep", words, asked, console=_console(display))


def compare(
    *runs: PathOrRun | Sequence[PathOrRun],
    by: Annotated[Words, "KEY", "a two-way table with a column for each value of KEY"] = (),
    reference: Annotated[
        str | None, "ROW", "the row to compare with; only pairs with it are tested"
    ] = None,
    threshold: Annotated[
        float | None, "X", "count the steps to this score; default: halfway to the best"
    ] = None,
    metric: Annotated[
        str | None, "NAME", "an evaluation metric: answer_prob, accuracy, score, ..."
    ] = None,
    details: Annotated[bool, "show every pair with all tests, seeds and prompts"] = False,
    force: Annotated[bool, "compare even if task, budget or evaluation differ"] = False,
    x: Annotated[Literal["tokens", "steps", "seconds"] | None, "what curves are over"] = "tokens",
    html: Annotated[PathOrRun | None, "FILE", "write a report with plots"] = None,
    plots: Annotated[PathOrRun | None, "DIR", "write the plots as SVG and PNG"] = None,
) -> Document:
    """Which configuration is better, by how much, and how certain this is: `rlzoo compare`.

    runs: runs and sweep folders, or a list of them.

    Raises RlzooError if the runs cannot be compared.
    """
    asked = given(compare, locals())
    several = [one if isinstance(one, list | tuple) else [one] for one in runs]
    return perform("compare", map(_place, chain.from_iterable(several)), asked)


def diagnose(
    what: PathOrRun,
    overrides: Overrides = (),
    *,
    world: Annotated[str | None, "outcome, graded, dense, key_noise"] = "outcome",
    critic: Annotated[str | Words | None, "exact, noisy, zero"] = ("exact", "noisy", "zero"),
    noise: Annotated[
        float | None, "standard deviation of the noisy critic's errors, in reward"
    ] = 0.2,
    vocabulary: Annotated[int | None, "tokens, EOS included"] = 6,
    horizon: Annotated[int | None, "maximum episode length in tokens"] = 5,
    samples: Annotated[
        int | None, "samples per prompt; default: the recipe's rollout.samples"
    ] = None,
    prompts: Annotated[int | None, "prompts in the world, with different difficulties"] = 1,
    fixed_length: Annotated[bool, "no EOS: every episode has --horizon tokens"] = False,
    cut: Annotated[
        int | None, "truncate rows at this length, according to rollout.truncation"
    ] = None,
    kl: Annotated[bool, "include the recipe's KL in the reward and the objective"] = False,
    batches: Annotated[Sequence[int] | None, "batch sizes in rows; 0: none"] = (
        4,
        16,
        64,
        256,
        1024,
    ),
    map: Annotated[Words, "THEIRS=OURS", "as in check, for estimator=FILE.py:FUNCTION"] = (),
    parameters: Annotated[bool, "with a RUN: also gradients in its final parameters"] = False,
    html: Annotated[PathOrRun | None, "FILE", "write the tables and curves as a page"] = None,
) -> Document:
    """Exact bias and variance of estimators, in a small enumerated world, or on a
    run's own batches: `rlzoo diagnose`.

    what: a recipe or a run. overrides: "estimator=gae,mc", "estimator.lam=0,0.5,1".
    """
    asked = given(diagnose, locals())
    return perform("diagnose", [*_subject(what), *as_words(overrides, swept=True)], asked)


def trace(
    what: PathOrRun | None = None,
    overrides: Overrides = (),
    *,
    prompt: Annotated[str | None, "TEXT", "trace a new response to this prompt"] = None,
    answer: Annotated[str | None, "TEXT", "the correct answer for --prompt"] = None,
    row: Annotated[int | None, "N", "index of the response in the batch, from 0"] = 0,
    step: Annotated[
        int | None, "N", "step of the saved batch or checkpoint (default: the last)"
    ] = None,
    fresh: Annotated[bool, "sample again even if batches were saved"] = False,
    rewards: Annotated[Any, "R,...", "typed numbers: reward per token"] = None,
    scores: Annotated[
        Any, "S,...", "typed: score per token; the reward is the score minus kl.coef times --kl"
    ] = None,
    kl: Annotated[Any, "K,...", "typed: KL per token"] = None,
    values: Annotated[Any, "V,...", "typed: V(s_t), computed before token t"] = None,
    tokens: Annotated[Words | None, "A,B,...", "typed: the texts of the tokens"] = None,
    bootstrap: Annotated[Any, "V", "typed: V after the last token (default 0)"] = None,
    estimator: Annotated[str | Words | None, "NAME,...", "short for estimator=NAME,..."] = None,
    explain: Annotated[bool, "show the arithmetic"] = False,
    html: Annotated[PathOrRun | None, "FILE", "write a page with shaded tokens"] = None,
    **options: Any,
) -> Document:
    """Show one response token by token, with the source of each number: `rlzoo trace`.

    what: a run, a recipe, or nothing if numbers are given: rewards=[0, 0, 1] and values=[0.3, 0.4,
        0.6], a list for each token of one response, a list of lists for a group.
    options: options of estimators, lam=0.95; a list compares several values. With given numbers,
        also other columns.

    Examples:
        >>> found = rlzoo.trace(rewards=[0, 0, 1], values=[0.3, 0.4, 0.6], lam=0.95)
        >>> found["credits"][0]["columns"]["advantages"]
        [0.651, 0.58, 0.4]
    """
    asked = given(trace, locals()) | options
    return perform("trace", [*_subject(what), *as_words(overrides, swept=True)], asked)


def evaluate(
    what: PathOrRun | None = None,
    overrides: Overrides = (),
    *,
    checkpoint: Annotated[
        str | int | None, "WHICH", "with a RUN: best, last, or a checkpoint's step"
    ] = None,
    prompts: Annotated[int | str | None, "N", "number of prompts; short for eval.samples=N"] = None,
    k: Annotated[
        int | Sequence[int] | None,
        "K,...",
        "pass@k and maj@k; samples as many responses as the largest k",
    ] = 1,
    responses: Annotated[
        int | str | None, "N", "responses per prompt, if more than the largest k"
    ] = None,
    greedy: Annotated[bool, "greedy decoding"] = False,
    split: Annotated[str | None, "NAME", "the task's split: test or train"] = "test",
    samples: Annotated[int | str | None, "N", "number of samples to show"] = 6,
    out: Annotated[PathOrRun | None, "FILE", "write all samples as JSON lines"] = None,
) -> Document:
    """Evaluate a policy with accuracy, pass@k and samples: `rlzoo eval`.

    what: a run, or nothing if overrides give ["model=...", "task=..."].
    """
    asked = given(evaluate, locals())
    subject = [] if what is None else [_place(what)]
    return perform("eval", [*subject, *as_words(overrides)], asked)


def doctor(
    run: PathOrRun | None = None,
    *,
    retrain: Annotated[
        bool, "train again with differences from the recipe reset, to find the cause"
    ] = False,
    control: Annotated[
        bool, "train a few steps at learning rate 0, at which nothing may change"
    ] = False,
    runs: Annotated[int | None, "N", "train at most N times; default: 8"] = None,
    dir: Annotated[
        PathOrRun | None, "DIR", "the folder of these runs; default: runs/doctor-..."
    ] = None,
    environment: Annotated[
        bool, "print versions, devices, plugins and terminal for a bug report"
    ] = False,
    display: bool | None = None,
) -> Document:
    """Find the faults of a run, the most severe first, with remedies: `rlzoo doctor`.

    display: whether to print a line for each retraining; default: only in a notebook.
    Raises RunError if the folder is not a run, and UsageError unless exactly one argument is given.
    """
    asked = given(doctor, locals())
    words = [] if run is None else [_place(run)]
    return perform(
        "doctor", words, asked, console=_console(display) if retrain or control else None
    )


def _console(display: bool | None) -> SafeConsole:
    """Where a verb that trains several runs prints its progress."""
    told = in_notebook() if display is None else display
    # A kernel claims to be a terminal, but it cannot redraw a table.
    terminal = False if in_notebook() else None
    return SafeConsole(quiet=not told, force_jupyter=False, force_terminal=terminal)


def report(
    run: PathOrRun,
    out: Annotated[
        PathOrRun | None, "FILE", "where to write the page; default: RUN/report.html"
    ] = None,
    *,
    watch: Annotated[
        float | None, "SECONDS", "while the run trains, rewrite the page every N seconds"
    ] = None,
) -> Document:
    """Write a page about a run, finished or not, with curves, groups and tokens: `rlzoo report`.
    The document's "report" is its path.
    """
    return perform("report", [_place(run)], given(report, locals()))


def check(
    name: str | None = None,
    overrides: Overrides = (),
    *,
    all: Annotated[bool, "check every component"] = False,
    map: Annotated[
        Words, "THEIRS=OURS", "the column that an argument of your function is; repeatable"
    ] = (),
) -> Rows:
    """Check whether components, or a model, meet their contract: `rlzoo check`. `status` is 0 if
    all pass.

    name: a component's name, or "model=PATH". overrides: its options, "lam=0.5".
    Returns a list of dicts: kind, component, file, name, passed (None: the check does not apply),
    message.

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
    checkpoint: Annotated[
        str | int | None,
        "WHICH",
        "best, last, or a checkpoint's step; default: the end of training",
    ] = None,
    merge: Annotated[bool, "merge a LoRA adapter into its base model"] = False,
    trust_remote_code: Annotated[bool, "run the model's own code"] = False,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None, "the weights' dtype; default: unchanged"
    ] = None,
) -> Document:
    """Write a run's model as a transformers folder with a model card: `rlzoo model export`.

    directory: a new or empty folder.
    """
    return perform("model export", [_place(run), Path(directory)], given(export, locals()))


def verb(name: str, *words: PathOrRun, **options: Any) -> Document | Rows:
    """Any command by its name, including those of plugins:
    `rlzoo.verb("model", "sft", "data.jsonl", model="nano", out="start")`.

    words, options: those of the verb; True gives an option without a value. Raises RlzooError.
    """
    if name not in every_verb():
        raise UsageError(no_verb(name))
    return perform(name, words, options)


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
