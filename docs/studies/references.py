"""Run tables that others published, and write docs/references.md.

    python docs/studies/references.py [FOLDER] [--rows A,B] [--minutes N]    resumes
    python docs/studies/references.py [FOLDER] --rows kl                     the runs of issue 489
    python docs/studies/references.py [FOLDER] --page-only                   write the page

Runs are ordinary run folders, runs/references/ROW--seedN by default, in order of importance: each
row's first seeds before any row's later ones. The same command does what is missing; errors are
kept in references.json, so that runs on several machines add up. Settings are the sources'; none
was tuned. Seed 1 tried this file out, and counts in no row.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

from common import DOCS, put, table
from kl_estimates import ARMS, SPELLERS, Kept, exact_table, runs_table
from rlzoo import load_zoo, resume, run
from rlzoo_lab.stats import t_interval, wilson

Curve = list[int]
"""The first step whose error is at most NEARLY, and the errors from there on in thousandths."""
NEARLY = 0.2  # before it, the mean of fewer than 20 curves is above 1 %
PAGE, KEPT = DOCS / "references.md", Path(__file__).with_suffix(".json")
TPO = "[TPO](https://arxiv.org/abs/2604.06159), table 3"
DENSELY = "[TPO](https://arxiv.org/abs/2604.06159), table 1"
SECOND = "[rl-experiments](https://github.com/deepakvijaykee/rl-experiments), 140833ab"

# ---------------------------------------------------------------- the models


def made(folder: Path, symbols: str, positions: int, seed: int, start: Callable) -> Path:
    """A decoder of two layers of width 64 that has exactly these symbols; its folder.

    Both sources have pre-norm layers with separate projections, learned positions and an untied
    head, as an OPT has. start: sets the weights, since each library has its own defaults.
    """
    if (folder / "config.json").is_file():
        return folder
    core = Tokenizer(models.WordLevel({c: i for i, c in enumerate(symbols)}, unk_token=symbols[0]))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=core).save_pretrained(folder)
    config = OPTConfig(
        vocab_size=len(symbols), hidden_size=64, word_embed_proj_dim=64, num_hidden_layers=2,
        num_attention_heads=2, ffn_dim=256, max_position_embeddings=positions, dropout=0.0,
        activation_function=start.__name__, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = OPTForCausalLM(config)
    start(model)
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def gelu_new(model: OPTForCausalLM) -> None:
    """As Flax starts a model: LeCun's normal, cut at two standard deviations."""
    decoder = model.model.decoder
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            std = layer.in_features**-0.5 / 0.87962566103423978
            torch.nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
            if layer.bias is not None:
                layer.bias.zero_()
    decoder.embed_tokens.weight.normal_(std=0.125)
    decoder.embed_positions.weight.normal_(std=0.02)


@torch.no_grad()
def relu(model: OPTForCausalLM) -> None:
    """As torch starts a `TransformerEncoder`: all layers alike, and Xavier's start for query, key
    and value as one matrix. The source multiplies embeddings by 8."""
    decoder = model.model.decoder
    for name, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear):
            layer.reset_parameters()
            if name.endswith(("q_proj", "k_proj", "v_proj")):
                layer.weight.uniform_(-((6 / 256) ** 0.5), (6 / 256) ** 0.5)
            if layer.bias is not None and name.endswith("_proj"):
                layer.bias.zero_()
    for other in decoder.layers[1:]:
        other.load_state_dict(decoder.layers[0].state_dict())
    decoder.embed_tokens.weight.normal_(std=8.0)
    decoder.embed_positions.weight.normal_(std=1.0)


# ---------------------------------------------------------------- the rows


