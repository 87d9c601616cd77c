"""`rlzoo diagnose`: bias, variance and what they cost, of any estimator, against the exact truth.

A recipe names the estimators, their options and the group size; the truth comes from a small
enumerated world (`rlzoo.oracle_worlds`) or, with `--model`, from the recipe's own task and model
with few tokens allowed. A run folder in the place of a recipe compares estimators on its saved
batches.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlzoo.columns import nearest
from rlzoo.component import Component, RlzooError
from rlzoo.recipe import Recipe, has_sweep
from rlzoo.registry import Zoo, load_zoo

EVERYTHING = "all"  # estimator=all
CRITICS = ("exact", "noisy", "zero")
SIZES = (4, 16, 64, 256, 1024)
MOST_SAMPLES = 64


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("words", nargs="*", metavar="RUN | key=value")
    add = sub.add_argument
    add("--world", default="outcome", help="outcome, graded, dense or key_noise: what is paid when")
    add("--critic", default=",".join(CRITICS), help="exact, noisy, zero; own with --checkpoints")
    add("--noise", type=float, default=0.2, help="standard deviation of the noisy critic's errors")
    add("--vocabulary", type=int, default=6, help="tokens, EOS included")
    add("--horizon", type=int, default=5, help="the longest episode")
    add("--samples", type=int, help="samples per prompt; the recipe's rollout.samples")
    add("--prompts", type=int, default=1, help="prompts in the world, of unlike difficulty")
    add("--fixed-length", action="store_true", help="no EOS: every episode takes --horizon tokens")
    add("--cut", type=int, help="truncate rows at this length; rollout.truncation says what then")
    add("--kl", action="store_true", help="with the recipe's KL, in reward and objective")
    add("--batches", default=",".join(map(str, SIZES)), help="batch sizes, in rows; 0: none")
    add("--model", action="store_true", help="the recipe's model and task, on --vocabulary tokens")
    add("--checkpoints", action="store_true", help="of a RUN: its own critic, at each checkpoint")
    add("--parameters", action="store_true", help="of a RUN: gradients in its final parameters too")
    add("--branches", type=int, metavar="K", help="of a RUN: K fresh rollouts from chosen states")
    add("--states", type=int, metavar="N", help="how many states --branches starts from; 64")
    add("--plot", metavar="FILE", help="frontier and cosine curves, .png or .svg")
    add("--html", metavar="FILE", help="table and plots in one self-contained page")


def command(arguments: argparse.Namespace) -> int:
    words = list(arguments.words)
    if not words:
        raise RlzooError("diagnose: give recipe=NAME [estimator=a,b ...], or a RUN folder")
    if arguments.checkpoints:
        from rlzoo.diagnose_checkpoints import checkpoint_tables, diagnose_checkpoints

        return _show(diagnose_checkpoints(words, arguments), arguments, checkpoint_tables)
    if arguments.branches is not None or arguments.states is not None:
        from rlzoo.diagnose_branches import branch_document, branch_tables

        return _show(branch_document(arguments), arguments, branch_tables)
    if "=" not in words[0]:
        from rlzoo.diagnose_run import diagnose_run, run_tables

        document = diagnose_run(words[0], words[1:], parameters=arguments.parameters)
        return _show(document, arguments, run_tables)
    began = time.perf_counter()
    document = diagnose(words, arguments)
    document["seconds"] = time.perf_counter() - began
    if arguments.plot or arguments.html:
        from rlzoo.diagnose_plot import write_html, write_plot

        if arguments.plot:
            write_plot(document, Path(arguments.plot))
        if arguments.html:
            write_html(document, Path(arguments.html))
    return _show(document, arguments, tables)


def _show(document: dict[str, Any], arguments: argparse.Namespace, view: Any) -> int:
    if arguments.json:
        import json

        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        from rich.console import Console

        console = Console()
        for part in view(document, console.width):
            console.print(part)
    for fault in document.get("failed", ()):
        print(f"rlzoo: {fault['estimator']}: {fault['reason']}", file=sys.stderr)
    return 1 if document.get("failed") else 0


# ---------------------------------------------------------------- what is asked


def estimators_of(words: list[str], zoo: Zoo, *, need_recipe: bool = True) -> list[Recipe]:
    """A recipe for each estimator, with each of the swept options that it has."""
    from rlzoo.trace import variants

    expanded = []
    for word in words:
        key, _, text = word.partition("=")
        if key in ("estimator", "estimator.name") and text == EVERYTHING:
            word = f"estimator={','.join(zoo.estimators)}"
        elif key != "recipe" and not key.startswith("estimator") and has_sweep(text):
            raise RlzooError(
                f"{key}={text}: diagnose sweeps estimators and their options; give --critic, "
                "--world and the like once"
            )
        expanded.append(word)
    return variants(expanded, [], zoo, need_recipe=need_recipe)


def labels(component: Component, options: Mapping[str, Any], words: list[str]) -> dict[str, Any]:
    """The options that are worth naming: swept, or not the default."""
    swept = {w.split("=", 1)[0].removeprefix("estimator.") for w in words}
    return {
        name: value
        for name, value in options.items()
        if name in swept or value != component.options[name].default
    }


def critics_of(text: str, noise: float, known: Sequence[str] = CRITICS) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise RlzooError(f"--critic: must be of {', '.join(known)}. Got {name!r}{hint}")
    if noise < 0:
        raise RlzooError(f"--noise must be at least 0. Got {noise}")
    return list(dict.fromkeys(names))


def sizes_of(text: str, samples: int) -> tuple[int, ...]:
    """Batch sizes, rounded up to whole groups; none for 0."""
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        raise RlzooError(f"--batches must be integers, 4,16,64. Got {text!r}") from None
    if sizes == [0]:
        return ()
    if min(sizes) < 1 or max(sizes) > 8192:
        raise RlzooError(f"--batches must lie in [1, 8192]. Got {text}")
    return tuple(sorted({-(-size // samples) * samples for size in sizes}))


def samples_of(arguments: argparse.Namespace, first: Recipe) -> int:
    """Rows in a group; checks --cut on the way."""
    samples = arguments.samples or first.config.rollout.samples
    if not 2 <= samples <= MOST_SAMPLES:
        place = "--samples" if arguments.samples else first.blame("rollout.samples")
        raise RlzooError(f"{place}: groups take 2 to {MOST_SAMPLES} samples. Got {samples}")
    if arguments.cut is not None and not 1 <= arguments.cut <= arguments.horizon:
        raise RlzooError(f"--cut must lie in [1, {arguments.horizon}]. Got {arguments.cut}")
    return samples


# ---------------------------------------------------------------- the diagnosis


def diagnose(
    words: list[str], arguments: argparse.Namespace, zoo: Zoo | None = None
) -> dict[str, Any]:
    """The document that `--json` prints; raises RlzooError."""
    zoo = zoo or load_zoo()
    recipes = estimators_of(words, zoo)
    first = recipes[0]
    config = first.config
    critics = critics_of(arguments.critic, arguments.noise)
    samples = samples_of(arguments, first)
    import torch

    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    from rlzoo.measure import STEP_KL, truth
    from rlzoo.oracle import enumerate_episodes, make_tree
    from rlzoo.oracle_worlds import make_critic, make_world

    sizes = sizes_of(arguments.batches, samples)
    kl_coef = config.kl.coef if arguments.kl and config.kl.place == "reward" else 0.0
    tree = make_tree(
        arguments.vocabulary,
        arguments.horizon,
        stops=not arguments.fixed_length,
        prompts=arguments.prompts,
    )
    space = None
    if arguments.model:
        from rlzoo.model_world import make_model_world

        if arguments.fixed_length:
            raise RlzooError("--fixed-length: a model may always end its response")
        space = make_model_world(first, zoo, tree, kl_coef=kl_coef)
        oracle = space.oracle
    else:
        oracle = make_world(arguments.world, tree, seed=config.seed, kl_coef=kl_coef)
    episodes = enumerate_episodes(oracle, arguments.cut)
    setting = Setting(first, zoo, oracle, episodes, samples, kl_coef)

    values = {
        name: make_critic(name, oracle, size=arguments.noise, seed=config.seed) for name in critics
    }
    rows, undone, failed, subject = setting.rows(recipes, words, values, sizes, space)
    star = truth(subject).norm().item() if subject else 0.0
    return {
        "world": {
            "name": f"{config.task.name} on {config.model.name or config.model.path}"
            if arguments.model
            else arguments.world,
            "vocabulary": tree.vocabulary,
            "horizon": tree.horizon,
            "prompts": tree.prompts,
            "eos": tree.stops,
            "cut": arguments.cut,
            "states": tree.states,
            "episodes": len(episodes.probability),
            "samples": samples,
            "expected_return": oracle.expected_return,
            "expected_length": oracle.expected_length,
            "kl_coef": kl_coef,
            "kl": oracle.kl(),
            "gradient_norm": star,
            "critic_noise": arguments.noise,
            "step_kl": STEP_KL,
            "seed": config.seed,
            **(space.describe() if space else {}),
        },
        "estimators": rows,
        "not_diagnosable": undone,
        "failed": failed,
    }


def _row(subject: Any, sizes: tuple[int, ...], space: Any) -> dict[str, Any]:
    from rlzoo.measure import report

    found = vars(report(subject, sizes=sizes))
    found["batches"] = {str(size): numbers for size, numbers in found["batches"].items()}
    if space:
        found["parameters"] = space.measure(subject)
    return found


class Setting:
    """A world and what a recipe does in it: makes the subject of each estimator."""

    def __init__(self, recipe: Recipe, zoo: Zoo, oracle: Any, episodes: Any, samples: int,
                 kl_coef: float):  # fmt: skip
        self.recipe, self.zoo = recipe, zoo
        self.oracle, self.episodes, self.samples, self.kl_coef = oracle, episodes, samples, kl_coef

    def columns(self, values: Any, rows: Any = None) -> dict[str, Any]:
        """The columns of all episodes, or of some (B,), under a critic (S,)."""
        from rlzoo.oracle import make_columns
        from rlzoo.plan import Bound

        config, kl = self.recipe.config, None
        if self.kl_coef:
            kl = Bound(self.zoo.kl_penalties[config.kl.name], self.recipe.options("kl"))
        return make_columns(
            self.oracle,
            self.episodes if rows is None else self.episodes.select(rows),
            values,
            truncation=config.rollout.truncation,
            truncation_penalty=config.rollout.truncation_penalty,
            kl=kl,
            kl_spread=config.kl.spread,
        )

    def rows(
        self,
        recipes: Sequence[Recipe],
        words: list[str],
        critics: Mapping[str, Any],
        sizes: tuple[int, ...],
        space: Any = None,
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], Any]:
        """A row for each estimator under each critic, name -> V (S,), that it reads; those that
        cannot be asked, those that failed, and the last subject."""
        from rlzoo.plan import CRITIC_COLUMNS

        rows: list[dict[str, Any]] = []
        undone: list[dict[str, Any]] = []
        failed: list[dict[str, Any]] = []
        subject = None
        for recipe in recipes:
            component = self.zoo.estimators[recipe.config.estimator.name]
            options = recipe.options("estimator")
            uses_critic = not set(component.needs).isdisjoint(CRITIC_COLUMNS)
            for critic in list(critics) if uses_critic else list(critics)[:1]:
                found, missing = self.subject(component, options, critics[critic])
                if missing:
                    undone.append({"estimator": component.name, "needs": missing})
                    break
                subject = found
                try:
                    row = _row(found, sizes, space)
                except RlzooError as error:
                    failed.append({"estimator": component.name, "reason": str(error)})
                    break
                rows.append(
                    {
                        "estimator": component.name,
                        "options": options,
                        "shown": labels(component, options, words),
                        "critic": critic if uses_critic else None,
                        **row,
                    }
                )
        return rows, undone, failed, subject

    def subject(
        self, component: Component, options: Mapping[str, Any], values: Any
    ) -> tuple[Any, list[str]]:
        """The estimator as a subject for measuring, and what its columns lack."""
        import torch

        from rlzoo.measure import Subject
        from rlzoo.noise import generator
        from rlzoo.oracle import Resources, supply

        config = self.recipe.config
        chosen = {name: self.recipe.options(f"columns.{name}") for name in config.columns}

        def supplied(m: int, rows: Any) -> tuple[dict[str, Any], list[str], bool]:
            columns = self.columns(values, rows)
            draw = generator(config.seed, "diagnose/columns", m + 1)
            resources = Resources(self.oracle, columns["prompt_index"], draw)
            missing = supply(self.zoo, component.needs, columns, resources.handles(), chosen)
            return columns, missing, resources.random

        def fresh(m: int, rows: Any) -> dict[str, Any]:
            return supplied(m, rows)[0]

        columns, missing, random = supplied(0, None)
        kept = None
        if config.rollout.truncation == "drop":
            kept = (~columns["truncated"]).to(torch.float64)
        found = Subject(
            component,
            options,
            self.oracle,
            self.episodes,
            columns,
            fresh if random else None,
            samples=self.samples,
            prompts=min(config.rollout.prompts, 8),
            kept=kept,
            seed=config.seed,
        )
        return found, missing


# ---------------------------------------------------------------- tables


def number(x: float, se: float = 0.0) -> str:
    """Two digits; a standard error beside it where there is one."""
    if se >= 1e-12:
        return f"{_short(x, 2)}±{_short(se, 1)}"
    return "0" if abs(x) < 1e-12 else _short(x, 2)


def _short(x: float, digits: int) -> str:
    text = f"{x:.{digits}g}" if 0.001 <= abs(x) < 1000 else f"{x:.{digits - 1}e}"
    return text.replace("e-0", "e-").replace("e+0", "e+")


def name_of(row: Mapping[str, Any]) -> str:
    shown = {k: f"{v:g}" if isinstance(v, float) else v for k, v in row["shown"].items()}
    return " ".join([row["estimator"], *(f"{k}={v}" for k, v in shown.items())])


def headline(document: Mapping[str, Any]) -> str:
    w = document["world"]
    ends = "EOS included" if w["eos"] else "no EOS"
    text = (
        f"{w['name']}: |V| = {w['vocabulary']} ({ends}), T = {w['horizon']}: {w['states']:,} "
        f"states, {w['episodes']:,} episodes; J = {w['expected_return']:.3f}, mean length "
        f"{w['expected_length']:.2f}; groups of {w['samples']}"
    )
    if w["prompts"] > 1:
        text += f"; {w['prompts']} prompts"
    if w["cut"]:
        text += f"; rows cut at {w['cut']}"
    if w["kl_coef"]:
        text += f"; KL {w['kl']:.3f} nats, coefficient {w['kl_coef']}"
    if "tokens" in w:
        text += f"; tokens {w['tokens']}"
    return text


def cells(
    rows: Sequence[Mapping[str, Any]], wide: bool
) -> tuple[list[str], Callable[[Mapping[str, Any]], list[str]]]:
    """Heads of the numbers' columns, and a row's cells."""
    sizes = list(rows[0]["batches"]) if rows else []
    middle = min(sizes, key=lambda size: abs(int(size) - 64)) if sizes else None
    shown = sizes if wide else [s for s in sizes if s == middle]
    in_parameters = bool(rows) and "parameters" in rows[0]
    heads = ["b_perp²", *(["bias²"] if wide else []), "var", *(["MSE"] if wide else [])]
    heads += ["sign", "cos", "scale", *(["SNR"] if wide else [])]
    heads += ["cos θ"] if in_parameters else []
    heads += [f"cos@{size}" for size in shown]
    heads += ["gain"] if wide or not middle else []
    heads += [f"gain@{middle}"] if middle else []

    def of(row: Mapping[str, Any]) -> list[str]:
        found = [number(row["b_perp2"], row["b_perp2_se"])]
        found += [number(row["bias2"])] if wide else []
        found += [number(row["variance"])]
        found += [number(row["squared_error"])] if wide else []
        found += [f"{row['sign']:.2f}", _cosine(row["cosine"], row["cosine_se"])]
        found += [number(row["scale"])]
        found += [number(row["snr"])] if wide else []
        found += [_cosine(row["parameters"]["cosine"], 0)] if in_parameters else []
        found += [f"{row['batches'][size]['cosine']:.2f}" for size in shown]
        found += [f"{row['gain']:.2f}"] if wide or not middle else []
        found += [f"{row['batches'][middle]['gain']:.2f}"] if middle else []
        return found

    return heads, of


def tables(document: Mapping[str, Any], width: int) -> list[Any]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = document["estimators"]
    wide = width >= 110
    heads, cells_of = cells(rows, wide)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1 if width >= 160 else 0, 0, 0), pad_edge=False)
    table.add_column("estimator", overflow="fold", style="bold", min_width=10)
    table.add_column("critic", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    before = None
    for row in rows:
        name = name_of(row)
        table.add_row("" if name == before else name, row["critic"] or "-", *cells_of(row))
        before = name
    notes = notes_of(document, rows, wide)
    return [Text(headline(document)), table, *(Text(note, style="dim") for note in notes)]


def notes_of(
    document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], wide: bool
) -> list[str]:
    """What stands below the numbers of `rows`."""
    notes = []
    sampled = [row for row in rows if row["method"] != "exact"]
    if sampled:
        methods = dict.fromkeys(f"{row['estimator']}: {row['method']}" for row in sampled)
        notes.append(f"± one standard error; {'; '.join(methods)}; the others are exact")
    errors = [drawn["cosine_se"] for row in rows for drawn in row["batches"].values()]
    if errors:
        notes.append(
            f"cos@B, gain@B: drawn batches of B rows, the same for all; standard error of cos@B "
            f"at most {max(errors):.2g}. gain: of J, in a step of KL "
            f"{document['world']['step_kl']}, as a share of the true gradient's"
        )
    notes += [
        f"{row['estimator']}: not diagnosable: needs {', '.join(row['needs'])}"
        for row in document["not_diagnosable"]
    ]
    if not wide:
        notes.append("bias², MSE, SNR, other batch sizes: in a terminal of 110 columns, or --json")
    if "seconds" in document:
        notes.append(f"{document['seconds']:.1f} s")
    return notes


def _cosine(x: float, se: float) -> str:
    return f"{x:.3f}±{se:.0e}".replace("e-0", "e-") if se >= 5e-4 else f"{x:.3f}"
