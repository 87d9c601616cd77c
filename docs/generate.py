"""Writes the parts of the docs that follow from the code: `python docs/generate.py [--check]`.

Whole files: a page for each component under docs/components/, their index, the playground, and the
gallery of recipes (docs/studies/gallery.py draws curves). Blocks, between `<!-- NAME -->` and
`<!-- /NAME -->` in a file that is otherwise written by hand: `BLOCKS` lists them. `--check` writes
nothing, names what is stale, and exits 1 if anything is.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import rlzoo
from rlzoo.plugin.columns import COLUMNS, RESOURCES, STAGES
from rlzoo.plugin.component import KINDS, Component
from rlzoo.plugin.options import REQUIRED, Option
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.files import describe, read_layer
from rlzoo.recipe.keys import COLLECTIONS, KEYS, MANY, SECTIONS, WEIGHT
from rlzoo_lab.data.metrics import metrics
from rlzoo_lab.doctor.rules import RULES
from rlzoo_lab.stats import t_interval

sys.path.insert(0, str(Path(__file__).resolve().parent / "playground"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "studies"))
import families
import gallery
from common import DOCS, ROOT, parts_of, prose, table, with_block
from playground import page as playground

CONFIGS = ROOT / "configs"

TITLES = {
    "estimators": "Advantage estimators",
    "kl_penalties": "KL penalties",
    "policy_losses": "Policy losses",
    "value_losses": "Value losses",
    "aggregations": "Aggregations",
    "columns": "Columns",
    "tasks": "Tasks",
    "rewards": "Rewards",
    "samplers": "Samplers",
    "loggers": "Loggers",
    "executors": "Executors",
}
REACH = {
    "row": "that response only",
    "group": "the samples of the same prompt",
    "batch": "the whole mini-batch",
}
AT_ROLLOUT = ("estimators", "columns")  # these see the whole batch, losses a mini-batch
IN_WORDS = ("tasks", "samplers", "loggers", "executors")  # their docstrings begin with no formula


# ---------------------------------------------------------------- components and recipes


def shipped(zoo: Zoo, kind: str | None = None) -> list[Component]:
    """The zoo's own components: what else is installed here does not belong into the docs."""
    found = zoo if kind is None else zoo.shelves[kind].values()
    return [c for c in found if c.function.__module__.startswith("rlzoo_zoo.")]


def source_file(c: Component) -> str:
    return "plugins/" + c.function.__module__.replace(".", "/") + ".py"


def idea(c: Component) -> str:
    """The module's first line, without the name that it may begin with."""
    text = inspect.getdoc(sys.modules[c.function.__module__]) or c.summary
    return " ".join(text.split("\n\n")[0].split())


def recipes() -> dict[str, Path]:
    return {p.stem: p for p in sorted((CONFIGS / "recipes").glob("*.yaml"))}


@cache
def recipe_values(path: Path) -> dict[str, Any]:
    return read_layer(path).values


def recipes_with(c: Component) -> list[str]:
    """The shipped recipes that choose this component themselves."""
    sections = [s for s, kind in SECTIONS.items() if kind == c.kind]
    collection = KINDS[c.kind].key

    def chooses(values: dict[str, Any]) -> bool:
        if any(values.get(f"{s}.name") == c.name for s in sections):
            return True
        prefix = f"{collection}.{c.name}"
        inside = collection in COLLECTIONS
        return inside and any(k == prefix or k.startswith(prefix + ".") for k in values)

    return [name for name, path in recipes().items() if chooses(recipe_values(path))]


# ---------------------------------------------------------------- markdown


def cell(text: str) -> str:
    """Text for a table's cell."""
    return prose(text).replace("|", "\\|").replace("\n", " ")


def value_text(value: Any) -> str:
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    text = str(value).replace("\n", "\\n")  # a table's row is one line
    return f"`{text}`" if text else '`""`'


