"""Texts for users, asserted in one place: a `golden/` folder beside the test file.

`--rewrite-golden` writes what a test has seen in place of what it expected; `git diff` shows it.
"""

import json
import re
import zlib
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from helpers import ROOT

# What differs from one run to the next, or with a line above it.
VARIES = {
    r"(?<=127\.0\.0\.1:)\d{4,5}": "PORT",
    r"/\S*/pytest-of-\w+/pytest-\d+/(?:popen-gw\d+/)?([a-z_]*)\d+": r"TMP/\1",
    r"(?<=\.py:)\d+": "N",
    r"(?<=cache \()[^)]*": "CACHE",
    r"process \d+ on \S+ since [\d-]+ [\d:]+": "process N",
}


class Golden:
    """The texts of one test, in order, compared at its end."""

    def __init__(self, request, tmp_path):
        self.file = request.path.parent / "golden" / f"{request.path.stem}.json"
        name = request.node.name
        self.name = name if len(name) < 90 else f"{name[:80]}... {zlib.crc32(name.encode())}"
        self.tmp_path, self.seen = str(tmp_path), []
        self.rewrite = request.config.getoption("--rewrite-golden")

    def __call__(self, text):
        for where, name in ((self.tmp_path, "TMP"), (str(ROOT), "ROOT")):
            text = text.replace(where, name)
        for pattern, name in VARIES.items():
            text = re.sub(pattern, name, text)
        self.seen.append(text)

    @contextmanager
    def refuses(self, kind):
        """An error of this kind with a text of one line, which is golden."""
        found = SimpleNamespace(error=None)
        with pytest.raises(kind) as caught:
            yield found
        found.error = caught.value
        assert "\n" not in str(caught.value)
        self(str(caught.value))

    def compare(self):
        known = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}
        if self.rewrite and self.seen != known.get(self.name, []):
            known[self.name] = self.seen
            self.file.parent.mkdir(exist_ok=True)
            text = json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True)
            self.file.write_text(text + "\n", "utf-8")
        assert self.seen == known.get(self.name, []), "another text: see it with --rewrite-golden"
