"""Tokens of other trainers become saved batches, which trace, diagnose and report read."""

import json
import math

import pytest

import rlzoo
from helpers.made_up_sources import SOURCES, episode, lines, skyrl_batch, slime_training
from rlzoo.errors import RlzooError, UsageError
from rlzoo_lab.data.batches import read_batch, saved_batches


def imported(source, out, **words):
    rlzoo.verb("import", source, out=out, **words)
    return out


def batch_of(run, step=-1):
    return read_batch(saved_batches(run)[step])


@pytest.fixture(scope="module")
def slime(tmp_path_factory):
    place = tmp_path_factory.mktemp("slime")
    return imported(SOURCES["slime"](place / "in"), place / "run")


@pytest.fixture(scope="module")
def prime(tmp_path_factory):
    place = tmp_path_factory.mktemp("prime")
    return imported(SOURCES["prime_rl"](place / "in"), place / "run")


@pytest.fixture(scope="module")
def skyrl(tmp_path_factory):
    place = tmp_path_factory.mktemp("skyrl")
    return imported(SOURCES["skyrl"](place / "in"), place / "run")


def test_slimes_rollout_and_its_training_data_are_one_batch(slime):
    assert [p.stem for p in saved_batches(slime)] == [f"step-0000000{n}" for n in (1, 2, 3)]
    batch = batch_of(slime, 0)
    assert batch["response_ids"].tolist() == [[2, 30, 3], [2, 30, 4]]
    assert batch["response_mask"].tolist() == [[1, 0, 1]] * 2
    assert batch["response_attention"].tolist() == [[1, 1, 1]] * 2
    assert batch["group_ids"].tolist() == [0, 0]
    of_tokens = {
        "sampler_log_probs": [-0.5, 0, -1.5], "old_log_probs": [-0.75, 0, -1.25],
        "ref_log_probs": [-1, 0, -1], "values": [0.25, 0, 0.5], "returns": [1, 0, 1],
        "advantages": [0.5, 0, 0.5], "scores": [0, 0, 1], "rewards": [0, 0, 1],
    }  # fmt: skip
    assert {name: batch[name][0].tolist() for name in of_tokens} == of_tokens
    assert batch["sequence_scores"].tolist() == [1, 0]
    assert (batch["prompts"], batch["responses"]) == (["user: 1+1="] * 2, ["2", "3"])
    assert batch["truncated"].tolist() == [False, False]


def test_prime_rls_traces_are_joined_with_its_token_export(prime):
    batch = batch_of(prime)
    assert batch["response_ids"].tolist() == [[2, 3], [2, 4]]
    assert batch["old_log_probs"].tolist() == [[-1, -2]] * 2  # the trainer's, of the export
    assert batch["sampler_log_probs"].tolist() == [[-1.25, -2.25]] * 2
    assert batch["advantages"].tolist() == [[0.5, 0.5], [-0.5, -0.5]]
    assert batch["scores"].tolist() == [[0, 1.125], [0, 0.125]]
    assert batch["old_entropy"].tolist() == [[0.5, 0.5]] * 2
    assert batch["responses"] == ["2", "3"]
    assert math.isnan(batch_of(prime, 1)["old_log_probs"][0, 0])  # null: it was not finite


def test_traces_alone_have_the_samplers_log_probs_and_no_others(tmp_path):
    SOURCES["prime_rl"](tmp_path / "in")
    for path in (tmp_path / "in" / "trainer" / "token_exports").rglob("*.jsonl"):
        path.unlink()
    batch = batch_of(imported(tmp_path / "in", tmp_path / "run"))
    assert batch["sampler_log_probs"].tolist() == [[-1.25, -2.25]] * 2
    assert "old_log_probs" not in batch
    assert batch["advantages"].tolist() == [[0.5, 0.5], [-0.5, -0.5]]


def test_a_response_of_several_turns_has_holes_where_it_was_told_something(tmp_path):
    line = episode("2", 1.0, 0.5)
    line["traces"][0]["nodes"] += [
        {"parent": 1, "message": {"role": "tool", "content": "no"}, "token_ids": [50, 51],
         "mask": [False, False]},
        {"parent": 2, "message": {"role": "assistant", "content": "4"}, "sampled": True,
         "token_ids": [52, 5], "mask": [False, True], "logprobs": [-3.0], "advantages": [0.25]},
    ]  # fmt: skip
    lines(tmp_path / "step_1" / "train" / "effective" / "traces.jsonl", [line])
    batch = batch_of(imported(tmp_path / "step_1", tmp_path / "run"))
    assert batch["response_ids"].tolist() == [[2, 3, 50, 51, 52, 5]]
    assert batch["response_mask"].tolist() == [[1, 1, 0, 0, 0, 1]]
    assert batch["sampler_log_probs"].tolist() == [[-1.25, -2.25, 0, 0, 0, -3]]
    assert batch["advantages"].tolist() == [[0.5, 0.5, 0, 0, 0, 0.25]]


