"""Recipes: find, compose, validate, and say where each value came from.  No torch here.

    defaults.yaml < presets of the chosen model and task < recipe file < command line

Each layer is a flat mapping from dotted keys to values, so that merging is an update and every
value keeps its origin. `KEYS` says what the core knows; the options of a component come from its
signature. All faults are one line: the key, where it was set, and the nearest right word.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlzoo.columns import nearest
from rlzoo.component import KINDS, Component, Option, Range, RlzooError
from rlzoo.registry import Zoo


class RecipeError(RlzooError):
    """A fault in a recipe or on the command line."""


Count = Annotated[int, Range(1)]
Schedule = Literal["constant", "linear", "cosine"]

# Every key of the core: type, range, meaning. Defaults live in configs/defaults.yaml.
_KEYS: dict[str, Any] = {
    "seed": Annotated[int, Range(0), "of weights, prompts and sampling noise"],
    "device": Annotated[str, "auto (CUDA where there is one), cpu, cuda, cuda:1, ..."],
    "run.dir": Annotated[str | None, "the run's folder; null: runs/<recipe>-<task>-<time>"],
    "run.overwrite": Annotated[bool, "replace a run folder that exists"],
    "run.save_batches": Annotated[int, Range(0), "keep the last N batches as safetensors"],
    "run.samples": Annotated[int, Range(0), "samples written to samples.jsonl each step"],
    "run.threads": Annotated[int | None, Range(1), "CPU threads of torch; null: torch's choice"],
    "model.name": Annotated[str | None, "a preset of configs/model/"],
    "model.path": Annotated[str | None, "a folder with a transformers causal LM, or a hub id"],
    "model.shape": Annotated[
        dict | None, "sizes as in config.json, for the memory estimate of a model not at hand"
    ],
    "model.dtype": Annotated[
        Literal["float32", "float64", "bfloat16", "float16"],
        "of the stored weights; below float32 small steps are lost, but for LoRA's",
    ],
    "model.autocast": Annotated[
        Literal["auto", "none", "bfloat16"], "auto: bfloat16 on CUDA, none elsewhere"
    ],
    "model.attention": Annotated[
        str, "auto, or an implementation of transformers': sdpa, eager, flash_attention_2, ..."
    ],
    "model.gradient_checkpointing": Annotated[
        bool, "compute activations again in the backward pass: less memory, a third more time"
    ],
    "model.compile": Annotated[bool, "torch.compile the passes over whole responses"],
    "model.trust_remote_code": Annotated[bool, "run code that comes with the model"],
    "model.chat": Annotated[
        Literal["auto", "always", "never"],
        "the chat template is for prompts that are messages, for all prompts, for none",
    ],
    "model.system": Annotated[str | None, "a system message before what goes through the template"],
    "model.lora.rank": Annotated[int, Range(0), "of LoRA adapters; 0: all weights are trained"],
    "model.lora.alpha": Annotated[
        float, Range(0, closed="neither"), "adapters are scaled by alpha / rank"
    ],
    "model.lora.targets": Annotated[
        list[str] | None, "layers with an adapter; null: all linear ones but the head"
    ],
    "parallel.strategy": Annotated[
        Literal["replicate", "shard"],
        "of several processes, each holds all weights, or a share of them (FSDP2)",
    ],
    "task.name": Annotated[str, "a task, or a preset of configs/task/"],
    "rollout.prompts": Annotated[int, Range(1), "prompts per step"],
    "rollout.samples": Annotated[int, Range(1), "samples per prompt: the group size"],
    "rollout.max_new_tokens": Annotated[int, Range(1), "the length limit of a response"],
    "rollout.temperature": Annotated[
        float, Range(0, closed="neither"), "the policy is softmax(logits / temperature)"
    ],
    "rollout.top_k": Annotated[int, Range(0), "sample among the k likeliest; 0: all"],
    "rollout.top_p": Annotated[
        float, Range(0, 1, closed="right"), "sample among the likeliest of this mass"
    ],
    "rollout.old_log_probs": Annotated[
        Literal["auto", "sampled", "recomputed"], "auto: recomputed under autocast only"
    ],
    "rollout.truncation": Annotated[
        Literal["bootstrap", "zero", "drop", "penalty"],
        "what follows the last token of a truncated row: V(s_T), 0, no loss at all, a penalty",
    ],
    "rollout.truncation_penalty": Annotated[float, Range(0), "taken off a truncated row's score"],
    "sampler.name": Annotated[str, "what draws responses"],
    "correction.name": Annotated[
        str | None, "a (B, T) column that weighs the policy loss, against off-policy samples"
    ],
    "estimator.name": Annotated[str, "the advantage estimator"],
    "whiten": Annotated[Literal["none", "batch", "group"], "standardise advantages over tokens"],
    "whiten_ddof": Annotated[Literal[0, 1], "0: population variance, 1: sample variance"],
    "kl.name": Annotated[str, "the KL penalty to the reference"],
    "kl.coef": Annotated[float, Range(0), "0: no penalty, and no reference model"],
    "kl.place": Annotated[Literal["reward", "loss", "none"], "where the penalty enters"],
    "kl.spread": Annotated[Literal["token", "last"], "in the reward: at each token, or summed"],
    "kl.controller": Annotated[Literal["fixed", "adaptive"], "of the coefficient"],
    "kl.target": Annotated[float, Range(0, closed="neither"), "adaptive: nats per response"],
    "kl.horizon": Annotated[float, Range(0, closed="neither"), "adaptive: in responses"],
    "policy_loss.name": Annotated[str, "the policy loss"],
    "value_loss.name": Annotated[str, "the critic's loss"],
    "aggregation.name": Annotated[str, "a weight per token of the policy loss"],
    "actor.lr": Annotated[float, Range(0), "learning rate"],
    "actor.lr_schedule": Annotated[Schedule, "of the learning rate, to the end of the budget"],
    "actor.lr_warmup": Annotated[int, Range(0), "steps over which the learning rate rises"],
    "actor.weight_decay": Annotated[float, Range(0), "AdamW's"],
    "actor.betas": Annotated[list[float], "AdamW's two"],
    "actor.eps": Annotated[float, Range(0, closed="neither"), "AdamW's"],
    "actor.max_grad_norm": Annotated[float | None, Range(0), "clips the gradient; null: never"],
    "actor.entropy_coef": Annotated[float, Range(0), "of the entropy bonus, in nats"],
    "critic.lr": Annotated[float, Range(0), "learning rate"],
    "critic.lr_schedule": Annotated[Schedule, "of the learning rate, to the end of the budget"],
    "critic.lr_warmup": Annotated[int, Range(0), "steps over which the learning rate rises"],
    "critic.weight_decay": Annotated[float, Range(0), "AdamW's"],
    "critic.betas": Annotated[list[float], "AdamW's two"],
    "critic.eps": Annotated[float, Range(0, closed="neither"), "AdamW's"],
    "critic.max_grad_norm": Annotated[float | None, Range(0), "clips the gradient; null: never"],
    "critic.trunk": Annotated[
        Literal["own", "shared"], "a network of its own, or a value head on the policy's trunk"
    ],
    "critic.init": Annotated[
        str,
        "what a critic's own network starts from: actor, a reward of the recipe that has a path, "
        "or a model's folder",
    ],
    "critic.coef": Annotated[float, Range(0), "of the value loss, where the trunk is shared"],
    "critic.aggregation.name": Annotated[str, "a weight per token of the value loss"],
    "critic.bins": Annotated[int, Range(2), "of a critic that predicts a distribution"],
    "critic.low": Annotated[float, "the lowest bin's value"],
    "critic.high": Annotated[float, "the highest bin's value"],
    "train.steps": Annotated[int | None, Range(1), "budget: rollout-and-update steps"],
    "train.tokens": Annotated[int | None, Range(1), "budget: tokens generated, all of them"],
    "train.minutes": Annotated[float | None, Range(0), "budget: wall time"],
    "train.epochs": Annotated[int, Range(1), "passes over each batch"],
    "train.minibatches": Annotated[int, Range(1), "optimizer steps per pass"],
    "train.microbatch": Annotated[
        int | None, Range(1), "rows per forward pass; null: by train.token_budget"
    ],
    "train.token_budget": Annotated[
        int | None,
        Range(1),
        "positions per forward pass, prompts and padding included; null: what the model's size "
        "suggests",
    ],
    "train.skip_no_signal": Annotated[
        bool,
        "leave rows whose advantages are all 0 out of the policy's pass where they give no "
        "gradient",
    ],
    "train.critic_warmup": Annotated[int, Range(0), "first steps that update the critic only"],
    "eval.every": Annotated[int, Range(0), "steps between evaluations; 0: before and after only"],
    "eval.samples": Annotated[int, Range(1), "held-out samples of an evaluation"],
    "checkpoint.every": Annotated[int, Range(0), "steps between checkpoints; 0: at the end only"],
    "checkpoint.keep": Annotated[int, Range(1), "checkpoints kept"],
    "checkpoint.best": Annotated[bool, "keep the model of the best evaluation, in best/"],
    "stop.patience": Annotated[
        int | None,
        Range(1),
        "end after so many evaluations in a row without a new best; null: go on",
    ],
    "stop.min_delta": Annotated[float, Range(0), "a new best is better by at least this"],
    "stop.target": Annotated[float | None, "end when an evaluation's headline reaches this"],
    "stop.max_kl": Annotated[
        float | None,
        Range(0, closed="neither"),
        "end when a step's KL to the reference is over this, in nats per response",
    ],
}
KEYS: dict[str, Option] = {key: Option.read(key, kind) for key, kind in _KEYS.items()}

# Where a component is chosen, `KEY.name`, and its options stand beside it; `KEY=x` is short.
SECTIONS: dict[str, str] = {
    "task": "tasks",
    "sampler": "samplers",
    "correction": "columns",
    "estimator": "estimators",
    "kl": "kl_penalties",
    "policy_loss": "policy_losses",
    "value_loss": "value_losses",
    "aggregation": "aggregations",
    "critic.aggregation": "aggregations",
}
# Where several may be chosen, `KEY.NAME.option`; `KEY=[a,b]` is short and replaces the set.
COLLECTIONS: dict[str, str] = {"rewards": "rewards", "columns": "columns", "loggers": "loggers"}
WEIGHT = Option.read("weight", Annotated[float, "of a reward in the sum"], 1.0)

Flat = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """Values set in one place; `origin` names it."""

    origin: str
    values: Flat


@dataclass(frozen=True)
class Recipe:
    """A resolved recipe: `config.train.steps`, and where each dotted key's value came from."""

    name: str
    config: DictConfig
    origins: Mapping[str, str]

    def options(self, section: str) -> dict[str, Any]:
        """The options of the component that `section` chooses."""
        node = OmegaConf.to_container(OmegaConf.select(self.config, section))
        assert isinstance(node, dict)
        named = {str(k): v for k, v in node.items()}
        return {k: v for k, v in named.items() if f"{section}.{k}" not in KEYS}

    def blame(self, key: str) -> str:
        """`key (where it was set)`, the start of an error."""
        return f"{key} ({self.origins.get(key, 'defaults')})"

    def to_yaml(self) -> str:
        return f"# {self.name}\n" + OmegaConf.to_yaml(self.config)


