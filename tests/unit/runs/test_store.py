"""`--store URL`: a run that goes on where its folder is not; kills, zombies, stores that fail."""

import dataclasses
import errno
import hashlib
import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
import torch
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import rlzoo
from helpers.runs import StopAt, untimed
from rlzoo.cli import main
from rlzoo.errors import RlzooError, RunError, StoreError, Unfinished, UsageError
from rlzoo.recipe.compose import compose
from rlzoo.runs.disk import read_json
from rlzoo.runs.folder import BEGUN, create_folder, saved_steps, step_of, taken_up
from rlzoo.runs.store import NOTE, open_store
from rlzoo.train.checkpoint import damage, save_checkpoint
from rlzoo_lab.compare.sweep.folder import bring, check_folder, write_index
from rlzoo_lab.compare.sweep.plan import plan_sweep
from rlzoo_lab.compare.sweep.work import do
from rlzoo_zoo.stores import url as store_module
from rlzoo_zoo.stores.url import NOTE as SENT
from rlzoo_zoo.stores.url import Store

WRITES = ("put_file", "mv", "rm_file", "pipe_file")


@pytest.fixture(autouse=True)
def empty_memory(monkeypatch, tmp_path):
    MemoryFileSystem.store.clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store_module, "WAITS", (0.0, 0.0))


@pytest.fixture(scope="module")
def micro(tmp_path_factory, model_dir):
    return [f"model.path={model_dir}", "rollout.prompts=2", "rollout.samples=2", "device=cpu",
            "rollout.max_new_tokens=4", "train.steps=3", "train.minibatches=1", "eval.samples=4",
            "eval.every=1", "run.threads=1", "checkpoint.every=1", "checkpoint.keep=1",
            "checkpoint.best=true"]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory, micro, zoo):
    """A run that nothing befell, its folder at each upload, and its metrics."""
    place, taken, push = tmp_path_factory.mktemp("whole"), [], Store.push

    def photographed(self, local):
        taken.append(place / f"{len(taken)}")
        shutil.copytree(local, taken[-1], ignore=shutil.ignore_patterns(".*"))
        return push(self, local)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "push", photographed)
        words = [*micro, f"run.dir={place / 'run'}"]
        rlzoo.run("ppo_gae", words, zoo=zoo, store="memory://whole")
    MemoryFileSystem.store.clear()
    return SimpleNamespace(path=place / "run", folders=taken, metrics=untimed(place / "run"))


@pytest.fixture
def unsynced(monkeypatch):
    """What of a folder, and its own name, a power cut may take: () -> paths."""
    synced, sync = {}, os.fsync

    def noted(handle):
        sync(handle)
        found = os.fstat(handle)
        synced[found.st_ino] = found.st_mtime_ns

    def left(place):
        inside = [p for p in [place.parent, place, *place.rglob("*")] if p.name != SENT]
        return [p for p in inside if synced.get(p.stat().st_ino) != p.stat().st_mtime_ns]

    monkeypatch.setattr("os.fsync", noted)
    return left


def test_a_store_on_a_disk_is_synced_before_anything_there_is_removed(
    micro, zoo, tmp_path, unsynced, monkeypatch
):
    place, seen = tmp_path / "new" / "there", {}
    remove, move = Store._remove, LocalFileSystem.mv

    def removed(self, name):
        seen[name] = [p for p in unsynced(place) if p.is_file()]
        remove(self, name)

    def moved(self, old, new):
        of = {place / "summary.json": place / "model"}.get(Path(new), Path(new).parent)
        seen[new] = [p for p in unsynced(of) if of != place and p.is_file()]
        move(self, old, new)

    monkeypatch.setattr(Store, "_remove", removed)
    monkeypatch.setattr(LocalFileSystem, "mv", moved)
    words = [*micro, f"run.dir={tmp_path / 'x'}", "run.save_batches=2"]
    rlzoo.run("ppo_gae", words, zoo=zoo, store=f"file://{place}")
    assert {"checkpoints/step-00000001/manifest.json", f"{place}/summary.json"} <= seen.keys()
    assert {name: left for name, left in seen.items() if left} == {}
    emptied = {place / "checkpoints", place / "batches"}  # where a name may come back
    assert set(unsynced(place)) <= emptied


