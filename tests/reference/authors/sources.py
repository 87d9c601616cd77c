"""Functions out of other people's files, as they stand there.

A file is one of a public repository at one commit. It is downloaded once, read as a syntax tree,
and only what is asked for is run: its module's imports, which would bring Ray, vLLM and CUDA, are
not. Decorators are left off and annotations are not evaluated; nothing else is changed.
"""

import __future__

import ast
import math
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

WEB = "https://raw.githubusercontent.com"


@dataclass(frozen=True)
class Source:
    repo: str  # OWNER/NAME
    commit: str
    path: str

    def __str__(self) -> str:
        return f"{self.repo} {self.commit[:7]}"

    def text(self, files: Path) -> str:
        """From `files`/OWNER/NAME/COMMIT/PATH, where a download is put; OSError without."""
        file = files / self.repo / self.commit / self.path
        if not file.is_file():
            url = f"{WEB}/{self.repo}/{self.commit}/{self.path}"
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text)
        return file.read_text(encoding="utf-8")


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


def functions(text: str, names: str, within: str = "", **given: Any) -> Mapping[str, Any]:
    """The functions and methods with these names (words of `names`), which see each other, torch
    and what is `given`; with `within` the methods of that class."""
    space = {"torch": torch, "F": F, "np": np, "math": math, **given}
    wanted = names.split()
    tree: ast.AST = parsed(text)
    if within:
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        tree = next(node for node in classes if node.name == within)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in wanted:
            node.decorator_list = []
            run([node], space)
    missing = [name for name in wanted if name not in space]
    if missing:
        raise LookupError(f"no function {missing[0]}")
    return space


def instance(text: str, name: str, methods: str, /, fields: Any, **given: Any) -> Any:
    """An object with the methods of their class `name` and these fields, made without __init__."""
    space = functions(text, methods, name, **given)
    made = type(name, (), {method: space[method] for method in methods.split()})()
    vars(made).update(fields)
    return made


def branch(text: str, test: str, having: str = "", **given: Any) -> dict[str, Any]:
    """The variables after the body of the first `if TEST:` (of those that have the words `having`
    in it) was run on those that are `given`."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == test:
            if having not in "".join(map(ast.unparse, node.body)):
                continue
            space = {"torch": torch, "np": np, **given}
            run(node.body, space)
            return space
    raise LookupError(f"no `if {test}:` with {having!r}")


def assigned(text: str, names: str, **given: Any) -> dict[str, Any]:
    """The variables after every assignment to one of `names` (words), in the file's order."""
    space = {"torch": torch, "np": np, **given}
    nodes = [node for node in ast.walk(parsed(text)) if isinstance(node, ast.Assign)]
    chosen = [node for node in nodes if ast.unparse(node.targets[0]) in names.split()]
    run(sorted(chosen, key=lambda node: node.lineno), space)
    return space


def run(body: list[ast.stmt], space: dict[str, Any]) -> None:
    module = ast.fix_missing_locations(ast.Module(body, []))
    flags = __future__.annotations.compiler_flag
    exec(compile(module, "<theirs>", "exec", flags), space)
