"""Devices that are not there are named before anything is built."""

import pytest
import torch

from rlzoo.accel.device import pick_device
from rlzoo.errors import RlzooError


@pytest.mark.parametrize("name", ["mps", "cuda:99", "xpu", "meta", "gpu", "cpu:x"])
def test_a_device_that_is_not_there(name):
    if name == "mps" and torch.backends.mps.is_available():
        pytest.skip("it is there")
    with pytest.raises(RlzooError, match=f"device: '{name}'"):
        pick_device(name)


def test_the_cpu_is_there():
    assert pick_device("cpu") == torch.device("cpu")
