"""`--on ray` without a cluster: words, what a run takes of its node, and what travels there."""

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlzoo.errors import RlzooError
from rlzoo_lab.compare.sweep.command import read_executor, sort_words
from rlzoo_zoo.executors import ray


def test_the_address_stands_behind_the_name(zoo, monkeypatch):
    asked = []
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: True)
    monkeypatch.setattr(ray, "_connect", lambda address: asked.append(address))
    on = ["ray:10.0.0.5:6379", "gpus=0.5", "seed=0,1"]
    options, words = sort_words(on, [], zoo)
    bound = read_executor(on, options, zoo)
    assert words == ["seed=0,1"]
    assert (bound.options["address"], bound.options["gpus"]) == ("10.0.0.5:6379", 0.5)
    assert asked == ["10.0.0.5:6379"]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:9",
        "here",
        "ray://127.0.0.1:10001",
    ],
)
def test_a_cluster_that_is_not_there_is_one_line_at_once(zoo, monkeypatch, address, golden):
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: True)
    began = time.monotonic()
    with golden.refuses(RlzooError):
        read_executor(["ray"], [f"address={address}"], zoo)
    assert time.monotonic() - began < ray.ANSWER


def test_ray_that_is_not_installed_is_one_line(zoo, monkeypatch, golden):
    monkeypatch.setattr("rlzoo_zoo.packages.find_spec", lambda name: None)
    with golden.refuses(RlzooError):
        read_executor(["ray"], [], zoo)


@pytest.mark.parametrize(
    ("device", "on_cluster", "gpus"),
    [("cpu", 2, 0), ("auto", 2, 1), ("auto", 0, 0), ("cuda", 0, 1), ("cuda:0", 2, 1)],
)
def test_a_run_takes_what_its_recipe_asks_for(monkeypatch, device, on_cluster, gpus):
    cluster = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": on_cluster})
    monkeypatch.setitem(sys.modules, "ray", cluster)
    job = SimpleNamespace(device=device, threads=2, memory=3e9)
    assert ray.Ray().wants(job) == {"num_cpus": 2, "num_gpus": gpus, "memory": 3_000_000_000}
    mine = ray.Ray(cpus=1, gpus=0.5, gigabytes=1.0).wants(job)
    assert mine == {"num_cpus": 1, "num_gpus": 0.5, "memory": 1_000_000_000}


def test_plugins_travel_to_a_node_that_has_not_their_file(tmp_path, monkeypatch):
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("A = 1\n")
    for name, value in {"PLUGINS": "mine.py,a.module", "ALLOW_ENV": "KEY"}.items():
        monkeypatch.setenv(f"RLZOO_{name}", value)
    monkeypatch.setenv("KEY", "secret")
    luggage = ray.Luggage(Path("sweep"))
    # As on another node: nothing of this is there.
    Path("mine.py").unlink()
    monkeypatch.chdir(there)
    tmp_path = tmp_path.rename(tmp_path.with_name("gone"))
    for name in ("RLZOO_PLUGINS", "RLZOO_ALLOW_ENV", "KEY"):
        monkeypatch.delenv(name)
    luggage.unpack()
    placed, module = os.environ["RLZOO_PLUGINS"].split(",")
    assert Path(placed).name == "mine.py"
    assert Path(placed).read_text() == "A = 1\n"
    assert (module, os.environ["KEY"]) == ("a.module", "secret")
    assert Path.cwd() == tmp_path / "there"


def test_a_node_that_does_not_see_the_folder_says_so(tmp_path, monkeypatch):
    told = []
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(
        get=lambda one: None,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "a1b2"),
    ))  # fmt: skip
    ear = SimpleNamespace(actor=SimpleNamespace(put_nowait=SimpleNamespace(remote=told.append)))
    job = SimpleNamespace(name="a--seed0", store="", path=tmp_path)
    word, reason = ray.one_run(None, job, ray.Luggage(tmp_path / "gone"), ear, 1)
    assert told == [("a--seed0", 1, "begin", "a1b2")]
    assert word == "failed"
    assert reason.endswith(f"access to {tmp_path}/gone; use a shared disk, or give --store URL")
