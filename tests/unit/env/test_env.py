"""TokenEnv steps through the same MDP that the sampler walks; its vector form and KL wrapper."""

import copy
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlzoo  # noqa: F401 - registers the environment
from helpers.grids import grid
from helpers.worlds import favour, make_world, one_thread
from rlzoo.env import kl_reward, rules
from rlzoo.env.kl_reward import KLRewardWrapper
from rlzoo.env.token_env import TokenEnv
from rlzoo.env.vector_env import TokenVectorEnv
from rlzoo.errors import ComponentError, RlzooError
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_columns, add_rewards

ENV = "rlzoo/TokenMDP-v0"
LETTERS = "abcdefghijklmnopqrstuvwxyz"

# Recipe words, and the characters that make some of a random model's rows right.
CASES = {
    "addition": (["task=addition", "task.digits=1", "rollout.max_new_tokens=3"], "0123456789"),
    "reverse": (["task=reverse", "task.min_length=1", "task.max_length=2"], "abc"),
    "reverse_dense": (["task=reverse_dense"], LETTERS),
    "fixed length": (
        [
            "task=reverse",
            "task.fixed=true",
            "task.letters=2",
            "task.min_length=2",
            "task.max_length=2",
            "rollout.ignore_eos=true",
            "rollout.max_new_tokens=2",
        ],
        "ab",
    ),
    "least length": (
        [
            "task=reverse",
            "task.min_length=1",
            "task.max_length=3",
            "rollout.min_new_tokens=2",
            "rollout.max_new_tokens=4",
        ],
        "abc",
    ),
    "key_door": (
        ["task=key_door", "task.keys=2", "task.distractors=2", "rollout.max_new_tokens=4"],
        "qm",
    ),
    "several rewards and a penalty": (
        [
            "task=reverse_dense",
            "rewards.verifier.weight=2",
            "rewards.python.function=helpers.rewards_for_tests:letters",
            "rewards.python.weight=0.5",
            "rollout.truncation=penalty",
            "rollout.truncation_penalty=0.25",
        ],
        LETTERS,
    ),
}


one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture(autouse=True)
def one_zoo(zoo, monkeypatch):
    """Every environment loads the zoo: here all have the same."""
    monkeypatch.setattr(rules, "load_zoo", lambda: zoo)
    monkeypatch.setattr(kl_reward, "load_zoo", lambda: zoo)


@pytest.fixture
def over(model_dir):
    """Overrides that name the model."""
    return [f"model.path={model_dir}"]


@pytest.fixture
def make(over):
    def make(*words, **options):
        return TokenEnv(overrides=[*over, *words], **options)

    return make


def rows_of(world, n, characters):
    """A batch of n rows, of prompts whose answers consist of the characters."""
    examples = [
        e for e in draw(world, "train", 40 * n, "train", 0) if set(e.answer) <= set(characters)
    ]
    return collect(world, examples[:n], 1, stream="train", step=0)


def play(env, batch, i):
    """Step the tokens of a batch's row i; the results of each step."""
    options = {"prompt": batch["prompts"][i], "answer": batch["answers"][i]}
    if "noise" in batch:
        noise = np.zeros(env.unwrapped.rules.max_new_tokens)
        noise[: batch.steps] = batch["noise"][i].numpy()
        options["noise"] = noise
    env.reset(options=options)
    n = int(batch["response_mask"][i].sum())
    return [env.step(token) for token in batch["response_ids"][i, :n].tolist()]


# ---------------------------------------------------------------- gymnasium's own rules


@pytest.mark.parametrize("task", ["addition", "reverse", "reverse_dense", "key_door"])
def test_gymnasium_checks_the_environment(over, task, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ENV, task=task, overrides=over).unwrapped)


