"""Conversations: environments that answer in the middle of an episode."""

import shutil

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import rlzoo
from helpers import ROOT
from helpers.grids import grid
from helpers.worlds import changed, favour, make_world, one_thread
from rlzoo.accel.engine import Kept
from rlzoo.accel.passes import align
from rlzoo.env.token_env import TokenEnv
from rlzoo.env.vector_env import TokenVectorEnv
from rlzoo.errors import RlzooError
from rlzoo.lm.build import build_world
from rlzoo.mdp import noise
from rlzoo.mdp.batch import take
from rlzoo.mdp.turns import Turns, ends_turn, resume
from rlzoo.plugin.component import Example
from rlzoo.plugin.protocols import abilities
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect, draw, resources
from rlzoo.step.columns import add_advantages, add_columns, add_rewards
from rlzoo.step.update import gradients

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)

TASKS = ROOT / "tests" / "helpers" / "tasks_for_tests.py"
LETTERS = "abzxy?"
WORDS = ["rollout.max_new_tokens=14", "estimator=gigpo"]


@pytest.fixture(scope="module")
def zoo():
    return rlzoo.load_zoo([TASKS])


@pytest.fixture
def found_by_environments(monkeypatch):
    monkeypatch.setenv("RLZOO_PLUGINS", str(TASKS))


def talking(zoo, model_dir, *words, eos=0.5, letters=LETTERS):
    world = make_world(zoo, model_dir, *WORDS, *(words or ["task=echo"]))
    favour(world.policy, letters, eos=eos)
    return world


def rows_of(world, n, **options):
    return collect(world, draw(world, "train", n, "train", 0), 2, stream="train", step=0, **options)


def by_hand(world, batch, i):
    """A row's columns, told anew from its tokens by rules written down a second time."""
    tokenizer, (eos,) = world.policy.tokenizer, world.policy.eos_ids
    limit = world.plan.recipe.config.rollout.max_new_tokens
    queue = batch["response_ids"][i].tolist()
    ids, mask, turn_ids, turns, ending = [], [], [], [], None
    turn = 0
    while ending is None:
        turn, text = turn + 1, ""
        while True:
            token = queue.pop(0)
            ids, mask, turn_ids = [*ids, token], [*mask, 1], [*turn_ids, turn]
            if token == eos:
                break
            text += tokenizer.decode([token])
            if text.endswith(("?", "xy")):
                break
            if len(ids) == limit:
                ending = "truncated"
                break
        turns.append(text)
        if ending:
            break
        if turn == 4 or "z" in text:
            ending = "terminated"
            break
        turns.append("!!" if text.endswith("?") else text[::-1])
        answer = tokenizer(turns[-1])["input_ids"][: limit - len(ids)]
        assert [queue.pop(0) for _ in answer] == answer
        ids, mask, turn_ids = (
            [*ids, *answer],
            mask + [0] * len(answer),
            turn_ids + [0] * len(answer),
        )
        if len(ids) == limit:
            ending = "truncated"
    return ids, mask, turn_ids, turns, ending


@pytest.mark.parametrize("task", ["echo", "echo_paid"])
def test_a_sampled_conversation_is_what_was_said(zoo, model_dir, task):
    world = talking(zoo, model_dir, f"task={task}")
    batch = rows_of(world, 64)
    seen = set()
    for i in range(batch.rows):
        ids, mask, turn_ids, turns, ending = by_hand(world, batch, i)
        rest = [0] * (batch.steps - len(ids))
        pad = [world.policy.pad_id] * len(rest)
        assert batch["response_ids"][i].tolist() == ids + pad
        assert batch["response_mask"][i].tolist() == mask + rest
        assert batch["response_attention"][i].tolist() == [1] * len(ids) + rest
        assert batch["turn_ids"][i].tolist() == turn_ids + rest
        assert batch["turns"][i] == turns
        assert batch["responses"][i] == "".join(turns)
        assert batch["terminated"][i] == (ending == "terminated")
        assert batch["truncated"][i] == (ending == "truncated")
        seen |= {(ending, len(turns) % 2, mask[-1]), ("turns", len(turns))}
        seen |= {"empty" for t in turns if not t}
        seen |= {"stop" for t in turns[::2] if t.endswith(("?", "xy"))}
    # Cut off within a turn and within an answer, ended by the environment; long and short ones.
    assert {("terminated", 1, 1), ("truncated", 1, 1), ("truncated", 0, 0)} <= seen
    assert {("turns", 1), ("turns", 7), "empty", "stop"} <= seen