# ---------------------------------------------------------------- finding files


def config_dirs() -> list[Path]:
    """`./configs`, then `$RLZOO_CONFIGS`, then the shipped ones; the first that has a file wins."""
    here = Path(__file__).resolve().parent
    # An editable install may leave an old copy in site-packages: the checkout's own come first.
    checkout = here.parent / "configs"
    shipped = checkout if (here.parent / "pyproject.toml").is_file() else here / "configs"
    extra = os.environ.get("RLZOO_CONFIGS")
    dirs = [Path("configs"), *([Path(extra)] if extra else []), shipped]
    return [d for d in dirs if d.is_dir()]


def find_config(folder: str, name: str) -> Path | None:
    """The file `folder/name.yaml`, or None."""
    found = (d / folder / f"{name}.yaml" for d in config_dirs())
    return next((path for path in found if path.is_file()), None)


def list_configs(folder: str) -> dict[str, Path]:
    """name -> file of all that `find_config` would find."""
    names = sorted({p.stem for d in config_dirs() for p in (d / folder).glob("*.yaml")})
    return {name: path for name in names if (path := find_config(folder, name))}


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


# ---------------------------------------------------------------- composing


def compose(words: list[str], zoo: Zoo, *, need_recipe: bool = True) -> Recipe:
    """The recipe that `words` (`recipe=ppo_gae`, `key=value`, ...) ask for; raises RecipeError.

    need_recipe: False where an environment needs no algorithm: then the defaults will do.
    """
    file, words = _recipe_file(words, need_recipe)
    files = [_required("defaults.yaml"), *([file] if file else [])]
    layers = [*map(read_layer, files), _command_line(words)]
    name = _name(files[-1])
    layers = _select_model(layers)
    for section in SECTIONS:
        layers = _keep_options_of_the_chosen(layers, section)
    merged, origins = _merge([layers[0], *_presets(layers), *layers[1:]])
    merged = _resolve(merged, origins)
    _validate(merged, origins, zoo)
    empty: dict[str, Any] = {section: {} for section in COLLECTIONS}
    config = OmegaConf.create(empty | _nest(merged))
    OmegaConf.set_readonly(config, True)
    return Recipe(name, config, origins)


