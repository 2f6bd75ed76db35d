"""Records as they lie in the log: where their parts are, whether they are whole, where the next one begins.

Everybody who walks the log does so by `next_record`. It knows how segments end, and the head of 48 bytes that a
replicated log has in front of each record: DLedger's, with its numbers, and with checksums where DLedger has zeros. A
record itself is the same in both kinds of log, and its log offset is where it begins, not its head.
Formats: docs/formats/.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from ariane.kernel.bad_pages cimport is_lost
from ariane.kernel.hashing cimport body_crc, whole_crc
from ariane.kernel.layout cimport (
    BLANK_BYTES, BORN_HOST_AT, CRC_AT, LOG_OFFSET_AT, MAGIC_AT, MAGIC_BLANK, MAGIC_V2, QUEUE_ID_AT, RECORD_BYTES_MIN,
    SECTOR_BYTES, SIZE_AT, SYSTEM_FLAG_AT, Fields, Text, born_host_bytes, is_record_magic, load16, load32, load64,
    save32, save64, store_host_bytes,
)
from ariane.kernel.maps cimport Maps

cdef enum:
    TOPIC_BYTES_MAX = 255

# The head of an entry: magic, size, number, term, own position, channel, chain, checksum, record size.
cdef enum:
    HEAD_SIZE_AT = 4
    HEAD_NUMBER_AT = 8
    HEAD_TERM_AT = 16
    HEAD_POSITION_AT = 24
    HEAD_CHANNEL_AT = 32
    HEAD_CHAIN_AT = 36
    HEAD_CHECKSUM_AT = 40
    HEAD_RECORD_SIZE_AT = 44
    LINK_BYTES = 24

cdef uint32_t HEAD_MAGIC = 1
cdef uint32_t HEAD_MAGIC_BLANK = 0xFFFFFFFF


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


cdef inline int64_t left_behind(Maps log, int64_t log_offset) noexcept nogil:
    """How many bytes of its segment begin at a log offset."""
    return log.file_bytes - (log_offset - log.first_position) % log.file_bytes


cdef inline int64_t whole_size(Maps log, int64_t log_offset, const uint8_t* record, int64_t end) noexcept nogil:
    """Size of the record that says it begins at `log_offset` and ends at or before `end`; 0 when there is none."""
    cdef int64_t left = left_behind(log, log_offset)
    if log_offset + RECORD_BYTES_MIN > end or left < RECORD_BYTES_MIN:
        return 0
    cdef int64_t size = <int32_t> load32(record + SIZE_AT)
    if (not is_record_magic(load32(record + MAGIC_AT)) or size < RECORD_BYTES_MIN or size > left
            or log_offset + size > end):
        return 0
    if <int64_t> load64(record + LOG_OFFSET_AT) != log_offset or is_lost(record, size):
        return 0
    return size


cdef int64_t readable_size(Maps log, int64_t log_offset, int64_t end) noexcept nogil:
    """Size of the record that begins at `log_offset` and ends at or before `end`; 0 when there is none."""
    cdef const uint8_t* record = log.at(log_offset)
    return 0 if record == NULL else whole_size(log, log_offset, record, end)


cdef int64_t sound_size(Maps log, int64_t log_offset, const uint8_t* record, int64_t end, bint check_crc,
                        Fields* fields) noexcept nogil:
    """Size of a record that nothing is wrong with; 0 where there is none. `fields` are its parts then."""
    cdef int64_t left = left_behind(log, log_offset)
    cdef int64_t size = whole_size(log, log_offset, record, end)
    if size == 0 or left - size < BLANK_BYTES:
        return 0
    if read_fields(record, fields) != size or fields.store_ms <= 0:
        return 0
    if not is_topic_text(fields.topic) or has_lost_sector(
            fields.properties, log.file_bytes - left + (fields.properties.at - record)):
        return 0
    if check_crc and fields.body.size:
        if body_crc(fields.body.at, fields.body.size) != load32(record + CRC_AT):
            return 0
    return size


cdef bint next_record(Maps log, Walk* walk, int64_t end, bint check_crc) noexcept nogil:
    """Find the record that begins next and ends at or before `end`; False where the walk ends, for whatever reason."""
    cdef const uint8_t* at
    cdef int64_t left, size
    cdef EntryHead head
    while True:
        at = log.at(walk.at) if walk.bytes == NULL else walk.bytes + (walk.at - walk.first)
        if at == NULL or walk.at + BLANK_BYTES > end:
            return False
        left = left_behind(log, walk.at)
        if left < BLANK_BYTES or not is_blank(at, left, walk.head_bytes):
            break
        if walk.at + left > end:
            return False
        walk.at += left
    if walk.head_bytes:
        if walk.at + walk.head_bytes > end or left < walk.head_bytes or load32(at) != HEAD_MAGIC:
            return False
        head.number = <int64_t> load64(at + HEAD_NUMBER_AT)
        head.term = <int64_t> load64(at + HEAD_TERM_AT)
        head.channel = <int32_t> load32(at + HEAD_CHANNEL_AT)
        head.chain = load32(at + HEAD_CHAIN_AT)
        head.checksum = load32(at + HEAD_CHECKSUM_AT)
        if <int64_t> load64(at + HEAD_POSITION_AT) != walk.at or not may_follow(walk, &head):
            return False
    size = sound_size(log, walk.at + walk.head_bytes, at + walk.head_bytes, end, check_crc, &walk.fields)
    if size == 0:
        return False
    if walk.head_bytes:
        if (<int32_t> load32(at + HEAD_SIZE_AT) != walk.head_bytes + size
                or <int32_t> load32(at + HEAD_RECORD_SIZE_AT) != size):
            return False
        if check_crc and head.checksum and head.checksum != whole_crc(at + walk.head_bytes, size):
            return False
        walk.head = head
        walk.next_head = head_after(&head)
        walk.knows_next = True
    walk.record = at + walk.head_bytes
    walk.log_offset = walk.at + walk.head_bytes
    walk.size = size
    walk.at = walk.log_offset + size
    return True


cdef bint may_follow(const Walk* walk, const EntryHead* head) noexcept nogil:
    """Whether a head goes on where the one before it left off. DLedger's own entries have no chain."""
    return not walk.knows_next or (
        head.number == walk.next_head.number and head.term >= walk.next_head.term
        and (head.chain == 0 or head.chain == walk.next_head.chain))