def test_an_export_alone_is_grouped_by_prompt_and_has_no_texts(tmp_path):
    rows = [{"step": 1, "token_ids": [p, 7, 8], "loss_mask": [False, True, True],
             "advantages": [0.0, 1.0, 1.0]} for p in (5, 6, 5)]  # fmt: skip
    lines(tmp_path / "rank_0.jsonl", rows)
    run = imported(tmp_path / "rank_0.jsonl", tmp_path / "run")
    batch = batch_of(run)
    assert batch["group_ids"].tolist() == [0, 1, 0]
    assert not {"prompts", "scores", "rewards", "old_log_probs"} & batch.keys()
    traced = rlzoo.trace(run)
    assert [t["text"] for t in traced["tokens"]] == ["⟨7⟩", "⟨8⟩"]
    assert "scores" in " ".join(traced["notes"])
    rlzoo.report(run, out=tmp_path / "page.html")
    assert "no rewards" in (tmp_path / "page.html").read_text()


def test_skyrls_dump_is_padded_on_the_left_and_filled_up(skyrl):
    batch = batch_of(skyrl)
    assert batch["response_ids"].tolist() == [[7, 8], [9, 0]]
    assert batch["response_mask"].tolist() == [[1, 1], [1, 0]]
    assert batch["old_log_probs"].tolist() == [[-1, -2], [-3, 0]]
    assert batch["ref_log_probs"].tolist() == [[-1.5, -2], [-2.5, 0]]
    assert batch["advantages"].tolist() == [[0.5, 0.5], [-0.5, 0]]
    assert not {"scores", "values"} & batch.keys()


