"""Faults planted one at a time into a copy of the tree, and whether fast tests see them.

    python tests/benchmarks/mutants.py [name ...]

Each mutant names the test files that should kill it. A survivor is a hole in those tests.
"""

import compileall
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

HOME = Path(__file__).parents[2]
U, LAB = "tests/unit", "plugins/rlzoo_lab"

# file, old text (occurs once), new text, the tests that should kill it
MUTANTS = [
    ("rlzoo/recipe/compose.py", "_merge([layers[0], *_presets(layers), *layers[1:]])",
     "_merge([*layers[:-1], *_presets(layers), layers[-1]])", f"{U}/recipe/test_compose.py"),
    (f"{LAB}/stats/blocks.py", "max(math.sqrt(2) * sd, own)", "max(math.sqrt(2) * sd, 0.0)",
     "tests/lab/stats/test_block.py"),
    ("rlzoo/step/update.py", '"actor/ratio_mean": gap.exp()', '"actor/ratio_mean": (-gap).exp()',
     f"{U}/train/test_update.py"
     "::test_a_ratio_is_the_policy_over_the_old_one"),
    ("rlzoo/recipe/plan.py", "actor_from=train.critic_warmup if critic",
     "actor_from=train.critic_warmup + 1 if critic",
     f"{U}/recipe/test_compose.py"),
    ("rlzoo/recipe/words.py", 'if char == "," and depth == 0 and not quote:',
     'if char == "," and depth == 0:', f"{U}/recipe/test_compose.py"),
    ("rlzoo/plugin/call.py", 'result["returns"] = result["advantages"] + values',
     'result["returns"] = result["advantages"] - values', f"{U}/plugin/test_component.py"),
    ("rlzoo/plugin/registry.py", "STAGES.index(column.stage) > STAGES.index(stage)",
     "STAGES.index(column.stage) < STAGES.index(stage)", f"{U}/plugin/test_registry.py"),
    ("rlzoo/mdp/rules.py", "positions + 1 >= limit", "positions >= limit",
     f"{U}/mdp"),
    ("rlzoo/mdp/batch.py", "value = zero_off_mask(value, self[\"response_mask\"])", "pass",
     f"{U}/mdp"),
    ("rlzoo/mdp/noise.py", "counter=[0, 0, row, 0]", "counter=[row, 0, 0, 0]", f"{U}/mdp"),
    ("rlzoo/rollout/sample.py", "first_row + mine.start * samples", "first_row + mine.start",
     f"{U}/rollout/test_sample.py"
     "::test_a_ranks_rows_are_numbered_after_those_of_the_ranks_before"),
    ("rlzoo/mdp/rules.py", "right.to(ended.device) & ended", "right.to(ended.device)",
     f"{U}/rollout/test_evaluation.py"
     "::test_a_response_that_is_cut_off_is_not_right"),
    ("rlzoo/step/columns.py", "self.coef *= 1 + error", "self.coef *= 1 - error",
     f"{U}/rollout/test_advantages.py"
     "::test_the_kl_coefficient_rises_where_the_kl_is_above_its_target"),
    ("rlzoo/step/columns.py", 'batch["truncated"] & bootstrap', 'batch["terminated"] & bootstrap',
     f"{U}/rollout/test_columns.py"
     "::test_truncation_switch_sets_the_bootstrap"),
    ("rlzoo/step/update.py", "(step + 1) / config.lr_warmup", "step / config.lr_warmup",
     f"{U}/train/test_optimizer.py"),
    ("rlzoo/step/metrics.py", "((flat / counts[inverse]).sum() / len(counts))",
     "(flat.sum() / len(flat)).square()", f"{U}/train/test_invariant_metrics.py"
     "::test_groups_without_signal_are_counted_once_each"),
    ("rlzoo/accel/head.py", "d_logits.div_(how.temperature)", "d_logits.mul_(how.temperature)",
     f"{U}/lm/test_head.py"),
    ("rlzoo/accel/decode.py", "p.cumsum(-1) - p >= top_p", "p.cumsum(-1) >= top_p",
     f"{U}/lm/test_truncation.py"),
    ("rlzoo/lm/critic.py", "values[:, :-1]", "values[:, 1:]", f"{U}/lm/test_critic.py"),
    ("rlzoo/lm/prompts.py", "add_special_tokens=not chat", "add_special_tokens=chat",
     f"{U}/lm/test_prompts.py"
     "::test_text_gets_the_special_tokens_and_what_a_template_wrote_does_not"),
    ("rlzoo/accel/layout.py", "real + n_row < 0.95 * (full + width)",
     "real + n_row > 0.95 * (full + width)", f"{U}/accel"),
    ("rlzoo/accel/cache.py", "return self.seen if self.padded else None",
     "return None if self.padded else self.seen", f"{U}/accel"),
    ("rlzoo/train/checkpoint.py", 'or state["step"] != step_of(path)', "",
     f"{U}/train/test_checkpoint.py"),
    ("rlzoo/train/loop.py", "min(1.0, max(shares))", "min(1.0, sum(shares))",
     f"{U}/train/test_loop.py"
     "::test_the_limit_that_is_reached_first_ends_a_run"),
    ("rlzoo/train/stopping.py", "last[KL] > stop.max_kl", "last[KL] < stop.max_kl",
     f"{U}/train/test_stopping.py"),
    ("rlzoo/runs/folder.py", "int(found[1]) > step", "int(found[1]) >= step",
     f"{U}/runs/test_folder.py"),
    ("rlzoo/runs/lock.py", "if time.monotonic() >= end:", "if time.monotonic() >= end - 1:",
     f"{U}/runs/test_lock.py"),
    ("rlzoo/runs/provenance.py", "return added | dict(then)", "return dict(then) | added",
     f"{U}/runs/test_provenance.py"),
    ("rlzoo/format/numbers.py", "0 < abs(x) < 0.5 * 10**-digits", "0 < x < 0.5 * 10**-digits",
     f"{U}/format"),
    ("plugins/rlzoo_lab/stats/means.py", "variance += square * count / (count - 1)",
     "variance += square",
     f"{U}/test_clusters.py"
     "::test_a_difference_over_two_prompts_by_hand"),
    ("plugins/rlzoo_zoo/data.py", "sides[repr(prompt(row)) in held]", "sides[repr(row) in held]",
     "tests/zoo/test_data.py"),
]  # fmt: skip


