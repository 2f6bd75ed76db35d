"""The timer wheel: which messages wait for which slot, and their delivery when they are due.

Theory of operation. A timed message waits as a record of the timer topic. `Clockwork.take` reads that
topic's queue and gives every message a unit in the timer log, linked into the wheel's slot for its time.
`collect` opens the slot whose time has come and brings its units, with the exact time of each, into
a heap; `deliver` places what is due in the queue it is meant for. A slot is left when all of it was delivered
and its time is over, so the wheel and the timer log alone hold what is waiting: no memory is used per
waiting message but for those of the slot under way.

Everything is told the time and does no more than so much at once. When room is missing the caller is
told which (a negative number) and nothing has been written. Formats: docs/formats/timer.md.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ariane.kernel.digits cimport put_digits
from ariane.kernel.hashing cimport java_hash_from
from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport (
    ENTRY_SIZE_AT, PADDING_SIZE, PROPERTIES_BYTES_MAX, QUEUE_ENTRY_BYTES, Draft, Fields, Text, bytes_of,
    is_word, load32, load64, publish, save32, save64,
)
from ariane.kernel.log cimport TOO_LARGE, Log, draft_again, next_store_ms, relocate, visible_end
from ariane.kernel.properties cimport Pairs, next_pair, pairs_of
from ariane.kernel.queue cimport Queue
from ariane.kernel.records cimport read_fields, readable_size
from ariane.store.wheel cimport (
    CHUNK_BYTES, COUNT_AT, DELAY_AT, DELETES, FIRST_AT, KIND_AT, LAST_AT, MARK_AT, NOWHERE, PLAIN, PREVIOUS_AT,
    RECORD_AT, RECORD_SIZE_AT, ROLLS, SPARE_AT, TOPIC_HASH_AT, UNIT_BLANK_BYTES, UNIT_BYTES, WRITTEN_AT, TimerLog,
    Wheel, unit_ms,
)

cdef enum:
    LATE_MAX = 1 << 16            # taken without a unit and not delivered yet
    SLOTS_PER_MESSAGE = 64        # that can be passed in the time a message takes
    MARKS_BYTES_MAX = 256
    PRECISION_MAX_MS = 1000

# How a step ended. `deliver` may also answer with a Refusal of the log.
cdef enum Status:
    ALL = 0
    NOT_ALL = 1
    NEEDS_UNIT_FILE = -11
    NEEDS_UNIT_ROOM = -12
    NEEDS_SLOT_ROOM = -13
    SLOT_IS_TAKEN = -14     # by messages of a past turn of the wheel, which have to be delivered first
    NEEDS_QUEUE = -15       # the message's queue could not be had
    MANY_ARE_LATE = -16     # messages are due that have no unit: they have to be delivered first

DONE, MORE = ALL, NOT_ALL
UNIT_FILE_NEEDED, UNIT_ROOM_NEEDED, SLOT_ROOM_NEEDED = NEEDS_UNIT_FILE, NEEDS_UNIT_ROOM, NEEDS_SLOT_ROOM
SLOT_TAKEN, QUEUE_NEEDED, LATE_ARE_MANY = SLOT_IS_TAKEN, NEEDS_QUEUE, MANY_ARE_LATE

# What a record of the timer topic says about itself.
cdef struct Wishes:
    Text real_topic
    Text unique_key
    Text delete_key
    int64_t real_queue_id
    int64_t slot_ms           # TIMER_OUT_MS, as whoever took the message in computed it
    int64_t delay_s
    int64_t delay_ms
    int64_t deliver_ms
    int64_t roll_times
    bint has_marks            # of an earlier delivery, which are replaced

cdef int64_t UNSET = -1 << 62


# One message of the slot under way.
cdef struct Due:
    int64_t due_ms
    int64_t log_offset
    int64_t written_ms        # when its unit was; INT64_MAX for one that came too late to have one
    int32_t kind
    int32_t size


cdef class Target:
    """A queue that messages were delivered to, and how many."""

    cdef readonly Queue queue
    cdef readonly int64_t message_count
    cdef readonly int64_t byte_count

    def __init__(self, Queue queue not None):
        self.queue = queue


cdef class Clockwork:
    """The wheel at work. `read_ms` is the slot under way; all before it have been delivered."""

    cdef readonly Log log
    cdef readonly Queue queue
    cdef readonly Wheel wheel
    cdef readonly TimerLog units
    cdef public int64_t window_slots
    cdef public int64_t next_offset       # of the timer queue: the first message not taken yet
    cdef readonly int64_t read_ms
    cdef readonly bint is_open            # whether the slot under way has been opened
    cdef public int64_t pending           # messages of this slot and all later ones
    # What a former process had taken and delivered: messages below `taken_end` that were due by
    # `delivered_ms` are passed over, as are units below `units_end`.
    cdef public int64_t taken_end
    cdef public int64_t delivered_ms
    cdef public int64_t units_end
    # Totals since the start.
    cdef readonly int64_t taken
    cdef readonly int64_t delivered
    cdef readonly int64_t deleted
    cdef readonly int64_t lost            # their records are gone, or say nothing that can be followed
    cdef readonly int64_t wanted_chunk    # of the wheel, after SLOT_ROOM_NEEDED

    cdef int64_t precision_ms
    cdef int64_t now_ms
    cdef int64_t collect_at               # the next unit of the open slot to collect
    cdef int64_t late_count               # in the heap without a unit
    cdef int64_t late_offset              # of the timer queue: none of them lies below
    cdef Due* heap
    cdef Py_ssize_t heap_count
    cdef Py_ssize_t heap_capacity
    cdef set deletions                    # by topic and unique key, or as spelled: topic+unique key
    cdef uint8_t* scratch

    def __cinit__(self, *arguments, **keywords):
        self.heap = NULL
        self.scratch = <uint8_t*> PyMem_Malloc(PROPERTIES_BYTES_MAX + MARKS_BYTES_MAX)
        if self.scratch == NULL:
            raise MemoryError

    def __init__(self, Log log not None, Queue queue not None, Wheel wheel not None, TimerLog units not None, *,
                 int64_t window_slots, int64_t read_ms, int64_t next_offset):
        if not 2 <= window_slots < wheel.slot_count:
            raise ValueError(f"a window of {window_slots} slots on a wheel of {wheel.slot_count}")
        self.log = log
        self.queue = queue
        self.wheel = wheel
        self.units = units
        self.window_slots = window_slots
        self.precision_ms = wheel.precision_ms
        self.read_ms = read_ms // self.precision_ms * self.precision_ms
        self.next_offset = next_offset
        self.collect_at = NOWHERE
        self.deletions = set()
        self.taken_end = self.units_end = self.delivered_ms = 0

    def __dealloc__(self):
        PyMem_Free(self.heap)
        PyMem_Free(self.scratch)

    @property
    def safe_offset(self) -> int:
        """The first message of the timer queue that neither waits in the wheel nor was delivered."""
        return self.late_offset if self.late_count else self.next_offset

    @property
    def done_ms(self) -> int:
        """Whatever was due by then, and has been taken, has been delivered."""
        cdef int64_t done = self.read_ms
        if self.is_open and self.collect_at == NOWHERE:
            done = max(done, self.now_ms)
        if self.next_offset <= self.taken_end:  # nothing has come since the restart
            done = max(done, self.delivered_ms)
        return min(done, self.heap[0].due_ms - 1) if self.heap_count else done

    @property
    def next_ms(self) -> int:
        """When there will be something to do next."""
        if self.heap_count:
            return self.heap[0].due_ms
        if self.is_open and self.collect_at == NOWHERE:
            return self.read_ms + self.precision_ms
        return self.read_ms

    @property
    def ready_count(self) -> int:
        """How many messages of the slot under way are at hand."""
        return self.heap_count

    def count_at(self, int64_t time_ms) -> int:
        """How many messages wait for a slot."""
        cdef uint8_t* at = self.wheel.at(time_ms)
        if <int64_t> load64(at) != time_ms // self.precision_ms or time_ms < self.read_ms:
            return 0
        return <int32_t> load32(at + COUNT_AT)

    # ------------------------------------------------------------ taking messages in

    def take(self, int64_t now_ms, int64_t count_max) -> int:
        """Give messages of the timer queue their places: DONE, MORE, or what is missing."""
        cdef int64_t end = visible_end(self.log, self.queue)
        cdef int status
        cdef uint8_t* at
        self.now_ms = now_ms
        if self.next_offset < self.queue.min_offset:
            self.lost += min(self.queue.min_offset, end) - self.next_offset
            self.next_offset = self.queue.min_offset
        while self.next_offset < end:
            if self.late_count >= LATE_MAX:
                return MANY_ARE_LATE
            if count_max == 0:
                return NOT_ALL
            at = self.queue.at(self.next_offset * QUEUE_ENTRY_BYTES)
            if at == NULL:
                return ALL
            status = self.enter(<int64_t> load64(at), <int32_t> load32(at + ENTRY_SIZE_AT))
            if status < 0:
                return status
            self.next_offset += 1
            count_max -= 1
        return ALL

    cdef int enter(self, int64_t log_offset, int32_t entry_size) except? -100:
        """Give the message at a log offset its place: 0, or what is missing."""
        cdef Fields fields
        cdef Wishes wishes
        cdef int64_t size = self.read(log_offset, &fields, &wishes)
        cdef int64_t due_ms, time_ms, precision = self.precision_ms
        cdef int64_t write_ms = self.now_ms // precision * precision, window_ms = self.window_slots * precision
        cdef int32_t kind = PLAIN
        cdef int missing
        if size == 0 or size != entry_size:
            self.lost += entry_size != PADDING_SIZE
            return 0
        due_ms = due_of(&wishes, fields.store_ms, precision)
        time_ms = max(wishes.slot_ms, due_ms - 1) // precision * precision
        if wishes.delete_key.size:
            kind |= DELETES  # in force until its slot is over
        elif self.next_offset < self.taken_end and due_ms <= self.delivered_ms:
            return 0
        if time_ms < self.read_ms:  # its slot has been left
            if kind & DELETES:
                self.add_deletion(&wishes)
            else:
                self.take_late(due_ms, log_offset, kind, <int32_t> size)
            return 0
        if time_ms - write_ms >= window_ms:
            kind |= ROLLS
            if time_ms - write_ms - window_ms < max(self.window_slots // 3, 1) * precision:
                time_ms = write_ms + self.window_slots // 2 * precision  # leaves enough for the next time
            else:
                time_ms = write_ms + window_ms
        missing = self.missing_for(time_ms)
        if missing < 0:
            return missing
        self.write_unit(time_ms, write_ms, kind, log_offset, <int32_t> size, wishes.real_topic)
        self.taken += 1
        if self.is_open and time_ms == self.read_ms:
            if kind & DELETES:
                self.add_deletion(&wishes)
            else:
                self.push(due_ms, log_offset, write_ms, kind, <int32_t> size)
        return 0

    cdef int take_late(self, int64_t due_ms, int64_t log_offset, int32_t kind, int32_t size) except -1:
        if self.late_count == 0:
            self.late_offset = self.next_offset
        self.late_count += 1
        self.taken += 1
        return self.push(due_ms, log_offset, INT64_MAX, kind, size)

    cdef int missing_for(self, int64_t time_ms) noexcept:
        """What stands in the way of a unit for a slot; 0 for nothing."""
        cdef uint8_t* slot = self.wheel.at(time_ms)
        cdef int64_t end = self.units.end + UNIT_BYTES + UNIT_BLANK_BYTES
        if (<int64_t> load64(slot) != time_ms // self.precision_ms
                and <int64_t> load64(slot) * self.precision_ms >= self.read_ms):
            return SLOT_IS_TAKEN
        if not self.wheel.is_reserved(slot):
            self.wanted_chunk = (slot - self.wheel.base) // CHUNK_BYTES
            return NEEDS_SLOT_ROOM
        if end > self.units.first_position + self.units.count * self.units.file_bytes:
            return NEEDS_UNIT_FILE
        return NEEDS_UNIT_ROOM if end > self.units.reserved_end else 0

    cdef void write_unit(self, int64_t time_ms, int64_t write_ms, int32_t kind, int64_t log_offset, int32_t size,
                         Text topic) noexcept:
        cdef int64_t position = self.units.end
        cdef uint8_t* unit = self.units.at(position)
        cdef uint8_t* slot = self.wheel.at(time_ms)
        save64(unit + PREVIOUS_AT, <uint64_t> self.last_of(slot, time_ms))
        save32(unit + KIND_AT, <uint32_t> kind)
        save64(unit + WRITTEN_AT, <uint64_t> write_ms)
        save32(unit + DELAY_AT, <uint32_t> (time_ms - write_ms))
        save64(unit + RECORD_AT, <uint64_t> log_offset)
        save32(unit + RECORD_SIZE_AT, <uint32_t> size)
        save32(unit + TOPIC_HASH_AT, <uint32_t> java_hash_from(0, topic.at, topic.size))
        save64(unit + SPARE_AT, 0)
        publish()
        save32(unit, UNIT_BYTES)
        self.units.end = position + UNIT_BYTES
        self.link(slot, time_ms, position, kind)

    cdef inline int64_t last_of(self, const uint8_t* slot, int64_t time_ms) noexcept nogil:
        """The last unit of a moment; NOWHERE when its slot is another's."""
        return <int64_t> load64(slot + LAST_AT) if <int64_t> load64(slot) == time_ms // self.precision_ms else NOWHERE

    cdef void link(self, uint8_t* slot, int64_t time_ms, int64_t position, int32_t kind) noexcept:
        """Make a unit the last of its slot; what a kill leaves is the slot before or after."""
        cdef int32_t change = -1 if kind & DELETES else 1
        if <int64_t> load64(slot) != time_ms // self.precision_ms:
            save64(slot, 0)
            publish()
            save64(slot + FIRST_AT, <uint64_t> position)
            save64(slot + LAST_AT, <uint64_t> position)
            save32(slot + COUNT_AT, <uint32_t> change)
            save32(slot + MARK_AT, 0)
            publish()
            save64(slot, <uint64_t> (time_ms // self.precision_ms))
        else:
            save64(slot + LAST_AT, <uint64_t> position)
            save32(slot + COUNT_AT, load32(slot + COUNT_AT) + <uint32_t> change)
        self.pending += change

    # ------------------------------------------------------------ opening slots

    def collect(self, int64_t now_ms, int64_t count_max) -> int:
        """Leave slots that are over, open the one whose time has come, bring in its units: DONE or MORE."""
        cdef int64_t slots_max = count_max * SLOTS_PER_MESSAGE
        self.now_ms = now_ms
        while count_max > 0 and slots_max > 0:
            if self.collect_at != NOWHERE:
                count_max = self.bring_in(count_max)
            elif self.is_open:
                if self.heap_count or now_ms < self.read_ms + self.precision_ms:
                    return ALL
                self.leave()
            elif now_ms < self.read_ms:
                return ALL
            else:
                self.is_open = True
                slots_max -= 1
                self.collect_at = self.last_of(self.wheel.at(self.read_ms), self.read_ms)
        return NOT_ALL

    def finish(self) -> None:
        """Leave the open slot if all of it was delivered: what comes for it later is late, and goes by itself."""
        if self.is_open and self.collect_at == NOWHERE and self.heap_count == 0:
            self.leave()

    cdef int leave(self) except -1:
        cdef uint8_t* slot = self.wheel.at(self.read_ms)
        if <int64_t> load64(slot) == self.read_ms // self.precision_ms:
            self.pending -= <int32_t> load32(slot + COUNT_AT)
        self.read_ms += self.precision_ms
        self.is_open = False
        if self.deletions:
            self.deletions.clear()
        return 0

    cdef int64_t bring_in(self, int64_t count_max) except -1:
        """Follow the open slot's chain, newest unit first; what is left of `count_max`."""
        cdef uint8_t* unit
        cdef Fields fields
        cdef Wishes wishes
        cdef int64_t position, size, due_ms, log_offset
        cdef int32_t kind
        while self.collect_at != NOWHERE and count_max > 0:
            position = self.collect_at
            unit = self.units.sound(position)
            if unit == NULL or position >= self.units.end or self.slot_of(unit) != self.read_ms:
                if position >= self.units.first_position:
                    self.lost += 1
                self.collect_at = NOWHERE
                break
            count_max -= 1
            self.collect_at = <int64_t> load64(unit + PREVIOUS_AT)
            log_offset = <int64_t> load64(unit + RECORD_AT)
            kind = <int32_t> load32(unit + KIND_AT)
            size = self.read(log_offset, &fields, &wishes)
            if size == 0 or size != <int32_t> load32(unit + RECORD_SIZE_AT):
                self.lost += 1
                continue
            due_ms = self.read_ms + 1 if kind & ROLLS else due_of(&wishes, fields.store_ms, self.precision_ms)
            if kind & DELETES and not kind & ROLLS:
                self.add_deletion(&wishes)
            elif position >= self.units_end or due_ms > self.delivered_ms:
                self.push(due_ms, log_offset, <int64_t> load64(unit + WRITTEN_AT), kind, <int32_t> size)
        return count_max

    cdef inline int64_t slot_of(self, const uint8_t* unit) noexcept nogil:
        return unit_ms(unit) // self.precision_ms * self.precision_ms

    # ------------------------------------------------------------ delivering

    def deliver(self, int64_t now_ms, Index index, queue_of, dict targets not None, int64_t count_max,
                int64_t bytes_max) -> int:
        """Place what is due in its queue: DONE, MORE, or what is missing for the next one.

        `queue_of(topic, queue_id)` gives a Queue, or None; `targets` gathers a Target for each by
        (topic, queue id).
        """
        cdef int status
        cdef int64_t bytes_end = self.log.end + bytes_max
        self.now_ms = now_ms
        while self.heap_count and self.heap[0].due_ms <= now_ms:
            if count_max == 0 or self.log.end >= bytes_end:
                return NOT_ALL
            status = self.put_first(index, queue_of, targets)
            if status < 0:
                return status
            count_max -= 1
        return ALL

    cdef int put_first(self, Index index, queue_of, dict targets) except? -100:
        cdef Due* first = &self.heap[0]
        cdef Fields fields
        cdef Wishes wishes
        cdef Draft draft
        cdef Target target
        cdef int64_t before = self.log.end, placed, store_ms
        if not self.read_first(&fields, &wishes):
            return 0
        if self.deletions and not first.kind & ROLLS and self.is_deleted(&wishes):
            self.deleted += 1
            self.drop_first()
            return 0
        target = self.target_of(first.kind, &wishes, queue_of, targets)
        if target is None:
            return NEEDS_QUEUE
        self.draft_of(first, &fields, &wishes, &draft)
        store_ms = next_store_ms(self.log, self.now_ms)
        placed = relocate(self.log, target.queue, index, &draft, store_ms)
        if placed == TOO_LARGE and draft.suffix.size:
            draft.properties = fields.properties  # without our marks it fitted before
            draft.suffix = Text(NULL, 0)
            placed = relocate(self.log, target.queue, index, &draft, store_ms)
        if placed < 0:
            return <int> placed
        target.message_count += 1
        target.byte_count += self.log.end - before
        self.delivered += 1
        self.drop_first()
        return 0

    def first_message(self) -> tuple | None:
        """The first message that is due, to be placed by other means, then `drop`ped.

        (topic, queue id, body, properties, born host, born at, flag, system flag, reconsume times)
        """
        cdef Fields fields
        cdef Wishes wishes
        cdef Draft draft
        if self.heap_count == 0 or not self.read_first(&fields, &wishes):
            return None
        cdef bint rolls = self.heap[0].kind & ROLLS
        self.draft_of(&self.heap[0], &fields, &wishes, &draft)
        properties = bytes_of(draft.properties) + bytes_of(draft.suffix)
        if len(properties) > PROPERTIES_BYTES_MAX:
            properties = bytes_of(fields.properties)
        return (
            self.queue.topic if rolls else bytes_of(wishes.real_topic),
            self.queue.queue_id if rolls else wishes.real_queue_id,
            bytes_of(draft.body), properties, bytes_of(draft.born_host), draft.born_ms, draft.flag,
            draft.system_flag, draft.reconsume_times,
        )

    def drop(self, bint was_delivered) -> None:
        """The first message was placed by other means, or can never be."""
        if self.heap_count == 0:
            raise IndexError("nothing is due")
        if was_delivered:
            self.delivered += 1
        else:
            self.lost += 1
        self.drop_first()

    cdef bint read_first(self, Fields* fields, Wishes* wishes) noexcept:
        """Read the first message; if its record is gone, it is passed over."""
        cdef int64_t size = self.read(self.heap[0].log_offset, fields, wishes)
        if size and size == self.heap[0].size:
            return True
        self.lost += 1
        self.drop_first()
        return False

    cdef Target target_of(self, int32_t kind, Wishes* wishes, queue_of, dict targets):
        cdef bint rolls = kind & ROLLS
        topic = self.queue.topic if rolls else bytes_of(wishes.real_topic)
        queue_id = self.queue.queue_id if rolls else wishes.real_queue_id
        cdef Target target = targets.get((topic, queue_id))
        if target is None:
            queue = self.queue if rolls else queue_of(topic, queue_id)
            if queue is None:
                return None
            target = targets[topic, queue_id] = Target(queue)
        return target

    cdef void draft_of(self, Due* first, Fields* fields, Wishes* wishes, Draft* draft) noexcept:
        """The record to be; its properties say when it was taken and let go."""
        cdef uint8_t* to = self.scratch
        cdef uint8_t* marks
        cdef bint rolls = first.kind & ROLLS
        draft_again(self.log.at(first.log_offset), fields, draft)
        if wishes.has_marks:
            draft.properties = without_marks(fields.properties, to, rolls)
            to += draft.properties.size
        marks = to
        if draft.properties.size and draft.properties.at[draft.properties.size - 1] != 2:
            to[0] = 2
            to += 1
        to = put_pair(to, "TIMER_ENQUEUE_MS", 16, first.written_ms)
        if rolls:
            to = put_pair(to, "TIMER_ROLL_TIMES", 16, max(wishes.roll_times, 0) + 1)
            if wishes.deliver_ms == UNSET and wishes.roll_times < 0:
                # Its delay counts from a time that the next record will not tell.
                to = put_pair(to, "TIMER_DELIVER_MS", 16, due_of(wishes, fields.store_ms, self.precision_ms))
        to = put_pair(to, "TIMER_DEQUEUE_MS", 16, self.now_ms)
        draft.suffix = Text(marks, to - marks)

    # ------------------------------------------------------------ after a restart

    def link_unit(self, int64_t position) -> None:
        """Make a unit that is sound the last of its slot, unless that has been left."""
        cdef uint8_t* unit = self.units.sound(position)
        cdef uint8_t* slot
        cdef int64_t time_ms
        if unit == NULL or self.slot_of(unit) < self.read_ms:
            return
        time_ms = self.slot_of(unit)
        slot = self.wheel.at(time_ms)
        save64(unit + PREVIOUS_AT, <uint64_t> self.last_of(slot, time_ms))
        self.link(slot, time_ms, position, <int32_t> load32(unit + KIND_AT))

    # ------------------------------------------------------------ records, heap and deletions

    cdef int64_t read(self, int64_t log_offset, Fields* fields, Wishes* wishes) noexcept:
        """Size of the timed message at a log offset; 0 when there is none that can be followed."""
        cdef int64_t size = readable_size(self.log, log_offset, self.log.visible)
        if size == 0 or read_fields(self.log.at(log_offset), fields) != size:
            return 0
        find_wishes(fields.properties, wishes)
        if wishes.slot_ms < 0 or wishes.real_topic.size == 0 or wishes.real_queue_id < 0:
            return 0
        return size

    cdef int push(self, int64_t due_ms, int64_t log_offset, int64_t written_ms, int32_t kind, int32_t size) except -1:
        cdef Py_ssize_t at = self.heap_count, parent
        cdef Due* grown
        if at == self.heap_capacity:
            grown = <Due*> PyMem_Realloc(self.heap, max(self.heap_capacity * 2, 256) * sizeof(Due))
            if grown == NULL:
                raise MemoryError
            self.heap = grown
            self.heap_capacity = max(self.heap_capacity * 2, 256)
        cdef Due due = Due(due_ms, log_offset, written_ms, kind, size)
        self.heap_count += 1
        while at > 0:
            parent = (at - 1) // 2
            if not is_before(&due, &self.heap[parent]):
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at] = due
        return 0

    cdef void drop_first(self) noexcept:
        cdef Py_ssize_t at = 0, child
        if self.heap[0].written_ms == INT64_MAX:
            self.late_count -= 1
        self.heap_count -= 1
        cdef Due due = self.heap[self.heap_count]
        while True:
            child = 2 * at + 1
            if child >= self.heap_count:
                break
            if child + 1 < self.heap_count and is_before(&self.heap[child + 1], &self.heap[child]):
                child += 1
            if not is_before(&self.heap[child], &due):
                break
            self.heap[at] = self.heap[child]
            at = child
        self.heap[at] = due
        cdef Due* shrunk
        if self.heap_count == 0 and self.heap_capacity > 65536:
            shrunk = <Due*> PyMem_Realloc(self.heap, 256 * sizeof(Due))
            if shrunk != NULL:
                self.heap = shrunk
                self.heap_capacity = 256

    cdef int add_deletion(self, const Wishes* wishes) except -1:
        """Remember a message to be deleted, by both spellings: its unique key, or topic+unique key."""
        key = bytes_of(wishes.delete_key)
        self.deletions.add(key)
        self.deletions.add((bytes_of(wishes.real_topic), key))
        return 0

    cdef bint is_deleted(self, const Wishes* wishes) except -1:
        topic, key = bytes_of(wishes.real_topic), bytes_of(wishes.unique_key)
        return bool(key) and ((topic, key) in self.deletions or topic + b"+" + key in self.deletions)


cdef inline bint is_before(const Due* one, const Due* other) noexcept nogil:
    if one.due_ms != other.due_ms:
        return one.due_ms < other.due_ms
    return one.log_offset < other.log_offset


cdef int64_t due_of(const Wishes* wishes, int64_t store_ms, int64_t precision_ms) noexcept nogil:
    """When a message is due, to the millisecond. A slot's messages are due after its time, by one precision at most.

    A delay counts from when the message was stored; one that has been rolled was stored again since, and
    has the time itself, or is due at the end of its slot.
    """
    cdef int64_t due_ms = wishes.slot_ms + precision_ms
    if wishes.roll_times < 0 and wishes.delay_s != UNSET:
        due_ms = store_ms + (wishes.delay_s * 1000 if -PAST_S < wishes.delay_s < PAST_S else 0)
    elif wishes.roll_times < 0 and wishes.delay_ms != UNSET:
        due_ms = store_ms + (wishes.delay_ms if -PAST_MS < wishes.delay_ms < PAST_MS else 0)
    elif wishes.deliver_ms != UNSET:
        due_ms = wishes.deliver_ms
    # The precision may have been another when the message came.
    return max(min(due_ms, wishes.slot_ms + PRECISION_MAX_MS), wishes.slot_ms + 1)

cdef int64_t PAST_S = 1 << 40
cdef int64_t PAST_MS = 1 << 50


cdef bint number_of(Text text, int64_t* number) noexcept nogil:
    """A whole number as Java's parseLong reads it, of up to 18 digits."""
    cdef Py_ssize_t at = 0
    cdef int64_t value = 0
    cdef bint is_negative = False
    if text.size and (text.at[0] == c'-' or text.at[0] == c'+'):
        is_negative = text.at[0] == c'-'
        at = 1
    if at == text.size or text.size - at > 18:
        return False
    while at < text.size:
        if not c'0' <= text.at[at] <= c'9':
            return False
        value = value * 10 + (text.at[at] - c'0')
        at += 1
    number[0] = -value if is_negative else value
    return True


cdef void find_wishes(Text text, Wishes* wishes) noexcept nogil:
    """Read what matters here of a properties text; the last of each name counts."""
    cdef Pairs rest = pairs_of(text)
    cdef Text name, value
    memset(wishes, 0, sizeof(Wishes))
    wishes.real_queue_id = wishes.slot_ms = wishes.roll_times = -1
    wishes.delay_s = wishes.delay_ms = wishes.deliver_ms = UNSET
    while next_pair(&rest, &name, &value):
        if name.at[0] == c'T':
            note_wish(name, value, wishes)
        elif is_word(name, "REAL_TOPIC", 10):
            wishes.real_topic = value
        elif is_word(name, "REAL_QID", 8):
            if not number_of(value, &wishes.real_queue_id) or wishes.real_queue_id > 0x7FFFFFFF:
                wishes.real_queue_id = -1
        elif is_word(name, "UNIQ_KEY", 8):
            wishes.unique_key = value


cdef void note_wish(Text name, Text value, Wishes* wishes) noexcept nogil:
    if is_word(name, "TIMER_OUT_MS", 12):
        if not number_of(value, &wishes.slot_ms):
            wishes.slot_ms = -1
    elif is_word(name, "TIMER_DELAY_SEC", 15):
        number_of(value, &wishes.delay_s)
    elif is_word(name, "TIMER_DELAY_MS", 14):
        number_of(value, &wishes.delay_ms)
    elif is_word(name, "TIMER_DELIVER_MS", 16):
        number_of(value, &wishes.deliver_ms)
    elif is_word(name, "TIMER_DEL_UNIQKEY", 17):
        wishes.delete_key = value
    elif is_word(name, "TIMER_ROLL_TIMES", 16):
        wishes.has_marks = True
        if not number_of(value, &wishes.roll_times) or wishes.roll_times < 0:
            wishes.roll_times = 0
    elif is_word(name, "TIMER_ENQUEUE_MS", 16) or is_word(name, "TIMER_DEQUEUE_MS", 16):
        wishes.has_marks = True


cdef Text without_marks(Text text, uint8_t* to, bint rolls) noexcept nogil:
    """The properties but for the marks of an earlier delivery, copied to `to`; all else byte for byte."""
    cdef Pairs rest = pairs_of(text)
    cdef Text name, value
    cdef Py_ssize_t kept_end = 0, size = 0, first
    while next_pair(&rest, &name, &value):
        if (is_word(name, "TIMER_ENQUEUE_MS", 16) or is_word(name, "TIMER_DEQUEUE_MS", 16)
                or (rolls and is_word(name, "TIMER_ROLL_TIMES", 16))):
            first = name.at - text.at
            memcpy(to + size, text.at + kept_end, first - kept_end)
            size += first - kept_end
            kept_end = min(<Py_ssize_t> rest.at, text.size)
    memcpy(to + size, text.at + kept_end, text.size - kept_end)
    return Text(to, size + text.size - kept_end)


cdef uint8_t* put_pair(uint8_t* to, const char* name, Py_ssize_t name_size, int64_t number) noexcept nogil:
    """Write `name 0x01 number 0x02`; the number is not negative."""
    memcpy(to, name, name_size)
    to += name_size
    to[0] = 1
    to += 1
    to = put_digits(to, <uint64_t> number)
    to[0] = 2
    return to + 1
