"""Arrow columns to batches: what the sink does for each row, in one call for each RecordBatch.

A row becomes an entry of a batch (docs/formats/record.md) in the chunk of its lane. Lanes are numbered by
whoever asks: each topic has one for every queue and one more for rows that may go to any, and each of
these twice, since rows that ask for a time travel apart. A chunk that is full is handed out as bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from ariane.kernel.digits cimport put_digits
from ariane.kernel.hashing cimport java_hash_from
from ariane.kernel.layout cimport BATCH_ENTRY_BYTES_MIN, BATCH_ENTRY_HEAD_BYTES, save16, save32

cdef enum:
    UNIQUE_KEY_BYTES = 32
    KEY_HEAD_BYTES = 20         # of them; the row's number is the rest
    PROPERTIES_BYTES_MAX = 32000  # a little less than a record takes: a broker may add its own
    FIXED_BYTES = 128           # more than what names and separators take
    NAME_BYTES_MAX = 40

cdef enum Fault:
    NONE = 0
    NULL_BODY
    EMPTY_BODY
    LONG_BODY
    NULL_TOPIC
    BAD_QUEUE
    SEPARATOR
    LONG_PROPERTIES
    NO_NAME
    NO_MEMORY

FAULTS = {
    NULL_BODY: "the body is null",
    EMPTY_BODY: "the body is empty, and brokers take no message without one",
    LONG_BODY: "the body is longer than a broker takes",
    NULL_TOPIC: "the topic is null; fill the column, or give the option topic",
    BAD_QUEUE: "the topic has no such queueId",
    SEPARATOR: "a key, tag, sharding key or property holds the character 1 or 2, which separate properties",
    LONG_PROPERTIES: f"keys, tags and properties take more than {PROPERTIES_BYTES_MAX} bytes",
    NO_NAME: "a property has no name",
}


class RowFault(ValueError):
    """A row that cannot be a message: (row number, what is wrong)."""


cdef class Column:
    """Buffers of one Arrow array, from its first row on; they must outlive no call but are kept anyway."""

    cdef Py_buffer[3] views
    cdef int held
    cdef const uint8_t* validity
    cdef int64_t first
    cdef int64_t count

    def __cinit__(self, *arguments, **keywords):
        self.held = 0

    def __dealloc__(self):
        cdef int i
        for i in range(self.held):
            PyBuffer_Release(&self.views[i])

    cdef const uint8_t* hold(self, buffer, int64_t bytes_needed) except? NULL:
        """The bytes of a buffer, or NULL for none when none are needed."""
        if buffer is None:
            if bytes_needed > 0:
                raise ValueError("an Arrow column lacks a buffer")
            return NULL
        PyObject_GetBuffer(buffer, &self.views[self.held], PyBUF_SIMPLE)
        self.held += 1
        if self.views[self.held - 1].len < bytes_needed:
            raise ValueError("a buffer of an Arrow column is too short")
        return <const uint8_t*> self.views[self.held - 1].buf

    cdef inline bint is_null(self, int64_t row) noexcept nogil:
        cdef int64_t at = self.first + row
        return self.validity != NULL and not (self.validity[at >> 3] >> (at & 7)) & 1


cdef class Texts(Column):
    """A column of strings or bytes, with offsets of four bytes."""

    cdef const int32_t* offsets
    cdef const uint8_t* data

    def __init__(self, validity, offsets, data, int64_t first, int64_t count):
        self.first = first
        self.count = count
        self.validity = NULL if validity is None else self.hold(validity, (first + count + 7) // 8)
        self.offsets = <const int32_t*> self.hold(offsets, 4 * (first + count + 1) if count else 0)
        cdef int64_t end = self.offsets[first + count] if count else 0
        self.data = self.hold(data, end)
        cdef int64_t i
        for i in range(first, first + count):
            if self.offsets[i] < 0 or self.offsets[i + 1] < self.offsets[i]:
                raise ValueError("the offsets of an Arrow column step back")

    cdef inline const uint8_t* at(self, int64_t row, int64_t* size) noexcept nogil:
        """A value; a null one has no bytes."""
        cdef int32_t start = self.offsets[self.first + row]
        size[0] = 0 if self.is_null(row) else self.offsets[self.first + row + 1] - start
        return self.data + start


cdef class Numbers(Column):
    """A column of numbers of four or eight bytes."""

    cdef const uint8_t* data
    cdef int width

    def __init__(self, validity, data, int64_t first, int64_t count, int width):
        if width != 4 and width != 8:
            raise ValueError("numbers have four or eight bytes")
        self.first = first
        self.count = count
        self.width = width
        self.validity = NULL if validity is None else self.hold(validity, (first + count + 7) // 8)
        self.data = self.hold(data, width * (first + count) if count else 0)

    cdef inline int64_t get(self, int64_t row) noexcept nogil:
        if self.width == 4:
            return (<const int32_t*> self.data)[self.first + row]
        return (<const int64_t*> self.data)[self.first + row]


cdef class Pairs(Column):
    """A column of maps from string to string."""

    cdef const int32_t* offsets
    cdef Texts names
    cdef Texts values

    def __init__(self, validity, offsets, Texts names not None, Texts values not None, int64_t first, int64_t count):
        self.first = first
        self.count = count
        self.names = names
        self.values = values
        self.validity = NULL if validity is None else self.hold(validity, (first + count + 7) // 8)
        self.offsets = <const int32_t*> self.hold(offsets, 4 * (first + count + 1) if count else 0)
        cdef int64_t i
        for i in range(first, first + count):
            if self.offsets[i] < 0 or self.offsets[i + 1] < self.offsets[i] or self.offsets[i + 1] > names.count:
                raise ValueError("the offsets of an Arrow column step back")
        if names.count != values.count:
            raise ValueError("a map has as many names as values")


cdef struct Lane:
    uint8_t* data
    int64_t size
    int64_t capacity
    int64_t rows


cdef class Names:
    """Property names that are left out, found by their length first."""

    cdef list names
    cdef list by_size

    def __init__(self, names):
        self.names = [name.encode() for name in names]
        self.by_size = [b"".join(name for name in self.names if len(name) == size) for size in range(NAME_BYTES_MAX)]

    cdef bint holds(self, const uint8_t* name, int64_t size):
        cdef bytes joined
        cdef int64_t at = 0
        if size >= NAME_BYTES_MAX or size == 0:
            return False
        joined = self.by_size[size]
        while at < len(joined):
            if memcmp(PyBytes_AS_STRING(joined) + at, name, size) == 0:
                return True
            at += size
        return False


cdef class RowEncoder:
    """Turns rows of one task into chunks; `finished` of (lane, bytes, rows) is the caller's to empty."""

    cdef Lane* lanes
    cdef int64_t lane_count
    cdef uint8_t[UNIQUE_KEY_BYTES] unique_key
    cdef readonly int64_t row_count       # rows of the task so far
    cdef readonly int64_t held_bytes      # in chunks that are not full
    cdef readonly list finished
    cdef int64_t chunk_bytes
    cdef int64_t held_bytes_max
    cdef int64_t body_bytes_max
    cdef int64_t late_rows_max
    cdef Names left_out

    def __cinit__(self, *arguments, **keywords):
        self.lanes = NULL
        self.lane_count = 0

    def __init__(self, bytes key_head not None, Names left_out not None, *, int64_t chunk_bytes,
                 int64_t held_bytes_max, int64_t body_bytes_max, int64_t late_rows_max):
        if len(key_head) != KEY_HEAD_BYTES:
            raise ValueError(f"a unique key begins with {KEY_HEAD_BYTES} characters")
        memcpy(self.unique_key, PyBytes_AS_STRING(key_head), KEY_HEAD_BYTES)
        self.left_out = left_out
        self.chunk_bytes = chunk_bytes
        self.held_bytes_max = held_bytes_max
        self.body_bytes_max = body_bytes_max
        self.late_rows_max = late_rows_max
        self.row_count = self.held_bytes = 0
        self.finished = []

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.lane_count):
            PyMem_Free(self.lanes[i].data)
        PyMem_Free(self.lanes)

    def encode(self, int64_t rows, Texts bodies not None, *, const int32_t[::1] table not None, Numbers topics=None,
               Texts keys=None, Texts tags=None, Texts sharding_keys=None, Pairs properties=None,
               Numbers queue_ids=None, Numbers deliver_us=None) -> None:
        """Take the rows of a RecordBatch; RowFault names the first that cannot be a message.

        `topics` are numbers of topics, all rows being of the first without them; `table` has for each topic
        the number of its first lane pair and how many queues it has.
        """
        cdef int64_t i, topic, lane
        cdef int64_t topic_count = table.shape[0] // 2
        cdef Fault fault = NONE
        cdef Column column
        for column in (bodies, topics, keys, tags, sharding_keys, properties, queue_ids, deliver_us):
            if column is not None and column.count != rows:
                raise ValueError("the columns of a RecordBatch are equally long")
        for i in range(topic_count):
            self.make_lanes(2 * (<int64_t> table[2 * i] + table[2 * i + 1] + 1))
        for i in range(rows):
            topic = 0
            if topics is not None:
                if topics.is_null(i):
                    fault = NULL_TOPIC
                    break
                topic = topics.get(i)
            if topic < 0 or topic >= topic_count:
                raise ValueError(f"a row is of topic {topic} of {topic_count}")
            lane = table[2 * topic + 1]
            if queue_ids is not None and not queue_ids.is_null(i):
                lane = queue_ids.get(i)
                if lane < 0 or lane >= table[2 * topic + 1]:
                    fault = BAD_QUEUE
                    break
            elif sharding_keys is not None and not sharding_keys.is_null(i):
                lane = queue_of(sharding_keys, i, table[2 * topic + 1])
            lane = 2 * (table[2 * topic] + lane)
            if deliver_us is not None and not deliver_us.is_null(i):
                lane += 1
            fault = self.add(lane, i, bodies, keys, tags, sharding_keys, properties, deliver_us)
            if fault != NONE:
                break
        if fault == NO_MEMORY:
            raise MemoryError
        if fault != NONE:
            raise RowFault(self.row_count, FAULTS[fault])

    def finish(self) -> None:
        """Hand out every chunk that is not full."""
        cdef int64_t i
        for i in range(self.lane_count):
            if self.lanes[i].size:
                self.hand_out(i)

    cdef int make_lanes(self, int64_t count) except -1:
        if count <= self.lane_count:
            return 0
        cdef Lane* lanes = <Lane*> PyMem_Realloc(self.lanes, count * sizeof(Lane))
        if lanes == NULL:
            raise MemoryError
        memset(lanes + self.lane_count, 0, (count - self.lane_count) * sizeof(Lane))
        self.lanes = lanes
        self.lane_count = count
        return 0

    cdef Fault add(self, int64_t number, int64_t row, Texts bodies, Texts keys, Texts tags, Texts sharding_keys,
                   Pairs properties, Numbers deliver_us) except *:
        """One more entry in the chunk of a lane; a chunk that is full is handed out before."""
        cdef int64_t body_size, size, pairs_first = 0, pairs_end = 0, i, value_size
        cdef const uint8_t* body
        cdef const uint8_t* text
        cdef uint8_t* start
        cdef uint8_t* to
        if bodies.is_null(row):
            return NULL_BODY
        body = bodies.at(row, &body_size)
        if body_size == 0:
            return EMPTY_BODY
        if body_size > self.body_bytes_max:
            return LONG_BODY
        size = BATCH_ENTRY_BYTES_MIN + FIXED_BYTES + body_size
        if keys is not None:
            keys.at(row, &value_size)
            size += value_size
        if tags is not None:
            tags.at(row, &value_size)
            size += value_size
        if sharding_keys is not None:
            sharding_keys.at(row, &value_size)
            size += value_size
        if properties is not None and not properties.is_null(row):
            pairs_first = properties.offsets[properties.first + row]
            pairs_end = properties.offsets[properties.first + row + 1]
            for i in range(pairs_first, pairs_end):
                properties.names.at(i, &value_size)
                size += value_size + 2
                properties.values.at(i, &value_size)
                size += value_size
        if size - body_size > PROPERTIES_BYTES_MAX:
            return LONG_PROPERTIES
        start = self.room(number, size)
        if start == NULL:
            return NO_MEMORY
        to = start + BATCH_ENTRY_HEAD_BYTES
        memcpy(to, body, body_size)
        to += body_size + 2
        for i in range(pairs_first, pairs_end):
            text = properties.names.at(i, &size)
            if size == 0:
                return NO_NAME
            if self.left_out.holds(text, size):
                continue
            body = properties.values.at(i, &value_size)
            if value_size == 0:
                continue  # as good as no property, to every client
            if holds_separator(text, size) or holds_separator(body, value_size):
                return SEPARATOR
            memcpy(to, text, size)
            to[size] = 1
            memcpy(to + size + 1, body, value_size)
            to[size + 1 + value_size] = 2
            to += size + value_size + 2
        if keys is not None:
            to = put_text(to, "KEYS\x01", 5, keys, row)
        if to != NULL and tags is not None:
            to = put_text(to, "TAGS\x01", 5, tags, row)
        if to != NULL and sharding_keys is not None:
            to = put_text(to, "__SHARDINGKEY\x01", 14, sharding_keys, row)
        if to == NULL:
            return SEPARATOR
        if deliver_us is not None and not deliver_us.is_null(row):
            to = put_time(to, deliver_us.get(row))
        to = self.put_unique_key(to)
        self.end_entry(number, start, to, body_size)
        return NONE

    cdef uint8_t* room(self, int64_t number, int64_t size) except? NULL:
        """Where an entry of at most so many bytes goes in the chunk of a lane."""
        cdef Lane* lane = &self.lanes[number]
        cdef bint is_late = number & 1
        cdef uint8_t* data
        cdef int64_t capacity
        if lane.size and (lane.size + size > self.chunk_bytes or (is_late and lane.rows >= self.late_rows_max)):
            self.hand_out(number)
        if self.held_bytes + size > self.held_bytes_max:
            self.finish()
        if lane.capacity - lane.size < size:
            capacity = max(lane.size + size, min(2 * lane.capacity, self.chunk_bytes), 4096)
            data = <uint8_t*> PyMem_Realloc(lane.data, capacity)
            if data == NULL:
                return NULL
            lane.data = data
            lane.capacity = capacity
        return lane.data + lane.size

    cdef void end_entry(self, int64_t number, uint8_t* start, uint8_t* end, int64_t body_size) noexcept:
        cdef Lane* lane = &self.lanes[number]
        cdef int64_t size = end - start
        save32(start, <uint32_t> size)
        save32(start + 4, 0)
        save32(start + 8, 0)
        save32(start + 12, 0)
        save32(start + 16, <uint32_t> body_size)
        save16(start + BATCH_ENTRY_HEAD_BYTES + body_size, <uint16_t> (size - BATCH_ENTRY_BYTES_MIN - body_size))
        lane.size += size
        lane.rows += 1
        self.held_bytes += size
        self.row_count += 1

    cdef int hand_out(self, int64_t number) except -1:
        cdef Lane* lane = &self.lanes[number]
        self.finished.append((number, PyBytes_FromStringAndSize(<char*> lane.data, lane.size), lane.rows))
        self.held_bytes -= lane.size
        lane.size = lane.rows = 0
        if lane.capacity > self.chunk_bytes or self.lane_count > 64:
            PyMem_Free(lane.data)
            lane.data = NULL
            lane.capacity = 0
        return 0

    cdef uint8_t* put_unique_key(self, uint8_t* to) noexcept:
        """The task's part of the key and the row's number, in hexadecimal."""
        cdef int64_t number = self.row_count
        cdef int i
        for i in range(UNIQUE_KEY_BYTES - 1, KEY_HEAD_BYTES - 1, -1):
            self.unique_key[i] = DIGITS[number & 15]
            number >>= 4
        memcpy(to, <const char*> "UNIQ_KEY\x01", 9)
        memcpy(to + 9, self.unique_key, UNIQUE_KEY_BYTES)
        to[9 + UNIQUE_KEY_BYTES] = 2
        return to + 10 + UNIQUE_KEY_BYTES