@pytest.mark.process
@pytest.mark.parametrize(("first", "then"), [("gymnasium", "rlzoo"), ("rlzoo", "gymnasium")])
def test_importing_rlzoo_registers_the_environment_and_no_more(first, then):
    code = f"""if 1:
        import sys
        import {first}
        assert "gymnasium" in sys.modules or "{first}" == "rlzoo"
        import {then}
        assert "torch" not in sys.modules
        assert gymnasium.spec("{ENV}").entry_point == "rlzoo.env:TokenEnv"
        assert gymnasium.spec("{ENV}").vector_entry_point == "rlzoo.env:TokenVectorEnv"
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_random_agent(over):
    env = gymnasium.make(ENV, task="addition", overrides=over, digits=1)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env.action_space.seed(0)
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        over_ = False
        while not over_:
            assert observation in env.observation_space
            observation, _, terminated, truncated, info = env.step(env.action_space.sample())
            over_ = terminated or truncated
        assert terminated != truncated
        assert info["episode"]["r"] == info["score"]
        assert info["episode"]["l"] <= env.unwrapped.rules.max_new_tokens


def test_make_vec_speaks_numpy(over):
    envs = gymnasium.make_vec(ENV, num_envs=3, task="reverse_dense", overrides=over)
    assert isinstance(envs, TokenVectorEnv)
    assert isinstance(envs.metadata["autoreset_mode"], AutoresetMode)
    observations, _ = envs.reset(seed=0)
    assert observations in envs.observation_space
    observations, rewards, *ends, _ = envs.step(envs.action_space.sample())
    assert observations in envs.observation_space
    assert rewards.dtype == np.float64
    assert all(x.dtype == np.bool_ for x in ends)


# ---------------------------------------------------------------- one MDP, two ways through it


@pytest.mark.parametrize("case", CASES)
def test_the_samplers_batch_is_what_stepping_gives(zoo, model_dir, make, case):
    words, characters = CASES[case]
    world = make_world(zoo, model_dir, *words)
    favour(world.policy, characters, eos=1.0)
    batch = rows_of(world, 64, characters)
    right = batch["sequence_scores"] > 0
    # Without rows of each kind this would show nothing.
    assert batch["terminated"].any()
    assert batch["truncated"].any() != (case == "fixed length")
    assert right.any()
    assert not right.all()
    env = make(*words)
    for i in range(batch.rows):
        steps = play(env, batch, i)
        n = len(steps)
        columns = env.columns()
        rewards = torch.zeros(batch.steps)
        rewards[:n] = torch.tensor([reward for _, reward, *_ in steps])
        torch.testing.assert_close(rewards, batch["scores"][i], atol=1e-6, rtol=0)
        assert torch.equal(columns["response_ids"][0], batch["response_ids"][i, :n])
        assert torch.equal(columns["response_mask"][0], batch["response_mask"][i, :n])
        assert not batch["response_mask"][i, n:].any()
        terminated = [s[2] for s in steps]
        truncated = [s[3] for s in steps]
        assert not any(terminated[:-1] + truncated[:-1])
        assert (terminated[-1], truncated[-1]) == (batch["terminated"][i], batch["truncated"][i])
        info = steps[-1][-1]
        assert info["score"] == pytest.approx(batch["sequence_scores"][i].item(), abs=1e-6)
        assert info["response"] == batch["responses"][i]
        assert info["answer"] == batch["answers"][i]
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()]
        assert torch.equal(columns["prompt_ids"][0][columns["prompt_mask"][0].bool()], prompt)


def test_length_one_and_full_length_pay_their_whole_score(zoo, model_dir, make):
    words, characters = CASES["reverse_dense"]
    world = make_world(zoo, model_dir, *words)
    favour(world.policy, characters, eos=1.0)
    batch = rows_of(world, 64, characters)
    lengths = batch["response_mask"].sum(1)
    env = make(*words)
    for length in (1, env.rules.max_new_tokens):
        i = int((lengths == length).nonzero()[0])
        steps = play(env, batch, i)
        assert len(steps) == length
        total = sum(reward for _, reward, *_ in steps)
        assert total == pytest.approx(batch["sequence_scores"][i].item(), abs=1e-6)


def test_an_observation_is_a_row_of_the_batch_at_fixed_width(make):
    env = make("task=addition", max_prompt=10)
    limit = env.rules.max_new_tokens
    for prompt in ("1+1=", "17+25="):
        observation, info = env.reset(options={"prompt": prompt, "answer": "2"})
        assert observation.shape == (10 + limit,)
        for token in env.rules.tokenizer("42")["input_ids"]:
            observation, *_, info = env.step(token)
        assert env.rules.tokenizer.decode(observation[10:12]) == "42"
        mask = info["attention_mask"]
        assert env.rules.tokenizer.decode(observation[mask > 0]) == f"{prompt}42"
        assert mask.tolist() == [0] * (10 - len(prompt)) + [1] * len(prompt) + [1, 1] + [0] * (
            limit - 2
        )


def test_a_seed_gives_the_episode_and_seeds_differ(make):
    env = make("task=key_door", "task.keys=8")
    token = env.rules.tokenizer("q")["input_ids"][0]

    def episode(seed):
        _, info = env.reset(seed=seed)
        return info["prompt"], [env.step(token)[1] for _ in range(4)]

    assert episode(1) == episode(1)
    assert len({episode(seed)[0] for seed in range(20)}) > 3
    assert episode(1)[1] != episode(2)[1]


def test_split_is_where_prompts_come_from(make):
    env = make("task=addition", "task.digits=1")

    def prompts(split):
        return {env.reset(seed=s, options={"split": split})[1]["prompt"] for s in range(40)}

    assert prompts("train").isdisjoint(prompts("test"))


# ---------------------------------------------------------------- scorers


def test_what_each_ending_pays(make):
    """By hand: a truncated row pays the penalty at its last token, whatever else it scored."""
    words = ["rollout.max_new_tokens=4", "rollout.truncation=penalty"]
    env = make("task=reverse_dense", *words, "rollout.truncation_penalty=0.5")
    a, b, z = env.rules.tokenizer("abz")["input_ids"]
    eos = env.rules.eos_ids[0]
    endings = {
        (b, a, eos): [1 / 3, 1 / 3, 1 / 3],
        (b, eos): [1 / 3, 0],
        (b, z, a, z): [1 / 3, 0, 0, -0.5],
        (b, z, a, eos): [1 / 3, 0, 0, 0],
    }
    for tokens, expected in endings.items():
        env.reset(options={"prompt": "ab>", "answer": "ba"})
        steps = [env.step(token) for token in tokens]
        assert [reward for _, reward, *_ in steps] == pytest.approx(expected, abs=1e-6)
        assert steps[-1][2:4] == (tokens[-1] == eos, tokens[-1] != eos)
        assert steps[-1][-1]["score"] == pytest.approx(sum(expected), abs=1e-6)


def test_copies_go_their_own_ways(make):
    env = make("task=addition")
    env.reset(options={"prompt": "1+1=", "answer": "2"})
    twin = copy.deepcopy(env)
    two, three = env.rules.tokenizer("23")["input_ids"]
    env.step(two)
    twin.step(three)
    ends = [e.step(env.rules.eos_ids[0]) for e in (env, twin)]
    assert [(reward, info["response"]) for _, reward, *_, info in ends] == [(1, "2"), (0, "3")]


@pytest.fixture
def scorer(tmp_path, monkeypatch):
    """A module of rewards; `seen` lists what `outcome` was called with."""
    (tmp_path / "scorers_of_env.py").write_text(
        "seen = []\n"
        "def outcome(prompts, responses, answers):\n"
        "    seen.append(list(responses))\n"
        "    return [1.0] * len(responses)\n"
        "def look_ahead(prompts, responses, answers):\n"
        "    n = len(responses[0]) + 1\n"
        "    return [[1 / n] * n]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("scorers_of_env", None)


def test_an_outcome_is_paid_at_the_end_and_asked_for_then(make, scorer):
    words = ["task=addition", "rewards=python", "rewards.python.function=scorers_of_env:outcome"]
    env = make(*words)
    tokens = [*env.rules.tokenizer("777")["input_ids"], env.rules.eos_ids[0]]
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(token)[1] for token in tokens] == [0, 0, 0, 1]
    # At first it is unknown whether it scores tokens; then the rows that end will do.
    seen = sys.modules["scorers_of_env"].seen
    assert seen[-2:] == [["777"], ["777"]]
    assert set(map(len, seen)) == {1}
    assert seen.count(["77"]) == 0


def test_a_score_per_token_must_not_look_ahead(make, scorer):
    words = ["task=addition", "rewards=python"]
    env = make(*words, "rewards.python.function=scorers_of_env:look_ahead")
    env.reset(seed=0)
    seven = env.rules.tokenizer("7")["input_ids"][0]
    with pytest.raises(RlzooError, match="shape"):  # it counts an EOS that is not there
        env.step(seven)
    module = sys.modules["scorers_of_env"]
    module.look_ahead = lambda p, r, a: [[1 / len(r[0])] * len(r[0])]
    env.reset(seed=0)
    for _ in range(env.rules.max_new_tokens - 1):
        env.step(seven)
    with pytest.raises(ComponentError, match="token 0 was 1 .* must not depend on later tokens"):
        env.step(seven)


# ---------------------------------------------------------------- many at a time


def agree(one, many):
    """Infos: what the vector environment tells is what SyncVectorEnv tells."""
    for name, value in many.items():
        if name.startswith("_"):
            continue
        have = np.asarray(many[f"_{name}"])
        assert have.any(), name
        if name == "final_info":
            agree(one[name], value)
        else:
            for i in have.nonzero()[0]:
                assert np.array_equal(one[name][i], value[i]), name


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("case", ["addition", "reverse_dense", "key_door"])
def test_the_vector_environment_is_its_rows(over, case, mode):
    words, characters = CASES[case]
    words = [*over, *words]
    sync = SyncVectorEnv([lambda: TokenEnv(overrides=words)] * 4, autoreset_mode=mode)
    many = TokenVectorEnv(4, overrides=words, autoreset_mode=mode)
    eos = many.rules.eos_ids[0]
    likely = [*many.rules.tokenizer(characters)["input_ids"], eos, eos]
    rng = np.random.default_rng(0)
    one_observation, one_info = sync.reset(seed=7)
    observation, info = many.reset(seed=7)
    assert np.array_equal(one_observation, observation)
    agree(one_info, info)
    ends, paid = np.zeros(2), 0.0
    for _ in range(30):
        actions = rng.choice(likely, 4)
        one, several = sync.step(actions), many.step(actions)
        for a, b in zip(one[:4], several[:4], strict=True):
            assert np.array_equal(a, b)
            assert a.dtype == b.dtype
        agree(one[4], several[4])
        ends += several[2].sum(), several[3].sum()
        paid += abs(several[1]).sum()
        over_ = several[2] | several[3]
        if mode == AutoresetMode.DISABLED and over_.any():
            with pytest.raises(ResetNeeded):
                many.step(actions)
            one_observation, _ = sync.reset(options={"reset_mask": over_})
            observation, _ = many.reset(options={"reset_mask": over_})
            assert np.array_equal(one_observation, observation)
    assert ends.min() > 0
    assert paid > 0 or case == "addition"


def test_on_a_device_tensors_go_in_and_come_out(over):
    words = [*over, *CASES["reverse_dense"][0]]
    arrays = TokenVectorEnv(3, overrides=words)
    tensors = TokenVectorEnv(3, overrides=words, device="cpu")
    assert torch.equal(
        torch.from_numpy(arrays.reset(seed=1)[0]), observations := tensors.reset(seed=1)[0]
    )
    assert observations.dtype == torch.int64
    for token in (40, 41, arrays.rules.eos_ids[0]):
        a = arrays.step(np.full(3, token))
        b = tensors.step(torch.full((3,), token))
        assert all(isinstance(x, torch.Tensor) for x in b[:4])
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_allclose(x, y.numpy(), atol=1e-7)
    assert isinstance(b[4]["score"], torch.Tensor)
    assert b[4]["answer"] == list(a[4]["answer"])


def test_vector_options_hold_for_all_rows_or_for_each(over):
    envs = TokenVectorEnv(2, overrides=[*over, "task=addition"])
    prompts = ["1+1=", "2+2="]
    _, infos = envs.reset(options={"prompt": prompts, "answer": ["2", "4"]})
    assert list(infos["prompt"]) == prompts
    four = envs.rules.tokenizer("4")["input_ids"][0]
    envs.step([four, four])
    _, rewards, *_, infos = envs.step([envs.rules.eos_ids[0]] * 2)
    assert rewards.tolist() == [0, 1]
    assert list(infos["answer"]) == ["2", "4"]
    _, infos = envs.reset(options={"prompt": "3+3=", "answer": "6"})
    assert list(infos["prompt"]) == ["3+3="] * 2
    with pytest.raises(RlzooError, match="prompt has 3 entries, not 2"):
        envs.reset(options={"prompt": ["1+1="] * 3})


def test_a_policy_takes_the_columns_of_the_vector_environment(zoo, model_dir, over):
    """Greedy play through the environment is greedy generation."""
    world = make_world(zoo, model_dir, "task=addition")
    envs = TokenVectorEnv(8, overrides=[*over, "task=addition"], device="cpu")
    envs.reset(seed=3)
    start = envs.columns()
    expected = world.policy.generate(start["prompt_ids"], start["prompt_mask"], None, 5)
    for _ in range(5):
        logits = world.policy.logits(envs.columns())
        envs.step(logits[:, -1].argmax(-1))
    assert torch.equal(envs.columns()["response_ids"], expected["response_ids"])


# ---------------------------------------------------------------- KL in the reward


def test_the_kl_wrapper_replays_what_sampling_keeps(zoo, model_dir, make):
    words = ["task=reverse_dense", "kl=k1", "kl.coef=0.3", "kl.place=reward", "rollout.top_k=4",
             "rollout.replay=kept", "rollout.min_new_tokens=2"]  # fmt: skip
    world = make_world(zoo, model_dir, *words)
    favour(world.policy, LETTERS, eos=1.0)
    favour(world.engine.reference, LETTERS, eos=1.0, seed=1)
    batch = collect(world, draw(world, "train", 2, "train", 0), 2, stream="train", step=0)
    mask = batch["response_mask"].bool()
    again = world.policy.kept_tokens(batch)
    assert torch.equal(again[mask], batch["kept_tokens"][mask])
    add_columns(world, batch, stream="train", step=0)
    add_rewards(world.plan, batch, 0.3)
    env = KLRewardWrapper(make(*words), world.policy, world.engine.reference)
    for i in range(batch.rows):
        rewards = torch.tensor([reward for _, reward, *_ in play(env, batch, i)])
        torch.testing.assert_close(rewards, batch["rewards"][i, : len(rewards)], atol=2e-5, rtol=0)


@pytest.mark.parametrize(
    ("penalty", "spread"),
    grid(["k1", "k3", "k3_unbiased", "full", "teacher_k1"], ["token", "last"],
         always=lambda penalty, spread: spread == "token" or penalty == "k1"),
)  # fmt: skip
def test_the_kl_wrapper_pays_what_the_batch_pays(zoo, model_dir, make, penalty, spread):
    words, characters = CASES["reverse_dense"]
    words = [*words, f"kl={penalty}", "kl.coef=0.3", f"kl.spread={spread}", "kl.place=reward"]
    words += ["rollout.temperature=0.7", f"teacher.path={model_dir}"]
    world = make_world(zoo, model_dir, *words)
    other = world.engine.reference or world.engine.teachers[None]
    favour(world.policy, characters, eos=1.0)
    favour(other, characters, eos=1.0, seed=1)
    batch = rows_of(world, 4, characters)
    add_columns(world, batch, stream="train", step=0)
    add_rewards(world.plan, batch, 0.3)
    assert (batch["rewards"] - batch["scores"]).abs().max() > 0.05
    env = KLRewardWrapper(make(*words), world.policy, other)
    for i in range(batch.rows):
        steps = play(env, batch, i)
        n = len(steps)
        rewards = torch.tensor([reward for _, reward, *_ in steps])
        torch.testing.assert_close(rewards, batch["rewards"][i, :n], atol=2e-5, rtol=0)
        log_probs = torch.tensor([s[-1]["log_prob"] for s in steps])
        torch.testing.assert_close(log_probs, batch["old_log_probs"][i, :n], atol=2e-5, rtol=0)


# ---------------------------------------------------------------- bad input


def test_bad_input_gets_one_line(make, over):
    with pytest.raises(RlzooError, match="did you mean 'addition'"):
        make(task="adition")
    with pytest.raises(RlzooError, match="no option 'digitz'"):
        make(task="addition", digitz=3)
    with pytest.raises(RlzooError, match="model.path"):
        TokenEnv(overrides=["model.path=/nowhere"])
    env = make(task="addition", max_prompt=5)
    with pytest.raises(ResetNeeded):
        env.step(5)
    with pytest.raises(RlzooError, match="7 tokens, more than max_prompt=5"):
        env.reset(options={"prompt": "100+10="})
    with pytest.raises(RlzooError, match="the tokenizer has no token for 'é'"):
        env.reset(options={"prompt": "é"})
    with pytest.raises(RlzooError, match="no option 'promt'; did you mean 'prompt'"):
        env.reset(options={"promt": "1+1="})
    env.reset(options={"prompt": "1+1=", "answer": "2"})
    with pytest.raises(ValueError, match="a token id below 99"):
        env.step(env.action_space.n)
    env.step(env.rules.eos_ids[0])
    with pytest.raises(ResetNeeded):
        env.step(5)


def test_a_vocabulary_wider_than_the_tokenizers(model_dir, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    model.resize_token_embeddings(128)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(model_dir).save_pretrained(tmp_path)
    env = TokenEnv(task="reverse_dense", overrides=[f"model.path={tmp_path}"])
    assert env.action_space.n == 128
    env.reset(seed=0)
    observation, *_, info = env.step(127)
    assert observation in env.observation_space
    assert info["response"] == "<|127|>"


def test_rendering(make, capsys):
    env = make(task="addition", render_mode="ansi")
    env.reset(options={"prompt": "1+1=", "answer": "2"})
    env.step(env.rules.tokenizer("2")["input_ids"][0])
    assert env.render() == "1+1=|2"
    env = make(task="addition", render_mode="human")
    env.reset(options={"prompt": "1+1=", "answer": "2"})
    assert capsys.readouterr().out == "1+1=|\n"
