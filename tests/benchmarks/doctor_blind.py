"""Blind examinations of `rlzoo doctor`: faults, and healthy runs, by authors who had not seen its
rules.

    python tests/benchmarks/doctor_blind.py 5 RUNS           # train what is not there yet
    python tests/benchmarks/doctor_blind.py 5 RUNS --judge   # what the doctor finds in each run

A set is a module `doctor_blind_N.py`, with its criteria and its first sitting, and the components
that its runs plug in, `doctor_blind_N_plugin.py`. Each fault has a control: the same run without
the fault. A fault counts if it is harmful by its set's criterion, or if what it measures is false
by construction; the others are listed, not judged. Words match by chance: `keys` shows which
findings to read, and a reader decides.
"""

import argparse
import contextlib
import importlib
import json
import os
import re
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]
SETS = (0, 2, 3, 4, 5)
Run = tuple[str, str]  # recipe and words
Curve = list[float]


class Case(NamedTuple):
    """`fault` is added to the words of `base`, the control: one of the set's, or a run. `cause`:
    the truth, written before judging. `keys`: a pattern for the first finding; `harmful`: for
    advice that makes the run worse or leads away from the fault. `false`: what is measured is
    false."""

    name: str
    base: str | Run
    fault: str
    cause: str
    keys: str = ""
    harmful: str = ""
    false: bool = False


@dataclass
class Set:
    """prepare(folder): writes data and models, {data} and {models} in words. harm: whether a
    fault's curve, the second, is harmful next to its control's. idle: healthy runs that turned out
    to learn too little. numbered: folders that say nothing."""

    number: int
    cases: list[Case]
    healthy: Mapping[str, Run]
    small: list[str]
    prepare: Callable[[Path], None]
    harm: Callable[[Curve, Curve], bool]
    controls: Mapping[str, Run] = field(default_factory=dict)
    seeds: tuple[int, int] | None = None  # of faults and controls, and of the first healthy run
    idle: Collection[str] = ()
    numbered: bool = False
    rates: Callable[[list[dict]], None] | None = None

    def folder(self, out: Path, kind: str, at: int, name: str) -> Path:
        return out / kind / (f"{at:02}" if self.numbered else slug(name))

    def faults(self, out: Path) -> Iterable[tuple[Case, Path, Path]]:
        """(case, its folder, its control's)"""
        for at, case in enumerate(self.cases):
            control = case.base if isinstance(case.base, str) else slug(" ".join(case.base))
            yield case, self.folder(out, "faults", at, case.name), out / "controls" / control

    def sound(self, out: Path) -> Iterable[tuple[str, Path]]:
        for at, name in enumerate(self.healthy):
            if name not in self.idle:
                yield name, self.folder(out, "healthy", at, name)

    def jobs(self, out: Path) -> dict[Path, Run]:
        """Each run's folder, recipe and words: faults, their controls (once each), healthy runs."""
        seed = f" seed={self.seeds[0]}" if self.seeds else ""
        found = {out / "controls" / name: run for name, run in self.controls.items()}
        for case, folder, control in self.faults(out):
            recipe, words = self.controls[case.base] if isinstance(case.base, str) else case.base
            found[control] = recipe, words + seed
            if self.numbered and "model.path" in case.fault:
                words = re.sub(r"\bmodel=\w+", "", words)
            found[folder] = recipe, f"{words} {case.fault}{seed}"
        for at, (name, folder) in enumerate(self.sound(out)):
            recipe, words = self.healthy[name]
            found[folder] = recipe, words + (f" seed={self.seeds[1] + at}" if self.seeds else "")
        return found


def below(harm: float, learns: bool = False) -> Callable[[Curve, Curve], bool]:
    """A fault that ends `harm` below its control, and whether that must have learned as much."""
    return lambda control, fault: (
        control[-1] - fault[-1] >= harm and (not learns or control[-1] - control[0] >= harm)
    )


def numbered(runs: Iterable[Run]) -> dict[str, Run]:
    return {f"{at:02}_{run[0]}": run for at, run in enumerate(runs)}


