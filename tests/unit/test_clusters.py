"""Intervals over prompts: a prompt that comes again is no second prompt."""

import json

import numpy as np
import pytest

import rlzoo
from rlzoo_lab.compare.eval.policy import evaluate_policy
from rlzoo_lab.stats import mean_over, share_over, t_interval, wilson


def test_different_prompts_with_one_response_each_have_the_plain_intervals():
    for n, right in ((10, 0), (10, 3), (37, 36), (20, 20)):
        shares = [1.0] * right + [0.0] * (n - right)
        assert share_over(shares, range(n)) == pytest.approx(wilson(right, n))
    values = [0.3, 1.0, -2.0, 0.5]
    assert mean_over(values, "abcd") == pytest.approx(tuple(t_interval(values)))


def test_a_prompt_that_comes_again_tells_nothing_new():
    # Greedy: the same prompt, the same response. Ten prompts are ten, however often they come.
    marks = [1.0, 0, 0, 0, 0, 0, 1.0, 1.0, 0, 0]
    assert share_over(marks * 100, list(range(10)) * 100) == pytest.approx(wilson(3, 10))
    plain = mean_over(marks, range(10))
    assert mean_over(marks * 100, list(range(10)) * 100) == pytest.approx(plain)
    # All right, or none: as many trials as prompts.
    assert share_over([1.0] * 1000, list(range(10)) * 100) == pytest.approx(wilson(10, 10))
    assert share_over([0.0] * 7, [0] * 7) == pytest.approx(wilson(0, 1))


def test_responses_to_a_prompt_that_are_alike_do_not_narrow_the_interval():
    alike = [1.0] * 6 + [0.0] * 14  # all 8 responses right, or none
    assert share_over(alike, range(20), 8) == pytest.approx(wilson(6, 20))
    # Prompts that do not differ: as many trials as responses.
    mixed = [0.25, 0.375] * 10
    assert share_over(mixed, range(20), 8) == pytest.approx(wilson(0.3125 * 160, 160))


@pytest.mark.parametrize(("prompts", "repeats"), [(10, 100), (60, 4)])
def test_the_intervals_cover_at_their_level(prompts, repeats):
    draw = np.random.default_rng(0)
    covered = plain = by_mean = 0
    clusters = list(range(prompts)) * repeats
    for _ in range(300):
        p = draw.random(prompts) ** 2  # mean 1/3, prompts differ much
        right = (draw.random((repeats, prompts)) < p).astype(float).ravel().tolist()
        low, high = share_over(right, clusters)
        covered += low <= 1 / 3 <= high
        low, high = mean_over(right, clusters)
        by_mean += low <= 1 / 3 <= high
        low, high = wilson(sum(right), len(right))
        plain += low <= 1 / 3 <= high
    assert 0.91 <= covered / 300 <= 0.99
    assert 0.90 <= by_mean / 300 <= 0.99
    assert plain / 300 < (0.6 if repeats > 4 else 0.9)  # what repeats taken for prompts would give


@pytest.fixture(scope="module")
def small(tmp_path_factory, model_dir):
    """A run on 13 rows, ten of them held out."""
    place = tmp_path_factory.mktemp("small")
    rows = [{"prompt": f"{i}+{i}=", "answer": str(2 * i)} for i in range(13)]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [
        *(f"model.path={model_dir}", "device=cpu", "task=dataset", f"task.path={place}/rows.jsonl"),
        *("task.test_fraction=.77", "eval.samples=64", "rollout.max_new_tokens=3"),
        *("rewards=[python]", "rewards.python.function=helpers.rewards_for_tests:letters"),
        *("train.steps=1", "rollout.prompts=4", "eval.every=0", f"run.dir={place}/run"),
    ]
    return rlzoo.run("grpo", words)


def test_a_small_file_gives_an_interval_over_its_prompts(small):
    from rlzoo.runs.evaluations import read_evaluation
    from rlzoo.runs.folder import RunFolder
    from rlzoo_lab.view.display.tables import before_and_after

    arrays = read_evaluation(small.path, 1)
    line = [m for m in small.metrics if "eval/score" in m][-1]
    assert (line["eval/samples"], line["eval/prompts"]) == (64, 10)
    assert len(set(arrays["index"].tolist())) == 10
    over = mean_over(arrays["score"].tolist(), arrays["index"].tolist())
    assert (line["eval/score_low"], line["eval/score_high"]) == pytest.approx(over, abs=1e-6)
    assert line["eval/accuracy_high"] >= wilson(0, 64)[1]  # none is right: 10 trials, not 64
    assert line["eval/accuracy_high"] == pytest.approx(wilson(0, 10)[1])
    assert small.summary["eval_prompts"] == 10
    title = before_and_after(small.summary, RunFolder(small.path))[0].text
    assert "64 samples of 10 prompts" in title


@pytest.mark.parametrize("greedy", [False, True])
def test_an_evaluation_of_it_does_too(small, greedy):
    from rlzoo_lab.compare.eval.command import blocks

    words = ["eval.top_k=1"] * greedy
    document, rows = evaluate_policy(str(small.path), words, ks=[1], responses=1)
    line = document["metrics"]
    over = mean_over([row["score"] for row in rows], [row["prompt"] for row in rows])
    assert (line["eval/score_low"], line["eval/score_high"]) == pytest.approx(over)
    assert line["eval/accuracy_high"] == pytest.approx(wilson(0, 10)[1])
    assert line["eval/prompts"] == 10
    assert "64 draws of 10 test prompts" in blocks(document)[0].text
    if greedy:  # the same prompt gets the same response
        assert len({(row["prompt"], row["response"]) for row in rows}) == 10


class Unnumbered:
    """Prompts without an index.  Source: this test."""

    def draw(self, split, n, generator):
        return [rlzoo.Example(f"{i % 3}:", str(i % 3)) for i in range(n)]

    def score(self, responses, terminated):
        return terminated.float()


def test_prompts_without_an_index_are_known_again_by_their_text(model_dir):
    from rlzoo.lm.build import build_policy, world_around
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan
    from rlzoo.rollout.evaluation import evaluate

    class Plugin:
        @rlzoo.hookimpl
        def register_tasks(self, register):
            register(Unnumbered)

    zoo = rlzoo.load_zoo([Plugin()])
    words = ["task=unnumbered", f"model.path={model_dir}", "device=cpu", "rollout.max_new_tokens=3"]
    recipe = compose(words, zoo, need_recipe=False)
    world = world_around(make_plan(recipe, zoo), build_policy(recipe.config))
    line, by_prompt = evaluate(world, 12)
    assert line["eval/prompts"] == 3
    index = by_prompt["index"].tolist()
    assert index[:3] * 4 == index
    assert len({i for i in index if i >= 0}) == 3


def test_a_difference_over_two_prompts_by_hand():
    # Mean 1/2, the mean's variance 1/4, one degree of freedom.
    from rlzoo_lab.stats import over_prompts

    mean, interval = over_prompts([np.array([0.0, 1.0])], [np.array([0, 1])])
    assert mean == 0.5
    assert interval.high - mean == pytest.approx(12.706205 / 2, rel=1e-5)
