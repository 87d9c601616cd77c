"""A pretend GPU: tensors that say `cuda:0`, hold their numbers in the machine's own memory, and are
computed by torch's CPU kernels, so that whatever is computed on it is what a CPU computes, to the
last bit. Three things it does as a GPU would: it refuses operations on tensors of two devices, it
refuses what only a CPU's memory allows (numpy), and it notes each time that the host waits for it.

    with pretend_gpu() as gpu:
        rlzoo.run("ppo_gae", ["device=cuda", ...])
    gpu.syncs       # {(operation, "train/update.py:88 gradients"): times}
    gpu.launches    # {operation: times}, views and empty tensors not among them

To torch's C++ code such a tensor is one of the CPU; what makes it another's is its Python class.
Hence the rules below: what is made of one is one (`Pretend.__torch_dispatch__`), and what C++ code
makes beside one, while it works for a call that was given one, is one too (`_Call`).

What it cannot show: speed, kernels that exist on one kind of device only, order of sums, races of
asynchronous copies.
"""

import collections
import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import torch
import torch._dynamo  # loads, here and not later, what is patched below
from torch.nn.utils import clip_grad
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.launches import WAITING

aten = torch.ops.aten
GPU = torch.device("cuda", 0)
ROOT = Path(__file__).resolve().parents[2]
OURS = (str(ROOT / "rlzoo") + "/", str(ROOT / "plugins") + "/", str(ROOT / "tests") + "/")
HERE = __file__
# Between an operation and whoever asks for it.
BETWEEN = (HERE, "torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/utils/_contextlib.py")

_BELOW = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
for _key in (
    "AutogradCPU",
    "AutogradOther",
    "AutogradFunctionality",
    "Python",
    "PythonTLSSnapshot",
):
    _BELOW = _BELOW | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _key))

# The host must know a result of these before it can go on. Others are looked at below, or made of
# these.
WAITS = WAITING - {"is_nonzero", "lift_fresh", "repeat_interleave"}


def _plain(*names):
    return {getattr(aten, name).default for name in names}


