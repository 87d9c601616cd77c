"""Does the exact diagnosis predict which lambda learns best? The study of docs/results.md, with its
choices as sliders: `marimo edit FILE`.

`python FILE` runs every cell once; `python FILE -- --seeds 2 --steps 2` at smaller sizes.
"""

import marimo

app = marimo.App(app_title="A study of lambda")


@app.cell
def _():
    import marimo as mo

    import rlzoo

    return mo, rlzoo


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # Which lambda learns best?

    `key_door`: the first token picks a key, noisy rewards follow, and the door pays 1 at the end if
    the key was right. Credit has to cross the noise. The world below has that shape and is small
    enough to visit every response.
    """)


@app.cell
def _(mo):
    lam = mo.ui.range_slider(
        0, 1, 0.1, value=(0.0, 1.0), label="lambda, from and to", show_value=True
    )
    critic = mo.ui.dropdown(
        {"V = 0, as a run starts": "zero", "exact V": "exact", "noisy V": "noisy"},
        value="V = 0, as a run starts",
        label="critic",
    )
    mo.hstack([lam, critic], justify="start")
    return critic, lam


@app.cell
def _(critic, lam, rlzoo):
    low, high = lam.value
    lams = sorted({low, (low + high) / 2, high})
    truth = rlzoo.diagnose(
        "ppo_gae",
        ["estimator=gae,grpo,rloo", "estimator.lam=" + ",".join(f"{x:g}" for x in lams)],
        world="key_noise",
        critic=critic.value,
        vocabulary=4,
        horizon=4,
        batches=[64],
    )
    truth
    return lams, truth


@app.cell
def _(mo, truth):
    best = max(truth["estimators"], key=lambda row: row["batches"]["64"]["cosine"])
    at = f" at lambda = {best['options']['lam']:g}" if "lam" in best["options"] else ""
    predicted = best["estimator"] + at
    mo.md(f"The gradient of 64 rows points truest with **{predicted}**.")
    return (predicted,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Train

    The same lambdas, each with the same seeds. The verdict names what so few seeds could have
    shown; the page of the study has ten and twenty.
    """)


@app.cell
def _(lams, mo, rlzoo):
    def size(name, default):
        """A number from the command line, after --."""
        return int(mo.cli_args().get(name) or default)

    learned = rlzoo.sweep(
        "ppo_gae",
        [
            "task=key_door",
            "model=nano",
            "estimator.lam=" + ",".join(f"{x:g}" for x in lams),
            "seed=" + ",".join(map(str, range(size("seeds", 3)))),
            f"train.steps={size('steps', 24)}",
            "rollout.prompts=16",
            "eval.every=0",
            "eval.samples=128",
        ],
        dir="runs/lambda",
    )
    learned
    return (learned,)


if __name__ == "__main__":
    app.run()