COLUMNS = (
    "response_ids", "response_mask", "response_attention", "turn_ids", "state_keys", "turns",
    "responses", "response_tokens", "terminated", "truncated", "prompts", "messages", "answers",
)  # fmt: skip


def same(a, b):
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.mark.parametrize("task", ["echo", "echo_paid"])
def test_stepping_gives_every_column_of_the_samplers_batch(
    zoo, model_dir, found_by_environments, task
):
    extra = [f"task={task}", "columns=branch_steps"]  # it asks for response_tokens
    world = talking(zoo, model_dir, *extra)
    batch = rows_of(world, 32)
    env = TokenEnv(overrides=[f"model.path={model_dir}", *WORDS, *extra])
    for i in range(batch.rows):
        env.reset(options={"prompt": batch["prompts"][i], "answer": batch["answers"][i]})
        paid = torch.zeros(batch.steps)
        acting = batch["response_mask"][i].nonzero()[:, 0].tolist()
        for t in acting:
            assert not env.ended
            observation, paid[t], terminated, truncated, info = env.step(
                batch["response_ids"][i, t]
            )
        assert terminated or truncated
        n = int(batch["response_attention"][i].sum())
        columns = env.columns()
        for name in COLUMNS:
            mine, theirs = columns[name], batch[name][i : i + 1]
            if isinstance(theirs, torch.Tensor) and theirs.ndim == 2:
                assert mine.shape == (1, n), name
                assert not name.endswith(("mask", "attention")) or not theirs[0, n:].any()
                theirs = theirs[:, :n]
            assert same(mine, theirs), (name, i)
        ids = batch["response_ids"][i][batch["response_mask"][i].bool()].tolist()
        said = [
            world.policy.tokenizer.decode([k]) if k not in world.policy.eos_ids else "" for k in ids
        ]
        assert batch["response_tokens"][i] == said
        torch.testing.assert_close(paid, batch["scores"][i])
        assert info["response"] == batch["responses"][i]
        assert info["score"] == pytest.approx(batch["sequence_scores"][i].item())
        begin = env.rules.max_prompt
        assert observation[begin : begin + n].tolist() == batch["response_ids"][i, :n].tolist()
        assert info["attention_mask"][begin:].sum() == n
    early = batch["turn_ids"] < batch["turn_ids"].amax(1, keepdim=True)
    assert (task == "echo_paid") == bool(batch["scores"][early].any())


def test_many_environments_speak_as_one(model_dir, found_by_environments):
    words = [f"model.path={model_dir}", "task=echo", *WORDS]
    envs = TokenVectorEnv(num_envs=6, overrides=words, autoreset_mode="Disabled")
    ones = [TokenEnv(overrides=words) for _ in range(6)]
    envs.reset(seed=5)
    for i, one in enumerate(ones):
        one.reset(seed=5 + i)
    known = [*envs.rules.tokenizer(LETTERS)["input_ids"], envs.rules.eos_ids[0]]
    draws = np.random.default_rng(0)
    for _ in range(12):
        live = [i for i, one in enumerate(ones) if not one.ended]
        tokens = draws.choice(known, 6)
        if len(live) < 6:
            envs.reset(seed=9, options={"reset_mask": np.array([i not in live for i in range(6)])})
            for i in set(range(6)) - set(live):
                ones[i].reset(seed=9 + i)
        _, rewards, terminated, truncated, _ = envs.step(tokens)
        for i, one in enumerate(ones):
            _, reward, *ends, _ = one.step(tokens[i])
            assert (rewards[i], terminated[i], truncated[i]) == (reward, *ends)
            talk, other = envs.envs[i].talk, one.talk
            assert (talk.ids, talk.turn_ids, talk.turns) == (other.ids, other.turn_ids, other.turns)


