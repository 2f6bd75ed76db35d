"""Rows are staged in chunks, a plan says which make a batch, and that is published once.

What is staged takes no memory: a chunk is found again by its offset. What is decided, and how far
it has come, is in the journal before it is acted upon, and the ledger is what the journal adds up
to. Everything that takes long is done in steps between which other clients have their turn.

The ledger is saved now and then, once the log it rests on is on the platter, so that a start need
not read the whole journal and queries outlive retention.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from ariane.broker.parked import Parked
from ariane.broker.persistence import SavedFile, Saver, load
from ariane.broker.pop.flushed import Flushed
from ariane.broker.requests import Reply, Request, attempt
from ariane.broker.staging import snapshot
from ariane.broker.staging.journal import Journal
from ariane.broker.staging.ledger import Ledger, Publication, Query
from ariane.broker.staging.notes import Decided, Discarded, Enlisted, Published
from ariane.broker.staging.publishing import Publisher, check_plan
from ariane.broker.state import BrokerState
from ariane.clock import Timer, Timers
from ariane.codes import ResponseCode
from ariane.disk import Disk
from ariane.errors import RequestRejected, StoreError
from ariane.protocol.bodies.staging import BatchPlan, BatchState
from ariane.protocol.headers.staging import BatchHeader, BatchReply, PublishHeader
from ariane.store.watermarks import Mark

LOGGER: Final = logging.getLogger("ariane.broker")

SLICE_S: Final = 0.003  # how long a turn holds the loop
RETRY_S: Final = 10.0  # after which a publication that could not go on is tried again
TIDY_S: Final = 60.0
QUERIES_MAX: Final = 10_000
WAITING_MAX: Final = 64  # for one publication

PublishRequest = Request[PublishHeader]


class Staging:
    """Everything about batches that outlives a request."""

    def __init__(self, state: BrokerState, saver: Saver) -> None:
        self._state = state
        self.ledger = Ledger(state.config.name)
        self.journal = Journal(state.store, state.clock, state.store_host, self.ledger)
        self._publisher = Publisher(state, self.journal)
        self._file = SavedFile(snapshot.PATH, self._encode, saver)
        self._flushed = Flushed(state.store)
        self._file.barrier = self._flushed.run
        self.parked = Parked(  # what is published is safe from a power cut however it was sent
            state.store,
            state.timers,
            lambda: state.store_config.sync_flush_timeout_ms / 1000,
            marks=(Mark.FLUSHED,),
        )
        self._jobs: deque[Iterator[None]] = deque()
        self._turn_timer: Timer | None = None
        self._under_way: set[int] = set()  # decisions whose publication is among the jobs
        self._waiting: defaultdict[int, list[PublishRequest]] = defaultdict(list)  # by decision
        self._wanted_flush = 0
        self._is_stopped = False
        state.store.on_advance.append(self._flush_more)

    # What a broker does with it.

    def load(self, disk: Disk) -> None:
        """Take over what a stop or a kill left."""
        saved = load(disk, snapshot.PATH, snapshot.Snapshot) or snapshot.Snapshot()
        snapshot.restore(saved, self.ledger)
        count = self.journal.read(saved.journal_offset)
        for publication in self.ledger.give_up_unread():
            LOGGER.error(
                "batch cut short: its plan left with the log query=%s batch=%d",
                publication.query,
                publication.batch,
            )
        for publication in self.ledger:
            self._publisher.recover(publication)
        if count:
            self._file.mark()
            LOGGER.info("batches recovered notes=%d queries=%d", count, len(self.ledger.queries))

    def start(self, timers: Timers) -> list[Timer]:
        """Go on publishing what was decided, until the timers are cancelled."""
        self.resume()
        return [timers.every(RETRY_S, self.resume), timers.every(TIDY_S, self.tidy)]

    def stop(self) -> None:
        """Publish no more; a start goes on."""
        self._is_stopped = True
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        self._jobs.clear()
        self._under_way.clear()

    def save(self) -> None:
        """Write what has changed."""
        self._file.save()

    def save_now(self) -> None:
        """The last save before a stop; the log is on the platter by then, or never will be."""
        self._state.store.flush_now()
        if self._state.store.read_only_reason is None:
            self._file.save_now()

    def resume(self) -> None:
        """Try again whatever could not go on."""
        if self._state.store.refusal is None:
            for publication in self.ledger:
                self._go_on(publication)

    def tidy(self) -> None:
        """Forget queries that nobody needs any more."""
        if self.ledger.forget_unused(self._state.clock.wall_ms()):
            self._file.mark()

    # What handlers do with it.

    def admit(self, query: str) -> None:
        """Refuse a query when too many are remembered."""
        if query not in self.ledger.queries and len(self.ledger.queries) >= QUERIES_MAX:
            raise RequestRejected(
                f"{QUERIES_MAX} queries are remembered already; old ones are forgotten in time",
                ResponseCode.FLOW_CONTROL,
            )

    def enlist(self, header: BatchHeader, brokers: list[str]) -> Reply:
        """Remember which brokers a query uses, and tell what became of a batch."""
        known = self.ledger.queries.get(header.query_id)
        if known is None and not brokers:
            return Reply.of(BatchReply(state=BatchState.UNKNOWN))
        after = None
        has_grown = known is None or not known.brokers.issuperset(brokers)
        if has_grown:
            self.admit(header.query_id)
            placed = self.journal.write(Enlisted(header.query_id, brokers, header.keep_hours))
            self._file.mark()
            after = placed.end_offset
            self._flush_up_to(after)
        return self._reply(header.query_id, header.batch_id, after=after, has_grown=has_grown)

    def discard(self, header: BatchHeader) -> Reply:
        """See to it that a batch is never published; or RequestRejected if it is too late."""
        state = self.ledger.state_of(header.query_id, header.batch_id)
        known = self.ledger.queries.get(header.query_id)
        if known is not None and known.publication is not None:
            state = BatchState.DECIDED  # whichever of the query's it is
        if state not in (BatchState.UNKNOWN, BatchState.DISCARDED):
            raise RequestRejected(
                f"batch {header.batch_id} of {header.query_id} cannot be discarded: it is {state}",
                ResponseCode.ILLEGAL_OPERATION,
            )
        after = None
        if state is BatchState.UNKNOWN:
            self.admit(header.query_id)
            note = Discarded(header.query_id, header.batch_id, header.keep_hours)
            after = self.journal.write(note).end_offset
            self._file.mark()
            self._flush_up_to(after)
        return self._reply(header.query_id, header.batch_id, after=after)

    def publish(self, request: PublishRequest, plan: BatchPlan) -> None:
        """Publish a batch by this plan, or by the one decided before; answers when it is safe."""
        self.admit(request.header.query_id)
        refusal = self._state.store.refusal
        if refusal is not None:
            raise refusal
        begin = partial(self._add_job, self._decide(request, plan))
        if self._state.store.visible < self._state.store.written:
            self._flushed.run(begin)  # chunks may not be where they can be read
        else:
            begin()

    def _decide(self, request: PublishRequest, plan: BatchPlan) -> Iterator[None]:
        """Settle which plan counts, and then wait for it with whoever waits already."""
        query, batch = request.header.query_id, request.header.batch_id
        try:
            if self._state_to_publish(query, batch) is BatchState.UNKNOWN:
                own = plan.brokers.get(self._state.config.name, [])
                yield from check_plan(self._state, own, query, batch)
            state = self._state_to_publish(query, batch)  # others had their turn meanwhile
            if state is BatchState.UNKNOWN:
                self.journal.write(Decided(query, batch, plan, request.header.keep_hours))
                self._file.mark()
            elif state is BatchState.PUBLISHED:
                self._answer(request, self._reply(query, batch))
                return
            publication = self.ledger.queries[query].publication
            assert publication is not None
            waiting = self._waiting[publication.decision]
            if len(waiting) >= WAITING_MAX:
                raise RequestRejected(
                    f"{WAITING_MAX} requests wait for batch {batch} of {query} already",
                    ResponseCode.SYSTEM_BUSY,
                )
            waiting.append(request)
            self._go_on(publication)
        except (RequestRejected, StoreError) as error:
            request.answer(_refusal(error))

    def _state_to_publish(self, query: str, batch: int) -> BatchState:
        """What became of a batch that is to be published; RequestRejected when it cannot be."""
        state = self.ledger.state_of(query, batch)
        known = self.ledger.queries.get(query)
        under_way = None if known is None else known.publication
        if under_way is not None and batch > under_way.batch:
            raise RequestRejected(
                f"batch {under_way.batch} of {query} is still being published; batch {batch} comes"
                " after it",
                ResponseCode.ILLEGAL_OPERATION,
            )
        if state in (BatchState.DISCARDED, BatchState.CUT_SHORT):
            why = (
                "it was discarded"
                if state is BatchState.DISCARDED
                else "it was published in part, and the rest left the log with its retention"
            )
            raise RequestRejected(
                f"batch {batch} of {query} cannot be published: {why}",
                ResponseCode.ILLEGAL_OPERATION,
            )
        return state

    def _go_on(self, publication: Publication) -> None:
        if publication.decision not in self._under_way:
            self._under_way.add(publication.decision)
            self._add_job(self._carry_out(publication))

    def _carry_out(self, publication: Publication) -> Iterator[None]:
        """Publish all that is left, note that it is done, and tell who waits."""
        decision = publication.decision
        try:
            yield from self._publisher.steps(publication)
            placed = self.journal.write(Published(decision))
        except (RequestRejected, StoreError) as error:
            LOGGER.warning(
                "batch not published yet query=%s batch=%d chunk=%d row=%d reason=%s",
                publication.query,
                publication.batch,
                publication.chunk,
                publication.row,
                error,
            )
            for request in self._waiting.pop(decision, ()):
                request.answer(_refusal(error))
            return
        finally:
            self._under_way.discard(decision)
        self._file.mark()
        reply = self._reply(publication.query, publication.batch, after=placed.end_offset)
        for request in self._waiting.pop(decision, ()):
            self._answer(request, reply)

    def _add_job(self, job: Iterator[None]) -> None:
        if self._is_stopped:
            return  # whoever asked will ask again
        self._jobs.append(job)
        if self._turn_timer is None:
            self._turn_timer = self._state.timers.after(0.0, self.turn)

    def turn(self) -> None:
        """Do a step of each job in turn, for a few milliseconds; then others have theirs."""
        self._turn_timer = None
        clock = self._state.clock
        until_s = clock.monotonic_s() + SLICE_S
        while self._jobs:
            job = self._jobs.popleft()
            with suppress(StopIteration):
                next(job)
                self._jobs.append(job)
            if clock.monotonic_s() >= until_s:
                break
        if self._jobs and self._turn_timer is None:
            self._turn_timer = self._state.timers.after(0.0, self.turn)

    def _reply(
        self, query: str, batch: int, *, after: int | None = None, has_grown: bool = False
    ) -> Reply:
        known = self.ledger.queries.get(query, Query())
        state = self.ledger.state_of(query, batch)
        plan = self._plan_of(known, batch)
        return Reply.of(
            BatchReply(
                state=state,
                last_batch_id=known.last_batch,
                row_count=known.last_rows if batch == known.last_batch else 0,
                brokers=",".join(sorted(known.brokers)),
                has_grown=has_grown,
            ),
            body=b"" if plan is None else msgspec.json.encode(plan),
            after=after if after is not None else self._wanted_flush,
        )

    def _plan_of(self, known: Query, batch: int) -> BatchPlan | None:
        """The plan that was decided for a batch, if it is the last or under way and still there."""
        decision = known.last_decision if batch == known.last_batch else -1
        if known.publication is not None and known.publication.batch == batch:
            decision = known.publication.decision
        note = self.journal.note_at(decision) if decision >= 0 else None
        return note.plan if isinstance(note, Decided) and note.batch == batch else None

    def _answer(self, request: PublishRequest, reply: Reply) -> None:
        """Send an answer once the log it tells of is on the platter."""
        if request.command.is_one_way or request.connection.is_closed:
            return
        answer = reply.command_for(request.command)
        if reply.after is None or self.parked.is_safe(reply.after):
            request.connection.send(answer)
            return
        self.parked.park(request.connection, answer.encode(), reply.after)
        self._flush_up_to(reply.after)

    def _flush_up_to(self, log_offset: int) -> None:
        self._wanted_flush = max(self._wanted_flush, log_offset)
        self._flush_more()

    def _flush_more(self) -> None:
        """A flush that was under way may have covered less than is wanted."""
        store = self._state.store
        if self._wanted_flush > store.flushed and store.read_only_reason is None:
            store.flush()

    def _encode(self) -> bytes:
        return snapshot.encode(self.ledger, self.journal.end)


def _refusal(error: Exception) -> Reply:
    """What `attempt` would have answered."""

    def run() -> Reply:
        raise error

    return attempt(run)
