"""The commit log: the only place where records are written.

One call to `place` writes a record, its queue entry and its keys; nothing else does. Records gather on
a desk, and one system call puts all that a socket read brought into the file, before anybody is told of it
(docs/decisions/0015). Queue entries go through the maps, a few
at a time (docs/decisions/0020), and index entries by calls like records (docs/decisions/0022). Nothing here opens,
grows or removes a file: when room is missing the caller is told which (`Refusal`) and nothing has been written.
Where a record may yet be taken back, `place` writes it alone and `dispatch` follows once it may not, as it does behind
`append_raw`, which takes records that another log gave their place: what is dispatched is never cut
(docs/decisions/0030).
Formats: docs/formats/.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from ariane.kernel.hashing cimport body_crc, java_hash_from, whole_crc
from ariane.kernel.index cimport Index, positive_hash
from ariane.kernel.layout cimport (
    BLANK_BYTES, BORN_HOST_AT, BORN_HOST_IPV6, BORN_MS_AT, CRC_AT, FLAG_AT, LOG_OFFSET_AT, MAGIC_AT, MAGIC_V1,
    MAGIC_V2, PROPERTIES_BYTES_MAX, QUEUE_ENTRY_BYTES, QUEUE_ID_AT, QUEUE_OFFSET_AT, RECONSUME_TIMES_BEFORE_BODY,
    SIZE_AT, STORE_HOST_IPV6, SYSTEM_FLAG_AT, Text, born_host_bytes, Draft, Fields, copy_name, load32, load64, save16,
    save32, save64, text_in, text_of,
)
from ariane.kernel.maps cimport Maps
from ariane.kernel.properties cimport Properties, find_properties, key_count, next_key
from ariane.kernel.queue cimport Queue, has_entry_room, keep_entry
from ariane.kernel.records cimport (
    ENTRY_HEAD_BYTES, EntryHead, Walk, head_after, next_record, readable_size, record_store_ms, save_blank, save_head,
    sound_size,
)

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int descriptor, const void* buffer, size_t size, int64_t position)
    int close(int descriptor)

cdef enum:
    KEYS_AT_ONCE = 8

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

    def __init__(self, int64_t segment_bytes, bytes store_host, *, delays_ms=(), int64_t record_bytes_max=0,
                 int head_bytes=0):
        if len(store_host) not in (8, 20):
            raise ValueError("a store host is 4 or 16 address bytes and a 4-byte port")
        if head_bytes not in (0, ENTRY_HEAD_BYTES):
            raise ValueError(f"a record has a head of {ENTRY_HEAD_BYTES} bytes in front, or none")
        self.file_bytes = segment_bytes
        self.store_host_size = len(store_host)
        memcpy(self.store_host, PyBytes_AS_STRING(store_host), self.store_host_size)
        self.delay_count = min(len(delays_ms), 64)
        for i in range(self.delay_count):
            self.delays_ms[i] = delays_ms[i]
        self.record_bytes_max = record_bytes_max or segment_bytes
        self.head_bytes = head_bytes
        self.head = EntryHead(0, 0, 0, 0, 0)
        self.channel = 0
        self.dispatches_apart = False
        self.dispatched = 0
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

    def drop_last(self) -> None:
        """Forget the newest segment; no descriptor of it is written by any more."""
        self.write_by(-1)
        Maps.drop_last(self)

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
        self.end = self.stored = self.dispatched = log_offset

    def truncate(self, int64_t end) -> None:
        """Let the log end at an earlier record's end; whoever owns the files makes zeros of the rest.

        What was dispatched, or shown, is never taken back. ValueError where records with heads do not end there.
        """
        assert max(self.dispatched, self.visible) <= end <= self.end, "what is dispatched is never cut"
        if self.head_bytes:
            if not store_records(self):     # they are walked where they lie
                raise OSError(self.fault, "cannot write the commit log")
            find_head(self, end)
        self.stored = min(self.stored, end)
        self.end = end

    @property
    def term(self) -> int:
        """The term that heads of new entries say: the last entry's, until whoever places sets a later one."""
        return self.head.term

    @term.setter
    def term(self, int64_t term) -> None:
        self.head.term = term

    @property
    def next_number(self) -> int:
        """The number of the next entry."""
        return self.head.number

    @property
    def chain(self) -> int:
        """The checksum over all entries so far that the next one carries."""
        return self.head.chain

    def number_from(self, int64_t number, uint32_t chain) -> None:
        """Begin an empty log with this entry of a longer one."""
        self.head.number = number
        self.head.chain = chain

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
        save_blank(to, rest, self.head_bytes)
        if self.staging == NULL and not write_out(self, blank, BLANK_BYTES):
            raise OSError(self.fault, "cannot write the commit log")
        self.end += rest
        self.stored = self.end
        if not self.dispatches_apart:
            self.dispatched = self.end

    def append_raw(self, int64_t log_offset, const uint8_t[::1] data not None) -> int:
        """Take whole records of another log that begin where this one ends, checked as a walk would, and put them
        into the file: 0, or a negative Refusal with nothing written. They stay within a segment, and may end it.

        ValueError when they are not whole or belong elsewhere. They are not dispatched.
        """
        cdef int64_t size = data.shape[0], rest = self.first_position + self.count * self.file_bytes - self.end
        cdef int64_t last_ms = self.last_store_ms
        cdef Walk walk = walk_from(self, log_offset)
        if log_offset != self.end:
            raise ValueError(f"records for log offset {log_offset}, where the log ends at {self.end}")
        if size == 0:
            return 0
        if rest == 0:
            return NEEDS_SEGMENT
        walk.bytes = &data[0]
        walk.first = log_offset
        walk.next_head = self.head
        walk.next_head.term = 0     # the one here may be of a term in which nothing was placed
        walk.knows_next = True
        while walk.at < log_offset + min(size, rest) and next_record(self, &walk, log_offset + min(size, rest), True):
            last_ms = max(last_ms, walk.fields.store_ms)
        if walk.at != log_offset + size:
            raise ValueError(f"no whole record at log offset {walk.at}, in {size} bytes for {log_offset}")
        if self.staging != NULL:
            memcpy(write_address(self, log_offset), &data[0], size)
        elif not store_records(self) or not write_out(self, &data[0], size):
            return NOT_STORED
        self.end = self.stored = log_offset + size
        self.last_store_ms = last_ms
        self.head = walk.next_head
        return 0

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

    def check(self, int64_t log_offset, int64_t end, bint check_crc=True) -> int:
        """Size of the whole, sound record that begins at `log_offset` and ends at or before `end`; else 0."""
        cdef Fields fields
        cdef uint8_t* record = self.at(log_offset)
        return 0 if record == NULL else sound_size(self, log_offset, record, end, check_crc, &fields)

    def next_record(self, int64_t first, int64_t end, bint check_crc=True) -> tuple[int, int] | None:
        """(log offset, size) of the record that is next from `first`, where it or its head begins, and ends by `end`."""
        cdef Walk walk = walk_from(self, first)
        if not next_record(self, &walk, end, check_crc):
            return None
        return walk.log_offset, walk.size