@dataclass(frozen=True)
class Row:
    """published: the error's mean and, if given, its standard deviation over seeds."""

    name: str
    source: str
    claim: str
    published: tuple[float, float | None]
    words: tuple[str, ...]
    model: tuple[str, int, Callable]
    recipe: str = "grpo"
    seeds: int = 5
    greedy: bool = False  # error of greedy decoding on held-out prompts, not of the last rollout
    dense: bool = False  # not an error, but the step in which the mean of all runs' is 1 %

    def path(self, folder: Path, seed: int) -> Path:
        return folder / f"{self.name}--seed{seed}"

    def play(self, folder: Path, seed: int, zoo: Any) -> tuple[float | Curve, float]:
        """Do the run, or what is left of it; its weights are not kept. Its error, or its curve,
        and CPU seconds of the part that was done now (0: unknown)."""
        path, began = self.path(folder, seed), time.process_time()
        if (path / "recipe.yaml").is_file():
            resume(path, zoo=zoo)
        else:
            symbols, positions, start = self.model
            base = folder / "models" / f"{start.__name__}-{symbols}-{positions}--seed{seed}"
            base = made(base, symbols.replace("s", ">"), positions, seed, start)
            more = [f"model.path={base}", f"seed={seed}", f"run.dir={path}"]
            run(self.recipe, [*self.words, *more], zoo=zoo)
        for file in path.rglob("*.safetensors"):
            file.unlink()
        return self.result(path), round(time.process_time() - began, 1)

    def result(self, path: Path) -> float | Curve:
        """What is kept of a run."""
        lines = [json.loads(x) for x in (path / "metrics.jsonl").read_text("utf-8").splitlines()]
        name = "eval/score" if self.greedy else "reward/mean"
        whole = DENSE if self.dense else 1
        errors = [1 - line[name] / whole for line in lines if name in line]
        if not self.dense:
            return round(errors[-1], 6)
        first = next((i for i, x in enumerate(errors) if x <= NEARLY), len(errors))
        return [first + 1, *(round(1000 * x) for x in errors[first:])]


def reversal(length: int) -> tuple[str, ...]:
    return (
        "task=reverse", "task.letters=2", "task.fixed=true", f"task.min_length={length}",
        f"task.max_length={length}", "rollout.ignore_eos=true", f"rollout.max_new_tokens={length}",
        "train.minibatches=1", "aggregation=seq_mean_token_sum", "actor.eps=1e-8",
        "train.microbatch=800", "eval.every=0", "run.samples=0", "run.threads=1",
        "checkpoint.every=50", "checkpoint.keep=1", "device=cpu",
    )  # fmt: skip


Z = ("estimator=dr_grpo", "whiten=group", "whiten_ddof=0")  # standardised, population std
WHOLE = ("policy_loss=gspo", "policy_loss.length_normalize=false", "policy_loss.clip_low=0.2",
         "policy_loss.clip_high=0.2")  # fmt: skip
NEAR = ("kl.place=loss", "kl.coef=0.04", "kl.reference=rollout")
ALONE = ("rollout.samples=1", "estimator=batch_mean", "whiten=none")
METHODS = {
    "tpo": ("rollout.samples=8", "train.epochs=4", *Z, "policy_loss=tpo", "kl.place=none"),
    "grpo": ("rollout.samples=8", "train.epochs=4", *Z, *WHOLE, *NEAR, "kl=k3_sequence"),
    "grpo_no_kl": ("rollout.samples=8", "train.epochs=4", *Z, *WHOLE, "kl.place=none"),
    "ppo": (*ALONE, "train.epochs=4", "policy_loss=ppo_clip", "kl.place=none"),
    "dg": (*ALONE, "train.epochs=1", "policy_loss=delightful", "kl.place=none"),
}
CALLED = {"tpo": "TPO", "grpo": "GRPO with KL", "grpo_no_kl": "GRPO without KL",
          "ppo": "PPO", "dg": "DG"}  # fmt: skip
OPTAX = ("actor.optimizer=muon", "actor.muon=[embed_tokens, embed_positions, fc1, fc2, lm_head]",
         "actor.max_grad_norm=null", "train.steps=2000", "eval.samples=128",
         "task.separator=false")  # fmt: skip
# Errors in percent at lengths 7 and 8 after 2,000 steps, means of 20 seeds.
PROMPTS = {"tpo": (6.9, 8.6), "grpo": (14.5, 27.6), "grpo_no_kl": (66.6, 92.5),
           "ppo": (12.0, 26.3), "dg": (33.8, 58.8)}  # fmt: skip
INTERACTIONS = {"ppo": (38.6, 62.1), "dg": (47.7, 69.4)}


def tpo_rows() -> Iterator[Row]:
    for at, length in enumerate((7, 8)):
        model = ("ab", 2 * length, gelu_new)
        for method, errors in PROMPTS.items():
            words = (*reversal(length), *OPTAX, *METHODS[method], "rollout.prompts=100",
                     "actor.lr=1e-3")  # fmt: skip
            claim = f"{CALLED[method]}: H={length}"
            name = f"tpo-H{length}-{method}"
            yield Row(name, TPO, claim, (errors[at] / 100, None), words, model)
        for method, errors in INTERACTIONS.items():
            words = (*reversal(length), *OPTAX, *METHODS[method], "rollout.prompts=800",
                     f"actor.lr={1e-3 * math.sqrt(8)}")  # fmt: skip
            claim = f"{CALLED[method]}: H={length}, 800 prompts"
            name = f"tpo-H{length}-{method}-800"
            yield Row(name, TPO, claim, (errors[at] / 100, None), words, model)


