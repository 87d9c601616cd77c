r"""Numbers in text: one reader for rewards, checkers, answers and moves.

`numbers(text)` gives the numbers of a text in order, exactly, by these rules:

- Digits of any script count, full-width ones too, and letters may touch them except Latin, Greek
  and Cyrillic ones before (`答案是12。` is 12, not `H2O`). Number words do not (`forty`).
- A dash of any kind, full-width ones too, is a sign unless it follows an operand: `-5`, `– 5`,
  `= - 5`, `-$5`, `-(5)`; but `5 - 3`, `3–5` and `Answer - 5` end with 3, 5 and 5. `minus 5`, `负5`
  and `零下5` are -5. A dash that begins several lines is a bullet.
- Groups of three digits may have commas, apostrophes, underscores or single spaces of any kind
  between them (`1 000`, `1'000`), and Indian groups commas (`1,00,000`); `1.234.567` has dots.
- One comma that cannot separate groups is decimal (`1,5` is 3/2, `1.234,5` too), except in
  brackets (`(1,5)`) and lists (`1,2,3`, `1, 5`). One dot is decimal (`1.234`).
- `3/4`, `½`, `\frac{3}{4}`, `4分之3` are fractions, `1 1/2` and `1\frac12` are 3/2.
- `7e4`, `7×10^4`, `10^3`, `2^{10}`, `10⁵` are powers; `70k`, `3 million`, `2 lakh` and `3千万` are
  scaled.
- Units, currencies and percent signs are ignored; `50%` is 50 with 1/2 as its other reading, and
  `3 million` has 3 as its other one. `same` compares.
- Not a number: parts of an expression (`3\pi`, `\sqrt{2}`, `2x`, `2^x`), numbers in another base
  (`2516_8`), times and ratios (`10:30`), dates in digits (`5月6日`), versions, repeating decimals,
  infinities, those of over 4,000 digits, and x / 0.
- A number after `not`, `rather than`, `≠`, `不是`, or before `ではない`, is denied, and so is a
  reference (`as in step 3`, `to 2 decimals`): `18, not 16` ends with 18.
"""

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

LONGEST = 4000  # digits of a number: what Python multiplies out in no time
TAIL = 400  # characters in which the last number is looked for first


class Number(NamedTuple):
    """A number of a text: its value, None where it is undefined or too long; another reading; its
    place in `plain(text)`; whether the text denies it."""

    value: Fraction | None
    other: Fraction | None
    start: int
    end: int
    denied: bool


def last_number(text: str) -> Fraction | None:
    """The last number in a text that is not denied, exactly; None where there is none."""
    found = last(text)
    return found and found.value


def last(text: str) -> Number | None:
    """The last number in a text that is not denied, as it was found in its last lines or in all."""
    end = text[text.rfind("\n", 0, -TAIL) + 1 :] if len(text) > TAIL else text
    for part in dict.fromkeys((end, text)):
        for found in numbers(plain(part), backwards=True):
            if not found.denied:
                return found
    return None


def same(got: Number, want: Number, allowed: Fraction) -> bool:
    """Whether two numbers differ by at most `allowed`; where one of them has another reading
    (`50%`, `3 million`), in either of its readings."""
    pairs = [(got.value, want.value)]
    if (got.other is None) != (want.other is None):
        pairs += [(got.other, want.value), (got.value, want.other)]
    return any(a is not None and b is not None and abs(a - b) <= allowed for a, b in pairs)


# ---------------------------------------------------------------- plain text