cdef inline int64_t next_store_ms(Log log, int64_t now_ms) noexcept nogil:
    """The time to stamp: never before the record in front of it, whatever the wall clock does."""
    return now_ms if now_ms > log.last_store_ms else log.last_store_ms


cdef inline int64_t record_size(Log log, Draft* draft) noexcept nogil:
    """How many bytes of the log a record takes, with its head."""
    return (log.head_bytes + 75 + draft.born_host.size + log.store_host_size + draft.body.size + draft.topic.size
            + draft.properties.size + draft.suffix.size + (1 if draft.topic.size > TOPIC_BYTES_V1_MAX else 0))


cdef Walk walk_from(Log log, int64_t first) noexcept nogil:
    """A walk over the records of a log's files; the first, or its head, begins at `first`."""
    cdef Walk walk
    walk.at = first
    walk.head_bytes = log.head_bytes
    walk.knows_next = False
    walk.bytes = NULL
    return walk


cdef int find_head(Log log, int64_t end) except -1:
    """Let the next entry go on from the one that ends at `end`: the walk to it begins where its segment does."""
    cdef int64_t last = end - 1 - log.first_position
    cdef Walk walk = walk_from(log, log.first_position + max(last, 0) // log.file_bytes * log.file_bytes)
    if last < 0:
        log.head = EntryHead(0, 0, 0, 0, 0)
        if next_record(log, &walk, log.end, False):     # the first of all is cut away, and was a later one's successor
            log.head.number = walk.head.number
            log.head.chain = walk.head.chain
        return 0
    while next_record(log, &walk, end, False):
        pass
    if walk.at != end or not walk.knows_next:
        raise ValueError(f"no entry ends at log offset {end}: the walk to it ends at {walk.at}")
    log.head = walk.next_head
    return 0


cdef int64_t place(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil:
    """Write one record with its queue and index entries; its log offset, or a Refusal and nothing written.

    Where a log dispatches apart, entries are left to that, and the queue gives the record its number alone.
    """
    cdef int64_t size = record_size(log, draft) - log.head_bytes
    cdef int64_t log_offset = log.end + log.head_bytes
    cdef Py_ssize_t topic_size = draft.topic.size
    cdef Py_ssize_t properties_size = draft.properties.size + draft.suffix.size
    if log.fault:
        return NOT_STORED  # behind a write that failed there may be the beginning of what was not told to anybody
    if size > log.record_bytes_max or properties_size > PROPERTIES_BYTES_MAX or topic_size > TOPIC_BYTES_MAX:
        return TOO_LARGE
    if log.first_position + log.count * log.file_bytes - log_offset < size + BLANK_BYTES:
        return NEEDS_SEGMENT
    if not log.dispatches_apart and not has_entry_room(queue, 1):
        return NEEDS_QUEUE_ROOM
    cdef int64_t refusal
    if log.staging == NULL and log_offset - log.stored + size > log.desk_bytes:
        refusal = clear_desk(log, log.head_bytes + size)
        if refusal < 0:
            return refusal
    cdef int32_t[KEYS_AT_ONCE] hashes
    cdef int hash_count = 0, i
    if index is not None and not log.dispatches_apart:
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
    save64(to + QUEUE_OFFSET_AT, queue.assigned)
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

    queue.assigned += 1
    log.end = log_offset + size
    log.last_store_ms = store_ms
    if log.head_bytes:
        put_head(log, log_offset, size)
    if log.dispatches_apart:
        return log_offset
    keep_entry(queue, log_offset, size, draft.tags_code)
    if hash_count < 0:
        put_keys(index, queue, draft, log_offset, store_ms)
    for i in range(hash_count):
        index.put(hashes[i], log_offset, store_ms)
    log.dispatched = log.end
    return log_offset


cdef void put_head(Log log, int64_t log_offset, int64_t size) noexcept nogil:
    """Write the head of the record that was placed last."""
    log.head.channel = log.channel
    log.head.checksum = whole_crc(write_address(log, log_offset), size)
    save_head(write_address(log, log_offset - ENTRY_HEAD_BYTES), log_offset - ENTRY_HEAD_BYTES, size, &log.head)
    log.head = head_after(&log.head)


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
    draft.topic = text_in(queue.topic)
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
            log.dispatched = min(log.dispatched, log.end)
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
