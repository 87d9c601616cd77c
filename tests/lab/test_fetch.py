"""A recipe from a URL: it is shown and checked without running anything, and trains only with the
checksum of its text."""

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from rlzoo import RlzooError
from rlzoo.cli import main
from rlzoo.recipe.files import LARGEST
from rlzoo_lab import fetch

RECIPE = "# A recipe.\nestimator: {name: grpo}\nkl: {place: none}\n"
SMALL = ["model=nano", "train.steps=1", "eval.samples=16", "rollout.prompts=4", "device=cpu"]


@pytest.fixture
def served():
    """What a server on this machine answers: path -> (status, headers, body); and its address."""
    answers = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, headers, body = answers[self.path]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield answers, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def checksum(text):
    return hashlib.sha256(text.encode()).hexdigest()


def file_url(path, text):
    path.write_bytes(text.encode())
    return path.as_uri()


def test_it_is_shown_and_checked_and_nothing_of_it_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "odd_score.py").write_text("raise SystemExit('imported')\n")
    text = RECIPE + "rewards: {python: {function: 'odd_score:score'}}\n"
    url = file_url(tmp_path / "a.yaml", text)
    assert main(["fetch", url, "train.steps=1"]) == 0
    shown = capsys.readouterr().out
    assert text in shown
    assert checksum(text) in shown
    assert "rewards.python.function: odd_score:score (an imported function" in shown
    assert f"rlzoo fetch {url} train.steps=1 --run {checksum(text)[:12]}" in shown
    assert "odd_score" not in sys.modules
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.yaml", "odd_score.py"]


@pytest.mark.parametrize(
    "url", ["http://[::1", "https://[x]/a", "https://a:b/", "https://\0/", "x"]
)
def test_what_is_no_url_is_refused_in_one_line(url, capsys):
    assert main(["fetch", url]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("estimator: {name: grop}\n", "grop"),
        ("- 1\n", "must be a mapping"),
        ("a: \xff\n".encode("latin-1").decode("utf-8", "surrogateescape"), "cannot be read"),
        ("estimator: {name: '${oc.env:HOME}'}\n", "HOME"),
    ],
)
def test_a_faulty_recipe_is_shown_with_its_fault(text, fault, tmp_path, capsys):
    (tmp_path / "a.yaml").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["fetch", (tmp_path / "a.yaml").as_uri(), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert fault in document["problem"]
    assert str(tmp_path) not in document["problem"]


@pytest.mark.parametrize("given", ["", "yes", "f" * 11, "0" * 12, "0" * 64, "0" * 65])
def test_without_its_checksum_it_does_not_train(given, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fetch, "start", lambda *_: pytest.fail("it trains"))
    url = file_url(tmp_path / "a.yaml", RECIPE)
    assert main(["fetch", url, "--run", given]) != 0
    assert f"rlzoo fetch {url}" in capsys.readouterr().err


def test_with_its_checksum_it_trains_and_the_run_keeps_its_source(
    tmp_path, monkeypatch, served, capsys
):
    monkeypatch.chdir(tmp_path)
    answers, address = served
    answers["/a.yaml"] = (200, {}, RECIPE.encode())
    url, own = f"{address}/a.yaml", checksum(RECIPE)
    assert main(["fetch", url, *SMALL, "run.dir=run", "--run", own[:12].upper()]) == 0
    run = tmp_path / "run"
    assert json.loads((run / "summary.json").read_text())
    record = {"url": url, "sha256": own, "bytes": len(RECIPE)}
    assert json.loads((run / "fetched.json").read_text()) == record
    assert (run / "fetched.yaml").read_text() == RECIPE
    answers["/a.yaml"] = (200, {}, RECIPE.replace("none", "loss").encode())
    assert main(["fetch", url, *SMALL, "run.dir=other", "--run", own]) != 0
    assert "has changed" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "answer",
    [
        (404, {}, b""),
        (302, {"Location": "http://127.0.0.1:1/a"}, b""),
        (302, {"Location": "file:///etc/hostname"}, b""),
        (200, {}, b"\n <!doctype html>"),
        (200, {}, b"#" * (LARGEST + 1)),
        (200, {"Content-Length": "99"}, b"a: 1"),
    ],
    ids=["missing", "http", "file", "page", "large", "cut-off"],
)
def test_what_a_server_may_not_answer(answer, served):
    answers, address = served
    answers["/a"] = answer
    with pytest.raises(RlzooError, match=f"{address}/a: "):
        fetch.download(f"{address}/a")


