"""Is GRPO outdated? Five methods, three rewards, ten seeds: the table of docs/results.md.

    python docs/studies/grpo_outdated.py    300 runs of 5 CPU seconds or so; resumes

Every run draws the same tokens. A method's learning rate is the best of five by the mean of two
seeds that are used for nothing else; where the best is at an end, the next rate is tried, too. The
numbers of finished runs are kept in grpo_outdated.json in this folder, so that runs add up over
machines. The table has the rewards of which all runs are there.
"""

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import rlzoo
from common import DOCS, put, table
from rlzoo_lab.stats import Contrast, block, detectable, t_interval

PAGE, RESULTS = DOCS / "results.md", Path(__file__).with_suffix(".json")
TOKENS = 20_000  # a run's, about 24 steps
RATES = [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3]
SEARCH, SEEDS = range(100, 102), range(10)
SPELLING = "task=spelling model=speller task.min_length=4 task.max_length=4"
REWARDS = {
    "late": f"{SPELLING} task.pay=end",
    "word": f"{SPELLING} task.pay=word",
    "step": "task=marks model=blind task.sections=3 task.length=2 task.commands=4 task.dense=true",
}
COMMON = (
    "rollout.max_new_tokens=13 kl.place=none eval.every=0 eval.samples=512 run.threads=1 device=cpu"
)
ALONE = "rollout.prompts=64 rollout.samples=1"
METHODS = {  # the critic's rate is five times the actor's, as in SAO's paper
    "GRPO": "recipe=grpo rollout.prompts=16 rollout.samples=4",
    "PPO": f"recipe=ppo_gae {ALONE}",
    "PPO, shared trunk": f"recipe=ppo_gae critic.trunk=shared {ALONE}",
    "SAO": f"recipe=sao {ALONE}",
    "REINFORCE": f"recipe=reinforce_pp estimator=batch_mean {ALONE}",
}
FIRST = "GRPO"


def words_of(reward: str, method: str, rate: float, seed: int) -> list[str]:
    critic = f"critic.lr={5 * rate}" if method in ("PPO", "SAO") else ""
    return (
        f"{METHODS[method]} {REWARDS[reward]} {COMMON} actor.lr={rate} {critic} seed={seed}".split()
    )


def trained(words: list[str], zoo: Any) -> list[float]:
    """[score after, CPU seconds, explained variance in the last step, 0 for no critic]."""
    began = time.process_time()
    trainer = rlzoo.open_recipe(words[0].removeprefix("recipe="), words[1:], zoo=zoo)
    tokens, seen = 0, {}
    while tokens < TOKENS:
        seen = trainer.step(tokens / TOKENS)[1]
        tokens += seen["tokens/gen"]
    after = trainer.evaluate()["eval/score"]
    explained = seen.get("critic/vf_explained_var", 0.0)
    return [round(x, 4) for x in (after, time.process_time() - began, explained)]


class Kept:
    """Results by reward, method, rate and seed; each is written down as it ends."""

    def __init__(self) -> None:
        self.zoo = rlzoo.load_zoo()
        self.all = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def run(self, reward: str, method: str, rate: float, seed: int) -> list[float]:
        seeds = self.all.setdefault(f"{reward} | {method} | {rate:g}", {})
        if str(seed) not in seeds:
            seeds[str(seed)] = trained(words_of(reward, method, rate, seed), self.zoo)
            rows = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in self.all.items() if v)
            RESULTS.write_text("{\n" + ",\n".join(rows) + "\n}\n")
            print(reward, method, rate, seed, *seeds[str(seed)], flush=True)
        return seeds[str(seed)]

    def best_rate(self, reward: str, method: str) -> float:
        """The best of the rates; beyond an end that is the best, the next one is tried, too."""
        scores: dict[float, float] = {}
        left = list(RATES)
        while left:
            for rate in left:
                scores[rate] = statistics.mean(
                    self.run(reward, method, rate, seed)[0] for seed in SEARCH
                )
            best = max(scores, key=scores.__getitem__)
            left = [r for r in (best / 2, best * 2) if min(scores) > r or r > max(scores)]
        return best

    def block(self, reward: str) -> list[list[str]]:
        """The table's lines of one reward; differences are paired by seed."""
        rate = {method: self.best_rate(reward, method) for method in METHODS}
        runs: dict[str, list[list[float]]] = {method: [] for method in METHODS}
        for seed in SEEDS:
            for method in METHODS:
                runs[method].append(self.run(reward, method, rate[method], seed))
        scores = {method: [run[0] for run in of] for method, of in runs.items()}
        contrasts = block(list(zip(*scores.values(), strict=True)), list(METHODS).index(FIRST))
        lines = []
        for row, (method, of) in enumerate(runs.items()):
            contrast = contrasts.contrasts.get((row, 0))
            between = t_interval(scores[method])
            assert between is not None
            low, high = between
            gap = "" if contrast is None else verdict(contrast, len(METHODS))
            seconds, explained = (statistics.mean(run[k] for run in of) for k in (1, 2))
            lines.append([
                reward, method, f"{rate[method]:g}",
                f"{statistics.mean(scores[method]):.3f}±{(high - low) / 2:.3f}", gap,
                f"{explained:.2f}" if explained else "", f"{seconds:.1f}",
            ])  # fmt: skip
        return lines


def verdict(gap: Contrast, rows: int) -> str:
    """The difference and its interval; where that has 0, the difference that would have shown."""
    assert gap.interval is not None
    low, high = gap.interval
    text = f"{gap.mean:+.3f}±{(high - low) / 2:.3f}"
    if low > 0 or high < 0:
        return text
    return f"{text}, could show {detectable(gap.sd, gap.n, rows, reference=True):.3f}"


def main() -> None:
    kept = Kept()
    head = ["reward", "method", "rate", "score after", "minus GRPO", "explained", "CPU s"]
    for end in range(1, len(REWARDS) + 1):
        lines = [line for reward in list(REWARDS)[:end] for line in kept.block(reward)]
        runs = [run for seeds in kept.all.values() for run in seeds.values()]
        searched = sum(int(seed) in SEARCH for seeds in kept.all.values() for seed in seeds)
        cost = (
            f"The table is from {len(runs)} runs of {statistics.mean(r[1] for r in runs):.1f} CPU "
            f"seconds each, of which {searched} searched the rates."
        )
        put(PAGE, "outdated", f"{table(head, lines)}\n\n{cost}")


if __name__ == "__main__":
    main()
