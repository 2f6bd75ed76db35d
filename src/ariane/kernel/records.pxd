"""Records as they lie in the log, and the one way to step from each to the next."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ariane.kernel.layout cimport BORN_HOST_AT, SYSTEM_FLAG_AT, Fields, born_host_bytes, load32, load64
from ariane.kernel.maps cimport Maps

# The head that a replicated log has in front of each record (docs/formats/record.md, "Heads").
cdef enum:
    ENTRY_HEAD_BYTES = 48

# What such a head says beside place and size.
cdef struct EntryHead:
    int64_t number      # 0, 1, 2 ... through the whole log
    int64_t term
    int32_t channel
    uint32_t chain      # over term, number and checksum of every entry before this one
    uint32_t checksum   # CRC-32 of the record

# A walk over records. It looks at a log's files, or at bytes that lie elsewhere and may become part of them.
cdef struct Walk:
    int64_t at              # where the next entry is looked for, or what ended the walk begins
    int64_t log_offset      # of the record found
    int64_t size
    const uint8_t* record
    Fields fields
    int head_bytes          # what each record has in front: 0 or ENTRY_HEAD_BYTES
    EntryHead head          # of the entry found
    EntryHead next_head     # what the next one must go on from
    bint knows_next
    const uint8_t* bytes    # what is walked instead of files: the log from `first` on
    int64_t first

cdef inline int64_t record_store_ms(const uint8_t* record) noexcept nogil:
    return <int64_t> load64(record + BORN_HOST_AT + born_host_bytes(load32(record + SYSTEM_FLAG_AT)))

cdef int64_t read_fields(const uint8_t* record, Fields* fields) noexcept nogil
cdef int64_t readable_size(Maps log, int64_t log_offset, int64_t end) noexcept nogil
cdef int64_t sound_size(Maps log, int64_t log_offset, const uint8_t* record, int64_t end, bint check_crc,
                        Fields* fields) noexcept nogil
cdef bint next_record(Maps log, Walk* walk, int64_t end, bint check_crc) noexcept nogil
cdef void save_head(uint8_t* to, int64_t log_offset, int64_t record_bytes, const EntryHead* head) noexcept nogil
cdef void save_blank(uint8_t* to, int64_t size, int head_bytes) noexcept nogil
cdef EntryHead head_after(const EntryHead* head) noexcept nogil
