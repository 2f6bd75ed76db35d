"""The blocking twin of `Producer`.

A plain send goes out on the caller's own thread; everything else, and every second attempt, is the
asyncio producer's work on its loop.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Unpack, cast

from ariane.client import producer
from ariane.client.blocking import Blocking, blocking, on_loop
from ariane.client.courier import FAILURES
from ariane.client.direct import DirectLines
from ariane.client.messages import Body, Message, MessageFields, SendReceipt, message_of
from ariane.client.producer import choice_of
from ariane.client.queues import Selector
from ariane.client.times import Duration, seconds_of
from ariane.client.transactions import Transaction
from ariane.errors import ClientError
from ariane.protocol.bodies import MessageQueue


class BlockingTransaction(Blocking[Transaction]):
    """The `with` block around which a transaction's message is sent."""

    def __enter__(self) -> Transaction:
        return self._thread.run(self._twin.__aenter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.run(self._twin.__aexit__(kind, error, trace))


def _for_threads(submitted: asyncio.Future[SendReceipt], owner: Any) -> Future[SendReceipt]:
    """A future that threads can wait for, of one on the loop."""
    outcome: Future[SendReceipt] = Future()
    submitted.add_done_callback(lambda done: _pass_on(done, outcome))
    return outcome


class Producer(Blocking[producer.Producer]):
    """The blocking twin of `ariane.Producer`; any thread may use it."""

    def __init__(self, twin: producer.Producer, owner: Blocking[Any]) -> None:
        super().__init__(twin, owner)
        self._lines: DirectLines = owner._lines  # type: ignore[attr-defined]  # a client's
        self._monotonic_s = self._lines.clock.monotonic_s
        self.group = twin.group
        self.settings = twin.settings

    def send(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
        **fields: Unpack[MessageFields],
    ) -> SendReceipt:
        """Send and wait until a broker has it, as safe as that broker's settings make it.

        Takes a topic and a body, or a Message; the fields are those of `Message`. Queues take turns
        unless `queue`, `selector` or a sharding key chooses; then retries keep to the choice.
        """
        message = message_of(topic, body, fields)
        parcel = self._twin.parcel_alone(message)
        if parcel is None:
            return self._thread.run(
                self._twin.send(message, queue=queue, selector=selector, timeout=timeout)
            )
        self._thread.check()
        courier = self._twin.courier
        choice = choice_of(message, queue, selector)
        timeout_s = self.settings.timeout if timeout is None else seconds_of(timeout)
        asked_s = self._monotonic_s()
        target = courier.target_now(parcel, choice, asked_s)
        if target is None:
            target = self._thread.run(courier.target(parcel, choice))
        attempt_s = courier.attempt_s(parcel, choice, timeout_s)
        try:
            receipt = self._lines.send(target, parcel, attempt_s)
            courier.check_safe(parcel, choice, receipt)
        except FAILURES as error:
            again = courier.deliver_again(
                parcel, choice, asked_s + timeout_s, target, error, attempt_s=attempt_s
            )
            return cast(SendReceipt, self._thread.run(again))
        heard_s = self._monotonic_s()
        if courier.is_remarkable(asked_s, heard_s):  # the loop's to note: others read its notes
            self._thread.tell(courier.answered, target, asked_s, heard_s)
        return receipt

    start = blocking(producer.Producer.start)
    submit = blocking(producer.Producer.submit, then=_for_threads)
    send_one_way = blocking(producer.Producer.send_one_way)
    send_batch = blocking(producer.Producer.send_batch)
    transaction = on_loop(producer.Producer.transaction, then=BlockingTransaction)
    request = blocking(producer.Producer.request)
    reply = blocking(producer.Producer.reply)
    recall = blocking(producer.Producer.recall)
    queues = blocking(producer.Producer.queues)
    flush = blocking(producer.Producer.flush)


def _pass_on(done: asyncio.Future[SendReceipt], outcome: Future[SendReceipt]) -> None:
    """Let a thread that waits know how a send on the loop has ended."""
    if not outcome.set_running_or_notify_cancel():
        return
    if done.cancelled():
        outcome.set_exception(ClientError("the client was closed; it may have been stored"))
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())