def test_a_copy_of_an_environment_goes_its_own_way(model_dir, found_by_environments):
    import copy

    env = TokenEnv(overrides=[f"model.path={model_dir}", "task=echo", *WORDS])
    env.reset(options={"prompt": "a:", "answer": "a"})
    a, b, q = env.rules.tokenizer("ab?")["input_ids"]
    env.step(a)
    twin = copy.deepcopy(env)
    env.step(q)
    twin.step(b)
    assert env.columns()["turns"] == [["a?", "!!"]]
    assert twin.columns()["turns"] == [["ab"]]


def test_neither_the_batch_nor_the_turns_change_a_draw(zoo, model_dir):
    """A row alone is the row in a batch; its token at position t is drawn by uniform t."""
    world = talking(zoo, model_dir)
    examples = draw(world, "train", 12, "train", 0)
    whole = collect(world, examples, 1, stream="train", step=3)
    for i in (0, 5, 11):
        alone = collect(world, examples[i : i + 1], 1, stream="train", step=3, first_row=i)
        n = alone.steps
        assert torch.equal(alone["response_ids"][0], whole["response_ids"][i, :n])
        assert torch.equal(alone["state_keys"][0], whole["state_keys"][i, :n])
        for name in ("old_log_probs", "sampler_log_probs"):
            torch.testing.assert_close(alone[name][0], whole[name][i, :n])
    again = world.policy.log_prob_stats(whole)["log_probs"]
    mask = whole["response_mask"].bool()
    torch.testing.assert_close(again[mask], whole["old_log_probs"][mask], atol=1e-5, rtol=0)
    uniforms = noise.uniforms(world.seed, "sample/train", 3, torch.arange(12), whole.steps)
    log_pi = world.policy.log_prob_stats(whole, want=("log_pi",))["log_pi"]
    cdf = log_pi.double().exp().cumsum(-1)
    drawn = torch.searchsorted(cdf, uniforms[..., None] * cdf[..., -1:], right=True)[..., 0]
    agree = (drawn == whole["response_ids"])[mask].double().mean()
    assert agree > 0.99  # but for a uniform within rounding of a step
    assert (mask & (whole["turn_ids"] > 1)).any()


def test_state_keys_are_those_of_the_turns_beginning(zoo, model_dir):
    world = talking(zoo, model_dir)
    batch = rows_of(world, 16)
    keys, turn_ids = batch["state_keys"], batch["turn_ids"]
    assert keys.dtype == torch.int64
    assert not keys[batch["response_mask"] == 0].any()
    assert (keys[turn_ids == 1] == 7).all()
    by_state = {}
    for i in range(batch.rows):
        for k in range(2, int(turn_ids[i].max()) + 1):
            (key,) = keys[i][turn_ids[i] == k].unique().tolist()
            by_state.setdefault(batch["turns"][i][2 * k - 3], set()).add(key)
    assert all(len(found) == 1 for found in by_state.values())
    assert len(set.union(*by_state.values())) == len(by_state) > 2


def test_a_sampler_that_knows_no_stops_gives_the_same_rows(zoo, model_dir):
    world = talking(zoo, model_dir)
    batch = rows_of(world, 8)
    tokens = world.engine.meter.tokens
    world = changed(
        world, stops=()
    )  # generation goes on; what comes after a turn's end is not taken
    again = rows_of(world, 8)
    assert torch.equal(batch["response_ids"], again["response_ids"])
    torch.testing.assert_close(batch["old_log_probs"], again["old_log_probs"])
    assert world.engine.meter.tokens == 2 * tokens == 2 * int(batch["response_mask"].sum())


