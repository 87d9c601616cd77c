"""`rlzoo model export`: a run's model as a transformers folder with a card.  No torch here."""

import argparse
import contextlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from rlzoo import __version__
from rlzoo.cli.verb import Result
from rlzoo.errors import RunError, UsageError
from rlzoo.format.text import folded
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import TRUST, compose
from rlzoo.recipe.files import config_dirs
from rlzoo.runs.folder import RunFolder
from rlzoo.runs.metrics import GAIN, SCORE, SECONDS, TOKENS, headline
from rlzoo_lab.data.staged import check_free, staged
from rlzoo_lab.data.weights import Weights, choose, open_own
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.numbers import gain_text
from rlzoo_lab.view.texts import in_markdown

ADAPTER = "adapter_config.json"

PROMPTS = {  # by `model.chat`
    "auto": "text prompts are unchanged, and messages use the chat template",
    "always": "prompts use the chat template, and a text prompt becomes the user's message",
    "never": "plain text",
}


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("run", metavar="RUN")
    sub.add_argument("out", metavar="DIR", help="a new or empty folder")
    add_declared(sub, "rlzoo_lab.api.verbs:export")


def run(arguments: argparse.Namespace) -> Result:
    """Write the model's folder atomically."""
    folder, place = open_own(arguments.run, "its model"), Path(arguments.out)
    dtype, trust = arguments.dtype, arguments.trust_remote_code
    check_free(place, "DIR")
    weights = choose(folder, arguments.checkpoint)
    recipe = folder.recipe()
    missing = [s for s in ("model", "task", "rewards", "rollout", "estimator") if s not in recipe]
    if missing:
        raise RunError(
            f"{folder.path / 'recipe.yaml'} is damaged: it has no {' and no '.join(missing)}"
        )
    with staged(place, "DIR") as aside:
        source, scratch = weights.path, aside / "raw"
        if weights.raw:
            source = scratch
            _save_checkpoint(folder, weights, source, trust)
        adapter = (source / ADAPTER).is_file() and not arguments.merge
        if adapter and dtype:
            raise UsageError(f"--dtype: {folder.path} contains a LoRA adapter; add --merge")
        base = _base(recipe)
        if adapter:
            left_out = shutil.ignore_patterns("best.json", "README.md")
            shutil.copytree(source, aside, ignore=left_out, dirs_exist_ok=True)
        else:
            _save_whole(source, aside, recipe, dtype, trust)
        what = "adapter" if adapter else "model"
        card = model_card(folder, weights, recipe, aside, dtype=dtype)
        (aside / "README.md").write_text(card, encoding="utf-8")
        shutil.rmtree(scratch, ignore_errors=True)
    document = {
        "path": str(place),
        "run": str(folder.path),
        "weights": weights.name,
        "step": weights.step,
        "what": what,
        "base": base,
        "dtype": dtype,
        "files": sorted(p.name for p in place.iterdir()),
    }

    def view(_: Any) -> Iterator[str]:
        files = ", ".join(document["files"])
        yield folded(f"{place}: {what}, after step {weights.step} ({files})")
        if adapter:
            yield folded(
                f"the adapter requires its base model, {base}; use --merge to write both as one "
                "model"
            )

    return Result(document, view)


def _save_checkpoint(folder: RunFolder, weights: Weights, place: Path, trust: bool) -> None:
    """A checkpoint of training as a folder that transformers loads."""
    from rlzoo.lm.build import build_policy

    words = [f"recipe={folder.path / 'recipe.yaml'}", "device=cpu"]
    words += [f"{TRUST}=true"] if trust else []
    policy = build_policy(compose(words, load_zoo()).config)
    weights.load_into(policy.model)
    policy.model.save_pretrained(place)
    policy.tokenizer.save_pretrained(place)


def _save_whole(
    source: Path, place: Path, recipe: Mapping[str, Any], dtype: str | None, trust: bool
) -> None:
    """Model, tokenizer, and how to sample from it; an adapter is merged (in float32)."""
    import torch
    from transformers import GenerationConfig

    from rlzoo.lm.loading import eos_ids, load_causal_lm, load_tokenizer
    from rlzoo.lm.prompts import PromptFormat

    model = load_causal_lm(source, trust_remote_code=trust)
    tokenizer = load_tokenizer(source, trust_remote_code=trust)
    model.to(getattr(torch, dtype or recipe["model"].get("dtype", "float32")))
    rollout, chat = recipe["rollout"], recipe["model"].get("chat", "auto")
    ends = set(eos_ids(model.config, tokenizer))
    if chat != "never":  # its readers talk by the template, whatever the run's prompts were
        end = PromptFormat(tokenizer).end_of_turn
        ends |= set() if end is None else {end}
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=rollout["temperature"],
        top_k=rollout["top_k"],
        top_p=rollout["top_p"],
        max_new_tokens=rollout["max_new_tokens"],
        eos_token_id=sorted(ends),
        pad_token_id=int(tokenizer.pad_token_id),
    )
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)