# Table 1: steps to an error of 1 %, with a reward of 1 for each right token, and none that follow.
# Methods that sample several candidates for each token are missing.
DENSE = 10  # tokens, and so the highest sum of rewards
STEPS_TO = {"dg": (199, 273, 314, 393), "ppo": (872, 181, 191, 259)}  # for 2, 4, 8, 16 symbols


def dense_rows() -> Iterator[Row]:
    for method, steps in STEPS_TO.items():
        for n, published in zip((2, 4, 8, 16), steps, strict=True):
            budget = min(1000, 2 * published)
            words = (*reversal(DENSE), *OPTAX, *METHODS[method], "rollout.prompts=100",
                     "actor.lr=1e-3", f"task.letters={n}", "task.dense=true", "estimator.gamma=0",
                     f"rewards.verifier.weight={DENSE}", f"train.steps={budget}")  # fmt: skip
            claim = f"{CALLED[method]}: {n} symbols"
            model = ("abcdefghijklmnop"[:n], 2 * DENSE, gelu_new)
            yield Row(f"dense-{n}-{method}", DENSELY, claim, (published, None), words, model,
                      dense=True)  # fmt: skip


def second_rows() -> Iterator[Row]:
    common = (*reversal(10), "task.dense=true", "task.separator=true", "actor.lr=1e-3",
              "train.steps=300", "eval.samples=1000", "eval.top_k=1")  # fmt: skip
    group = ("rollout.prompts=12", *METHODS["tpo"])
    token = (*NEAR, "kl=k3", "policy_loss=ppo_clip", "aggregation=seq_mean_token_mean")
    dg = ("rollout.prompts=96", *METHODS["dg"], "estimator=confidence", "aggregation=token_mean")
    rows = {
        "dg": ("DG", (0.3345, 0.0043), dg),
        "tpo": ("TPO, 4 epochs", (0.2399, 0.0573), group),
        "grpo": ("GRPO, 4 epochs", (0.3536, 0.0106), (*group, *token)),
        "dg-delay": ("DG with samples 4 steps old", (0.5032, 0.008), (*dg, "rollout.staleness=4")),
    }
    for name, (claim, published, words) in rows.items():
        yield Row(f"second-{name}", SECOND, claim, published, (*common, *words), ("abs", 21, relu),
                  seeds=10, greedy=True)  # fmt: skip


ROWS = [*second_rows(), *dense_rows(), *tpo_rows()]
# What runs first: rows by the beginnings of their names, and how many seeds of each.
ORDER = (
    (("second-dg", "second-tpo", "second-grpo"), 3), (("dense",), 5),
    (("second", "tpo-H7-dg", "tpo-H7-ppo"), 5), (("tpo-H7",), 5), (("",), 10),
)  # fmt: skip


def cells() -> Iterator[tuple[str, int, Callable]]:
    """Rows' names and seeds in order of importance, and what does a run; some come twice."""
    for names, seeds in ORDER:
        for seed in range(2, 2 + seeds):
            some = (row for row in ROWS if row.name.startswith(names))
            yield from ((row.name, seed, row.play) for row in some if seed < 2 + row.seeds)
    for speller in SPELLERS:
        for seed in speller.seeds:
            yield from ((f"{speller.name}-{a}", seed, partial(speller.play, a)) for a in ARMS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DOCS.parent / "runs" / "references")
    parser.add_argument("--rows", default="", help="names of rows, or their beginnings")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after these")
    parser.add_argument("--page-only", action="store_true")
    asked = parser.parse_args()
    names = tuple(asked.rows.split(","))
    kept: Kept = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    if not asked.page_only:
        torch.set_num_threads(1)
        asked.folder.mkdir(parents=True, exist_ok=True)
        zoo, began = load_zoo(), time.time()
        for name, seed, play in cells():
            if time.time() - began > 60 * asked.minutes:
                break
            if name.startswith(names) and str(seed) not in kept.setdefault(name, {}):
                kept[name][str(seed)] = play(asked.folder.resolve(), seed, zoo)
                print(f"{name} seed {seed}: {kept[name][str(seed)]}", flush=True)
                text = ",\n".join(
                    f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(kept.items()) if v
                )
                KEPT.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    write(kept)


