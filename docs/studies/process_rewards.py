"""What docs/stages.md needs next to rlzoo's commands: a task whose steps can be judged.

python docs/studies/process_rewards.py problems FILE
python docs/studies/process_rewards.py demonstrations FILE
python docs/studies/process_rewards.py judge --model DIR --problems FILE --out DIR
"""

import argparse
import json
import random
from pathlib import Path
from statistics import fmean

LETTERS, WRONG = 6, 0.5  # of a prompt; a step of a demonstration is wrong this often
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
SEPARATOR = ";"


def draw(dice: random.Random) -> str:
    """Letters to encipher: `kfzaqm>`."""
    return "".join(dice.choices(ALPHABET, k=LETTERS)) + ">"


def steps_of(prompt: str) -> list[str]:
    """The right steps: for each letter the one after it in the alphabet, a after z."""
    return [ALPHABET[(ALPHABET.index(x) + 1) % 26] for x in prompt.rstrip(">")]


def labels(prompt: str, steps: list[str]) -> list[bool]:
    """Which steps are right: the k-th one is of the k-th letter."""
    right = steps_of(prompt)
    return [k < len(right) and step == right[k] for k, step in enumerate(steps)]


def problems(arguments: argparse.Namespace) -> None:
    dice = random.Random(arguments.seed)
    prompts = [draw(dice) for _ in range(arguments.n)]
    rows = [{"prompt": p, "answer": SEPARATOR.join(steps_of(p))} for p in prompts]
    write(arguments.file, rows)


def demonstrations(arguments: argparse.Namespace) -> None:
    """Answers in which each letter is replaced by a random one with probability `WRONG`."""
    dice = random.Random(arguments.seed + 1)
    rows = []
    for _ in range(arguments.n):
        prompt = draw(dice)
        steps = [dice.choice(ALPHABET) if dice.random() < WRONG else x for x in steps_of(prompt)]
        rows.append({"prompt": prompt, "response": SEPARATOR.join(steps)})
    write(arguments.file, rows)


def judge(arguments: argparse.Namespace) -> None:
    """Responses of the model to the problems, each step judged, and each response as a whole."""
    import rlzoo

    words = [*TASK, f"task.path={arguments.problems}", f"model.path={arguments.model}"]
    words += [f"seed={arguments.seed}", "rollout.prompts=512", "rollout.samples=4", "device=cpu"]
    words += [f"rollout.temperature={arguments.temperature}"]
    trainer = rlzoo.open_recipe("grpo", words)
    steps: list[dict] = []
    verdicts: list[dict] = []
    while len(steps) < arguments.n:
        batch = trainer.sample().batch
        trainer.steps += 1  # other prompts next time; nothing is learned here
        scores = batch["sequence_scores"].tolist()
        for prompt, said, score in zip(batch["prompts"], batch["responses"], scores, strict=True):
            pieces = [piece for piece in said.split(SEPARATOR) if piece.strip()]
            if pieces:
                right = labels(prompt, pieces)
                steps.append({"prompt": prompt, "completions": pieces, "labels": right})
                verdicts.append({"prompt": prompt, "completion": said, "label": score == 1})
    rows = steps[: arguments.n]
    share = fmean(x for row in rows for x in row["labels"])
    good = fmean(row["label"] for row in verdicts[: arguments.n])
    print(f"{share:.1%} of the steps are right, {good:.1%} of the responses")
    write(f"{arguments.out}/steps.jsonl", rows)
    write(f"{arguments.out}/verdicts.jsonl", verdicts[: arguments.n])


TASK = ["task=dataset", "rollout.max_new_tokens=16"]


def write(file: str, rows: list[dict]) -> None:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"{len(rows)} rows in {path}")


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(required=True)
    for name, run, n in (("problems", problems, 20_000), ("demonstrations", demonstrations, 8_000)):
        one = verbs.add_parser(name)
        one.add_argument("file")
        one.set_defaults(run=run, n=n)
    one = verbs.add_parser("judge")
    for option in ("--model", "--problems", "--out"):
        one.add_argument(option, required=True)
    one.add_argument("--temperature", type=float, default=1.0)
    one.set_defaults(run=judge, n=6_000)
    for one in verbs.choices.values():
        one.add_argument("--n", type=int)
        one.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
