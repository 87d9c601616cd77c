"""Local search: questions that can be answered only by searching a folder of texts."""

import zlib
from pathlib import Path
from typing import Annotated

import torch

from rlzoo import Example, Range, RlzooError, component
from rlzoo_zoo.data import read
from rlzoo_zoo.packages import needs
from rlzoo_zoo.tasks.outcomes import LastTurn

FIRST, SECOND = "bdfgklmnprstvz", "aeiou"


@component("task")
class LocalSearch(LastTurn):
    """The prompt is a question, `kul?`. The policy may call a search, `[kul]`, which is answered
    with the best passage of a BM25 index, cut to `characters`, such as ` kul 73 `; then it gives
    the answer, `73`.

    Score (B,): 1.0 if the last turn is the answer, otherwise 0.0. An episode ends with the first
    turn that is not a call, or with call number `searches` + 1. Without a folder, the corpus is
    generated from `seed`: `facts` names of three letters, each with a unique number from 10 to 99;
    a fifth of the names is held out, so that memorized facts do not help there. folder: `*.txt`
    files, whose paragraphs are the passages, and `questions.jsonl`, with an object with `question`
    and `answer` on each line.
    Source: based on Jin et al. 2025 (Search-R1), arXiv:2503.09516; bm25s: arXiv:2407.03618.
    """

    stops = ("]",)

    def __init__(
        self,
        *,
        folder: str | None = None,
        facts: Annotated[int, Range(10, 900)] = 500,
        seed: Annotated[int, Range(0)] = 0,
        characters: Annotated[int, Range(1)] = 40,
        searches: Annotated[int, Range(1)] = 2,
    ):
        self.characters, self.searches = characters, searches
        self.passages, pairs = read_folder(Path(folder)) if folder else invent(facts, seed)
        self.index = index(self.passages)
        # Which fifth is held out depends only on the question, never on a seed.
        self.examples: dict[str, list[Example]] = {"train": [], "test": []}
        for i, (question, answer) in enumerate(pairs):
            split = "test" if zlib.crc32(question.encode()) % 5 == 0 else "train"
            self.examples[split].append(Example(question, answer, i))

    def draw(self, split, n, generator):
        pool = self.examples[split]
        if n and not pool:
            raise RlzooError(f"task local_search: the {split} split has no questions")
        picks = torch.randint(max(1, len(pool)), (n,), generator=generator).tolist()
        return [pool[i] for i in picks]

    def search(self, query):
        """The best passage for the words of `query`, one line, with a space at either end."""
        import bm25s

        words = bm25s.tokenize([query], stopwords=None, show_progress=False, return_ids=False)
        if not any(word in self.index.vocab_dict for word in words[0]):
            return " none "
        found, _ = self.index.retrieve(words, k=1, show_progress=False)
        return f" {' '.join(self.passages[int(found[0, 0])].split())[: self.characters]} "

    def respond(self, turns):
        return [self.answer(t) for t in turns]

    def answer(self, turns):
        said = turns[-1]
        calls = said.endswith("]") and "[" in said and len(turns[::2]) <= self.searches
        return self.search(said.rpartition("[")[2][:-1]) if calls else None

    def state_keys(self, turns):
        return [tuple(t[1::2]) for t in turns]

    def demonstrate(self, example, generator):
        call = f"[{example.prompt.rstrip('?')}]"
        right = [call, self.search(call[1:-1]), example.answer]
        wrong = example.answer
        while wrong == example.answer:
            wrong = str(int(torch.randint(10, 100, (), generator=generator)))
        return right, [wrong]


def invent(facts, seed):
    """(passages, [(question, answer)]) of made-up facts; the names differ."""
    generator = torch.Generator().manual_seed(seed)
    names = [a + b + c for a in FIRST for b in SECOND for c in FIRST]
    picks = torch.randperm(len(names), generator=generator)[:facts].tolist()
    values = torch.randint(10, 100, (facts,), generator=generator).tolist()
    pairs = [(names[i], str(v)) for i, v in zip(picks, values, strict=True)]
    return [f"{name} {value}" for name, value in pairs], [(f"{n}?", v) for n, v in pairs]


def read_folder(folder):
    """(passages, [(question, answer)]) of a user's folder; raises ValueError on what is amiss."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise ValueError(f"folder {str(folder)!r} contains no *.txt file")
    texts = [file.read_text(encoding="utf-8").split("\n\n") for file in files]
    passages = [part.strip() for text in texts for part in text if part.strip()]
    questions = folder / "questions.jsonl"
    if not questions.is_file():
        raise ValueError(f"folder {str(folder)!r} has no questions.jsonl")
    pairs = []
    for row in read(str(questions)):
        values = row.values or {}
        if not {"question", "answer"} <= values.keys():
            raise ValueError(f"{row.place}: not an object with question and answer")
        pairs.append((str(values["question"]), str(values["answer"])))
    return passages, pairs


def index(passages):
    needs("bm25s", "search")()
    import bm25s

    found = bm25s.BM25()
    tokens = bm25s.tokenize(passages, stopwords=None, show_progress=False)
    found.index(tokens, show_progress=False)
    return found