@pytest.mark.parametrize(
    "recipe", grid(["vineppo", "gigpo", "ppo_gae", "remax", "dapo"],
                   always=("vineppo", "gigpo").__contains__)
)  # fmt: skip
def test_recipes_train_on_conversations(zoo, model_dir, words, recipe, tmp_path):
    """Branch rollouts from the middle of one, greedy baselines, and samplers that draw again."""
    more = ["rollout.max_new_tokens=10", "rewards=verifier", "task=echo", "run.samples=1"]
    run = rlzoo.run(recipe, [*words, *more, f"run.dir={tmp_path}/run"], zoo=zoo)
    assert all(np.isfinite(v) for line in run.metrics for v in line.values() if v is not None)
    assert run.summary["steps"] == 3


# ---------------------------------------------------------------- what the environment said


def answered(world, batch):
    """(B, T) where the environment spoke, by the rules written down a second time."""
    said = torch.zeros(batch.rows, batch.steps, dtype=torch.bool)
    for i in range(batch.rows):
        ids, mask, *_ = by_hand(world, batch, i)
        said[i, : len(ids)] = torch.tensor(mask) == 0
    assert said.any()
    return said


def with_credit(world, batch):
    add_columns(world, batch, stream="train", step=0)
    add_rewards(world.plan, batch, 0.1)
    add_advantages(world.plan, batch)
    return batch


def check_columns(world, batch):
    """No number of the batch belongs to a token of the environment's."""
    said = answered(world, batch)
    for name, x in with_credit(world, batch).items():
        per_token = isinstance(x, torch.Tensor) and x.shape[:2] == said.shape
        if per_token and name not in ("response_ids", "response_attention"):
            assert not x[said].any(), name


def check_gradient(world, batch):
    """The losses' gradient in what the logits of such a token are made of is exactly 0."""
    said, hidden = answered(world, batch), []

    def keep(module, given, out):
        if out[0].requires_grad:
            out[0].retain_grad()
            hidden.append(out[0])

    with_credit(world, batch)
    hook = world.policy.model.base_model.register_forward_hook(keep)
    every, networks = torch.arange(batch.rows), tuple(world.engine.networks)
    kept = Kept([(every, world.engine._outputs(batch, networks))])
    hook.remove()
    gradients(world.engine, world.plan, take(batch, every), 0.1, networks, kept)
    (last,) = hidden
    rows = align(batch, trees=True)  # it says where the states before each token lie
    flows = last.grad[:, -rows.keep :].flatten(0, 1)[rows.at[:, :-1]].abs().sum(-1)  # (B, T)
    acts = batch["response_mask"].bool() & (batch["advantages"] != 0)
    assert (flows[acts] > 0).all()
    assert not flows[said].any(), "a gradient flows into what the environment said"


CREDIT = {
    "kl in the reward": ["recipe=ppo_gae", "kl.coef=0.1"],
    "kl in the loss": ["recipe=grpo", "kl.coef=0.1"],
    "turns": ["recipe=turn_gae"],
}


def recipe_world(zoo, model_dir, case):
    words = [
        *CREDIT[case], f"model.path={model_dir}", "task=echo", "rollout.max_new_tokens=14",
        "train.minibatches=1", "actor.entropy_coef=0.01", "device=cpu",
    ]  # fmt: skip
    world = build_world(make_plan(compose(words, zoo), zoo))
    favour(world.policy, LETTERS, eos=0.5)
    if world.engine.reference is not None:  # KL is of something
        favour(world.engine.reference, LETTERS, eos=0.5, seed=1)
    return world


@pytest.mark.parametrize("case", CREDIT)
def test_what_the_environment_says_gets_no_credit_and_no_gradient(zoo, model_dir, case):
    world = recipe_world(zoo, model_dir, case)
    check_columns(world, rows_of(world, 12))
    check_gradient(world, rows_of(world, 12))


