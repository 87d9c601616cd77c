"""Finding and loading models, what is wrong with them in one line, and how prompts are read."""

import json
import socket
import time

import pytest
import torch

import rlzoo
from helpers.architectures import CONFIGS, TOKENIZER, save_model
from helpers.micro import with_other_tokenizer
from rlzoo.cli import main
from rlzoo.errors import ModelError, RecipeError, RlzooError
from rlzoo.lm import loading
from rlzoo.lm.build import build_world
from rlzoo.lm.loading import load_causal_lm, load_tokenizer, load_trunk, origin, resolve_path
from rlzoo.lm.prompts import PromptFormat, encode
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan

# A template as chat models have it, small enough for a tokenizer of characters.
TEMPLATE = (
    "{{ '^' }}"
    "{% for m in messages %}{{ m['role'][0] + ':' + m['content'] + '~' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"
)
ASKED = [{"role": "user", "content": "1+2="}]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture
def copy(llama, tmp_path):
    """copy(**changes of tokenizer_config.json): the model with another tokenizer."""

    def make(without=(), **changes):
        for path in llama.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        file = tmp_path / "tokenizer_config.json"
        said = json.loads(file.read_text()) | changes
        file.write_text(json.dumps({k: v for k, v in said.items() if k not in without}))
        return tmp_path

    return make


def make(zoo, path, *words, recipe="ppo_gae"):
    words = [f"recipe={recipe}", f"model.path={path}", "device=cpu", *words]
    return build_world(make_plan(compose(words, zoo), zoo))


def line(error):
    """Its text, which must be one line."""
    text = str(error.value)
    assert "\n" not in text
    return text


# ---------------------------------------------------------------- hub


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """An empty cache, and no network but what a test lets in."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)

    def unreachable(*given, **named):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    return constants


def test_a_hub_id_without_a_network_says_so_at_once_and_names_the_cache(hub, zoo, tmp_path):
    began = time.monotonic()
    with pytest.raises(ModelError) as error:
        rlzoo.run("grpo", ["model.path=Qwen/Qwen2.5-0.5B", f"run.dir={tmp_path}/run"], zoo=zoo)
    assert line(error) == (
        "model.path (command line): 'Qwen/Qwen2.5-0.5B' is not a local folder, and the hub id "
        f"is not in the cache ({tmp_path}/hub), and there is no network"
    )
    assert time.monotonic() - began < 5
    assert not (tmp_path / "run").exists()


def test_a_hub_id_offline_says_so(hub, monkeypatch):
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="is not in the cache .* and HF_HUB_OFFLINE is set$"):
        resolve_path("Qwen/Qwen2.5-0.5B")


def test_the_command_says_it_on_one_line_and_exits_with_2(hub, monkeypatch, capsys):
    monkeypatch.setattr(hub, "HF_HUB_OFFLINE", True)
    assert main(["run", "recipe=grpo", "model.path=nobody/nothing"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "HF_HUB_OFFLINE is set" in err


def in_the_cache(llama, root):
    """The model as the hub's client keeps it."""
    place = root / "models--someone--small"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0123")
    (place / "snapshots" / "0123").mkdir(parents=True)
    for path in llama.iterdir():
        (place / "snapshots" / "0123" / path.name).write_bytes(path.read_bytes())
    return place / "snapshots" / "0123"


def test_a_hub_id_in_the_cache_needs_no_network(hub, llama, tmp_path):
    place = in_the_cache(llama, tmp_path / "hub")
    found = resolve_path("someone/small")
    assert found == place
    assert load_causal_lm(found).config.model_type == "llama"
    assert origin("someone/small", found)[0] == "someone/small"
    assert origin("llama", llama)[0] == str(llama.resolve())


