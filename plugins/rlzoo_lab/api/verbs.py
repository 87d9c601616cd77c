"""The verbs that read, judge and compare, as functions. Each makes the command line of its
arguments, and what is left out is the command's own default.

`overrides` are words of the command line, ["estimator.lam=0.9"], or a mapping of keys. A run is
what `rlzoo.run` gives, or the path of its folder. What comes back is the document that `--json`
prints, and shows itself.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from rlzoo.cli import every_verb
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
    """Several runs, paired by seed, then compared: `rlzoo sweep`.

    overrides: a value with commas is swept, "estimator.lam=0,0.95,1"; "seed=0,1,2" replicates.
        In a mapping, and in keys, a list is: lam=[0, 0.95, 1], seed=range(3).
    jobs: runs at a time, each in a process of its own; by cores and memory. dir: the sweep's
        folder; the same call goes on with what is missing in it. store: a URL that it is kept at,
        too, for machines that share no disk. patience: minutes without a step
        after which a run is taken up by another process. on: where runs happen, "slurm minutes=60".
        reference: the row to compare with. threshold: the score to count steps to. display: whether
        a line is printed for each run; in a notebook it is.
    Raises RecipeError before a run begins; Unfinished where all fail, or at Ctrl-C.
    """
    options = {"jobs": jobs, "dir": dir, "store": store, "patience": patience, "on": on,
               "reference": reference, "threshold": threshold}  # fmt: skip
    words = [_recipe(recipe), *as_words(overrides, swept=True), *as_words(keys, swept=True)]
    told = in_notebook() if display is None else display
    # A kernel says that it is a terminal, and is none that could redraw a table.
    terminal = False if in_notebook() else None
    console = SafeConsole(quiet=not told, force_jupyter=False, force_terminal=terminal)
    return perform("sweep", words, options.items(), console=console)


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
    """Which configuration is better, by how much, and how sure that is: `rlzoo compare`.

    runs: runs and folders of sweeps, or a list of them. by: keys, each a two-way table.
        reference: the row to compare with; only pairs with it are tested. threshold: the score to
        count steps to; halfway to the best. metric: of evaluations, "accuracy", "answer_prob",
        "score". details: every pair in the view. force: compare although task, budget or evaluation
        differ. html: a file for a page with plots. plots: a folder for the plots as SVG and PNG.
    Raises RlzooError where runs cannot be compared.
    """
    options = [("reference", reference), ("threshold", threshold), ("metric", metric),
               ("details", details), ("force", force), ("html", html), ("plots", plots),
               *(("by", key) for key in by)]  # fmt: skip
    several = [one if isinstance(one, list | tuple) else [one] for one in runs]
    return perform("compare", map(_place, chain.from_iterable(several)), options)


def diagnose(
    what: PathOrRun,
    overrides: Overrides = (),
    *,
    world: str | None = None,
    critic: str | Words | None = None,
    noise: float | None = None,
    vocabulary: int | None = None,
    horizon: int | None = None,
    samples: int | None = None,
    prompts: int | None = None,
    fixed_length: bool = False,
    cut: int | None = None,
    kl: bool = False,
    batches: Sequence[int] | None = None,
    model: bool = False,
    checkpoints: bool = False,
    parameters: bool = False,
    branches: int | None = None,
    states: int | None = None,
    plot: PathOrRun | None = None,
    html: PathOrRun | None = None,
) -> Document:
    """Exact bias and variance of estimators, in a world small enough to know the truth, or on a
    run's own batches: `rlzoo diagnose`.

    what: a recipe or a run. overrides: "estimator=gae,mc", "estimator.lam=0,0.5,1".
    world: outcome, graded, dense, key_noise, words. critic: of exact, noisy, zero. noise: standard
        deviation of the noisy critic's errors, in reward. vocabulary: tokens, EOS included.
        horizon: the longest episode, in tokens. samples: per prompt. prompts: in the world.
        fixed_length: no EOS. cut: truncate rows at this length. kl: with the recipe's KL.
        batches: sizes in rows. model: the recipe's own model and task, on `vocabulary` tokens.
    Of a run: checkpoints: its critic at each checkpoint. parameters: gradients in its final
        parameters too. branches: so many fresh rollouts from chosen states; states: how many
        of these.
    plot: a file for frontier and cosine curves, .png or .svg. html: a file for a page.
    """
    options = {"world": world, "critic": critic, "noise": noise, "vocabulary": vocabulary,
               "horizon": horizon, "samples": samples, "prompts": prompts,
               "fixed_length": fixed_length, "cut": cut, "kl": kl, "batches": batches,
               "model": model, "checkpoints": checkpoints, "parameters": parameters,
               "branches": branches, "states": states, "plot": plot, "html": html}  # fmt: skip
    return perform("diagnose", [*_subject(what), *as_words(overrides, swept=True)], options.items())


def trace(
    what: PathOrRun | None = None,
    overrides: Overrides = (),
    *,
    prompt: str | None = None,
    answer: str | None = None,
    row: int | None = None,
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
    """One response, token by token, each number with its source: `rlzoo trace`.

    what: a run, a recipe, or nothing where numbers are given: rewards=[0, 0, 1] and
        values=[.3, .4, .6], a list for each token of one response, a list of lists for a group.
        bootstrap: the value after the last token. scores, kl: in place of rewards, the score and
        the KL of each token; tokens: their texts.
    prompt: trace a fresh response to it; answer: what is right for it. row: which response of the
        batch, from 0. step: which saved batch or checkpoint; the last. fresh: draw anew, though
        batches were saved. estimator: one or several. explain: spell the arithmetic out. html: a
        file for a page with shaded tokens.
    options: of estimators, lam=0.95; a list puts several side by side. With given numbers, other
        columns, too.
    """
    asked = {"prompt": prompt, "answer": answer, "row": row, "step": step, "fresh": fresh,
             "rewards": rewards, "values": values, "bootstrap": bootstrap, "scores": scores,
             "kl": kl, "tokens": tokens, "estimator": estimator, "explain": explain, "html": html,
             **options}  # fmt: skip
    return perform("trace", [*_subject(what), *as_words(overrides, swept=True)], asked.items())


def evaluate(
    what: PathOrRun | None = None,
    overrides: Overrides = (),
    *,
    checkpoint: str | int | None = None,
    prompts: int | None = None,
    k: int | Sequence[int] | None = None,
    responses: int | None = None,
    greedy: bool = False,
    split: str | None = None,
    samples: int | None = None,
    out: PathOrRun | None = None,
) -> Document:
    """How good a policy is: accuracy, pass@k, samples: `rlzoo eval`.

    what: a run; or nothing, and overrides name ["model=...", "task=..."].
    checkpoint: of a run: "best", "last", or a step. prompts: how many. k: of pass@k and maj@k; the
        largest is drawn. responses: to each prompt, if more than the largest k. greedy: the
        likeliest token each time. split: "test" or "train". samples: how many are shown. out: a
        file for all samples, as JSON lines.
    """
    options = {"checkpoint": checkpoint, "prompts": prompts, "k": k, "responses": responses,
               "greedy": greedy, "split": split, "samples": samples, "out": out}  # fmt: skip
    subject = [] if what is None else [_place(what)]
    return perform("eval", [*subject, *as_words(overrides)], options.items())


def doctor(run: PathOrRun) -> Document:
    """What a run's numbers say is wrong, and what to try: `rlzoo doctor`. Findings by gravity.

    Raises RunError where the folder is no run.
    """
    return perform("doctor", [_place(run)], ())


def report(run: PathOrRun, out: PathOrRun | None = None, *, watch: float | None = None) -> Document:
    """One page of a run, finished or not: curves, groups, tokens: `rlzoo report`. The document's
    "report" is where it lies.

    out: a file; else report.html in the run's folder. watch: while the run goes on, write the page
        anew every so many seconds.
    """
    return perform("report", [_place(run)], [("out", out), ("watch", watch)])


def advise(recipe: PathOrRun, overrides: Overrides = (), *, share: float | None = None) -> Document:
    """Which estimator and lambda to prefer, by a short pilot: `rlzoo advise`.

    overrides: with the budget, "train.steps=60"; "estimator=gae,rloo" names candidates.
    share: of the budget that the pilot takes, in (0, 1]; 0.1.
    """
    return perform(
        "advise", [_recipe(recipe), *as_words(overrides, swept=True)], [("share", share)]
    )


def check(name: str | None = None, overrides: Overrides = (), *, all: bool = False) -> Rows:
    """Hold components, or a model, to their contract: `rlzoo check`. `status` is 0 where all pass.

    name: of a component, or "model=PATH". overrides: its options, "lam=0.5". all: every component.
    A list of dicts: kind, component, file, name, passed (None: it does not apply), message.
    """
    return perform(
        "check", [*([] if name is None else [name]), *as_words(overrides)], [("all", all)]
    )


def export(
    run: PathOrRun,
    directory: PathOrRun,
    *,
    checkpoint: str | int | None = None,
    merge: bool = False,
    dtype: str | None = None,
    trust_remote_code: bool = False,
) -> Document:
    """A run's model as a folder that transformers loads, with a model card: `rlzoo export`.

    directory: new or empty. checkpoint: "best", "last" or a step; else the end's. merge: a LoRA
        adapter into its base model. dtype: of the weights: float32, bfloat16, float16.
        trust_remote_code: run code that comes with the model, whatever the run's own recipe says.
    """
    options: Mapping[str, Any] = {
        "checkpoint": checkpoint, "merge": merge, "dtype": dtype,
        "trust_remote_code": trust_remote_code,
    }  # fmt: skip
    return perform("export", [_place(run), Path(directory)], options.items())


def verb(name: str, *words: PathOrRun, **options: Any) -> Document | Rows:
    """Any verb of the command line by its name, one that a plugin brings too:
    `rlzoo.verb("sft", "data.jsonl", model="nano", out="start")`.

    words, options: as the verb takes them; True gives an option alone. Raises RlzooError.
    """
    if name not in every_verb():
        raise UsageError(f"no verb {name!r}{nearest(name, every_verb())}")
    return perform(name, words, options.items())


def _recipe(recipe: PathOrRun) -> str:
    return f"recipe={os.fspath(recipe)}"


def _place(run: PathOrRun) -> Any:
    """A path, which is no option whatever it begins with; a URL as it is."""
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
