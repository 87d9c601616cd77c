"""A lock's patience."""

import errno
import time

import pytest

from rlzoo.errors import RunError
from rlzoo.runs.lock import locked


def test_a_full_disk_leaves_a_folder_locked(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with locked(tmp_path), pytest.raises(RunError), locked(tmp_path):
        pass


def test_a_holder_is_waited_for_as_long_as_patience_lasts(tmp_path):
    with locked(tmp_path):
        began = time.monotonic()
        with pytest.raises(RunError), locked(tmp_path, patience=0.2):
            pass
        assert time.monotonic() - began >= 0.2