def test_a_run_s_folder_and_its_checkpoints_have_their_names_on_disk(
    tmp_path, unsynced, zoo, micro
):
    recipe = compose(["recipe=grpo", *micro, f"run.dir={tmp_path / 'a' / 'run'}"], zoo)
    with create_folder(recipe) as folder:
        assert folder.path.parent not in unsynced(folder.path)
        save_checkpoint(folder.checkpoints, 1, [("a.safetensors", {"a": torch.ones(1)})], {})
        assert [p for p in unsynced(folder.path) if p.is_dir()] == []


def test_what_a_power_cut_emptied_in_a_store_is_sent_again(micro, zoo, whole, tmp_path):
    """As the kernel leaves files that nobody synced; the folder here is whole."""
    url, there = f"file://{tmp_path / 'there'}", tmp_path / "there"
    started(micro, zoo, tmp_path / "x", url)
    for path in [p for p in there.rglob("*") if p.is_file()]:
        path.write_bytes(b"")
    rlzoo.resume(tmp_path / "x", zoo=zoo, store=url)
    assert untimed(tmp_path / "x") == whole.metrics == untimed(there)
    for path in [p for p in there.rglob("*") if p.is_file()]:
        path.write_bytes(b"")
    (tmp_path / "x" / ".sent").unlink()  # nothing says that it was this run's
    with pytest.raises(RunError):
        rlzoo.resume(tmp_path / "x", zoo=zoo, store=url)