def test_what_the_hub_refuses_is_told_on_one_line(hub, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def download(name, *, allow_patterns, local_files_only=False):
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        raise OSError("401 Client Error\nAccess to the model is restricted.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: [()])
    with pytest.raises(ModelError) as error:
        resolve_path("meta-llama/Llama-3.2-1B")
    assert line(error).endswith("the hub id cannot be loaded: 401 Client Error")


def test_a_download_leaves_pickles_and_code_behind(hub, monkeypatch):
    """What is asked of the hub: no .bin, no .pt, no .py."""
    from fnmatch import fnmatch

    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked = []

    def download(name, *, allow_patterns, local_files_only=False):
        asked.append(allow_patterns)
        if local_files_only:
            raise LocalEntryNotFoundError("not here")
        return "/somewhere"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: [()])
    assert str(resolve_path("someone/small")) == "/somewhere"
    assert not any("*.py" in patterns for patterns in asked)
    resolve_path("someone/small", code=True)
    assert "*.py" in asked.pop()
    asked.pop()
    files = {"config.json", "model-00001-of-00002.safetensors", "tokenizer.model", "merges.txt",
             "model.safetensors.index.json", "chat_template.jinja"}  # fmt: skip
    bad = {"pytorch_model.bin", "model.pt", "modeling_small.py", "consolidated.pth"}
    for patterns in asked:
        let = {name for name in files | bad if any(fnmatch(name, p) for p in patterns)}
        assert let == files


# ---------------------------------------------------------------- folders


def test_no_such_folder(zoo):
    with pytest.raises(
        ModelError,
        match=r"^model.path: './nowhere' is not a model, because there is no such folder$",
    ):
        resolve_path("./nowhere")


def test_a_folder_without_a_config(tmp_path):
    with pytest.raises(ModelError) as error:
        resolve_path(str(tmp_path))
    assert "is not a model, because it contains no config.json" in line(error)


def test_a_broken_config(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError) as error:
        load_causal_lm(tmp_path)
    assert "no usable config.json" in line(error)
    (tmp_path / "config.json").write_text('{"model_type": "nothing_known"}')
    with pytest.raises(ModelError) as error:
        load_causal_lm(tmp_path)
    assert "no usable config.json" in line(error)


def test_pickled_weights_are_refused(llama, copy):
    folder = copy()
    (folder / "model.safetensors").unlink()
    torch.save(load_causal_lm(llama).state_dict(), folder / "pytorch_model.bin")
    for load in (load_causal_lm, load_trunk):
        with pytest.raises(ModelError) as error:
            load(folder)
        assert "safetensors" in line(error)


def test_code_of_a_models_own_does_not_run_unless_asked(copy, tmp_path, zoo):
    folder = copy()
    said = json.loads((folder / "config.json").read_text())
    said |= {"model_type": "own_kind", "auto_map": {
        "AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(said))
    witness = tmp_path / "it-ran"
    (folder / "own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        f"Path({str(witness)!r}).touch()\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own_kind'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(ModelError) as error:
        make(zoo, folder)
    assert "model.trust_remote_code" in line(error)
    assert not witness.exists()
    world = make(zoo, folder, "model.trust_remote_code=true")
    assert witness.exists()
    assert type(world.policy.model).__name__ == "OwnModel"


def test_an_attention_that_is_none(llama):
    with pytest.raises(ModelError) as error:
        load_causal_lm(llama, attention="nothing_known")
    assert "nothing_known" in line(error)


# ---------------------------------------------------------------- tokenizers


def test_a_tokenizer_without_eos_is_refused(copy):
    with pytest.raises(ModelError, match="the tokenizer has no EOS token, so responses could not"):
        load_tokenizer(copy(without=["eos_token"]))


def test_a_tokenizer_without_pad_pads_with_eos(copy):
    tokenizer = load_tokenizer(copy(without=["pad_token"]))
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == TOKENIZER.eos_token_id


def test_no_tokenizer_at_all(copy):
    folder = copy()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ModelError) as error:
        load_tokenizer(folder)
    assert "no usable tokenizer" in line(error)


@pytest.mark.parametrize(
    ("file", "setting", "said"),
    [
        ("tokenizer_config.json", {"model_max_length": "many"}, "no usable tokenizer: TypeError"),
        ("config.json", {"eos_token_id": "</s>"}, "'eos_token_id'.* got str"),
        ("config.json", {"vocab_size": "64"}, "'vocab_size'.* got str"),
        ("config.json", {"num_attention_heads": 3}, "attention heads"),
    ],
)
def test_a_setting_of_a_wrong_type_is_named(zoo, copy, file, setting, said):
    path = copy() / file
    path.write_text(json.dumps(json.loads(path.read_text()) | setting))
    with pytest.raises(ModelError, match=said) as error:
        make(zoo, path.parent)
    line(error)


@pytest.mark.parametrize("pad", [None, -1, 2])
def test_a_models_padding_does_not_prevent_it_from_being_saved(copy, tmp_path, pad):
    path = copy() / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token_id": pad}))
    load_causal_lm(path.parent).save_pretrained(tmp_path / "saved")
    load_causal_lm(tmp_path / "saved")


def test_a_vocabulary_that_does_not_match(zoo, tmp_path):
    save_model(tmp_path, "llama", vocab_size=40)
    with pytest.raises(ModelError) as error:
        make(zoo, tmp_path)
    assert line(error).endswith(
        f"its ids go up to {len(TOKENIZER) - 1}, but the model has only 40 (0 to 39)"
    )


def test_embeddings_may_be_more_than_the_tokenizer_uses(zoo, tmp_path):
    """As those of Qwen, which are rounded up."""
    save_model(tmp_path, "llama", vocab_size=128)
    assert make(zoo, tmp_path).policy.vocabulary == 128


# ---------------------------------------------------------------- the critic's start


@pytest.fixture(scope="module")
def reward_folder(tmp_path_factory):
    """A classifier with one label, as `rlzoo model reward` leaves it."""
    from transformers import LlamaForSequenceClassification

    config = CONFIGS["llama"]()
    config.num_labels = 1
    folder = tmp_path_factory.mktemp("reward")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        LlamaForSequenceClassification(config).save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder


def test_a_critic_starts_from_a_reward_model_by_its_name_or_folder(zoo, llama, reward_folder):
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(reward_folder).eval()
    named = ["rewards=[reward_model]", f"rewards.reward_model.path={reward_folder}",
             "critic.init=reward_model"]  # fmt: skip
    for words in (named, [f"critic.init={reward_folder}"]):
        critic = make(zoo, llama, *words).engine.critic
        assert torch.equal(critic.head.weight, model.score.weight)
        ids = torch.tensor([[5, 6, 7, 8]])
        columns = {"prompt_ids": ids[:, :2], "prompt_mask": torch.ones(1, 2),
                   "response_ids": ids[:, 2:], "response_attention": torch.ones(1, 2),
                   "response_mask": torch.ones(1, 2)}  # fmt: skip
        with torch.no_grad():
            want = model(input_ids=ids).logits[0, 0]
            torch.testing.assert_close(critic.predict(columns)[0, -1], want)


def test_a_critic_may_start_from_another_causal_lm(zoo, llama, tmp_path):
    save_model(tmp_path, "gpt2", seed=3)
    critic = make(zoo, llama, f"critic.init={tmp_path}").engine.critic
    assert type(critic.trunk).__name__ == "GPT2Model"
    assert not critic.head.weight.any()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["critic.init=verifir"], "'verifir' is neither a reward of this recipe nor a folder; did "
         "you mean 'verifier'?"),
        (["critic.init=actr"], "did you mean 'actor'?"),
        (["critic.init=verifier"], "reward 'verifier' has no option 'path', so there is no "
         "model to start from (no reward has one)"),
        (["critic.init=verifier", "rewards=[verifier,reward_model]",
          "rewards.reward_model.path=REWARD"], "(those that have: reward_model)"),
        (["critic.init=REWARD", "critic.trunk=shared"], "requires a critic with its own "
         "network (critic.trunk=own)"),
    ],
)  # fmt: skip
def test_faults_of_critic_init_are_found_by_the_plan(zoo, reward_folder, words, text):
    words = [w.replace("REWARD", str(reward_folder)) for w in words]
    with pytest.raises(RecipeError) as error:
        make_plan(compose(["recipe=ppo_gae", *words], zoo), zoo)
    assert line(error).startswith("critic.init (command line): ")
    assert text in line(error)


