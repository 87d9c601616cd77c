"""Train on samples of a sampler that disagrees, by nine losses: the table of docs/results.md.

    python docs/studies/mismatch.py    about 12 CPU minutes; resumes where it stopped

The runs are those of docs/studies/staleness.py with fresh samples and `sampler=rounded` or a cut
one; results land in runs/mismatch.jsonl. The text around the table stays.
"""

import json
import statistics
from collections.abc import Iterator

import staleness
from common import DOCS, put, recorded, table
from rlzoo import load_zoo
from rlzoo_lab.stats import mean_interval

PAGE, RESULTS = DOCS / "results.md", DOCS.parent / "runs" / "mismatch.jsonl"
REPLAYED = "kept tokens replayed"
SAMPLERS = {
    "the policy": "",
    "4 bits": "sampler=rounded sampler.bits=4",
    "noise 0.3": "sampler=rounded sampler.bits=null sampler.noise=0.3",
    "top-p 0.9": "rollout.top_p=0.9",
}
LATE = ("M2PO", "IPO", "V-trace")  # of stale samples
LOSSES = {name: words for name, words in staleness.LOSSES.items() if name not in LATE}
LOSSES[REPLAYED] = "policy_loss=ppo_clip rollout.replay=kept"
SAME = ("PPO's ratio to the sampler", "IcePop", "rejection")  # IcePop: what TIS is
FRESH = next(iter(LOSSES))


def words_of(sampler: str, loss: str, seed: int) -> str:
    return f"{staleness.COMMON} {LOSSES[loss]} {SAMPLERS[sampler]} seed={seed}".strip()


def rows_wanted() -> Iterator[tuple[str, str]]:
    """(sampler, loss); where both agree the losses make one update of the same samples."""
    for sampler, words in SAMPLERS.items():
        for loss in LOSSES if words else [FRESH]:
            cut = "top_p" in words  # others keep all tokens; here some losses are what `none` is
            unfit = loss in SAME or "centering" in loss if cut else loss == REPLAYED
            if not unfit:
                yield sampler, loss


def line(sampler: str, loss: str, found: list[dict]) -> list[str]:
    ends = [row["sampled"] for row in found]
    low, high = mean_interval(ends)
    apart = sum(x < staleness.BEFORE / 2 for x in ends)
    gap = statistics.mean(row["gap"] for row in found)
    name = loss if SAMPLERS[sampler] else "any"
    mean = f"{statistics.mean(ends):.3f} [{low:.2f}, {high:.2f}]"
    collapsed = f"{apart}/{len(found)}"
    return [sampler, name, mean, collapsed, f"{gap:.2f}"]


def main() -> None:
    rows = {row["words"]: row for row in recorded(RESULTS)}
    zoo = load_zoo()
    with RESULTS.open("a") as file:
        for seed in staleness.SEEDS:
            for sampler, loss in rows_wanted():
                words = words_of(sampler, loss, seed)
                if words not in rows:
                    rows[words] = staleness.trained(words, zoo)
                    print(json.dumps(rows[words]), file=file, flush=True)
    head = ["sampler", "loss", "accuracy, 95 %", "collapsed", "gap in nats"]
    lines = []
    for sampler, loss in rows_wanted():
        found = [rows[words_of(sampler, loss, seed)] for seed in staleness.SEEDS]
        lines.append(line(sampler, loss, found))
    put(PAGE, "mismatch", table(head, lines))


if __name__ == "__main__":
    main()
