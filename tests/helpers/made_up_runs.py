"""Run folders with known scores: what compare's tests read."""

import json

import numpy as np
from omegaconf import OmegaConf


def made_up_run(path, *, seed, after, before=0.3, steps=6, every=2, recipe="ppo_gae", finished=True,
                kl=0.5, **config):  # fmt: skip
    """A run folder whose held-out score goes in a line from `before` to `after`."""
    path.mkdir(parents=True)
    tree = OmegaConf.create(
        {
            "seed": seed,
            "run": {"dir": str(path)},
            "rewards": {"verifier": {"weight": 1.0}},
            "task": {"name": "addition", "digits": 2},
            "estimator": {"name": "gae", "gamma": 1.0, "lam": 0.95},
            "train": {"steps": steps, "tokens": None, "minutes": None},
            "eval": {"every": every, "samples": 1024},
        }
    )
    for key, value in config.items():
        OmegaConf.update(tree, key.replace("__", "."), value, merge=False)
    (path / "recipe.yaml").write_text(f"# {recipe}\n" + OmegaConf.to_yaml(tree))

    def score(step):
        return before + (after - before) * step / steps

    lines = []
    for step in range(steps + 1):
        if step:
            lines.append({"step": step, "reward/mean": score(step) - 0.05,
                          "perf/tokens": 1000 * step, "actor/ref_kl_per_response": kl})  # fmt: skip
        if step % every == 0 or step == steps:
            lines.append({"step": step, "eval/accuracy": score(step), "eval/response_length": 4.0})
    (path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    if finished:
        summary = {"task": tree.task.name, "eval_metric": "accuracy", "eval_before": before,
                   "eval_after": after, "steps": steps, "tokens": 1000 * steps,
                   "seconds": 10.0}  # fmt: skip
        (path / "summary.json").write_text(json.dumps(summary))
    return path


def made_up_rows(folder, rows, seeds, *, noise=0.02, paired_noise=0.05, **more):
    """rows: {name: (mean, {config key: value})}. Seeds share a level, as paired runs do."""
    rng = np.random.default_rng(3)
    level = paired_noise * rng.normal(size=seeds)
    paths = []
    for name, (mean, config) in rows.items():
        for seed in range(seeds):
            after = float(np.clip(mean + level[seed] + noise * rng.normal(), 0, 1))
            path = folder / f"{name}--seed{seed}"
            paths.append(made_up_run(path, seed=seed, after=after, **(more | config)))
    return paths


def made_up_sweep(folder, rows, seeds, *, labelled=True, failed=()):
    """A sweep's folder. rows: {label: (mean, {dotted key: value})}; all runs of `failed` failed."""
    index = []
    for label, (mean, values) in rows.items():
        config = {k.replace(".", "__"): v for k, v in values.items()}
        made_up_rows(folder, {label: (mean, config)}, seeds)
        runs = [f"{label}--seed{seed}" for seed in range(seeds)]
        for name in runs if label in failed else ():
            (folder / name / "summary.json").unlink()
            (folder / name / "failed.json").write_text(json.dumps({"reason": "out of luck"}))
        named = {"label": label, "values": values} if labelled else {}
        index.append({**named, "words": [], "runs": runs})
    keys = list(dict.fromkeys(k for _, values in rows.values() for k in values))
    index = {"words": [], "keys": keys, "rows": index}
    (folder / "sweep.json").write_text(json.dumps(index))
    return folder
