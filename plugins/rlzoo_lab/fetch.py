"""`rlzoo fetch`: shows and checks a recipe from a URL, and trains it only if given its checksum.

Until `--run CHECKSUM` is on the command line, the recipe imports nothing: the check reads the
source of the installed plugins and calls no component. This module does not import torch.
"""

import argparse
import hashlib
import re
import shlex
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from rlzoo.cli.run.command import shown
from rlzoo.cli.verb import Result
from rlzoo.errors import RecipeError, RlzooError, UsageError, first_line
from rlzoo.format.text import say
from rlzoo.plugin.sketch import load_zoo_after, sketch
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import LARGEST, read_layer
from rlzoo.runs.contents import FUNCTION, PLACES
from rlzoo.runs.disk import write_atomically, write_json
from rlzoo.train.start import start
from rlzoo_zoo.request import request

SECONDS = 30.0  # for the whole download
SHORTEST = 12  # hex digits of a checksum that --run accepts
HERE = ("127.0.0.1", "::1", "localhost")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="https://, file:// or a gist")
    parser.add_argument("words", nargs="*", metavar="key=value", help="settings to change")
    parser.add_argument(
        "--run",
        metavar="CHECKSUM",
        help=f"train the recipe if the SHA-256 of its text begins with this ({SHORTEST} digits "
        "or more)",
    )


def run(arguments: argparse.Namespace) -> Result:
    raw = download(arguments.url)
    checksum = hashlib.sha256(raw).hexdigest()
    place = without_secrets(arguments.url)
    record = {"url": place, "sha256": checksum, "bytes": len(raw)}
    agreed = (arguments.run or "").lower()
    if arguments.run is not None:
        _check_agreed(agreed, checksum, place)
    with tempfile.TemporaryDirectory(prefix="rlzoo-fetch-") as folder:
        file = Path(folder) / name_of(arguments.url)
        file.write_bytes(raw)
        words = [f"recipe={file}", *arguments.words]
        if not agreed:
            again = shlex.join(["rlzoo", "fetch", arguments.url, *arguments.words, "--run"])
            return _reading(record, raw, file, words, again)
        say(f"rlzoo: {place}, SHA-256 {checksum}")
        zoo = load_zoo_after(partial(compose, words))
        recipe = compose(words, zoo)

        def keep(path: Path) -> None:
            write_atomically(path / "fetched.yaml", raw)
            write_json(path / "fetched.json", record)

        return shown(lambda display: start(recipe, zoo, display), arguments, keep)


def _check_agreed(agreed: str, checksum: str, url: str) -> None:
    if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST},64}}", agreed):
        raise UsageError(
            f"--run: requires the recipe's checksum with {SHORTEST} to 64 hex digits. `rlzoo "
            f"fetch {url}` prints it with the recipe. Got {agreed!r}"
        )
    if not checksum.startswith(agreed):
        raise UsageError(
            f"--run: the text at {url} has changed: its SHA-256 begins with "
            f"{checksum[:SHORTEST]}, not {agreed[:SHORTEST]}. Read it again with `rlzoo fetch "
            f"{url}`"
        )


def _reading(
    record: dict[str, Any], raw: bytes, file: Path, words: list[str], again: str
) -> Result:
    """The recipe, the resources that it uses, and its faults; nothing of it runs. `again`: the
    command that trains it, up to the checksum."""
    found, problem = {}, ""
    try:
        found = touches(read_layer(file).values)
        zoo = sketch()
        if zoo is None:
            problem = (
                "not checked, because the source of an installed plugin does not show what the "
                "plugin registers"
            )
        else:
            compose(words, zoo)
    except RecipeError as error:
        problem = first_line(error).replace(str(file), file.name)
    text = raw.decode("utf-8", "backslashreplace")
    document = {**record, "text": text, "touches": found, "problem": problem}
    return Result(document, lambda _: _view(document, again), status=int(bool(problem)))


def _view(document: dict[str, Any], again: str) -> Iterator[str]:
    yield document["text"].rstrip("\n")
    yield f"\n{document['bytes']} bytes, SHA-256 {document['sha256']}"
    for key, what in document["touches"].items():
        yield f"touches  {key}: {what}"
    if document["problem"]:
        yield f"problem  {document['problem']}"
    else:
        yield f"to train it: {again} {document['sha256'][:SHORTEST]}"


