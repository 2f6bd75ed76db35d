"""What a message can be read as, wherever it comes from.

A message that was looked up, pulled or polled is only read; one that was received by a member of a
group is settled besides (`client/received.py`). Whoever takes any of them asks for a `Readable`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from ariane.errors import UnreadableBody

T = TypeVar("T")


class Readable:
    """One message that was sent: its body in three ways, and its times.

    All have `topic`, `body`, `tags`, `keys`, `sharding_key`, `properties`, `message_id`,
    `offset_message_id`, `queue_id`, `queue_offset`, `born_at_ms`, `stored_at_ms` and
    `reconsume_times`, how often it was tried before.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # what every kind of message has, each in its own way

        @property
        def topic(self) -> str:
            """The topic it was sent to."""
            ...

        @property
        def body(self) -> bytes:
            """The body as its producer had it."""
            ...

        @property
        def tags(self) -> str | None:
            """The tag it was sent with."""
            ...

        @property
        def keys(self) -> list[str]:
            """The keys it is found by."""
            ...

        @property
        def sharding_key(self) -> str | None:
            """What its order was kept by."""
            ...

        @property
        def properties(self) -> dict[str, str]:
            """All properties, RocketMQ's own among them."""
            ...

        @property
        def message_id(self) -> str:
            """The id the producer gave it, or else the offset id."""
            ...

        @property
        def offset_message_id(self) -> str:
            """The id that says where the record is."""
            ...

        @property
        def queue_id(self) -> int:
            """The number of its queue."""
            ...

        @property
        def queue_offset(self) -> int:
            """Its place in the queue."""
            ...

        @property
        def born_at_ms(self) -> int:
            """When it was sent, in milliseconds."""
            ...

        @property
        def stored_at_ms(self) -> int:
            """When its broker stored it, in milliseconds."""
            ...

        @property
        def reconsume_times(self) -> int:
            """How often it was tried before."""
            ...

    @property
    def text(self) -> str:
        """The body as UTF-8; raises UnreadableBody when it is not."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise self._unreadable("text", error) from error

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, kind: type[T]) -> T: ...

    def json(self, kind: Any = Any) -> Any:
        """The body, read as JSON of a type that msgspec knows; raises UnreadableBody if it is not.

        Types are dataclasses, `msgspec.Struct`, `TypedDict` and what they are made of.
        """
        try:
            return _decoder_of(kind).decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._unreadable("JSON", error) from error

    @property
    def born_at(self) -> datetime:
        """When it was sent, by its producer's clock."""
        return datetime.fromtimestamp(self.born_at_ms / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        """When its broker stored it."""
        return datetime.fromtimestamp(self.stored_at_ms / 1000, UTC)

    def _unreadable(self, what: str, error: Exception) -> UnreadableBody:
        unreadable = UnreadableBody(
            f"the body of message {self.message_id} of topic {self.topic!r} is not the {what}"
            f" that was asked for: {error}"
        )
        unreadable.about = self
        return unreadable


@lru_cache(maxsize=256)
def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