def options_table(options: Iterable[Option]) -> str:
    rows = []
    for o in options:
        default = "" if o.default is REQUIRED else value_text(o.default)
        rows.append([f"`{o.name}`", cell(o.type_text), default, cell(o.meaning)])
    if not any(row[3] for row in rows):
        return table(["option", "type and range", "default"], [row[:3] for row in rows])
    return table(["option", "type and range", "default", "meaning"], rows)


# ---------------------------------------------------------------- a component's page


def page(c: Component, zoo: Zoo) -> str:
    formula, rest = parts_of(c)
    broken = [s for s in sentences(rest) if s.startswith("It fails")]
    notes = " ".join(s for s in sentences(rest) if s not in broken)
    kind = KINDS[c.kind]
    file = source_file(c)
    out = [
        f"# {c.name}",
        prose(idea(c)),
        f"{article(kind.singular)}, in [{file}](../../../{file}). {chosen(c)}",
        prose(" ".join(formula.split())) if c.kind in IN_WORDS else f"```text\n{formula}\n```",
    ]
    if notes:
        out.append(prose(notes))
    out += [prose(s.replace("It fails", "**It fails**", 1)) for s in broken]
    for text in dict.fromkeys(c.caution.values()):
        when = " or ".join(f"`{condition}`" for condition, why in c.caution.items() if why == text)
        where = "Without a correction" if when == "`correction`" else f"With {when}"
        out.append(f"**{where}** a run warns: {prose(text)}.")
    out.append("## Needs\n\n" + needs_text(c, zoo))
    if c.options:
        out.append("## Options\n\n" + options_table(c.options.values()))
    else:
        out.append("## Options\n\nNone.")
    agreed = agreement(c)
    if agreed:
        head = ["verl 0.9.1", "tolerance", "note"]
        more = "[Agreement](../../agreement.md) has more, and the differences."
        out.append("## Agreement with verl\n\n" + table(head, agreed) + "\n\n" + more)
    asking = [o for o in shipped(zoo) if c.kind == "columns" and c.name in o.needs]
    if asking:
        links = ", ".join(f"[{o.name}](../{o.kind}/{o.name}.md)" for o in asking)
        out.append(f"## Used by\n\n{links}")
    using = recipes_with(c)
    if using:
        names = ", ".join(f"`{name}`" for name in using)
        out.append(f"## Recipes with it\n\n{names}")
    out.append("## Source\n\n" + prose(source(c)))
    out.append("[All components](../README.md)")
    return "\n\n".join(out) + "\n"


def source(c: Component) -> str:
    """The whole citation, which may have several lines."""
    return " ".join(c.doc.partition("Source:")[2].split()) or c.source or "none given"


def sentences(text: str) -> list[str]:
    """Cut after a full stop before a capital letter, a digit or a code span."""
    return [s for s in re.split(r"(?<=\.)\s+(?=[A-Z`])", text) if s]


def article(singular: str) -> str:
    words = singular.replace("_", " ").replace("kl ", "KL ")
    if singular == "estimator":
        words = "advantage estimator"
    return f"{'An' if words[0] in 'aeiou' else 'A'} {words}"


def chosen(c: Component) -> str:
    """How a recipe or the command line selects it."""
    key = KINDS[c.kind].key
    if c.kind == "columns":
        weighs = f"; `correction={c.name}` weights the policy loss by it" if c.shape == "BT" else ""
        return (
            "Computed if a component has a parameter of this name, or with "
            f"`columns=[{c.name}]`{weighs}."
        )
    if c.kind in ("rewards", "loggers"):
        return f"Select it with `{key}=[{c.name}]`."
    if c.kind == "executors":
        return f"Select it with `rlzoo sweep ... --on {c.name}`."
    return f"Select it with `{key}={c.name}`."


