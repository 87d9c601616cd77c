"""The HTTP sampler, against a server in a thread that samples the real model by each seed."""

import json
import os
import time

import pytest
import torch

import rlzoo
from helpers.completions import Completions, hang
from helpers.rewards_for_tests import LETTERS
from helpers.runs import lines, untimed
from helpers.worlds import changed
from rlzoo.errors import ComponentError, RecipeError, RlzooError
from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_columns
from rlzoo_zoo.samplers import openai as module

pytestmark = pytest.mark.process  # a server


@pytest.fixture(scope="module")
def served(model_dir):
    server = Completions(model_dir)
    yield server
    server.die()


@pytest.fixture
def server(served, monkeypatch):
    """The module's server, as it was at its start; waits are short."""
    monkeypatch.setattr(module, "FIRST", 0.01)
    monkeypatch.setattr(module, "FRESH", 1e9)  # this one starts anew in no time
    monkeypatch.setattr(module, "SERVERS", {})
    served.faults.clear()
    served.asked.clear()
    served.paths.clear()
    served.headers.clear()
    served.room, served.at_once = 10**6, 0
    yield served
    if served.server.dead:
        served.start()


@pytest.fixture(scope="module")
def known():
    """Worlds by their words: those whose weights stay are built once."""
    return {}


@pytest.fixture
def make(zoo, words, server, known):
    """make(*words) -> the world of these words."""

    def world(*more):
        if more not in known:
            asked = ["recipe=grpo", *words, "sampler=openai", f"sampler.url={server.url}"]
            known[more] = build_world(
                make_plan(compose([*asked, "correction=tis", *more], zoo), zoo)
            )
        return known[more]

    return world


def roll(world, step=0, prompts=2):
    """A batch of two samples to each prompt."""
    some = draw(world, "train", prompts, "train", step)
    batch = collect(world, some, 2, stream="train", step=step)
    add_columns(world, batch, stream="train", step=step)
    return batch


def gap(batch):
    away = (batch["old_log_probs"] - batch["sampler_log_probs"]).abs()
    return (away * batch["response_mask"]).max().item()


def test_it_gives_the_tokens_and_log_probs_that_the_server_drew(make, server):
    world = make("rollout.temperature=0.8", "rollout.max_new_tokens=5", "task.min_digits=1")
    spent = world.engine.meter.tokens
    batch = roll(world, prompts=5)
    assert gap(batch) < 1e-5
    mask = batch["response_mask"].bool()
    assert (batch["sampler_log_probs"][~mask] == 0).all()
    assert (batch["terminated"] ^ batch["truncated"]).all()
    assert world.engine.meter.tokens - spent == int(mask.sum())
    drawn = {json.dumps(ask["prompt"]) + str(ask["seed"]): ask for ask in server.asked}
    assert len(drawn) == 10  # samples of a prompt differ in their seed
    prompts = [world.prompt_format.encode(text) for text in batch["prompts"]]
    assert sorted(prompts) == sorted(ask["prompt"] for ask in server.asked)  # without padding
    assert len(set(map(len, prompts))) > 1, "none is padded: this shows nothing"
    for ask in server.asked:  # each row stands where its prompt does
        said = server.complete(ask)["choices"][0]["token_ids"]
        own = [i for i, prompt in enumerate(prompts) if prompt == ask["prompt"]]
        assert said in [batch["response_ids"][i][mask[i]].tolist() for i in own]
    whole = {(a["temperature"], a["top_k"], a["top_p"], a["max_tokens"]) for a in server.asked}
    assert whole == {(0.8, -1, 1.0, 5)}
    assert all(a["model"] == "policy" and a["return_token_ids"] for a in server.asked)
    assert all(a["ignore_eos"] and a["stop_token_ids"] == world.policy.eos_ids
               for a in server.asked)  # fmt: skip
    again = roll(world, prompts=5)
    assert torch.equal(again["response_ids"], batch["response_ids"])


def test_truncated_sampling_is_what_the_log_probs_are_of(make):
    batch = roll(make("rollout.top_k=3"))
    mask = batch["response_mask"].bool()
    assert (batch["sampler_log_probs"][mask] > batch["old_log_probs"][mask] - 1e-6).all()
    assert gap(batch) > 0.01


@pytest.mark.parametrize(
    "more", [[], ["model.lora.rank=2", "model.lora.alpha=8"]], ids=["", "lora"]
)
def test_the_server_has_the_weights_of_now(make, known, more, server):
    world = make(*more)
    known.clear()  # its weights are changed here
    with torch.no_grad():
        for p in world.policy.model.parameters():
            p.add_(0.3 * torch.randn_like(p) if p.requires_grad else 0)
    batch = roll(world)
    assert gap(batch) < 1e-5
    assert server.paths.count("/collective_rpc") == 1
    roll(world, 1)  # nothing has changed
    assert server.paths.count("/collective_rpc") == 1
    if more:  # the base model alone
        world = changed(world, adapter=False)
        roll(world)
        assert server.paths.count("/collective_rpc") == 2
        assert not torch.equal(roll(world)["response_ids"], batch["response_ids"])