def killed(tree: Path, file: str, old: str, new: str, tests: str) -> bool:
    """Whether one of `tests` fails with the mutant in the copy `tree`."""
    path = tree / file
    text, status = path.read_text(), path.stat()
    if text.count(old) != 1:
        raise SystemExit(f"{file}: {old!r} occurs {text.count(old)} times, not once")
    path.write_text(text.replace(old, new))
    os.utime(path, (1, 1))  # a time of its own, so that no compiled file of the original serves
    try:
        child = os.fork()
        if child == 0:
            os._exit(_run(tree, tests.split()))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    finally:
        path.write_text(text)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _run(tree: Path, tests: list[str]) -> int:
    import pytest

    os.chdir(tree)
    where = [str(tree), str(tree / "plugins")]
    sys.path[:0] = where
    os.environ["PYTHONPATH"] = os.pathsep.join(where)
    sys.dont_write_bytecode = True
    with open(tree / "said", "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        code = pytest.main(["-x", "-q", "-n", "0", "-m", "not process", "-p", "no:cacheprovider",
                            *tests])  # fmt: skip
        sys.stdout.flush()
    return int(code)


def main(names: list[str]) -> int:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch  # noqa: F401  # once, for all that are forked off
    import transformers  # noqa: F401

    chosen = [m for m in MUTANTS if not names or any(name in m[0] for name in names)]
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "tree"
        leave = shutil.ignore_patterns(".git", ".venv", "__pycache__", "runs_*", ".*_cache")
        shutil.copytree(HOME, tree, ignore=leave, symlinks=True)
        for part in ("rlzoo", "plugins"):
            compileall.compile_dir(tree / part, quiet=1)
        survived = 0
        for file, old, new, tests in chosen:
            began = time.perf_counter()
            dead = killed(tree, file, old, new, tests)
            survived += not dead
            word = "killed" if dead else "SURVIVED"
            seconds = time.perf_counter() - began
            print(f"{word:8} {seconds:5.1f} s  {file}: {old} -> {new}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} killed")
    return survived > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
