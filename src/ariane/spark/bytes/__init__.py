"""The three ways from a range of queue offsets to Arrow batches.

`read_batches` is imported when it is asked for: a driver that only plans needs no Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ariane.spark.bytes.choose import read_batches

__all__ = ["read_batches"]


def __getattr__(name: str) -> Any:
    if name == "read_batches":
        from ariane.spark.bytes.choose import read_batches  # noqa: PLC0415 - see above

        return read_batches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
