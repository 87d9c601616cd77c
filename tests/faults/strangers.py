"""What a stranger may hand over: run folders, sweeps, stores and recipes that reach for more.

Each trial draws one, puts it beside what is mine, and runs a verb on it. Nothing outside the
stranger's own folder, and the place that the verb was asked to write to, may be made, changed or
removed; and the end is exit status 0 or one line.
"""

import hashlib
import json
import os
import random
import shutil
import stat
from collections import Counter
from importlib import import_module

from faults.harness import rlzoo

SMALL = ("train.steps=3", "checkpoint.every=1", "run.save_batches=2", "checkpoint.best=true")
# What a run writes, and what it writes aside first; loggers' too.
NAMES = [
    "recipe.yaml", "metrics.jsonl", "samples.jsonl", "provenance.json", "summary.json",
    "failed.json", "report.html", "model", "model/config.json", "model/model.safetensors",
    "model/tokenizer.json", "best", "best/best.json", "best/model.safetensors", "checkpoints",
    "checkpoints/step-00000001", "checkpoints/step-00000002/actor.safetensors",
    "checkpoints/step-00000002/manifest.json", "checkpoints/step-00000003", "batches",
    "batches/step-00000001.safetensors", "batches/step-00000003.json", "evaluations",
    "evaluations/step-00000000.safetensors", "evaluations/step-00000009.safetensors", ".lock",
    ".store", ".sent", ".sent.partial", ".best.partial", ".best.former", ".recipe.yaml.partial",
    ".summary.json.partial", ".provenance.json.partial", ".report.html.partial",
    ".metrics.csv.partial", "metrics.csv", "tensorboard", "wandb", "workers.log",
    "checkpoints/.step-00000003.partial", "evaluations/.step-00000003.safetensors.partial",
    "batches/.step-00000003.json.partial", "comparison.html", "a-new-name", "deep/er/name",
]  # fmt: skip
# Seen from the current folder, which holds the stranger's `run` and my `best` and `project`.
TARGETS = ["best", "best/samples.jsonl", "best/checkpoints", "best/model/model.safetensors",
           "project", "project/thesis.tex", "project/src", "project/recipe.yaml", "project/weights",
           "../outside", "../outside/rcfile", "../outside/none", "..", ".", "/dev/zero",
           "/dev/null", "run/metrics.jsonl", "run/model", "run", "run/none"]  # fmt: skip
URLS = ["file://{here}/project", "file://{here}/best", "file://{here}/../outside", "memory://x",
        "file://{here}/project/src", "local://{here}/project", "file://{here}", "{here}/project",
        "simplecache::file://{here}/project", "dir::file://{here}/project", "file:///proc/1",
        "http://127.0.0.1:9/x", "nope://x", "\x00", "a\nb", ""]  # fmt: skip
PLACES = ["../outside", "../outside/new", "{here}/../outside/run", "best", "best/../../outside/x",
          "project", ".", "..", "~/x", "new", "runs/new", "link/new", ""]  # fmt: skip
READERS = (["report", "run"], ["doctor", "run"], ["compare", "run"],
           ["model", "export", "run", "out"],
           ["compare", "run", "--html", "out.html"],
           ["compare", "run", "--html", "run/report.html"],
           ["eval", "run", "--responses", "4", "--out", "run/samples.jsonl"],
           ["trace", "run"], ["diagnose", "run"])  # fmt: skip
# Verbs that write where an option says; {out} is one of OUTS.
OUTPUTS = (["compare", "run", "--html", "{out}"], ["compare", "run", "--plots", "{out}"],
           ["report", "run", "--out", "{out}"], ["trace", "run", "--html", "{out}"],
           ["eval", "run", "--responses", "4", "--out", "{out}"],
           ["diagnose", "ppo_gae", "estimator=mc", "--horizon", "2", "--vocabulary", "3",
            "--html", "{out}"])  # fmt: skip
OUTS = ["out", "out.html", "run/link", "run/new", "run/no/new", "run", "run/samples.jsonl", "best",
        "run/metrics.jsonl/x", "project", "project/thesis.tex/x", "project/no/x", "/proc/x", ".",
        "..", "\x00", "x" * 300, "run/checkpoints", ""]  # fmt: skip
WRITERS = (["resume", "run"], ["resume", "run"], ["resume", "run"],
           ["resume", "run", "--store", "file://{here}/project"],
           ["resume", "run", "--store", "file://{here}/best"],
           ["resume", "run", "--store", "file://{here}/out"],
           ["resume", "file://{here}/run", "--dir", "out"],
           ["run", "ppo_gae", "run.dir=run"],
           ["run", "ppo_gae", "run.dir=run", "run.overwrite=true"],
           ["run", "ppo_gae", "run.dir=out", "--store", "file://{here}/run"],
           ["run", "ppo_gae", "run.dir=out", "run.overwrite=true",
            "--store", "file://{here}/project"],
           ["sweep", "ppo_gae", "seed=0", "--dir", "run"])  # fmt: skip