def needs_text(c: Component, zoo: Zoo) -> str:
    if c.kind == "tasks":
        return task_needs(c)
    if c.kind == "loggers":
        return "`path`, the run's folder."
    if c.kind == "executors":
        return "Nothing but its options."
    rows = [[f"`{n}`", *(cell(x) for x in need(n, zoo))] for n in c.needs]
    text = table(["name", "shape", "meaning"], rows) if rows else "Nothing."
    if c.kind in ("samplers", "rewards"):
        return text
    whole = c.couples == "batch" and c.kind in AT_ROLLOUT
    reach = "the whole batch" if whole else REACH[c.couples]
    text += f"\n\nIts output for a response depends on {reach}."
    if c.shape:
        text += f" Its shape is {shape_text(c.shape)}."
    return text


def need(name: str, zoo: Zoo) -> tuple[str, str]:
    if name in COLUMNS:
        return shape_text(COLUMNS[name].shape), COLUMNS[name].meaning
    if name in RESOURCES:
        return "resource", RESOURCES[name]
    column = zoo.columns[name]
    return shape_text(column.shape), f"column plugin [{name}](../columns/{name}.md): {idea(column)}"


def shape_text(shape: str) -> str:
    return shape if shape == "list" else f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"


def task_needs(c: Component) -> str:
    def asks(method: str) -> str:
        names = list(inspect.signature(getattr(c.function, method)).parameters)[1:]
        return ", ".join(f"`{n}`" for n in names)

    lines = [f"- `score` uses {asks('score')}."]
    if hasattr(c.function, "is_correct"):
        lines.append(f"- `is_correct` uses {asks('is_correct')}; evaluations report an accuracy.")
    if hasattr(c.function, "demonstrate"):
        lines.append("- `demonstrate` returns right and wrong responses for a warm start.")
    return "\n".join(lines)


SECTIONS_OF_AGREEMENT = {
    "estimators": "Advantage estimators",
    "policy_losses": "Policy losses",
    "value_losses": "Aggregations, value losses",
    "aggregations": "Aggregations, value losses",
    "kl_penalties": "Aggregations, value losses",
    "columns": "Aggregations, value losses",
}


def agreement(c: Component) -> list[list[str]]:
    """The rows of agreement.md whose second column names this component."""
    heading = SECTIONS_OF_AGREEMENT.get(c.kind)
    rows, inside = [], False
    for line in read(DOCS / "agreement.md").splitlines():
        if line.startswith("#"):
            inside = heading is not None and line.lstrip("# ").startswith(heading)
        cells = [x.strip() for x in line.strip().strip("|").split("|")]
        if inside and len(cells) == 4 and f"`{c.name}`" in cells[1]:
            rows.append([cells[0], cells[2], cells[3]])
    return rows


# ---------------------------------------------------------------- indices and blocks


# kind -> what the table of docs/studies/families.py shows, and its function
FAMILIES = {
    "estimators": (
        """### What each estimator does

Four responses to one prompt have four tokens each. A right response earns 1 at its last token, and
the critic predicts the share of right responses. The cells show the advantage of a right response
when one or three of the four are right; two numbers are for the first and the last token.""",
        families.estimators,
    ),
    "policy_losses": (
        """### What each policy loss does

A response is one token that had probability 0.2 when it was sampled. The numbers show how strongly
the loss pushes the token, relative to REINFORCE; negative numbers push against the advantage. The
*unit* is the part of the batch whose probabilities determine the push. At ratio 1, in the first
update on a batch, almost all losses are the same.""",
        families.losses,
    ),
}


