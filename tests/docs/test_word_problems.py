"""docs/studies/word_problems.py: what it holds out, and what it counts as right."""

import shutil

import pytest
import torch

from helpers.scripts import script
from rlzoo.lm.loading import load_causal_lm, load_tokenizer
from rlzoo.lm.prompts import PromptFormat


@pytest.fixture(scope="module")
def study():
    return script("word_problems")


def row(body, question, equation, answer):
    return {"Body": body, "Question": question, "Equation": equation, "Answer": answer}


def test_a_problem_is_short_and_its_operands_are_in_the_text(study):
    asked = "How many are left?"
    made = study.problem(row("Ann had 8 pears, ate 3 ", asked, "( 8.0 - 3.0 )", 5.0))
    assert made["prompt"] == "Ann had 8 pears, ate 3, how many are left?"
    assert (made["response"], made["answer"]) == ("8 - 3 = 5", "5")
    others = [
        row("Ann had 8 pears, ate 3.", asked, "( ( 8.0 - 3.0 ) - 1.0 )", 4.0),  # two operations
        row("Ann had 8 pears, ate 3.", asked, "( 8.0 - 5.0 )", 3.0),  # 5 is not in the text
        row("Ann had 80 pears, got 30.", asked, "( 80.0 + 30.0 )", 110.0),
        row("Ann had 8 pears, ate 3 of 101.", asked, "( 8.0 - 3.0 )", 5.0),
        row("Ann had 8 pears, ate 3." + " And so on." * 10, asked, "( 8.0 - 3.0 )", 5.0),
    ]
    assert [study.problem(other) for other in others] == [None] * len(others)


def test_problems_alike_are_one_story_also_by_a_third(study):
    texts = ["one two three 1", "five six", "three four five", "two three four 2", "seven"]
    assert study.stories([{"prompt": t} for t in texts]) == [0, 1, 0, 0, 4]


def test_greedy_responses_are_those_of_generate(study, model_dir, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model_dir, folder)
    model, tokenizer = load_causal_lm(folder), load_tokenizer(folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    prompts = ["12+3=", "7+85=", "4+4="]
    found = study.answer(str(folder), [{"prompt": p, "answer": "1"} for p in prompts])
    for prompt, given in zip(prompts, found, strict=True):
        ids = torch.tensor([PromptFormat(tokenizer, "always").encode(prompt)])
        out = model.generate(ids, max_new_tokens=study.TOKENS, do_sample=False)[0, ids.shape[1] :]
        assert given["text"] == tokenizer.decode(out, skip_special_tokens=True)


def test_seeds_are_averaged_and_compared_with_sft(study):
    def made(name, greedy):
        answers = [{"greedy": g, "sampled": 0.5, "cut": 0.0} for g in greedy]
        return {"name": name, "cpu_s": 10, "answers": answers, "rewards": [0.1, 0.2]}

    rows = [made("sft", [0, 0, 1, 1]), made("0", [1, 1, 1, 1]), made("1", [0, 1, 1, 1])]
    last = study.report(rows, ["a", "b", "c", "d"]).splitlines()[-1].split("|")
    assert last[2].startswith("0.875 [")
    assert last[4].startswith("+0.375 [")
