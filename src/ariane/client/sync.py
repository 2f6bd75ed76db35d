"""The same client for code that blocks: one event loop on a thread of its own does the work.

Every call here is its asyncio twin, run on that loop and waited for; nothing is implemented twice.
Any thread may use a client. In a forked child it opens again by itself.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from random import Random  # noqa: TID251 - the type; the instance is injected
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, Unpack, cast

from ariane.client import client
from ariane.client.blocking import Blocking, Forwarded, blocking, on_loop
from ariane.client.consuming import SIGNALS
from ariane.client.direct import DirectLines
from ariane.client.loop_thread import LoopThread
from ariane.client.producer import DEFAULT_GROUP
from ariane.client.received import ReceivedMessage as AsyncMessage
from ariane.client.session import Session
from ariane.client.settings import SendOptions
from ariane.client.sync_consumers import (
    LitePullConsumer,
    PopConsumer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    Subscription,
)
from ariane.client.sync_producer import BlockingTransaction, Producer
from ariane.client.transactions import Decision
from ariane.clock import Clock
from ariane.protocol.message import StoredMessage

__all__ = [
    "BlockingTransaction",
    "Client",
    "LitePullConsumer",
    "LoopThread",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "SimpleConsumer",
    "Subscription",
]

if TYPE_CHECKING:
    from ariane.client.middleware import Middleware
    from ariane.client.sync_admin import Admin

SIGNAL_CHECK_S: Final = 0.5

BlockingChecker = Callable[[StoredMessage], Decision]
C = TypeVar("C", bound=BlockingChecker)


class Client(Blocking[client.Client]):
    """The blocking twin of `ariane.Client`.

    with Client("127.0.0.1:9876") as client:
        client.send("orders", b"...", tags="paid", keys="42")
    """

    def __init__(
        self,
        name_servers: str,
        *,
        group: str = DEFAULT_GROUP,
        topics: Sequence[str] = (),
        middleware: Sequence[Middleware] = (),
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Unpack[SendOptions],
    ) -> None:
        self._twin = client.Client(
            name_servers,
            group=group,
            topics=topics,
            middleware=middleware,
            clock=clock,
            random=random,
            **options,
        )
        self._twin.message_kind = cast("type[AsyncMessage]", ReceivedMessage)
        self._twin.may_handlers_await = False
        self._thread = self._twin.session.thread = LoopThread()
        self._lines = DirectLines(self._twin.session.clock)
        # Before it opens: nobody need hear of it yet.
        self._producer = Producer(self._twin.producer(group), self)
        try:
            self._thread.run(self._twin.open())
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what is under way, take leave of the brokers, and end the loop and its thread.

        May be called again.
        """
        try:
            if self._thread.is_running:
                self._thread.run(self._twin.close())
        finally:
            self._thread.stop()
            self._lines.close()

    @property
    def session(self) -> Session:
        """The connections it shares with all that is made from it; they belong to its thread."""
        return self._twin.session

    # Sending. Each is the method of `Producer`, for this client's own group.

    send = Forwarded(Producer.send)
    submit = Forwarded(Producer.submit)
    send_one_way = Forwarded(Producer.send_one_way)
    send_batch = Forwarded(Producer.send_batch)
    request = Forwarded(Producer.request)
    reply = Forwarded(Producer.reply)
    recall = Forwarded(Producer.recall)
    transaction = on_loop(client.Client.transaction, then=BlockingTransaction)
    producer = on_loop(client.Client.producer, then=Producer)

    def checker(self, group: str) -> Callable[[C], C]:
        """Let the function below answer what became of the group's transactions.

        It runs on a thread of its own, is given the message and returns True to commit, False to
        roll back, None when it cannot tell yet.
        """

        def register(checker: C) -> C:
            return self._thread.call(lambda: self._twin.checker(group)(checker))

        return register

    checked_elsewhere = on_loop(client.Client.checked_elsewhere)

    # Reading.

    @cached_property
    def admin(self) -> Admin:
        """Administration of the cluster: topics, groups, messages, dead letters."""
        from ariane.client.sync_admin import Admin  # noqa: PLC0415 - imported when asked for

        return Admin(self._twin.admin, self)

    pull_consumer = on_loop(client.Client.pull_consumer, then=PullConsumer)

    # Consuming.

    push_consumer = on_loop(client.Client.push_consumer, then=PushConsumer)
    pop_consumer = on_loop(client.Client.pop_consumer, then=PopConsumer)
    consumer = on_loop(client.Client.consumer)
    subscribe = on_loop(client.Client.subscribe, then=Subscription)
    lite_pull_consumer = on_loop(client.Client.lite_pull_consumer, then=LitePullConsumer)
    simple_consumer = on_loop(client.Client.simple_consumer, then=SimpleConsumer)
    start_consumers = blocking(client.Client.start_consumers)

    def run(self) -> None:
        """Have the decorated handlers called until SIGINT or SIGTERM; then close the client."""
        with _signalled() as stop:
            self.start_consumers()
            while not stop.wait(SIGNAL_CHECK_S):
                pass  # a signal that met another thread is only noticed when this one wakes
        self.close()


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