def index(zoo: Zoo) -> str:
    total = len(shipped(zoo))
    kinds = [
        [f"[{title}](#{title.lower().replace(' ', '-')})", str(len(shipped(zoo, kind))),
         f"`{KINDS[kind].key}`"]
        for kind, title in TITLES.items()
    ]  # fmt: skip
    out = [
        "# Components",
        f"rlzoo ships {total} components. Each is one file under "
        "[plugins/rlzoo_zoo](../../plugins/rlzoo_zoo); its docstring and signature make its page. "
        "`rlzoo plugins` also lists the components of plugins that you installed.",
        table(["kind", "components", "recipe key"], kinds),
    ]
    for kind, title in TITLES.items():
        rows = [
            [
                f"[{c.name}]({kind}/{c.name}.md)",
                cell(idea(c)),
                "" if kind == "tasks" else " ".join(f"`{n}`" for n in c.needs),
                ", ".join(f"`{o.name}={plain(o.default)}`" for o in c.options.values()),
                cell(source(c)),
            ]
            for c in shipped(zoo, kind)
        ]
        head = ["name", "idea", "needs", "options", "source"]
        if kind == "tasks":
            head, rows = [h for h in head if h != "needs"], [[*r[:2], *r[3:]] for r in rows]
        out.append(f"## {title}\n\n" + table(head, rows))
        if kind in FAMILIES:
            text, rows_of = FAMILIES[kind]
            out += [text, table(*rows_of(zoo, shipped(zoo, kind)))]
        elif kind == "tasks":
            out += ["### Presets of tasks", presets()]
    return "\n\n".join(out) + "\n"


def plain(value: Any) -> str:
    return value_text(value).strip("`")


# The files of the core that a step of `grpo` enters, in the order of its story. A test holds it.
READING = (
    "step/trainer.py",
    "rollout/sample.py",
    "mdp/noise.py",
    "lm/prompts.py",
    "mdp/batch.py",
    "plugin/border.py",
    "plugin/call.py",
    "lm/policy.py",
    "accel/decode.py",
    "mdp/rules.py",
    "step/columns.py",
    "accel/passes.py",
    "accel/hf_internals.py",
    "accel/head.py",
    "step/update.py",
    "accel/engine.py",
    "step/metrics.py",
    "ops.py",
)


def reading_block(zoo: Zoo) -> str:
    """The files that a training step enters, in the order to read them. Lines are rounded, so that
    not each change of a file changes the page."""
    rows = []
    for name in READING:
        path = ROOT / "rlzoo" / name
        lines = round(read(path).count("\n") / 50) * 50 or 50
        rows.append([f"[{name}](../rlzoo/{name})", f"{lines}", cell(first_line(path))])
    return table(["file", "lines", "purpose"], rows)


def first_line(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(read(path))) or ""
    return " ".join(doc.split("\n\n")[0].split())


def public_block(zoo: Zoo) -> str:
    """The names that a plugin may import, by module, with the first line of each docstring."""
    out = []
    for module, names in PUBLIC.items():
        home = import_module(HOMES.get(module, module))
        rows, elsewhere = [], dict[str, list[str]]()
        modules = ("data", "reward_models", "checks") if module == "rlzoo" else ()
        for name in [*(names or getattr(home, "__all__", ()) or own_functions(home)), *modules]:
            found = getattr(home, name)
            other = OTHERS.get(getattr(found, "__module__", "")) if module == "rlzoo" else None
            if name.startswith("_"):
                continue
            if other:
                elsewhere.setdefault(other, []).append(f"`{name}`")
                continue
            text = SAID.get(name) or (inspect.getdoc(found) or "").split("\n\n")[0]
            rows.append([f"`{name}`", cell(" ".join(text.split()))])
        rows += [[", ".join(several), where] for where, several in elsewhere.items()]
        if module not in ("rlzoo", "rlzoo.data"):  # `help(NAME)` describes them
            where = "masked and group statistics, recursions: [ops.py](../rlzoo/ops.py)"
            rows = [[", ".join(name for name, _ in rows), where * (module == "rlzoo.ops")]]
        out.append(f"### `{module}`\n\n" + table(["name", "what it is"], rows))
    return "\n\n".join(out)


# Where the functions of these modules are described.
OTHERS = {
    "rlzoo.ops": "see `rlzoo.ops`",
    "rlzoo_lab.api.verbs": "commands as functions: [Python](python.md)",
    "rlzoo_lab.api.scores": "commands as functions: [Python](python.md)",
    "rlzoo_lab.api.runs": "commands as functions: [Python](python.md)",
}