def slug(text: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", text.replace("{data}/", ""))[:120]


def write_rows(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def load(number: int) -> Set:
    return importlib.import_module(f"doctor_blind_{number}").SET


def plug_in(number: int, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / f"doctor_blind_{number}_plugin.py", out / "house.py")
    os.environ["RLZOO_PLUGINS"] = str(out / "house.py")


def forked(folder: Path, work: Callable[[], Any]) -> None:
    """In a fork, so that what a component keeps in memory, or a bug that is patched in, dies with
    it. A refusal is in refused.txt."""
    from rlzoo.errors import RlzooError

    folder.parent.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        warnings.simplefilter("ignore")
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            work()
    except RlzooError as error:
        folder.mkdir(exist_ok=True)
        (folder / "refused.txt").write_text(str(error))
    except Exception:  # the child's end, whatever it was: the parent goes on
        traceback.print_exc()
    finally:
        os._exit(0)


def trained(folder: Path) -> bool:
    return (folder / "summary.json").exists() or (folder / "refused.txt").exists()


def load_all() -> Any:
    """The zoo, in a process that has imported what each run needs."""
    import torch
    import transformers.models.auto.tokenization_auto
    import transformers.models.llama.modeling_llama  # noqa: F401

    import rlzoo
    import rlzoo.train.loop

    torch.set_num_threads(1)
    return rlzoo.load_zoo()


def train_all(made: Set, out: Path, which: str, more: list[str]) -> None:
    plug_in(made.number, out)
    made.prepare(out)
    import rlzoo

    zoo = load_all()
    for folder, (recipe, words) in made.jobs(out).items():
        if trained(folder) or not re.search(which, str(folder.relative_to(out))):
            continue
        began = sum(os.times()[:4])
        filled = re.sub(r"\{(data|models)\}", lambda m: str(out / m[1]), words)
        words = [*made.small, *filled.split(), *more, f"run.dir={folder}", "run.overwrite=true"]
        forked(folder, partial(rlzoo.run, recipe, words, zoo=zoo))
        spent = sum(os.times()[:4]) - began
        print(f"{spent:5.1f} s  {folder.relative_to(out)}  {curve(folder)}", flush=True)


def curve(folder: Path) -> Curve:
    """Held-out accuracy at each evaluation, or the verifier's score, or the score; empty of a run
    that was refused or is not there."""
    if not (folder / "summary.json").exists():
        return []
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [x.get("eval/accuracy", x.get("eval/reward/verifier", x["eval/score"]))
            for x in lines if "eval/score" in x]  # fmt: skip


def judge(made: Set, out: Path, which: str) -> list[dict[str, Any]]:
    os.environ["RLZOO_PLUGINS"] = str(out / "house.py")
    import rlzoo

    def findings(folder: Path) -> list[dict[str, Any]]:
        if (refused := folder / "refused.txt").exists():
            return [{"severity": "refused", "rule": "", "what": refused.read_text(), "advice": ""}]
        return json.loads(json.dumps(dict(rlzoo.doctor(str(folder)))))["findings"]

    report = []
    for case, folder, control in made.faults(out):
        key, ends, best = str(folder.relative_to(out)), curve(folder), curve(control)
        if not re.search(which, f"{key} {case.name}") or not folder.exists():
            continue
        row = {"run": key, "name": case.name, "cause": case.cause, "ends": ends, "control": best}
        if ends and not (case.false or made.harm(best, ends)):
            report.append(row | {"harmless": True, "findings": []})
            continue
        found = findings(folder)
        loud = above_notes(found)
        first = f"{loud[0]['rule']}: {loud[0]['what']}" if loud else ""
        report.append(row | {"findings": found, "noticed": bool(loud),
                             "keys": bool(first and case.keys and re.search(case.keys, first)),
                             "harmful": [f["advice"] for f in loud if case.harmful
                                         and re.search(case.harmful, f["advice"])]})  # fmt: skip
    for name, folder in made.sound(out):
        key = str(folder.relative_to(out))
        if re.search(which, f"{key} {name}") and folder.exists():
            report.append({"run": key, "name": name, "ends": curve(folder),
                           "findings": findings(folder)})  # fmt: skip
    return report


def above_notes(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [f for f in findings if f["severity"] != "note"]


def show(report: list[dict[str, Any]]) -> None:
    for row in report:
        if row.get("harmless"):
            print(f"\nharmless, not judged: {row['name']} {row['ends']}, control {row['control']}")
            continue
        print(f"\n{row['run']} {row['name']} {row['ends']} {row.get('control', '')}")
        print(f"  {row.get('cause', '')}")
        for f in row["findings"]:
            print(f"  {f['severity']} {f['rule']}: {f['what']}\n      try: {f['advice']}")
        if "keys" in row:
            print(f"  noticed {row['noticed']}, keys {row['keys']}, harmful {row['harmful']}")
    faults = [r for r in report if "keys" in r]
    healthy = [r for r in report if "cause" not in r]
    print(f"\n{len(faults)} faults: {sum(r['noticed'] for r in faults)} noticed, "
          f"{sum(r['keys'] for r in faults)} cause by keys, "
          f"{sum(bool(r['harmful']) for r in faults)} with harmful advice; {len(healthy)} healthy: "
          f"{sum(bool(above_notes(r['findings'])) for r in healthy)} alarmed")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", type=int, choices=SETS)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--judge", action="store_true", help="train nothing")
    parser.add_argument("--only", default="", help="runs that match")
    parser.add_argument("--more", default="", help="words for each run, such as seed=1")
    parser.add_argument("--json", type=Path, help="write the findings there")
    asked = parser.parse_args()
    made, out, began = load(asked.set), asked.runs.resolve(), time.time()
    if not asked.judge:
        train_all(made, out, asked.only, asked.more.split())
        print(f"{time.time() - began:.0f} s, {sum(os.times()[:4]):.0f} CPU s")
        return
    report = judge(made, out, asked.only)
    show(report)
    if made.rates and not asked.only:
        made.rates(report)
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
