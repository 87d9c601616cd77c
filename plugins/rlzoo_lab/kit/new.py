"""`rlzoo new KIND NAME`: writes a working plugin package as a template for your own."""

import argparse
import keyword
import re
import shlex
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError
from importlib.metadata import distribution as distribution_named
from importlib.resources import files
from pathlib import Path
from string import Template

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, nearest, typed_path
from rlzoo.plugin.columns import COLUMNS, RESOURCES
from rlzoo.plugin.component import KINDS, name_of
from rlzoo.plugin.sketch import sketch
from rlzoo.runs.disk import write_synced
from rlzoo_lab.data.staged import staged

_KINDS = {kind.singular: kind for kind in KINDS.values()}

# What trains with it, after "rlzoo"; without an entry: a run with the value of the kind's key.
_TRAIN = {
    "estimator": "sweep grpo model=nano estimator=grpo,{} seed=0,1,2,3 train.steps=20 eval.every=0",
    "kl_penalty": "run grpo model=nano kl={} kl.coef=0.01 train.steps=20",
    "value_loss": "run ppo_gae model=nano value_loss={} train.steps=20",
    "task": "model base {} --out start",
    "reward": "run grpo model=nano rewards.{}.weight=0.1 train.steps=20",
    "executor": "sweep grpo model=nano seed=0,1 train.steps=20 --on {}",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", help=f"one of {', '.join(_KINDS)}")
    parser.add_argument("name", metavar="NAME", help="of the component, in snake_case")
    parser.add_argument("--dir", default=".", metavar="DIR", help="where to create the package")


def run(arguments: argparse.Namespace) -> Result:
    written = [str(path) for path in new(arguments.kind, arguments.name, typed_path(arguments.dir))]
    folder = shlex.quote(str(Path(written[0]).parent))
    lines = [
        *written,
        f"\nnext:  pip install -e {folder}  &&  rlzoo check {arguments.name}",
        f"then:  {_then(arguments.kind, arguments.name)}",
    ]
    return Result({"files": written}, lambda _: lines)


def _then(kind: str, name: str) -> str:
    if kind == "column":
        run = f"rlzoo run grpo model=nano columns=[{name}] train.steps=20"
        return f"give a component a parameter {name}, and it gets the column; without one: {run}"
    plain = f"run grpo model=nano {_KINDS[kind].key}={{}} train.steps=20"
    return f"rlzoo {_TRAIN.get(kind, plain).format(name)}"


def new(kind: str, name: str, folder: str | Path = ".") -> list[Path]:
    """Write the package `rlzoo-NAME` into `folder` and return its files.

    kind: a singular, such as `policy_loss`. The package holds one module with a small working
    component, its entry point, and a test that runs the conformance kit.
    """
    if kind not in _KINDS:
        raise RlzooError(f"no kind {kind!r}{nearest(kind, _KINDS)} (kinds: {', '.join(_KINDS)})")
    _check_name(kind, name)
    distribution = f"rlzoo-{name.strip('_').replace('_', '-')}"
    module = re.sub(r"\W", "_", distribution)
    package = Path(folder) / distribution
    _check_free(_KINDS[kind].plural, name, distribution, module)
    words = {
        "name": name,
        "class_name": _class_name(name),
        "singular": kind.replace("_", " "),
        "then": _then(kind, name),
        "distribution": distribution,
        "module": module,
    }
    templates = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{module}.py": f"{kind}.py",
        f"test_{module}.py": "test.py",
    }
    texts = {file: Template(_raw(name)).substitute(words) for file, name in templates.items()}
    try:
        package.parent.mkdir(parents=True, exist_ok=True)
        with staged(package, "--dir") as aside:
            for file, text in texts.items():
                write_synced(aside / file, text.encode())
    except OSError as error:
        raise RlzooError(f"cannot create {package}: {error.strerror}") from None
    return [package / file for file in texts]


def _check_free(plural: str, name: str, distribution: str, module: str) -> None:
    """Nothing that is installed has the component's name, as far as source shows, or that of its
    package: pip would replace one by the other."""
    zoo = sketch()
    there = zoo.shelves[plural].get(name) if zoo else None
    if there is not None:
        raise RlzooError(f"{there.label} already exists; choose another name", kind="taken")
    try:
        distribution_named(distribution)
    except PackageNotFoundError:
        if PathFinder.find_spec(module) is None:
            return
    raise RlzooError(
        f"a package {distribution} is installed already, and the new one would replace it; "
        "choose another name",
        kind="taken",
    )


def _check_name(kind: str, name: str) -> None:
    """A component's name is that of a Python function, and must not hide a name in the template."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.strip("_"):
        near = re.sub(r"\W+", "_", name).strip("_").lower()
        hint = f"; {near!r} would be valid" if near.isidentifier() and near != name else ""
        raise RlzooError(f"{name!r} is not a valid name for a Python function{hint}")
    if not name.isascii():
        raise RlzooError(f"{name!r}: names are ASCII letters, digits and _")
    if name != name.lower():
        raise RlzooError(f"names are snake_case; write {name_of(name)!r} instead of {name!r}")
    if name in COLUMNS or name in RESOURCES:
        raise RlzooError(f"{name!r} is a column of the core; choose another name")
    code = re.sub(r'""".*?"""', "", _raw(f"{kind}.py"), flags=re.DOTALL)  # without docstrings
    if re.search(rf"\b({name}|{_class_name(name)})\b", code):
        raise RlzooError(f"{name!r} is used in the template of the {kind}; choose another name")


def _class_name(name: str) -> str:
    """CamelCase, unless the registry would read another name off it."""
    camel = "".join(word.capitalize() for word in name.split("_"))
    return camel if name_of(camel) == name else name


def _raw(file: str) -> str:
    return files("rlzoo_lab.kit").joinpath("templates", f"{file}.txt").read_text(encoding="utf-8")
