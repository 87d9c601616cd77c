"""Recipes and presets on disk: where they are, which one wins, and one of them as a layer."""

import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlzoo.errors import RecipeError, first_line
from rlzoo.recipe.keys import COLLECTIONS, KEYS, RETIRED, SECTIONS

Flat = dict[str, Any]
IMPORTED = "imported.from"  # in the recipe of another trainer's run: the trainer


@dataclass(frozen=True)
class Layer:
    """Values set in one place, named by `origin`. saved: they are a complete, resolved recipe."""

    origin: str
    values: Flat
    saved: bool = False


def config_dirs() -> list[Path]:
    """`./configs`, then `$RLZOO_CONFIGS`, then the shipped ones; the first that has a file wins."""
    package = Path(__file__).resolve().parents[1]
    # An editable install may leave an old copy in site-packages: the checkout's own come first.
    checkout = package.parent / "configs"
    shipped = checkout if (package.parent / "pyproject.toml").is_file() else package / "configs"
    extra = os.environ.get("RLZOO_CONFIGS")
    dirs = [Path("configs"), *([Path(extra)] if extra else []), shipped]
    return [d for d in dirs if d.is_dir()]


def find_config(folder: str, name: str) -> Path | None:
    """The file `folder/name.yaml`, or None. A name leads to no other folder."""
    if Path(name).name != name:
        return None
    paths = (d / folder / f"{name}.yaml" for d in config_dirs())
    return next((path for path in paths if os.path.isfile(path)), None)


def list_configs(folder: str) -> dict[str, Path]:
    """name -> file, for all files that `find_config` would find."""
    paths = [p for d in reversed(config_dirs()) for p in (d / folder).glob("*.yaml")]
    return dict(sorted({path.stem: path for path in paths if path.is_file()}.items()))


def describe(path: Path) -> str:
    """A recipe's first comment line."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def show_path(path: Path) -> str:
    """`shipped recipes/grpo.yaml`, or the path, relative to the current folder if below it."""
    path = path.resolve()
    if path.is_relative_to(shipped := config_dirs()[-1].resolve()):
        return f"shipped {path.relative_to(shipped)}"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def read_layer(path: Path) -> Layer:
    """A YAML file as a layer; raises RecipeError with file and line if it is broken, or where it is
    of an imported run."""
    origin = show_path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise RecipeError(f"{origin}: is larger than {LARGEST // 2**20} MiB, the maximum")
        tree = deepcopy(_tree(path.read_text(encoding="utf-8")))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = error.problem or error.context or "unreadable"
        raise RecipeError(f"{origin}{line}: not valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError, OSError, OmegaConfBaseException) as error:
        raise RecipeError(f"{origin}: cannot be read: {first_line(error)}") from None
    if tree is None:
        raise RecipeError(f"{origin}: must be a mapping of keys to values")
    if IMPORTED in (values := without_retired(flatten(tree))):
        line = f"{origin}: is of an imported run, not all of whose settings are known; choose a"
        line += " recipe (`rlzoo recipes`) and give the settings that are: key=value"
        raise RecipeError(line, key="recipe", kind="unknown-key")
    # A resolved recipe, as a run saves it, names all sets: none is added to.
    saved = all(section in tree for section in COLLECTIONS)
    marks = dict.fromkeys((f"{section}!" for section in COLLECTIONS if saved), True)
    return Layer(origin, marks | values, saved)


def without_retired(flat: Mapping[str, Any]) -> Flat:
    """Without the keys that are gone and had no effect."""
    return {k: v for k, v in flat.items() if k not in RETIRED or v != RETIRED[k][0]}


@lru_cache(maxsize=64)  # a sweep reads the same files for each of its runs
def _tree(text: str) -> Any:
    """The mapping that a YAML text describes; None if it is not a mapping."""
    refuse_odd_yaml(text)
    loaded = OmegaConf.load(StringIO(text))
    return OmegaConf.to_container(loaded) if isinstance(loaded, DictConfig) else None


def parse_yaml(text: str, *, base60: bool = False) -> Any:
    """The value of a YAML text that is not trusted; raises ValueError where it is not YAML, or
    odd. base60: a time such as 1:30 is a number."""
    try:
        refuse_odd_yaml(text, base60=base60)
        return yaml.load(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(first_line(error)) from None


LARGEST = 2**20  # bytes of a recipe
REPEATED = 10_000  # values that aliases may stand for
DEEPEST = 32  # mappings and lists in each other
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_SEXAGESIMAL = re.compile(r"[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?")


def refuse_odd_yaml(text: str, *, base60: bool = False) -> None:
    """Raise ValueError for values nested so deeply that a parser's stack would overflow, for
    aliases (`*a`) that stand for too much or for themselves, and, unless `base60`, for misleading
    numbers (1:30 is 90)."""
    count = repeated = 0  # values
    sizes, inside = dict[str | None, int](), list[tuple[str | None, int]]()  # by anchor; open ones
    for event in yaml.parse(text, Loader=_LOADER):
        plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
        if plain and not base60 and _SEXAGESIMAL.fullmatch(event.value):
            raise ValueError(f"{event.value} is read as a base-60 number in YAML; put it in quotes")
        count += 1
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append((event.anchor, count))
            if len(inside) > DEEPEST:
                raise ValueError(f"mappings and lists are nested more than {DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = inside.pop()
            sizes[anchor] = count - before
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1
        elif isinstance(event, yaml.AliasEvent):
            if any(event.anchor == anchor for anchor, _ in inside):
                raise ValueError(f"*{event.anchor} contains itself")
            count += sizes.get(event.anchor, 0)
            repeated += sizes.get(event.anchor, 0)
            if repeated > REPEATED:
                raise ValueError(f"its aliases stand for more than {REPEATED} values")


def flatten(tree: Any, prefix: str = "") -> Flat:
    """Dotted keys -> leaves. `X: name` becomes `X.name: name`, a list of names `X.NAME: {}`."""
    flat: Flat = {}
    for raw, value in tree.items():
        key = f"{prefix}{raw}"
        if key.endswith("!"):
            raise RecipeError(f"there is no key {key!r}")
        if key in SECTIONS and not isinstance(value, dict):
            flat[f"{key}.name"] = value
        elif key == "model" and isinstance(value, str):
            flat["model.name"] = value
        elif key in COLLECTIONS and value == {}:
            continue
        elif key in COLLECTIONS and not isinstance(value, dict):
            names = value if isinstance(value, list) else [value] if value else []
            flat[f"{key}!"] = True  # marks that lower layers' sets are replaced
            flat.update({f"{key}.{name}": {} for name in names})
        elif isinstance(value, dict) and value and key not in KEYS:
            flat |= flatten(value, f"{key}.")
        else:
            flat[key] = value
    return flat