# What a plugin may import: all of `__all__`, or of a module's own functions, or these names.
PUBLIC: dict[str, tuple[str, ...]] = {
    "rlzoo": (),
    "rlzoo.ops": (),
    "rlzoo.errors": (
        "RlzooError",
        "DataError",
        "NotCached",
        "RunError",
        "StoreError",
        "Unfinished",
        "UsageError",
        "disk_is_full",
        "first_line",
        "in_short",
        "nearest",
        "typed_path",
    ),
    "rlzoo.waiting": ("pause",),
    "rlzoo.data": ("read", "hold_out", "messages_of"),
    "rlzoo.lm": (),
    "rlzoo.checks": (),
}
HOMES = {"rlzoo.data": "rlzoo_zoo.data", "rlzoo.checks": "rlzoo_lab.kit.checks"}  # `rlzoo.names`
SAID = {
    "hookimpl": "marks a hook: `register_estimators(register)` calls `register(f)` in a loop, say",
    "Discount": "the type of an option that is the discount: `gamma: Discount = 1.0`",
    "CHECKS": "the checks of each kind of component, by its plural name",
}


def own_functions(module: ModuleType) -> list[str]:
    own = {n: x for n, x in vars(module).items() if inspect.isfunction(x) and n[0] != "_"}
    return [name for name, x in own.items() if x.__module__ == module.__name__]


def keys_block(zoo: Zoo) -> str:
    defaults = recipe_values(CONFIGS / "defaults.yaml")

    def row(key: str) -> list[str]:
        option, default = KEYS[key], value_text(defaults.get(key))
        return [f"`{key}`", short_type(option.type_text), default, cell(option.meaning)]

    rows: list[list[str]] = []
    for key in KEYS:
        actor = row("actor." + key.removeprefix("critic.")) if is_shared(key) else None
        if actor and actor in rows:  # the critic's: after the actor's, with its default if another
            same, own = rows[rows.index(actor)], row(key)
            same[0] += f" `{own[0].strip('`')}`"
            same[2] += "" if same[2] == own[2] else f", {own[2]}"
        else:
            rows.append(row(key))
    weight = [f"`rewards.NAME.{WEIGHT.name}`", short_type(WEIGHT.type_text), f"`{WEIGHT.default}`"]
    head = ["key", "type and range", "default", "meaning"]
    return table(head, [*rows, [*weight, WEIGHT.meaning]])


def short_type(text: str) -> str:
    """Without articles, and without the bound above which nothing fits into a machine."""
    text = re.sub(r"^(an?|one of) ", "", text)
    return cell(re.sub(rf"{MANY}]|{2**63 - 1}]", "inf)", text))


def is_shared(key: str) -> bool:
    """Whether a key of the critic means what the actor's does."""
    actor = KEYS.get("actor." + key.removeprefix("critic."))
    return key.startswith("critic.") and actor is not None and actor.meaning == KEYS[key].meaning


def presets() -> str:
    rows = []
    for path in sorted((CONFIGS / "task").glob("*.yaml")):
        values = recipe_values(path).items()
        sets = ", ".join(
            f"`{k}={plain(v)}`" for k, v in values if (k, v) != ("task.name", path.stem)
        )
        rows.append([f"`task={path.stem}`", cell(describe(path)), sets])
    return table(["preset", "what", "sets"], rows)


def columns_block(zoo: Zoo) -> str:
    def rows(stage: str) -> list[list[str]]:
        some = [c for c in COLUMNS.values() if c.stage == stage]
        return [[f"`{c.name}`", shape_text(c.shape), cell(c.meaning)] for c in some]

    head = ["column", "shape", "meaning"]
    return "\n\n".join(f"### Stage `{s}`\n\n" + table(head, rows(s)) for s in STAGES)


