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
from statistics import fmean, median
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

import claims
from common import DOCS, put, rlzoo, table
from rlzoo import load_zoo, resume, run
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.worlds import make_world
from rlzoo_lab.stats import t_interval, wilson

PAGE, KEPT = DOCS / "references.md", Path(__file__).with_suffix(".json")
TPO = "[TPO](https://arxiv.org/abs/2604.06159), table 3"
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

    def path(self, folder: Path, seed: int) -> Path:
        return folder / f"{self.name}--seed{seed}"

    def play(self, folder: Path, seed: int, zoo: Any) -> tuple[float, float]:
        """Do the run, or what is left of it; its weights are not kept. Its error, and CPU seconds
        of the part that was done now (0: unknown)."""
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
        lines = [json.loads(x) for x in (path / "metrics.jsonl").read_text("utf-8").splitlines()]
        name = "eval/score" if self.greedy else "reward/mean"
        error = 1 - [line for line in lines if name in line][-1][name]
        return round(error, 6), round(time.process_time() - began, 1)


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
CALLED = {"tpo": "TPO", "grpo": "GRPO, KL to the rollout", "grpo_no_kl": "GRPO without KL",
          "ppo": "PPO, batch mean", "dg": "DG, batch mean"}  # fmt: skip
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
            claim = f"{CALLED[method]}: H = {length}, 100 prompts"
            name = f"tpo-H{length}-{method}"
            yield Row(name, TPO, claim, (errors[at] / 100, None), words, model)
        for method, errors in INTERACTIONS.items():
            words = (*reversal(length), *OPTAX, *METHODS[method], "rollout.prompts=800",
                     f"actor.lr={1e-3 * math.sqrt(8)}")  # fmt: skip
            claim = f"{CALLED[method]}: H = {length}, 800 prompts"
            name = f"tpo-H{length}-{method}-800"
            yield Row(name, TPO, claim, (errors[at] / 100, None), words, model)


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
        yield Row(f"second-{name}", SECOND, f"{claim}: H = 10, 96 responses", published,
                  (*common, *words), ("abs", 21, relu), seeds=10, greedy=True)  # fmt: skip


