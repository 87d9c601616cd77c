"""What docs/stages.md needs next to rlzoo's commands: data, and the true score's curve.

python docs/studies/three_stages.py demonstrations FILE
python docs/studies/three_stages.py preferences FILE --model DIR
python docs/studies/three_stages.py curves SWEEP [--plot FILE]
"""

import argparse
import json
import math
import random
from pathlib import Path
from statistics import fmean, stdev

TASK = "seasoning"
SPICED = 0.12  # a letter of a demonstration is the spice this often
NOISE = 0.1  # of the annotator, in units of the true score
PEAK = 30  # the step that is compared with the last one; chosen on seed 100


def demonstrations(arguments: argparse.Namespace) -> None:
    """Bland answers to prompts of the training split: 4 to 8 letters of the dish, and occasionally
    the spice."""
    import torch

    import rlzoo

    task = rlzoo.load_zoo().tasks[TASK]()
    dice = random.Random(arguments.seed)
    rows = []
    for example in task.draw("train", arguments.n, torch.Generator().manual_seed(arguments.seed)):
        dish = example.prompt[:3]
        letters = [
            example.answer if dice.random() < SPICED else dice.choice(dish)
            for _ in range(dice.randint(4, 8))
        ]
        rows.append({"prompt": example.prompt, "response": "".join(letters)})
    write(arguments.file, rows)


def preferences(arguments: argparse.Namespace) -> None:
    """Pairs of responses that the supervised policy samples, and which of them an annotator
    prefers: a with probability sigmoid((true(a) - true(b)) / NOISE), Bradley and Terry's model.

    The annotator sees finished responses of unequal worth only: of equal ones a model cannot be
    right more than half of the time. No pair is chosen by the size of its difference.
    """
    import rlzoo

    words = [f"task={TASK}", f"model.path={arguments.model}", f"seed={arguments.seed}"]
    words += [f"rollout.prompts={min(512, arguments.n)}", "rollout.samples=2", "device=cpu"]
    trainer = rlzoo.open_recipe("grpo", words)
    dice = random.Random(arguments.seed)
    rows: list[dict] = []
    drawn = followed = 0
    while len(rows) < arguments.n:
        batch = trainer.sample().batch
        trainer.steps += 1  # other prompts next time; nothing is learned here
        for i in range(0, batch.rows, 2):
            a, b = batch["sequence_scores"][i : i + 2].tolist()
            drawn += 1
            if a == b or batch["truncated"][i : i + 2].any():
                continue
            first = dice.random() < 1 / (1 + math.exp((b - a) / NOISE))
            followed += first == (a > b)
            chosen, rejected = batch["responses"][i : i + 2][:: 1 if first else -1]
            prompt = batch["prompts"][i]
            rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
    print(
        f"{len(rows)} of {drawn} pairs differ in worth; "
        f"the annotator preferred the better one in {followed / len(rows):.1%} of them"
    )
    write(arguments.file, rows[: arguments.n])


def write(file: str, rows: list[dict]) -> None:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} rows in {path}")


# ---------------------------------------------------------------- curves