def _name(file: Path) -> str:
    """A resolved recipe.yaml keeps its name in its first line."""
    return (describe(file).split() or [file.stem])[0] if file.name == "recipe.yaml" else file.stem


def _required(name: str) -> Path:
    for folder in config_dirs():
        if (folder / name).is_file():
            return folder / name
    raise RecipeError(f"no {name} in {', '.join(map(str, config_dirs()))}")


def _recipe_file(words: list[str], needed: bool) -> tuple[Path | None, list[str]]:
    for word in words:
        if "=" not in word:
            raise RecipeError(f"expected key=value, got {word!r}")
    chosen = [w.split("=", 1)[1] for w in words if w.split("=", 1)[0] == "recipe"]
    known = list_configs("recipes")
    if not chosen and not needed:
        return None, words
    if not chosen:
        raise RecipeError(f"recipe=NAME is missing; there are: {', '.join(known)}")
    if len(chosen) > 1:
        raise RecipeError(f"recipe is given twice: {' and '.join(chosen)}")
    name = chosen[0]
    rest = [w for w in words if w.split("=", 1)[0] != "recipe"]
    if name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise RecipeError(f"recipe: no file {name}")
        return Path(name), rest
    if name not in known:
        if "," in name:
            raise RecipeError(f"recipe={name} sweeps over recipes; `rlzoo sweep` does that")
        raise RecipeError(
            f"no recipe {name!r}{nearest(name, known)} (there are: {', '.join(known)})"
        )
    return known[name], rest


