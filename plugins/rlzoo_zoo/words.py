r"""Whole words in a text, in scripts with and without spaces between them.

`has_word(text, word)` is true where the text has the word (or words) with a boundary at both ends:

- Between a letter or digit and another character. An underscore is a letter only within a name
  (`a_b`, not `_a_`), and so are `+` and `#` after a letter (`C` is not in `C++`).
- Before and after any letter of a script without spaces (Han, kana, Thai, Lao, Khmer, Burmese,
  Tibetan) and of Hangul, where particles follow: `北京` is in `我在北京工作`, `12` in `共12个`.
  There, a word may be a part of another one (`京都` in `東京都`).
- At a word's own punctuation: `C++` is in `C++11`. A sign or point before digits is an exception:
  `-5` is not in `10-5`, nor `5` in `-5`.
- Not within a character (a letter and its combining marks), nor within a number (`12` is not in
  `1,200`, `12.5` or `12:30`, but in `12.0`).
"""

import re
import unicodedata
from functools import lru_cache

_UNSPACED = re.compile(  # Thai to Tibetan, Burmese, Khmer, Hangul, kana and Han, by blocks
    r"[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u318f\u31a0-\u31ff\u3400-\u9fff"
    r"\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


def has_word(text: str, word: str) -> bool:
    at = text.find(word)
    while at >= 0:
        if _starts(text, word, at) and _ends(text, word, at + len(word)):
            return True
        at = text.find(word, at + 1)
    return False


def _starts(text: str, word: str, at: int) -> bool:
    before = text[max(0, at - 2) : at]
    if not before:
        return True
    if re.match(r"[-+−.]\.?\d", word):
        return not _letter(before[-1]) and before[-1] not in ")]"
    if not _letter(word[0]):
        return True
    operand = len(before) > 1 and (_letter(before[0]) or before[0] in ")]")
    signed = before[-1] in "-−" and not operand
    number = word[0].isdigit() and (signed or re.fullmatch(r"\d[.,/:]", before))
    name = before[-1] == "_" and _letter(before[0])
    return not (number or name or _letter(before[-1]))


def _ends(text: str, word: str, end: int) -> bool:
    after = text[end : end + 2]
    if not after:
        return True
    if unicodedata.category(after[0])[0] == "M" or after[0] == "\u200d":
        return False
    if not _letter(word[-1]):
        return True
    number = word[-1].isdigit() and re.match(r"[,/:]\d|\.0{0,30}[1-9]", text[end : end + 32])
    name = after[0] == "_" and _letter(after[-1])
    mark = after[0] in "+#" and word[-1].isalpha() and not _letter(after[-1])
    return not (number or name or mark or _letter(after[0]))


@lru_cache(4096)
def _letter(char: str) -> bool:
    """Whether a character joins its neighbours to a word."""
    joins = char.isalnum() or unicodedata.category(char)[0] == "M"
    return joins and not _UNSPACED.match(char)
