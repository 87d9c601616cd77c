"""`rlzoo new KIND NAME`: writes a working plugin package as a template for your own."""

import argparse
import keyword
import re
import shutil
from importlib.resources import files
from pathlib import Path
from string import Template

from rlzoo.cli.verb import Result
from rlzoo.errors import RlzooError, nearest
from rlzoo.plugin.columns import COLUMNS, RESOURCES
from rlzoo.plugin.component import KINDS, name_of
from rlzoo.plugin.sketch import sketch
from rlzoo.runs.disk import write_synced


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--dir", default=".", metavar="DIR", help="where to create the package")


def run(arguments: argparse.Namespace) -> Result:
    written = [str(path) for path in new(arguments.kind, arguments.name, Path(arguments.dir))]
    folder = Path(written[0]).parent
    hint = f"\nnext:  pip install -e {folder}  &&  rlzoo check {arguments.name}"
    then = [f"then:  {_THEN[arguments.kind].format(name=arguments.name)}"] * (
        arguments.kind in _THEN
    )
    notes = _taken(_KINDS[arguments.kind].plural, arguments.name)
    return Result({"files": written}, lambda _: [*written, hint, *then], notes=notes)


_THEN = {  # what trains with it
    "task": "rlzoo base {name} --out start    (a model to start from: docs/own-task.md)",
    "estimator": "rlzoo sweep recipe=grpo model=nano estimator=grpo,{name} "
    "seed=0,1,2,3 train.steps=20 eval.every=0",
}


def _taken(plural: str, name: str) -> list[str]:
    """Lines on components of this name that exist already, as far as source shows."""
    zoo = sketch()
    there = zoo.shelves[plural].get(name) if zoo else None
    if there is None:
        return []
    return [
        f"{there.label} already exists, and two components with the same name cannot be used; "
        "rename yours or remove that plugin"
    ]


_KINDS = {kind.singular: kind for kind in KINDS.values()}


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
    if package.exists():
        raise RlzooError(f"{package} already exists; choose another name or remove it")
    words = {
        "name": name,
        "class_name": _class_name(name),
        "singular": kind.replace("_", " "),
        "key": _KINDS[kind].key,
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
        package.mkdir(parents=True)
        try:
            for file, text in texts.items():
                write_synced(package / file, text.encode())
        except BaseException:
            shutil.rmtree(package)
            raise
    except OSError as error:
        raise RlzooError(f"cannot create {package}: {error.strerror}") from None
    return [package / file for file in texts]


def _check_name(kind: str, name: str) -> None:
    """A component's name is that of a Python function, and must not hide a name in the template."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.strip("_"):
        near = re.sub(r"\W+", "_", name).strip("_").lower()
        hint = f"; {near!r} would be valid" if near.isidentifier() and near != name else ""
        raise RlzooError(f"{name!r} is not a valid name for a Python function{hint}")
    if name != name.lower() or not name.isascii():
        raise RlzooError(f"names are snake_case; write {name_of(name)!r} instead of {name!r}")
    if name in COLUMNS or name in RESOURCES:
        raise RlzooError(f"{name!r} is a column of the core; choose another name")
    code = re.sub(r'""".*?"""', "", _raw(f"{kind}.py"), flags=re.DOTALL)  # without docstrings
    if re.search(rf"\b{name}\b", code):
        raise RlzooError(f"{name!r} is used in the template of the {kind}; choose another name")


def _class_name(name: str) -> str:
    """CamelCase, unless the registry would read another name off it."""
    camel = "".join(word.capitalize() for word in name.split("_"))
    return camel if name_of(camel) == name else name


def _raw(file: str) -> str:
    return files("rlzoo").joinpath("templates", f"{file}.txt").read_text(encoding="utf-8")
