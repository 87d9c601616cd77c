"""Agents' messages are rendered as the model's template renders them, or refused with a line."""

import pytest
from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from helpers.micro import MICRO
from helpers.tokenizers import byte_level, metaspace
from rlzoo.lm.prompts import PromptFormat
from rlzoo_zoo.samplers.session_requests import message
from rlzoo_zoo.samplers.sessions import rewritten

pytestmark = pytest.mark.process  # a server

SPECIAL = ["<|eos|>", "<s>", "<|start|>", "<|end|>"]
CHATML = (
    "{% if tools %}<|start|>system\nTools: {{ tools | tojson }}<|end|>\n{% endif %}"
    "{% for m in messages %}<|start|>{{ m.role }}{{ m.name }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}\n\n{{ m.content | trim }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %}{{ m.content }}{{ eos_token }}"
    "{% else %}{{ raise_exception('only user and assistant') }}{% endif %}{% endfor %}"
)
PLAIN = (
    "{% for m in messages %}### {{ m.role }}:\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}### assistant:\n{% endif %}"
)
LAST = "{% set m = messages[-1] %}<|start|>{{ m.content }}<|end|>"  # drops what was before
LATE = (  # the system message moves to the last turn
    "{% for m in messages if m.role != 'system' %}"
    "{{ messages[0].content if loop.last and messages[0].role == 'system' }}"
    "{{ m.content }}<|end|>{% endfor %}"
)
TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "mistral": MISTRAL, "plain": PLAIN, "last": LAST,
             "late": LATE, "none": None}  # fmt: skip


def of_bytes():
    """A tokenizer of bytes, which puts BOS before a text."""
    of = byte_level(SPECIAL)
    of.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return of


def of_pieces():
    """Letters with or without a space before them, as Llama 2's."""
    letters = "abcdefghijklmnopqrstuvwxyz[]/"
    words = [*SPECIAL, "▁", *letters, *(f"▁{x}" for x in letters)]
    return metaspace(words, [("▁", x) for x in letters])


def made(of, place, more=0):
    """The folder of a random model with such a tokenizer, and rows of its head without a token."""
    import torch

    from rlzoo_lab.supervised.tiny import build_model, save

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=of, eos_token="<|eos|>", bos_token="<s>", pad_token="<|eos|>",
        additional_special_tokens=SPECIAL[2:], chat_template=CHATML,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model({**MICRO, "max_position_embeddings": 512}, tokenizer)
    if more:
        model.resize_token_embeddings(len(tokenizer) + more, mean_resizing=False)
    save(model, tokenizer, place)
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(of_bytes(), tmp_path_factory.mktemp("bytes"))


def said(role, content, **more):
    return {"role": role, "content": content, **more}