INDEXED = {aten.index.Tensor, aten._unsafe_index.Tensor}
WRITTEN = _plain("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
COPIES = _plain("copy_", "copy")
# A tensor without dimensions may lie on the CPU beside others, but not for these.
STRICT = {
    "cat", "mm", "bmm", "addmm", "baddbmm", "gather", "scatter", "scatter_", "scatter_add",
    "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_add", "index_add_", "index_copy",
    "index_copy_", "index_select", "embedding", "searchsorted", "isin", "linear",
}  # fmt: skip
NO_KERNEL = {
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach", "detach_",
    "alias", "set_", "_local_scalar_dense", "lift_fresh", "resize_",
}  # fmt: skip


class Gpu:
    """What was noted. `memory` (free, total) is what it says it has."""

    def __init__(self) -> None:
        self.syncs: collections.Counter[tuple[str, str]] = collections.Counter()
        self.launches: collections.Counter[str] = collections.Counter()
        self.memory = (80 * 2**30, 80 * 2**30)
        self.graph: Graph | None = None  # what is captured now
        self.entered: list[Any] = []  # devices that were made the current one

    def clear(self) -> None:
        self.syncs.clear()
        self.launches.clear()

    def waited(self) -> int:
        """How often the host waited."""
        return self.syncs.total()

    def by_line(self) -> str:
        """A line for each operation and place, the most frequent first."""
        return "\n".join(f"{n:5} {op} {at}" for (op, at), n in self.syncs.most_common())

    def wait(self, what: str) -> None:
        if self.graph is not None:
            raise RuntimeError(f"CUDA graph capture: {what} waits for the device, at {place()}")
        self.syncs[what, place()] += 1


_gpu: Gpu | None = None  # the one there is, within `pretend_gpu`


class _Call:
    """Where what C++ code makes belongs: to the device of the call that it works for. Of a call
    that was given a pretend tensor that is the GPU, unless the call names a device."""

    device: ClassVar[str | None] = None


def place() -> str:
    """The innermost line of rlzoo's, or of a plugin's or test's, that is at work."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(OURS) and name != HERE:
            short = name.removeprefix(str(ROOT) + "/").removeprefix("rlzoo/")
            return f"{short.removeprefix('plugins/')}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "?"


def pretend(x: torch.Tensor) -> "Pretend":
    """x on the pretend GPU, in the same memory."""
    return torch.Tensor._make_subclass(Pretend, x)


def plain(x: torch.Tensor) -> torch.Tensor:
    """x as the CPU has it, in the same memory."""
    with torch._C._ExcludeDispatchKeyGuard(_BELOW):
        return torch.Tensor._make_subclass(torch.Tensor, x)


class Pretend(torch.Tensor):
    @property
    def device(self) -> torch.device:
        return GPU

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def is_cpu(self) -> bool:
        return False

    def get_device(self) -> int:
        return 0

    def cpu(self, memory_format: Any = None) -> torch.Tensor:
        return _to(self, "cpu")

    def pin_memory(self, *args: Any) -> torch.Tensor:
        raise RuntimeError("cannot pin a tensor of a GPU")

    def tolist(self) -> Any:
        _gpu.wait("tolist")
        return plain(self).tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"can't convert cuda:0 device type tensor to numpy, at {place()}")

    __array__ = numpy

    def __repr__(self, **kwargs: Any) -> str:
        return f"{plain(self.detach())!r} on {GPU}"

    def __format__(self, spec: str) -> str:
        return format(self.item() if self.ndim == 0 else repr(self), spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Pretend":
        if id(self) not in memo:
            twin = self.detach().clone()
            if isinstance(self, torch.nn.Parameter):
                twin = torch.nn.Parameter(twin, self.requires_grad)
            memo[id(self)] = twin.requires_grad_(self.requires_grad)
        return memo[id(self)]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        named = kwargs.get("device")
        before = _Call.device
        _Call.device = "cuda" if named is None else torch.device(named).type
        try:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        finally:
            _Call.device = before

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


def _to(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`x.to(...)`, which C++ code would not see a second device in."""
    device, dtype, flags = kwargs.pop("device", None), kwargs.pop("dtype", None), []
    for a in (*args, *(y for y in [kwargs.pop("other", None)] if y is not None)):
        if isinstance(a, torch.Tensor):
            device, dtype = a.device, a.dtype
        elif isinstance(a, torch.dtype):
            dtype = a
        elif isinstance(a, bool):
            flags.append(a)
        elif a is not None:
            device = a
    names = ("non_blocking", "copy")
    kwargs |= dict(zip(names, flags, strict=False))
    to_gpu = isinstance(x, Pretend) if device is None else torch.device(device).type == "cuda"
    moves = to_gpu != isinstance(x, Pretend)
    if not moves and dtype in (None, x.dtype) and not kwargs.get("copy"):
        return x
    if not moves and not isinstance(x, Pretend):
        return _plain_to(x, x.dtype if dtype is None else dtype, **kwargs)
    runs_ahead = kwargs.get("non_blocking") and getattr(x, "_pinned", False)
    if moves and not (to_gpu and runs_ahead):
        _gpu.wait("to the device" if to_gpu else "to the host")
    dtype = x.dtype if dtype is None else dtype
    return _Moved.apply(x, dtype, to_gpu)


class _Cast:
    """x in another dtype, as an operation that a graph can note."""

    is_view = False

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        with torch._C._ExcludeDispatchKeyGuard(_BELOW):
            return _plain_to(torch.Tensor._make_subclass(torch.Tensor, x), self.dtype, copy=True)


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dtype: torch.dtype, to_gpu: bool) -> torch.Tensor:
        ctx.dtype, ctx.was = x.dtype, isinstance(x, Pretend)
        cast = _Cast(dtype)
        out = cast(x)
        out = pretend(out) if to_gpu else out
        if _gpu is not None:
            _gpu.launches["_to_copy"] += 1
            if _gpu.graph is not None:
                _gpu.graph.note(cast, (x,), {}, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        with torch.no_grad():
            return _Moved.apply(gradient, ctx.dtype, ctx.was), None, None


def _tensors(x: Any, into: list[torch.Tensor]) -> list[torch.Tensor]:
    for y in x:
        if isinstance(y, torch.Tensor):
            into.append(y)
        elif isinstance(y, list | tuple):
            _tensors(y, into)
    return into


def _run(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """One operation below autograd: checked, noted, and computed as the CPU does."""
    given = _tensors(kwargs.values(), _tensors(args, []))
    ours = [x for x in given if isinstance(x, Pretend)]
    if _in_engine() and len(given) > len(ours) and all(x.ndim == 0 for x in ours):
        ours = []  # a number that a backward formula makes is where its gradient is: on the host
    device = kwargs.get("device")
    makes = any(a.name == "device" for a in func._schema.arguments)
    on_gpu = bool(ours)
    if makes:
        on_gpu = device is not None and torch.device(device).type == "cuda"
        on_gpu = on_gpu or _Call.device == "cuda" or (_in_engine() and _Call.device is None)
        if device is not None and on_gpu:
            kwargs = {**kwargs, "device": torch.device("cpu")}
    if on_gpu or ours:
        _refuse_mixtures(func, args, kwargs, given, ours)
        if func is aten._to_copy.default and ours and not on_gpu:
            _gpu.wait("to the host")
        if func is aten._to_copy.default and not ours and not kwargs.get("non_blocking"):
            _gpu.wait("to the device")
        if _launches(func):
            _gpu.launches[func._schema.name.removeprefix("aten::")] += 1
    with torch._C._ExcludeDispatchKeyGuard(_BELOW):
        if _gpu is not None and _gpu.graph is not None:
            _gpu.graph.keep(func, args)
        out = func(*args, **kwargs)
    if func in COPIES:
        on_gpu = isinstance(args[0], Pretend)
    out = _wrapped(out) if on_gpu else out
    if _gpu is not None and _gpu.graph is not None and (on_gpu or ours):
        _gpu.graph.note(func, args, kwargs, out)
    return out


def _wrapped(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return out if isinstance(out, Pretend) else pretend(out)
    if isinstance(out, list | tuple):
        return type(out)(map(_wrapped, out))
    return out


def _launches(func: Any) -> bool:
    return not func.is_view and func._schema.name.removeprefix("aten::") not in NO_KERNEL


def _in_engine() -> bool:
    """Whether it is autograd's engine that makes a tensor, and not a backward pass of ours."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.endswith(BETWEEN):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith("torch/autograd/graph.py")


def _sorts(elements: torch.Tensor, among: torch.Tensor) -> bool:
    """torch's rule, by which a GPU looks elements up by sorting them all."""
    return among.numel() >= 10 * elements.numel() ** 0.145


def _refuse_mixtures(
    func: Any,
    args: tuple,
    kwargs: dict[str, Any],
    given: list[torch.Tensor],
    ours: list[torch.Tensor],
) -> None:
    """Raise where devices mix, and note where the host waits."""
    name = func._schema.name.removeprefix("aten::")
    strict = name in STRICT
    others = [x for x in given if not isinstance(x, Pretend) and (strict or x.ndim > 0)]
    counts = name == "repeat_interleave" and kwargs.get("output_size") is None and len(args) < 2
    if name in WAITS or counts:
        _gpu.wait(name)
    elif name == "isin" and func is aten.isin.Tensor_Tensor and _sorts(*args[:2]):
        _gpu.wait("isin, by sorting")
    if func in COPIES and ours and others:
        if not (
            isinstance(args[0], Pretend) and (kwargs.get("non_blocking") or args[2:] == (True,))
        ):
            _gpu.wait("copy_ to the " + ("device" if isinstance(args[0], Pretend) else "host"))
        return
    if func in INDEXED | WRITTEN and isinstance(args[0], Pretend):
        index = [x for x in args[1] if x is not None]
        masks = [x for x in index if x.dtype in (torch.bool, torch.uint8)]
        fills = func in WRITTEN and args[2].numel() == 1 and len(masks) == len(index)
        if masks and not fills:
            _gpu.wait(f"{name} by a mask")
        elif func in INDEXED and any(not isinstance(x, Pretend) for x in index):
            _gpu.wait(f"{name} by an index of the CPU")
        if func in INDEXED:
            return
    if others and (ours or strict):
        shapes = ", ".join(f"{tuple(x.shape)} on {x.device}" for x in given)
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"cuda:0 and cpu! ({name} of {shapes}, at {place()})"
        )


class _Mode(TorchDispatchMode):
    """What is not given a pretend tensor comes by here: it may ask for one."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


class Graph:
    """What was captured: a replay computes it anew, into the same tensors, and is one launch."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, tuple, dict[str, Any], Any]] = []
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keep(self, func: Any, args: tuple) -> None:
        """What an operation writes to is as it was once the capture ends: nothing ran."""
        for argument, x in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.kept += [(y, y.clone()) for y in _tensors([x], [])]

    def note(self, func: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
        self.steps.append((func, args, kwargs, out))

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        _gpu.graph = self
        self.launches = _gpu.launches.copy()

    def capture_end(self) -> None:
        _gpu.graph = None
        _gpu.launches = self.launches
        with torch._C._ExcludeDispatchKeyGuard(_BELOW):
            for x, before in reversed(self.kept):
                x.copy_(before)

    def replay(self) -> None:
        _gpu.launches["graph"] += 1
        with torch._C._ExcludeDispatchKeyGuard(_BELOW):
            for func, args, kwargs, out in self.steps:
                found = func(*args, **kwargs)
                if not func.is_view:
                    for old, new in zip(_tensors([out], []), _tensors([found], []), strict=True):
                        if old is not new:
                            old.copy_(new)

    def reset(self) -> None:
        self.steps.clear()


@contextlib.contextmanager
def _capturing(graph: Graph, *args: Any, **kwargs: Any) -> Any:
    graph.capture_begin()
    try:
        yield
    finally:
        graph.capture_end()


def _noted(gpu: Gpu, device: Any) -> Any:
    gpu.entered.append(device)
    return contextlib.nullcontext()


def _pinned(x: torch.Tensor) -> torch.Tensor:
    found = x.clone()
    found._pinned = True  # type: ignore[attr-defined]
    return found


def _made(function: Any) -> Any:
    """torch.tensor and as_tensor, which copy a CPU's tensor without a word."""

    def make(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        source = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)), None)
        here = source.device if source is not None and function is _as_tensor else None
        device = here if device is None else torch.device(device)
        if device is None or device.type != "cuda":
            if isinstance(source, Pretend):
                return source.to("cpu")
            return function(*args, device=device, **kwargs)
        if isinstance(source, torch.Tensor):
            return source.to(device, kwargs.get("dtype"), copy=function is not _as_tensor)
        grad = kwargs.pop("requires_grad", False)
        found = function(*args, **kwargs)
        _gpu.wait("to the device")
        return pretend(found).requires_grad_(grad)

    return make


_grouped = clip_grad._group_tensors_by_device_and_dtype
_tensor, _as_tensor, _plain_to = torch.tensor, torch.as_tensor, torch.Tensor.to


def _new_tensor(self: torch.Tensor, data: Any, **kwargs: Any) -> torch.Tensor:
    kwargs = {"dtype": self.dtype, "device": self.device} | kwargs
    return torch.tensor(data, **kwargs)


def _backward(self: torch.Tensor, gradient: Any = None, retain_graph: Any = None,
              create_graph: bool = False, inputs: Any = None) -> None:  # fmt: skip
    torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def _moved_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """`Module.to`: weights stay the objects that they are where they stay where they are; tied ones
    stay tied."""
    memo: dict[int, Any] = {}

    def moved(x: torch.Tensor, grad: bool | None) -> torch.Tensor:
        if id(x) not in memo:
            y = x.detach()
            if y.is_floating_point() or not any(isinstance(a, torch.dtype) for a in args):
                before = _gpu.syncs.copy()
                y = y.to(*args, **kwargs)
                _gpu.syncs = before  # a model is moved once
            if y.device == x.device and y.dtype == x.dtype:
                memo[id(x)] = x, x
            else:
                memo[id(x)] = torch.nn.Parameter(y, grad) if grad is not None else y, x
        return memo[id(x)][0]

    for part in module.modules():
        for name, x in part._parameters.items():
            if x is not None:
                part._parameters[name] = moved(x, x.requires_grad)
        for name, x in part._buffers.items():
            if x is not None:
                part._buffers[name] = moved(x, None)
    return module


class _Autocast(torch.autocast):
    def __init__(self, device_type: str, *args: Any, **kwargs: Any):
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


def _by_device(tensorlists: Any, with_indices: bool = False) -> Any:
    """torch's way to sort tensors by device and dtype, which says the CPU of these."""
    found = {}
    for (device, dtype), group in _grouped(tensorlists, with_indices).items():
        ours = any(isinstance(x, Pretend) for some in group[0] for x in some)
        found[GPU if ours else device, dtype] = group
    return found


def _as_cpu(function: Any) -> Any:
    """A function of a device's type, which asks what the CPU would say."""
    return lambda *names: function(*("cpu" if name == "cuda" else name for name in names))


@contextlib.contextmanager
def pretend_gpu() -> Any:
    """Within, torch has a GPU, `cuda:0`; gives what is noted of it."""
    global _gpu
    assert _gpu is None, "there is one pretend GPU at a time"
    _gpu = gpu = Gpu()
    properties = SimpleNamespace(
        name="pretend", total_memory=gpu.memory[1], multi_processor_count=132, major=9, minor=0
    )
    nothing: Any = lambda *args, **kwargs: None  # noqa: E731
    cuda: dict[str, Any] = {
        "_lazy_init": nothing,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "get_device_name": lambda *args: "pretend",
        "get_device_capability": lambda *args: (9, 0),
        "get_device_properties": lambda *args: properties,
        "mem_get_info": lambda *args: gpu.memory,
        "memory_allocated": lambda *args: 0,
        "max_memory_allocated": lambda *args: 0,
        "memory_reserved": lambda *args: 0,
        "reset_peak_memory_stats": nothing,
        "empty_cache": nothing,
        "get_rng_state": nothing,  # what is drawn there, the CPU's generator draws
        "set_rng_state": nothing,
        "manual_seed_all": nothing,
        "synchronize": lambda *args: gpu.wait("synchronize"),
        "set_device": gpu.entered.append,
        "device": lambda device: _noted(gpu, device),
        "Stream": lambda device=None: SimpleNamespace(device=device),
        "current_stream": lambda device=None: SimpleNamespace(device=device),
        "stream": contextlib.nullcontext,
        "CUDAGraph": Graph,
        "graph": _capturing,
        "is_current_stream_capturing": lambda: gpu.graph is not None,
    }
    with contextlib.ExitStack() as stack:
        for name, value in cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        for owner, name, value in [
            (torch, "tensor", _made(_tensor)),
            (torch, "as_tensor", _made(_as_tensor)),
            (torch.Tensor, "to", _to),
            (torch.Tensor, "pin_memory", _pinned),
            (torch.Tensor, "cuda", lambda x, *args, **kwargs: _to(x, GPU)),
            (torch.Tensor, "new_tensor", _new_tensor),
            (torch.Tensor, "backward", _backward),
            (torch.autograd, "has_torch_function", lambda *args: False),
            (torch.nn.Module, "to", _moved_module),
            (clip_grad, "_group_tensors_by_device_and_dtype", _by_device),
            # a build for CUDA, on a machine without a driver
            (torch.accelerator, "current_accelerator", nothing),
            (torch, "autocast", _Autocast),
            (torch, "is_autocast_enabled", _as_cpu(torch.is_autocast_enabled)),
            (torch, "get_autocast_dtype", _as_cpu(torch.get_autocast_dtype)),
        ]:
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(_Mode())
        try:
            yield gpu
        finally:
            _gpu = None
