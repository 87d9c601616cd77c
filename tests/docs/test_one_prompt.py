"""docs/one-prompt.md: each number of its tables follows from those of the models."""

import re

import pytest

from helpers import ROOT

PAGE = (ROOT / "docs" / "one-prompt.md").read_text(encoding="utf-8")
ROW = re.compile(r"^ *\d+  \S+ +(-?\S+(?: +-?\S+){8})$", re.MULTILINE)
TABLES = [
    [[float(x) for x in row.split()] for row in ROW.findall(block)]
    for block in re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize("rows", TABLES, ids=["wrong", "right"])
def test_the_numbers_follow_from_the_four_models(rows):
    assert len(rows) >= 10
    ends = [*rows[1:], [0.0] * 9]  # nothing follows the last token
    for now, then in zip(rows, ends, strict=True):
        log_prob, ref, kl, score, reward, value, delta, advantage, return_ = now
        assert kl == pytest.approx(log_prob - ref, abs=2e-4)
        assert reward == pytest.approx(score - 0.01 * kl, abs=2e-4)
        assert delta == pytest.approx(reward + then[5] - value, abs=4e-4)
        assert advantage == pytest.approx(delta + 0.95 * then[7], abs=4e-4)
        assert return_ == pytest.approx(advantage + value, abs=4e-4)
