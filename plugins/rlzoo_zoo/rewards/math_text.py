r"""What math-verify needs to read a result that people write: rules before the library.

- Digits, signs, fractions and powers of any script become those of ASCII; `√2` and `π` LaTeX.
- A number outside formulas that the library reads otherwise (`1 1/2`, `70k`, `7e4`, `1 000`,
  `minus 5`, `3万`) becomes digits by the rules of `rlzoo_zoo.numbers`, and one that the text denies
  (`18, not 16`) or that is part of a time is left out; so are letters of other scripts than Latin,
  Greek and Cyrillic, which the library takes for a part of a number. A comma is never decimal.
- A formula or box that is one number (`\$18.90`, `2 2/3`, `5\text{ cm}`) becomes that number.
- `2516_8` is a pair, equal only in the same base. A text without words is a formula.
- Against an interval, an inequality (`2 \le x < 5`, `x<2 or x>5`) is the interval it means.
"""

import re
from fractions import Fraction

from rlzoo_zoo.numbers import DATE, ascii_digits, numbers, only, plain

TAIL = 2000  # characters at the end of a response without a box in which words are read
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}"
BOX = re.compile(rf"\\(?:boxed|fbox)\s*({_BRACES})")
_DOLLARS = r"\$\$.+?\$\$|\$(?=[^\s$])[^$]*(?<=[^\s$=+\-*/×(,])\$(?!\d)"  # `$5 + $6` has amounts
_FORMULA = re.compile(
    rf"\\(?:boxed|fbox)\s*{_BRACES}|{_DOLLARS}|\\\(.{{1,2000}}?\\\)|\\\[.{{1,2000}}?\\\]",
    re.DOTALL,
)
_FOREIGN = re.compile(r"[^\W\d_A-Za-zÀ-ɏͰ-ϿЀ-ӿ]+")
_USUAL = re.compile(r"-?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)\s?%?")
_LIST = re.compile(r"(?<![\d ])\d+,(?!\d{3}(?!\d))\d")  # a comma is not decimal here
_TIME = re.compile(r"(?<![\d:])\d{1,2}:[0-5]\d(?::[0-5]\d)?(?![\d:])|" + DATE)
_BASE = re.compile(r"(?<![\w}])(\d[\dA-Fa-f]*)_(?:\{([1-3]?\d)\}|([1-9]))(?!\d)")
_ROOT = re.compile(r"√\s?(\d+(?:\.\d+)?|\w|\([^()]*\)|\{[^{}]*\})|\\sqrt\s+(\d+|[a-z])\b")
_WORD = re.compile(r"(?<!\\)\b(?!or\b|and\b|text\b)[A-Za-z]{2,}")
_SIGNS = re.compile(r"[\\<>=≤≥^_({\[]")
_ALONE = re.compile(
    r"(?<![$\w\\])(-?\d*\.?\d*\s?\\(?:sqrt\{[^{}]*\}|pi\b))(?![$\w])"
    r"|(?<![$\w\\])([(\[][-\d./ ]+(?:,[-\d./ ]+)+[)\]])(?![$\w])"
)


def readable(text: str) -> str:
    """A response as the library reads it."""
    text = _tidy(text)
    formal = not any(pattern.search(text) for pattern in (_FORMULA, _WORD, _FOREIGN))
    if formal and "\n" not in text.strip() and _SIGNS.search(text):
        return f"${_formula(re.sub(' or | and ', ', ', text.strip().rstrip('.')))}$"
    first = len(text) if BOX.search(text) else len(text) - TAIL  # of the words that may be read
    parts, at = [], 0
    for found in _FORMULA.finditer(text):
        opening, content, closing = _opened(found[0])
        words = text[at : found.start()]
        parts += [words if found.start() < first else _words(words)]
        parts += [opening, _formula(content), closing]
        at = found.end()
    first = max(at, first)
    return "".join([*parts, text[at:first], _words(text[first:])])


def formula(text: str) -> str:
    """An answer as the content of a formula."""
    text = _tidy(text)
    if _FORMULA.fullmatch(text.strip()):
        text = _opened(text.strip())[1]
    return text if _FORMULA.search(text) else _formula(text)


def _opened(text: str) -> tuple[str, str, str]:
    """A formula's opening mark, its content and its closing mark."""
    opening = re.match(r"\\(?:boxed|fbox)\s*\{|\$\$|\$|\\\(|\\\[", text)
    assert opening is not None
    end = 2 if opening[0] in ("$$", "\\(", "\\[") else 1
    return opening[0], text[opening.end() : -end], text[-end:]


def _tidy(text: str) -> str:
    text = (
        re.sub(r"</?[A-Za-z]+>", " ", ascii_digits(text))
        .replace("\\$", "")
        .replace("\\!", "")
        .replace("{,}", ",")
    )
    text = _ROOT.sub(lambda m: f"\\sqrt{{{(m[1] or m[2]).strip('(){}')}}}", text)
    text = re.sub(r"π\s*", r"\\pi ", text) if "π" in text else text
    return text


def _formula(text: str) -> str:
    text = _BASE.sub(r"(\1,\2\3)", text)
    if BOX.search(text):
        return BOX.sub(lambda box: f"\\boxed{{{_formula(box[1][1:-1])}}}", text)
    left = _USUAL.fullmatch(text.strip()) or _LIST.search(text)
    found = None if left else only(plain(text))
    if found is None or found.value is None:
        return text
    percent = "\\%" if "%" in text or "percent" in text else ""
    return _digits(found.value) + percent


