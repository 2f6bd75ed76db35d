"""How an application that blocks consumes: the twin of `consuming.py`."""

from __future__ import annotations

import contextlib
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Final, TypeVar, Unpack, cast

from ariane.client import client
from ariane.client.consuming import CONCURRENCY, SIGNALS, Choices
from ariane.client.delivery import Handler, is_async
from ariane.client.loop_thread import LoopThread
from ariane.client.process_queue import Limits
from ariane.client.rebalance import Strategy
from ariane.client.retrying import Retry
from ariane.client.starting import Start
from ariane.client.subscription import EVERYTHING
from ariane.client.sync_consumers import (
    LitePullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    Subscription,
)
from ariane.errors import ClientError

SIGNAL_CHECK_S: Final = 0.5

H = TypeVar("H", bound=Callable[..., Any])


class Consuming(ABC):
    """The part of a blocking client that consumes."""

    _client: client.Client
    _thread: LoopThread

    def push_consumer(
        self,
        group: str,
        handler: Callable[[ReceivedMessage], Any],
        *,
        concurrency: int = CONCURRENCY,
        **choices: Unpack[Choices],
    ) -> PushConsumer:
        """A member of the group; subscribe it to topics, then `start` it or use `with`.

        The handler runs on up to `concurrency` threads. A message is consumed when it returns and
        tried again later when it raises.
        """
        _check(handler)
        twin = self._twin_client().push_consumer(
            group, cast("Handler", handler), concurrency=concurrency, **choices
        )
        return PushConsumer(twin, self._thread)

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        tags: str = EVERYTHING,
        sql: str | None = None,
        model: type | None = None,
        concurrency: int = CONCURRENCY,
        **choices: Unpack[Choices],
    ) -> Callable[[H], H]:
        """Decorate a handler; `run` has it called for each message of the topics."""
        register: Callable[[H], H] = self._twin_client().consumer(
            topics,
            group=group,
            tags=tags,
            sql=sql,
            model=model,
            concurrency=concurrency,
            **choices,
        )

        def check(handler: H) -> H:
            _check(handler)
            return register(handler)

        return check

    def subscribe(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        tags: str = EVERYTHING,
        sql: str | None = None,
        concurrency: int | None = None,
        **choices: Unpack[Choices],
    ) -> Subscription:
        """Messages to loop over; at most `concurrency` of them unsettled at a time.

        for message in client.subscribe("orders", group="billing"):
            with message:
                ...
        """
        twin = self._twin_client().subscribe(
            topics, group=group, tags=tags, sql=sql, concurrency=concurrency, **choices
        )
        return Subscription(twin, self._thread)

    def lite_pull_consumer(
        self,
        group: str,
        *,
        auto_commit: bool = True,
        start: Start = Start.LAST,
        strategy: Strategy | None = None,
        limits: Limits | None = None,
    ) -> LitePullConsumer:
        """A member of the group that is polled; subscribe it, or start it and assign queues."""
        twin = self._twin_client().lite_pull_consumer(
            group, auto_commit=auto_commit, start=start, strategy=strategy, limits=limits
        )
        return LitePullConsumer(twin, self._thread)

    def simple_consumer(
        self,
        group: str,
        *,
        orderly: bool = False,
        start: Start = Start.LAST,
        retry: Retry | None = None,
    ) -> SimpleConsumer:
        """A member of the group that is lent messages; subscribe it, then `receive`."""
        twin = self._twin_client().simple_consumer(group, orderly=orderly, start=start, retry=retry)
        return SimpleConsumer(twin, self._thread)

    def start_consumers(self) -> None:
        """Have the decorated handlers called from now on."""
        self._thread.run(self._client.start_consumers())

    def run(self) -> None:
        """Have the decorated handlers called until SIGINT or SIGTERM; then close the client."""
        with _signalled() as stop:
            self.start_consumers()
            while not stop.wait(SIGNAL_CHECK_S):
                pass  # a signal that met another thread is only noticed when this one wakes
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End what is under way."""

    def _twin_client(self) -> client.Client:
        self._client.message_kind = ReceivedMessage
        return self._client


def _check(handler: Callable[..., object]) -> None:
    if is_async(handler):
        raise ClientError("this client's handlers block; an async one belongs to ariane.Client")


@contextlib.contextmanager
def _signalled() -> Iterator[threading.Event]:
    """An event that the first signal to end sets, where signals can be had."""
    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {}
    for number in SIGNALS:
        with contextlib.suppress(ValueError):  # outside the main thread
            before[number] = signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