def _base(recipe: Mapping[str, Any]) -> str:
    """The base model: its hub id, or the name or folder by which it is known here."""
    model = recipe["model"]
    here = [Path(model["path"]), *(folder / model["path"] for folder in config_dirs())]
    local = any(path.is_dir() for path in here)
    return str(model.get("name") or model["path"]) if local else str(model["path"])


def model_card(
    folder: RunFolder,
    weights: Weights,
    recipe: Mapping[str, Any],
    place: Path,
    *,
    dtype: str | None,
) -> str:
    """README.md: a description of the model in `place`, its training, its scores and how to load
    it."""
    base, task, adapter = _base(recipe), recipe["task"]["name"], (place / ADAPTER).is_file()
    estimator = recipe["estimator"]["name"]
    front = {
        "base_model": base,
        "base_model_relation": "adapter" if adapter else "finetune",
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rlzoo", "reinforcement-learning", estimator],
    }
    name = folder.path.resolve().name
    which = {"model": "the end of training", "best": "the best evaluation"}
    at = f"{which.get(weights.name, 'a checkpoint')} (step {weights.step})"
    settings = yaml.safe_dump(dict(recipe), sort_keys=False)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", settings)), default=0))
    sections = [
        "---\n" + yaml.safe_dump(front, sort_keys=False) + "---",
        f"# {in_markdown(name)}",
        in_markdown(
            f"`{base}` trained with rlzoo on `{task}` with the estimator `{estimator}`; weights "
            f"from {at}" + (f", in {dtype}." if dtype else ".") + _quantized(place, adapter)
        ),
        "## Results\n\n" + _results(folder, weights),
        "## Training\n\n" + _training(folder, weights, recipe),
        "## How to load it\n\n" + _loading(adapter),
        f"## Recipe\n\nAll settings, resolved:\n\n{fence}yaml\n{settings}{fence}",
    ]
    return "\n\n".join(sections) + "\n"


def _quantized(place: Path, adapter: bool) -> str:
    """A sentence on weights that come from a GGUF file; "" for others."""
    said = json.loads((place / (ADAPTER if adapter else "config.json")).read_text("utf-8"))
    if adapter:
        base = str(said.get("base_model_name_or_path"))
        from_gguf = base.startswith("package:") or base.endswith(".gguf")
        return f" The base model is the GGUF file of `{base}`." if from_gguf else ""
    note = said.get("rlzoo_gguf")
    return f" The weights before training: {note}." if note else ""


def _results(folder: RunFolder, weights: Weights) -> str:
    evaluations = [line for line in folder.lines("metrics.jsonl") if SCORE in line]
    shown = [("before training", line) for line in evaluations[:1]]
    shown += [("these weights", line) for line in evaluations[1:] if line["step"] == weights.step]
    rows = ["| | metric | value | 95 % interval | samples | prompts |", "|---|---|---|---|---|---|"]
    for label, line in shown:
        what, value, low, high = headline(line)
        rows.append(
            f"| {label} (step {line['step']}) | {what} | {value:.3f} | {low:.3f} to {high:.3f} | "
            f"{line['eval/samples']} | {line.get('eval/prompts', '')} |"
        )
    paragraphs = [
        "Responses to held-out prompts, sampled according to the recipe's `eval` keys. If there "
        "are fewer prompts than samples, prompts are repeated, and the interval counts each "
        "prompt once.",
        "\n".join(rows),
    ]
    for line in [line for _, line in shown[1:] if GAIN in line]:
        rise = gain_text(*(line[f"{GAIN}{end}"] for end in ("", "_low", "_high")))
        paragraphs.append(f"From before training to these weights: {rise}.")
    if weights.step and len(shown) < 2:
        paragraphs.append(f"The run was not evaluated at step {weights.step}.")
    if weights.name == "best":
        paragraphs.append(
            "The result of the best evaluation is biased upwards, because these weights were "
            "chosen by that result."
        )
    return "\n\n".join(paragraphs)


def _training(folder: RunFolder, weights: Weights, recipe: Mapping[str, Any]) -> str:
    last = {TOKENS: 0, SECONDS: 0}
    for line in folder.lines("metrics.jsonl"):
        last = line if TOKENS in line and line["step"] <= weights.step else last
    made = ", ".join(f"{name} {version}" for name, version in versions().items())
    return in_markdown(
        f"{weights.step} steps, {last[TOKENS]:,} generated tokens, {last[SECONDS]:.0f} s; "
        f"{PROMPTS[recipe['model'].get('chat', 'auto')]}. Exported with {made}."
    )


def versions() -> dict[str, str]:
    """The installed versions of rlzoo and of the libraries that a model depends on."""
    installed = {"rlzoo": __version__}
    for name in ("torch", "transformers", "peft"):
        with contextlib.suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def _loading(adapter: bool) -> str:
    model = "AutoPeftModelForCausalLM" if adapter else "AutoModelForCausalLM"
    library = "from peft import AutoPeftModelForCausalLM\n" if adapter else ""
    names = "AutoTokenizer" if adapter else "AutoModelForCausalLM, AutoTokenizer"
    return (
        f"```python\n{library}from transformers import {names}\n\n"
        f'model = {model}.from_pretrained("DIR")\n'
        'tokenizer = AutoTokenizer.from_pretrained("DIR")\n```'
    )
