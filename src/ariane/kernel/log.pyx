"""The commit log: what is placed in it, and what is read from it.

One call to `place` writes a record, its queue entry and its keys; nothing else does. Records gather on
a desk, and one system call puts all that a socket read brought into the file, before anybody is told of it
(docs/decisions/0015). Queue entries go through the maps, a few
at a time (docs/decisions/0020), and index entries by calls like records (docs/decisions/0022). Nothing here opens,
grows or removes a file: when room is missing the caller is told which (`Refusal`) and nothing has been written.
Formats: docs/formats/.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.errno cimport EINTR, EIO, errno
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from ariane.kernel.bad_pages cimport is_lost
from ariane.kernel.hashing cimport body_crc, java_hash_from
from ariane.kernel.index cimport Index, positive_hash
from ariane.kernel.layout cimport (
    BATCH_ENTRY_BYTES_MIN, BATCH_ENTRY_FLAG_AT, BATCH_ENTRY_HEAD_BYTES, BLANK_BYTES, BORN_HOST_AT, BORN_HOST_IPV6,
    BORN_MS_AT, CRC_AT, FLAG_AT, LOG_OFFSET_AT, MAGIC_AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, PADDING_SIZE,
    PROPERTIES_BYTES_MAX, QUEUE_ENTRY_BYTES, QUEUE_ID_AT, QUEUE_OFFSET_AT, RECONSUME_TIMES_BEFORE_BODY,
    RECORD_BYTES_MIN, SECTOR_BYTES, SIZE_AT, STORE_HOST_IPV6, SYSTEM_FLAG_AT, TRANSACTION_BITS, TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK, Text, born_host_bytes, copy_name, expect_read, is_record_magic, load16, load32, load64,
    save16, save32, save64, store_host_bytes, text_of,
)
from ariane.kernel.maps cimport Maps
from ariane.kernel.properties cimport Properties, find_properties, key_count, next_key
from ariane.kernel.queue cimport Queue, has_entry_room, keep_entry, points_below, save_entry

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int descriptor, const void* buffer, size_t size, int64_t position)
    int close(int descriptor)

cdef enum:
    KEYS_AT_ONCE = 8
    ENTRIES_AHEAD = 8   # records this far on are fetched from memory while one is looked at

cdef enum:
    TOPIC_BYTES_V1_MAX = 127
    TOPIC_BYTES_MAX = 255

cdef int64_t DESK_BYTES = 1 << 20  # more than most socket reads bring, and at home in the processor's cache

SEGMENT_NEEDED = NEEDS_SEGMENT
QUEUE_ROOM_NEEDED = NEEDS_QUEUE_ROOM
INDEX_ROOM_NEEDED = NEEDS_INDEX_ROOM
RECORD_TOO_LARGE = TOO_LARGE
RECORD_NOT_STORED = NOT_STORED
MEMORY_NEEDED = NEEDS_MEMORY


@cython.final
cdef class Log(Maps):
    """The commit log: where it ends, how far consumers may see, and the hosts and delays records carry."""

    def __init__(self, int64_t segment_bytes, bytes store_host, *, delays_ms=(), int64_t record_bytes_max=0):
        if len(store_host) not in (8, 20):
            raise ValueError("a store host is 4 or 16 address bytes and a 4-byte port")
        self.file_bytes = segment_bytes
        self.store_host_size = len(store_host)
        memcpy(self.store_host, PyBytes_AS_STRING(store_host), self.store_host_size)
        self.delay_count = min(len(delays_ms), 64)
        for i in range(self.delay_count):
            self.delays_ms[i] = delays_ms[i]
        self.record_bytes_max = record_bytes_max or segment_bytes
        self.staging = NULL
        self.staging_buffer = None
        self.desk = NULL
        self.desk_bytes = 0
        self.descriptor = -1
        self.fault = 0

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)
        free(self.desk)

    def add(self, int64_t position, buffer) -> None:
        """Take the next segment; no descriptor of the one before it is written by any more."""
        self.write_by(-1)
        Maps.add(self, position, buffer)

    def write_by(self, int descriptor) -> None:
        """Write the newest segment by this descriptor, which is the log's to close; -1: nothing can be written."""
        if not store_records(self):
            if descriptor >= 0:
                close(descriptor)
            raise OSError(self.fault, "cannot write the commit log")
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = descriptor

    def begin_at(self, int64_t log_offset) -> None:
        """Let the log end where its files do: every record below is in them."""
        assert self.stored == self.end, "records wait to be written"
        self.end = self.stored = log_offset

    def store(self) -> bool:
        """Put every record into its file; False, with `fault` set, if that is impossible."""
        return store_records(self)

    def stage(self, buffer) -> None:
        """Write the newest segment through `buffer` instead of its map, until told otherwise (None)."""
        cdef Py_buffer view
        self.staging = NULL
        self.staging_buffer = None
        if buffer is None:
            return
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        if view.len != self.file_bytes:
            PyBuffer_Release(&view)
            raise ValueError("a staging buffer is as long as a segment")
        self.staging = <uint8_t*> view.buf
        PyBuffer_Release(&view)
        self.staging_buffer = memoryview(buffer)

    @property
    def free_bytes(self) -> int:
        """What is left of the newest segment."""
        return self.first_position + self.count * self.file_bytes - self.end

    def seal(self) -> None:
        """Fill the newest segment with a blank record; the next append needs a new one."""
        cdef int64_t rest = self.first_position + self.count * self.file_bytes - self.end
        if rest == 0:
            return
        if rest < BLANK_BYTES:
            raise ValueError(f"{rest} bytes are left in the segment: too few for a blank record")
        if not store_records(self):
            raise OSError(self.fault, "cannot write the commit log")
        cdef uint8_t[BLANK_BYTES] blank
        cdef uint8_t* to = &blank[0]
        if self.staging != NULL:
            to = write_address(self, self.end)
        save32(to + SIZE_AT, <uint32_t> rest)
        save32(to + MAGIC_AT, MAGIC_BLANK)
        if self.staging == NULL and not write_out(self, blank, BLANK_BYTES):
            raise OSError(self.fault, "cannot write the commit log")
        self.end += rest
        self.stored = self.end

    def append(self, Queue queue not None, Index index, bytes body not None,
               bytes properties not None, *, int32_t flag, int32_t system_flag, int64_t born_ms,
               bytes born_host not None, int32_t reconsume_times, int64_t prepared_offset, int64_t now_ms) -> int:
        """Place one message; returns its log offset, or a negative Refusal with nothing written."""
        cdef Draft draft
        draft.body = text_of(body)
        draft.properties = text_of(properties)
        draft.suffix = Text(NULL, 0)
        draft.born_host = text_of(born_host)
        draft.born_ms = born_ms
        draft.prepared_offset = prepared_offset
        draft.flag = flag
        draft.system_flag = system_flag
        draft.reconsume_times = reconsume_times
        return relocate(self, queue, index, &draft, next_store_ms(self, now_ms))

    def record(self, int64_t log_offset, int64_t end) -> bytes | None:
        """The record at `log_offset` if one lies there whole below `end`, else None."""
        store_records(self)
        cdef int64_t size = readable_size(self, log_offset, end)
        if size == 0:
            return None
        return PyBytes_FromStringAndSize(<char*> self.at(log_offset), size)

    def store_ms_of(self, int64_t log_offset) -> int:
        """When the record at `log_offset` was stored; 0 when there is none."""
        store_records(self)
        cdef int64_t size = readable_size(self, log_offset, self.end)
        if size == 0:
            return 0
        return record_store_ms(self.at(log_offset))

    def visible_end(self, Queue queue not None) -> int:
        """The first offset of a queue that consumers may not see yet."""
        return visible_end(self, queue)

    def end_below(self, Queue queue not None, int64_t log_offset) -> int:
        """How many entries of a queue point below `log_offset`, each checked against its record near the end.

        Entries below were synced and are in order; those after may be torn or missing, so the result
        of the binary search is confirmed by the record itself and walked back if it is not.
        """
        cdef int64_t low = queue.first_position // QUEUE_ENTRY_BYTES
        cdef int64_t floor = low
        cdef int64_t high = (queue.first_position + queue.count * queue.file_bytes) // QUEUE_ENTRY_BYTES
        cdef int64_t middle, step = 1
        # Most queues are short: look near the start first, and leave the pages behind the end alone.
        while low + step < high and points_below(queue, low + step - 1, log_offset):
            low += step
            step *= 2
        high = min(high, low + step)
        while low < high:
            middle = (low + high) // 2
            if points_below(queue, middle, log_offset):
                low = middle + 1
            else:
                high = middle
        while low > floor and not points_at_its_record(self, queue, low - 1, log_offset):
            low -= 1
        return low

    def check(self, int64_t log_offset, int64_t end, bint check_crc=True) -> int:
        """Size of the whole, sound record at `log_offset`; 0 if there is none; negative for a blank one."""
        return checked_size(self, log_offset, end, check_crc)