_MARKS = str.maketrans(dict.fromkeys("‐‑‒–—―−﹣－", "-") | dict.fromkeys("⁄∕", "/"))
_MARKS |= str.maketrans(dict.fromkeys("،、，", ", ") | dict.fromkeys("’٬", "'"))
_MARKS |= str.maketrans({"÷": " ÷ ", "٫": ".", "٪": "%"})
_WIDE_COMMA = re.compile("(?<=[０-９])，(?=[０-９]{3})")
_OTHER = re.compile(r"[^\x00-\x7f]+")
_PERCENT = re.compile(r"百分之\s?(-?\d+(?:\.\d+)?)")
_PARTS = re.compile(r"(?<!\d)(\d{1,9})\s?[分분][之の의]\s?(-?\d+)")
_SCALES = {
    word: power
    for power, words in {
        2: "hundred 百 백",
        3: "k K thousand tausend тыс тысяч тысячи พัน 千 천",
        4: "万 萬 만 หมื่น",
        5: "lakh लाख แสน",
        6: "M million millionen mio millones milhões млн миллион миллиона миллионов ล้าน",
        7: "crore करोड",
        8: "亿 億 억",
        9: "B bn billion milliarde milliarden mrd milliard млрд миллиард миллиарда миллиардов",
        12: "trillion 조",
    }.items()
    for word in words.split()
}
_HAN = r"(?:[万萬만亿億억조]|[千천](?![克米瓦卡])|[百백](?!分))"
_COMPOUND = re.compile(
    rf"(?<![\d.,])(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d{{1,20}}){_HAN}{{1,3}}[ 零]?){{1,8}}"
    r"(?:(?<!\D[ 零])\d{3,4}|(?<=零)\d{1,3})?(?![.,]?\d)"
)


def ascii_digits(text: str) -> str:
    """A text with digits, signs, fractions and superscripts of any script in those of ASCII, and
    without characters that are not seen."""
    if text.isascii():
        return text
    text = _WIDE_COMMA.sub(",", text).translate(_MARKS)
    text = _OTHER.sub(lambda run: "".join(map(_ascii, run[0])), text)
    text = _PERCENT.sub(r"\1%", _COMPOUND.sub(_compound, text))
    text = _PARTS.sub(r"\2/\1", text)
    text = re.sub(r"\}\^\{|\}_\{", "", text)  # of superscripts in a row
    return re.sub(r"(?<=\d)\x01", " ", text).replace("\x01", "")


def _compound(match: re.Match) -> str:
    """`1亿2000万` and `3千5百万` as digits."""
    total = part = 0
    for digits, units in re.findall(r"(\d+)([^\d 零]*)", match[0].replace(",", "")):
        part += int(digits) * 10 ** sum(_SCALES[unit] for unit in units if _SCALES[unit] < 4)
        for unit in units:
            if _SCALES[unit] > 3:
                total = total + part * 10 ** _SCALES[unit] if part else total * 10 ** _SCALES[unit]
                part = 0
    return str(total + part) + " " * match[0].endswith(" ")


def _ascii(char: str) -> str:
    if (digit := unicodedata.decimal(char, None)) is not None:
        return str(digit)
    kind, _, points = unicodedata.decomposition(char).rpartition(">")
    seen = "".join(chr(int(p, 16)) for p in points.split()).translate(_MARKS)
    if kind == "<fraction":
        return "\x01" + seen  # a space after a digit
    if kind == "<circle":  # the number of a line
        return char
    if kind in ("<super", "<sub") and re.fullmatch(r"[\d+-]", seen):
        return f"{'^' if kind == '<super' else '_'}{{{seen}}}"
    if unicodedata.category(char) == "Cf":
        return ""
    return unicodedata.normalize("NFKC", char)