def touches(values: Any, key: str = "") -> dict[str, str]:
    """Key -> value and kind for each value that names something outside the recipe: a URL, a
    function to import, a path or an environment variable."""
    if isinstance(values, dict | list):
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        inside = (touches(v, f"{key}.{k}".lstrip(".")) for k, v in pairs)
        return {k: what for found in inside for k, what in found.items()}
    last = key.rpartition(".")[2]
    if not isinstance(values, str):
        return {}
    if "${oc." in values or last.endswith("_from"):
        return {key: f"{values} (an environment variable)"}
    if "://" in values or last == "url":
        return {key: f"{values} (a URL)"}
    if FUNCTION.fullmatch(values) or last == "function":
        return {key: f"{values} (an imported function)"}
    if "/" in values or "\\" in values or last in PLACES:
        return {key: f"{values} (a file or folder)"}
    return {}


# ---------------------------------------------------------------- the download


def download(url: str) -> bytes:
    """The text at a URL, at most `LARGEST` bytes, within `SECONDS`; raises RlzooError."""
    try:
        parts, place = urlsplit(url), without_secrets(url)
    except ValueError as error:
        raise UsageError(f"fetch: not a URL: {error}") from None
    allowed = ("https", "http") if parts.hostname in HERE else ("https",)
    if parts.scheme == "file":
        return _limited(_file(parts), place)
    if parts.scheme not in allowed:
        raise UsageError(f"fetch: needs a URL that begins with https:// or file://. Got {place!r}")
    address = _raw_address(parts)
    try:
        answer = request(address, seconds=SECONDS, most=LARGEST, redirects=_HttpsOnly())
    except (OSError, HTTPException, ValueError) as error:
        plain = error.reason if type(error) is urllib.error.URLError else first_line(error)
        raise RlzooError(f"{place}: cannot be read: {plain}") from None
    if answer.status != 200:
        raise RlzooError(f"{place}: cannot be read: status {answer.status}")
    return _limited(answer.body, place)


def without_secrets(url: str) -> str:
    """A URL as files and messages show it: without a password and a query, which may hold keys."""
    parts = urlsplit(url)
    query = "..." if parts.query else ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query).geturl()


class _HttpsOnly(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: str
    ) -> Any:
        if urlsplit(newurl).scheme != "https":
            here, there = map(without_secrets, (req.full_url, newurl))
            raise RlzooError(f"{here}: redirects to {there}, which is not an https:// URL")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _raw_address(parts: SplitResult) -> str:
    """The URL of the text, if the URL is that of a gist or a page of a code host."""
    path = parts.path.rstrip("/")
    if parts.hostname == "gist.github.com" and "/raw" not in path:
        path += "/raw"
    if parts.hostname == "github.com":
        path = path.replace("/blob/", "/raw/", 1)
    return parts._replace(path=path, fragment="").geturl()


def _file(parts: SplitResult) -> bytes:
    path = Path(unquote(parts.path))
    try:
        if parts.netloc not in ("", "localhost") or not path.is_file():
            raise RlzooError(f"{parts.geturl()}: must be a file on this machine")
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        raise RlzooError(f"{path}: cannot be read: {error.strerror}") from None


def _limited(raw: bytes, url: str) -> bytes:
    if len(raw) > LARGEST:
        raise RlzooError(f"{url}: is larger than {LARGEST // 2**20} MiB, the limit for a recipe")
    if raw.lstrip()[:1] == b"<":
        raise RlzooError(f"{url}: is a web page. Give the URL of the recipe's raw text")
    return raw


def name_of(url: str) -> str:
    """The file name of the recipe; runs are named after it."""
    last = PurePosixPath(unquote(urlsplit(url).path)).name
    stem = re.sub(r"[^\w-]+", "_", re.sub(r"\.ya?ml$", "", last)).strip("_")
    return f"{stem if last.endswith(('.yaml', '.yml')) and stem else 'fetched'}.yaml"
