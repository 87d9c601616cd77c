"""`rlzoo show --for TRAINER`: what the trainer supports and what not, and why; or the lines that
start a recipe in it."""

from collections.abc import Iterator
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.format.text import folded
from rlzoo_bridges.corrections import ABOUT, NOT_HERE, POINTS
from rlzoo_bridges.hosts import find_host


def show(trainer: str, words: list[str], zoo: Any) -> Result:
    """words: a recipe, or nothing. trainer `correction`: all trainers' words for corrections."""
    if trainer == "correction":
        return _corrections()
    host = find_host(trainer)
    return _recipe(host, words, zoo) if words else _table(host, zoo)


def _corrections() -> Result:
    points = [{k: v for k, v in point._asdict().items() if v} for point in POINTS]

    def view(_: Any) -> Iterator[str]:
        yield folded(ABOUT)
        for point in POINTS:
            yield f"\n{point.words}"
            yield folded(f"  {point.does}")
            theirs = zip(("verl", "TRL", "NeMo-RL", "SkyRL"), point[2:], strict=True)
            if named := "; ".join(f"{who}: {what}" for who, what in theirs if what):
                yield folded(f"  {named}")
        yield "\nnot here:"
        yield from (folded(f"  {text}") for text in NOT_HERE)
        yield "\n`rlzoo plugins tis`, `icepop` and `rejection` print formulas and options."

    return Result({"points": points, "not_here": [*NOT_HERE]}, view)


def _recipe(host: Any, words: list[str], zoo: Any) -> Result:
    from rlzoo_bridges.lines import lines

    found = lines(host.name, words, zoo)
    notes = [f"not transferred: {text}" for text in found.left]
    return Result(vars(found), lambda console: [found.text], notes=notes)


def _table(host: Any, zoo: Any) -> Result:
    kinds = ("estimators", "policy_losses")
    found = {
        kind: {name: host.refusal(c, zoo.columns) for name, c in zoo.shelves[kind].items()}
        for kind in kinds
    }

    def view(_: Any) -> Iterator[str]:
        out = [f"{host.title} {host.version} supports:"]
        for kind, components in found.items():
            names = [name for name, why in components.items() if not why]
            out.append(f"  {len(names)} {kind.replace('_', ' ')}: {', '.join(names) or 'none'}")
        asks = {c: how for c, how in host.asks.items() if c != "ref_log_probs"}
        out += ["", "with", *(f"  {column}: {how}" for column, how in asks.items())] if asks else []
        refused = [why for components in found.values() for why in components.values() if why]
        if not host.losses:
            refused = [why for why in refused if "its own policy loss" not in why]
            refused.append(f"policy losses: {host.title} uses its own")
        if not host.estimates:
            refused = [why for why in refused if "its own advantages" not in why]
            refused.append(f"estimators: {host.title} uses its own")
        for line in [*out, "", "and does not support:", *(f"  {why}" for why in refused)]:
            yield folded(line)

    return Result({"trainer": host.name, "version": host.version, **found}, view)