OUT = ("out", "out.html", ".out.lock", "run", "here.notes")  # where a verb may write
PATIENCE = 600.0  # seconds for a trial, on a machine that has much else to do


def trials(place, count, seed):
    """(what became of the trials, faults): drawn folders and recipes of a stranger."""
    place.mkdir(parents=True)
    words = prepare(place)
    counts, faults = Counter(), []
    for number in range(count):
        what, text = trial(place, random.Random(f"{seed} {number}"), words)
        counts[what] += 1
        if what == "wrong":
            faults.append(f"seed {seed}, trial {number}: {text}")
    return dict(counts), faults


def prepare(place):
    """A finished run, one that is half done, and a sweep; the words that made them."""
    from faults import kills
    from helpers.micro import make_model

    rooms = ("compare", "compare.eval", "diagnose", "diagnose.trace", "doctor", "doctor.report")
    for room in rooms:
        import_module(f"rlzoo_lab.{room}.command")  # here, not in each trial
    small = [*kills.small(make_model(place / "model")), *SMALL]
    (place / "done").mkdir()
    assert rlzoo(["run", "recipe=ppo_gae", *small, "run.dir=run"], place / "done").status == 0
    cut = place / "cut" / "run"
    shutil.copytree(place / "done" / "run", cut)
    for name in ("summary.json", "model", "checkpoints/step-00000003", "best"):
        path = cut / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    sweep = place / "sweep" / "run"
    shutil.copytree(place / "done" / "run", sweep / "ppo_gae--seed0")
    rows = [{"label": "ppo_gae", "values": {}, "words": [], "runs": ["ppo_gae--seed0"]}]
    (sweep / "sweep.json").write_text(json.dumps({"words": [], "keys": [], "rows": rows}))
    return small


def trial(place, draw, small):
    """("done" | "refused" | "wrong", what was tried and how it ended)."""
    root = place / "trial"
    here = root / "here"
    (root / "outside").mkdir(parents=True)
    for name in ("rcfile", "step-00000001.safetensors", "weights.safetensors", "recipe.yaml"):
        (root / "outside" / name).write_text(f"# {name}\n")
    for name in ("recipe.yaml", "thesis.tex", "src/code.py", "weights/model.safetensors"):
        (here / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "project" / name).write_text(f"# {name}\n")
    shutil.copytree(place / "done" / "run", here / "best")
    (here / "best" / ".attempt").write_text(json.dumps({"attempt": 1, "run": "mine"}))
    if draw.random() < 0.2:
        words, told, own = recipe(here, draw, small)
    else:
        words, told = folder(place, here, draw, small)
        own = ()
    before = world(root, own)
    words = [word.format(here=here) for word in words]
    end = rlzoo(words, here, limit=PATIENCE)
    changed = [name for name, was in before.items() if world_of(root / name) != was]
    changed += [name for name in world(root, own) if name not in before]
    lines = [line for line in end.said.splitlines() if line.startswith("rlzoo: ")]
    good = end.status == 0 or (end.status in (1, 2) and lines and "Traceback" not in end.said)
    shutil.rmtree(root)
    text = f"{' '.join(words)}, {told}: exit {end.status}"
    if changed:
        return "wrong", f"{text}: changed {changed[:5]}: {end.said.strip()[-200:]}"
    if not good:
        return "wrong", f"{text}: {end.said.strip()[-400:]}"
    return ("done" if end.status == 0 else "refused"), text


def folder(place, here, draw, small):
    """A run's folder, or a sweep's, with one to three things that reach for more."""
    kind = draw.choice(["done", "cut", "cut", "sweep"])
    words = [*draw.choice(READERS if kind != "cut" and draw.random() < 0.7 else WRITERS)]
    if draw.random() < 0.15:
        words, out = draw.choice(OUTPUTS), draw.choice(OUTS)
        named = here / out.strip("\x00")
        if "--plots" in words and (os.path.isdir(named) or not os.path.lexists(named)):
            out = "out"  # a folder of mine that I name is mine to fill, a new one to make
        words = [word.replace("{out}", out) for word in words]
    if words[0] in ("run", "sweep"):
        words[2:2] = small
    run = here / "run"
    shutil.copytree(place / kind / "run", run)
    told = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        at = run / "ppo_gae--seed0" if kind == "sweep" and draw.random() < 0.6 else run
        put = draw.choice([link, link, link, odd_file, note, note, paths])
        told.append(put(at, here, draw))
    if "run/link" in words:
        (run / "link").unlink(missing_ok=True)
        told.append(put_link(run / "link", here, draw))
    return words, f"{kind}: {'; '.join(told)}"