def test_nobody_asks_where_a_critic_starts_that_is_not_there(zoo):
    make_plan(compose(["recipe=grpo", "critic.init=anything"], zoo), zoo)


def test_a_critics_folder_is_looked_for_before_the_run_folder_is_made(zoo, llama, tmp_path):
    words = [f"model.path={llama}", "critic.init=./nowhere", f"run.dir={tmp_path}/run"]
    with pytest.raises(
        ModelError,
        match=r"critic.init \(command line\): './nowhere' is not a model, because there is no",
    ):
        rlzoo.run("ppo_gae", words, zoo=zoo)
    assert not (tmp_path / "run").exists()


def test_a_critic_that_reads_other_tokens_is_refused(zoo, llama, reward_folder, tmp_path):
    other = with_other_tokenizer(reward_folder, tmp_path)
    with pytest.raises(ModelError) as error:
        make(zoo, llama, f"critic.init={other}")
    assert "different tokenizers" in line(error)


# ---------------------------------------------------------------- LoRA


def test_targets_that_match_nothing_are_named_beside_those_there_are(zoo, llama):
    with pytest.raises(ModelError) as error:
        make(zoo, llama, "model.lora.rank=2", "model.lora.targets=[c_attn]")
    assert line(error) == (
        "model.lora.targets: c_attn matches no layer; the linear layers are down_proj, gate_proj, "
        "k_proj, lm_head, o_proj, q_proj, up_proj, v_proj"
    )


def test_targets_are_those_that_get_an_adapter(zoo, llama):
    model = make(zoo, llama, "model.lora.rank=2", "model.lora.targets=[q_proj,v_proj]").policy.model
    trained = {n.split(".")[-4] for n, x in model.named_parameters() if x.requires_grad}
    assert trained == {"q_proj", "v_proj"}
    every = make(zoo, llama, "model.lora.rank=2").policy.model
    trained = {n.split(".")[-4] for n, x in every.named_parameters() if x.requires_grad}
    assert trained == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


# ---------------------------------------------------------------- prompts