@cython.final
cdef class Tags:
    """The tag codes a pull asks for."""

    def __cinit__(self, codes):
        self.count = len(codes)
        self.codes = <int64_t*> PyMem_Malloc((self.count or 1) * sizeof(int64_t))
        if self.codes == NULL:
            raise MemoryError
        for i, code in enumerate(codes):
            self.codes[i] = code

    def __dealloc__(self):
        PyMem_Free(self.codes)

    cdef bint match(self, int64_t code) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.codes[i] == code:
                return True
        return False


def read(Log log not None, Queue queue not None, int64_t first, Tags tags, *, int32_t count_max,
         int64_t bytes_max, int32_t memory_count_max, int64_t memory_bytes_max, int32_t disk_count_max,
         int64_t disk_bytes_max, int64_t memory_window, int64_t scan_count_max) -> tuple[bytes, int, int]:
    """Messages of a queue from `first` on that match: (their records back to back, count, next offset)."""
    cdef ReadLimits limits = ReadLimits(count_max, bytes_max, memory_count_max, memory_bytes_max,
                                        disk_count_max, disk_bytes_max, memory_window, scan_count_max)
    cdef ReadResult result
    cdef Text[MESSAGES_PER_READ_MAX] slices
    read_entries(log, queue, first, tags, &limits, slices, &result)
    return joined(slices, &result), result.count, result.next_offset