def test_keys_in_a_url_stay_out_of_files_and_messages(tmp_path, monkeypatch, served, capsys):
    monkeypatch.chdir(tmp_path)
    answers, address = served
    answers["/a.yaml?token=s3cret"] = (200, {}, RECIPE.encode())
    answers["/a.yaml?token=s3cret&b=1"] = (404, {}, b"")
    answers["/to?token=s3cret"] = (302, {"Location": "http://x.y/?key=s3cret"}, b"")
    url = f"{address}/a.yaml?token=s3cret"
    assert main(["fetch", url, "--json"]) == 0
    assert main(["fetch", url, "--run", "0" * 12]) == 2
    assert main(["fetch", url, *SMALL, "run.dir=run", "--run", checksum(RECIPE)]) == 0
    assert main(["fetch", f"{url}&b=1"]) == 2
    assert main(["fetch", f"{address}/to?token=s3cret"]) == 2
    assert main(["fetch", "http://me:s3cret@example.org/a?b"]) == 2
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err
    files = [path for path in (tmp_path / "run").rglob("*.*") if path.is_file()]
    assert not [path for path in files if b"s3cret" in path.read_bytes()]
    assert json.loads((tmp_path / "run/fetched.json").read_text())["url"] == f"{address}/a.yaml?..."
    assert main(["fetch", url]) == 0  # the command that trains it works only with the whole URL
    assert f"fetch '{url}' --run" in capsys.readouterr().out


@pytest.mark.parametrize(
    "url", ["http://example.org/a", "ftp://example.org/a", "a.yaml", "file://other/a", "file:///"]
)
def test_other_places_are_refused(url):
    with pytest.raises(RlzooError):
        fetch.download(url)


def test_a_file_has_the_same_limit(tmp_path):
    url = file_url(tmp_path / "a.yaml", "#" * LARGEST)
    assert len(fetch.download(url)) == LARGEST
    with pytest.raises(RlzooError, match="MiB"):
        fetch.download(file_url(tmp_path / "b.yaml", "#" * (LARGEST + 1)))


@pytest.mark.parametrize(
    ("page", "raw"),
    [
        ("https://gist.github.com/a/1", "https://gist.github.com/a/1/raw"),
        ("https://gist.github.com/a/1/raw/x.yaml", "https://gist.github.com/a/1/raw/x.yaml"),
        ("https://github.com/a/b/blob/main/c.yaml#L2", "https://github.com/a/b/raw/main/c.yaml"),
        ("https://x.y/blob/c.yaml?d=1", "https://x.y/blob/c.yaml?d=1"),
    ],
)
def test_the_page_of_a_gist_leads_to_its_text(page, raw):
    assert fetch._raw_address(urlsplit(page)) == raw


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.y/a/my%20grpo.yaml", "my_grpo.yaml"),
        ("https://x.y/../..%2F..%2Fb.yml", "b.yaml"),
        ("https://gist.github.com/a/1/raw", "fetched.yaml"),
        ("https://x.y/.yaml", "fetched.yaml"),
    ],
)
def test_the_name_of_its_file(url, name):
    assert fetch.name_of(url) == name


def test_what_a_recipe_touches():
    values = {
        "sampler.url": "${a}",
        "task.rows": [{"from": "http://x/"}, "data/a.jsonl"],
        "sampler.model": "${oc.env:HOME}",
        "sampler.token_from": "HOME",
        "model.name": "nano",
        "task.games": ["own.games:Own-v0", "FrozenLake-v1"],
        "train.steps": 3,
    }
    kinds = {key: what.split("(")[1] for key, what in fetch.touches(values).items()}
    assert kinds == {
        "sampler.url": "a URL)",
        "task.rows.0.from": "a URL)",
        "task.rows.1": "a file or folder)",
        "sampler.model": "an environment variable)",
        "sampler.token_from": "an environment variable)",
        "task.games.0": "an imported function)",
    }


def test_it_cannot_write_to_the_terminal(tmp_path, capsys):
    main(["fetch", file_url(tmp_path / "a.yaml", "# \x1b[2J\u202e\n" + RECIPE)])
    shown = capsys.readouterr().out
    assert "\\x1b[2J\\u202e" in shown
    assert "\x1b" not in shown