def broken(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.drop()


ABORTED = {
    "choices": [
        {"token_ids": [5], "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "abort"}
    ]
}


@pytest.mark.parametrize(
    ("fault", "handed"),
    [(429, 1), (503, 2), (500, 2), (lambda h: h.drop(), 2), (broken, 2), (hang(0.6), 2),
     (ABORTED, 2)],
    ids=["429", "503", "500", "dropped", "cut-short", "timeout", "aborted"],
)  # fmt: skip
def test_what_passes_is_asked_again_and_changes_nothing(make, server, fault, handed):
    """Who may have started anew is handed the weights again."""
    quiet = roll(make())
    server.paths.clear()
    server.faults[:] = [None, fault, None, fault]
    module.SERVERS.clear()
    world = make("sampler.timeout=0.5", "sampler.requests=2")
    if handed > 1:
        with pytest.warns(UserWarning, match="127.0.0.1:.*did not answer"):
            batch = roll(world)
    else:
        batch = roll(world)
    assert torch.equal(batch["response_ids"], quiet["response_ids"])
    assert torch.equal(batch["sampler_log_probs"], quiet["sampler_log_probs"])
    assert not server.faults
    assert server.paths.count("/collective_rpc") >= handed
    assert (server.paths.count("/collective_rpc") == 1) == (handed == 1)


@pytest.mark.landing
def test_no_more_requests_are_under_way_than_asked_for_and_fewer_where_it_is_full(make, server):
    def full_at_three(handler):
        end = time.monotonic() + 10
        while server.at_once < 3 and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.05)  # a fourth would come now
        handler.say({}, 429)

    server.faults[:] = [full_at_three] * 3
    batch = roll(make("sampler.requests=3"), prompts=4)
    assert server.at_once == 3
    module.SERVERS.clear()
    server.asked.clear()
    server.room = 2
    again = roll(make("sampler.requests=8"), prompts=4)
    assert torch.equal(again["response_ids"], batch["response_ids"])
    assert len(server.asked) == 8  # what was answered is not asked again


@pytest.mark.landing
def test_retry_after_is_kept(make, server, golden):
    def busy(handler):
        handler.say({}, 429, [("Retry-After", "1")])

    server.faults[:] = [busy]
    began = time.monotonic()
    roll(make())
    assert 1 <= time.monotonic() - began < 3
    server.faults[:] = [lambda h: h.say({}, 429, [("Retry-After", "3600")])]
    with golden.refuses(RlzooError):
        roll(make("sampler.patience=5"))


def choice(tokens, log_probs, ended="stop"):
    said = {"token_ids": tokens, "logprobs": {"token_logprobs": log_probs}, "finish_reason": ended}
    return {"choices": [said]}


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>",
        b"[" * 100_000,
        {},
        {"choices": [{"text": "1", "finish_reason": "stop"}]},
        choice([5, "6"], [-1.0, -1.0]),
        choice([5, 6], [-1.0, None]),
        choice([], []),
        choice([5, 6], [-1.0]),
        choice([5] * 6, [-1.0] * 6),
        choice([5], [-1.0], "length"),
        choice([10**6], [-1.0]),
        choice([5], [float("nan")]),
        choice([5], [0.5]),
        lambda h: h.say({"error": {"message": "no\nroom"}}, 400),
        lambda h: h.say(b"", 302, [("Location", "http://127.0.0.1:1/")]),
    ],
)
def test_garbage_is_one_line_at_once(make, server, answer, golden):
    server.faults[:] = [answer] * 4
    with golden.refuses(RlzooError) as caught:
        roll(make("sampler.requests=1"))
    assert caught.error.status == 1  # the run had begun
    assert str(caught.error).startswith("sampler openai: http://127.0.0.1:")
    assert not isinstance(caught.error, ComponentError)
    assert len(server.faults) in (0, 3)  # a row that is wrong is found when all are there


def test_an_answer_without_end_is_refused(make, server, monkeypatch, golden):
    monkeypatch.setattr("rlzoo_zoo.request.MOST", 2**16)
    server.faults[:] = [b" " * 2**18]
    with golden.refuses(RlzooError):
        roll(make())


def test_a_server_that_cannot_be_handed_weights_says_how_it_could(make, golden):
    with golden.refuses(RlzooError):
        roll(make('sampler.reload=["/update"]'))


def test_a_server_may_keep_its_own_weights(make, server):
    roll(make("sampler.reload=[]"))
    assert set(server.paths) == {"/v1/models", "/v1/completions"}


def test_a_conversation_is_drawn_turn_by_turn(zoo, words, server):
    from helpers.tasks_for_tests import Echo

    asked = ["recipe=grpo", *words, "sampler=openai", f"sampler.url={server.url}", "task=echo",
             "correction=tis", "rollout.max_new_tokens=12"]  # fmt: skip
    import helpers.tasks_for_tests as tasks
    from rlzoo.plugin.registry import load_zoo

    world = build_world(make_plan(compose(asked, load_zoo([tasks])), load_zoo([tasks])))
    batch = roll(world)
    assert Echo.stops == tuple(server.asked[0]["stop"])
    assert gap(batch) < 1e-5
    assert batch["turn_ids"].max() > 1
    assert server.paths.count("/collective_rpc") == 1