_COMMANDS = [
    (r"\\left|\\right|\\!", ""),
    (r"\\([$%#&])", r"\1"),
    (r"\{,\}", ","),
    (r"\\(?:[,;: ]|quad|qquad)|~(?=000)", " "),  # a tie; `100~120` is a range
    (r"\\(?:times|cdot)(?![A-Za-z])", "×"),
    (r"\\(?:neq?)(?![A-Za-z])", "≠"),
    (r"\\(?:text\w*|math[a-z]+|operatorname|mbox)\s*\{([^{}]*)\}", r" \1 "),
    (r"\^\s?\{?\s?\\circ\s?\}?", "°"),
    (r"\^\s?\{?\s{0,2}(?:st|nd|rd|th)\b\s{0,2}\}?", ""),
    (r"(\\[A-Za-z]+)(?=\d)", r"\1 "),
]
# What is not a number, as one sign: a part of an expression □, and anything else made of digits ■.
DATE = (
    r"(?<!\d)(?:\d{1,4}\s?[年년]\s?\d{1,2}\s?[月월](?:\s?\d{1,2}\s?[日号號일])?"
    r"|\d{1,2}\s?[月월]\s?\d{1,2}\s?[日号號일]|\d{1,2}\s?[点點時时시]\s?\d{1,2}\s?[分분])"
)
_MASKED = [
    (r"\\sqrt\s?(?:\[[^\]]{0,20}\])?\s?(?:\{[^{}]*\}|\d)", "□"),
    (r"√\s?(?:\([^()]*\)|\{[^{}]*\}|[\d.]+|\w)", "□"),
    (r"\\?(?<![A-Za-z])(?:sin|cos|tan|cot|sec|csc|ln|log|exp)(?:\s?[_^]\s?(?:\{[^{}]*\}|\w))?"
     r"\s{0,2}[({]?\s?[-\d.]*\d\s?[)}]?", "□"),
    (r"\\(?:d|t)?binom\s*\{[^{}]*\}\s*\{[^{}]*\}|\\(?:pi|infty|alpha|theta)(?![A-Za-z])|[π∞]", "□"),
    (r"(?<!\d)\d+(?::\d+)+|(?<!\d)\d{1,4}([-/])\d+(?:\1\d+)+", "■"),
    (DATE + r"|\b0[xX][\dA-Fa-f]+", "■"),
    (r"(?<!\d)\d*\.\d*(?:\\(?:overline|bar|dot) ?\{?\d+\}?|\(\d+\))", "■"),
]  # fmt: skip
_REWRITES = [(re.compile(pattern), by) for pattern, by in _COMMANDS + _MASKED]
_PART = r"\{([^{}]*)\}|(\d)"
_FRACTION = re.compile(rf"\\[dtc]?frac\s*(?:{_PART})\s*(?:{_PART})")


def plain(text: str) -> str:
    """A text without LaTeX around its numbers: `\\frac{1}{2}` is 1/2."""
    text = ascii_digits(text)
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    for _ in range(8):  # fractions in each other
        text, count = _FRACTION.subn(_fraction, text)
        if not count:
            break
    return text


def _fraction(match: re.Match) -> str:
    parts = [only(match[1] or match[2] or ""), only(match[3] or match[4] or "")]
    top, bottom = (part and part.value for part in parts)
    if top is None or bottom is None:
        return "□"
    value = top / bottom if bottom else None
    return " 1/0" if value is None else f" {value.numerator}/{value.denominator}"


# ---------------------------------------------------------------- numbers

_LATIN = "A-Za-zÀ-ÖØ-öø-ɏͰ-ϿЀ-ӿ"  # scripts whose words have spaces, and names have digits
_PLAIN = r"(?:\d+(?:\.\d+)?|(?<!\.)\.\d+)(?!\.?\d)"
_GROUPED = (
    r"[1-9]\d{0,2}(?:,\d{3}){1,40}(?:\.\d+)?(?![.,]?\d)"
    r"|[1-9]\d?(?:,\d{2}){1,40},\d{3}(?:\.\d+)?(?![.,]?\d)"
    r"|(?<!\d[ ])[1-9]\d{0,2}(?P<by>[ '_])\d{3}(?:(?P=by)\d{3}){0,40}(?:[.,]\d+)?"
    r"(?![.,'_ ]?\d|\s?/\s?\d)"
    r"|[1-9]\d{0,2}(?:(?:\.\d{3}){1,40},\d+|(?:\.\d{3}){2,40})(?![.,]?\d)"
    r"|(?<!\d,)(?!(?:(?<=[(\[{])|(?<=[(\[{]-))\d+,\d+\s*[)\]}\\])\d+,\d+(?![.,]?\d)"
)
_ENGLISH = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d{2})+,\d{3}")
_WORDS = "|".join(word for word in _SCALES if len(word) > 1)
_POWER = r"(?:\^|\*\*)\s*(?:\{{\s*(?P<{0}>-?\d{{1,3}})\s*\}}|(?P<{0}_>-?\d{{1,3}})(?!\d))"
_POWERS = (
    r"(?:[eE](?P<e>[-+]?\d{1,3}))?"
    rf"(?:\s?[×*·x]\s?10\s?{_POWER.format('ten')}|\s?{_POWER.format('power')})?"
)
# What follows an operand of an expression: a power, a base, a variable, or a masked part.
_GOES_ON = (
    rf"(?!\d|\.\d|[eE][-+]?\d|\s?\^|\*\*\d|_[\d{{]|[abeinxyz](?![{_LATIN}])|\s?[-+/*×·]?\s?□"
    r"|\s?[-+*/]\s?\d{0,9}[ixyz](?![A-Za-z]))"
)
_SCALED = (
    rf"(?:\s?(?P<percent>%|per ?cent\b|パーセント|퍼센트)|(?P<scale>[kKMB](?![A-Za-z\d])"
    rf"|\s{{0,3}}(?i:{_WORDS})s?(?![{_LATIN}])|\s?[百백千천]?{_HAN}))?"
)
_MIXED = r"(?P<whole>\d{1,9})\ {1,3}(?P<part>\d{1,9})\s?/\s?(?P<parts>\d{1,9})(?![\d./])|"


