"""Comparisons that would mislead: refused, or named in the verdict. And what the verdict tells
apart: methods over seeds, these runs over prompts."""

import csv
import json
import re
import shutil

import numpy as np
import pytest
from rich.console import Console

from helpers.made_up_runs import made_up_run
from rlzoo.errors import UsageError
from rlzoo.runs.evaluations import write_evaluation
from rlzoo.runs.folder import RunFolder
from rlzoo_lab.compare.command import document, frame
from rlzoo_lab.compare.comparison import compare
from rlzoo_lab.compare.tables import blocks, final
from rlzoo_lab.compare.verdict import verdict
from rlzoo_lab.data.record import read_record
from rlzoo_lab.view.terminal import rendered
from rlzoo_lab.view.texts import Shown, as_csv, text_of

EVAL = {"every": 2, "samples": 1024, "temperature": 1.0, "top_k": 0, "top_p": 1.0,
        "max_new_tokens": None}  # fmt: skip
ROLLOUT = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 8}


def rows(folder, ends, **config):
    """Runs of one row: name -> its final scores by seed."""
    for seed, after in enumerate(ends):
        place = folder / f"{config.get('name', 'a')}-{seed}"
        more = {k: v for k, v in config.items() if k != "name"}
        made_up_run(place, seed=seed, after=after, **({"rollout": ROLLOUT, "eval": EVAL} | more))


def by_score(folder):
    """Make every run one whose headline is the score."""
    for path in folder.glob("*/summary.json"):
        summary = json.loads(path.read_text()) | {"eval_metric": "score"}
        path.write_text(json.dumps(summary))
        lines = path.with_name("metrics.jsonl")
        lines.write_text(lines.read_text().replace("eval/accuracy", "eval/score"))


def swept(folder, key):
    """Make the folder a sweep over `key`."""
    labels = sorted({p.name.split("-")[0] for p in folder.iterdir()})
    runs = {name: sorted(p.name for p in folder.glob(f"{name}-*")) for name in labels}
    index = [{"label": n, "values": {key: n}, "words": [], "runs": runs[n]} for n in labels]
    (folder / "sweep.json").write_text(json.dumps({"words": [], "keys": [key], "rows": index}))


LOW, HIGH = [0.31, 0.33, 0.30, 0.32, 0.34], [0.95, 0.96, 0.94, 0.97, 0.95]


@pytest.mark.parametrize(
    ("config", "named"),
    [
        # of old folders, whose evaluations decoded as their rollouts did
        ({"eval": {"every": 2, "samples": 1024}, "rollout": ROLLOUT | {"temperature": 0.05}},
         "eval.temperature"),
        ({"eval": EVAL | {"temperature": 0.05}}, "eval.temperature"),
        ({"eval": EVAL | {"top_p": 0.5}}, "eval.top_p"),
        ({"eval": EVAL | {"top_k": 1}}, "eval.top_k"),
        ({"rollout": ROLLOUT | {"max_new_tokens": 16}}, "eval.max_new_tokens"),
        ({"eval": EVAL | {"max_new_tokens": 16}}, "eval.max_new_tokens"),
        ({"sampler": {"name": "vllm"}}, "sampler"),
        ({"model": {"name": "nano"}}, "model"),
        ({"model": {"name": "tiny", "system": "Think."}}, "model.system"),
        ({"model": {"name": "tiny", "chat_args": {"think": False}}}, "model.chat_args"),
    ],
)  # fmt: skip
def test_other_decoding_sampler_or_model_is_refused_or_named(tmp_path, config, named):
    base = {"model": {"name": "tiny"}, "sampler": {"name": "transformers"}}
    rows(tmp_path, LOW, name="a", **base)
    rows(tmp_path, HIGH, name="b", **(base | config))
    with pytest.raises(UsageError, match=f"runs with different {named} cannot be compared"):
        compare([tmp_path])
    said = verdict(compare([tmp_path], force=True))
    assert said[0].startswith(f"The rows are not on one scale ({named}: ")
    assert "beats" not in " ".join(said)
    assert "scores above" in said[1]


