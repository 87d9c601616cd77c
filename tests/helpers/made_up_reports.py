"""Run folders as `rlzoo report` reads them: any number of steps, saved batches with any texts."""

import json
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf
from safetensors.numpy import save_file

import rlzoo

HOSTILE = (
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\" onmouseover='document.title=1' x=\"",
    "a\x00b\x1b[31mred\x07\x7f\x85",
    "\u202etxet desrever\u202c \u200f\u2067 \u05d0\u05d1",
    "<!-- --> & &lt; ]]> \u2028 \u2029 `${document.title='owned'}`",
    "lone \ud800 surrogate",
    "javascript:document.title='owned'",
)


def made_up_report_run(path, *, steps=20, finished=True, batches=2, groups=3, samples=4, tokens=12,
                       texts=("12+7=",), vocabulary=50, name="gae", seed=0, extra=(),
                       options=None):  # fmt: skip
    """A folder with metrics of `steps` steps, and of the last `batches` of them each token's
    numbers. `texts` are its prompts, responses, answers, tokens, and names of metrics by turns.
    `options` are the estimator's in its recipe."""
    rng = np.random.default_rng(seed)
    path.mkdir(parents=True)
    tree = {
        "seed": 0, "task": {"name": texts[0]}, "model": {"name": "tiny"},
        "estimator": {"name": name, **(options or {})}, "rewards": {"verifier": {"weight": 1.0}},
        "train": {"steps": steps}, "rollout": {"samples": samples, "prompts": groups},
    }  # fmt: skip
    told = OmegaConf.to_yaml(OmegaConf.create(json.loads(json.dumps(tree))))
    (path / "recipe.yaml").write_bytes(b"# made_up\n" + told.encode("utf-8", "backslashreplace"))
    with open(path / "metrics.jsonl", "w") as file:
        for step in range(steps + 1):
            share = step / max(1, steps)
            if step:
                line = {"step": step, "reward/mean": share + 0.2 * rng.normal(),
                        "score/std": 0.4, "response_length/mean": 9 + rng.normal(),
                        "response_length/min": 2, "response_length/max": 16,
                        "actor/entropy": 1.2 - share, "actor/grad_norm": rng.gamma(2),
                        "group/no_signal": share, "train/skipped": int(step == steps // 2),
                        "perf/tokens": 1000 * step, "perf/seconds": 2.0 * step}  # fmt: skip
                line |= {f"actor/{e}": float(rng.normal()) for e in extra}
                file.write(json.dumps(line) + "\n")
            if step % max(1, steps // 5) == 0:
                ends = {"low": 0.9 * share, "high": 0.9 * share + 0.1}
                line = {"step": step, "eval/accuracy": share}
                line |= {f"eval/accuracy_{name}": end for name, end in ends.items()}
                file.write(json.dumps(line) + "\n")
    with open(path / "samples.jsonl", "w") as file:
        for step in range(1, steps + 1):
            for i in range(2):
                text = texts[(step + i) % len(texts)]
                sample = {"step": step, "prompt": text, "response": text, "answer": text,
                          "score": 1.0, "truncated": False}  # fmt: skip
                file.write(json.dumps(sample) + "\n")
    (path / "batches").mkdir()
    for step in range(steps - batches + 1, steps + 1):
        _save(path / "batches" / f"step-{step:08d}.safetensors", rng, groups, samples, tokens,
              texts, vocabulary)  # fmt: skip
    if finished:
        summary = {"eval_metric": "accuracy", "eval_after": 1.0, "steps": steps}
        (path / "summary.json").write_text(json.dumps(summary))
    return path


def _save(file, rng, groups, samples, tokens, texts, vocabulary):
    rows = groups * samples
    lengths = rng.integers(max(1, tokens // 2), tokens + 1, rows)
    mask = (np.arange(tokens) < lengths[:, None]).astype("float32")

    def numbers(scale=1.0):
        return (scale * rng.normal(size=mask.shape) * mask).astype("float32")

    scores = rng.integers(0, 2, rows).astype("float32")
    scores[:samples] = 1.0  # a flat group
    group_ids = np.repeat(np.arange(groups), samples)
    old = -np.abs(numbers())
    columns = {
        "response_mask": mask, "response_attention": mask, "group_ids": group_ids,
        "response_ids": rng.integers(0, vocabulary, mask.shape),
        "sequence_scores": scores, "advantages": numbers(), "raw_advantages": numbers(),
        "values": numbers(), "rewards": numbers(), "returns": numbers(),
        "old_log_probs": old, "sampler_log_probs": old, "ref_log_probs": old + numbers(0.1),
        "log_probs": old + numbers(0.05), "entropy": np.abs(numbers()),
        "truncated": lengths == tokens, "bootstrap_values": numbers()[:, 0],
    }  # fmt: skip
    save_file(columns, file)
    of_group = [texts[g % len(texts)] for g in group_ids]
    lists = {"prompts": of_group, "answers": of_group,
             "responses": [texts[r % len(texts)] for r in range(rows)],
             "token_texts": {i: texts[i % len(texts)] if len(texts) > 1 else f"t{i}"
                             for i in range(vocabulary)}}  # fmt: skip
    file.with_suffix(".json").write_text(json.dumps(lists))


def page_of(run, out=None):
    """Where the page of a run lies that is written now."""
    return Path(rlzoo.report(run, out)["report"])
