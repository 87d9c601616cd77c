"""Which losses survive samples of an older policy? The study of docs/results.md, with its choices
as controls: `marimo edit FILE`.

`python FILE` runs every cell once; `python FILE -- --steps 2` at a smaller size.
"""

import marimo

app = marimo.App(app_title="A study of stale samples")


@app.cell
def _():
    import marimo as mo

    import rlzoo

    return mo, rlzoo


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # Stale samples

    Where generation and training run side by side, a batch comes from an older policy. With
    `rollout.staleness=k`, step s trains on samples of the policy from k steps before.
    """)


@app.cell
def _(mo):
    staleness = mo.ui.slider(0, 16, 4, value=4, label="staleness, in steps", show_value=True)
    rate = mo.ui.dropdown(["1e-4", "1e-3"], value="1e-3", label="learning rate")
    mo.hstack([staleness, rate], justify="start")
    return rate, staleness


@app.cell
def _(mo, rate, rlzoo, staleness):
    LOSSES = {
        "as if fresh": "policy_loss=ppo_clip",
        "PPO's ratio to the sampler": "policy_loss=ppo_clip rollout.old_log_probs=sampled",
        "TIS": "policy_loss=ppo_clip correction=tis",
    }
    steps = int(mo.cli_args().get("steps") or 40)
    words = [
        "model=blind",
        "task=marks",
        "kl.place=none",
        f"train.steps={steps}",
        "train.minibatches=1",
        "rollout.prompts=16",
        "rollout.samples=4",
        "eval.samples=128",
        f"actor.lr={rate.value}",
        f"rollout.staleness={staleness.value}",
    ]

    def train(loss):
        """(accuracy after training, the gap of each step between sampler and policy, in nats)."""
        trainer = rlzoo.open_recipe("grpo", [*words, *LOSSES[loss].split()])
        gaps = []
        while trainer.steps < steps:
            _, metrics = trainer.step(trainer.steps / steps)
            gaps.append(metrics["sampler/log_prob_gap"])
        return trainer.evaluate()["eval/accuracy"], gaps

    trained = {loss: train(loss) for loss in LOSSES}
    return (trained,)


@app.cell
def _(mo, trained):
    rows = [
        {"loss": loss, "accuracy": round(accuracy, 3), "last gap, nats": round(gaps[-1], 4)}
        for loss, (accuracy, gaps) in trained.items()
    ]
    mo.ui.table(rows, selection=None)
    return (rows,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    One seed is an anecdote. Over ten, at the fast learning rate, only PPO's ratio to the sampler
    prevents collapse. Set the staleness to 0, or the rate to 1e-4: does the order change?
    """)


if __name__ == "__main__":
    app.run()