def test_training_may_sample_as_it_likes(tmp_path):
    """Rollouts at another temperature are a method; evaluations are at one temperature."""
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, HIGH, name="b", rollout=ROLLOUT | {"temperature": 0.7, "top_p": 0.9})
    c = compare([tmp_path])
    assert not c.named
    assert "temperature=0.7" in verdict(c)[0]
    # a wrapped sampler decodes evaluations by the one that it wraps
    rows(tmp_path / "s", HIGH, name="c", sampler={"name": "transformers"})
    rows(tmp_path / "s", LOW, name="d", sampler={"name": "dynamic", "inner": "transformers"})
    assert not compare([tmp_path / "s"]).named


@pytest.mark.parametrize(
    "config",
    [
        {"rewards": {"verifier": {"weight": 10.0}}},
        {"rewards": {"verifier": {"weight": 1.0}, "regex": {"weight": 1.0}}},
        {"rollout": ROLLOUT | {"truncation": "penalty", "truncation_penalty": 1.0}},
    ],
)
def test_scores_of_other_rewards_are_refused_or_named(tmp_path, config):
    base = {"rollout": ROLLOUT | {"truncation": "zero", "truncation_penalty": 0.0}}
    rows(tmp_path, LOW, name="a", **base)
    rows(tmp_path, [10 * x for x in LOW], name="b", **(base | config))
    assert not compare([tmp_path]).named  # accuracy does not know of rewards
    by_score(tmp_path)
    with pytest.raises(UsageError, match="runs with different r(ewards|ollout.truncation)"):
        compare([tmp_path])
    assert "not on one scale" in verdict(compare([tmp_path], force=True))[0]


def test_a_nan_is_no_score(tmp_path):
    """It would be the largest, and the surest, of all."""
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, [*HIGH[:4], float("nan")], name="b", whiten="none")
    c = compare([tmp_path])
    said = " ".join(verdict(c))
    assert [len(row.seeds) for row in c.rows] == [5, 4]
    assert "has 1 failed runs of 5 (its final accuracy is nan)" in said
    assert "beats" not in said
    assert "is not a valid claim" in said
    assert "?" in "".join(str(x) for x in printed(c).splitlines()[3:8])
    rows(tmp_path / "all", [float("nan")] * 3, name="c")
    with pytest.raises(UsageError, match="its final accuracy is nan"):
        compare([tmp_path / "all"])


def test_failed_runs_are_in_the_verdict(tmp_path):
    """The three hard seeds of a row crash: what is left of it looks best."""
    hard = [0.80, 0.90, 0.91, 0.92, 0.90]
    rows(tmp_path, hard, name="a")
    rows(tmp_path, [0.0, 0.93, 0.94, 0.95, 0.932], name="b", whiten="none")
    (tmp_path / "b-0" / "summary.json").unlink()
    (tmp_path / "b-0" / "failed.json").write_text(json.dumps({"reason": "out of memory"}))
    swept(tmp_path, "whiten")
    c = compare([tmp_path])
    said = verdict(c)
    assert c.pairs[0].shown
    assert "beats" not in " ".join(said)
    assert said[-1].startswith("b has 1 failed runs of 5 (out of memory)")
    assert "its lead over a (+0.030 " in said[-1]
    # against a row that lost runs a claim stands, and is said to be of the seeds left
    rows(tmp_path / "w", HIGH, name="c")
    rows(tmp_path / "w", LOW, name="d", whiten="none")
    (tmp_path / "w" / "d-0" / "summary.json").unlink()
    (tmp_path / "w" / "d-0" / "failed.json").write_text(json.dumps({"reason": "bad luck"}))
    swept(tmp_path / "w", "whiten")
    said = verdict(compare([tmp_path / "w"]))
    assert "c beats d" in said[0]
    assert "d has 1 failed runs of 5" in said[1]


