"""A style by rule: a model of stories must name a dog; what that costs, by the KL coefficient.

python docs/studies/stories.py MODEL [--dir FOLDER] [--seeds N] [--coefs 0 0.05 0.3]

MODEL is stories260K (github.com/karpathy/llama2.c) as a transformers folder. Runs that
FOLDER/runs.jsonl already holds are not repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from common import recorded, table
from rlzoo.lm.loading import load_causal_lm, load_tokenizer
from rlzoo_lab.stats import mean_interval

NAMES = [
    "Lily",
    "Tim",
    "Sara",
    "Ben",
    "Mia",
    "Tom",
    "Anna",
    "Max",
    "Lucy",
    "Sam",
    "Amy",
    "Jack",
    "Ella",
    "Leo",
    "Sue",
    "Bob",
]
OPENINGS = [
    "Once upon a time, there was a child named {name}. {name}",
    "One day, {name} was outside. {name}",
    "{name} was very happy. One day, {name}",
]
HELD_OUT, TOKENS, ROWS = 4, 48, 32  # names; tokens of a response; responses to each opening


def openings(names: list[str]) -> list[str]:
    return [opening.format(name=name) for name in names for opening in OPENINGS]


def train(model: Path, folder: Path, seed: int, coef: float) -> Path:
    """The folder of a run: GRPO, paid 1 for a response with the word "dog"."""
    for name, names in (("train", NAMES[:-HELD_OUT]), ("test", NAMES[-HELD_OUT:])):
        rows = [json.dumps({"prompt": opening, "answer": "dog"}) for opening in openings(names)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    run = folder / f"kl-{coef:g}-seed-{seed}"
    words = ["recipe=grpo", f"model.path={model}", f"seed={seed}", f"run.dir={run}"]
    words += ["run.overwrite=true", "task.name=dataset", "task.prompt=prompt", "task.answer=answer"]
    words += [f"task.path={folder / 'train.jsonl'}", f"task.test_path={folder / 'test.jsonl'}"]
    words += ["rewards=regex", r"rewards.regex.pattern='\bdog\b'", "train.minibatches=1"]
    words += ["rollout.prompts=16", "rollout.samples=8", f"rollout.max_new_tokens={TOKENS}"]
    words += [f"kl.coef={coef}", "actor.lr=5e-4", "train.steps=40", "eval.samples=128"]
    subprocess.run([sys.executable, "-m", "rlzoo", "run", *words], check=True, stdout=sys.stderr)
    return run / "model"


@torch.no_grad()
def measure(folder: Path, base: Any, tokenizer: Any) -> dict[str, Any]:
    """Sampled responses to held-out openings: the share with "dog", their negative
    log-likelihood under the base model and the KL to it (nats per token), and one of the texts."""
    model = load_causal_lm(folder)
    torch.manual_seed(0)
    texts, counted, nll, kl = [], 0, 0.0, 0.0
    for opening in openings(NAMES[-HELD_OUT:]):
        ids = torch.tensor([tokenizer(opening).input_ids] * ROWS)
        whole = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=True, top_k=0
        )
        new = whole[:, ids.shape[1] :]
        ended = (new == tokenizer.eos_token_id).cumsum(1)
        mask = (ended == 0) | ((ended == 1) & (new == tokenizer.eos_token_id))
        own, theirs = (
            m(whole).logits[:, ids.shape[1] - 1 : -1].log_softmax(-1).gather(2, new[..., None])
            for m in (model, base)
        )
        counted += int(mask.sum())
        nll -= float(theirs[..., 0][mask].sum())
        kl += float((own - theirs)[..., 0][mask].sum())
        texts += [f"{opening}{text}" for text in tokenizer.batch_decode(new, True)]
    dog = sum("dog" in text.replace(".", " ").replace(",", " ").split() for text in texts)
    return {
        "dog": dog / len(texts),
        "nll": nll / counted,
        "kl": kl / counted,
        "text": " ".join(texts[0].split()),
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A row for each coefficient: means over seeds, with Student's 95 % interval."""
    out = []
    for name in dict.fromkeys(row["name"] for row in rows):
        mine = [row for row in rows if row["name"] == name]
        cells = [name]
        for values in ([row[key] for row in mine] for key in ("dog", "kl", "nll")):
            low, high = mean_interval(values) if len(values) > 1 else (None, None)
            span = "" if low is None else f" [{low:.2f}, {high:.2f}]"
            cells.append(f"{fmean(values):.2f}{span}")
        out.append(cells)
    texts = {row["name"]: row["text"] for row in rows}
    head = ["", 'responses with "dog"', "KL to the base", "NLL under the base"]
    return f"{table(head, out)}\n\n{table(['', 'a text'], texts.items())}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--dir", type=Path, default=Path("runs/stories"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--coefs", type=float, nargs="*", default=[0, 0.05, 0.3])
    asked = parser.parse_args()
    file = asked.dir / "runs.jsonl"
    base, tokenizer = load_causal_lm(asked.model), load_tokenizer(asked.model)
    wanted = [("base", None, 0)]
    wanted += [(f"kl.coef={c:g}", c, s) for c in asked.coefs for s in range(1, asked.seeds + 1)]
    for name, coef, seed in wanted:
        if (name, seed) in {(row["name"], row["seed"]) for row in recorded(file)}:
            continue
        folder = asked.model if coef is None else train(asked.model, asked.dir, seed, coef)
        row = {"name": name, "seed": seed, **measure(folder, base, tokenizer)}
        with file.open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
    print(report(recorded(file)))