def _pattern(grouped: str, mixed: str, scaled: str) -> re.Pattern:
    return re.compile(
        rf"(?=[\d.])(?<![{_LATIN}\d])(?<!\d[.:])(?:{mixed}"
        rf"(?P<top>{grouped}{_PLAIN}){_POWERS}(?:\s?/\s?(?P<bottom>{_PLAIN}))?){_GOES_ON}{scaled}"
    )


_NUMBER, _LISTED = _pattern(f"{_GROUPED}|", _MIXED, _SCALED), _pattern("", "", "")
_SIGN = re.compile(
    r"(-|\b(?:minus|negative|минус)\b|负|負|マイナス|零下|氷点下|영하|마이너스|ลบ)(\s*)"
    r"(?:[$€£¥₹]\s?|\(\s?)?$",
    re.IGNORECASE,
)
_OPERAND = re.compile(rf"[{_LATIN}\d)\]}}%°□■]$")
_IS = re.compile(r"(?:^|[^A-Za-z])(?:is|are|was|be|equals|gives|get)$", re.IGNORECASE)
DENIED = re.compile(
    r"(?:\b(?:can)?not|n't|\b(?:never|nicht|не|rather than|instead of|as opposed to)|不是|并非"
    r"|不等于|≠|(?<!\d)!=)\s*(?:(?:equal(?: to)?|be|the|a|=)\s+)?[$€£¥₹]?\s?$"
    r"|\b(?:as in|see|from|by|using) (?:step|equation|line|part|section|figure|table)s? \(?$",
    re.IGNORECASE,
)
_NOT_IT = re.compile(
    r"[^\W\d]{0,3}(?:ではな|じゃな|でなく|[이가] 아니)"
    r"|\s?(?:decimals\b|(?:decimal|significant) [pfd]|d\.p\b)"
)
# What precedes an operand of an expression: a power or an index, a masked part, a variable.
_INSIDE = re.compile(
    r"(?:\^\{?\s*-?|[A-Za-z\d)}](?:_\{?|\*\*)|□\s*[-+/*×·]?|(?<![A-Za-z])[xyz](?:\^\{?\d+\}?)?\s*[-+/*×·])\s*$"
)
_BULLETS = re.compile(r"^[ \t]*- ", re.MULTILINE)


