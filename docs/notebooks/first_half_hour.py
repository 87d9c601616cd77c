"""The first half hour, where a moved slider runs what depends on it: `marimo edit FILE`.

As a script, `python FILE` runs every cell once; `python FILE -- --steps 2 --samples 16 --prompts 2`
at smaller sizes.
"""

import marimo

app = marimo.App(app_title="The first half hour")


@app.cell
def _():
    import os
    from pathlib import Path
    from textwrap import dedent

    import marimo as mo

    import rlzoo

    return Path, dedent, mo, os, rlzoo


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    # The first half hour

    Train a small language model by PPO, look at the run, compare it with another, find out why they
    differ, and train with your own estimator. Two CPU cores are enough; nothing is downloaded.
    """)


@app.cell
def _(mo):
    def size(name, default):
        """A number from the command line, after --."""
        return int(mo.cli_args().get(name) or default)

    steps, samples, prompts = size("steps", 24), size("samples", 256), size("prompts", 16)
    small = [
        "model=speller",
        "task=spelling",
        f"train.steps={steps}",
        f"eval.samples={samples}",
        f"rollout.prompts={prompts}",
    ]
    return (small,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Train

    The model writes each letter of the prompt three times. Whether small or capital is right is
    fixed for each letter and never shown; a right word pays 1/8 when its third letter is written.
    """)


@app.cell
def _(rlzoo, small):
    gae = rlzoo.run("ppo_gae", [*small, "estimator.lam=0.8", "run.dir=runs/gae"], display=False)
    gae
    return (gae,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## One response, token by token

    Blue tokens become more likely, orange tokens less likely. Move lambda: the advantages of the
    same saved response follow.
    """)


@app.cell
def _(mo):
    lam = mo.ui.slider(0, 1, 0.05, value=0.8, label="lambda", show_value=True)
    lam
    return (lam,)


@app.cell
def _(gae, lam):
    traced = gae.trace(1, estimator="gae", lam=lam.value)
    traced
    return (traced,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Compare

    GRPO needs no critic: it compares the answers to the same prompt with each other. Both runs have
    the same seed, so they saw the same prompts.
    """)


@app.cell
def _(gae, rlzoo, small):
    grpo = rlzoo.run("grpo", [*small, "run.dir=runs/grpo"], display=False)
    compared = rlzoo.compare(gae, grpo)
    compared
    return compared, grpo


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Why

    In a world small enough to visit every response, the bias and variance of an estimator are known
    exactly, and so is the cosine between its gradient and the true one (`cos`).
    """)


@app.cell
def _(rlzoo):
    truth = rlzoo.diagnose(
        "ppo_gae",
        ["estimator=gae,mc,grpo"],
        world="dense",
        horizon=4,
        vocabulary=4,
        batches=[16, 256],
    )
    truth
    return (truth,)


@app.cell
def _(gae):
    found = gae.doctor()
    found
    return (found,)


@app.cell(hide_code=True)
def _(mo):
    mo.md("""
    ## Your own estimator

    One function in one file. Its parameters declare what it needs; it returns a number for each
    token. This one gives a token the rewards that come soon after it, and needs no critic.
    """)


@app.cell
def _(Path, dedent, os):
    source = '''
    """Near: the rewards that come soon after a token."""

    from typing import Annotated

    from rlzoo import Range, component
    from rlzoo.ops import reward_to_go


    @component("estimator")
    def near(rewards, response_mask, *, decay: Annotated[float, Range(0, 1)] = 0.7):
        """A_t = sum_k decay^k r_{t+k}, over action tokens, (B, T).

        It fails when rewards come late: what is k tokens away counts decay^k.
        Source: the documentation of rlzoo.
        """
        return reward_to_go(rewards, response_mask, gamma=decay)
    '''
    Path("near.py").write_text(dedent(source).lstrip())
    os.environ["RLZOO_PLUGINS"] = "near.py"
    plugin = "near.py"
    return (plugin,)


@app.cell
def _(plugin, rlzoo):
    checked = rlzoo.check("near")
    assert checked.status == 0, (plugin, checked)
    [line["name"] for line in checked if line["passed"]]
    return (checked,)


@app.cell
def _(checked, gae, grpo, rlzoo, small):
    assert checked.status == 0
    near = rlzoo.run("ppo_gae", [*small, "estimator=near", "run.dir=runs/near"], display=False)
    all_three = rlzoo.compare(gae, grpo, near)
    all_three
    return (all_three,)


if __name__ == "__main__":
    app.run()
