"""The hooks of rlzoo: `register_<plural>(register)` for each kind of component.

A plugin implements any of them with `@rlzoo.hookimpl` and calls `register(f)` for each component
it brings. `rlzoo.plugin.component.KINDS` lists what each kind takes and returns.
"""

from collections.abc import Callable

import pluggy

from rlzoo.plugin.component import KINDS

Register = Callable[..., None]

hookimpl = pluggy.HookimplMarker("rlzoo")

HOOKS = type("Hooks", (), {})
for _kind in KINDS.values():

    def _register(register: Register) -> None: ...

    _register.__name__, _register.__doc__ = f"register_{_kind.plural}", _kind.what
    setattr(HOOKS, _register.__name__, pluggy.HookspecMarker("rlzoo")(_register))