@pytest.mark.parametrize("case", CREDIT)
def test_without_the_mask_of_their_tokens_both_fail(zoo, model_dir, case, monkeypatch):
    world = recipe_world(zoo, model_dir, case)
    columns = Turns.columns

    def unmasked(*args):
        found = columns(*args)
        return found | {"response_mask": found["response_attention"]}

    monkeypatch.setattr(Turns, "columns", unmasked)
    with pytest.raises(AssertionError):
        check_columns(world, rows_of(world, 12))
    with pytest.raises(AssertionError, match="a gradient flows"):
        check_gradient(world, rows_of(world, 12))


def test_a_row_continues_from_any_action_as_it_went_on(zoo, model_dir):
    world = talking(zoo, model_dir)
    batch = rows_of(world, 16)
    rules = Turns(world.plan, world.policy.tokenizer, world.policy.eos_ids)
    for i in range(batch.rows):
        ids, mask = batch["response_ids"][i].tolist(), batch["response_mask"][i]
        for at in mask.nonzero()[:, 0].tolist():
            talk = resume(batch, i, at, 14)
            while not talk.over:
                here = len(talk.ids)
                rules.act([talk], [ids[here:]])
            n = len(talk.ids)
            assert talk.ids == ids[:n]
            assert n == int(batch["response_attention"][i].sum())
            assert talk.turn_ids == batch["turn_ids"][i, :n].tolist()
            assert rules.texts(talk) == batch["turns"][i]
            assert (talk.terminated, talk.truncated) == (
                batch["terminated"][i], batch["truncated"][i],
            )  # fmt: skip
            columns = rules.columns([talk], 0, "cpu")
            assert columns["response_ids"][0].tolist() == ids[at:n]
            assert same(columns["state_keys"][0], batch["state_keys"][i, at:n])


def test_greedy_conversations_are_the_likeliest_tokens(zoo, model_dir):
    world = talking(zoo, model_dir)
    batch = rows_of(world, 8)
    sample = resources(world, batch, "abc", 0)["sample"]
    of = torch.tensor([5, 2, 11])
    tokens = world.engine.meter.tokens
    found = sample(batch["prompt_ids"][of], batch["prompt_mask"][of], greedy=True, of=of)
    assert world.engine.meter.tokens - tokens == int(found["response_mask"].sum())
    prompts = {n: batch[n][of] for n in ("prompt_ids", "prompt_mask", "group_ids")}
    likeliest = world.policy.log_prob_stats(found | prompts, want=("log_pi",))["log_pi"].argmax(-1)
    acts = found["response_mask"].bool()
    assert torch.equal(likeliest[acts], found["response_ids"][acts])
    whole = found | {n: [batch[n][i] for i in of.tolist()] for n in ("prompts", "answers")}
    for i in range(3):
        ids, _, turn_ids, turns, _ = by_hand(world, whole, i)
        assert whole["turns"][i] == turns
        assert whole["turn_ids"][i, : len(ids)].tolist() == turn_ids


def test_branches_of_what_is_no_beginning_of_a_row_are_refused(zoo, model_dir):
    world = talking(zoo, model_dir)
    batch = rows_of(world, 4)
    sample = resources(world, batch, "abc", 0)["sample"]
    whole = sample(batch["prompt_ids"], batch["prompt_mask"])
    assert whole["response_mask"].shape[0] == batch.rows
    other = int((batch["prompt_index"] != batch["prompt_index"][0]).nonzero()[0])
    with pytest.raises(
        RlzooError, match=f"prompt 0 must be the beginning of row {other} of the batch"
    ):
        sample(batch["prompt_ids"][:1], batch["prompt_mask"][:1], of=torch.tensor([other]))


# ---------------------------------------------------------------- when a turn ends