def numbers(text: str, *, listed: bool = False, backwards: bool = False) -> Iterator[Number]:
    """The numbers of a plain text, in order. listed: commas and spaces only separate numbers.
    backwards: the last one first."""
    bullets = len(_BULLETS.findall(text)) > 1
    matches = list((_LISTED if listed else _NUMBER).finditer(text))
    for match in reversed(matches) if backwards else matches:
        start = match.start()
        before = text[max(0, start - 40) : start]
        if _INSIDE.search(before):
            continue
        value, other = _value(**match.groupdict())
        sign = _SIGN.search(before)
        if sign and _negative(before[: sign.start()], sign, bullets):
            value, other = value and -value, other and -other
            start -= len(before) - sign.start()
            before = before[: sign.start()]
        denied = DENIED.search(before) or _NOT_IT.match(text, match.end())
        yield Number(value, other, start, match.end(), denied is not None)


def _negative(before: str, sign: re.Match, bullets: bool) -> bool:
    """Whether a dash or a word is a sign, by the text before it."""
    near = before.rstrip(" ")
    if sign[1] != "-":
        return not re.search(r"[\d%)]$|(?<![A-Za-z])[A-Za-z]$", near)
    if not sign[2]:
        return not _OPERAND.search(before)
    if not near or near.endswith("\n"):
        return not bullets
    return not _OPERAND.search(near) or _IS.search(near) is not None


def _value(
    *, top, bottom, e, ten, ten_, power, power_, by=None, whole=None, part=None, parts=None,
    percent=None, scale=None,
) -> tuple[Fraction | None, Fraction | None]:  # fmt: skip
    """A number's value and its other reading, from the groups of a match."""
    if top is None:
        top, bottom = part, parts
    whole_digits, mark, decimals = top.rpartition(_decimal_mark(top, by))
    digits = re.sub(r"\D", "", whole_digits if mark else top) + f".{decimals if mark else 0}"
    exponent = int(power or power_ or 1)
    if (len(top) + len(bottom or "")) * abs(exponent) > LONGEST:
        return None, None
    value, under = Fraction(digits or 0), Fraction(bottom or 1)
    if not under or (exponent < 0 and not value):
        return None, None
    if e or ten or ten_:
        value *= Fraction(10) ** (int(e or 0) + int(ten or ten_ or 0))
    if exponent != 1 or bottom:
        value = value**exponent / under
    if whole and value < 1:
        value += int(whole)
    if percent:
        return value, value / 100
    if not scale:
        return value, None
    word = scale.strip()
    word = word.lower() if len(word) > 1 else word
    known = next((w for w in (word, word.removesuffix("s")) if w in _SCALES), "")
    power = _SCALES[known] if known else sum(_SCALES[unit] for unit in word)
    return value * 10**power, None if word[-1] in _SCALES else value


def _decimal_mark(digits: str, by: str | None) -> str:
    """The decimal mark of some digits, `.` or `,`; a sign that they lack where all marks group."""
    last = max(digits.rfind(","), digits.rfind("."))
    if last < 0 or (digits.count(".") > 1 and digits[last] == "."):
        return "none"
    return "none" if not by and _ENGLISH.fullmatch(digits) else digits[last]


# ---------------------------------------------------------------- one number

_UNIT_POWER = re.compile(r"(?<=[A-Za-z])\s?\^?\s?\{?-?\d\}?(?![\d.])")
_EXPRESSION = re.compile(
    r"[\d□■+<>≤≥±×÷∪]|(?<![*\s])\*(?!\*)|\s!|\\(?:pm|leq?|geq?|cup|cap|lt|gt|in)(?![a-z])"
)


def only(text: str) -> Number | None:
    """The number of a plain text that is one number, with words or units at most."""
    found = list(numbers(text))
    if len(found) != 1 or found[0].denied or found[0].value is None:
        return None
    before, after = text[: found[0].start], text[found[0].end :]
    rest = _UNIT_POWER.sub("", before) + " " + _UNIT_POWER.sub("", after)
    operator = re.search(r"(?<![A-Za-z])[A-Za-z]\s*[-/]\s*$", before)
    return None if operator or _EXPRESSION.search(rest) else found[0]


BRACE = re.compile(r"(\\f?box(?:ed)?\s*)?\{|\}")


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}`, braces balanced; None where none is closed."""
    found, opened = None, []
    for brace in BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(brace)
        elif opened and (begin := opened.pop())[1]:
            found = text[begin.end() : brace.start()]
    return found