cdef bytes joined(const Text* slices, const ReadResult* result):
    """The records that a read found, back to back."""
    cdef bytes body = PyBytes_FromStringAndSize(NULL, result.bytes)
    cdef char* to = PyBytes_AS_STRING(body)
    cdef int i
    for i in range(result.count):
        memcpy(to, slices[i].at, slices[i].size)
        to += slices[i].size
    return body


def scan(Log log not None, int64_t first, *, bint check_crc, queue_of, make_room, index_of, int64_t index_from,
         int64_t end=INT64_MAX):
    """Walk the log from `first` to its true end, putting every record into its queue and the index.

    Stops in front of the first record that begins at or behind `end`.

    `queue_of(topic, queue_id)` gives the Queue for a record seen there for the first time, or None when
    there can be none; `make_room(queue, queue_offset)` is called when the queue has no room for that entry,
    and says False when it cannot have it. Only bodies have a checksum: such records are damaged, and left out;
    `index_of(key_count)` gives an Index with room for so many, or None for no index. Records below
    `index_from` are indexed already. Returns (end, last store time, records). Sets neither `log.end`
    nor `log.visible`.
    """
    cdef int64_t at = first, limit = log.first_position + log.count * log.file_bytes, size, records = 0
    cdef int64_t last_ms = 0, queue_offset, store_ms
    cdef uint8_t* record
    cdef Fields fields
    cdef Properties found
    cdef Queue queue = None
    cdef Index index = None
    cdef Draft draft
    cdef dict queues = {}
    cdef int system_flag
    while at < min(limit, end):
        size = checked_size(log, at, limit, check_crc)
        if size == 0:
            break
        if size < 0:  # blank: on to the next segment
            at -= size
            continue
        record = log.at(at)
        read_fields(record, &fields)
        store_ms = fields.store_ms
        system_flag = load32(record + SYSTEM_FLAG_AT) & TRANSACTION_BITS
        find_properties(fields.properties, &found)
        if queue is None or not same_text(fields.topic, queue.topic) or queue.queue_id != fields.queue_id:
            key = (PyBytes_FromStringAndSize(<char*> fields.topic.at, fields.topic.size), fields.queue_id)
            if key not in queues:
                queues[key] = queue_of(*key)
            queue = queues[key]
            if queue is None:
                at += size
                continue
        if system_flag != TRANSACTION_PREPARED and system_flag != TRANSACTION_ROLLBACK:
            queue_offset = <int64_t> load64(record + QUEUE_OFFSET_AT)
            enter(log, queue, queue_offset, at, size, tags_code_of(log, queue, &found, store_ms), make_room)
        if at >= index_from and system_flag != TRANSACTION_ROLLBACK:
            draft.keys = found.keys
            draft.unique_key = found.unique_key
            if key_count(&draft):
                if index is None or index.room() < key_count(&draft):
                    index = index_of(key_count(&draft))
                if index is not None:
                    put_keys(index, queue, &draft, at, store_ms)
        last_ms = max(last_ms, store_ms)
        records += 1
        at += size
    return at, last_ms, records


