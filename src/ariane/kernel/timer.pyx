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

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ariane.kernel.digits cimport put_digits
from ariane.kernel.hashing cimport java_hash_from
from ariane.kernel.log cimport (
    PADDING_SIZE, QUEUE_ENTRY_BYTES, TOO_LARGE, Draft, Fields, Index, Log, Maps, Properties, Queue, Text,
    find_properties, load32, load64, next_store_ms, place, publish, read_fields, readable_size, save32, save64, tags_code_of,
    visible_end,
)

# A slot: time in units of the precision, first unit, last unit, messages, and a word that is zero.
cdef enum:
    SLOT_BYTES = 32
    FIRST_AT = 8
    LAST_AT = 16
    COUNT_AT = 24
    MARK_AT = 28

# A unit: size, the unit before it in its slot, kind, written at, delay, log offset, record size, topic hash, zero.
cdef enum:
    UNIT_BYTES = 52
    PREVIOUS_AT = 4
    KIND_AT = 12
    WRITTEN_AT = 16
    DELAY_AT = 24
    RECORD_AT = 28
    RECORD_SIZE_AT = 36
    TOPIC_HASH_AT = 40
    SPARE_AT = 44
    BLANK_BYTES = 16

cdef enum:
    PLAIN = 1
    ROLLS = 2
    DELETES = 4
    KINDS = 15

# Positions within a record; what lies behind the hosts is counted back from its body.
cdef enum:
    FLAG_AT = 16
    SYSTEM_FLAG_AT = 36
    BORN_MS_AT = 40
    BORN_HOST_AT = 48
    BORN_HOST_IPV6 = 0x10
    RECONSUME_TIMES_BEFORE_BODY = 16

cdef enum:
    CHUNK_BYTES = 1 << 16         # of the wheel, given blocks at once
    LATE_MAX = 1 << 16            # taken without a unit and not delivered yet
    SLOTS_PER_MESSAGE = 64        # that can be passed in the time a message takes
    PROPERTIES_BYTES_MAX = 32767
    MARKS_BYTES_MAX = 256
    PRECISION_MAX_MS = 1000

cdef uint32_t MAGIC_BLANK = 0xCBD43194
cdef int64_t NOWHERE = -1

# How a step ended. `deliver` may also answer with a Refusal of the log.
DONE = 0
MORE = 1
UNIT_FILE_NEEDED = -11
UNIT_ROOM_NEEDED = -12
SLOT_ROOM_NEEDED = -13
SLOT_TAKEN = -14            # by messages of a past turn of the wheel, which have to be delivered first
QUEUE_NEEDED = -15          # the message's queue could not be had
LATE_ARE_MANY = -16         # messages are due that have no unit: they have to be delivered first
cdef enum:
    _UNIT_FILE_NEEDED = -11
    _UNIT_ROOM_NEEDED = -12
    _SLOT_ROOM_NEEDED = -13
    _SLOT_TAKEN = -14
    _QUEUE_NEEDED = -15
    _LATE_ARE_MANY = -16

wheel_chunk_bytes = CHUNK_BYTES