@pytest.fixture
def chatty(copy):
    return load_tokenizer(copy(chat_template=TEMPLATE))


def test_messages_go_through_the_template_and_text_as_it_is(chatty):
    form = PromptFormat(chatty)
    assert form.text(ASKED) == "^u:1+2=~a:"
    assert form.text("1+2=") == "1+2="
    assert chatty.decode(form.encode(ASKED)) == "^u:1+2=~a:"


def test_always_makes_a_message_of_text_and_never_joins_messages(chatty):
    assert PromptFormat(chatty, "always").text("1+2=") == "^u:1+2=~a:"
    assert PromptFormat(chatty, "always").text(ASKED) == "^u:1+2=~a:"
    two = [*ASKED, {"role": "assistant", "content": "3"}]
    assert PromptFormat(chatty, "never").text(two) == "1+2=\n3"
    assert PromptFormat(chatty, "never").text("1+2=") == "1+2="


def test_a_system_message_stands_before_what_goes_through_the_template(chatty):
    form = PromptFormat(chatty, "auto", "Add.")
    assert form.text(ASKED) == "^s:Add.~u:1+2=~a:"
    assert form.messages(ASKED)[0] == {"role": "system", "content": "Add."}
    assert form.text("1+2=") == "1+2="  # no template, no system message
    assert ASKED == [{"role": "user", "content": "1+2="}]  # the task's own is as it was


def test_special_tokens_are_not_doubled(copy):
    """A template writes the BOS that the tokenizer would add by itself."""
    folder = copy(chat_template=TEMPLATE.replace("'^'", "bos_token"), bos_token="^",
                  add_bos_token=True)  # fmt: skip
    file = folder / "tokenizer.json"
    said = json.loads(file.read_text())
    bos = said["model"]["vocab"]["^"]
    said["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "^", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"^": {"id": "^", "ids": [bos], "tokens": ["^"]}},
    }  # fmt: skip
    file.write_text(json.dumps(said))
    tokenizer = load_tokenizer(folder)
    form = PromptFormat(tokenizer)
    assert form.encode("12")[0] == bos  # plain text gets what the tokenizer adds
    assert len(form.encode("12")) == 3
    assert form.encode(ASKED).count(bos) == 1
    assert tokenizer.decode(form.encode(ASKED)) == "^u:1+2=~a:"


def test_a_run_reads_the_template_and_says_what_it_read(zoo, copy):
    from rlzoo.plugin.component import Example
    from rlzoo.rollout.sample import collect

    folder = copy(chat_template=TEMPLATE)
    world = make(zoo, folder, "rollout.samples=2", recipe="grpo")
    world.prompt_format.system = "Add."
    batch = collect(world, [Example(ASKED, "3"), Example("4+5=", "9")], 2, stream="x", step=0)
    assert batch["prompts"] == ["^s:Add.~u:1+2=~a:"] * 2 + ["4+5="] * 2
    assert batch["messages"][0] == [{"role": "system", "content": "Add."}, *ASKED]
    assert batch["messages"][2] == [{"role": "user", "content": "4+5="}]
    ids = batch["prompt_ids"][0][batch["prompt_mask"][0].bool()]
    assert world.policy.tokenizer.decode(ids) == "^s:Add.~u:1+2=~a:"


def test_always_without_a_template(zoo, llama):
    with pytest.raises(
        ModelError, match="^model.chat is always, but the tokenizer has no chat tem"
    ):
        _ = make(zoo, llama, "model.chat=always").prompt_format


def test_messages_without_a_template(zoo, llama):
    world = make(zoo, llama)
    with pytest.raises(ModelError) as error:
        world.prompt_format.encode(ASKED)
    assert line(error).endswith("has no chat template; model.chat=never joins them into one text")


def test_a_character_that_the_tokenizer_does_not_know_is_named():
    with pytest.raises(
        RlzooError, match=r"^prompt '1é2': the tokenizer has no token for 'é'; use another model"
    ):
        encode(TOKENIZER, "1é2")


def test_an_empty_prompt_is_named():
    with pytest.raises(RlzooError, match="^prompt '' is empty, so it has no tokens$"):
        encode(TOKENIZER, "")


@pytest.mark.parametrize(
    ("name", "content", "needed"),
    [("tokenizer.model", b"\n\x0e\n\x05<unk>", True), ("spiece.model", b"\n\x0e", True),
     ("tokenizer.model", b"IQ== 0\n", False)],
)  # fmt: skip
def test_a_missing_sentencepiece_is_named(tmp_path, monkeypatch, name, content, needed):
    monkeypatch.setattr(loading, "find_spec", lambda module: None)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError) as raised:
        load_tokenizer(tmp_path)
    assert ("pip install sentencepiece" in str(raised.value)) == needed
