"""What may be chosen for a consumer, and what the choices mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec

from ariane.client.batch_delivery import Batches
from ariane.client.consumer_options import ConsumerOptions
from ariane.client.dead_letters import DeadLetterHook, Reject
from ariane.client.delivery import Delivery, Handler, Tasks, is_async
from ariane.client.keywords import refuse_unknown
from ariane.client.process_queue import Limits
from ariane.client.rebalance import Strategy
from ariane.client.received import ReceivedMessage
from ariane.client.retrying import Retry
from ariane.client.session import Session
from ariane.client.starting import Start
from ariane.client.thread_delivery import Threads
from ariane.client.times import Duration, deprecated, seconds_of
from ariane.errors import InvalidArgument, ProtocolError

if TYPE_CHECKING:
    from ariane.client.borrowing import PopOptions


class Choices(TypedDict, total=False):
    """What may be chosen for any push consumer; `ConsumerOptions` says what it means."""

    orderly: bool
    broadcast: bool
    start: Start
    retry: Retry
    dead_letter: DeadLetterHook | None
    strategy: Strategy
    limits: Limits
    pull_count_max: int
    pull_interval: Duration
    timeout: Duration
    drain: Duration
    offsets_directory: Path | None


class PopChoices(TypedDict, total=False):
    """What may be chosen for a consumer of pops; `PopOptions` says what it means."""

    start: Start
    retry: Retry
    dead_letter: DeadLetterHook | None
    invisible: Duration
    timeout: Duration
    drain: Duration


class AllChoices(Choices, total=False):
    """What may be chosen for a decorated handler."""

    invisible: Duration


_OWN: Final = ("batch", "batch_wait", "concurrency", "group", "model", "pop", "sql", "tags")
KEYWORDS: Final = {*Choices.__annotations__, *_OWN}


def options_of(choices: Choices) -> ConsumerOptions:
    """The options that these choices mean."""
    given: dict[str, Any] = dict(choices)
    for name in ("timeout", "drain"):
        if f"{name}_s" in given:
            deprecated(f"{name}_s= is called {name}= now, seconds or a timedelta")
            given[name] = given.pop(f"{name}_s")
    refuse_unknown(given, KEYWORDS)
    for name in ("timeout", "drain", "pull_interval"):
        if name in given:
            given[f"{name}_s"] = seconds_of(given.pop(name))
    return ConsumerOptions(**given)


def pop_options_of(choices: PopChoices) -> PopOptions:
    """The options that these choices mean."""
    from ariane.client.borrowing import PopOptions  # noqa: PLC0415 - rarely needed

    given: dict[str, Any] = dict(choices)
    unknown = given.keys() - PopChoices.__annotations__.keys()
    if by_queue := sorted(unknown & Choices.__annotations__.keys()):
        raise InvalidArgument(f"{by_queue[0]}= is for consumers that read queues, not for pop")
    refuse_unknown(unknown, {*PopChoices.__annotations__, *_OWN})
    for name in ("invisible", "timeout", "drain"):
        if name in given:
            given[f"{name}_s"] = seconds_of(given.pop(name))
    return PopOptions(**given)


def delivery_of(
    handler: Callable[..., Any],
    session: Session,
    *,
    concurrency: int,
    batch: int | None = None,
    batch_wait: Duration = 0.0,
) -> Delivery:
    """The way to call this handler, up to `concurrency` times at once."""
    if concurrency < 1:
        raise InvalidArgument(f"concurrency={concurrency}: at least one message must be handled")
    if batch is not None:
        wait_s = seconds_of(batch_wait)
        return Batches(handler, session=session, count=concurrency, size_max=batch, wait_s=wait_s)
    if is_async(handler):
        return Tasks(handler, count=concurrency, clock=session.clock)
    return Threads(handler, count=concurrency, clock=session.clock)


def reading(handler: Callable[..., Any], model: type) -> Handler:
    """The handler of a body that is read first; one that cannot be read is not tried again."""
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(model)

    def read(message: ReceivedMessage) -> Any:
        try:
            return decoder.decode(message.body)
        except (msgspec.DecodeError, ProtocolError) as error:
            raise Reject(f"the body cannot be read as {model.__name__}: {error}") from error

    if is_async(handler):

        async def call(message: ReceivedMessage) -> None:
            await handler(read(message), message)

        return call
    return lambda message: handler(read(message), message)
