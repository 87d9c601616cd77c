"""The hooks of rlzoo: `register_<plural>(register)` for each kind of component.

A plugin implements any of them with `@rlzoo.hookimpl` and calls `register(f)` for each component
it brings. `rlzoo.plugin.component.KINDS` lists what each kind takes and returns.
"""

from collections.abc import Callable

import pluggy

from rlzoo.plugin.component import KINDS, Kind

Register = Callable[..., None]

hookimpl = pluggy.HookimplMarker("rlzoo")

_hookspec = pluggy.HookspecMarker("rlzoo")


def _hook(kind: Kind) -> Callable[[Register], None]:
    def register_kind(register: Register) -> None: ...

    register_kind.__name__, register_kind.__doc__ = f"register_{kind.plural}", kind.what
    return _hookspec(register_kind)


HOOKS = type("Hooks", (), {f"register_{k.plural}": _hook(k) for k in KINDS.values()})
