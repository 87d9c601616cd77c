"""The tool of the task `calculator`; it imports no torch, for it runs in a process of its own."""

import ast
from decimal import Decimal
from fractions import Fraction
from operator import add, mul, sub, truediv

from rlzoo_zoo.numbers import ascii_digits

LARGEST = 500  # digits of a number
STEPS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: truediv}


def calculate(expression: str) -> str:
    """Compute numbers, + - * / and brackets exactly.

    Args:
        expression: the arithmetic, as 12*(3+4)
    """
    return str(arithmetic(expression))


def arithmetic(text: str) -> Fraction:
    """The value of numbers, + - * / (also × ÷) and brackets, exactly, with digits and signs of any
    script; ValueError on anything else."""
    text = ascii_digits(text).replace("×", "*").replace("÷", "/").strip()
    return value(ast.parse(text, mode="eval").body, text)


def value(node, text):
    if isinstance(node, ast.BinOp) and type(node.op) in STEPS:
        return STEPS[type(node.op)](value(node.left, text), value(node.right, text))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value(node.operand, text)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        raise ValueError("True and False are not numbers")
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        written = ast.get_source_segment(text, node) or ""
        if abs(Decimal(written).adjusted()) > LARGEST:
            raise ValueError("the exponent is too large")
        return Fraction(written)  # 0.1 is 1/10, and its float is not
    raise ValueError("only numbers, + - * / and brackets")
