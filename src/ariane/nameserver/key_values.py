"""The key-value table: namespaces of text, kept in one file that is written whole at each change.

A change is on disk before it is seen, so what was acknowledged is never taken back.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ariane.disk import Disk
from ariane.errors import CorruptFile, RequestRejected

ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"  # topic -> "broker-a:4;broker-b:4"
FILE_BYTES_MAX: Final = 1 << 20  # written whole at each change

Namespaces = dict[str, dict[str, str]]


class _File(msgspec.Struct):
    namespaces: Namespaces = msgspec.field(name="configTable", default_factory=dict)


class KeyValues:
    """Text by namespace and key."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._namespaces = _loaded(disk, path)

    def get(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All keys and values of a namespace, or None when there never was one."""
        return self._namespaces.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value and keep it; raise OSError or StoreError when it cannot be kept.

        Anybody may put one, so there is a bound to them all: RequestRejected beyond it.
        """
        values = self._namespaces.get(namespace, {})
        namespaces = self._namespaces | {namespace: values | {key: value}}
        if len(_encoded(namespaces)) > FILE_BYTES_MAX:
            raise RequestRejected(
                f"key-value settings may have {FILE_BYTES_MAX:,} bytes in all; delete some first"
            )
        self._keep(namespaces)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a value for good; raise OSError or StoreError when that cannot be kept."""
        values = self._namespaces.get(namespace, {})
        if key in values:
            rest = {name: value for name, value in values.items() if name != key}
            self._keep(self._namespaces | {namespace: rest})

    def _keep(self, namespaces: Namespaces) -> None:
        self._disk.make_directory(self._path.rpartition("/")[0])
        self._disk.write_atomic(self._path, _encoded(namespaces))
        self._namespaces = namespaces


def _encoded(namespaces: Namespaces) -> bytes:
    return msgspec.json.encode(_File(namespaces))


def _loaded(disk: Disk, path: str) -> Namespaces:
    """Read the file, or its backup when it is missing or torn."""
    faults = []
    for candidate in (path, path + ".bak"):
        if not disk.exists(candidate):
            continue
        try:
            return msgspec.json.decode(disk.read(candidate), type=_File).namespaces
        except msgspec.DecodeError as error:
            faults.append(f"{candidate}: {error}")
    if faults:
        raise CorruptFile(
            "the key-value file cannot be read and has no usable backup; mend or remove it: "
            + "; ".join(faults)
        )
    return {}