Kept = dict[str, dict[str, tuple[float, ...]]]  # row -> seed -> what its `play` returns
ROWS = [*second_rows(), *tpo_rows()]
# What runs first: rows by the beginnings of their names, and how many seeds of each.
ORDER = (
    (("second-dg", "second-tpo", "second-grpo"), 3), (("tpo-H7-dg", "tpo-H7-ppo"), 2),
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
    if n == 1:
        return f"{mean:.4f}", "undecided"
    spread, theirs = t_interval(values), 0.0
    low, high = wilson(sum(values), n)
    if published[1] and spread:
        low, high, theirs = spread.low, spread.high, T3 * published[1] / 3**0.5
    text = f"{mean:.4f} [{low:.4f}, {high:.4f}]"
    gap = published[0] - mean
    half = high - mean if gap > 0 else mean - low
    if abs(gap) > math.hypot(half, theirs):
        return text, "differs"
    return text, "agrees" if (high - low) / 2 < WIDE else "undecided"


T3 = 4.303  # Student's t at 97.5 %, two degrees of freedom
WIDE = 0.1  # an interval of more than plus or minus this agrees with too much


def line(row: Row, runs: dict[str, tuple[float, float]]) -> list[str]:
    done = sorted((int(seed), error) for seed, (error, _) in runs.items())
    mean, sd = row.published
    said = f"{mean:.4f}" + (f" ± {sd:.4f}" if sd else "")
    if not done:
        return [row.claim, said, "", "", "", f"`{row.name}`", "*not run*"]
    costs = [cost for _, cost in runs.values() if cost]
    each = f"{sum(costs) / len(costs):.0f}" if costs else ""
    text, verdict = interval([x for _, x in done], row.published)
    seeds = f"{done[0][0]}-{done[-1][0]}" if len(done) > 1 else f"{done[0][0]}"
    return [row.claim, said, text, seeds, each, f"`{row.name}`", verdict]


def write(kept: Kept) -> None:
    head = ["error", "published", "ours, 95 % interval", "seeds", "CPU s a run", "row", "verdict"]
    for name, source in (("tpo", TPO), ("second", SECOND)):
        rows = [line(row, kept.get(row.name, {})) for row in ROWS if row.source == source]
        put(PAGE, name, table(head, rows))
    put(PAGE, "kl", kl_table())
    put(PAGE, "kl-runs", runs_table(kept))


# ---------------------------------------------------------------- KL estimates, in runs


@dataclass(frozen=True)
class Speller:
    """A model that is taught to spell words backward before RL, not to perfection.

    letters: of a word, at least and at most. pairs: words that it is taught. taught, words: of
    `rlzoo model sft` and of the runs.
    """

    name: str
    model: str
    letters: tuple[int, int]
    pairs: int
    taught: tuple[str, ...]
    words: tuple[str, ...]
    seeds: range

    def base(self, folder: Path, zoo: Any) -> tuple[Path, list[str]]:
        """The taught model, and its task."""
        low, high = self.letters
        settings = {"dataset": "spell_backward", "size": 3000,
                    "config": [f"min_word_len={low}", f"max_word_len={high}"]}  # fmt: skip
        base, file = folder / "models" / self.name, folder / f"{self.name}.jsonl"
        if not (base / "config.json").is_file():
            task = zoo.tasks["reasoning_gym"](**settings | {"size": 2 * self.pairs})
            drawn = task.draw("train", self.pairs, torch.Generator().manual_seed(0))
            pairs = [{"prompt": x.prompt, "response": x.answer} for x in drawn]
            file.write_text("".join(json.dumps(x) + "\n" for x in pairs), encoding="utf-8")
            rlzoo(
                "model", "sft", str(file), "--model", self.model, "--out", str(base), *self.taught
            )
        return base, [f"task.{name}={json.dumps(value)}" for name, value in settings.items()]

    def play(self, arm: str, folder: Path, seed: int, zoo: Any) -> tuple[float, ...]:
        """Accuracy and score on held-out words at the end, KL to the start in the last 20 steps in
        nats a token, the largest gradient by the median one, CPU seconds."""
        path, began = folder / f"{self.name}-{arm}--seed{seed}", time.process_time()
        base, task = self.base(folder, zoo)
        if (path / "recipe.yaml").is_file():
            resume(path, zoo=zoo)
        else:
            more = [*penalty(arm), *task, f"model.path={base}", f"seed={seed}", f"run.dir={path}"]
            run("grpo", [*SPELL, *self.words, *more], zoo=zoo)
        for file in path.rglob("*.safetensors"):
            file.unlink()
        lines = [json.loads(x) for x in (path / "metrics.jsonl").read_text("utf-8").splitlines()]
        steps = [line for line in lines if "actor/grad_norm" in line]
        end = [line for line in lines if "eval/score" in line][-1]
        drift = [line["actor/ref_kl"] for line in steps[-20:] if "actor/ref_kl" in line]
        norms = [line["actor/grad_norm"] for line in steps]
        seconds = time.process_time() - began
        return (end["eval/accuracy"], end["eval/score"], round(fmean(drift or [0.0]), 4),
                round(max(norms) / median(norms), 2), round(seconds, 1))  # fmt: skip


def penalty(arm: str) -> list[str]:
    kl, _, place = arm.partition("-")
    return ["kl.place=none"] if arm == "none" else [f"kl={kl}", f"kl.place={place}"]


# The source's settings, but not its sampler: at temperature 0.6, cut to the likeliest tokens, while
# its log-probs are those of temperature 1, so that its samples are not the policy's.
SPELL = ("task=reasoning_gym", "rollout.prompts=4", "rollout.samples=8", "train.minibatches=4",
         "rollout.max_new_tokens=8", "kl.coef=0.04", "eval.every=0", "eval.samples=256",
         "checkpoint.every=50", "checkpoint.keep=1", "run.samples=0", "run.threads=1",
         "device=cpu")  # fmt: skip
ARMS = ("none", *(f"k{n}-{place}" for place in ("loss", "reward") for n in (1, 2, 3)))
SPELLERS = (
    Speller("kl-reader", "reader", (3, 4), 4000, ("--epochs", "9", "--lr", "0.004"),
            ("train.steps=200",), range(2, 12)),
    Speller("kl-smollm2", "smollm2-135m-instruct", (3, 5), 640, ("--batch", "16", "--lr", "1e-4"),
            ("train.steps=30", "model.chat=always", "actor.lr=5e-6"), range(2, 5)),
)  # fmt: skip


def mean_of(values: list[float]) -> str:
    """The mean and its 95 % interval."""
    mean, spread = fmean(values), t_interval(values)
    return f"{mean:.3f}" + (f" [{spread.low:.3f}, {spread.high:.3f}]" if spread else "")


def runs_table(kept: Kept) -> str:
    """Each arm's means over seeds with 95 % intervals, and its score minus that of k3 in the loss,
    paired by seed."""
    rows = []
    for speller in SPELLERS:
        base = kept.get(f"{speller.name}-k3-loss", {})
        for arm in ARMS:
            if not (runs := kept.get(f"{speller.name}-{arm}", {})):
                continue
            _, score, drift, gradient, _ = map(list, zip(*runs.values(), strict=True))
            pairs = [runs[seed][1] - base[seed][1] for seed in runs.keys() & base.keys()]
            rows.append([
                speller.model, f"`{arm}`", mean_of(score),
                "" if arm == "k3-loss" else mean_of(pairs),
                "" if arm == "none" else mean_of(drift), mean_of(gradient), f"{len(runs)}",
            ])  # fmt: skip
    head = ["model", "arm", "score", "minus `k3-loss`", "KL a token", "gradient", "seeds"]
    return table(head, rows)


# ---------------------------------------------------------------- KL estimates, exactly


def pulls(world: Oracle) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """name -> (S, V) expected gradients in the logits of k1, k2 and k3, at the policy that samples:
    as a loss, and in the reward."""
    ratio, pi, visits = world.log_ratio, world.pi, world.visits[:, None]
    k = {"k1": ratio, "k2": ratio.square() / 2, "k3": (-ratio).expm1() + ratio}
    slope = {"k1": torch.ones_like(ratio), "k2": ratio, "k3": -(-ratio).expm1()}  # d k / d log pi

    def through(x: torch.Tensor) -> torch.Tensor:  # from log pi to the logits
        return visits * pi * (x - (pi * x).sum(-1, keepdim=True))

    return {name: (through(slope[name]), world.gradient(k[name])) for name in k}


def kl_table() -> str:
    """Cosine with, and length by, the exact gradient of KL(pi, pi_ref) between responses."""
    found: dict[tuple[str, str], list[list[str]]] = {}
    for steps in STEPS:
        cells: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for seed in claims.SEEDS:
            world = claims.trained(make_world("graded", claims.TREE, seed=seed), 0.0, steps)
            exact = world.gradient(world.log_ratio)
            for name, both in pulls(world).items():
                for place, pull in zip(("loss", "reward"), both, strict=True):
                    length = float(pull.norm() / exact.norm())
                    cosine = float((pull * exact).sum() / (pull.norm() * exact.norm() + 1e-300))
                    cells.setdefault((place, name), []).append((cosine, length))
        for key, values in cells.items():
            none = max(length for _, length in values) < 1e-12  # rounding
            spread = ["none" if none else claims.spread([x[i] for x in values]) for i in (0, 1)]
            found.setdefault(key, []).append(spread)
    rows = [
        [f"`{name}` in the {place}", *(x for spread in each for x in spread)]
        for (place, name), each in sorted(found.items())
    ]
    head = [f"{what}, {steps} steps" for steps in STEPS for what in ("cosine", "length")]
    return table(["estimate", *head], rows)


STEPS = (10, 100)  # of exact gradient ascent away from the reference


if __name__ == "__main__":
    main()
