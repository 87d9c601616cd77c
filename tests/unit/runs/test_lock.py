"""A lock's patience."""

import time

import pytest

from rlzoo.errors import RunError
from rlzoo.runs.lock import locked


def test_a_holder_is_waited_for_as_long_as_patience_lasts(tmp_path):
    with locked(tmp_path):
        began = time.monotonic()
        with pytest.raises(RunError), locked(tmp_path, patience=0.2):
            pass
        assert time.monotonic() - began >= 0.2
