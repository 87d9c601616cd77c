"""`rlzoo doctor --environment`: it has what a bug report needs and nothing private."""

import getpass
import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from rlzoo import RlzooError, __version__, doctor
from rlzoo.cli import main
from rlzoo_lab.doctor import environment as module

TORCH = {"threads": 3, "cuda": "13.0", "hip": None,
         "devices": [{"name": "H100", "gib": 79.2, "capability": "9.0"}]}  # fmt: skip


@pytest.fixture
def quick(monkeypatch):
    """Without the child process."""
    monkeypatch.setattr(module, "torch_facts", lambda: dict(TORCH))


def test_it_has_versions_devices_and_plugins(quick, capsys):
    assert main(["doctor", "--environment", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rlzoo"] == __version__
    assert facts["packages"]["transformers"] == version("transformers")
    assert facts["extras"]["ray"].keys() == {"ray"}
    assert not {"test", "dev", "docs"} & set(facts["extras"])
    assert facts["torch"] == TORCH
    assert facts["cores"]["usable"] >= 1
    own = next(p for p in facts["plugins"] if p["name"] == "rlzoo-llm")
    assert own["version"] == version("rlzoo-llm")
    assert own["components"] > 50
    assert facts["terminal"]["columns"] > 0


def test_the_view_is_a_fact_on_each_line(quick, capsys):
    assert main(["doctor", "--environment"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["rlzoo"] == __version__
    assert lines["torch"] == version("torch")
    assert lines["device"] == "H100, 79.2 GiB"
    assert "rlzoo-llm" in lines["plugin"]


def test_nothing_private_is_in_it(quick, capsys, monkeypatch, tmp_path):
    """A broken plugin's message quotes whatever it likes."""
    home = tmp_path / "jane doe"
    plugin = home / "private-project" / "mine.py"
    plugin.parent.mkdir(parents=True)
    plugin.write_text(
        'import os\nraise OSError(f\'{__file__} {os.environ["HUB_TOKEN"]} '
        "https://jane:pw1234@host/x C:\\\\Users\\\\jane\\\\data.txt /srv/jane/rows.jsonl')\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HUB_TOKEN", "hf_abcdef")
    monkeypatch.setenv("RLZOO_PLUGINS", str(plugin))
    for words in ([], ["--json"]):
        assert main(["doctor", "--environment", *words]) == 0
        out = capsys.readouterr().out
        assert "mine.py" in out, "the broken plugin is in it"
        assert "OSError" in out
        for secret in ("jane", "private-project", "hf_abcdef", "pw1234", str(tmp_path)):
            assert secret not in out
        assert str(Path(sys.prefix)) not in out
        assert f"/{getpass.getuser()}/" not in out


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ImportError('no libx in /home/jane/lib/libx.so')", "no libx in .../libx.so"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_a_line(code, said, capsys, monkeypatch):
    monkeypatch.setattr(module, "TORCH", code)
    monkeypatch.setattr(module, "load_zoo", lambda: pytest.fail("it needs torch"))
    assert main(["doctor", "--environment"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("devices"))
    assert said in line
    assert "jane" not in line


def test_a_torch_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(module, "TORCH", "import time; time.sleep(60)")
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    assert "not imported" in module.torch_facts()["error"]


def test_the_real_torch_is_described(capsys, monkeypatch):
    """As a child would, but for what it takes to import torch once more."""
    exec(module.TORCH, {})
    monkeypatch.setattr(module, "TORCH", f"print({capsys.readouterr().out!r}, end='')")
    facts = module.torch_facts()
    assert facts["threads"] >= 1
    assert facts["cuda"] == torch.version.cuda
    assert len(facts["devices"]) == torch.cuda.device_count()


def test_it_takes_one_of_the_two(quick):
    with pytest.raises(RlzooError, match="--environment"):
        doctor("runs/a", environment=True)
    assert doctor(environment=True)["torch"] == TORCH
