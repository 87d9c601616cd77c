"""Environments of their own, for libraries that cannot stand beside rlzoo's own versions."""

import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def make(place: Path, *installs: Sequence[str], gone: Sequence[str] = ()) -> Path:
    """The interpreter of an environment in `place`; one that is there already stays.

    installs: what `pip install` is told, a call each; then rlzoo itself goes in, editable, so that
    it is found by its entry points. gone: what is taken out again.
    """
    python = place / "bin" / "python"
    if (place / "whole").exists():
        return python
    venv.create(place, with_pip=True)
    pip = [str(python), "-m", "pip"]
    for words in installs:
        subprocess.run([*pip, "install", "-q", *words], check=True)
    if gone:
        subprocess.run([*pip, "uninstall", "-q", "-y", *gone], check=True)
    itself = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    subprocess.run([*pip, "install", "-q", *itself], check=True)
    (place / "whole").touch()
    return python


def site_packages(place: Path) -> Path:
    return next((place / "lib").glob("python3*/site-packages"))


def constraints(place: Path, without: Sequence[str]) -> Path:
    """rlzoo's tested versions as a file, but for those that begin so."""
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    place.mkdir(parents=True, exist_ok=True)
    file = place / "constraints.txt"
    file.write_text("\n".join(p for p in pins if not p.startswith(tuple(without))))
    return file