def resources_block(zoo: Zoo) -> str:
    return table(["resource", "meaning"], [[f"`{n}`", cell(t)] for n, t in RESOURCES.items()])


def stages_block(zoo: Zoo) -> str:
    kinds = sorted(KINDS.values(), key=lambda kind: STAGES.index(kind.stage))
    rows = [[kind.singular.replace("_", " "), kind.stage] for kind in kinds]
    return table(["kind", "latest stage whose columns it may use"], rows)


def metrics_block(*makers: str) -> Callable[[Zoo], str]:
    """A table for each of these makers of metrics."""

    def block(zoo: Zoo) -> str:
        head = ["key", "unit", "requires", "meaning"]
        parts = []
        for maker in makers:
            rows = [
                [keys(m.name) + " =" * m.verl, m.unit, cell(m.requires), cell(m.meaning)]
                for m in metrics()
                if m.maker == maker and not m.name.endswith("_high")  # next to its `_low`
            ]
            heading = f"### {maker.capitalize()}\n\n" if len(makers) > 1 else ""
            parts.append(heading + table(head, rows))
        return "\n\n".join(parts)

    def keys(name: str) -> str:
        if name.endswith("_low"):
            return f"`{name}` `{name.removesuffix('_low')}_high`"
        parts = ("mean", "std", "min", "max") if name.endswith("/*") else ("",)
        return " ".join(f"`{name.removesuffix('*')}{part}`" for part in parts)

    return block


def rules_block(zoo: Zoo) -> str:
    """The rules of `rlzoo doctor`, a line each."""
    rows = [[r.name.replace("_", " "), cell(first_line_of(r.judge))] for r in RULES]
    return table(["finding", "when"], rows)


def bridges_block(zoo: Zoo) -> str:
    """Which trainer can run which estimator and policy loss, and what a column is made of there."""
    from rlzoo_bridges.hosts import HOSTS, LOSS_COLUMNS

    def said(c: Component, host: Any) -> str:
        if host.refusal(c, zoo.columns):
            missing = [f"`{name}`" for name in host.missing(c, zoo.columns)]
            why = "one response at a time" if host.separate else "not proportional"
            return "no: " + (", ".join(missing) or why)
        needs = c.needs if c.kind == "estimators" else ()
        asked = [f"`{n}`" for n in needs if n in host.asks and n != "scores"]
        return f"with {', '.join(asked)}" if asked else "yes"

    def components(kind: str, hosts: list[Any]) -> str:
        rows: dict[tuple[str, ...], list[str]] = {}  # components that fare alike share a row
        for c in shipped(zoo, kind):
            link = f"[`{c.name}`](components/{kind}/{c.name}.md)"
            rows.setdefault(tuple(said(c, h) for h in hosts), []).append(link)
        head = [TITLES[kind].lower(), *(h.title for h in hosts)]
        some: list[list[str]] = []
        nowhere: dict[str, list[str]] = {}  # what no trainer has -> what needs it
        for cells, x in rows.items():
            lacks = ({*re.findall("`.*?`", x)} if x[:2] == "no" else set() for x in cells)
            first, *others = lacks
            if none_has := first.intersection(*others):
                nowhere.setdefault(", ".join(sorted(none_has)), []).extend(x)
            else:
                some.append([", ".join(x), *cells])
        rest = [f"{', '.join(x)} ({columns})" for columns, x in nowhere.items()]
        lead = "No trainer supplies a column that these need"
        return f"{table(head, some)}\n\n{lead}: {'; '.join(rest)}."

    every = list(HOSTS.values())
    asked = [[h.title, f"`{c}`", text] for h in every for c, text in h.asks.items()]
    columns = ", ".join(f"`{name}`" for name in LOSS_COLUMNS)
    return "\n\n".join([
        components("estimators", [h for h in every if h.estimates]),
        f"A policy loss receives {columns}.",
        components("policy_losses", [h for h in every if h.losses]),
        "`with COLUMN` requires a setting:",
        table(["trainer", "column", "requires"], asked),
    ])  # fmt: skip