cdef enter(Log log, Queue queue, int64_t queue_offset, int64_t log_offset, int64_t size, int64_t tags, make_room):
    """Give a record found in the log its queue entry.

    Numbers that start again at zero belong to a topic made anew under an old name: what the queue holds
    is of its former life. Numbers that jump leave a hole, which `make_room` pads, unless it takes them for
    damaged; those that belong into the hole may still come, if it was the jump that was wrong.
    """
    cdef uint8_t* at
    if queue_offset != queue.end_offset:
        at = queue.at(queue_offset * QUEUE_ENTRY_BYTES) if 0 <= queue_offset < queue.end_offset else NULL
        if at != NULL and (queue_offset == 0 or load32(at + 8) == PADDING_SIZE):
            queue.clear(queue_offset, queue.end_offset)
            queue.end_offset = queue_offset
        elif make_room(queue, queue_offset) is False:
            return
    if queue.end_offset >= queue.reserved_end or queue.at(queue.end_offset * QUEUE_ENTRY_BYTES) == NULL:
        make_room(queue, queue_offset)
    at = queue.at(queue.end_offset * QUEUE_ENTRY_BYTES)
    if at == NULL or queue.end_offset != queue_offset:
        raise RuntimeError(f"queue entry {queue_offset} has no room after make_room; the queue ends at {queue.end_offset}")
    save_entry(at, log_offset, size, tags)
    queue.end_offset += 1


# ---------------------------------------------------------------- writing


cdef inline int64_t next_store_ms(Log log, int64_t now_ms) noexcept nogil:
    """The time to stamp: never before the record in front of it, whatever the wall clock does."""
    return now_ms if now_ms > log.last_store_ms else log.last_store_ms


cdef inline int64_t record_size(Log log, Draft* draft) noexcept nogil:
    return (75 + draft.born_host.size + log.store_host_size + draft.body.size + draft.topic.size
            + draft.properties.size + draft.suffix.size + (1 if draft.topic.size > TOPIC_BYTES_V1_MAX else 0))


