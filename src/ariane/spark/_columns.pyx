"""Records to columns: from what a pull brought, or from a mapped store, to the buffers of Arrow arrays.

A `Gatherer` finds the records of one batch (`walk` through an answer, `follow` the entries of a consume
queue), looks at every length before it follows it, leaves out what its filters and its window of queue
offsets do not let through, and notes where the parts of the others lie. `columns` then copies just the
columns that are wanted. Nothing is made per message, except for bodies that are compressed and texts that
are not UTF-8.

A column is the buffers of its Arrow array, in Arrow's order (docs/formats/record.md says what they hold):
numbers have one, texts their 32-bit offsets and bytes, `keys` and `tags` a bitmap of those that are there in
front, and the map of properties its offsets followed by the texts of names and values.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ariane.kernel.digits cimport put_digits
from ariane.store.filters cimport YES, Filter
from ariane.kernel.hashing cimport body_crc
from ariane.kernel.layout cimport (
    BORN_HOST_AT, BORN_MS_AT, COMPRESSED, CRC_AT, ENTRY_SIZE_AT, ENTRY_TAGS_AT, LOG_OFFSET_AT, MAGIC_AT, PADDING_SIZE,
    QUEUE_ENTRY_BYTES, QUEUE_OFFSET_AT, RECONSUME_TIMES_BEFORE_BODY, RECORD_BYTES_MIN, SIZE_AT, SYSTEM_FLAG_AT, Fields,
    Text, born_host_bytes, bytes_of, expect_read, is_record_magic, is_word, load32, load64, same, store_host_bytes,
    text_of,
)
from ariane.kernel.properties cimport Pairs, next_pair, pairs_of, properties_of, value_of
from ariane.kernel.reading cimport Tags
from ariane.kernel.records cimport read_fields

from ariane.errors import CorruptRecord, ProtocolError

cdef extern from "texts.h" nogil:
    void copy_short(uint8_t* to, const uint8_t* start, size_t size)
    bint is_utf8(const uint8_t* at, const uint8_t* end)

# The columns, in the order of the source's schema.
cdef enum:
    TOPIC = 0
    BROKER_NAME = 1
    QUEUE_ID = 2
    QUEUE_OFFSET = 3
    MESSAGE_ID = 4
    KEYS = 5
    TAGS = 6
    BODY = 7
    PROPERTIES = 8
    BORN_AT = 9
    STORED_AT = 10
    BORN_HOST = 11
    RECONSUME_TIMES = 12
    SYSTEM_FLAG = 13
    LOG_OFFSET = 14
    COLUMN_COUNT = 15

# Why `follow` went no further.
cdef enum:
    FULL = 0            # the batch has all it may, or the entries given are through
    END_OF_QUEUE = 1    # an entry that has not been written
    LOG_MISSING = 2     # `stopped_at` is a log offset that no segment given holds
    DAMAGED = 3         # an entry whose record is not there

STOP_FULL, STOP_END_OF_QUEUE, STOP_LOG_MISSING, STOP_DAMAGED = FULL, END_OF_QUEUE, LOG_MISSING, DAMAGED

cdef enum:
    PAIRS_AT_ONCE = 64          # properties of one message; those with more take the slow way
    ENTRIES_AHEAD = 12          # records this far on are fetched from memory while one is looked at
    OFFSET_ID_CHARACTERS_MAX = 56
    HOST_CHARACTERS_MAX = 64

cdef int64_t TEXT_BYTES_MAX = 0x7FFFFFFF
cdef int64_t MS_MAX = 9223372036854775
cdef const char* HEX = "0123456789ABCDEF"

cdef struct Row:
    const uint8_t* at
    Text topic
    Text body
    Text properties
    int64_t queue_offset
    int64_t log_offset
    int64_t born_ms
    int64_t store_ms
    int32_t queue_id
    int32_t system_flag
    int32_t reconsume_times
    int32_t inflated            # which inflated body is its own; -1 for the one in the record

cdef struct Pair:
    Text name
    Text value


cdef class LogView:
    """Segments of a commit log, read-only, by the log offsets they begin at."""

    cdef list buffers
    cdef list order             # the log offsets, in the order they were added
    cdef const uint8_t** pointers
    cdef int64_t* bases
    cdef int64_t* sizes
    cdef Py_ssize_t count
    cdef Py_ssize_t last        # where the last record was

    def __cinit__(self):
        self.buffers = []
        self.order = []
        self.pointers = NULL
        self.bases = self.sizes = NULL
        self.count = self.last = 0

    def __dealloc__(self):
        PyMem_Free(self.pointers)
        PyMem_Free(self.bases)
        PyMem_Free(self.sizes)

    def __contains__(self, base) -> bool:
        return base in self.order

    @property
    def bases_held(self) -> list:
        """The log offsets where its segments begin, oldest addition first."""
        return list(self.order)

    def add(self, int64_t base, buffer) -> None:
        """Take a segment that begins at log offset `base`."""
        cdef Py_buffer view
        cdef Py_ssize_t room = self.count + 1
        if base in self.order:
            raise ValueError(f"the segment at {base} is there already")
        self.pointers = <const uint8_t**> grown(self.pointers, room * sizeof(uint8_t*))
        self.bases = <int64_t*> grown(self.bases, room * sizeof(int64_t))
        self.sizes = <int64_t*> grown(self.sizes, room * sizeof(int64_t))
        held = memoryview(buffer)       # an exported view: the owner cannot unmap it under us
        PyObject_GetBuffer(held, &view, PyBUF_SIMPLE)
        self.pointers[self.count] = <const uint8_t*> view.buf
        self.sizes[self.count] = view.len
        PyBuffer_Release(&view)
        self.bases[self.count] = base
        self.count += 1
        self.buffers.append(held)
        self.order.append(base)

    def drop_oldest(self) -> int:
        """Let go of the segment that was added first; returns where it begins."""
        cdef Py_ssize_t i
        if self.count == 0:
            raise IndexError("no segment to drop")
        self.buffers.pop(0)     # whoever still reads there holds it too
        for i in range(1, self.count):
            self.pointers[i - 1] = self.pointers[i]
            self.bases[i - 1] = self.bases[i]
            self.sizes[i - 1] = self.sizes[i]
        self.count -= 1
        self.last = 0
        return self.order.pop(0)

    def store_ms_of(self, int64_t log_offset, int32_t size) -> int:
        """When the record of that size was stored; -1 when none lies there, None without its segment."""
        cdef Text where = self.find(log_offset)
        cdef Fields fields
        if where.at == NULL:
            return None
        if not is_record(where, log_offset, size, &fields):
            return -1
        return fields.store_ms

    def is_entry_true(self, int64_t log_offset, int32_t size, int64_t queue_offset, int32_t queue_id) -> bool:
        """Whether the record that a queue entry means lies there whole; False without its segment.

        It may be on its way: a log is written front to back, so its last byte tells, and the CRC of its body.
        """
        cdef Text where = self.find(log_offset)
        cdef Fields fields
        return (where.at != NULL and is_record(where, log_offset, size, &fields)
                and <int64_t> load64(where.at + QUEUE_OFFSET_AT) == queue_offset and fields.queue_id == queue_id
                and fields.topic.size > 0 and fields.topic.at[fields.topic.size - 1] != 0
                and (fields.properties.size == 0 or where.at[size - 1] != 0)
                and body_crc(fields.body.at, fields.body.size) == load32(where.at + CRC_AT))

    def record(self, int64_t log_offset, int32_t size) -> bytes:
        """The record of that size, or None when it is not there."""
        cdef Text where = self.find(log_offset)
        cdef Fields fields
        if where.at == NULL or not is_record(where, log_offset, size, &fields):
            return None
        return PyBytes_FromStringAndSize(<const char*> where.at, size)

    cdef Text find(self, int64_t log_offset) noexcept nogil:
        """The bytes from a log offset to the end of its segment; at NULL when no segment holds it."""
        cdef Py_ssize_t i = self.last
        if i < self.count and 0 <= log_offset - self.bases[i] < self.sizes[i]:
            return Text(self.pointers[i] + (log_offset - self.bases[i]), self.sizes[i] - (log_offset - self.bases[i]))
        for i in range(self.count):
            if 0 <= log_offset - self.bases[i] < self.sizes[i]:
                self.last = i
                return Text(self.pointers[i] + (log_offset - self.bases[i]),
                            self.sizes[i] - (log_offset - self.bases[i]))
        return Text(NULL, 0)


cdef inline bint is_record(Text where, int64_t log_offset, int64_t size, Fields* fields) noexcept nogil:
    """Whether a whole record of that size, which says that it belongs there, begins at `where`."""
    return (RECORD_BYTES_MIN <= size <= where.size
            and is_record_magic(load32(where.at + MAGIC_AT))
            and <int32_t> load32(where.at + SIZE_AT) == size
            and <int64_t> load64(where.at + LOG_OFFSET_AT) == log_offset
            and read_fields(where.at, fields) == size)


@cython.final
cdef class TextColumn:
    """The bytes and offsets of a column of texts, and which of them are there."""

    cdef object allocate
    cdef object data
    cdef object offsets_buffer
    cdef object bitmap_buffer
    cdef uint8_t* base
    cdef int64_t size
    cdef int64_t capacity
    cdef int32_t* offsets
    cdef uint8_t* bitmap
    cdef int64_t count
    cdef int64_t null_count

    def __init__(self, allocate, int64_t count_max, int64_t byte_count, bint may_lack):
        self.allocate = allocate
        self.data = allocate(byte_count + 64)
        self.base = writable(self.data)
        self.capacity = byte_count + 64
        self.offsets_buffer = allocate((count_max + 1) * 4)
        self.offsets = <int32_t*> writable(self.offsets_buffer)
        self.offsets[0] = 0
        self.bitmap_buffer = None
        self.bitmap = NULL
        if may_lack:
            self.bitmap_buffer = allocate((count_max + 7) // 8 + 8)
            self.bitmap = writable(self.bitmap_buffer)
            memset(self.bitmap, 0, (count_max + 7) // 8 + 8)

    cdef inline int put(self, const uint8_t* at, int64_t size) except -1:
        if size > self.capacity - self.size:
            self.grow(size)
        copy_short(self.base + self.size, at, size)
        self.end(size)
        return 0

    cdef inline void end(self, int64_t size) noexcept:
        """So many more bytes make the next text."""
        self.size += size
        if self.bitmap != NULL:
            self.bitmap[self.count >> 3] |= 1 << (self.count & 7)
        self.count += 1
        self.offsets[self.count] = <int32_t> self.size

    cdef inline void lack(self) noexcept:
        """The next text is not there."""
        self.count += 1
        self.null_count += 1
        self.offsets[self.count] = <int32_t> self.size

    cdef int put_value(self, str value) except -1:
        if value is None:
            self.lack()
            return 0
        cdef bytes text = value.encode()
        return self.put(<const uint8_t*> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    cdef int grow(self, int64_t more) except -1:
        cdef int64_t needed = self.size + more
        if needed > TEXT_BYTES_MAX:
            raise ProtocolError(f"a column of {needed} bytes; one batch may have {TEXT_BYTES_MAX}")
        self.capacity = min(needed * 2, TEXT_BYTES_MAX)
        grown_data = self.allocate(self.capacity)
        cdef uint8_t* base = writable(grown_data)
        memcpy(base, self.base, self.size)
        self.data, self.base = grown_data, base
        return 0

    cdef tuple buffers(self):
        return self.offsets_buffer, self.data, self.size

    cdef tuple with_bitmap(self):
        return self.bitmap_buffer if self.null_count else None, self.null_count, self.buffers()


cdef class Gatherer:
    """Collects the records of a batch and makes columns of them.

    `columns` are numbers of Column, in the order of the result. `inflate(body, system flag)` and
    `host_text(address and port)` do what is rare; `tags` are the texts to let through, `filter` an expression.
    """

    cdef list wanted
    cdef bint[COLUMN_COUNT] wants
    cdef Row* rows
    cdef readonly Py_ssize_t row_count
    cdef Py_ssize_t rows_max
    cdef int64_t bytes_max
    cdef int64_t byte_count         # of the records gathered, and their inflated bodies
    cdef int64_t topic_bytes
    cdef int64_t body_bytes
    cdef int64_t properties_bytes
    cdef list kept                  # whatever rows point into
    cdef list inflated
    cdef bytes broker
    cdef object inflate
    cdef object host_text
    cdef frozenset tags
    cdef Tags tag_codes
    cdef Filter filter
    cdef bint check_crc
    cdef readonly int64_t next_offset   # of the queue: the window begins here
    cdef readonly int64_t end_offset
    cdef readonly int stop
    cdef readonly int64_t stopped_at

    def __cinit__(self, *arguments, **keywords):
        self.rows = NULL

    def __init__(self, list columns not None, *, bytes broker not None, Py_ssize_t rows_max, int64_t bytes_max,
                 inflate, host_text, frozenset tags=None, Tags tag_codes=None, Filter filter=None,
                 bint check_crc=False):
        if rows_max < 1 or bytes_max < 1:
            raise ValueError("a batch has room for something")
        memset(self.wants, 0, sizeof(self.wants))
        for column in columns:
            if not 0 <= column < COLUMN_COUNT:
                raise ValueError(f"no column has number {column}")
            self.wants[<int> column] = True
        self.wanted = list(columns)
        self.broker = broker
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.inflate = inflate
        self.host_text = host_text
        self.tags = tags
        self.tag_codes = tag_codes
        self.filter = filter
        self.check_crc = check_crc
        self.rows = <Row*> grown(NULL, rows_max * sizeof(Row))
        self.next_offset = self.end_offset = 0
        self.clear()

    def __dealloc__(self):
        PyMem_Free(self.rows)

    def begin(self, int64_t first, int64_t end) -> None:
        """Let through queue offsets [first, end) from now on, each once and in order."""
        self.next_offset = first
        self.end_offset = end

    def is_full(self) -> bool:
        """Whether the batch takes no more."""
        return self.row_count >= self.rows_max or self.byte_count >= self.bytes_max

    def is_done(self) -> bool:
        """Whether the window is through."""
        return self.next_offset >= self.end_offset

    def clear(self) -> None:
        """Begin another batch."""
        self.row_count = 0
        self.byte_count = self.topic_bytes = self.body_bytes = self.properties_bytes = 0
        self.kept = []
        self.inflated = []

    def skip_to(self, int64_t queue_offset) -> None:
        """Everything below is through: it was looked at elsewhere, or there is nothing."""
        self.next_offset = max(self.next_offset, queue_offset)

    def walk(self, data, Py_ssize_t position) -> int:
        """Gather records that lie back to back from `position` on; returns where it stopped.

        That is the end, unless the batch is full. Raises ProtocolError when a length is a lie.
        """
        cdef Py_buffer view
        cdef const uint8_t* at
        cdef Py_ssize_t size, end
        cdef int64_t queue_offset
        cdef uint32_t magic
        cdef Fields fields
        held = memoryview(data)
        PyObject_GetBuffer(held, &view, PyBUF_SIMPLE)
        at = <const uint8_t*> view.buf
        end = view.len
        PyBuffer_Release(&view)     # `held` keeps the bytes where they are
        if not 0 <= position <= end:
            raise ValueError(f"position {position} of {end} bytes")
        if position < end:
            self.kept.append(held)
        while position < end and self.row_count < self.rows_max and self.byte_count < self.bytes_max:
            if end - position < RECORD_BYTES_MIN:
                raise ProtocolError(f"a record expected, {end - position} bytes are left")
            size = <int32_t> load32(at + position + SIZE_AT)
            magic = load32(at + position + MAGIC_AT)
            if not is_record_magic(magic):
                raise ProtocolError(f"{magic:#x} is not the magic number of a record")
            if size < RECORD_BYTES_MIN or size > end - position:
                raise ProtocolError(f"a record of {size} bytes does not fit into the {end - position} left")
            if read_fields(at + position, &fields) != size:
                raise ProtocolError(f"what says it has {size} bytes has parts of another size")
            queue_offset = <int64_t> load64(at + position + QUEUE_OFFSET_AT)
            if self.next_offset <= queue_offset < self.end_offset:
                if self.take(at + position, &fields, queue_offset):
                    self.byte_count += size
                self.next_offset = queue_offset + 1
            position += size
        return position

    def follow(self, LogView log not None, entries, bytes topic not None, int32_t queue_id) -> int:
        """Gather what entries of the queue mean, the first being that of `next_offset`.

        Returns how many were used up; `stop` says why no more, and `stopped_at` where.
        """
        cdef Py_buffer view
        cdef const uint8_t* entry
        cdef const uint8_t* end
        cdef const uint8_t* last
        cdef Text where, ahead
        cdef Fields fields
        cdef int64_t log_offset, code, first = self.next_offset
        cdef int32_t size
        held = memoryview(entries)
        PyObject_GetBuffer(held, &view, PyBUF_SIMPLE)
        entry = <const uint8_t*> view.buf
        last = end = entry + min(view.len // QUEUE_ENTRY_BYTES, max(self.end_offset - first, 0)) * QUEUE_ENTRY_BYTES
        PyBuffer_Release(&view)
        self.kept.append(log.buffers[:])
        self.stop = FULL
        while entry < end and self.row_count < self.rows_max and self.byte_count < self.bytes_max:
            if last - entry > ENTRIES_AHEAD * QUEUE_ENTRY_BYTES:
                ahead = log.find(<int64_t> load64(entry + ENTRIES_AHEAD * QUEUE_ENTRY_BYTES))
                size = <int32_t> load32(entry + ENTRIES_AHEAD * QUEUE_ENTRY_BYTES + ENTRY_SIZE_AT)
                if ahead.at != NULL and 128 < size < ahead.size:
                    expect_read(ahead.at)
                    expect_read(ahead.at + 64)
                    expect_read(ahead.at + size - 128)
                    expect_read(ahead.at + size - 64)
            log_offset = <int64_t> load64(entry)
            size = <int32_t> load32(entry + ENTRY_SIZE_AT)
            code = <int64_t> load64(entry + ENTRY_TAGS_AT)
            if size == 0:
                self.stop, self.stopped_at = END_OF_QUEUE, self.next_offset
                break
            # Codes outside 32 bits are due times, or places in files that hold more than a code.
            if size == PADDING_SIZE or (self.tag_codes is not None and -2147483648 <= code <= 2147483647
                                        and not self.tag_codes.match(code)):
                self.next_offset += 1
                entry += QUEUE_ENTRY_BYTES
                continue
            where = log.find(log_offset)
            if where.at == NULL:
                self.stop, self.stopped_at = LOG_MISSING, log_offset
                break
            if (not is_record(where, log_offset, size, &fields) or fields.queue_id != queue_id
                    or <int64_t> load64(where.at + QUEUE_OFFSET_AT) != self.next_offset
                    or not same(fields.topic, text_of(topic))):
                self.stop, self.stopped_at = DAMAGED, log_offset
                break
            if self.take(where.at, &fields, self.next_offset):
                self.byte_count += size
            self.next_offset += 1
            entry += QUEUE_ENTRY_BYTES
        return self.next_offset - first

    cdef bint take(self, const uint8_t* at, Fields* fields, int64_t queue_offset) except -1:
        """Add a record whose lengths are true, unless the filters hold it back."""
        cdef Row* row
        if self.check_crc and body_crc(fields.body.at, fields.body.size) != load32(at + CRC_AT):
            raise CorruptRecord(f"the body of the message at queue offset {queue_offset} (log offset "
                                f"{<int64_t> load64(at + LOG_OFFSET_AT)}) has not the CRC that its record says")
        if self.tags is not None and not self.has_tag(fields.properties):
            return False
        if self.filter is not None and self.filter.verdict(fields.properties) != YES:
            return False
        row = &self.rows[self.row_count]
        row.at = at
        row.topic = fields.topic
        row.body = fields.body
        row.properties = fields.properties
        row.queue_offset = queue_offset
        row.queue_id = fields.queue_id
        row.store_ms = fields.store_ms
        row.log_offset = <int64_t> load64(at + LOG_OFFSET_AT)
        row.system_flag = <int32_t> load32(at + SYSTEM_FLAG_AT)
        row.born_ms = <int64_t> load64(at + BORN_MS_AT)
        row.reconsume_times = <int32_t> load32(fields.body.at - RECONSUME_TIMES_BEFORE_BODY)
        row.inflated = -1
        if row.system_flag & COMPRESSED and self.wants[BODY]:
            self.inflate_body(row)
        self.topic_bytes += row.topic.size
        self.body_bytes += row.body.size
        self.properties_bytes += row.properties.size
        self.row_count += 1
        return True

    cdef bint has_tag(self, Text properties) except -1:
        """Whether the message's tag is one of those wanted, to the letter: codes may be shared."""
        cdef Text tag = value_of(properties, Text(<const uint8_t*> "TAGS", 4))
        return tag.at != NULL and bytes_of(tag) in self.tags

    cdef int inflate_body(self, Row* row) except -1:
        cdef bytes body
        try:
            body = self.inflate(bytes_of(row.body), row.system_flag)
        except ProtocolError as error:
            raise ProtocolError(
                f"the body of the message at queue {row.queue_id}, queue offset {row.queue_offset} cannot be read: "
                f"{error}; read without the column body, or from another offset on") from error
        row.inflated = <int32_t> len(self.inflated)
        row.body = text_of(body)
        self.inflated.append(body)
        self.byte_count += row.body.size
        return 0

    # ------------------------------------------------------------ columns

    def columns(self, allocate) -> list:
        """What was gathered, as buffers by column; then another batch begins.

        `allocate(size)` gives writable memory. A number's column is its buffer; a text's a tuple
        (offsets, bytes, byte count); of `keys` and `tags` (bitmap or None, null count, text); of the
        properties (offsets, text of names, text of values).
        """
        cdef dict made = {}
        cdef bint[COLUMN_COUNT] wants = self.wants
        if wants[MESSAGE_ID] or wants[KEYS] or wants[TAGS] or wants[PROPERTIES]:
            self.make_properties(allocate, made)
        for column in self.wanted:
            if column not in made:
                made[column] = self.make(column, allocate)
        found = [made[column] for column in self.wanted]
        self.clear()
        return found

    cdef object make(self, int column, allocate):
        if column == TOPIC:
            return self.make_topics(allocate)
        if column == BROKER_NAME:
            return self.make_brokers(allocate)
        if column == BODY:
            return self.make_bodies(allocate)
        if column == BORN_HOST:
            return self.make_hosts(allocate)
        if column == QUEUE_ID or column == RECONSUME_TIMES or column == SYSTEM_FLAG:
            return self.make_ints(column, allocate)
        return self.make_longs(column, allocate)

    cdef object make_ints(self, int column, allocate):
        cdef object buffer = allocate(max(self.row_count * 4, 1))
        cdef int32_t* to = <int32_t*> writable(buffer)
        cdef Py_ssize_t i
        if column == QUEUE_ID:
            for i in range(self.row_count):
                to[i] = self.rows[i].queue_id
        elif column == RECONSUME_TIMES:
            for i in range(self.row_count):
                to[i] = self.rows[i].reconsume_times
        else:
            for i in range(self.row_count):
                to[i] = self.rows[i].system_flag
        return buffer

    cdef object make_longs(self, int column, allocate):
        cdef object buffer = allocate(max(self.row_count * 8, 1))
        cdef int64_t* to = <int64_t*> writable(buffer)
        cdef Py_ssize_t i
        if column == QUEUE_OFFSET:
            for i in range(self.row_count):
                to[i] = self.rows[i].queue_offset
        elif column == LOG_OFFSET:
            for i in range(self.row_count):
                to[i] = self.rows[i].log_offset
        elif column == BORN_AT:
            for i in range(self.row_count):
                to[i] = microseconds(self.rows[i].born_ms)
        else:
            for i in range(self.row_count):
                to[i] = microseconds(self.rows[i].store_ms)
        return buffer

    cdef tuple make_topics(self, allocate):
        cdef TextColumn texts = TextColumn(allocate, self.row_count, self.topic_bytes, False)
        cdef Text before = Text(NULL, 0), topic
        cdef Py_ssize_t i
        for i in range(self.row_count):
            topic = self.rows[i].topic
            # Nearly always the one before, which was looked at.
            if (before.at == NULL or not same(topic, before)) and not is_utf8(topic.at, topic.at + topic.size):
                texts.put_value(PyUnicode_DecodeUTF8(<const char*> topic.at, topic.size, "replace"))
                continue
            before = topic
            texts.put(topic.at, topic.size)
        return texts.buffers()

    cdef tuple make_brokers(self, allocate):
        cdef int64_t size = PyBytes_GET_SIZE(self.broker)
        cdef TextColumn texts = TextColumn(allocate, self.row_count, size * self.row_count, False)
        cdef const uint8_t* name = <const uint8_t*> PyBytes_AS_STRING(self.broker)
        cdef Py_ssize_t i
        for i in range(self.row_count):
            texts.put(name, size)
        return texts.buffers()

    cdef tuple make_bodies(self, allocate):
        if self.body_bytes > TEXT_BYTES_MAX:
            raise ProtocolError(f"bodies of {self.body_bytes} bytes; one batch may have {TEXT_BYTES_MAX}")
        cdef TextColumn texts = TextColumn(allocate, self.row_count, self.body_bytes, False)
        cdef Row* row
        cdef Py_ssize_t i
        for i in range(self.row_count):
            row = &self.rows[i]
            memcpy(texts.base + texts.size, row.body.at, row.body.size)
            texts.end(row.body.size)
        return texts.buffers()

    cdef tuple make_hosts(self, allocate):
        cdef TextColumn texts = TextColumn(allocate, self.row_count, self.row_count * 24, False)
        cdef uint8_t[HOST_CHARACTERS_MAX] text
        cdef Py_ssize_t i, size = 0, host_size = 0, before_size = 0
        cdef const uint8_t* before = NULL
        cdef const uint8_t* host
        cdef bytes rare
        for i in range(self.row_count):
            host = self.rows[i].at + BORN_HOST_AT
            host_size = born_host_bytes(self.rows[i].system_flag)
            if before == NULL or host_size != before_size or memcmp(host, before, host_size) != 0:
                before, before_size = host, host_size
                if host_size == 8:
                    size = write_host(text, host)
                else:
                    rare = self.host_text(PyBytes_FromStringAndSize(<const char*> host, host_size)).encode()
                    size = min(PyBytes_GET_SIZE(rare), HOST_CHARACTERS_MAX)
                    memcpy(text, PyBytes_AS_STRING(rare), size)
            texts.put(text, size)
        return texts.buffers()

    cdef int make_properties(self, allocate, dict made) except -1:
        """The columns that come out of the properties, by one pass over their text."""
        cdef TextColumn ids = None, keys = None, tags = None, names = None, values = None
        cdef object offsets_buffer = None
        cdef int32_t* offsets = NULL
        cdef Pair[PAIRS_AT_ONCE] pairs
        cdef Text key, tag, unique
        cdef int64_t byte_count = self.properties_bytes
        cdef Py_ssize_t i, j, count, room = byte_count // 2 + 1
        cdef Row* row
        if self.wants[MESSAGE_ID]:
            ids = TextColumn(allocate, self.row_count, self.row_count * OFFSET_ID_CHARACTERS_MAX, False)
        if self.wants[KEYS]:
            keys = TextColumn(allocate, self.row_count, byte_count // 4, True)
        if self.wants[TAGS]:
            tags = TextColumn(allocate, self.row_count, byte_count // 8, True)
        if self.wants[PROPERTIES]:
            # A property has at least four bytes with its marks; the last may lack one.
            room = (byte_count + self.row_count) // 4 + 1
            names = TextColumn(allocate, room, byte_count, False)
            values = TextColumn(allocate, room, byte_count, False)
            offsets_buffer = allocate((self.row_count + 1) * 4)
            offsets = <int32_t*> writable(offsets_buffer)
            offsets[0] = 0
        for i in range(self.row_count):
            row = &self.rows[i]
            count = split(row.properties, pairs)
            if count < 0:
                self.put_slowly(row, ids, keys, tags, names, values)
            else:
                if names is not None:
                    for j in range(count):
                        names.put(pairs[j].name.at, pairs[j].name.size)
                        values.put(pairs[j].value.at, pairs[j].value.size)
                if ids is not None:
                    unique = among(pairs, count, "UNIQ_KEY", 8)
                    if unique.at != NULL:
                        ids.put(unique.at, unique.size)
                    else:
                        put_offset_id(ids, row)
                if keys is not None:
                    key = among(pairs, count, "KEYS", 4)
                    if key.at != NULL:
                        keys.put(key.at, key.size)
                    else:
                        keys.lack()
                if tags is not None:
                    tag = among(pairs, count, "TAGS", 4)
                    if tag.at != NULL:
                        tags.put(tag.at, tag.size)
                    else:
                        tags.lack()
            if names is not None:
                offsets[i + 1] = <int32_t> names.count
        if ids is not None:
            made[MESSAGE_ID] = ids.buffers()
        if keys is not None:
            made[KEYS] = keys.with_bitmap()
        if tags is not None:
            made[TAGS] = tags.with_bitmap()
        if names is not None:
            made[PROPERTIES] = (offsets_buffer, names.count, names.buffers(), values.buffers())
        return 0

    cdef int put_slowly(self, Row* row, TextColumn ids, TextColumn keys, TextColumn tags, TextColumn names,
                        TextColumn values) except -1:
        """The properties of a message that has very many, or some that are not UTF-8."""
        cdef dict properties = properties_of(row.properties)
        if names is not None:
            for name, value in properties.items():
                names.put_value(name)
                values.put_value(value)
        if ids is not None:
            if "UNIQ_KEY" in properties:
                ids.put_value(properties["UNIQ_KEY"])
            else:
                put_offset_id(ids, row)
        if keys is not None:
            keys.put_value(properties.get("KEYS"))
        if tags is not None:
            tags.put_value(properties.get("TAGS"))
        return 0


# ---------------------------------------------------------------- properties


cdef Py_ssize_t split(Text properties, Pair* pairs) noexcept:
    """The pairs of a properties text, a name once with its last value; -1 when that takes the slow way."""
    cdef Pairs rest = pairs_of(properties)
    cdef Text name, value
    cdef Py_ssize_t count = 0, i
    while next_pair(&rest, &name, &value):
        i = 0
        while i < count and not same(pairs[i].name, name):
            i += 1
        if i == count:
            if count == PAIRS_AT_ONCE:
                return -1
            count += 1
            pairs[i].name = name
        pairs[i].value = value
    return count if is_utf8(properties.at, properties.at + properties.size) else -1


cdef inline Text among(const Pair* pairs, Py_ssize_t count, const char* name, Py_ssize_t size) noexcept:
    """The value of one name; at NULL when it is not there."""
    cdef Py_ssize_t i
    for i in range(count):
        if is_word(pairs[i].name, name, size):
            return pairs[i].value
    return Text(NULL, 0)


# ---------------------------------------------------------------- small things


cdef inline int64_t microseconds(int64_t ms) noexcept nogil:
    """Of a time that a record says, whatever it says."""
    if ms > MS_MAX:
        ms = MS_MAX
    elif ms < -MS_MAX:
        ms = -MS_MAX
    return ms * 1000


cdef int put_offset_id(TextColumn ids, Row* row) except -1:
    """Store host and log offset in hexadecimal, which is how a broker names the record."""
    cdef Py_ssize_t host_at = BORN_HOST_AT + born_host_bytes(row.system_flag) + 8
    cdef Py_ssize_t host_size = store_host_bytes(row.system_flag)
    cdef uint8_t[OFFSET_ID_CHARACTERS_MAX] text
    cdef uint8_t byte
    cdef Py_ssize_t i
    for i in range(host_size + 8):
        byte = row.at[host_at + i] if i < host_size else row.at[LOG_OFFSET_AT + i - host_size]
        text[2 * i] = HEX[byte >> 4]
        text[2 * i + 1] = HEX[byte & 15]
    return ids.put(text, 2 * (host_size + 8))


cdef Py_ssize_t write_host(uint8_t* to, const uint8_t* host) noexcept:
    """`127.0.0.1:10911` of four address bytes and a port."""
    cdef uint8_t* at = to
    cdef int64_t port = <int32_t> load32(host + 4)
    cdef Py_ssize_t i
    for i in range(4):
        at = put_digits(at, host[i])
        at[0] = c':' if i == 3 else c'.'
        at += 1
    if port < 0:
        at[0] = c'-'
        at += 1
        port = -port
    return put_digits(at, <uint64_t> port) - to


cdef void* grown(void* memory, size_t size) except NULL:
    cdef void* found = PyMem_Realloc(memory, size)
    if found == NULL:
        raise MemoryError
    return found


cdef uint8_t* writable(buffer) except NULL:
    """Where the memory of an object lies; the caller keeps the object."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
    cdef uint8_t* base = <uint8_t*> view.buf
    PyBuffer_Release(&view)
    return base