@pytest.mark.parametrize(
    "url",
    [
        "memory://user:hunter2@host/a",
        "memory://host/a?token=hunter2",
        "sftp://me:p@hunter2@host/a",
        "s3://KEY:hunter2@bucket/a",
        "simplecache::memory://h/a?X-Amz-Signature=hunter2&x=1",
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_shown(url, tmp_path, capsys):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "recipe.yaml").write_text("seed: 1")
    (tmp_path / "x" / NOTE).write_text(url)
    for words in (["run", "grpo", f"run.dir={tmp_path / 'y'}", "--store", url], ["compare", url],
                  ["resume", url], ["resume", str(tmp_path / "x")]):  # fmt: skip
        assert main(words) == 2, words
        said = capsys.readouterr().err
        assert "hunter2" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    open_store("memory://me@host/a")  # a name is not a secret


def started(micro, zoo, place, url, at=2):
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("ppo_gae", [*micro, f"run.dir={place}"], zoo=zoo, display=StopAt(at), store=url)


def contents(folder):
    """Of a folder: name -> what is in it, but for what is hidden."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_a_run_goes_on_where_its_folder_is_not(zoo, micro, whole, tmp_path, protocol):
    url = f"{protocol}://{tmp_path}/there/run"
    started(micro, zoo, tmp_path / "one", url)
    shutil.rmtree(tmp_path / "one")
    shown = StopAt(None)
    run = rlzoo.resume(url, zoo=zoo, display=shown, dir=tmp_path / "two")
    assert shown.notes == ["resumed at step 1"]  # it was stopped within step 2
    assert untimed(run.path) == whole.metrics
    Store(url).fetch(tmp_path / "three")
    assert contents(tmp_path / "three") == contents(tmp_path / "two")
    assert "store" not in (tmp_path / "two" / "recipe.yaml").read_text()


def test_only_what_changed_is_sent_and_what_is_gone_goes(whole, tmp_path, monkeypatch):
    sent, put = [], MemoryFileSystem.put_file

    def counted(self, path, to, *rest, **more):
        sent.append(to.rpartition("/")[2].removeprefix(".").removesuffix(".partial"))
        put(self, path, to, *rest, **more)

    monkeypatch.setattr(MemoryFileSystem, "put_file", counted)
    store, local = Store("memory://a"), tmp_path / "local"
    store.begin(become(local, whole.folders[0]))
    for folder in whole.folders[1:]:
        sent.clear()
        store.push(become(local, folder))
        steps = {name for name in store.names() if name.startswith("checkpoints/")}
        assert {name.split("/")[1] for name in steps} == {
            p.name for p in saved_steps(local / "checkpoints")
        }
        assert "recipe.yaml" not in sent
        assert sent.count("actor.safetensors") <= 1
        assert store.push(local) == 0
    assert sorted(store.names()) == sorted(contents(local))


def become(local, folder):
    """As `folder` is, the times of its files, too; its note stays."""
    for path in local.glob("[!.]*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(folder, local, dirs_exist_ok=True)
    return local


class Killed(BaseException):
    """As SIGKILL: nobody catches it."""


@contextmanager
def killed(at, half, kind=MemoryFileSystem):
    """From the `at`-th write on nothing is written; `half`: of that one half is."""
    done = []

    def counted(name, plain):
        def write(self, *args, **more):
            done.append(name)
            if len(done) < at:
                return plain(self, *args, **more)
            if half and len(done) == at and name == "put_file":
                path, to = args
                with open(path, "rb") as file:
                    data = file.read()
                self.store.pop(to, None)
                with self.open(to, "wb") as file:
                    file.write(data[: len(data) // 2])
            raise Killed

        return write

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(kind, name, counted(name, getattr(kind, name)))
        yield done


def uploads(whole, local):
    """All that a run sends, from its beginning to its end."""
    store = Store("memory://killed/run")
    store.begin(become(local, whole.folders[0]))
    for folder in whole.folders[1:]:
        store.push(become(local, folder))


def faults(folder):
    """What a folder that was fetched lacks to go on from its last checkpoint; that checkpoint."""
    if not (folder / "recipe.yaml").exists():
        strange = contents(folder).keys() - BEGUN  # else the same command begins it
        return [f"{strange}, and no recipe"] if strange else [], -1
    steps = saved_steps(folder / "checkpoints")
    wrong = [f"{p.name}: {damage(p)}" for p in steps[-1:] if damage(p)]
    last = step_of(steps[-1]) if steps else -1
    lines = untimed(folder) if (folder / "metrics.jsonl").exists() else []
    there = {line["step"] for line in lines if "eval/score" not in line}
    wrong += [f"no line of step {n}" for n in range(1, last + 1) if n not in there]
    if last > 0 and not (folder / "samples.jsonl").exists():
        wrong.append("no samples")
    if (folder / "best").exists():
        best = read_json(folder / "best" / "best.json")
        wrong += [] if (folder / "best" / "model.safetensors").exists() else ["half a best"]
        wrong += [] if best["step"] >= 0 else ["no step"]
    if (folder / "summary.json").exists():
        wrong += [] if (folder / "model" / "model.safetensors").exists() else ["no model"]
    return wrong, last


def strike(whole, tmp_path, points):
    """Killed at each of the points; what was left there, a fetched folder for each distinct one."""
    left, ends = {}, []
    for at, half in points:
        MemoryFileSystem.store.clear()
        shutil.rmtree(tmp_path / "local", ignore_errors=True)
        with killed(at, half), pytest.raises(Killed):
            uploads(whole, tmp_path / "local")
        folder = tmp_path / f"left-{at}-{half}"
        folder.mkdir()
        Store("memory://killed/run").fetch(folder)
        wrong, last = faults(folder)
        assert not wrong, (at, half, wrong)
        ends.append(last)
        key = hashlib.sha256(repr(contents(folder)).encode()).hexdigest()
        if key in left or last < 0:
            shutil.rmtree(folder)
        else:
            left[key] = folder, dict(MemoryFileSystem.store)
    return list(left.values()), ends


def writes_of(whole, place):
    with killed(10**9, False) as done:
        uploads(whole, place)
    return list(done)


@pytest.mark.landing
def test_a_kill_at_any_write_leaves_a_whole_store(zoo, whole, tmp_path, monkeypatch):
    """At every third write of all uploads, or in its middle; a few are gone on with. The study
    does it at every one."""
    monkeypatch.setattr("os.fsync", lambda handle: None)
    done = writes_of(whole, tmp_path / "local")
    points = [(n, n % 2 == 0) for n in range(1, len(done) + 1, 3)]
    left, ends = strike(whole, tmp_path, points)
    assert sorted(ends) == ends  # no checkpoint that was there is lost
    assert {-1, 1, 2, 3} == set(ends)
    for folder, there in left[len(left) // 3 :: len(left) // 3]:
        go_on(zoo, whole, folder, there)


@pytest.mark.study
def test_every_store_that_a_kill_leaves_is_gone_on_with(zoo, whole, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)
    done = writes_of(whole, tmp_path / "local")
    points = [(n, half) for n in range(1, len(done) + 1) for half in (False, True)]
    left, _ = strike(whole, tmp_path, points)
    for folder, there in left:
        go_on(zoo, whole, folder, there)
    print(f"{len(done)} writes, {len(points)} kills, {len(left)} distinct stores gone on with")


def go_on(zoo, whole, folder, there):
    MemoryFileSystem.store.clear()
    MemoryFileSystem.store.update(there)
    again = folder.with_name(f"{folder.name}-again")
    if (folder / "summary.json").exists():
        return
    run = rlzoo.resume("memory://killed/run", zoo=zoo, dir=again)
    assert untimed(run.path) == whole.metrics, folder
    mine, theirs = contents(run.path), contents(whole.path)
    for name in ("samples.jsonl", "model/model.safetensors", "best/model.safetensors"):
        assert mine[name] == theirs[name], (folder, name)
    assert mine.keys() == theirs.keys()


def test_a_zombie_is_refused_and_spoils_nothing(zoo, micro, whole, tmp_path):
    url = "memory://fence/run"

    class Overtaken(StopAt):
        def step(self, line, progress):
            if line["step"] == 2:
                self.heir = taken_up(tmp_path / "heir", url)
                self.before = dict(MemoryFileSystem.store)

    shown, words = Overtaken(None), [*micro, f"run.dir={tmp_path / 'zombie'}"]
    with pytest.raises(Unfinished, match=r"fence/run: attempt 2 \(process \d+ on .*\) has taken "):
        rlzoo.run("ppo_gae", words, zoo=zoo, display=shown, store=url)
    assert MemoryFileSystem.store == shown.before
    assert damage(saved_steps(tmp_path / "zombie" / "checkpoints")[-1]) == ""
    run = rlzoo.resume(tmp_path / "heir", zoo=zoo, store=url)
    assert untimed(run.path) == whole.metrics
    assert json.loads(fsspec.filesystem("memory").cat("/fence/run/.attempt"))["attempt"] == 3


def test_a_zombie_in_the_middle_of_an_upload_stops_at_the_next_file(whole, tmp_path, monkeypatch):
    store, local = Store("memory://a"), tmp_path / "local"
    store.begin(become(local, whole.folders[0]))
    put = MemoryFileSystem.put_file

    def overtaken(self, path, to, *rest, **more):
        put(self, path, to, *rest, **more)
        if to.endswith("critic.safetensors"):
            monkeypatch.setattr(MemoryFileSystem, "put_file", put)
            taken_up(tmp_path / "heir", "memory://a")

    monkeypatch.setattr(MemoryFileSystem, "put_file", overtaken)
    with pytest.raises(Unfinished, match="this one, attempt 1, ends without changing it"):
        store.push(become(local, whole.folders[1]))
    assert not [n for n in store.names() if n.endswith("manifest.json")]


def test_of_two_that_take_a_run_up_at_once_one_goes_on(whole, tmp_path):
    Store("memory://a").begin(become(tmp_path / "first", whole.folders[1]))
    one, other = (taken_up(tmp_path / name, "memory://a").store for name in ("one", "other"))
    one.fence |= {"attempt": other.fence["attempt"]}  # as where both had read the same number
    for name, folder in (("one", "1"), ("other", "2")):
        become(tmp_path / name, whole.folders[int(folder)])
    (tmp_path / "one" / "samples.jsonl").write_text("")
    with pytest.raises(Unfinished, match="has taken over this run"):
        one.push(tmp_path / "one")
    other.push(tmp_path / "other")


@pytest.mark.parametrize("how", [OSError(errno.ENOSPC, "No space left on device"),
                                 ConnectionError("reset by peer")])  # fmt: skip
def test_a_store_that_fails_ends_no_run(zoo, micro, whole, tmp_path, monkeypatch, how):
    url, place, put = f"file://{tmp_path}/there/run", tmp_path / "run", LocalFileSystem.put_file

    def failing(self, *args, **more):
        raise how

    class Broken(StopAt):
        def step(self, line, progress):
            if line["step"] == 1:
                monkeypatch.setattr(LocalFileSystem, "put_file", failing)

    shown = Broken(None)
    said = "no space left on device" if isinstance(how, OSError) and how.errno else "reset by peer"
    with pytest.raises(
        Unfinished,
        match=f"{said}; everything is in .*run; use `rlzoo resume .* --store file:.*` to send it",
    ):
        rlzoo.run("ppo_gae", [*micro, f"run.dir={place}"], zoo=zoo, display=shown, store=url)
    assert len([n for n in shown.notes if "the run continues, and the next checkpoint" in n]) == 4
    assert all(said in note for note in shown.notes)
    assert untimed(place) == whole.metrics
    assert read_json(place / "summary.json")["steps"] == 3
    monkeypatch.setattr(LocalFileSystem, "put_file", put)
    run = rlzoo.resume(place, zoo=zoo, display=shown, store=url)
    assert run.summary["steps"] == 3  # nothing but sent
    assert "is now complete" in shown.notes[-1]
    assert contents(tmp_path / "there" / "run") == contents(place)
    assert rlzoo.resume(place, zoo=zoo, display=shown, store=url).summary["steps"] == 3
    assert f"already finished, and the copy at {url} was already complete" in shown.notes[-1]


def test_a_store_that_comes_back_gets_what_it_missed(whole, tmp_path, monkeypatch):
    store, local, said = Store("memory://a"), tmp_path / "local", []
    store.begin(become(local, whole.folders[0]))
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "put_file", lambda *_: 1 / 0)
        store.mirror(become(local, whole.folders[1]), said.append)
    assert said == [
        "store memory://a: ZeroDivisionError: division by zero; the run continues, and the "
        "next checkpoint sends the missing files"
    ]
    store.mirror(become(local, whole.folders[2]), said.append)
    assert len(said) == 1
    assert sorted(store.names()) == sorted(contents(local))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s33://bucket/a", r"'s33' is not supported; did you mean 's3'\?"),
        ("/mnt/runs", "store: must be a URL such as file:///mnt/runs/a. Got '/mnt/runs'"),
        ("file:///proc/none/a", "store file:///proc/none/a: "),
    ],
)
def test_a_bad_store_is_one_line_before_anything(zoo, micro, tmp_path, monkeypatch, url, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RlzooError, match=text) as error:
        rlzoo.run("ppo_gae", [*micro, "run.dir=run"], zoo=zoo, store=url)
    assert "\n" not in str(error.value)
    with pytest.raises(
        RlzooError, match=text if url.startswith("s33") else "no such|contains nothing"
    ):
        rlzoo.resume(url, zoo=zoo)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_library_that_is_not_there_is_named():
    fsspec.register_implementation("nowhere", "nowhere.Files", errtxt="Install nowherefs")
    with pytest.raises(StoreError, match="store nowhere://a/b: Install nowherefs"):
        Store("nowhere://a/b")


OTHER = """
class Elsewhere:
    def __init__(self, url):
        self.url = url
        url.removeprefix(b"vault://" if "broken" in url else "vault://")
"""


def test_another_plugin_may_keep_the_runs_of_a_protocol(tmp_path, monkeypatch):
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlzoo.stores]\nvault = elsewhere_store:Elsewhere\n")
    (tmp_path / "elsewhere_store.py").write_text(OTHER)
    monkeypatch.syspath_prepend(tmp_path)
    assert type(open_store("vault://a/b")).__name__ == "Elsewhere"
    assert open_store("vault://a/b").url == "vault://a/b"
    with pytest.raises(RlzooError, match="Elsewhere raised TypeError: .*store.py:5"):
        open_store("vault://broken")
    assert isinstance(open_store("memory://a"), Store)
    monkeypatch.setattr("sys.path", [str(tmp_path)])  # nothing else is installed
    with pytest.raises(UsageError, match="store: no installed plugin can store runs at mem"):
        open_store("memory://a")


def test_what_is_there_is_not_overwritten_unless_asked(zoo, micro, whole, tmp_path):
    url = f"file://{tmp_path}/there"
    started(micro, zoo, tmp_path / "one", url)
    words = [*micro, f"run.dir={tmp_path / 'two'}", "train.steps=1"]
    with pytest.raises(RunError, match=r"is not empty.*use `rlzoo resume file:.*` to continue it"):
        rlzoo.run("ppo_gae", words, zoo=zoo, store=url)
    assert not (tmp_path / "two").exists()
    rlzoo.run("ppo_gae", [*words, "run.overwrite=true"], zoo=zoo, store=url)
    assert contents(tmp_path / "there") == contents(tmp_path / "two")
    assert len(list((tmp_path / "there" / "checkpoints").iterdir())) == 1  # no empty folder
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="it is not a run"):
        rlzoo.run(
            "ppo_gae", [*words, "run.overwrite=true"], zoo=zoo, store=f"file://{tmp_path}/other"
        )
    Store("memory://b").begin(become(tmp_path / "local", whole.folders[1]))
    with pytest.raises(RunError, match="--dir: .*one exists but is not a copy of memory"):
        rlzoo.resume("memory://b", zoo=zoo, dir=tmp_path / "one")


@pytest.mark.parametrize("where", ["run", "run/in/it", ""])
def test_a_store_is_not_in_the_run_s_own_folder(whole, tmp_path, where):
    local = become(tmp_path / "run", whole.folders[1])
    before = contents(tmp_path)
    with pytest.raises(RlzooError, match="contain one another"):
        taken_up(local, f"file://{tmp_path}/{where}")
    assert contents(tmp_path) == before


def test_an_older_copy_of_the_folder_becomes_what_the_store_is(whole, tmp_path):
    """One that says it was the last to write there, too: a backup that was put back."""
    local = become(tmp_path / "run", whole.folders[0])
    store = Store("memory://a")
    store.begin(local)
    shutil.copytree(local, tmp_path / "backup")
    store.push(become(local, whole.folders[2]))
    shutil.copy(local / SENT, tmp_path / "backup")
    taken_up(tmp_path / "backup", "memory://a")
    assert contents(tmp_path / "backup") == contents(local)


def test_a_damaged_note_or_fence_is_none(whole, tmp_path):
    local = become(tmp_path / "run", whole.folders[1])
    Store("memory://a").begin(local)
    for text in ("", "[]", '{"url": 1}', "{"):
        (local / SENT).write_text(text)
        fsspec.filesystem("memory").pipe("/a/.attempt", text.encode())
        assert taken_up(local, "memory://a").store.push(local) == 0


def test_what_reads_runs_reads_urls(zoo, whole, capsys, monkeypatch, tmp_path):
    Store("memory://a/run").begin(become(tmp_path / "local", whole.folders[-1]))
    found = rlzoo.compare("memory://a/run", whole.path, force=True)
    assert [row["seeds"] for row in found["rows"]] == [[0]]
    assert rlzoo.doctor("memory://a/run")["steps"] == 3
    assert not list((tmp_path / "cache").rglob("model.safetensors"))
    assert rlzoo.load_run("memory://a/run").summary["steps"] == 3
    assert rlzoo.evaluate("memory://a/run", prompts=2)["step"] == 3
    assert main(["report", "memory://a/run", "--out", str(tmp_path / "page.html")]) == 0
    with pytest.raises(RunError, match="memory://a/none is not a run; it contains nothing"):
        rlzoo.doctor("memory://a/none")


@pytest.mark.landing
def test_a_sweep_on_nodes_that_share_no_disk(zoo, micro, whole, tmp_path):
    """A node dies with its disk, another goes on from the store; the parent has the numbers."""
    words = ["recipe=ppo_gae", *micro, "seed=0,1"]
    url = f"file://{tmp_path}/there/sweep"
    sweep = plan_sweep(words, zoo, str(tmp_path / "parent"), url)
    bring(sweep)
    sweep.path.mkdir()
    write_index(sweep)
    first, second = sweep.jobs
    assert (first.store, second.store) == (f"{url}/ppo_gae--seed0", f"{url}/ppo_gae--seed1")
    with pytest.raises(KeyboardInterrupt):
        do(dataclasses.replace(first, path=tmp_path / "node1" / first.name), zoo, StopAt(2))
    shutil.rmtree(tmp_path / "node1")
    shown = StopAt(None)
    for job in sweep.jobs:
        do(dataclasses.replace(job, path=tmp_path / "node2" / job.name), zoo, shown)
    assert shown.notes[0] == "resumed at step 1"
    assert untimed(tmp_path / "node2" / first.name) == whole.metrics
    assert not first.done
    bring(sweep)
    assert [job.done for job in sweep.jobs] == [True, True]
    assert untimed(first.path) == whole.metrics
    assert not (first.path / "model").exists()
    there = rlzoo.compare(url)
    assert (
        there["rows"][0]["seeds"]
        == rlzoo.compare(tmp_path / "parent")["rows"][0]["seeds"]
        == [0, 1]
    )
    anew = plan_sweep([*words[:-1], "seed=0,1,2"], zoo, str(tmp_path / "elsewhere"), url)
    bring(anew)
    check_folder(anew)
    assert [job.done for job in anew.jobs] == [True, True, False]
    other = plan_sweep([*words, "actor.lr=0.1"], zoo, str(tmp_path / "other"), url)
    bring(other)
    with pytest.raises(RunError, match="was created with another recipe: actor.lr"):
        check_folder(other)
    with pytest.raises(RunError, match="--store: .*seed0 contains a run, not a sweep"):
        bring(plan_sweep(words, zoo, str(tmp_path / "x"), f"{url}/ppo_gae--seed0"))


def test_a_run_that_was_done_elsewhere_is_not_done_again(zoo, micro, whole, tmp_path):
    sweep = plan_sweep(["recipe=ppo_gae", *micro], zoo, str(tmp_path / "one"), "memory://s")
    job = sweep.jobs[0]
    Store(job.store).begin(become(tmp_path / "local", whole.folders[-1]))
    assert do(job, zoo, StopAt(1))["steps"] == 3
    assert (job.path / NOTE).exists()


def test_a_store_that_a_program_registers_as_a_class_is_known():
    import fsspec

    class Blob(MemoryFileSystem):
        protocol = "blob"

    fsspec.register_implementation("blob", Blob, clobber=True)
    assert Store("blob://a").names() == set()