def _words(text: str) -> str:
    text = _BASE.sub(r" $(\1,\2\3)$ ", _TIME.sub(" ", text))
    text = _FOREIGN.sub(" ", _renumbered(text))
    text = re.sub(r"(?<=\d)\.(?!\d)", " .", text.replace("。", " . ").replace(":", ": "))
    return _ALONE.sub(r"$\1\2$", text)


def _renumbered(text: str) -> str:
    """A text whose unusual numbers are usual, and without those that it denies."""
    parts, at = [], 0
    for number in numbers(text):
        source = text[number.start : number.end]
        usual = _USUAL.fullmatch(source) or _LIST.match(source.lstrip("-"))
        if number.value is None or (usual and not number.denied):
            continue
        digits = _digits(number.value) + ("%" if "%" in source else "")
        if "/" in digits and not text[: number.start].endswith("$"):
            digits = f" ${digits}$ "
        parts += [text[at : number.start], "" if number.denied else digits]
        at = number.end
    return "".join([*parts, text[at:]])


def _digits(value: Fraction) -> str:
    """A number as the library reads it: decimals where they end, a fraction otherwise."""
    rest = value.denominator
    twos = fives = 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest > 1 or max(twos, fives) > 300:
        return f"{value.numerator}/{value.denominator}"
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    point = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return ("-" if value < 0 else "") + point


# ---------------------------------------------------------------- intervals

INTERVAL = re.compile(r"\s*(?:\\left)?\s*[(\[].*,.*[)\]]\s*", re.DOTALL)
_OR = re.compile(r"\\text\s*\{\s*(?:or|and)\s*\}|\b(?:or|and)\b|\\cup|\\lor|\\quad|,")
_LESS = r"(<|>|≤|≥|\\leq?(?:slant)?(?![a-z])|\\geq?(?:slant)?(?![a-z])|\\lt(?![a-z])|\\gt(?![a-z]))"
_BETWEEN = re.compile(rf"(.+?){_LESS}\s*[a-zA-Z]\s*{_LESS}(.+)")
_FROM = re.compile(rf"\s*[a-zA-Z]\s*{_LESS}(.+)")


def interval(text: str) -> str | None:
    """The intervals that inequalities mean, as LaTeX; None where the text is not of such."""
    found = []
    for part in _OR.split(text.strip().rstrip(".")):
        if between := _BETWEEN.fullmatch(part):
            low, left, right, high = between.groups()
            if _closes(left)[0] != _closes(right)[0]:
                return None
            ends = (low, _closes(left)[1], _closes(right)[1], high)
            found.append(ends if _closes(left)[0] == "<" else ends[::-1])
        elif one := _FROM.fullmatch(part):
            kind, closed = _closes(one[1])
            end = one[2]
            found.append(("-\\infty", False, closed, end) if kind == "<" else
                         (end, closed, False, "\\infty"))  # fmt: skip
        else:
            return None
    if len(found) == 2 and "and" in text and {found[0][0], found[1][0]} > {"-\\infty"}:
        upper, lower = sorted(found, key=lambda ends: ends[0] != "-\\infty")
        found = [(lower[0], lower[1], upper[2], upper[3])]
    return "\\cup ".join(f"{'[' if a else '('}{x},{y}{']' if b else ')'}" for x, a, b, y in found)


def _closes(sign: str) -> tuple[str, bool]:
    """(< or >, whether the end belongs to it) of a sign."""
    less = sign in ("<", "≤") or sign.startswith("\\l")
    return "<" if less else ">", sign in "≤≥" or sign.startswith(("\\le", "\\ge"))


# ---------------------------------------------------------------- several parts

_SEMICOLON = re.compile(r"\s*[;；]\s*(?![^{]*\})")
_AND = re.compile(r"(?:\s|(?<=\$))*(?:\\text\s*\{\s*and\s*\}|\band\b|和)(?:\s|(?=\$))*")
_COMMA = re.compile(r"\s*,\s*")


def parts_of(answer: str) -> tuple[list[str], bool]:
    """The parts of an answer of several, and whether their order counts: it does between `;`."""
    text = ascii_digits(answer)
    for pattern in (_SEMICOLON, _AND):
        parts = [part for part in pattern.split(text) if part.strip()]
        if len(parts) > 1 and all(map(_whole, parts)):
            return parts, pattern is _SEMICOLON
    return [answer], True


def _whole(part: str) -> bool:
    """Whether a part ends no bracket or formula that another one began."""
    opened, closed = (sum(map(part.count, marks)) for marks in ("([{", ")]}"))
    return opened == closed and part.count("$") % 2 == 0


def parts_in(response: str, count: int) -> list[str] | None:
    """As many parts of a response: of its last box, its last boxes, or its last line."""
    boxes = [box[1:-1] for box in BOX.findall(response)]
    lines = response.strip().splitlines()
    for text in boxes[-1:] or lines[-1:]:
        text = ascii_digits(text)
        for pattern in (_SEMICOLON, _AND, _COMMA):
            parts = [part for part in pattern.split(text) if part.strip()]
            if len(parts) == count:
                return parts
    return boxes[-count:] if len(boxes) >= count else None
