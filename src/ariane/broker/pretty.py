"""Apache's pretty JSON for tables that are saved often: as `fastjson.dumps_pretty`, but quickly.

A table of thousands is written whole at each change, on the loop. So every entry is rendered once,
when it changes, and a save only joins texts. Texts are for their depth in the document: entries of
a map that is a member of the document stand two tabs in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ariane.protocol import fastjson


def document(**members: str) -> bytes:
    """The document of some members' texts."""
    lines = ",\n\t".join(f'"{name}":{text}' for name, text in sorted(members.items()))
    return f"{{\n\t{lines}\n}}".encode()


def member(value: msgspec.Struct | dict[str, dict[str, int]]) -> str:
    """The text of any value that is a document's member."""
    return _shifted(value, "\n\t")


def name_lists(lists: Mapping[str, Iterable[str]]) -> str:
    """The text of a map of lists of names."""
    return _block(
        [
            f"{quoted(key)}:[\n\t\t\t" + ",\n\t\t\t".join(map(quoted, names)) + "\n\t\t]"
            for key, names in sorted(lists.items())
        ]
    )


def number_maps(maps: Mapping[str, Mapping[int, int]]) -> str:
    """The text of a map of maps of numbers by number; empty ones are left out."""
    return _block(
        [
            f"{quoted(key)}:{{\n\t\t\t"
            + ",\n\t\t\t".join([f"{number}:{value}" for number, value in sorted(numbers.items())])
            + "\n\t\t}"
            for key, numbers in sorted(maps.items())
            if numbers
        ]
    )


def numbers(values: Mapping[int, int]) -> str:
    """The text of a map of numbers by number."""
    return _block([f"{number}:{value}" for number, value in sorted(values.items())])


def quoted(text: str) -> str:
    """Text as JSON."""
    return msgspec.json.encode(text).decode()


class Entries:
    """The texts of a map's entries, each made once for as long as the entry is the same object."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[msgspec.Struct, str]] = {}

    def text(self, entries: Mapping[str, msgspec.Struct]) -> str:
        """The text of the whole map."""
        before, self._made = self._made, {}
        for key, entry in sorted(entries.items()):
            made = before.get(key)
            if made is None or made[0] is not entry:
                made = (entry, quoted(key) + ":" + _shifted(entry, "\n\t\t"))
            self._made[key] = made
        return _block([text for _, text in self._made.values()])


def _shifted(value: msgspec.Struct | dict[str, dict[str, int]], line: str) -> str:
    return fastjson.dumps_pretty(value).decode().replace("\n", line)  # type: ignore[arg-type]


def _block(entries: list[str]) -> str:
    return "{\n\t\t" + ",\n\t\t".join(entries) + "\n\t}" if entries else "{}"