# ---------------------------------------------------------------- runs


def run(words, folder, server, *more):
    few = ["rollout.prompts=2", "rollout.samples=2", "eval.samples=4", "sampler.requests=1"]
    few += [*LETTERS, "actor.lr=0.03"]  # so that the weights of its start are other weights
    asked = [*words, *few, "sampler=openai", f"sampler.url={server.url}", "correction=tis", *more]
    return rlzoo.run("grpo", [*asked, f"run.dir={folder}"], display=None)


@pytest.fixture
def whole(words, server, known, tmp_path):
    """Metrics of a run that nothing befell, and how many responses it had drawn."""
    if "run" not in known:
        run(words, tmp_path / "whole", server)
        known["run"] = untimed(tmp_path / "whole"), len(server.asked)
        server.die()
        server.start()
    return known["run"]


@pytest.mark.landing
def test_a_server_that_dies_and_comes_back_changes_no_number(words, server, tmp_path, whole):
    """It comes back with the weights that it began with, and is handed those of now."""

    def die(handler):
        server.die()
        server.start()

    metrics, n = whole
    server.faults[:] = [None] * (n * 2 // 3) + [die]
    with pytest.warns(UserWarning, match="did not answer"):
        run(words, tmp_path / "run", server)
    assert not server.faults
    assert untimed(tmp_path / "run") == metrics


def test_a_server_that_stays_away_is_one_line_and_the_run_resumes(words, server, tmp_path, whole):
    metrics, n = whole
    server.faults[:] = [None] * (n * 2 // 3) + [lambda handler: server.die()]
    place = server.url.removeprefix("http://")
    with pytest.warns(UserWarning, match="answer"), pytest.raises(RlzooError) as caught:
        run(words, tmp_path / "run", server, "sampler.patience=0.2")
    line = str(caught.value)
    assert line.startswith(f"sampler openai: http://{place} did not answer for 0.2 s (")
    assert line.endswith("use `rlzoo resume` to continue from the last checkpoint")
    assert "\n" not in line
    assert lines(tmp_path / "run")[-1]["step"] < 3
    server.start()
    rlzoo.resume(tmp_path / "run", display=None)
    assert untimed(tmp_path / "run") == metrics


# ---------------------------------------------------------------- recipes


def plan(zoo, words, *more):
    return make_plan(compose(["recipe=grpo", *words, *more], zoo), zoo)


def test_a_recipe_that_corrects_nothing_is_told(zoo, words):
    (said,) = plan(zoo, words, "sampler=openai").warnings
    assert said.startswith("sampler=openai: uses its own kernels and rounding")
    assert "correction=tis" in said
    (said,) = plan(zoo, words, "sampler=dynamic", "sampler.inner=openai").warnings
    assert said.startswith("sampler=openai")
    assert not plan(zoo, words, "sampler=openai", "correction=icepop").warnings
    assert not plan(zoo, words).warnings
    impala = make_plan(compose(["recipe=impala", *words, "sampler=openai"], zoo), zoo)
    assert not any("sampler=" in said for said in impala.warnings)  # V-trace weighs by itself


@pytest.mark.parametrize(
    "option",
    [
        "url=127.0.0.1:8000",
        "url=http://me:secret@host",
        "url=http://host:8000/v1",
        "folder=/nowhere/at/all",
        "reload=[update]",
        'reload=["/update {"]',
        "headers_from=OPENAI_KEY",
    ],
)
def test_what_cannot_work_is_refused_before_a_model_loads(zoo, words, option, golden):
    with golden.refuses(RecipeError) as caught:
        plan(zoo, words, "sampler=openai", f"sampler.{option}")
    assert "secret@" not in str(caught.error)


def test_a_key_comes_from_the_environment_and_stays_out_of_the_run(
    words, server, tmp_path, monkeypatch
):
    monkeypatch.setenv("SERVER_KEY", "Authorization: Bearer s3cret")
    monkeypatch.setenv("RLZOO_ALLOW_ENV", "SERVER_KEY")
    run(words, tmp_path / "run", server, "sampler.headers_from=SERVER_KEY", "train.steps=1")
    assert {h.get("authorization", h.get("Authorization")) for h in server.headers} == {
        "Bearer s3cret"
    }
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or b"s3cret" not in path.read_bytes()


def test_weights_lie_in_a_folder_of_their_own_that_goes_with_the_process(make, server, tmp_path):
    (tmp_path / "model.safetensors").write_text("mine")
    roll(make(f"sampler.folder={tmp_path}"))
    (place,) = [p for p in tmp_path.iterdir() if p.is_dir()]
    assert place.name.startswith("rlzoo-weights-")
    assert sorted(os.listdir(place)) == ["config.json", "model.safetensors"]
    assert (tmp_path / "model.safetensors").read_text() == "mine"
    module.SERVERS.clear()
    import gc

    gc.collect()
    assert not place.exists()