cdef int64_t place(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil:
    """Write one record with its queue and index entries; its log offset, or a Refusal and nothing written."""
    cdef int64_t size = record_size(log, draft)
    cdef int64_t log_offset = log.end
    cdef Py_ssize_t topic_size = draft.topic.size
    cdef Py_ssize_t properties_size = draft.properties.size + draft.suffix.size
    if log.fault:
        return NOT_STORED  # behind a write that failed there may be the beginning of what was not told to anybody
    if size > log.record_bytes_max or properties_size > PROPERTIES_BYTES_MAX or topic_size > TOPIC_BYTES_MAX:
        return TOO_LARGE
    if log.first_position + log.count * log.file_bytes - log_offset < size + BLANK_BYTES:
        return NEEDS_SEGMENT
    if not has_entry_room(queue, 1):
        return NEEDS_QUEUE_ROOM
    cdef int64_t refusal
    if log.staging == NULL and log_offset - log.stored + size > log.desk_bytes:
        refusal = clear_desk(log, size)
        if refusal < 0:
            return refusal
    cdef int32_t[KEYS_AT_ONCE] hashes
    cdef int hash_count = 0, i
    if index is not None:
        hash_count = hash_keys(queue, draft, hashes)
        if index.room() < (key_count(draft) if hash_count < 0 else hash_count):
            return NEEDS_INDEX_ROOM

    cdef uint8_t* to = write_address(log, log_offset)
    cdef int32_t flags = draft.system_flag & ~(BORN_HOST_IPV6 | STORE_HOST_IPV6)
    if draft.born_host.size == 20:
        flags |= BORN_HOST_IPV6
    if log.store_host_size == 20:
        flags |= STORE_HOST_IPV6
    save32(to + SIZE_AT, <uint32_t> size)
    save32(to + MAGIC_AT, MAGIC_V2 if topic_size > TOPIC_BYTES_V1_MAX else MAGIC_V1)
    save32(to + CRC_AT, body_crc(draft.body.at, draft.body.size) if draft.body.size else 0)
    save32(to + QUEUE_ID_AT, draft.queue_id)
    save32(to + FLAG_AT, draft.flag)
    save64(to + QUEUE_OFFSET_AT, queue.end_offset)
    save64(to + LOG_OFFSET_AT, log_offset)
    save32(to + SYSTEM_FLAG_AT, flags)
    save64(to + BORN_MS_AT, draft.born_ms)
    to = save_text(to + BORN_HOST_AT, draft.born_host)
    save64(to, store_ms)
    memcpy(to + 8, log.store_host, log.store_host_size)
    to += 8 + log.store_host_size
    save32(to, draft.reconsume_times)
    save64(to + 4, draft.prepared_offset)
    save32(to + 12, <uint32_t> draft.body.size)
    to = save_text(to + 16, draft.body)
    if topic_size > TOPIC_BYTES_V1_MAX:
        save16(to, <uint16_t> topic_size)
        to += 2
    else:
        to[0] = <uint8_t> topic_size
        to += 1
    copy_name(to, draft.topic.at, topic_size)
    save16(to + topic_size, <uint16_t> properties_size)
    to = save_text(to + topic_size + 2, draft.properties)
    save_text(to, draft.suffix)

    keep_entry(queue, log_offset, size, draft.tags_code)
    if hash_count < 0:
        put_keys(index, queue, draft, log_offset, store_ms)
    for i in range(hash_count):
        index.put(hashes[i], log_offset, store_ms)
    log.end += size
    log.last_store_ms = store_ms
    return log_offset


cdef void draft_again(const uint8_t* record, const Fields* fields, Draft* draft) noexcept nogil:
    """A stored record as a draft, to be relocated: as it was, with the birth it had."""
    draft.body = fields.body
    draft.properties = fields.properties
    draft.suffix = Text(NULL, 0)
    draft.system_flag = <int32_t> load32(record + SYSTEM_FLAG_AT)
    draft.born_host = Text(record + BORN_HOST_AT, born_host_bytes(draft.system_flag))
    draft.born_ms = <int64_t> load64(record + BORN_MS_AT)
    draft.prepared_offset = 0
    draft.flag = <int32_t> load32(record + FLAG_AT)
    draft.reconsume_times = <int32_t> load32(fields.body.at - RECONSUME_TIMES_BEFORE_BODY)


cdef int64_t relocate(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil:
    """Place a draft in a queue, by whose topic it then goes; its keys and tags are what its properties say.

    Its suffix says nothing of these.
    """
    cdef Properties found
    find_properties(draft.properties, &found)
    draft.topic = Text(data_of(queue.topic), len_of(queue.topic))
    draft.queue_id = queue.queue_id
    draft.keys = found.keys
    draft.unique_key = found.unique_key
    draft.tags_code = tags_code_of(log, queue, &found, store_ms)
    return place(log, queue, index, draft, store_ms)


cdef bint store_records(Log log) noexcept nogil:
    """Put what lies on the desk into the file; False, with `fault` set, if that is impossible.

    Then the log ends where the file does: nobody has been told of the rest.
    """
    if log.staging == NULL and log.stored < log.end:
        if not write_out(log, log.desk, log.end - log.stored):
            log.end = log.stored
            return False
    log.stored = log.end
    return True


cdef bint write_out(Log log, const uint8_t* data, int64_t byte_count) noexcept nogil:
    """Write bytes into the newest segment where `stored` says."""
    cdef int64_t position = (log.stored - log.first_position) % log.file_bytes, done = 0
    cdef ssize_t written
    while done < byte_count:
        written = pwrite(log.descriptor, data + done, byte_count - done, position + done)
        if written > 0:
            done += written
        elif written == 0 or errno != EINTR:
            log.fault = errno if written < 0 else EIO  # a file takes at least a byte, or says why not
            return False
    return True


cdef int64_t clear_desk(Log log, int64_t byte_count) noexcept nogil:
    """Have an empty desk with room for so many bytes; 0, or a Refusal."""
    cdef uint8_t* grown
    if not store_records(log):
        return NOT_STORED
    byte_count = max(byte_count, DESK_BYTES)
    if byte_count > log.desk_bytes:
        grown = <uint8_t*> realloc(log.desk, byte_count)
        if grown == NULL:
            return NEEDS_MEMORY
        log.desk = grown
        log.desk_bytes = byte_count
    return 0


cdef inline uint8_t* write_address(Log log, int64_t log_offset) noexcept nogil:
    if log.staging != NULL:
        return log.staging + (log_offset - log.first_position) % log.file_bytes
    return log.desk + (log_offset - log.stored)


cdef inline uint8_t* save_text(uint8_t* to, Text text) noexcept nogil:
    if text.size:
        memcpy(to, text.at, text.size)
    return to + text.size


cdef int hash_keys(Queue queue, Draft* draft, int32_t* hashes) noexcept nogil:
    """The index hash of every key a message has, or -1 when there are more than KEYS_AT_ONCE."""
    cdef int count = 0
    cdef Text rest = draft.keys, key = draft.unique_key
    if not key.size:
        key = next_key(&rest)
    while key.size:
        if count == KEYS_AT_ONCE:
            return -1
        hashes[count] = key_hash(queue, key)
        count += 1
        key = next_key(&rest)
    return count


cdef inline int32_t key_hash(Queue queue, Text key) noexcept nogil:
    return positive_hash(java_hash_from(queue.index_prefix_hash, key.at, key.size))


cdef void put_keys(Index index, Queue queue, Draft* draft, int64_t log_offset, int64_t store_ms) noexcept nogil:
    """Index every key of a message, however many; the caller has made sure of room."""
    cdef Text rest = draft.keys, key = draft.unique_key
    if not key.size:
        key = next_key(&rest)
    while key.size:
        index.put(key_hash(queue, key), log_offset, store_ms)
        key = next_key(&rest)


# ---------------------------------------------------------------- batches


cdef bint next_entry(Text* rest, Draft* draft) noexcept nogil:
    """Cut the next entry off a batch body; False when its sizes do not add up."""
    cdef const uint8_t* at = rest.at
    cdef int64_t size, body_size, properties_size
    if rest.size < BATCH_ENTRY_BYTES_MIN:
        return False
    size = <int32_t> load32(at)
    if size < BATCH_ENTRY_BYTES_MIN or size > rest.size:
        return False
    draft.flag = <int32_t> load32(at + BATCH_ENTRY_FLAG_AT)
    body_size = <int32_t> load32(at + BATCH_ENTRY_HEAD_BYTES - 4)
    if body_size < 0 or body_size > size - BATCH_ENTRY_BYTES_MIN:
        return False
    properties_size = <int16_t> load16(at + BATCH_ENTRY_HEAD_BYTES + body_size)
    if properties_size < 0 or BATCH_ENTRY_BYTES_MIN + body_size + properties_size != size:
        return False
    draft.body.at = at + BATCH_ENTRY_HEAD_BYTES
    draft.body.size = body_size
    draft.properties.at = at + BATCH_ENTRY_BYTES_MIN + body_size
    draft.properties.size = properties_size
    rest.at += size
    rest.size -= size
    return True


cdef int64_t tags_code_of(Log log, Queue queue, Properties* found, int64_t store_ms) noexcept nogil:
    """What the queue entry's last word holds: the tag's hash, or for a delayed message its deliver time."""
    cdef int64_t level = 0
    cdef Py_ssize_t i
    if queue.is_schedule and found.delay.size:
        for i in range(min(found.delay.size, 9)):
            if not c'0' <= found.delay.at[i] <= c'9':
                return 0
            level = level * 10 + (found.delay.at[i] - c'0')
        if level > log.delay_count:
            level = log.delay_count
        if level > 0:
            return store_ms + log.delays_ms[level - 1]
    if found.tags.size == 0:
        return 0
    return java_hash_from(0, found.tags.at, found.tags.size)


# ---------------------------------------------------------------- reading


cdef inline int64_t record_store_ms(const uint8_t* record) noexcept nogil:
    return <int64_t> load64(record + BORN_HOST_AT + born_host_bytes(load32(record + SYSTEM_FLAG_AT)))


cdef int64_t read_fields(const uint8_t* record, Fields* fields) noexcept nogil:
    """Find the parts of a record; the size they add up to, or 0 when one of them reaches past its end."""
    cdef int64_t size = <int32_t> load32(record + SIZE_AT)
    cdef int64_t at = BORN_HOST_AT + born_host_bytes(load32(record + SYSTEM_FLAG_AT))
    fields.queue_id = <int32_t> load32(record + QUEUE_ID_AT)
    if at + 8 > size:
        return 0
    fields.store_ms = <int64_t> load64(record + at)
    at += 8 + store_host_bytes(load32(record + SYSTEM_FLAG_AT)) + 12
    if at + 4 > size:
        return 0
    fields.body.size = <int32_t> load32(record + at)
    fields.body.at = record + at + 4
    if fields.body.size < 0 or fields.body.size > size - at - 4:
        return 0
    at += 4 + fields.body.size
    if load32(record + MAGIC_AT) == MAGIC_V2:
        if at + 2 > size:
            return 0
        fields.topic.size = load16(record + at)
        at += 2
    else:
        if at + 1 > size:
            return 0
        fields.topic.size = record[at]
        at += 1
    fields.topic.at = record + at
    at += fields.topic.size
    if at + 2 > size:
        return 0
    fields.properties.size = <int16_t> load16(record + at)
    fields.properties.at = record + at + 2
    if fields.properties.size < 0 or fields.properties.size > size - at - 2:
        return 0
    return at + 2 + fields.properties.size


cdef int64_t readable_size(Log log, int64_t log_offset, int64_t end) noexcept nogil:
    """Size of the record that begins at `log_offset` and ends at or before `end`; 0 when there is none."""
    cdef uint8_t* record = log.at(log_offset)
    if record == NULL or log_offset + RECORD_BYTES_MIN > end:
        return 0
    cdef int64_t left = log.file_bytes - (log_offset - log.first_position) % log.file_bytes
    if left < RECORD_BYTES_MIN:
        return 0
    cdef uint32_t magic = load32(record + MAGIC_AT)
    cdef int64_t size = <int32_t> load32(record + SIZE_AT)
    if not is_record_magic(magic) or size < RECORD_BYTES_MIN or size > left or log_offset + size > end:
        return 0
    if <int64_t> load64(record + LOG_OFFSET_AT) != log_offset or is_lost(record, size):
        return 0
    return size


cdef int64_t checked_size(Log log, int64_t log_offset, int64_t end, bint check_crc) noexcept nogil:
    """Size of the sound record at `log_offset`; negative size of a blank one; 0 where the log ends."""
    cdef uint8_t* record = log.at(log_offset)
    cdef Fields fields
    cdef int64_t left
    if record == NULL:
        return 0
    left = log.file_bytes - (log_offset - log.first_position) % log.file_bytes
    if left >= BLANK_BYTES and load32(record + MAGIC_AT) == MAGIC_BLANK:
        return -left if <int64_t> <int32_t> load32(record + SIZE_AT) == left else 0
    cdef int64_t size = readable_size(log, log_offset, end)
    if size == 0 or left - size < BLANK_BYTES:
        return 0
    if read_fields(record, &fields) != size or fields.store_ms <= 0:
        return 0
    if not is_topic_text(fields.topic) or has_lost_sector(
            fields.properties, (log_offset - log.first_position) % log.file_bytes + (fields.properties.at - record)):
        return 0
    if check_crc and fields.body.size:
        if body_crc(fields.body.at, fields.body.size) != load32(record + CRC_AT):
            return 0
    return size


cdef bint is_topic_text(Text topic) noexcept nogil:
    """Whether the bytes could be a topic's name; a torn page leaves zeros there."""
    cdef Py_ssize_t i
    if topic.size == 0 or topic.size > TOPIC_BYTES_MAX:
        return False
    for i in range(topic.size):
        if topic.at[i] <= 0x20 or topic.at[i] == c'/' or topic.at[i] == 0x7F:
            return False
    return True


cdef bint has_lost_sector(Text properties, int64_t position) noexcept nogil:
    """Whether a stretch that a disk writes as one sector is all zero: it never reached the disk.

    `position` is where the properties begin in their file, which tells where sectors begin.
    """
    cdef int64_t sector = (position + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES
    cdef int64_t end = position + properties.size, at, stop
    while sector < end:
        stop = min(sector + SECTOR_BYTES, end)
        at = sector
        while at < stop and properties.at[at - position] == 0:
            at += 1
        if at == stop:
            return True
        sector += SECTOR_BYTES
    return False


cdef bint points_at_its_record(Log log, Queue queue, int64_t queue_offset, int64_t log_offset) noexcept nogil:
    """Whether an entry below `log_offset` is true: padding, a record already removed, or its own record."""
    cdef uint8_t* at = queue.at(queue_offset * QUEUE_ENTRY_BYTES)
    if not points_below(queue, queue_offset, log_offset):
        return False
    cdef int64_t where = <int64_t> load64(at)
    cdef int32_t size = <int32_t> load32(at + 8)
    if where < log.first_position:
        return True
    cdef uint8_t* record = log.at(where)
    if readable_size(log, where, log_offset) != size:
        return False
    return (<int64_t> load64(record + QUEUE_OFFSET_AT) == queue_offset
            and <int32_t> load32(record + QUEUE_ID_AT) == queue.queue_id)


cdef int64_t visible_end(Log log, Queue queue) noexcept nogil:
    """The first queue offset whose record consumers may not see; in asynchronous mode simply the end."""
    cdef int64_t end = queue.end_offset
    cdef uint8_t* at
    while end > queue.min_offset:
        at = queue.at((end - 1) * QUEUE_ENTRY_BYTES)
        if at == NULL or <int64_t> load64(at) < log.visible:
            break
        end -= 1
    return end


cdef inline bint is_enough(Log log, const ReadLimits* limits, const ReadResult* result, int64_t log_offset,
                           int64_t size) noexcept nogil:
    """Whether a read stops before this record. One is given out however large it is."""
    cdef bint in_memory = log.end - log_offset <= limits.memory_window
    return result.count and (
        result.count >= min(limits.count_max, MESSAGES_PER_READ_MAX)
        or result.bytes + size > limits.bytes_max
        or result.bytes + size > (limits.memory_bytes_max if in_memory else limits.disk_bytes_max)
        or result.count >= (limits.memory_count_max if in_memory else limits.disk_count_max))


cdef void read_entries(Log log, Queue queue, int64_t first, Tags tags, const ReadLimits* limits,
                       Text* slices, ReadResult* result) noexcept nogil:
    """Collect matching records from `first` on as slices of the log, within the limits.

    `slices` has room for MESSAGES_PER_READ_MAX; `next_offset` is past the last entry looked at.
    """
    cdef int64_t end = visible_end(log, queue)
    cdef int64_t offset = first, where, size
    cdef uint8_t* at
    cdef uint8_t* ahead
    result.count = result.scanned = 0
    result.bytes = 0
    while offset < end and result.scanned < limits.scan_count_max:
        at = queue.at(offset * QUEUE_ENTRY_BYTES)
        if at == NULL:
            break
        if tags is None and offset + ENTRIES_AHEAD < end:
            ahead = queue.at((offset + ENTRIES_AHEAD) * QUEUE_ENTRY_BYTES)
            if ahead != NULL:
                expect_read(log.at(<int64_t> load64(ahead)))
        if tags is not None and not tags.match(<int64_t> load64(at + 12)):
            offset += 1
            result.scanned += 1
            continue
        where = <int64_t> load64(at)
        size = readable_size(log, where, log.visible)   # the entry's may be damaged
        if size == 0 or load32(at + 8) == PADDING_SIZE:     # or in a segment that retention has taken
            offset += 1
            result.scanned += 1
            continue
        if is_enough(log, limits, result, where, size):
            break
        offset += 1
        result.scanned += 1
        slices[result.count] = Text(log.at(where), size)
        result.count += 1
        result.bytes += size
    result.next_offset = offset


# ---------------------------------------------------------------- bytes objects without their overhead


cdef extern from "Python.h":
    cdef struct PyBytesObject:
        pass
    char* as_string "PyBytes_AS_STRING"(void*) nogil
    Py_ssize_t get_size "PyBytes_GET_SIZE"(void*) nogil


cdef inline const uint8_t* data_of(bytes value) noexcept nogil:
    return <const uint8_t*> as_string(<void*> value)


cdef inline Py_ssize_t len_of(bytes value) noexcept nogil:
    return get_size(<void*> value)


cdef inline bint same_text(Text text, bytes value) noexcept nogil:
    return text.size == len_of(value) and memcmp(text.at, data_of(value), text.size) == 0