def read_layer(path: Path) -> Layer:
    """A YAML file as a layer; raises RecipeError with file and line where it is broken."""
    origin = show_path(path)
    try:
        loaded = OmegaConf.load(path)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise RecipeError(f"{origin}{line}: not valid YAML: {_problem(error)}") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError, OmegaConfBaseException) as error:
        raise RecipeError(f"{origin}: cannot be read: {str(error).splitlines()[0]}") from None
    if not isinstance(loaded, DictConfig):
        raise RecipeError(f"{origin}: must be a mapping of keys to values")
    return Layer(origin, _flatten(OmegaConf.to_container(loaded), origin))


def _problem(error: yaml.MarkedYAMLError) -> str:
    return str(error.problem or error.context or "unreadable")


def _command_line(words: list[str]) -> Layer:
    origin = "command line"
    values: Flat = {}
    for word in words:
        key, text = word.split("=", 1)
        key = key.strip()
        if has_sweep(text):
            raise RecipeError(f"{key}={text} is sweep syntax; `rlzoo sweep` runs each of them")
        value = _read_value(key, text)
        for flat_key, flat_value in _flatten({key: value}, origin).items():
            values.pop(flat_key, None)
            values[flat_key] = flat_value
    return Layer(origin, values)


def _read_value(key: str, text: str) -> Any:
    try:
        loaded = OmegaConf.from_dotlist([f"value={text}"])
    except (yaml.YAMLError, OmegaConfBaseException):
        raise RecipeError(f"{key} (command line): cannot read the value {text!r}") from None
    return OmegaConf.to_container(loaded)["value"]  # type: ignore[call-overload, index]


def read_options(words: list[str]) -> dict[str, Any]:
    """Options of one component from `option=value` words."""
    for word in words:
        if "=" not in word:
            raise RecipeError(f"expected option=value, got {word!r}")
    pairs = [word.split("=", 1) for word in words]
    return {key.strip(): _read_value(key.strip(), text) for key, text in pairs}