# ---------------------------------------------------------------- the page


def interval(values: list[float], published: tuple[float, float | None]) -> tuple[str, str]:
    """The mean and its 95 % interval; the verdict on the published mean. Where the source gives a
    standard deviation, of three seeds, its mean is uncertain too. Where it gives none, a run solves
    the task or does not: Student's interval of four zeros would be nothing, so Wilson's of a share.
    """
    n, mean = len(values), sum(values) / len(values)
    spread, theirs = t_interval(values), 0.0
    low, high = wilson(sum(values), n)
    if published[1] and spread:
        low, high, theirs = spread.low, spread.high, T3 * published[1] / 3**0.5
    text = f"{mean:.4f} [{low:.4f}, {high:.4f}]"
    if n == 1:
        return text, "undecided"
    gap = published[0] - mean
    half = high - mean if gap > 0 else mean - low
    if abs(gap) > math.hypot(half, theirs):
        return text, "differs"
    return text, "agrees" if (high - low) / 2 < WIDE else "undecided"


def crossing(curves: list[Curve]) -> int:
    """The first step in which the mean error of all runs is at most 1 %; 0 if there is none."""
    begin, end = max(c[0] for c in curves), min(c[0] + len(c) - 1 for c in curves)
    below = (
        s for s in range(begin, end) if sum(c[1 + s - c[0]] for c in curves) <= 10 * len(curves)
    )
    return next(below, 0)


def steps_to(curves: list[Curve], theirs: float) -> tuple[str, str]:
    """The step of the mean curve, which is what the source has, and half its 95 % interval by the
    jackknife; the verdict.  Source: Tukey 1958, doi:10.1214/aoms/1177706647."""
    n, step = len(curves), crossing(curves)
    if not step:
        return "never", "differs"
    fewer = [crossing(curves[:i] + curves[i + 1 :]) for i in range(n)] if n > 1 else [0]
    if not all(fewer):
        return f"{step}", "undecided"
    spread = t_interval([n * step - (n - 1) * x for x in fewer])
    assert spread is not None
    half = (spread.high - spread.low) / 2
    if abs(step - theirs) > half:
        verdict = "differs"
    else:
        verdict = "agrees" if half < WIDE * theirs else "undecided"
    return f"{step}±{half:.0f}", verdict


T3 = 4.303  # Student's t at 97.5 %, two degrees of freedom
WIDE = 0.1
"""A half interval of more than this, a share or of the published steps, agrees with too much."""


def line(row: Row, runs: dict[str, tuple[Any, float]]) -> list[str]:
    done = sorted((int(seed), error) for seed, (error, _) in runs.items())
    mean, sd = row.published
    said = f"{mean}" if row.dense else f"{mean:.4f}" + (f"±{sd:.4f}" if sd else "")
    costs = [cost for _, cost in runs.values() if cost]
    each = f"{sum(costs) / len(costs):.0f}" if costs else ""
    errors = [x for _, x in done]
    text, verdict = steps_to(errors, mean) if row.dense else interval(errors, row.published)
    seeds = f"{done[0][0]}-{done[-1][0]}" if len(done) > 1 else f"{done[0][0]}"
    return [row.claim, said, text, seeds, each, f"`{row.name}`", verdict]


def solved(kept: Kept) -> str:
    """How many runs of each method of table 3 solve their task, whatever its length."""
    counts = []
    for method, called in CALLED.items():
        errors = [x for h in (7, 8) for x, _ in kept.get(f"tpo-H{h}-{method}", {}).values()]
        counts.append(f"{called} {sum(x < 0.05 for x in errors)} of {len(errors)}")
    return f"\n\nRuns that end with an error below 0.05: {', '.join(counts)}."


def write(kept: Kept) -> None:
    head = ["", "published", "ours, 95 % interval", "seeds", "CPU s a run", "row", "verdict"]
    for name, source in (("tpo", TPO), ("dense", DENSELY), ("second", SECOND)):
        rows = [row for row in ROWS if row.source == source]
        lines = [line(row, kept[row.name]) for row in rows if kept.get(row.name)]
        left = [f"`{row.name}` ({row.published[0]:.4g})" for row in rows if not kept.get(row.name)]
        more = solved(kept) if source == TPO else ""
        more += f"\n\n*Not run* (published): {', '.join(left)}." if left else ""
        put(PAGE, name, table(head, lines) + more)
    put(PAGE, "kl", exact_table())
    put(PAGE, "kl-runs", runs_table(kept))


if __name__ == "__main__":
    main()