class Pieces:
    """A tokenizer whose tokens are these texts."""

    texts = ("a", "b?", "<", "/s", "earch>", "/", ">", "é", "\n")

    def decode(self, ids, skip_special_tokens, clean_up_tokenization_spaces):
        return "".join(self.texts[i] for i in ids)

    def convert_ids_to_tokens(self, i):
        return self.texts[i]


def test_a_turn_ends_with_the_token_that_completes_a_stop():
    draw = np.random.default_rng(0)
    stops = ("</search>", "?", "é\n")
    ended = set()
    for _ in range(2000):
        tokens = draw.integers(0, 9, 12).tolist()
        tokens[draw.integers(9) :][:3] = [2, 3, 4]
        text = ""
        for n, token in enumerate(tokens, 1):
            text += Pieces.texts[token]
            over = [s for s in stops if s in text]
            assert ends_turn(Pieces(), tokens[:n], [99], stops) == bool(over)
            ended.update(over)
            if over:
                break
    assert ended == set(stops)
    assert ends_turn(Pieces(), [0, 99], [98, 99], ())
    assert not ends_turn(Pieces(), [99, 0], [98, 99], ())


# ---------------------------------------------------------------- chat

TEMPLATE = (
    "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}[a]{% endif %}"
)


@pytest.fixture
def chat_dir(model_dir, tmp_path):
    """The model with a chat template, under which every turn ends with EOS and a line break."""
    folder = tmp_path / "chat"
    shutil.copytree(model_dir, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def test_chat_answers_stand_where_the_template_puts_them(zoo, chat_dir, found_by_environments):
    words = [
        "task=echo",
        "model.chat=always",
        "model.system=hi",
        "rollout.max_new_tokens=44",
    ]
    world = talking(zoo, chat_dir, *words)
    batch = rows_of(world, 24)
    kinds = set()
    for i in range(batch.rows):
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        n = int(batch["response_attention"][i].sum())
        read = world.policy.tokenizer.decode(prompt + batch["response_ids"][i, :n].tolist())
        messages = list(batch["messages"][i])
        assert [m["role"] for m in messages] == ["system", "user"]
        for k, text in enumerate(batch["turns"][i]):
            messages.append({"role": ("assistant", "user")[k % 2], "content": text})
            if k % 2:
                kinds.add(batch["turns"][i][k - 1].endswith(("?", "xy")))
        begins = messages[-1]["role"] == "user"
        whole = world.policy.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=begins
        )
        assert whole.startswith(read)
        assert batch["truncated"][i] or whole.removeprefix(read) in ("\n", "<eos>\n")
    assert kinds == {True, False}  # turns that a stop ended, which the template closes, and EOS
    env = TokenEnv(overrides=[f"model.path={chat_dir}", *WORDS, *words], max_prompt=20)
    for i in range(4):
        prompt = batch["messages"][i][1]["content"]
        env.reset(options={"prompt": prompt, "answer": batch["answers"][i]})
        for token in batch["response_ids"][i][batch["response_mask"][i].bool()].tolist():
            env.step(token)
        columns, n = env.columns(), int(batch["response_attention"][i].sum())
        for name in ("response_ids", "response_mask"):
            assert torch.equal(columns[name][0], batch[name][i, :n])


def test_a_template_that_refuses_an_answer_is_blamed(zoo, chat_dir, monkeypatch):
    world = talking(zoo, chat_dir, "task=echo", "model.chat=always", "rollout.max_new_tokens=40")
    refuses = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    world.policy.tokenizer.chat_template = refuses + TEMPLATE
    monkeypatch.setattr(type(world.plan.task), "respond_role", "tool", raising=False)
    vars(world.plan)["abilities"] = abilities(world.plan.task)  # looked up once for a plan
    with pytest.raises(RlzooError, match="not accept an answer from 'tool': no tools .*turn 1"):
        rows_of(world, 8)


# ---------------------------------------------------------------- faults


def shout(turns):
    raise ZeroDivisionError("oops")