cdef class Wheel:
    """The slots, in a mapped file: one for each unit of time, coming round again."""

    cdef object buffer
    cdef uint8_t* base
    cdef uint8_t* reserved          # by chunk, whether it has blocks of its own
    cdef readonly int64_t slot_count
    cdef readonly int64_t precision_ms

    def __cinit__(self, buffer, int64_t slot_count, int64_t precision_ms):
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        cdef Py_ssize_t size = view.len
        self.base = <uint8_t*> view.buf
        PyBuffer_Release(&view)
        if size != slot_count * SLOT_BYTES or slot_count < 2 or precision_ms < 1:
            raise ValueError(f"a wheel of {slot_count} slots has {slot_count * SLOT_BYTES} bytes, not {size}")
        self.buffer = memoryview(buffer)
        self.slot_count = slot_count
        self.precision_ms = precision_ms
        self.reserved = <uint8_t*> PyMem_Malloc(size // CHUNK_BYTES + 1)
        if self.reserved == NULL:
            raise MemoryError
        memset(self.reserved, 0, size // CHUNK_BYTES + 1)

    def __dealloc__(self):
        PyMem_Free(self.reserved)

    def release(self) -> None:
        """Let go of the map; the wheel must not be used any more."""
        self.base = NULL
        self.buffer.release()

    def chunk_reserved(self, Py_ssize_t chunk) -> None:
        """The chunk has been given blocks: it may be written to."""
        if not 0 <= chunk <= self.slot_count * SLOT_BYTES // CHUNK_BYTES:
            raise IndexError(f"chunk {chunk}")
        self.reserved[chunk] = 1

    def slot(self, int64_t time_ms) -> tuple[int, int, int] | None:
        """(first unit, last unit, messages) of a moment; None when nothing waits for it."""
        cdef uint8_t* at = self.at(time_ms)
        if <int64_t> load64(at) != time_ms // self.precision_ms:
            return None
        return <int64_t> load64(at + FIRST_AT), <int64_t> load64(at + LAST_AT), <int32_t> load32(at + COUNT_AT)

    def oldest_ms(self) -> int | None:
        """The earliest time of any slot, over or not; None when the wheel was never used."""
        cdef int64_t oldest = INT64_MAX, time
        cdef Py_ssize_t i
        for i in range(self.slot_count):
            time = <int64_t> load64(self.base + i * SLOT_BYTES)
            if 0 < time < oldest:
                oldest = time
        return None if oldest == INT64_MAX else oldest * self.precision_ms

    cdef inline uint8_t* at(self, int64_t time_ms) noexcept nogil:
        return self.base + (time_ms // self.precision_ms % self.slot_count) * SLOT_BYTES

    cdef inline bint is_reserved(self, uint8_t* slot) noexcept nogil:
        return self.reserved[(slot - self.base) // CHUNK_BYTES]


cdef class TimerLog(Maps):
    """The units in the order they were taken; `end` is where the next one goes."""

    cdef public int64_t end
    cdef public int64_t reserved_end

    def __init__(self, int64_t file_bytes):
        if file_bytes < UNIT_BYTES + BLANK_BYTES:
            raise ValueError(f"a timer log file of {file_bytes} bytes holds no unit")
        self.file_bytes = file_bytes
        self.end = self.reserved_end = 0

    def unit(self, int64_t position) -> tuple[int, int, int, int, int, int] | None:
        """(previous, kind, time, written at, log offset, record size) of a sound unit, else None."""
        cdef uint8_t* at = self.sound(position)
        if at == NULL:
            return None
        return (<int64_t> load64(at + PREVIOUS_AT), <int32_t> load32(at + KIND_AT), unit_ms(at),
                <int64_t> load64(at + WRITTEN_AT), <int64_t> load64(at + RECORD_AT),
                <int32_t> load32(at + RECORD_SIZE_AT))

    @property
    def last_in_file(self) -> int:
        """Where the last unit of a full file begins, within the file."""
        return ((self.file_bytes - BLANK_BYTES) // UNIT_BYTES - 1) * UNIT_BYTES

    def before(self, int64_t position) -> int:
        """Where the unit in front of a position begins; -1 when no file holds one."""
        cdef int64_t inside = (position - self.first_position) % self.file_bytes
        cdef int64_t found = position - UNIT_BYTES
        if inside == 0:
            found = position - self.file_bytes + self.last_in_file
        elif inside > self.last_in_file + UNIT_BYTES:
            found = position - inside + self.last_in_file
        return found if found >= self.first_position else NOWHERE

    def after(self, int64_t position) -> int:
        """Where the unit behind the one at a position begins, or would."""
        cdef int64_t inside = (position - self.first_position) % self.file_bytes
        return position + (self.file_bytes - inside if inside >= self.last_in_file else UNIT_BYTES)

    def place_of(self, int64_t position) -> int:
        """Where a unit may begin, at or behind a position: not in the rest of a file that is too short."""
        cdef int64_t inside = (position - self.first_position) % self.file_bytes
        return position + self.file_bytes - inside if inside > self.last_in_file else position

    def seal(self) -> None:
        """Mark the rest of the newest file as unused; the next unit needs a new file."""
        cdef int64_t rest = self.first_position + self.count * self.file_bytes - self.end
        cdef uint8_t* at = self.at(self.end)
        if rest >= BLANK_BYTES and at != NULL:
            save64(at + PREVIOUS_AT, 0)
            save32(at + KIND_AT, MAGIC_BLANK)
            publish()
            save32(at, <uint32_t> rest)
        self.end += rest

    cdef uint8_t* sound(self, int64_t position) noexcept nogil:
        """The unit at a position, or NULL when there is none or it is damaged."""
        cdef int64_t relative = position - self.first_position
        if relative < 0 or relative % self.file_bytes > self.file_bytes - UNIT_BYTES:
            return NULL
        cdef uint8_t* at = self.at(position)
        if at == NULL or load32(at) != UNIT_BYTES:
            return NULL
        cdef uint32_t kind = load32(at + KIND_AT)
        # The previous unit's position lies between size and kind: these being there, no sector of it is lost.
        if kind > KINDS or not kind & PLAIN or <int64_t> load64(at + PREVIOUS_AT) >= position:
            return NULL
        return at


cdef inline int64_t unit_ms(const uint8_t* unit) noexcept nogil:
    return <int64_t> load64(unit + WRITTEN_AT) + <int32_t> load32(unit + DELAY_AT)


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
    bint ends_open            # the last pair lacks its closing 0x02

cdef int64_t UNSET = -1 << 62


# One message of the slot under way.
cdef struct Due:
    int64_t due_ms
    int64_t log_offset
    int64_t written_ms        # when its unit was; INT64_MAX for one that came too late to have one
    int32_t kind
    int32_t size

cdef struct Deletion:
    uint64_t hash
    int64_t log_offset        # of the message that asks for it


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
    cdef readonly int64_t pending         # messages of this slot and all later ones
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
    cdef Deletion* deletions
    cdef Py_ssize_t deletion_count
    cdef Py_ssize_t deletion_capacity
    cdef uint8_t* scratch

    def __cinit__(self, *arguments, **keywords):
        self.heap = NULL
        self.deletions = NULL
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
        self.taken_end = self.units_end = self.delivered_ms = 0

    def __dealloc__(self):
        PyMem_Free(self.heap)
        PyMem_Free(self.deletions)
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
                return _LATE_ARE_MANY
            if count_max == 0:
                return MORE
            at = self.queue.at(self.next_offset * QUEUE_ENTRY_BYTES)
            if at == NULL:
                return DONE
            status = self.enter(<int64_t> load64(at), <int32_t> load32(at + 8))
            if status < 0:
                return status
            self.next_offset += 1
            count_max -= 1
        return DONE

    cdef int enter(self, int64_t log_offset, int32_t entry_size) except? -100:
        cdef Fields fields
        cdef Wishes wishes
        cdef uint8_t* slot
        cdef int64_t size = self.read(log_offset, &fields, &wishes)
        cdef int64_t due_ms, time_ms, first, last, precision = self.precision_ms
        cdef int64_t write_ms = self.now_ms // precision * precision
        cdef int32_t kind = PLAIN
        cdef bint is_again = self.next_offset < self.taken_end
        if size == 0 or size != entry_size:
            self.lost += entry_size != PADDING_SIZE
            return 0
        due_ms = due_of(&wishes, fields.store_ms, precision)
        time_ms = max(wishes.slot_ms, due_ms - 1) // precision * precision
        if wishes.delete_key.size:
            kind |= DELETES  # in force until its slot is over
        elif is_again and due_ms <= self.delivered_ms:
            return 0
        if time_ms < self.read_ms:  # its slot has been left
            if kind & DELETES:
                self.add_deletion(log_offset, &wishes)
                return 0
            if self.late_count == 0:
                self.late_offset = self.next_offset
            self.late_count += 1
            self.taken += 1
            self.push(due_ms, log_offset, INT64_MAX, kind, <int32_t> size)
            return 0
        if time_ms - write_ms >= self.window_slots * precision:
            kind |= ROLLS
            if time_ms - write_ms - self.window_slots * precision < max(self.window_slots // 3, 1) * precision:
                time_ms = write_ms + self.window_slots // 2 * precision  # leaves enough for the next time
            else:
                time_ms = write_ms + self.window_slots * precision
        slot = self.wheel.at(time_ms)
        first = last = NOWHERE
        if <int64_t> load64(slot) == time_ms // precision:
            first = <int64_t> load64(slot + FIRST_AT)
            last = <int64_t> load64(slot + LAST_AT)
        elif <int64_t> load64(slot) * precision >= self.read_ms:
            return _SLOT_TAKEN
        if not self.wheel.is_reserved(slot):
            self.wanted_chunk = (slot - self.wheel.base) // CHUNK_BYTES
            return _SLOT_ROOM_NEEDED
        cdef int64_t position = self.units.end
        cdef int64_t left = self.units.first_position + self.units.count * self.units.file_bytes - position
        if left < UNIT_BYTES + BLANK_BYTES:
            return _UNIT_FILE_NEEDED
        if position + UNIT_BYTES + BLANK_BYTES > self.units.reserved_end:
            return _UNIT_ROOM_NEEDED
        cdef uint8_t* unit = self.units.at(position)
        save64(unit + PREVIOUS_AT, <uint64_t> last)
        save32(unit + KIND_AT, <uint32_t> kind)
        save64(unit + WRITTEN_AT, <uint64_t> write_ms)
        save32(unit + DELAY_AT, <uint32_t> (time_ms - write_ms))
        save64(unit + RECORD_AT, <uint64_t> log_offset)
        save32(unit + RECORD_SIZE_AT, <uint32_t> size)
        save32(unit + TOPIC_HASH_AT, <uint32_t> java_hash_from(0, wishes.real_topic.at, wishes.real_topic.size))
        save64(unit + SPARE_AT, 0)
        publish()
        save32(unit, UNIT_BYTES)
        self.units.end = position + UNIT_BYTES
        self.link(slot, time_ms, position, kind)
        self.taken += 1
        if self.is_open and time_ms == self.read_ms:
            if kind & DELETES:
                self.add_deletion(log_offset, &wishes)
            else:
                self.push(due_ms, log_offset, write_ms, kind, <int32_t> size)
        return 0

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
        cdef uint8_t* slot
        self.now_ms = now_ms
        while count_max > 0 and slots_max > 0:
            if self.collect_at != NOWHERE:
                count_max = self.bring_in(count_max)
            elif self.is_open:
                if self.heap_count or now_ms < self.read_ms + self.precision_ms:
                    return DONE
                self.leave()
            elif now_ms < self.read_ms:
                return DONE
            else:
                self.is_open = True
                slots_max -= 1
                slot = self.wheel.at(self.read_ms)
                if <int64_t> load64(slot) == self.read_ms // self.precision_ms:
                    self.collect_at = <int64_t> load64(slot + LAST_AT)
        return MORE

    def finish(self) -> None:
        """Leave the open slot if all of it was delivered: what comes for it later is late, and goes by itself."""
        if self.is_open and self.collect_at == NOWHERE and self.heap_count == 0:
            self.leave()

    cdef void leave(self) noexcept:
        cdef uint8_t* slot = self.wheel.at(self.read_ms)
        if <int64_t> load64(slot) == self.read_ms // self.precision_ms:
            self.pending -= <int32_t> load32(slot + COUNT_AT)
        self.read_ms += self.precision_ms
        self.is_open = False
        if self.deletion_count:
            self.deletion_count = 0
            memset(self.deletions, 0, self.deletion_capacity * sizeof(Deletion))

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
                self.add_deletion(log_offset, &wishes)
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
                return MORE
            status = self.put_first(index, queue_of, targets)
            if status < 0:
                return status
            count_max -= 1
        return DONE

    cdef int put_first(self, Index index, queue_of, dict targets) except? -100:
        cdef Due* first = &self.heap[0]
        cdef Fields fields
        cdef Wishes wishes
        cdef Draft draft
        cdef Target target
        cdef int64_t before = self.log.end, placed, store_ms
        if not self.read_first(&fields, &wishes):
            return 0
        if self.deletion_count and not first.kind & ROLLS and self.is_deleted(&wishes):
            self.deleted += 1
            self.drop_first()
            return 0
        target = self.target_of(first.kind, &wishes, queue_of, targets)
        if target is None:
            return _QUEUE_NEEDED
        self.draft_of(first, &fields, &wishes, &draft)
        draft.topic = Text(<const uint8_t*> <char*> target.queue.topic, len(target.queue.topic))
        draft.queue_id = target.queue.queue_id
        store_ms = next_store_ms(self.log, self.now_ms)
        draft.tags_code = self.keys_of(&draft, target.queue, store_ms)
        placed = place(self.log, target.queue, index, &draft, store_ms)
        if placed == TOO_LARGE and draft.suffix.size:
            draft.properties = fields.properties  # without our marks it fitted before
            draft.suffix = Text(NULL, 0)
            placed = place(self.log, target.queue, index, &draft, store_ms)
        if placed < 0:
            return <int> placed
        target.message_count += 1
        target.byte_count += self.log.end - before
        self.delivered += 1
        self.drop_first()
        return 0

    cdef int64_t keys_of(self, Draft* draft, Queue queue, int64_t store_ms) noexcept:
        cdef Properties found
        find_properties(draft.properties, &found)
        draft.keys = found.keys
        draft.unique_key = found.unique_key
        return tags_code_of(self.log, queue, &found, store_ms)

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
        """The record to be, but for its queue and keys; its properties say when it was taken and let go."""
        cdef uint8_t* record = self.log.at(first.log_offset)
        cdef uint8_t* to = self.scratch
        cdef uint8_t* marks
        cdef bint rolls = first.kind & ROLLS
        draft.body = fields.body
        draft.system_flag = <int32_t> load32(record + SYSTEM_FLAG_AT)
        draft.born_host = Text(record + BORN_HOST_AT, 20 if draft.system_flag & BORN_HOST_IPV6 else 8)
        draft.born_ms = <int64_t> load64(record + BORN_MS_AT)
        draft.flag = <int32_t> load32(record + FLAG_AT)
        draft.reconsume_times = <int32_t> load32(fields.body.at - RECONSUME_TIMES_BEFORE_BODY)
        draft.prepared_offset = 0
        draft.properties = fields.properties
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

    def restore(self, int64_t cut) -> bool:
        """Let the wheel hold what the units below `cut` say; False when those are damaged.

        Slots may have been written after units at or past `cut`, which are about to go: their chains
        are followed back. Where a chain is broken its slot is put together from the units again.
        """
        cdef Py_ssize_t i
        cdef uint8_t* slot
        cdef uint8_t* unit
        cdef int64_t time_ms, last, deepest = INT64_MAX
        self.pending = 0
        for i in range(self.wheel.slot_count):
            slot = self.wheel.base + i * SLOT_BYTES
            time_ms = <int64_t> load64(slot) * self.precision_ms
            if time_ms < self.read_ms or time_ms == 0:
                continue
            last = self.last_below(<int64_t> load64(slot + LAST_AT), time_ms, cut)
            if load32(slot + MARK_AT) or last < NOWHERE:
                save32(slot + MARK_AT, 1)
                save64(slot + LAST_AT, <uint64_t> NOWHERE)
                save32(slot + COUNT_AT, 0)
                deepest = min(deepest, <int64_t> load64(slot + FIRST_AT))
            elif last == NOWHERE:
                memset(slot, 0, SLOT_BYTES)
            elif last != <int64_t> load64(slot + LAST_AT):
                save64(slot + LAST_AT, <uint64_t> last)
                save32(slot + COUNT_AT, <uint32_t> self.count_chain(last))
            if load64(slot):
                self.pending += <int32_t> load32(slot + COUNT_AT)
        return True if deepest == INT64_MAX else self.put_together(max(deepest, self.units.first_position), cut)

    cdef int64_t last_below(self, int64_t position, int64_t time_ms, int64_t cut) noexcept:
        """The newest unit of a slot below `cut`, NOWHERE for none, less if the chain is broken."""
        cdef uint8_t* unit
        while position != NOWHERE:
            if 0 <= position < self.units.first_position:
                return NOWHERE  # retention has taken it: its record is gone
            unit = self.units.sound(position)
            if unit == NULL or self.slot_of(unit) != time_ms:
                return NOWHERE - 1
            if position < cut:
                return position
            position = <int64_t> load64(unit + PREVIOUS_AT)
        return NOWHERE

    cdef int32_t count_chain(self, int64_t position) noexcept:
        cdef uint8_t* unit
        cdef int32_t count = 0
        while True:
            unit = self.units.sound(position)
            if unit == NULL:
                return count
            count += -1 if load32(unit + KIND_AT) & DELETES else 1
            position = <int64_t> load64(unit + PREVIOUS_AT)

    cdef bint put_together(self, int64_t position, int64_t cut):
        """Link the units of the slots that are marked, then take the marks away."""
        cdef uint8_t* unit
        cdef uint8_t* slot
        cdef int64_t time_ms
        cdef Py_ssize_t i
        while position < cut:
            unit = self.units.sound(position)
            if unit == NULL:
                return False
            time_ms = self.slot_of(unit)
            slot = self.wheel.at(time_ms)
            if load32(slot + MARK_AT) and <int64_t> load64(slot) * self.precision_ms == time_ms:
                save64(unit + PREVIOUS_AT, load64(slot + LAST_AT))
                self.link(slot, time_ms, position, <int32_t> load32(unit + KIND_AT))
            position = self.units.after(position)
        for i in range(self.wheel.slot_count):
            slot = self.wheel.base + i * SLOT_BYTES
            if load32(slot + MARK_AT):
                if <int64_t> load64(slot + LAST_AT) == NOWHERE:
                    memset(slot, 0, SLOT_BYTES)
                save32(slot + MARK_AT, 0)
        return True

    def relink(self, int64_t first, int64_t end) -> None:
        """Link the units in [first, end), which are sound, into the wheel."""
        cdef int64_t position = first, time_ms
        cdef uint8_t* unit
        cdef uint8_t* slot
        while position < end:
            unit = self.units.sound(position)
            if unit != NULL:
                time_ms = self.slot_of(unit)
                slot = self.wheel.at(time_ms)
                if time_ms >= self.read_ms:
                    save64(unit + PREVIOUS_AT, load64(slot + LAST_AT) if <int64_t> load64(slot) * self.precision_ms
                           == time_ms else <uint64_t> NOWHERE)
                    self.link(slot, time_ms, position, <int32_t> load32(unit + KIND_AT))
            position = self.units.after(position)

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

    cdef int add_deletion(self, int64_t log_offset, Wishes* wishes) except -1:
        """Remember a message to be deleted, by both spellings: its unique key, or topic+unique key."""
        self.add_hash(hash_text(HASH_START, wishes.delete_key), log_offset)
        self.add_hash(hash_pair(wishes.real_topic, wishes.delete_key), log_offset)
        return 0

    cdef int add_hash(self, uint64_t hash, int64_t log_offset) except -1:
        cdef Deletion* old = self.deletions
        cdef Py_ssize_t i, old_capacity = self.deletion_capacity
        if self.deletion_count * 2 >= self.deletion_capacity:
            self.deletion_capacity = max(old_capacity * 2, 64)
            self.deletions = <Deletion*> PyMem_Malloc(self.deletion_capacity * sizeof(Deletion))
            if self.deletions == NULL:
                self.deletions = old
                self.deletion_capacity = old_capacity
                raise MemoryError
            memset(self.deletions, 0, self.deletion_capacity * sizeof(Deletion))
            for i in range(old_capacity):
                if old[i].hash:
                    self.place_hash(old[i].hash, old[i].log_offset)
            PyMem_Free(old)
        self.place_hash(hash, log_offset)
        self.deletion_count += 1
        return 0

    cdef void place_hash(self, uint64_t hash, int64_t log_offset) noexcept:
        cdef Py_ssize_t i = hash & <uint64_t> (self.deletion_capacity - 1)
        while self.deletions[i].hash:
            i = (i + 1) & (self.deletion_capacity - 1)
        self.deletions[i] = Deletion(hash, log_offset)

    cdef bint is_deleted(self, Wishes* wishes) noexcept:
        cdef uint64_t hash = hash_pair(wishes.real_topic, wishes.unique_key)
        cdef Py_ssize_t i = hash & <uint64_t> (self.deletion_capacity - 1)
        cdef Fields fields
        cdef Wishes deletion
        cdef Text key
        if wishes.unique_key.size == 0:
            return False
        while self.deletions[i].hash:
            if self.deletions[i].hash == hash and self.read(self.deletions[i].log_offset, &fields, &deletion):
                key = deletion.delete_key
                if same(key, wishes.unique_key) and same(deletion.real_topic, wishes.real_topic):
                    return True
                if (key.size == wishes.real_topic.size + 1 + wishes.unique_key.size
                        and memcmp(key.at, wishes.real_topic.at, wishes.real_topic.size) == 0
                        and key.at[wishes.real_topic.size] == c'+'
                        and memcmp(key.at + wishes.real_topic.size + 1, wishes.unique_key.at,
                                   wishes.unique_key.size) == 0):
                    return True
            i = (i + 1) & (self.deletion_capacity - 1)
        return False


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


cdef inline bint is_name(const uint8_t* at, Py_ssize_t size, const char* name, Py_ssize_t name_size) noexcept nogil:
    return size == name_size and memcmp(at, name, name_size) == 0


cdef void find_wishes(Text text, Wishes* wishes) noexcept nogil:
    """Read what matters here of `name 0x01 value 0x02 ...`; the last of each name counts."""
    cdef Py_ssize_t at = 0, name_end, end, size
    cdef const uint8_t* p = text.at
    cdef const uint8_t* name
    cdef Text value
    memset(wishes, 0, sizeof(Wishes))
    wishes.real_queue_id = wishes.slot_ms = wishes.roll_times = -1
    wishes.delay_s = wishes.delay_ms = wishes.deliver_ms = UNSET
    while at < text.size:
        end = at
        name_end = -1
        while end < text.size and p[end] != 2:
            if p[end] == 1 and name_end < 0:
                name_end = end
            end += 1
        if name_end > at and end > name_end + 1:
            name = p + at
            size = name_end - at
            value = Text(p + name_end + 1, end - name_end - 1)
            if name[0] == c'T' and size > 6 and memcmp(name, <const char*> "TIMER_", 6) == 0:
                note_wish(name, size, value, wishes)
            elif name[0] == c'R':
                if is_name(name, size, "REAL_TOPIC", 10):
                    wishes.real_topic = value
                elif is_name(name, size, "REAL_QID", 8):
                    if not number_of(value, &wishes.real_queue_id) or wishes.real_queue_id > 0x7FFFFFFF:
                        wishes.real_queue_id = -1
            elif is_name(name, size, "UNIQ_KEY", 8):
                wishes.unique_key = value
        at = end + 1


cdef void note_wish(const uint8_t* name, Py_ssize_t size, Text value, Wishes* wishes) noexcept nogil:
    if is_name(name, size, "TIMER_OUT_MS", 12):
        if not number_of(value, &wishes.slot_ms):
            wishes.slot_ms = -1
    elif is_name(name, size, "TIMER_DELAY_SEC", 15):
        number_of(value, &wishes.delay_s)
    elif is_name(name, size, "TIMER_DELAY_MS", 14):
        number_of(value, &wishes.delay_ms)
    elif is_name(name, size, "TIMER_DELIVER_MS", 16):
        number_of(value, &wishes.deliver_ms)
    elif is_name(name, size, "TIMER_DEL_UNIQKEY", 17):
        wishes.delete_key = value
    elif is_name(name, size, "TIMER_ROLL_TIMES", 16):
        wishes.has_marks = True
        if not number_of(value, &wishes.roll_times) or wishes.roll_times < 0:
            wishes.roll_times = 0
    elif is_name(name, size, "TIMER_ENQUEUE_MS", 16) or is_name(name, size, "TIMER_DEQUEUE_MS", 16):
        wishes.has_marks = True


cdef Text without_marks(Text text, uint8_t* to, bint rolls) noexcept nogil:
    """The properties but for the marks of an earlier delivery, copied to `to`."""
    cdef Py_ssize_t at = 0, end, name_end
    cdef const uint8_t* p = text.at
    cdef uint8_t* first = to
    while at < text.size:
        end = at
        name_end = -1
        while end < text.size and p[end] != 2:
            if p[end] == 1 and name_end < 0:
                name_end = end
            end += 1
        end = min(end + 1, text.size)
        if not (is_name(p + at, name_end - at, "TIMER_ENQUEUE_MS", 16)
                or is_name(p + at, name_end - at, "TIMER_DEQUEUE_MS", 16)
                or (rolls and is_name(p + at, name_end - at, "TIMER_ROLL_TIMES", 16))):
            memcpy(to, p + at, end - at)
            to += end - at
        at = end
    return Text(first, to - first)


cdef uint8_t* put_pair(uint8_t* to, const char* name, Py_ssize_t name_size, int64_t number) noexcept nogil:
    """Write `name 0x01 number 0x02`; the number is not negative."""
    memcpy(to, name, name_size)
    to += name_size
    to[0] = 1
    to += 1
    to = put_digits(to, <uint64_t> number)
    to[0] = 2
    return to + 1


cdef uint64_t HASH_START = 0xCBF29CE484222325


cdef inline uint64_t hash_text(uint64_t hash, Text text) noexcept nogil:
    """FNV-1a; never 0, which is how an empty place looks."""
    cdef Py_ssize_t i
    for i in range(text.size):
        hash = (hash ^ text.at[i]) * <uint64_t> 0x100000001B3
    return hash if hash else 1


cdef uint64_t hash_pair(Text topic, Text key) noexcept nogil:
    """The hash of `topic+key`."""
    cdef uint64_t hash = hash_text(HASH_START, topic)
    return hash_text(hash_text(hash, Text(<const uint8_t*> "+", 1)), key)


cdef inline bint same(Text one, Text other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef inline bytes bytes_of(Text text):
    return PyBytes_FromStringAndSize(<char*> text.at, text.size)