HI, SYSTEM, MORE = said("user", "hi there"), said("system", "Be brief."), said("user", "and?")
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
REPLY = "the policy's reply"
# name -> (requests, fields): a request is the messages that it adds.
TALKS = {
    "user": ([[HI]], {}),
    "system": ([[SYSTEM, HI]], {}),
    "history": ([[HI, said("assistant", "yes"), MORE]], {}),
    "parts": ([[said("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]], {}),
    "name": ([[said("user", "hi", name="Ann")]], {}),
    "calls": ([[HI, said("assistant", None, tool_calls=[CALL]), said("tool", "7")]], {}),
    "tools": ([[HI], [said("tool", "7", tool_call_id="1")]], {"tools": TOOLS}),
    "three": ([[SYSTEM, HI], [MORE], [said("user", " no "), said("user", "yes")]], {}),
    "white": ([[said("user", " \nhi\n ")], [said("user", " ")]], {}),
    "begun": ([[HI, said("assistant", "Well,")], [MORE]], {"continue_final_message": True}),
    "unicode": ([[said("user", "naïve 你好 🙂 <|end|>")], [MORE]], {}),
}
# Those that a template, or its absence, does not accept; None: at the second request.
REFUSED = {
    "mistral": {"system", "calls", "tools", "three"},
    "none": {"system", "history", "calls", "tools", "three", "begun"},
    "last": {"tools", "three", "white", "begun", "unicode"},
    "late": {"three"},
}


def expected(tokenizer, messages, fields):
    """The template's own text of what was sent."""
    if tokenizer.chat_template is None:
        return "<s>" + "".join(message(m)["content"] for m in messages)
    goes_on = bool(fields.get("continue_final_message")) and messages[-1]["role"] == "assistant"
    how = {"continue_final_message": True} if goes_on else {"add_generation_prompt": True}
    return tokenizer.apply_chat_template(
        [message(m) for m in messages], tools=fields.get("tools"), tokenize=False, **how
    )


def played(w, tokenizer, requests, fields):
    """(what each request got, what the template gives): texts, or the status of a refusal."""
    session, messages, found = w.begin(), [], []
    for new in requests:
        more = {n: x for n, x in fields.items()
                if n != "continue_final_message" or new[-1]["role"] == "assistant"}  # fmt: skip
        messages += new
        status, answer = w.chat(session, messages, max_tokens=3, **more)
        if status != 200:
            assert answer["error"]["message"]
            found.append((status, None))
            break
        found.append((tokenizer.decode(answer["prompt_token_ids"]),
                      expected(tokenizer, messages, more)))  # fmt: skip
        reply = answer["choices"][0]["message"]
        assert "<|e" not in reply["content"], "another seed: the reply has ended by itself"
        if more.get("continue_final_message"):
            messages[-1] = said("assistant", messages[-1]["content"] + reply["content"])
        else:
            messages.append(reply)
    if found[0][0] == 400:
        w.ask(session["path"], method="DELETE")
    else:
        assert w.end(session, 1.0)[0] == 200
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_row_is_what_the_template_gives_for_the_messages_sent(world, folder, name):
    w = world(f"model.path={folder}", "task=sessions", "rollout.prompts=6",
              "rollout.max_new_tokens=250", "rollout.old_log_probs=recomputed",
              "eval.samples=1", "seed=1")  # fmt: skip
    tokenizer, form = w.trainer.world.policy.tokenizer, w.trainer.world.prompt_format
    tokenizer.chat_template = TEMPLATES[name]
    vars(form).pop("end_of_turn", None)
    refused, done = set(), 0

    def agent(w):
        nonlocal done
        for talk, (requests, fields) in TALKS.items():
            found = played(w, tokenizer, requests, fields)
            done += found[0][0] != 400
            for got, right in found:
                if right is None:
                    refused.add(talk)
                else:
                    assert got == right, talk
        for _ in range(12 - done):
            played(w, tokenizer, [[HI]], {})

    batch = w.sample(agent).batch
    assert refused == REFUSED.get(name, set())
    mask = batch["response_mask"].bool()
    assert mask.any(1).all()
    assert (batch["sampler_log_probs"] - batch["old_log_probs"]).abs()[mask].max() < 1e-5
    for ids, mask, prompt in zip(
        batch["prompt_ids"], batch["prompt_mask"], batch["prompts"], strict=True
    ):
        assert tokenizer.decode(ids[mask.bool()].tolist()) == "<s>" * (name == "none") + prompt


THINKING = CHATML.replace("m.content or ''", "(m.content or '').split('</think>')[-1]")
FORCED = CHATML.replace("<|start|>assistant\n{% endif", "<|start|>assistant\n<think>\n{% endif")


@pytest.mark.parametrize(
    ("template", "kind"),
    [(CHATML, ""), (LLAMA, ""), (MISTRAL, ""), (PLAIN, ""), (LAST, "replies"), (FORCED, "replies"),
     (THINKING, "reasoning"), ("{{ raise_exception('no') }}", "")],
)  # fmt: skip
def test_a_template_that_rewrites_replies_is_known_at_the_start(folder, template, kind):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    assert rewritten(PromptFormat(tokenizer), tokenizer) == kind


def test_and_said_when_agents_may_begin(world, folder):
    w = world(f"model.path={folder}", "task=sessions", "seed=1", "eval.samples=1")
    w.trainer.world.policy.tokenizer.chat_template = LAST

    def agent(w):
        for _ in range(4):
            played(w, w.trainer.world.policy.tokenizer, [[HI]], {})

    with pytest.warns(UserWarning, match="writes replies in another way"):
        w.sample(agent)


def test_the_recipes_system_message_is_before_messages_without_one(world, folder):
    w = world(f"model.path={folder}", "task=sessions", "model.chat=always", "seed=1",
              "model.system=Be brief.", "rollout.max_new_tokens=250", "eval.samples=1")  # fmt: skip
    tokenizer, own = w.trainer.world.policy.tokenizer, said("system", "Be long.")

    def agent(w):
        for n in range(4):
            found = played(w, tokenizer, [[own, HI] if n % 2 else [HI], [MORE]], {})
            for got, right in found:
                assert got == (right if n % 2 else expected(tokenizer, [SYSTEM], {}).removesuffix(
                    "<|start|>assistant\n") + right)  # fmt: skip

    messages = w.sample(agent).batch["messages"]
    assert sorted(m[0]["content"] for m in messages) == ["Be brief."] * 2 + ["Be long."] * 2


def test_a_reply_ends_where_the_template_ends_a_turn(world, folder):
    """Although prompts of the task are plain text, for which only EOS ends a response."""
    w = world(f"model.path={folder}", "task=sessions", "rollout.max_new_tokens=250", "seed=1")
    end, replies = w.trainer.world.policy.tokenizer.convert_tokens_to_ids("<|end|>"), []
    assert end not in w.trainer.world.policy.eos_ids

    def agent(w):
        for _ in range(4):
            session = w.begin()
            replies.append(w.chat(session, [HI])[1]["choices"][0])
            w.end(session, 1)

    w.sample(agent)
    ended = [r for r in replies if end in r["token_ids"]]
    assert ended, "another seed: no reply has an end of turn"
    for reply in ended:
        assert reply["token_ids"].index(end) == len(reply["token_ids"]) - 1
        assert reply["finish_reason"] == "stop"
        assert "<|end|>" not in reply["message"]["content"]


def test_a_space_before_a_reply_is_a_part_of_its_first_token(world, tmp_path):
    """Llama 2 and Mistral: the template writes a space, and the policy's token has it."""
    w = world(f"model.path={made(of_pieces(), tmp_path)}", "task=sessions", "task.prompt=a",
              "rollout.max_new_tokens=100", "seed=1")  # fmt: skip
    tokenizer, found = w.trainer.world.policy.tokenizer, []
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[ {{ m.content }} /]"
        "{% else %} {{ m.content.strip() }} {{ eos_token }}{% endif %}{% endfor %}"
    )

    def agent(w):
        for _ in range(4):
            session, messages = w.begin(), [said("user", "a b")]
            spaced = True
            while True:
                status, answer = w.chat(session, messages, max_tokens=2)
                assert status == (200 if spaced else 409)
                if status != 200:
                    break
                right = tokenizer.apply_chat_template(messages, tokenize=False)
                found.append((tokenizer.decode(answer["prompt_token_ids"]), right))
                messages += [answer["choices"][0]["message"], said("user", "c")]
                first = answer["choices"][0]["token_ids"][0]
                spaced = tokenizer.convert_ids_to_tokens(first).startswith("▁")
            w.end(session, 1)

    w.sample(agent)
    assert len(found) > 4, "another seed: no reply begins with a space"
    assert all(got == right for got, right in found)


def test_ids_without_a_token_are_shown_and_their_replies_are_continued(world, tmp_path):
    folder = made(of_bytes(), tmp_path, 300)
    w = world(f"model.path={folder}", "task=sessions", "rollout.max_new_tokens=250", "seed=1")
    tokenizer, shown = w.trainer.world.policy.tokenizer, []

    def agent(w):
        for _ in range(4):
            session, messages = w.begin(), [HI]
            for _ in range(2):
                status, answer = w.chat(session, messages, max_tokens=6)
                assert status == 200
                (choice,) = answer["choices"]
                odd = [i for i in choice["token_ids"] if i >= len(tokenizer)]
                shown.extend(odd)
                tokens = [x["token"] for x in choice["logprobs"]["content"]]
                assert all(f"<|{i}|>" in choice["message"]["content"] for i in odd)
                assert all(f"<|{i}|>" in tokens for i in odd)
                messages += [choice["message"], MORE]
            w.end(session, 1)

    w.sample(agent)
    assert shown, "another seed: no reply has such an id"