def test_a_row_that_collapses_is_not_averaged(tmp_path):
    rows(tmp_path, [0.77, 0.78, 0.76, 0.77, 0.775], name="a")
    rows(tmp_path, [0.95, 0.05, 0.94, 0.96, 0.95], name="b", whiten="none")
    c = compare([tmp_path])
    said = " ".join(verdict(c))
    row = c.rows[1]
    assert row.split == [1]
    assert final(row) == "0.950 x4 | 0.050 x1"
    assert "is bimodal: 1 of 5 seeds end at 0.050, the others at 0.940 to 0.960" in said
    assert "beats" not in said
    assert "indistinguishable" not in said
    # and if what fell apart leads for sure, that is no claim
    rows(tmp_path / "w", [0.1, 0.11, 0.1, 0.12, 0.1, 0.11, 0.1, 0.1], name="c")
    rows(tmp_path / "w", [0.5, 0.95, 0.94, 0.96, 0.95, 0.95, 0.95, 0.95], name="d", whiten="none")
    c = compare([tmp_path / "w"])
    assert c.pairs[0].shown
    assert "beats" not in " ".join(verdict(c))
    assert "is not a valid claim" in " ".join(verdict(c))


def test_healthy_rows_do_not_fall_apart(tmp_path):
    rng = np.random.default_rng(0)
    for i, sd in enumerate((0.01, 0.03, 0.06)):
        for k in range(2):
            rows(tmp_path / f"{i}", np.clip(0.7 + sd * rng.normal(size=5), 0, 1), name=f"{k}",
                 whiten=f"{k}")  # fmt: skip
        assert not any(row.split for row in compare([tmp_path / f"{i}"]).rows)


# ---------------------------------------------------------------- by prompt


def with_prompts(folder, p_of, n=1024):
    """Give every run results by prompt: right with probability p_of(row, seed)."""
    for path in sorted(folder.iterdir()):
        name, seed = path.name.split("-")
        rng = np.random.default_rng(int(seed))
        luck = rng.random(n)  # of a seed, shared by its rows
        right = (luck < p_of(name, int(seed))).astype(np.uint8)
        index = rng.permutation(n)
        arrays = {
            "index": index,
            "prompt": index.astype(np.uint32),
            "score": right.astype(np.float32),
            "right": right,
        }
        write_evaluation(RunFolder(path), 6, arrays)


def printed(c, **how):
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in rendered(blocks(c, **how), console):
        console.print(part)
    return console.export_text()


def test_methods_over_seeds_and_runs_over_prompts_are_told_apart(tmp_path):
    """Two seeds whose runs differ beyond doubt, and a method of which that says little."""
    ends = {"a": [0.40, 0.80], "b": [0.45, 0.99]}
    rows(tmp_path, ends["a"], name="a")
    rows(tmp_path, ends["b"], name="b", whiten="none")
    with_prompts(tmp_path, lambda row, seed: ends[row][seed])
    c = compare([tmp_path])
    method, runs = verdict(c)
    assert "is indistinguishable from" in method
    assert runs == (
        "On these prompts, the runs of ppo_gae score below those of whiten=none. This does not "
        "hold for other seeds."
    )
    pair = document(c)["pairs"][0]
    assert pair["these_runs"]["difference"] == pytest.approx(-0.12, abs=0.02)
    assert pair["these_runs"]["interval"].high < 0 < pair["interval"].high
    assert 0 < pair["sampling_share"] < 0.05
    assert "these runs (prompts)" in printed(c, details=True)
    assert "these runs (prompts)" not in printed(c)


def test_other_prompts_in_a_seed_are_not_paired(tmp_path):
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, HIGH, name="b", whiten="none")
    with_prompts(tmp_path, lambda *_: 0.5)
    arrays = {"index": np.arange(4), "prompt": np.arange(4, dtype=np.uint32)}
    write_evaluation(RunFolder(tmp_path / "b-3"), 6, arrays | {"score": np.ones(4, np.float32)})
    with pytest.raises(UsageError, match="held-out prompts"):
        compare([tmp_path])
    assert "On these prompts" not in " ".join(verdict(compare([tmp_path], force=True)))


def test_row_numbers_are_no_prompts(tmp_path):
    """Another file under the same name: the numbers agree, the questions do not."""
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, HIGH, name="b", whiten="none")
    for path in tmp_path.iterdir():
        prompt = np.arange(64, dtype=np.uint32) + 1000 * path.name.startswith("b")
        arrays = {"index": np.arange(64), "score": np.ones(64, np.float32)}
        write_evaluation(RunFolder(path), 6, arrays | {"prompt": prompt})
    with pytest.raises(UsageError, match="held-out prompts"):
        compare([tmp_path])
    for path in tmp_path.iterdir():  # of a run from before there were checksums
        write_evaluation(RunFolder(path), 6, arrays)
    c = compare([tmp_path])
    assert c.pairs[0].runs is None
    assert any(note.startswith("not compared") and "prompts" in note for note in c.notes)