def test_miles_parquet_counts_where_its_rollouts_are_gone(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    table = {"sample_index": [0], "response_length": [2], "total_length": [3],
             "tokens": [[1, 8, 9]], "loss_mask": [[1, 1]],
             "rollout_log_probs": [[-0.5, -0.25]]}  # fmt: skip
    (tmp_path / "in" / "dashboard_columns").mkdir(parents=True)
    write_table(pa.table(table), tmp_path / "in" / "dashboard_columns" / "rollout_4.parquet")
    batch = batch_of(imported(tmp_path / "in", tmp_path / "run"))
    assert (tmp_path / "run" / "batches" / "step-00000005.json").exists()
    assert batch["sampler_log_probs"].tolist() == [[-0.5, -0.25]]


def test_trl_has_tokens_only_where_a_reward_function_logs_them(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import read_table, write_table

    SOURCES["trl"](tmp_path / "in")
    without = imported(tmp_path / "in", tmp_path / "without")
    with pytest.raises(RlzooError, match="log_extra") as found:
        rlzoo.trace(without)
    assert found.value.kind == "imported"
    for path in (tmp_path / "in").rglob("*.parquet"):
        ids = pa.array([[4, 5], [4], [6], [6]])
        write_table(read_table(path).append_column("completion_ids", ids), path)
    batch = batch_of(imported(tmp_path / "in", tmp_path / "run"))
    assert batch["response_mask"].tolist() == [[1, 1], [1, 0], [1, 0], [1, 0]]
    assert batch["advantages"].tolist() == [[0.5, 0.5], [-0.5, 0], [0, 0], [0, 0]]
    assert batch["group_ids"].tolist() == [0, 0, 1, 1]


def test_a_trace_shows_what_was_recorded_and_names_what_was_not(slime, prime):
    traced = rlzoo.trace(slime)
    assert traced["columns"]["kl"] == [0.25, None, -0.25]
    assert traced["columns"]["sampler_log_probs"] == [-0.5, None, -1.5]
    assert traced["columns"]["values"] == [0.25, None, 0.5]
    [credit] = traced["credits"]
    assert (credit["name"], credit["columns"]["advantages"]) == ("slime", [0.5, None, 0.5])
    assert traced["response"] == "2"
    assert "did not record" not in " ".join(traced["notes"])
    notes = " ".join(rlzoo.trace(prime)["notes"])
    assert "reference" in notes
    assert "no critic" in notes


def test_estimators_are_computed_where_rewards_and_values_suffice(slime, prime):
    """GAE at lambda 0.5: delta = 0.5 - 0.25 and 1 - 0.5; GRPO: (1 - 0.5) / std."""
    recorded, *credits = rlzoo.trace(slime, estimator="gae", lam="0.5,1")["credits"]
    assert recorded["name"] == "slime"
    got = [c["columns"]["raw_advantages"] for c in credits]
    assert got == [[0.5, None, 0.5], [0.75, None, 0.5]]
    credit = rlzoo.trace(prime, estimator="grpo")["credits"][1]
    assert credit["columns"]["advantages"] == pytest.approx([math.sqrt(0.5)] * 2, rel=1e-5)
    with pytest.raises(UsageError, match="values"):
        rlzoo.trace(prime, estimator="gae")
    with pytest.raises(UsageError) as found:
        rlzoo.trace(slime, prompt="1+1=")
    assert found.value.kind == "imported"


def test_diagnose_compares_estimators_with_what_the_trainer_recorded(slime, skyrl):
    document = rlzoo.diagnose(slime, "estimator=gae,grpo,rloo,vtrace")
    names = [row["estimator"] for row in document["estimators"]]
    assert names == ["recorded by slime", "gae", "grpo", "rloo", "vtrace"]
    assert document["correlation"][0][2] == pytest.approx(1)  # GRPO's is its recorded one, scaled
    assert document["gradient_cosine"][0][3] == pytest.approx(1)
    document = rlzoo.diagnose(skyrl)
    assert [row["estimator"] for row in document["estimators"]] == ["recorded by skyrl"]
    assert any("sequence_rewards" in row["needs"] for row in document["not_diagnosable"])


def test_a_reward_that_pays_for_kl_is_not_the_score(tmp_path):
    SOURCES["slime"](tmp_path / "in")
    (tmp_path / "in" / "args.yaml").write_text("kl_coef: 0.1\nadvantage_estimator: ppo\n")
    run = imported(tmp_path / "in", tmp_path / "run")
    assert "scores" in batch_of(run)
    assert "rewards" not in batch_of(run)
    with pytest.raises(UsageError, match="rewards"):
        rlzoo.trace(run, lam="0.9")


def test_the_last_steps_are_kept(tmp_path):
    rows = [{"step": n, "token_ids": [7], "loss_mask": [True], "advantages": [0.5]}
            for n in range(1, 8)]  # fmt: skip
    run = imported(lines(tmp_path / "a.jsonl", rows), tmp_path / "run")
    assert [int(p.stem[5:]) for p in saved_batches(run)] == [4, 5, 6, 7]
    assert rlzoo.trace(run, step=5)["source"].endswith("step 5")
    with pytest.raises(UsageError, match="--step"):
        rlzoo.trace(run, step=2)


def test_a_tokenizer_names_tokens(tmp_path):
    SOURCES["slime"](tmp_path / "in")
    folder = rlzoo.__path__[0] + "/../configs/model/nano"
    run = imported(tmp_path / "in", tmp_path / "run", tokenizer=folder)
    texts = [t["text"] for t in rlzoo.trace(run)["tokens"]]
    assert len(texts) == 3
    assert not any("⟨" in text for text in texts)
    with pytest.raises(UsageError, match="--tokenizer"):
        imported(tmp_path / "in", tmp_path / "other", tokenizer=tmp_path)


def test_a_report_has_the_tokens(slime, tmp_path):
    document = rlzoo.report(slime, out=tmp_path / "page.html")
    assert document["batches"] == [3, 2, 1]
    page = (tmp_path / "page.html").read_text()
    assert "27e830" in page  # ⟨30⟩, escaped
    assert "sampler gap" in page


# ---------------------------------------------------------------- damaged files

EXPORT = {"step": 1, "token_ids": [1, 2, 3], "loss_mask": [False, True, True],
          "advantages": [0.0, 1.0, 1.0], "trainer_logprobs": [0.0, -1.0, -1.0]}  # fmt: skip
DAMAGED = {
    "ids and log-probs of different lengths": {"trainer_logprobs": [-1.0, -1.0]},
    "a mask longer than the ids": {"loss_mask": [False, True, True, True]},
    "a mask that is not one": {"loss_mask": [0, 2, 1]},
    "negative ids": {"token_ids": [1, -2, 3]},
    "ids beyond any vocabulary": {"token_ids": [1, 2**40, 3]},
    "ids of thousands of bits": {"token_ids": [1, 10**40, 3]},
    "ids that are fractions": {"token_ids": [1, 2.5, 3]},
    "ids in lists": {"token_ids": [[1], [2], [3]]},
    "NaN": {"trainer_logprobs": [0.0, math.nan, -1.0]},
    "infinity": {"advantages": [0.0, math.inf, 1.0]},
    "beyond float32": {"advantages": [0.0, 1e300, 1.0]},
    "texts": {"advantages": ["0", "1", "1"]},
    "truths": {"advantages": [False, True, True]},
    "a number": {"trainer_logprobs": 1.0},
    "no step": {"step": None},
}


def refused(source, tmp_path, *parts):
    out = tmp_path / "out" / "run"
    out.parent.mkdir(exist_ok=True)
    with pytest.raises(RlzooError) as found:
        imported(source, out)
    line = str(found.value)
    assert "\n" not in line
    assert len(line) < 400
    assert all(part in line for part in (str(source), *parts)), line
    assert not list(out.parent.iterdir())


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_of_tokens_is_named(tmp_path, name):
    path = lines(tmp_path / "rank_0.jsonl", [EXPORT, EXPORT | DAMAGED[name]])
    refused(path, tmp_path, "line 2")


def test_a_line_of_tokens_that_is_cut_is_named(tmp_path):
    path = lines(tmp_path / "rank_0.jsonl", [EXPORT, EXPORT])
    path.write_text(path.read_text()[:-30])
    refused(path, tmp_path, "line 2")


@pytest.mark.parametrize("changed", [
    {"logprobs": [-1.0]}, {"advantages": [0.5] * 3}, {"mask": [True]}, {"token_ids": [2, -3]},
    {"logprobs": [-1.0, math.nan]}, {"token_ids": 7},
])  # fmt: skip
def test_a_damaged_trace_is_named(tmp_path, changed):
    line = episode("2", 1.0, 0.5)
    line["traces"][0]["nodes"][1] |= changed
    path = tmp_path / "step_1" / "train" / "effective" / "traces.jsonl"
    lines(path, [episode("3", 0.0, -0.5), line])
    refused(path, tmp_path, "line 2")


@pytest.mark.parametrize("changed", [
    {"response_length": 10**9}, {"response_length": -1}, {"response_length": "3"},
    {"loss_mask": [1] * 9}, {"tokens": [1, -2, 3, 4]}, {"rollout_log_probs": [math.nan] * 3},
    {"rollout_log_probs": [0.0]}, {"tokens": [1]},
])  # fmt: skip
def test_a_damaged_rollout_of_slime_is_named(tmp_path, changed):
    import torch

    row = {"prompt": "a", "response": "b", "reward": 1.0, "tokens": [1, 2, 3, 4],
           "response_length": 3, "loss_mask": [1, 0, 1]}  # fmt: skip
    torch.save({"rollout_id": 0, "samples": [row, row | changed]}, tmp_path / "0.pt")
    refused(tmp_path / "0.pt", tmp_path, "sample 2")


def test_training_data_of_slime_that_is_damaged_is_named(tmp_path):
    row = {"tokens": [1, 2, 3], "loss_masks": [1, 1], "log_probs": [-1.0, -1.0]}
    path = tmp_path / "1.pt"
    slime_training(path, 0, [row, row | {"log_probs": [-1.0] * 5}])
    refused(path, tmp_path, "sample 2")
    slime_training(path, 0, [row])
    whole = path.read_bytes()
    at = whole.rindex(b"\x00\x00\x80\xbf\x00\x00\x80\xbf")  # -1, -1 in float32
    path.write_bytes(whole[:at] + b"\x01" + whole[at + 1 :])  # the archive's checksum tells
    refused(path, tmp_path)


@pytest.mark.parametrize("changed", [
    {"sequences": None}, {"loss_mask": None}, {"sequences": [[5, 7, -8], [5, 6, 9], [5, 7, 8]]},
    {"advantages": [[0.5], [0.5], [0.5]]}, {"advantages": [[0.5, math.nan]] * 3},
    {"advantages": {"format": "numpy", "data": b"", "shape": (3, 10**9), "dtype": "float32"}},
    {"advantages": {"format": "torch", "data": b"PK"}},
    {"advantages": {"format": "numpy", "data": b"12345678", "shape": (1,), "dtype": "O"}},
])  # fmt: skip
def test_a_damaged_dump_of_skyrl_is_named(tmp_path, changed):
    path = tmp_path / "global_step_2_training_input.pkl"
    skyrl_batch(path, **changed)
    refused(path, tmp_path)


def test_responses_too_long_to_save_leave_the_rest(tmp_path, monkeypatch):
    from rlzoo_lab.imports import batch

    monkeypatch.setattr(batch, "MOST", 4)
    rows = [{"step": n, "token_ids": [7] * k, "loss_mask": [True] * k, "advantages": [0.5] * k}
            for n, k in ((1, 5), (2, 3))]  # fmt: skip
    lines(tmp_path / "a.jsonl", rows)
    result = rlzoo.verb("import", tmp_path / "a.jsonl", out=tmp_path / "run")
    assert result["batches"] == [2]
    [part] = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert any("step 1" in note for note in part["imported"]["notes"])