cdef EntryHead head_after(const EntryHead* head) noexcept nogil:
    """What the next head says at least: it may be of a later term, and of another kind."""
    cdef EntryHead after
    cdef uint8_t[LINK_BYTES] link
    save32(link, head.chain)
    save64(&link[4], head.term)
    save64(&link[12], head.number)
    save32(&link[20], head.checksum)
    after.number = head.number + 1
    after.term = head.term
    after.channel = 0
    after.chain = whole_crc(link, LINK_BYTES)
    after.checksum = 0
    return after


cdef void save_head(uint8_t* to, int64_t log_offset, int64_t record_bytes, const EntryHead* head) noexcept nogil:
    """Write the head of an entry that begins at `log_offset`."""
    save32(to, HEAD_MAGIC)
    save32(to + HEAD_SIZE_AT, <uint32_t> (ENTRY_HEAD_BYTES + record_bytes))
    save64(to + HEAD_NUMBER_AT, head.number)
    save64(to + HEAD_TERM_AT, head.term)
    save64(to + HEAD_POSITION_AT, log_offset)
    save32(to + HEAD_CHANNEL_AT, <uint32_t> head.channel)
    save32(to + HEAD_CHAIN_AT, head.chain)
    save32(to + HEAD_CHECKSUM_AT, head.checksum)
    save32(to + HEAD_RECORD_SIZE_AT, <uint32_t> record_bytes)


cdef void save_blank(uint8_t* to, int64_t size, int head_bytes) noexcept nogil:
    """Write what fills a segment up: size and magic, or magic and size where entries have heads."""
    save32(to + (4 if head_bytes else SIZE_AT), <uint32_t> size)
    save32(to + (0 if head_bytes else MAGIC_AT), HEAD_MAGIC_BLANK if head_bytes else MAGIC_BLANK)


cdef inline bint is_blank(const uint8_t* at, int64_t left, int head_bytes) noexcept nogil:
    """Whether the rest of a segment is said to be empty."""
    if head_bytes:
        return load32(at) == HEAD_MAGIC_BLANK and <int32_t> load32(at + 4) == left
    return load32(at + MAGIC_AT) == MAGIC_BLANK and <int32_t> load32(at + SIZE_AT) == left


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