def made_of(folder, name, **part):
    """Give a row's runs a provenance."""
    for path in folder.glob(f"{name}-*"):
        (path / "provenance.json").write_text(json.dumps([part]))


def test_other_weights_under_the_same_name_are_refused(tmp_path):
    rows(tmp_path, LOW, name="a", model={"name": "nano", "path": "x"})
    rows(tmp_path, HIGH, name="b", model={"name": "nano", "path": "y"}, whiten="none")
    with pytest.raises(UsageError, match="model.path"):
        compare([tmp_path])
    made_of(tmp_path, "a", weights="12")
    made_of(tmp_path, "b", weights="12")
    assert not compare([tmp_path]).named  # the same model in two places
    made_of(tmp_path, "b", weights="34")
    with pytest.raises(UsageError, match="model"):
        compare([tmp_path])
    assert any("12" in x and "34" in x for x in compare([tmp_path], force=True).named)


def test_an_edited_task_or_reward_is_refused_and_an_edited_estimator_noted(tmp_path):
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, HIGH, name="b", whiten="none")
    code = {"task t": "x, source 1", "rewards.r r": "x, source 2", "estimator e": "x, source 3"}
    made_of(tmp_path, "a", components=code)
    made_of(tmp_path, "b", components=code | {"estimator e": "elsewhere, source 4"})
    c = compare([tmp_path])
    assert not c.named
    assert any("estimator e" in note for note in c.notes)
    made_of(tmp_path, "b", components=code | {"task t": "x, source 9"})
    with pytest.raises(UsageError, match="source of task t"):
        compare([tmp_path])
    made_of(tmp_path, "b", components=code | {"rewards.r r": "x, source 9"})
    assert not compare([tmp_path]).named  # accuracy does not know of rewards
    by_score(tmp_path)
    with pytest.raises(UsageError, match=r"source of rewards\.r r"):
        compare([tmp_path])


def test_more_tokens_are_not_a_better_method(tmp_path):
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, HIGH, name="b", whiten="none")
    assert not compare([tmp_path]).named
    for path in tmp_path.glob("b-*/summary.json"):
        summary = json.loads(path.read_text())
        path.write_text(json.dumps(summary | {"tokens": 16 * summary["tokens"]}))
    c = compare([tmp_path])
    assert "16.0 times" in c.named[0]
    assert "beats" not in " ".join(verdict(c))


def test_a_row_much_wider_than_the_other_needs_more_than_a_t_test(tmp_path):
    rows(tmp_path, [0.90, 0.86, 0.84, 0.92, 0.85], name="a")
    rows(tmp_path, [0.930, 0.931, 0.929, 0.930, 0.932], name="b", whiten="none")
    pair = compare([tmp_path]).pairs[0]
    assert pair.shown
    assert not pair.claimed
    assert "beats" not in " ".join(verdict(compare([tmp_path])))
    rows(tmp_path / "far", LOW, name="a")
    rows(tmp_path / "far", [0.930, 0.931, 0.929, 0.930, 0.932], name="b", whiten="none")
    assert compare([tmp_path / "far"]).pairs[0].claimed  # beyond what skewness makes


def test_of_three_seeds_a_row_five_times_wider_needs_a_smaller_p(tmp_path):
    rows(tmp_path, [0.70, 0.66, 0.68], name="a")
    rows(tmp_path, [0.750, 0.751, 0.749], name="b", whiten="none")
    pair = compare([tmp_path]).pairs[0]
    assert pair.shown
    assert not pair.claimed


def test_a_withheld_claim_names_the_spreads_the_seeds_and_why(tmp_path):
    rows(tmp_path, [0.70, 0.64, 0.66, 0.73, 0.65], name="a")
    rows(tmp_path, [0.730, 0.731, 0.729, 0.730, 0.732], name="b", whiten="none")
    said = verdict(compare([tmp_path]))
    assert re.search(r"^No claim: .* 5 seeds.* ppo_gae varies \d+\.\d times as much", said[-1])
    assert "tail" in said[-1]
    assert "beats" not in " ".join(said)
    assert "loses" not in " ".join(said)


