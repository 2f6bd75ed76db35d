"""Getting parcels to brokers: choose a queue, try, and try another when that fails.

A send that times out or loses its connection may have been carried out, so a retry can store the
message twice; its id is the same both times. Where another broker could take it, an attempt has but
a part of the send's time: one that has stopped costs an attempt, not the send.

`deliver` is the whole way. `begin` is a shortcut for the many sends that want nothing special of a
topic that was sent to before, while all is well: the kernel makes the first attempt, and `go_on`
takes over if it does not succeed. Whatever changes closes the shortcut until `deliver` has gone the
whole way again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from ariane.client.faults import SLOW_S, FaultTable, choose
from ariane.client.hot_sends import HotSends, Target, Waiting
from ariane.client.messages import SendReceipt
from ariane.client.outlets import Outlet
from ariane.client.parcels import Kind, Parcel
from ariane.client.queues import Selector
from ariane.client.receipts import receipts_of
from ariane.client.room import Room
from ariane.client.send_retries import NotSafe, Retries, Unreached, may_be_the_brokers
from ariane.client.session import Session
from ariane.client.settings import SendSettings
from ariane.errors import ClientError, ConnectionLost, RequestFailed, RequestTimeout
from ariane.protocol.bodies import MessageQueue
from ariane.protocol.command import Command

UNANSWERED_BYTES_MAX: Final = 32 << 20  # beyond so much, further sends wait for room
HOT_BYTES_END: Final = 16 << 10  # longer bodies, or beyond so many unanswered sends to a broker,
HOT_PENDING_MAX: Final = 1_024  # and the whole way is gone, with its bound on bytes

OUTLETS_MAX: Final = 20_000  # that a producer remembers, of topics and ways to send to them

Choice = MessageQueue | Selector | None  # a queue, a rule that picks one, or by turns
FAILURES: Final = (ConnectionLost, RequestTimeout, RequestFailed, NotSafe)
Failure = ConnectionLost | RequestTimeout | RequestFailed | NotSafe
Outcome = SendReceipt | Command | ConnectionLost | RequestTimeout  # of one attempt


class Courier:
    """The sends of one producer group."""

    def __init__(self, session: Session, group: str, settings: SendSettings) -> None:
        self._session = session
        self._group = group
        self._settings = settings
        self._clock = session.clock
        self._faults = FaultTable()
        self._turn = session.random.randrange(1 << 16)
        self._outlets: dict[tuple[str, Kind], Outlet] = {}
        self._room = Room(UNANSWERED_BYTES_MAX)
        self._hot = HotSends(
            wall_ms=session.clock.wall_ms,
            monotonic_s=session.clock.monotonic_s,
            body_bytes_end=min(
                HOT_BYTES_END,
                settings.message_bytes_max + 1,
                HOT_BYTES_END if settings.compression is None else settings.compress_from_bytes,
            ),
            pending_max=HOT_PENDING_MAX,
        )
        self.begin = self._hot.send
        session.on_change.append(self._hot.forget)

    async def deliver(
        self, parcel: Parcel, choice: Choice, timeout_s: float
    ) -> SendReceipt | list[SendReceipt]:
        """Have a broker store the parcel: one receipt, or a list of them for a batch."""
        now_s = self._clock.monotonic_s()
        deadline_s = now_s + timeout_s
        room = self._room
        if room.used >= UNANSWERED_BYTES_MAX:
            now_s = await self._wait_for_room(timeout_s)
        size = len(parcel.body)
        room.used += size
        self._session.delivering += 1
        try:
            target = self.target_now(parcel, choice, now_s)
            if target is None:
                target = await self.target(parcel, choice)
                now_s = self._clock.monotonic_s()
                if now_s >= deadline_s:  # sent now, it would be given up before any answer
                    raise RequestTimeout(
                        f"finding out where {parcel.topic!r} is took all of {timeout_s:g} s;"
                        " nothing was sent"
                    )
            attempt_s = self.attempt_s(parcel, choice, timeout_s)
            try:
                attempt_end_s = min(deadline_s, now_s + attempt_s)
                outcome = await self._attempt(target, parcel, attempt_end_s, now_s)
                self.check_safe(parcel, choice, outcome)
            except FAILURES as error:
                again = self.deliver_again(
                    parcel, choice, deadline_s, target, error, attempt_s=attempt_s
                )
                return await again
            if choice is None and parcel.kind is Kind.PLAIN:
                self._learn(parcel.topic, now_s)
            return outcome
        finally:
            self._session.delivering -= 1
            room.give(size)

    async def go_on(
        self,
        parcel: Parcel,
        waiting: Waiting,
        outcome: Outcome,
        timeout_s: float,
    ) -> SendReceipt:
        """What comes of a send that `begin` began and that did not end plainly."""
        try:
            if isinstance(outcome, ConnectionLost | RequestTimeout):
                raise outcome
            if isinstance(outcome, Command):
                outcome = cast(
                    SendReceipt, receipts_of(outcome, waiting.target, parcel.message_ids)
                )
                self.check_safe(parcel, None, outcome)
        except FAILURES as error:
            deadline_s = waiting.asked_s + timeout_s
            attempt_s = self.attempt_s(parcel, None, timeout_s)
            again = self.deliver_again(
                parcel, None, deadline_s, waiting.target, error, attempt_s=attempt_s
            )
            return cast(SendReceipt, await again)
        self.answered(waiting.target, waiting.asked_s, waiting.asked_s + waiting.latency_s)
        return outcome

    def _learn(self, topic: str, now_s: float) -> None:
        """Let plain sends to the topic take the shortcut, while all its brokers are well."""
        outlet = self._outlets.get((topic, Kind.PLAIN))
        self._faults.forgive(now_s=now_s)
        if (
            outlet is None
            or self._faults
            or self._hot.knows(topic)
            or outlet.route is not self._session.routes.known(topic)
        ):
            return
        lanes = [self._session.lanes.get(target.address) for target in outlet.targets]
        self._turn += 1
        self._hot.learn(
            topic,
            outlet.targets,
            lanes,
            self._session.unique_keys.maker,
            self._turn,
            parts=self._settings.retries + 1 if outlet.has_others else 1,
            attempt_s=self._settings.attempt_timeout or 0.0,
        )

    async def deliver_again(
        self,
        parcel: Parcel,
        choice: Choice,
        deadline_s: float,
        target: Target,
        error: Failure,
        *,
        attempt_s: float,
    ) -> SendReceipt | list[SendReceipt]:
        """Go on after a first attempt that failed."""
        retries = Retries(self._settings.retries, is_half=parcel.is_half)
        tried: list[str] = []
        late: SendReceipt | list[SendReceipt] | None = None  # what a broker has, if not safely
        while True:
            now_s = self._clock.monotonic_s()
            tried.append(target.broker_name)
            wait_s = retries.wait_s_after(error, self._session.random)
            if isinstance(error, NotSafe):
                late = error.outcome
            elif may_be_the_brokers(error):
                self._faults.failed(target.broker_name, now_s=now_s)
                self._hot.forget()
            if wait_s is None or now_s + wait_s >= deadline_s:
                return _last(late, error, parcel.topic, tried)
            self._session.refresh_route(parcel.topic)
            if wait_s:
                await self._session.sleep(wait_s)
            target = await self.target(parcel, choice, last_broker=tried[-1])
            now_s = self._clock.monotonic_s()
            if now_s >= deadline_s:  # looking for another took all the time that was left
                return _last(late, error, parcel.topic, tried)
            attempt_end_s = deadline_s if retries.is_last else min(deadline_s, now_s + attempt_s)
            try:
                outcome = await self._attempt(target, parcel, attempt_end_s, now_s)
                self.check_safe(parcel, choice, outcome)
                return outcome
            except FAILURES as failure:
                error = failure

    def attempt_s(self, parcel: Parcel, choice: Choice, timeout_s: float) -> float:
        """How long the first attempt, and each but the last, may take."""
        settings = self._settings
        if parcel.is_half:
            return timeout_s  # it is not sent again when no answer came
        if settings.attempt_timeout is not None:
            return min(timeout_s, settings.attempt_timeout)
        return timeout_s / (settings.retries + 1) if self._has_others(parcel, choice) else timeout_s

    def check_safe(
        self, parcel: Parcel, choice: Choice, outcome: SendReceipt | list[SendReceipt]
    ) -> None:
        """Raise NotSafe if another broker is to be asked although this one has stored it."""
        if not self._settings.retry_another_broker_when_not_stored or parcel.is_half:
            return
        receipt = outcome[0] if isinstance(outcome, list) else outcome
        if not receipt.is_safe and self._has_others(parcel, choice):
            raise NotSafe(outcome)

    def _has_others(self, parcel: Parcel, choice: Choice) -> bool:
        """Whether another broker could take it."""
        outlet = self._outlets.get((parcel.topic, parcel.kind))
        return choice is None and outlet is not None and outlet.has_others

    def is_remarkable(self, asked_s: float, heard_s: float) -> bool:
        """Whether an answer is to be noted by `answered`; any thread may ask."""
        return heard_s - asked_s >= SLOW_S or bool(self._faults)

    def answered(self, target: Target, asked_s: float, heard_s: float) -> None:
        """A broker has answered a send; note whether it took its time."""
        if self.is_remarkable(asked_s, heard_s):
            self._faults.answered(target.broker_name, heard_s - asked_s, now_s=heard_s)
            self._hot.forget()

    def target_now(self, parcel: Parcel, choice: Choice, now_s: float) -> Target | None:
        """Where the parcel goes, if the topic's queues are known; takes no time."""
        outlet = self._outlets.get((parcel.topic, parcel.kind))
        if outlet is None or outlet.route is not self._session.routes.known(parcel.topic):
            return None
        return self._choose(outlet, choice, now_s)

    async def target(
        self, parcel: Parcel, choice: Choice, *, last_broker: str | None = None
    ) -> Target:
        """Where the parcel goes, preferably not to the broker that just failed."""
        self._session.add_producer(self._group)
        route = await self._session.routes.for_writing(parcel.topic)
        outlet = self._outlets.get((parcel.topic, parcel.kind))
        if outlet is None or outlet.route is not route:
            outlet = Outlet(route, self._group, parcel.kind)
            self._outlets[parcel.topic, parcel.kind] = outlet
            if len(self._outlets) > OUTLETS_MAX:  # made again when needed
                del self._outlets[next(iter(self._outlets))]
        return self._choose(outlet, choice, self._clock.monotonic_s(), last_broker=last_broker)

    async def queue_for(self, topic: str, selector: Selector) -> MessageQueue:
        """The queue that a rule picks of the topic's."""
        return selector((await self._session.routes.for_writing(topic)).writable)

    async def post(self, parcel: Parcel, choice: Choice, timeout_s: float) -> None:
        """Send the parcel once and hear nothing of it."""
        target = await self.target(parcel, choice)
        lane = await self._session.lane(target.address, timeout_s)
        lane.post(
            target,
            parcel.properties,
            parcel.body,
            parcel.system_flag,
            parcel.flag,
            parcel.born_ms,
        )

    async def _attempt(
        self, target: Target, parcel: Parcel, deadline_s: float, now_s: float
    ) -> SendReceipt | list[SendReceipt]:
        lane = self._session.lanes.get(target.address)
        if lane is None or self._session.loop is not asyncio.get_running_loop():
            try:
                lane = await self._session.lane(target.address, deadline_s - now_s)
            except ConnectionLost as error:
                raise Unreached(str(error)) from error
        outcome: SendReceipt | list[SendReceipt] | Command = await lane.send(
            target,
            parcel.message_ids,
            parcel.properties,
            parcel.body,
            parcel.system_flag,
            parcel.flag,
            parcel.born_ms,
            deadline_s,
        )
        if isinstance(outcome, Command):
            outcome = receipts_of(outcome, target, parcel.message_ids)
        self.answered(target, now_s, lane.heard_s)
        return outcome

    async def _wait_for_room(self, timeout_s: float) -> float:
        """Wait until enough has been answered; the time it is then."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._room.wait()
        except TimeoutError as error:
            raise RequestTimeout(
                f"no room within {timeout_s:g} s: {UNANSWERED_BYTES_MAX >> 20} MiB of earlier sends"
                " wait for their answers; nothing was sent"
            ) from error
        return self._clock.monotonic_s()

    def _choose(
        self, outlet: Outlet, choice: Choice, now_s: float, *, last_broker: str | None = None
    ) -> Target:
        if choice is not None:
            queue = choice if isinstance(choice, MessageQueue) else choice(outlet.route.writable)
            return outlet.target_of(queue)
        self._turn += 1
        targets = outlet.targets
        if last_broker is None and not self._faults:
            return targets[self._turn % len(targets)]
        place = choose(
            outlet.brokers, self._turn, self._faults, now_s=now_s, last_broker=last_broker
        )
        return targets[place]


_LATE: Final = "it may have been stored, and sending it again may store it twice"
_LOST: Final = "is the broker running and reachable from here?"


def _last(
    late: SendReceipt | list[SendReceipt] | None,
    error: Failure,
    topic: str,
    tried: Sequence[str],
) -> SendReceipt | list[SendReceipt]:
    """What a send has come to: stored after all, or the error that ended it."""
    if late is not None:
        return late
    raise _explained(error, topic, tried) from error


def _explained(error: Failure, topic: str, tried: Sequence[str]) -> ClientError:
    """The same error, telling what was tried and what to do."""
    count = f"{len(tried)} attempts" if len(tried) > 1 else "one attempt"
    brokers = ", ".join(dict.fromkeys(tried))
    what = f"sending to {topic!r} failed after {count} ({brokers}): "
    if isinstance(error, RequestFailed):
        return RequestFailed.of(error.code, what + error.remark)
    if isinstance(error, RequestTimeout):
        return RequestTimeout(f"{what}{error}; {_LATE}")
    return ConnectionLost(f"{what}{error}; {_LOST}")