FAULTS = {
    "tuple": (lambda turns: tuple("x" for _ in turns), "must return a list of 8 strs.*Got tuple"),
    "short": (lambda turns: ["x"], "must return a list of 8 strs or None. Got 1 of them"),
    "number": (lambda turns: [3 for _ in turns], "return strs or None. Got int .*turn 1: "),
    "alien": (lambda turns: ["é!" for _ in turns], "no token for 'é' in the answer 'é!' .*turn 1"),
    "raises": (shout, "respond raised ZeroDivisionError: oops .prompt '[a-d]+:', turn 1: "),
    "some": (
        lambda turns, prompts: [{"a:": "1", "bb:": "2", "ccc:": "3"}[p] for p in prompts],
        "respond raised KeyError: 'dddd:' .prompt 'dddd:', turn 1: ",
    ),
    "together": (
        lambda turns: ["x"] if len(turns) == 1 else shout(turns),
        "on several rows together, but not on any single row",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_wrong_answer_is_one_line_that_names_the_place(zoo, model_dir, case):
    world = talking(zoo, model_dir)
    respond, message = FAULTS[case]
    world.plan.task.respond = respond
    vars(world.plan)["abilities"] = abilities(world.plan.task)  # looked up once for a plan
    examples = [Example(c * k + ":", c, k - 1) for k, c in enumerate("abcd", 1)]
    with pytest.raises(RlzooError, match=message) as error:
        collect(world, examples, 2, stream="train", step=0)
    assert str(error.value).startswith("task 'echo': ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (lambda turns: 7, "state_keys must return a list of [0-9]+ keys. Got int"),
        (lambda turns: [{} for _ in turns], r"state key \{\} is not hashable .*turn 0: ''"),
    ],
)
def test_wrong_state_keys(zoo, model_dir, keys, message):
    world = talking(zoo, model_dir)
    world.plan.task.state_keys = keys
    vars(world.plan)["abilities"] = abilities(world.plan.task)  # looked up once for a plan
    with pytest.raises(RlzooError, match=message):
        rows_of(world, 4)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("respond", lambda self, turn: [], "needs column 'turn', .* did you mean 'turns'"),
        ("respond", lambda self, response_ids: [], "receives only prompts, messages"),
        ("stops", ["?"], "stops must be a tuple of non-empty strings"),
        ("stops", ("",), "stops must be a tuple of non-empty strings"),
        ("state_keys", None, "column 'state_keys' requires a task with a method"),
    ],
)
def test_a_task_that_breaks_the_contract_is_refused_before_a_model_loads(
    zoo, monkeypatch, attribute, value, message
):
    task = zoo.tasks["echo"].function
    if value is None:
        monkeypatch.delattr(task, attribute)
    else:
        monkeypatch.setattr(task, attribute, value)
    with pytest.raises(RlzooError, match=message):
        make_plan(compose(["recipe=grpo", "estimator=gigpo", "task=echo"], zoo), zoo)


def test_a_plain_task_is_a_conversation_of_one_turn_to_whoever_asks(zoo, model_dir, monkeypatch):
    def score(self, turns, answers):
        assert all(len(t) == 1 for t in turns)
        return torch.tensor([float(t == [a]) for t, a in zip(turns, answers, strict=True)])

    monkeypatch.setattr(zoo.tasks["addition"].function, "score", score)
    words = ["task=addition", "task.digits=1", "estimator=grpo"]
    world = make_world(zoo, model_dir, *words)
    favour(world.policy, "0123456789", eos=1.0)
    batch = collect(world, draw(world, "train", 32, "train", 0), 1, stream="train", step=0)
    assert batch["turns"] == [[text] for text in batch["responses"]]
    assert "turn_ids" not in batch
    assert 0 < batch["sequence_scores"].sum() < 32
    env = TokenEnv(overrides=[f"model.path={model_dir}", *words])
    env.reset(seed=0)
    env.step(env.rules.tokenizer("7")["input_ids"][0])
    assert env.columns()["turns"] == [["7"]]