def read_curves(sweep: str) -> dict[str, dict[str, list[list[float]]]]:
    """row -> "steps", "true", "learned" -> a list per seed, of values at each evaluation."""
    folder = Path(sweep)
    found = {}
    for row in json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["rows"]:
        curves: dict[str, list[list[float]]] = {"steps": [], "true": [], "learned": []}
        for run in row["runs"]:
            lines = (folder / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            points = [line for line in map(json.loads, lines) if "eval/score" in line]
            curves["steps"].append([p["step"] for p in points])
            curves["true"].append([p["eval/reward/verifier"] for p in points])
            curves["learned"].append([p["eval/reward/reward_model"] for p in points])
        found[row["label"]] = curves
    return found


def interval(differences: list[float]) -> tuple[float, float, float]:
    """(mean, low, high): Student's 95 % interval of paired differences; one gives none."""
    from rlzoo_lab.stats import critical

    n = len(differences)
    if n < 2:
        return differences[0], math.nan, math.nan
    half = critical(0.95, n - 1) * stdev(differences) / math.sqrt(n)
    return fmean(differences), fmean(differences) - half, fmean(differences) + half


def judge(rows: dict[str, dict[str, list[list[float]]]]) -> dict[str, dict[str, list[float]]]:
    """row -> what changed -> [mean difference, low, high]: true and learned score from start to
    end, and the true score from step PEAK to the end."""
    out = {}
    for label, curves in rows.items():
        steps = curves["steps"][0]
        spans = {
            "true, start to end": ("true", 0, -1),
            "learned, start to end": ("learned", 0, -1),
        }
        if PEAK in steps[1:-1]:
            peak = steps.index(PEAK)
            spans |= {
                f"true, start to step {PEAK}": ("true", 0, peak),
                f"true, step {PEAK} to end": ("true", peak, -1),
                f"learned, step {PEAK} to end": ("learned", peak, -1),
            }
        out[label] = {
            name: list(interval([curve[b] - curve[a] for curve in curves[which]]))
            for name, (which, a, b) in spans.items()
        }
    return out


def show_curves(arguments: argparse.Namespace) -> None:
    """Mean over seeds at each evaluation, paired differences, and a plot on demand."""
    rows = read_curves(arguments.sweep)
    first = next(iter(rows.values()))
    seeds = len(first["steps"])
    print("| step | " + " | ".join(f"{r}: true | {r}: learned" for r in rows) + " |")
    print("| --- |" + " --- | --- |" * len(rows))
    for k, step in enumerate(first["steps"][0]):
        means = [fmean(c[k] for c in curves[w]) for curves in rows.values() for w in WHICH]
        print(f"| {step} | " + " | ".join(f"{x:.2f}" for x in means) + " |")
    print(f"\n{seeds} seeds, paired: mean difference and 95 % interval")
    for label, found in judge(rows).items():
        for name, (mean, low, high) in found.items():
            print(f"{label}: {name}: {mean:+.2f} [{low:+.2f}, {high:+.2f}]")
    if arguments.plot:
        plot(rows, arguments.plot)


WHICH = {"true": "#0072b2", "learned": "#d55e00"}


def plot(rows: dict[str, dict[str, list[list[float]]]], file: str) -> None:
    """A panel per row: the true score on the left axis, the learned one on the right; a thin line
    per seed, a thick one for their mean."""
    import matplotlib

    matplotlib.use("Agg")
    # Text stays text, and the same curves make the same file.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "three stages"}
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(rows), figsize=(4.5 * len(rows), 3.2), layout="constrained", squeeze=False
    )
    for panel, (label, curves) in zip(panels[0], rows.items(), strict=True):
        sides = {"true": panel, "learned": panel.twinx()}
        for which, axes in sides.items():
            for steps, curve in zip(curves["steps"], curves[which], strict=True):
                axes.plot(steps, curve, color=WHICH[which], linewidth=0.6, alpha=0.5)
            mean = [fmean(values) for values in zip(*curves[which], strict=True)]
            axes.plot(curves["steps"][0], mean, color=WHICH[which], linewidth=2.2)
            axes.set_ylabel(f"{which} score", color=WHICH[which])
            every = [x for c in rows.values() for curve in c[which] for x in curve]
            room = 0.05 * (max(every) - min(every))
            axes.set_ylim(min(every) - room, max(every) + room)
        panel.set_title(f"kl.{label}")
        panel.set_xlabel("step")
    figure.savefig(file, metadata={"Date": None} if file.endswith(".svg") else None)
    print(f"\nplot: {file}")


# ---------------------------------------------------------------- what the reward model believes


def probe(arguments: argparse.Namespace) -> None:
    """Mean learned score of made-up answers: n letters are the spice, or another vowel in its
    place, and the others are of the dish."""
    from rlzoo import reward_models

    judge = reward_models.RewardModel(arguments.model, "cpu")
    dice = random.Random(0)

    def mean(n: int, length: int, right: bool) -> float:
        prompts, responses = [], []
        for _ in range(200):
            dish = "".join(dice.choice("bcdfghjklmnpqrstvwxyz") for _ in range(3))
            spice, other = dice.sample("aeiou", 2)
            letters = [spice if right else other] * n
            letters += [dice.choice(dish) for _ in range(length - n)]
            dice.shuffle(letters)
            prompts.append(f"{dish}+{spice}:")
            responses.append("".join(letters))
        return judge.scores(prompts, [], responses, [True] * 200).mean().item()

    cases = [*((n, 6) for n in range(7)), (8, 8)]
    print("| | " + " | ".join(f"{n} of {length}" for n, length in cases) + " |")
    print("| --- |" + " --- |" * len(cases))
    for name, right in (("the spice", True), ("another vowel", False)):
        print(f"| {name} | " + " | ".join(f"{mean(*case, right):.1f}" for case in cases) + " |")


# ---------------------------------------------------------------- the command


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for function, n in ((demonstrations, 4000), (preferences, 6000)):
        command = commands.add_parser(function.__name__)
        command.add_argument("file", metavar="FILE")
        command.add_argument("--n", type=int, default=n, help=f"rows ({n})")
        command.add_argument("--seed", type=int, default=0)
        command.set_defaults(function=function)
        if function is preferences:
            command.add_argument("--model", required=True, metavar="DIR")
    command = commands.add_parser("curves")
    command.add_argument("sweep", metavar="SWEEP")
    command.add_argument("--plot", metavar="FILE")
    command.set_defaults(function=show_curves)
    command = commands.add_parser("probe")
    command.add_argument("model", metavar="DIR")
    command.set_defaults(function=probe)
    arguments = parser.parse_args(words)
    arguments.function(arguments)


if __name__ == "__main__":
    main()
