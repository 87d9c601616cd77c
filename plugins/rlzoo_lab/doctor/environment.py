"""`rlzoo doctor --environment`: versions, devices, plugins and terminal, for a bug report.

Users paste the report in public, so it contains no directory, no user name and no value that looks
like a secret. A child process imports torch, so that a crash of torch becomes a line of the report.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from rlzoo import __version__
from rlzoo.plugin.registry import load_zoo

OWN = "rlzoo-llm"
FOR_DEVELOPERS = {"test", "docs", "dev", "all"}  # extras: `all` repeats the others
SCREEN = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR")
PATIENCE = 120.0  # seconds, for the import of torch
SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)
# Two or more levels of an absolute path; the group is the last one.
PATH = re.compile(
    r"(?<![\w.])(?:~|[A-Za-z]:)?(?:[/\\][^/\\\s:;,'\"()<>]+)+[/\\]([^/\\\s:;,'\"()<>]+)"
)
TORCH = """
import json, torch
cuda, devices = torch.cuda, []
for i in range(cuda.device_count() if cuda.is_available() else 0):
    p = cuda.get_device_properties(i)
    devices.append({"name": p.name, "gib": round(p.total_memory / 2**30, 1),
                    "capability": f"{p.major}.{p.minor}"})
print(json.dumps({"threads": torch.get_num_threads(), "cuda": torch.version.cuda,
                  "hip": torch.version.hip, "devices": devices}))
"""


def environment() -> dict[str, Any]:
    """The environment as strings, numbers (`gib` is in GiB) and booleans; None if missing."""
    torch, cores = torch_facts(), getattr(os, "sched_getaffinity", None)  # Linux only
    columns, lines = shutil.get_terminal_size()
    usable = len(cores(0)) if cores else os.cpu_count()  # in a container, fewer than there are
    return {
        "rlzoo": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "cores": {"machine": os.cpu_count(), "usable": usable},
        "torch": torch,
        **packages(),
        **plugins(importable="error" not in torch),
        "terminal": {
            "terminal": sys.stderr.isatty(),  # with --json, stdout is redirected
            "columns": columns,
            "lines": lines,
            "encoding": sys.stdout.encoding,
            **{name: os.environ[name] for name in SCREEN if name in os.environ},
        },
    }


def torch_facts() -> dict[str, Any]:
    """Threads, CUDA version and devices, or `error` if torch cannot be imported."""
    command = [sys.executable, "-P", "-c", TORCH]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {"error": f"not imported within {PATIENCE:g} s"}
    if done.returncode < 0:
        return {"error": f"the import was ended by signal {-done.returncode}"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"error": without_secrets(lines[-1])}
    facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return facts


def packages() -> dict[str, Any]:
    """Required packages and those of each extra -> version; None means not installed."""
    needed: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    for line in requires(OWN) or ():
        name = re.split(r"[^\w.-]", line)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)", line)
        if extra is None:
            needed[name] = version_of(name)
        elif extra[1] not in FOR_DEVELOPERS:
            extras.setdefault(extra[1], {})[name] = version_of(name)
    return {"packages": needed, "extras": extras}


def version_of(name: str) -> str | None:
    """The installed version of a distribution, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def plugins(*, importable: bool) -> dict[str, Any]:
    """`plugins`: distributions with their number of components; `broken`: plugins with a reason.

    importable: whether torch can be imported. Without it no plugin is loaded, and both are None.
    """
    if not importable:
        return {"plugins": None, "broken": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `broken` has them
        zoo = load_zoo()
    counts = Counter(component.distribution for component in zoo)
    return {
        "plugins": [
            {"name": name, "version": version_of(name), "components": n}
            for name, n in sorted(counts.items())
        ],
        "broken": [
            {"origin": without_secrets(b.origin), "reason": without_secrets(b.reason)}
            for b in zoo.broken
        ],
    }


def without_secrets(text: str) -> str:
    """A plugin's text without directories, credentials in URLs and values of secret variables."""
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= 6:
            text = text.replace(value, "***")
    text = re.sub(r"://[^/\s@]+@", "://***@", text)
    home = str(Path.home())
    if len(home) > 1:  # it may have a space, at which a path would end
        text = text.replace(home, "~")
    return PATH.sub(r".../\1", text)


def facts_of(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The terminal view: (name, value)."""
    cores, torch, screen = (document[name] for name in ("cores", "torch", "terminal"))
    yield "rlzoo", document["rlzoo"]
    yield "Python", document["python"]
    yield "platform", document["platform"]
    yield "cores", f"{cores['usable']} of {cores['machine']} usable"
    if "error" in torch:
        yield "devices", f"unknown, because torch cannot be imported: {torch['error']}"
    else:
        builds = [f"{n} {v}" for n, v in (("CUDA", torch["cuda"]), ("ROCm", torch["hip"])) if v]
        yield "torch build", ", ".join(builds or ["CPU"])
        yield "torch threads", str(torch["threads"])
        for device in torch["devices"] or [{"name": "CPU"}]:
            yield "device", device["name"] + (f", {device['gib']} GiB" if "gib" in device else "")
    for name, there in document["packages"].items():
        yield name, there or "not installed"
    for extra, inside in document["extras"].items():
        there = ", ".join(f"{name} {v or 'not installed'}" for name, v in inside.items())
        yield f"[{extra}]", there
    if document["plugins"] is None:
        yield "plugins", "not loaded"
    for plugin in document["plugins"] or ():
        version = plugin["version"] or "(no package)"
        yield "plugin", f"{plugin['name']} {version}: {plugin['components']} components"
    for broken in document["broken"] or ():
        yield "broken plugin", f"{broken['origin']}: {broken['reason']}"
    size = f"{screen['columns']} x {screen['lines']}" if screen["terminal"] else "none"
    values = [f"{name}={value}" for name, value in screen.items() if name.isupper()]
    yield "terminal", ", ".join([size, screen["encoding"], *values])
