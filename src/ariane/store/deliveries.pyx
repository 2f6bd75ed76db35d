"""Messages whose time has come, copied from the queue they wait in to the queue they are meant for.

The copy has the waiting record's body, properties, flags and birth; only its place and its store time
are its own. `deliver` does what `broker/schedule.py` does for one message at a time, for as many as are
due and plain: whenever room, a queue or a record is missing it stops and says so, and that one message
is left to Python. After each message its progress is noted in a mapped file, so that a killed process
is followed by one that knows what was delivered.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint64_t

from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport (
    ENTRY_SIZE_AT, ENTRY_TAGS_AT, PADDING_SIZE, QUEUE_ENTRY_BYTES, Draft, Fields, Text, bytes_of, is_word, load32,
    load64, publish, same, save64,
)
from ariane.kernel.log cimport Log, draft_again, next_store_ms, relocate, visible_end
from ariane.kernel.properties cimport Pairs, next_pair, pairs_of
from ariane.kernel.queue cimport Queue
from ariane.kernel.records cimport read_fields, readable_size

# A noted progress: next, end, log end, check; twice, written in turn.
cdef enum:
    COPY_BYTES = 32
    SLOT_BYTES = 64

CAUGHT_UP = 0       # nothing more is due
COUNT_REACHED = 1   # more is due
HANDLING_NEEDED = 2 # the next message needs room, or a queue, or cannot be delivered at all

cdef uint64_t CHECK = 0x41524941444C4159


cdef class Target:
    """A queue that messages are delivered to, and what was."""

    cdef readonly Queue queue
    cdef readonly int64_t message_count
    cdef readonly int64_t byte_count

    def __init__(self, Queue queue not None):
        self.queue = queue

    def take(self) -> tuple[int, int]:
        """Messages and bytes delivered since this was last asked."""
        taken = self.message_count, self.byte_count
        self.message_count = self.byte_count = 0
        return taken


cdef class Slots:
    """Progress by slot number, in a mapped file: [next, end) is what a slot has left to deliver.

    A slot has two copies and the older is overwritten, so a kill within a write leaves the other. What
    is noted holds only as long as the log reaches `log_end`: a log that lost its tail lost
    deliveries with it.
    """

    cdef object buffer
    cdef uint8_t* base
    cdef readonly Py_ssize_t slot_count

    def __init__(self, buffer):
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.base = <uint8_t*> view.buf
        self.slot_count = view.len // SLOT_BYTES
        PyBuffer_Release(&view)
        self.buffer = memoryview(buffer)

    def release(self) -> None:
        """Let go of the map; the slots must not be used any more."""
        self.base = NULL
        self.buffer.release()

    def get(self, Py_ssize_t slot, int64_t log_end) -> tuple[int, int] | None:
        """(next, end) as last noted while the log was no longer than `log_end`; None if never."""
        self.check_number(slot)
        cdef uint8_t* first = self.base + slot * SLOT_BYTES
        cdef bint has_first = is_sound(first, log_end)
        cdef bint has_second = is_sound(first + COPY_BYTES, log_end)
        if not has_first and not has_second:
            return None
        if has_second and (not has_first or load64(first + COPY_BYTES + 16) > load64(first + 16)):
            first += COPY_BYTES
        return <int64_t> load64(first), <int64_t> load64(first + 8)

    def note(self, Py_ssize_t slot, int64_t next_offset, int64_t end, int64_t log_end) -> None:
        """Note what a slot has left; `log_end` grows from note to note."""
        self.check_number(slot)
        note(self.base + slot * SLOT_BYTES, next_offset, end, log_end)

    def reset(self, Py_ssize_t slot, int64_t next_offset, int64_t end, int64_t log_end) -> None:
        """Note the same in both copies: whatever they said before is forgotten."""
        self.check_number(slot)
        cdef uint8_t* at = self.base + slot * SLOT_BYTES
        save_copy(at, next_offset, end, log_end)
        save_copy(at + COPY_BYTES, next_offset, end, log_end)

    cdef int check_number(self, Py_ssize_t slot) except -1:
        if self.base == NULL or not 0 <= slot < self.slot_count:
            raise IndexError(f"slot {slot} of {self.slot_count}")
        return 0


cdef bint is_sound(const uint8_t* copy, int64_t log_end) noexcept nogil:
    cdef uint64_t check = load64(copy) ^ load64(copy + 8) ^ load64(copy + 16) ^ CHECK
    return load64(copy + 24) == check and <int64_t> load64(copy + 16) <= log_end


cdef void save_copy(uint8_t* copy, int64_t next_offset, int64_t end, int64_t log_end) noexcept nogil:
    save64(copy + 24, 0)
    publish()
    save64(copy, next_offset)
    save64(copy + 8, end)
    save64(copy + 16, log_end)
    publish()
    save64(copy + 24, <uint64_t> next_offset ^ <uint64_t> end ^ <uint64_t> log_end ^ CHECK)


cdef void note(uint8_t* slot, int64_t next_offset, int64_t end, int64_t log_end) noexcept nogil:
    """Overwrite the copy with less in the log."""
    if load64(slot + 16) <= load64(slot + COPY_BYTES + 16):
        save_copy(slot, next_offset, end, log_end)
    else:
        save_copy(slot + COPY_BYTES, next_offset, end, log_end)


def deliver(Log log not None, Index index, Queue source not None, dict targets not None, Slots slots not None,
            Py_ssize_t slot, *, int64_t first, int64_t stop, int64_t end, int64_t due_ms, int64_t now_ms,
            int count_max, list touched not None) -> tuple[int, int, int]:
    """Place due messages of `source` in [first, stop) in their queues: (next, how it went, when next).

    A message is due when its entry's time is not after `due_ms`. `targets` has a Target for each
    `topic + b"\\0" + queue id` met so far; those that got something are appended to `touched`. The
    slot's `end` is noted along with progress.
    The last of the answer is the time of the message at next, when that is known and
    not yet come, else -1.
    """
    slots.check_number(slot)
    cdef uint8_t* noted = slots.base + slot * SLOT_BYTES
    cdef int64_t offset = first, where, size, deliver_ms, before
    cdef int64_t visible = visible_end(log, source)
    cdef uint8_t* at
    cdef uint8_t* record
    cdef Fields fields
    cdef Draft draft
    cdef Text topic = Text(NULL, 0), queue_id = Text(NULL, 0)
    cdef Target target = None
    cdef Text last_topic = Text(NULL, 0), last_queue_id = Text(NULL, 0)
    stop = min(stop, visible)
    while offset < stop:
        at = source.at(offset * QUEUE_ENTRY_BYTES)
        if at == NULL:
            return offset, HANDLING_NEEDED, -1
        deliver_ms = <int64_t> load64(at + ENTRY_TAGS_AT)
        if deliver_ms > due_ms:
            return offset, CAUGHT_UP, deliver_ms
        if count_max == 0:
            return offset, COUNT_REACHED, -1
        where = <int64_t> load64(at)
        size = readable_size(log, where, log.visible)
        if size == 0 or load32(at + ENTRY_SIZE_AT) == PADDING_SIZE:
            return offset, HANDLING_NEEDED, -1
        record = log.at(where)
        if read_fields(record, &fields) != size:
            return offset, HANDLING_NEEDED, -1
        find_real(fields.properties, &topic, &queue_id)
        if topic.size == 0 or queue_id.size == 0:
            return offset, HANDLING_NEEDED, -1
        if target is None or not same(topic, last_topic) or not same(queue_id, last_queue_id):
            target = targets.get(key_of(topic, queue_id))
            if target is None:
                return offset, HANDLING_NEEDED, -1
            last_topic, last_queue_id = topic, queue_id
        draft_again(record, &fields, &draft)
        now_ms = next_store_ms(log, now_ms)
        before = log.end
        if relocate(log, target.queue, index, &draft, now_ms) < 0:
            return offset, HANDLING_NEEDED, -1
        offset += 1
        note(noted, offset, end, log.end)
        if target.message_count == 0:
            touched.append(target)
        target.message_count += 1
        target.byte_count += log.end - before
        count_max -= 1
    return offset, CAUGHT_UP, -1


def descents(Queue queue not None, int64_t first, int64_t end) -> list[int]:
    """Where in [first, end) a message is due before the one in front of it."""
    cdef int64_t offset, before = -1, now
    cdef uint8_t* at
    found = []
    for offset in range(first, end):
        at = queue.at(offset * QUEUE_ENTRY_BYTES)
        if at == NULL:
            break
        now = <int64_t> load64(at + ENTRY_TAGS_AT)
        if now < before:
            found.append(offset)
        before = now
    return found


cdef bytes key_of(Text topic, Text queue_id):
    return bytes_of(topic) + b"\0" + bytes_of(queue_id)


cdef void find_real(Text text, Text* topic, Text* queue_id) noexcept nogil:
    """REAL_TOPIC and REAL_QID of a properties text; the last of each counts."""
    cdef Pairs rest = pairs_of(text)
    cdef Text name, value
    topic[0] = queue_id[0] = Text(NULL, 0)
    while next_pair(&rest, &name, &value):
        if is_word(name, "REAL_TOPIC", 10):
            topic[0] = value
        elif is_word(name, "REAL_QID", 8):
            queue_id[0] = value
