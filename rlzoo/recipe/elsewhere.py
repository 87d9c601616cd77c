"""rlzoo's key or component for a word of other trainers.

Their names of keys come from entry points of the group `rlzoo.words`: KEY or KEY=VALUE here ->
words in lower case with underscores. Those of a component are after `Elsewhere:` in its docstring.
"""

from rlzoo.plugin.component import plain
from rlzoo.plugin.installed import installed
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.keys import SECTIONS


def meant(text: str, zoo: Zoo | None = None) -> str:
    """rlzoo's KEY or KEY=VALUE for a word, or a path of words, of elsewhere; empty if not known.
    zoo: its components count as well."""
    tables = [point.load() for point in installed("rlzoo.words")]
    known = {word: key for table in tables for key, words in table.items() for word in words}
    for section, kind in SECTIONS.items():
        for name, component in zoo.shelves[kind].items() if zoo else ():
            known |= dict.fromkeys(component.elsewhere, f"{section}={name}")
    word = plain(text)
    paths = [word.split(".", i)[-1] for i in range(word.count(".") + 1)]
    paths += word.split(".")[-2:-1]  # filter_groups.enable
    return next((known[path] for path in paths if path in known), "")