def cleared(at, draw):
    """The path of something that a run writes, free now."""
    path = at / draw.choice(NAMES)
    for parent in [*path.parents][::-1]:
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()  # of an earlier draw
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def link(at, here, draw):
    return put_link(cleared(at, draw), here, draw)


def put_link(path, here, draw):
    target = draw.choice(TARGETS)
    whole = os.path.join(here, target)
    if draw.random() < 0.15 and os.path.isfile(whole):
        os.link(whole, path)
        return f"hard link {path.name} -> {target}"
    path.symlink_to(whole if draw.random() < 0.5 else os.path.relpath(whole, path.parent))
    return f"link {path.relative_to(here)} -> {target}"


def odd_file(at, here, draw):
    path, kind = cleared(at, draw), draw.choice(["pipe", "socket", "folder", "huge", "no rights"])
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "folder":
        path.mkdir()
        (path / "x").write_text("x")
    elif kind == "huge":
        path.touch()
        os.truncate(path, 2**26)
    else:
        path.write_text("{}")
        path.chmod(0)
    return f"{kind} {path.relative_to(here)}"


def note(at, here, draw):
    url = draw.choice(URLS).format(here=here)
    sent = {name: [1, 2] for name in ("thesis.tex", "../../outside/rcfile", "summary.json")}
    fence = {"attempt": draw.choice([1, 10**400, "x"]), "id": "x", "run": "x"}
    text = json.dumps({"url": url, "fence": fence, "sent": sent})
    for name, held in ((".store", draw.choice([url, text])), (".sent", text), (".attempt", text),
                       (".index", json.dumps([*sent]))):  # fmt: skip
        if (name == ".store" or draw.random() < 0.5) and not (at / name).is_dir():
            (at / name).unlink(missing_ok=True)
            (at / name).write_text(held)
    return f"note {url!r}"


def paths(at, here, draw):
    """A path that leads elsewhere, in a file that names others."""
    target = draw.choice([*TARGETS, "/etc/passwd", "../best", "../../../outside/rcfile"])
    target = draw.choice([target, os.path.join(here, target)])
    name, held = draw.choice([
        ("checkpoints/step-00000002/manifest.json", {target: "0" * 64}),
        ("checkpoints/step-00000001/manifest.json", {target: "0" * 64}),
        ("best/best.json", {"step": target, "path": target}),
        ("sweep.json", {"keys": [], "rows": [{"label": target, "values": {}, "words": [target],
                                              "runs": [target, "ppo_gae--seed0"]}]}),
        ("failed.json", {"reason": target}),
        ("batches/step-00000003.json", {"response_mask": target, "prompts": [target]}),
        ("model/model.safetensors.index.json", {"weight_map": {"lm_head.weight": target}}),
        ("model/adapter_config.json", {"base_model_name_or_path": target}),
    ])  # fmt: skip
    path = at / name
    if all(p.is_dir() and not p.is_symlink() for p in path.parents) and not path.is_dir():
        path.unlink(missing_ok=True)
        path.write_text(json.dumps(held))
    return f"{name} names {target}"


def recipe(here, draw, small):
    """A recipe's file that says where it runs; what it may make."""
    place = draw.choice(PLACES).format(here=here)
    name = draw.choice(["", "", "../../../outside/name", "/abs", "a/b", "..", "x" * 300])
    file = here / "run" / draw.choice(["recipe.yaml", "mine.yaml"])
    file.parent.mkdir()
    os.symlink("../outside", here / "link")
    run = {"dir": place or None, "overwrite": draw.choice([True, False])}
    tree = {"run": run, "model": {"trust_remote_code": draw.choice([True, False])}}
    estimator = {"estimator": {"name": "gae"}}
    file.write_text(f"# {name}: a recipe\n{json.dumps(tree | estimator)}\n")
    words = ["run", f"recipe=run/{file.name}", *small]
    return words, f"{name!r}, {run}", ("here/runs", "here/new", "here/~")


def world(root, own=()):
    """Everything that is mine: path -> what it is."""
    allowed = {f"here/{name}" for name in OUT} | {"here.notes", *own}
    found = {}
    for folder, folders, files in os.walk(root):
        at = os.path.relpath(folder, root)
        folders[:] = [f for f in folders if os.path.normpath(f"{at}/{f}") not in allowed]
        for name in (*folders, *files):
            path = os.path.normpath(f"{at}/{name}")
            if path not in allowed:
                found[path] = world_of(os.path.join(root, path))
    return found


def world_of(path):
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if not os.path.isfile(path) or os.path.islink(path):
        return status.st_mode, os.readlink(path) if os.path.islink(path) else ""
    with open(path, "rb") as file:
        return status.st_mode, hashlib.file_digest(file, "sha256").hexdigest()