def split_values(text: str) -> list[str]:
    """A swept value at its commas, those inside brackets, braces and quotes apart."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def has_sweep(text: str) -> bool:
    """Whether a value is several, for `rlzoo sweep`."""
    return len(split_values(text)) > 1


def _flatten(tree: Any, origin: str, prefix: str = "") -> Flat:
    """Dotted keys -> leaves. `X: name` becomes `X.name: name`, a list of names `X.NAME: {}`."""
    flat: Flat = {}
    for raw, value in tree.items():
        key = f"{prefix}{raw}"
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
        elif isinstance(value, dict) and value and not _is_leaf(key):
            flat.update(_flatten(value, origin, f"{key}."))
        else:
            flat[key] = value
    return flat


def _is_leaf(key: str) -> bool:
    return key in KEYS


def _select_model(layers: list[Layer]) -> list[Layer]:
    """model.name and model.path exclude each other: the highest layer that sets one decides."""
    for i in range(len(layers) - 1, -1, -1):
        chosen = [k for k in ("model.path", "model.name") if layers[i].values.get(k) is not None]
        if chosen:
            other = {"model.path": "model.name", "model.name": "model.path"}[chosen[0]]
            return [_without(layer, {other} if j < i else set()) for j, layer in enumerate(layers)]
    return layers


def _keep_options_of_the_chosen(layers: list[Layer], section: str) -> list[Layer]:
    """Drop the options that a layer gave to a component that a higher layer replaced."""
    chosen, current = [], None
    for layer in layers:
        current = layer.values.get(f"{section}.name", current)
        chosen.append(current)

    def options(layer: Layer) -> set[str]:
        inside = {k for k in layer.values if k.startswith(f"{section}.")}
        return {k for k in inside if k not in KEYS}

    return [
        _without(layer, options(layer) if name != chosen[-1] else set())
        for layer, name in zip(layers, chosen, strict=True)
    ]


def _without(layer: Layer, keys: set[str]) -> Layer:
    return Layer(layer.origin, {k: v for k, v in layer.values.items() if k not in keys})


def _presets(layers: list[Layer]) -> list[Layer]:
    """The preset files of the chosen model and task; they replace the name that chose them."""
    found = []
    for section in ("model", "task"):
        key = f"{section}.name"
        name = next((ly.values[key] for ly in reversed(layers) if ly.values.get(key)), None)
        file = find_config(section, str(name)) if name else None
        if file:
            preset = read_layer(file)
            found.append(preset)
            if key in preset.values:
                for layer in layers:
                    layer.values.pop(key, None)
        elif name and section == "model":
            known = list_configs("model")
            origin = next(ly.origin for ly in reversed(layers) if ly.values.get(key))
            raise RecipeError(
                f"model.name ({origin}): no model {name!r}{nearest(str(name), known)} "
                f"(there are: {', '.join(known)}; a folder goes into model.path)"
            )
    return found


def _merge(layers: list[Layer]) -> tuple[Flat, dict[str, str]]:
    merged: Flat = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.values.items():
            if key.endswith("!"):
                for old in [k for k in merged if k.startswith(key[:-1] + ".")]:
                    del merged[old], origins[old]
                continue
            merged[key] = value
            origins[key] = layer.origin
    for key in [k for k, v in merged.items() if v is None and _in_collection(k)]:
        for old in [k for k in merged if k == key or k.startswith(key + ".")]:
            del merged[old], origins[old]
    return merged, origins


def _in_collection(key: str) -> bool:
    head, _, rest = key.partition(".")
    return head in COLLECTIONS and bool(rest) and "." not in rest


def _nest(flat: Flat) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, leaf = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        if isinstance(value, dict):
            node.setdefault(leaf, dict(value))  # a copy: what is put into it must not show in flat
        else:
            node[leaf] = value
    return tree


def _resolve(merged: Flat, origins: dict[str, str]) -> Flat:
    """Interpolations (`${rollout.prompts}`) filled in."""
    if not any(isinstance(v, str) and "${" in v for v in merged.values()):
        return merged
    config = OmegaConf.create(_nest(merged))
    resolved: Flat = {}
    for key, value in merged.items():
        if value == {}:  # it names a component; the options are leaves of their own
            resolved[key] = value
            continue
        try:
            found = OmegaConf.select(config, key, throw_on_resolution_failure=True)
        except OmegaConfBaseException as error:
            text = str(error).splitlines()[0]
            raise RecipeError(f"{key} ({origins[key]}): {value!r}: {text}") from None
        is_node = OmegaConf.is_config(found)
        resolved[key] = OmegaConf.to_container(found, resolve=True) if is_node else found
    return resolved


# ---------------------------------------------------------------- validating


def _validate(merged: Flat, origins: dict[str, str], zoo: Zoo) -> None:
    """Check every key against `KEYS` and the chosen components; fill in their defaults."""
    options: dict[str, Option] = dict(KEYS)
    fallback: dict[str, tuple[Any, str]] = {}
    owners: dict[str, Component] = {}
    wanted = []
    for section, kind in SECTIONS.items():
        name = merged.get(f"{section}.name")
        if name is not None:
            wanted.append((section, f"{section}.name", kind, str(name)))
    for section, kind in COLLECTIONS.items():
        names = {k.split(".")[1]: k for k in merged if k.startswith(f"{section}.")}
        wanted += [(f"{section}.{name}", key, kind, name) for name, key in names.items()]
    for section, key, kind, name in wanted:
        component = _component(zoo, kind, name, key, origins)
        owners[section] = component
        for option in component.options.values():
            full = f"{section}.{option.name}"
            if full in KEYS:
                raise RecipeError(
                    f"{component.label}: its option {option.name!r} has the name of a core key"
                )
            options[full] = option
            fallback[full] = (option.default, f"{component.name}'s default")
        if section.startswith("rewards."):
            options[f"{section}.weight"] = WEIGHT
            fallback[f"{section}.weight"] = (WEIGHT.default, "defaults")
        if merged.get(section) == {} and (component.options or section.startswith("rewards.")):
            del merged[section], origins[section]
    for key in list(merged):
        if key not in options:
            if merged[key] == {} and key in owners:
                continue
            raise RecipeError(_unknown(key, origins[key], options, owners))
        try:
            merged[key] = options[key].check(merged[key])
        except ValueError as error:
            raise RecipeError(f"{key} ({origins[key]}): {error}") from None
    for key in KEYS:
        if key not in merged:
            merged[key] = None if None in _arms(KEYS[key]) else _missing(key)
            origins[key] = "defaults"
    for key, (value, origin) in fallback.items():
        if key not in merged:
            merged[key], origins[key] = value, origin
    if merged["model.name"] is None and merged["model.path"] is None:
        raise RecipeError("model: give model.name (a preset) or model.path (a folder)")


def _arms(option: Option) -> tuple[Any, ...]:
    try:
        option.check(None)
    except ValueError:
        return ()
    return (None,)


def _missing(key: str) -> Any:
    raise RecipeError(f"{key}: has no value, not even in defaults.yaml")


def _component(zoo: Zoo, kind: str, name: str, key: str, origins: Mapping[str, str]) -> Component:
    try:
        return zoo.shelves[kind][name]
    except RlzooError as error:
        known = ", ".join(zoo.shelves[kind])
        raise RecipeError(
            f"{key} ({origins.get(key, '?')}): {error} (there are: {known})"
        ) from None


def _unknown(key: str, origin: str, options: Mapping[str, Option], owners: Mapping) -> str:
    section, _, word = key.rpartition(".")
    if section in owners:
        component = owners[section]
        singular = KINDS[component.kind].singular
        has = ", ".join(component.options) or "none"
        close = nearest(word, component.options)
        return (
            f"{key} ({origin}): {singular} {component.name!r} has no option {word!r}"
            f" (it has: {has}){close}"
        )
    tops = {k.split(".")[0] for k in options}
    if "." not in key and key in tops:
        inside = ", ".join(sorted(k for k in options if k.startswith(key + ".")))
        return f"{key} ({origin}): holds keys, not a value: {inside}"
    return f"{key} ({origin}): no such key{_nearest_key(key, options)}"


def _nearest_key(key: str, options: Mapping[str, Option]) -> str:
    close = difflib.get_close_matches(key, list(options), n=1, cutoff=0.6)
    if not close:  # the right word under the wrong roof: `lr` -> `actor.lr`
        word = key.rpartition(".")[2]
        close = [k for k in options if k.rpartition(".")[2] == word][:1]
        close = close or difflib.get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