def in_trainers_block(zoo: Zoo) -> str:
    """What tests/reference/make_bridges.py found: a row for each part that measured differences."""
    from rlzoo_bridges.hosts import HOSTS

    record = ROOT / "tests" / "reference" / "bridges.json"
    found = json.loads(record.read_text())

    rows = []
    for name, host in HOSTS.items():
        for part, values in found[name].items():
            # "its ..." is the trainer's own function's, which is not a difference to rlzoo's
            found_by = {k: v for k, v in values.items() if isinstance(v, float) and k[:4] != "its "}
            if found_by:
                counts = [f"{v} {k}" for k, v in values.items() if isinstance(v, int)]
                counts = counts or [f"cases: {len(found_by)}"]
                worst = f"{max(found_by.values()):.1e}"
                rows.append([f"{host.title} {host.version}", part, ", ".join(counts), worst])
    return table(["trainer", "what", "compared", "largest difference"], rows)


def beside_authors_block(zoo: Zoo) -> str:
    """What tests/reference/make_authors.py found."""
    found = json.loads((ROOT / "tests" / "reference" / "authors.json").read_text())
    rows = []
    for name, one in sorted(found.items()):
        numbers = [f"{one[kind]:.0e}" if kind in one else "" for kind in ("value", "gradient")]
        rows.append([f"`{name}`", f"{one['beside']}: {one['note']}", *numbers])
    return table(["rlzoo", "compared with", "value", "gradient"], rows)


def invariance_block(zoo: Zoo) -> str:
    """What docs/examples/invariance.py found: a row for each trainer, a cell for several changes
    that has the worst of them."""
    found = json.loads((ROOT / "tests" / "reference" / "invariance.json").read_text())
    heads = {"padding": "more padding on", "order": "rows reversed", "twice": "each row twice",
             "passes": "passes of", "processes": "processes"}  # fmt: skip

    def cell(results: list[dict[str, Any] | None]) -> str:
        asked = [r for r in results if r]
        apart = max(
            (r for r in asked if not r["same"]), key=lambda r: r["difference"], default=None
        )
        if not asked:
            return ""
        if apart is None:
            return f"same ({len(asked)})"
        factor = apart["factor"]
        return f"x {factor:.2g}" if factor else f"{apart['difference']:.0%}"

    rows: dict[tuple[str, ...], list[str]] = {}  # trainers that fare alike share a row
    for name, one in sorted(found.items()):
        trainer, words = re.split(r",? (?=\w+=)", name, maxsplit=1)
        cells = [cell([r for k, r in one.items() if head in k and (
            head == "processes" or "processes" not in k)]) for head in heads.values()]  # fmt: skip
        rows.setdefault((trainer, *cells), []).append(f"`{words}`")
    alike = [[f"{first}: {', '.join(words)}", *cells] for (first, *cells), words in rows.items()]
    return table(["trainer", *heads], alike)


def vllm_block(zoo: Zoo) -> str:
    """What tests/reference/make_vllm.py found."""
    found = json.loads((ROOT / "tests" / "reference" / "vllm.json").read_text())

    def mean(runs: list[dict[str, Any]], key: str) -> float:
        return sum(run[key] for run in runs) / len(runs)

    base, rows = found["learn"]["transformers"], []
    for name, runs in found["learn"].items():
        less = [run["after"] - own["after"] for run, own in zip(runs, base, strict=True)]
        apart = "" if runs is base else "{:+.3f} to {:+.3f}".format(*t_interval(less))
        each = ", ".join(f"{run['after']:.3f}" for run in runs)
        gap = max(run["gap"] for run in runs)
        row = [f"`{name}`", f"{mean(runs, 'before'):.3f}", f"{mean(runs, 'after'):.3f} ({each})"]
        rows.append([*row, apart, f"{gap:.0e}"])
    head = ["sampler", "accuracy before", "after 20 steps (each seed)",
            "minus transformers', 95 %", "largest gap, nats"]  # fmt: skip
    lead = (
        "The table compares runs of `grpo` on `tiny` with `correction=tis` and vLLM "
        f"{found['version']}, on a CPU in float32:"
    )
    killed, ends = found["killed"], {True: "equal", False: "not equal"}
    said = (
        f"With a server that was killed (SIGKILL) and another started, metrics were "
        f"{ends[killed['resumed_equal']]} to those of an undisturbed run after `rlzoo resume`, and "
        f"{ends[killed['waited_equal']]} without it if the server was back in time."
    )
    return f"{lead}\n\n{table(head, rows)}\n\n{textwrap.fill(said, 100)}"