def test_near_the_bound_of_its_scores_the_wider_row_beats_none(tmp_path):
    ends = [0.99, 0.96, 0.98, 0.95, 0.97], [0.935, 0.945, 0.93, 0.94, 0.925]
    rows(tmp_path, ends[0], name="a")
    rows(tmp_path, ends[1], name="b", whiten="none")
    rows(tmp_path / "low", [x - 0.4 for x in ends[0]], name="a")
    rows(tmp_path / "low", [x - 0.4 for x in ends[1]], name="b", whiten="none")
    assert compare([tmp_path / "low"]).pairs[0].claimed
    shutil.rmtree(tmp_path / "low")
    high = compare([tmp_path])
    assert high.pairs[0].shown
    assert not high.pairs[0].claimed
    assert "bound" in verdict(high)[-1]
    by_score(tmp_path)  # of a score no bound is known
    assert compare([tmp_path]).pairs[0].claimed


def test_rows_that_share_no_seed_are_held_to_each_other_unpaired(tmp_path):
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, HIGH, name="b", whiten="none")
    for path in tmp_path.glob("b-*/recipe.yaml"):
        text = path.read_text()
        path.write_text(re.sub(r"^seed: (\d)", r"seed: 1\1", text, flags=re.M))
    c = compare([tmp_path])
    assert c.pairs[0].unpaired
    assert c.pairs[0].claimed
    # Welch's t of these scores: scipy.stats.ttest_ind(LOW, HIGH, equal_var=False)
    assert c.pairs[0].contrast.mean == pytest.approx(-0.634)
    assert any("unpaired" in note for note in c.notes)


def test_equal_differences_have_no_spread_to_be_judged_by(tmp_path):
    rows(tmp_path, [0.25, 0.375, 0.5], name="a")
    rows(tmp_path, [0.75, 0.875, 1.0], name="b", whiten="none")
    said = " ".join(verdict(compare([tmp_path])))
    assert "indistinguishable" not in said
    assert "the same amount in every seed" in said


def test_what_could_have_been_shown_is_a_range(tmp_path):
    rows(tmp_path, [0.5, 0.6, 0.4, 0.55, 0.45], name="a")
    rows(tmp_path, [0.55, 0.5, 0.5, 0.6, 0.4], name="b", whiten="none")
    c = compare([tmp_path])
    low, high = c.shows(c.pairs[0])
    # chi-square of 4 degrees of freedom: 1.064 and 7.779 at 10 and 90 %
    assert high / low == pytest.approx((7.779 / 1.064) ** 0.5, rel=0.05)
    assert low < c.detectable(c.pairs[0]) < high


def test_a_comparison_as_records_csv_and_latex(tmp_path):
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, HIGH, name="b", whiten="none")
    c = compare([tmp_path])
    lines = list(csv.DictReader(as_csv(frame(document(c))).splitlines()))
    assert [float(line["mean"]) for line in lines] == [r["mean"] for r in frame(document(c))]
    assert lines[0]["difference"] == ""
    assert float(lines[1]["difference"]) == pytest.approx(0.634)
    text = text_of(Shown(blocks(c)), "latex")
    assert r"ppo\_gae" in text
    assert text.count(r"\\") == 3


def test_the_chance_of_the_answer_is_compared_where_all_runs_have_it(tmp_path):
    rows(tmp_path, LOW, name="a")
    rows(tmp_path, LOW, name="b", whiten="none")
    for path in sorted(tmp_path.glob("[ab]-*/metrics.jsonl"))[:9]:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "eval/accuracy" in line:
                line["eval/answer_prob"] = 0.7
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert compare([tmp_path]).metric == "accuracy"  # one run has none
    with pytest.raises(
        UsageError, match=r"'answer_prob' is not in the evaluations of every run .*accuracy"
    ):
        compare([tmp_path], metric="answer_prob")
    c = compare([*tmp_path.glob("a-*")])
    assert (c.metric, c.rows[0].scores) == ("answer_prob", [0.7] * 5)
    assert c.title == "addition: held-out answer_prob, 1024 samples per run"
    assert compare([*tmp_path.glob("a-*")], metric="eval/accuracy").rows[0].scores == LOW
    assert read_record(tmp_path / "a-0").score == LOW[0]