cdef const char* DIGITS = "0123456789ABCDEF"


cdef inline int64_t queue_of(Texts keys, int64_t row, int64_t queue_count) noexcept nogil:
    """The queue that Java's SelectMessageQueueByHash takes; the first for the hash that has no positive twin."""
    cdef int64_t size, hash
    cdef const uint8_t* text = keys.at(row, &size)
    hash = java_hash_from(0, text, size)
    if hash == -(<int64_t> 1 << 31):
        return 0
    return (-hash if hash < 0 else hash) % queue_count


cdef inline bint holds_separator(const uint8_t* text, int64_t size) noexcept nogil:
    return memchr(text, 1, size) != NULL or memchr(text, 2, size) != NULL


cdef uint8_t* put_text(uint8_t* to, const char* name, int name_size, Texts texts, int64_t row) noexcept nogil:
    """A property, unless it has no value; NULL when that holds a separator."""
    cdef int64_t size
    cdef const uint8_t* text = texts.at(row, &size)
    if size == 0:
        return to
    if holds_separator(text, size):
        return NULL
    memcpy(to, name, name_size)
    memcpy(to + name_size, text, size)
    to[name_size + size] = 2
    return to + name_size + size + 1


cdef uint8_t* put_time(uint8_t* to, int64_t moment_us) noexcept nogil:
    """When to deliver, in milliseconds; a time before 1970 is as good as its beginning."""
    cdef int64_t moment_ms = moment_us // 1000 if moment_us > 0 else 0
    memcpy(to, <const char*> "TIMER_DELIVER_MS\x01", 17)
    to += 17
    to = put_digits(to, <uint64_t> moment_ms)
    to[0] = 2
    return to + 1
