"""`rlzoo trace`: one response, a row per token, each number with its source.  No torch here.

This room holds what a trace is, its command line and its tables; `trace_batch` makes one from a
run, a recipe or typed numbers, `trace_explain` spells its arithmetic out, `trace_html` shades it.
"""

import argparse
import dataclasses
import itertools
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rlzoo.columns import COLUMNS, nearest
from rlzoo.component import RlzooError

Numbers = list[float | None]  # one per response token; None where the policy did not choose it


class TraceError(RlzooError):
    """A trace that cannot be made, and what would make it possible."""


@dataclass
class Token:
    """A response token: its place, its text, and whether the policy chose it."""

    t: int
    text: str
    action: bool


@dataclass
class Derivation:
    """How the numbers of one column come about: a formula, what it stands for, a line each."""

    column: str
    formula: str
    lines: list[str]


@dataclass
class Credit:
    """What one estimator makes of the response. `columns` and `clipped` are as long as it."""

    label: str
    name: str
    options: dict[str, Any]
    summary: str
    columns: dict[str, Numbers]
    clipped: list[str] | None
    whitened: str
    derivations: list[Derivation] = field(default_factory=list)


@dataclass
class Trace:
    """A response, token by token. `columns` have the names of the batch's."""

    source: str
    row: int
    rows: int
    prompt: str | None
    answer: Any
    score: float | None
    tokens: list[Token]
    columns: dict[str, Numbers]
    bootstrap: float | None
    ending: str
    credits: list[Credit]
    derivations: list[Derivation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


# ---------------------------------------------------------------- command line


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.usage = (
        "rlzoo trace RUN | recipe=NAME [key=value ...] | --rewards R,R,... [--values V,V,...]\n"
        "                   [--prompt TEXT] [--estimator NAME,...] [--OPTION X] [--explain] ..."
    )
    sub.epilog = (
        "--OPTION X sets estimator.OPTION=X, for any option of any estimator; commas put several "
        "side by side (estimator=a,b or --lam 0,1). With typed numbers --COLUMN X,X,... gives any "
        "other column; `;` separates the rows of a group."
    )
    sub.add_argument("words", nargs="*", metavar="RUN|key=value")
    sub.add_argument("--prompt", metavar="TEXT", help="trace a fresh response to this prompt")
    sub.add_argument("--answer", metavar="TEXT", help="what is right for --prompt")
    sub.add_argument("--row", type=int, default=0, metavar="N", help="which response of the batch")
    sub.add_argument(
        "--step", type=int, metavar="N", help="which saved batch or checkpoint (default: the last)"
    )
    sub.add_argument("--fresh", action="store_true", help="draw anew, though batches were saved")
    sub.add_argument("--rewards", metavar="R,...", help="typed numbers: reward per token")
    sub.add_argument("--values", metavar="V,...", help="typed: V(s_t), read before token t")
    sub.add_argument("--bootstrap", metavar="V", help="typed: V after the last token (default 0)")
    sub.add_argument("--estimator", metavar="NAME,...", help="short for estimator=NAME,...")
    sub.add_argument("--explain", action="store_true", help="spell the arithmetic out")
    sub.add_argument("--html", metavar="FILE", help="write a page with shaded tokens")
    whole = sub.parse_known_args

    def parse_known_args(args=None, namespace=None):
        # argparse knows neither options of plugins nor that `-.01,.99` is a value.
        rest, given = _set_aside(sub, sys.argv[1:] if args is None else list(args))
        found, extras = whole(rest, namespace)
        # Intermixed parsing comes by twice: what the first pass set aside is gone in the second.
        found.given = [*getattr(found, "given", []), *given]
        return found, extras

    sub.parse_known_args = parse_known_args  # type: ignore[method-assign]


def _set_aside(
    sub: argparse.ArgumentParser, args: list[str]
) -> tuple[list[str], list[tuple[str, str | None]]]:
    """The arguments that `sub` knows, and (name, value) of every `--name` that it does not."""
    known = sub._option_string_actions
    rest: list[str] = []
    words: list[str] = []  # argparse wants them in one piece
    given: list[tuple[str, str | None]] = []
    queue = iter(args)
    for word in queue:
        name, equals, value = word.partition("=")
        if not name.startswith("-") or name == "--":
            words.append(word)
        elif name in known:
            takes = known[name].nargs != 0 and not equals
            found = next(queue, None) if takes else None
            rest.append(word if found is None else f"{word}={found}")
        else:
            given.append(
                (name.lstrip("-").replace("-", "_"), value if equals else next(queue, None))
            )
    return [*rest, *words], given


def command(arguments: argparse.Namespace) -> int:
    from rlzoo.registry import load_zoo

    # With --json stdout carries one document: whatever a plugin prints goes to stderr.
    with redirect_stdout(sys.stderr) if arguments.json else nullcontext():
        traced = find(arguments, load_zoo())
    if arguments.html:
        from rlzoo.trace_html import page

        try:
            Path(arguments.html).write_text(page(traced), encoding="utf-8")
        except OSError as error:
            raise TraceError(f"--html: cannot write {arguments.html}: {error.strerror}") from None
    if arguments.json:
        print(json.dumps(traced.as_json(), indent=1, ensure_ascii=False, default=str))
        return 0
    from rich.console import Console

    console = Console()
    explain = arguments.explain or arguments.rewards is not None
    for part in show(traced, console, explain=explain):
        console.print(part)
    if arguments.html:
        console.print(f"written: {arguments.html}", markup=False, highlight=False, soft_wrap=True)
    return 0


def find(arguments: argparse.Namespace, zoo: Any) -> Trace:
    """The trace that the command line asks for."""
    runs = [w for w in arguments.words if "=" not in w]
    words = [w for w in arguments.words if "=" in w]
    typed, options = _sort_out(arguments, zoo)
    if len(runs) > 1:
        raise TraceError(f"trace: one RUN at a time. Got {', '.join(runs)}")
    sources = [bool(runs), any(w.startswith("recipe=") for w in words), bool(typed)]
    if sum(sources) != 1:
        raise TraceError(
            "trace: give one of RUN, recipe=NAME, or --rewards with --values "
            "(--rewards 0,0,1 --values .3,.4,.6)"
        )
    if typed and (arguments.prompt or arguments.fresh or arguments.step is not None):
        raise TraceError("trace: typed numbers come from no model; leave --prompt and --step out")
    if arguments.answer is not None and arguments.prompt is None:
        raise TraceError("trace: --answer belongs to --prompt")
    from rlzoo import trace_batch

    if runs:
        from rlzoo.runs import open_folder

        folder = open_folder(runs[0])
        words = [f"recipe={folder.path / 'recipe.yaml'}", *words]
        recipes = variants(words, options, zoo)
        return trace_batch.of_run(
            folder, recipes, zoo, prompt=arguments.prompt, answer=arguments.answer,
            row=arguments.row, step=arguments.step, fresh=arguments.fresh,
        )  # fmt: skip
    recipes = variants(words, options, zoo, need_recipe=not typed)
    if typed:
        return trace_batch.of_numbers(typed, recipes, zoo, row=arguments.row)
    if arguments.step is not None or arguments.fresh:
        raise TraceError("trace: --step and --fresh belong to a RUN")
    return trace_batch.of_recipe(
        recipes, zoo, prompt=arguments.prompt, answer=arguments.answer, row=arguments.row
    )


def _sort_out(
    arguments: argparse.Namespace, zoo: Any
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Typed columns, name -> text, and options of the estimator, (name, text)."""
    names = (("rewards", "rewards"), ("values", "values"), ("bootstrap", "bootstrap_values"))
    typed = {
        column: text for name, column in names if (text := getattr(arguments, name)) is not None
    }
    options = [("name", arguments.estimator)] if arguments.estimator else []
    known = {o for e in zoo.estimators.values() for o in e.options}
    columns = {c.name for c in COLUMNS.values() if c.shape in ("B", "BT")}
    for name, text in arguments.given:
        if text is None:
            raise TraceError(f"--{name} needs a value")
        if name in known:
            options.append((name, text))
        elif name in columns:
            typed[name] = text
        else:
            declared = ["prompt", "answer", "row", "step", "rewards", "values", "bootstrap"]
            words = [*known, *columns, *declared, "explain", "html", "json", "estimator", "fresh"]
            raise TraceError(
                f"--{name}: no estimator has this option, and it is no column{nearest(name, words)}"
            )
    if typed and "rewards" not in typed:
        raise TraceError(f"--{next(iter(typed))}: typed numbers need --rewards too")
    return typed, options


def variants(
    words: list[str], options: list[tuple[str, str]], zoo: Any, *, need_recipe: bool = True
) -> list[Any]:
    """A composed recipe for each estimator, with each of its swept options."""
    from rlzoo.recipe import compose, has_sweep, split_values

    fixed: list[str] = []
    names: list[str | None] = [None]
    swept: dict[str, tuple[str, list[str]]] = {}  # option -> (as it was written, values)
    for word in [*words, *(f"estimator.{name}={text}" for name, text in options)]:
        key, text = word.split("=", 1)
        dotted = dict(options).get(key.removeprefix("estimator."))
        written = f"--{key.removeprefix('estimator.')}" if dotted == text else key
        if key in ("estimator", "estimator.name"):
            names = [*split_values(text)]
        elif key.startswith("estimator."):
            swept[key.removeprefix("estimator.")] = written, split_values(text)
        elif key != "recipe" and has_sweep(text):
            raise TraceError(
                f"{key}={text}: trace puts estimators and their options side by side; "
                "`rlzoo sweep` runs other keys"
            )
        else:
            fixed.append(word)
    recipes = []
    had: set[str] = set()
    for name in names:
        chosen = [*fixed, *([f"estimator={name}"] if name else [])]
        plain = compose(chosen, zoo, need_recipe=need_recipe)
        needs = zoo.estimators[plain.config.estimator.name].needs
        if plain.config.rollout.truncation == "bootstrap" and "values" not in needs:
            # Beside a critic's estimator, one that reads no value cares for none after the end.
            chosen = [*(w for w in chosen if not w.startswith("rollout.truncation=")),
                      "rollout.truncation=zero"]  # fmt: skip
            plain = compose(chosen, zoo, need_recipe=need_recipe)
        has = [o for o in swept if o in zoo.estimators[plain.config.estimator.name].options]
        had.update(has)
        for values in itertools.product(*(swept[o][1] for o in has)):
            own = [f"estimator.{o}={v}" for o, v in zip(has, values, strict=True)]
            recipes.append(compose([*chosen, *own], zoo, need_recipe=need_recipe) if own else plain)
    for option, (written, _) in swept.items():
        if option not in had:
            chosen_names = list(dict.fromkeys(r.config.estimator.name for r in recipes))
            theirs = {o for n in chosen_names for o in zoo.estimators[n].options}
            raise TraceError(
                f"{written}: no option of {', '.join(chosen_names)} "
                f"(there: {', '.join(sorted(theirs)) or 'none'}){nearest(option, theirs)}"
            )
    return recipes


# ---------------------------------------------------------------- texts and numbers


def number(x: float | None, digits: int = 4) -> str:
    """At most `digits` decimals, no trailing zeros; tiny ones as 2e-05, none as an empty string."""
    if x is None:
        return ""
    if x != x or x in (float("inf"), float("-inf")):
        return str(x)
    if 0 < abs(x) < 0.5 * 10**-digits:
        return f"{x:.0e}"
    if abs(x) >= 1e5:
        return f"{x:.4g}"
    text = f"{x:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def aligned(texts: Sequence[str], least: int = 0) -> list[str]:
    """Padded to one width, at least `least`, decimal points below each other."""
    heads = [0 if "e" in text else len(text.partition(".")[0]) for text in texts]
    before = max(heads, default=0)
    lined = [" " * (before - h) + text if h else text for h, text in zip(heads, texts, strict=True)]
    inner = max(map(len, lined), default=0)
    return [
        (text.ljust(inner) if h else text.rjust(inner)).rjust(least)
        for h, text in zip(heads, lined, strict=True)
    ]


@cache
def _byte_of() -> Mapping[str, int]:
    """The letters in which byte-level vocabularies write bytes, as GPT-2's: printable Latin-1 is
    itself, every other byte a letter from 256 on."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    letters = {chr(b): b for b in plain}
    others = (b for b in range(256) if b not in set(plain))
    return letters | {chr(256 + i): b for i, b in enumerate(others)}


def readable(decoded: str, piece: str) -> str:
    """A token as a reader can see it. `decoded`: its text; `piece`: what the vocabulary calls it.

    What has no picture of its own is escaped: control characters, parts of a character (bytes),
    white space at an edge.
    """
    if not decoded:
        decoded = piece
    if "\ufffd" in decoded:  # part of a character
        if re.fullmatch(r"<0x[0-9A-Fa-f]{2}>", piece):
            return f"\\x{piece[3:5].lower()}"
        letters = _byte_of()
        if piece and all(c in letters for c in piece):
            raw = bytes(letters[c] for c in piece)
            decoded = raw.decode("utf-8", "backslashreplace")
    return "".join(_visible(c, i) for i, c in enumerate(decoded))


def _visible(char: str, place: int) -> str:
    if char == " ":
        return "␣"
    if not char.isprintable() or char in "\ufe0e\ufe0f\u200d":
        return char.encode("unicode_escape").decode()
    if unicodedata.category(char)[0] == "M" and place == 0:
        return f"◌{char}"  # a mark needs something to sit on
    return char


def printable(text: str) -> str:
    """A text with its control characters escaped, line breaks apart."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


# ---------------------------------------------------------------- tables

# Batch column -> header, in the order of the table.
SHARED = {
    "log_probs": "log-prob\nnow",
    "old_log_probs": "log-prob",
    "ref_log_probs": "ref\nlog-prob",
    "kl": "KL",
    "scores": "score",
    "rewards": "reward",
    "values": "value",
    "ratio": "ratio",
}
OWN = {
    "delta": "delta",
    "raw_advantages": "advantage\nraw",
    "advantages": "advantage",
    "returns": "return",
}
BLUE, ORANGE = (86, 156, 235), (245, 150, 60)


def shade(value: float | None, largest: float) -> tuple[tuple[int, int, int], float] | None:
    """(colour, strength in [0, 1]): blue for what is encouraged, orange for what is not."""
    if value is None or abs(value) < 1e-6:  # rounding noise has no colour
        return None
    return (BLUE if value > 0 else ORANGE), min(1.0, abs(value) / largest)


def largest(values: Iterable[float | None]) -> float:
    return max((abs(v) for v in values if v is not None), default=0.0)


def _style(value: float | None, top: float) -> Any:
    from rich.style import Style

    found = shade(value, top)
    if found is None:
        return Style()
    colour, strength = found
    # Towards white where it is weak; black letters can be read on all of it.
    r, g, b = (round(255 - (0.15 + 0.85 * strength) * (255 - c)) for c in colour)
    return Style(color="black", bgcolor=f"rgb({r},{g},{b})")


@dataclass
class Shown:
    """A table column: header, a text per row, a style per row."""

    header: str
    texts: list[str]
    styles: list[Any] | None = None


def _columns(traced: Trace) -> list[list[Shown]]:
    """Columns in the groups in which they are to stay together."""
    end = traced.bootstrap is not None
    blank = [""] if end else []

    def plain(header: str, values: Numbers, last: str | None = None) -> Shown:
        texts = [*map(number, values), *([last or ""] if end else [])]
        return Shown(header, aligned(texts, max(map(len, header.split("\n")))))

    shared = []
    for name, header in SHARED.items():
        if name in traced.columns:
            last = number(traced.bootstrap) if name == "values" else None
            shared.append(plain(header, traced.columns[name], last))
    deltas = [c.columns["delta"] for c in traced.credits if "delta" in c.columns]
    once = bool(deltas) and all(d == deltas[0] for d in deltas)
    if once:
        shared.append(plain("delta", deltas[0]))
    groups = [shared]
    for credit in traced.credits:
        above = credit.label.replace(" ", "\n") + "\n" if len(traced.credits) > 1 else ""
        group = []
        for name, header in OWN.items():
            if name not in credit.columns or (name == "delta" and once):
                continue
            if name == "advantages" and not credit.whitened:
                continue
            if name == "raw_advantages" and not credit.whitened:
                header = "advantage"
            column = plain(above + header, credit.columns[name])
            if "advantages" in name:
                values = credit.columns[name]
                top = largest(values)
                column.styles = [*(_style(v, top) for v in values), *blank]
            group.append(column)
        if credit.clipped is not None:
            group.append(Shown(f"{above}clipped", [*credit.clipped, *blank]))
        groups.append(group)
    return groups


def _table(traced: Trace, columns: Sequence[Shown]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    end = traced.bootstrap is not None
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("t", justify="right", vertical="bottom", no_wrap=True)
    table.add_column("token", overflow="fold", max_width=24)
    for column in columns:
        table.add_column(Text(column.header, justify="right"), no_wrap=True)
    first = traced.credits[0].columns["advantages"] if len(traced.credits) == 1 else []
    top = largest(first)
    for i, token in enumerate(traced.tokens):
        style = "" if token.action else "dim"
        mark = _style(first[i], top) if first else ""
        cells = [
            Text(c.texts[i], style=c.styles[i] if c.styles else "")
            for c in columns
        ]  # fmt: skip
        table.add_row(str(token.t), Text(token.text, style=mark), *cells, style=style)
    if end:
        t = str(len(traced.tokens))
        cells = [Text(c.texts[-1]) for c in columns]
        table.add_row(t, "(end)", *cells, style="dim")
    return table


def tables(traced: Trace, console: Any) -> Iterator[Any]:
    """As few tables as hold all columns at the console's width."""
    from rich.measure import Measurement

    def fits(columns: Sequence[Shown]) -> bool:
        table = _table(traced, columns)
        free = console.options.update(max_width=100_000)
        return Measurement.get(console, free, table).maximum <= console.width

    page: list[Shown] = []
    for group in _columns(traced):
        if fits([*page, *group]):
            page += group
            continue
        if page and fits(group):
            yield _table(traced, page)
            page = list(group)
            continue
        for column in group:
            if page and not fits([*page, column]):
                yield _table(traced, page)
                page = []
            page.append(column)
    if page or not traced.columns:
        yield _table(traced, page)


def show(traced: Trace, console: Any, *, explain: bool) -> Iterator[Any]:
    """What the terminal shows of a trace."""
    from rich.text import Text

    def line(*parts: Any) -> Any:
        return Text.assemble(*parts, overflow="fold")

    yield line((traced.source, "bold"), f", response {traced.row} of {traced.rows}")
    if traced.prompt is not None:
        answer = "" if traced.answer is None else f"   answer {traced.answer}"
        scored = "" if traced.score is None else f"   score {number(traced.score)}"
        yield line(("prompt ", "dim"), printable(traced.prompt), (answer + scored, "dim"))
    width = max((len(c.label) for c in traced.credits), default=0)
    for credit in traced.credits if any(t.text for t in traced.tokens) else ():
        values = credit.columns["advantages"]
        top = largest(values)
        name = f"{credit.label:<{width}} " if len(traced.credits) > 1 else "response "
        strip = [(t.text, _style(v, top)) for t, v in zip(traced.tokens, values, strict=True)]
        yield line((name, "dim"), *strip)
    if not traced.credits:
        yield line(("response ", "dim"), *(t.text for t in traced.tokens))
    yield from tables(traced, console)
    for text in legend(traced):
        yield line((text, "dim"))
    for text in traced.notes:
        yield line((text, "yellow"))
    if explain:
        for where, derivation in all_derivations(traced):
            yield line()
            yield line((where, "bold"), derivation.formula)
            for text in derivation.lines:
                for i, piece in enumerate(Text(text).wrap(console, max(20, console.width - 6))):
                    piece.rstrip()
                    yield line("      " if i else "  ", piece)


def legend(traced: Trace) -> list[str]:
    """What the columns are, in a line each."""
    lines = []
    if "values" in traced.columns:
        lines.append(f"value: V(s_t), read before token t; {traced.ending}.")
    for credit in traced.credits:
        options = ", ".join(f"{k}={_option(v)}" for k, v in credit.options.items())
        white = credit.whitened or "not whitened"
        lines.append(f"{credit.name}({options}): {white}.")
    return lines


def _option(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def all_derivations(traced: Trace) -> Iterator[tuple[str, Derivation]]:
    """(heading, derivation), the shared ones first."""
    own = [derivation for credit in traced.credits for derivation in credit.derivations]
    common = [
        d for i, d in enumerate(own) if own.count(d) == len(traced.credits) and d not in own[:i]
    ]
    for derivation in [*traced.derivations, *common]:
        yield f"{derivation.column}: ", derivation
    for credit in traced.credits:
        name = f"{credit.label}, " if len(traced.credits) > 1 else ""
        for derivation in credit.derivations:
            if derivation not in common:
                yield f"{name}{derivation.column}: ", derivation
