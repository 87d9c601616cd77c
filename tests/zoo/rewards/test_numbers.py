"""Numbers out of text: a table made by hand, keys that are one number, boxes, and time."""

import re
import time
from fractions import Fraction
from pathlib import Path

import pytest

from rlzoo_zoo.numbers import last_number, numbers
from rlzoo_zoo.rewards.numeric import fault, numeric

TABLE = Path(__file__).with_name("numbers.tsv").read_text(encoding="utf-8").splitlines()[1:]


def unescaped(text):
    text = re.sub(r"<([0-9a-f]{4})>", lambda match: chr(int(match[1], 16)), text)
    return text.replace("<n>", "\n")


@pytest.mark.parametrize("line", TABLE)
def test_the_last_number_is_that_of_the_table(line):
    text, number = line.split("\t")
    assert last_number(unescaped(text)) == (None if number == "-" else Fraction(number))


@pytest.mark.parametrize(
    "text",
    ["", "42", "so 1, 2 and 3.", "5 m^2", "no number", "1e999999999", "5 cm x 3 cm = 15", "a 5-4"],
)
def test_what_stands_around_a_text_changes_no_number(text):
    far = "The first lines are of no use.\n" * 20
    assert last_number(far + text + "\n") == last_number(text)
    assert last_number("7\n" + "no such thing\n" * 60 + text) == (last_number(text) or 7)


def test_a_number_that_is_too_long_is_none_but_a_long_one_is_exact():
    assert last_number("9" * 3000) == 10**3000 - 1
    for text in ("9" * 5000, "99999**999", "1e9999"):
        assert last_number(text) is None


def test_listed_numbers_are_separated_by_commas_and_spaces():
    found = [n.value for n in numbers("[0.5,-1] 1 000 -2,3e-1 1/2 to -.25", listed=True)]
    wanted = ["1/2", "-1", "1", "0", "-2", "3/10", "1/2", "-1/4"]
    assert found == list(map(Fraction, wanted))


@pytest.mark.parametrize(
    "text",
    ["18", "18 apples", "$18.90", r"\$18", "x = 5", "5 m^2", "7 \\times 10^4", "1 1/2", "-½", "50%",
     "1,000", "so 5 + 3 = \\boxed{8}", "5 + 3 = 8\n#### 8", "\\frac{1}{-2}", "答案是12。", "10^3",
     "0,5", "1.234,5", "12,34,567", "1 234,5", "1,5 times 2 is\n#### 3"],
)  # fmt: skip
def test_a_key_of_one_number(text):
    assert fault(text) is None


@pytest.mark.parametrize(
    "text",
    ["forty", "C", "NaN", "-inf", r"\sqrt{2}", r"3\pi", r"\frac{x+1}{2}", "x+1", "2x", "x^2 - 5",
     "3-5", "5 or 6", "5, 6", "(1,2)", "[3,5]", "10:30", "2024-05-06", "1.2.3", "x > 5", "±5",
     "2516_8", "5 + 3", "2 hours 30 minutes", r"\boxed{2, 3}", "1/0", "not 5", "2^x", r"5\pm 1",
     "-2,3", "1,5", "5!", r"\boxed{} 5"],
)  # fmt: skip
def test_a_key_that_is_no_number_or_several(text, golden):
    assert text[:5] in fault(text).replace("\\\\", "\\")
    with golden.refuses(ValueError):
        numeric([""], [text])


@pytest.mark.parametrize(
    ("response", "answer", "right"),
    [
        ("50%", "50", 1), ("50%", "0.5", 1), ("50%", "1/2", 1), ("0.5", "50%", 1), ("50", "50%", 1),
        ("5000%", "50%", 0), ("0.5%", "50%", 0), ("60 million", "60", 1), ("5k", "5", 0),
        ("60 million", "60000000", 1), ("60 million", "60 thousand", 0), (r"\boxed{3, 5}", "5", 0),
        (r"\boxed{3 \text{ or } 5}", "5", 0), (r"\boxed{2+3=5}", "5", 1), (r"\boxed{}, 5", "5", 0),
        ("#### 18\nThat took 3 steps.", "18", 1), ("#### Step 3: add 4\nso 42", "42", 1),
        (r"\boxed{1\frac{1}{2}}", "1.5", 1), ("- 5", "5", 0), ("- 5", "- 5", 1), ("10:25", "25", 0),
        (r"\boxed{１２}", "12", 1), ("so 12.0", "12", 1), ("١٢", "12", 1), ("1,5", "3/2", 1),
        (str(10**40), str(10**40 + 1), 0),
    ],
)  # fmt: skip
def test_which_number_of_a_response_is_right(response, answer, right):
    assert numeric([response], [answer]).tolist() == [right]


@pytest.mark.parametrize(
    "part",
    ["5 ", " ", "\n", "9", "1,111", "111,", "√(", "\\sqrt[", "\\frac{", "^ ", "1/", "1:", "-", "1-",
     "sin ", "１", "½", "²", "分の", "1.1(", "千", "1 000 ", "\\text{", "1.234.", "万", "1万",
     "log_", "not ", "{"],
)  # fmt: skip
def test_no_text_takes_long(part):
    began = time.process_time()
    last_number("1" + part * 4000)
    last_number(part * 4000)
    assert time.process_time() - began < 2