def arguments(function: Callable) -> str:
    """Its parameters and their defaults, without types."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def run_block(zoo: Zoo) -> str:
    """What a `Run` has."""
    rows = [["`path`, `summary`", "its folder; summary.json, empty until the run has finished"]]
    for name in dir(rlzoo.Run):
        found = inspect.getattr_static(rlzoo.Run, name)
        if name[0] == "_" or name == "summary":
            continue
        call = name
        if inspect.isfunction(found):
            call += arguments(found).replace("self, ", "").replace("self", "")
        doc = inspect.getdoc(getattr(found, "func", found)) or ""
        rows.append([f"`{call}`", cell(re.split(": `rlzoo|\n\n", doc)[0])])
    return table(["name", "what it is"], rows)


def first_line_of(function: Callable) -> str:
    return (function.__doc__ or "").strip().splitlines()[0]


# file -> the blocks in it
BLOCKS: dict[str, dict[str, Callable[[Zoo], str]]] = {
    "docs/components/keys.md": {"keys": keys_block},
    "docs/design.md": {"reading": reading_block},
    "docs/plugin-authors.md": {"public": public_block},
    "docs/python.md": {"run": run_block},
    "docs/doctor.md": {"rules": rules_block},
    "docs/bridges.md": {"bridges": bridges_block},
    "docs/agreement.md": {
        "beside authors": beside_authors_block,
        "in trainers": in_trainers_block,
        "invariance": invariance_block,
    },
    "docs/parallel.md": {"vllm": vllm_block},
    "docs/columns.md": {
        "columns": columns_block,
        "resources": resources_block,
        "stages": stages_block,
        "step metrics": metrics_block("rollout", "estimator", "update", "loop"),
        "evaluation metrics": metrics_block("evaluation"),
    },
}


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def wanted(zoo: Zoo) -> dict[Path, str]:
    """file -> what it should hold, for every file with a generated part."""
    out = {DOCS / "components" / "README.md": index(zoo), gallery.PAGE: gallery.page(zoo)}
    out[DOCS / "playground.html"] = playground(zoo)
    for c in shipped(zoo):
        out[DOCS / "components" / c.kind / f"{c.name}.md"] = page(c, zoo)
    for name, blocks in BLOCKS.items():
        path = ROOT / name
        text = read(path)
        for marker, block in blocks.items():
            text = with_block(text, marker, block(zoo))
        if text:
            out[path] = text
    return out


def stale(zoo: Zoo) -> dict[Path, str | None]:
    """What differs: file -> what it should hold, None for a page of a component that is gone."""
    want = wanted(zoo)
    out: dict[Path, str | None] = {p: text for p, text in want.items() if read(p) != text}
    out |= {p: None for p in (DOCS / "components").glob("*/*.md") if p not in want}
    return out


def main(argv: list[str]) -> int:
    differs = stale(load_zoo())
    for path, text in sorted(differs.items()):
        print(f"{'stale' if '--check' in argv else 'wrote'}: {path.relative_to(ROOT)}")
        if "--check" in argv:
            continue
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if differs and "--check" in argv else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
