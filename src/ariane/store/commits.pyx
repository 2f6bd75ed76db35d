"""Finding, in a stretch of the log, the records that say which half message they came from."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ariane.kernel.layout cimport BLANK_BYTES, RECORD_BYTES_MIN, load32, load64
from ariane.kernel.log cimport Log

cdef enum:
    SIZE_AT = 0
    MAGIC_AT = 4
    SYSTEM_FLAG_AT = 36
    PREPARED_AT = 76            # when both hosts are IPv4
    IPV6_BYTES_MORE = 12
    BORN_HOST_IPV6 = 0x10
    STORE_HOST_IPV6 = 0x20
    TRANSACTION_FLAGS = 0xC
    TRANSACTION_COMMIT = 0x8

cdef uint32_t MAGIC_V1 = 0xDAA320A7
cdef uint32_t MAGIC_V2 = 0xDAA320AB
cdef uint32_t MAGIC_BLANK = 0xCBD43194


def commits_between(Log log not None, int64_t first, int64_t end) -> list[tuple[int, int]]:
    """(log offset, half message's log offset) of each record in [first, end) that came from one.

    `first` is where a record begins. The half message at log offset 0 is told from none at all by
    the mark of a commit, which a caller must not take for proof.
    """
    cdef int64_t at = max(first, log.first_position), left, size, prepared
    cdef uint8_t* record
    cdef uint32_t magic
    cdef int32_t flag
    cdef int prepared_at
    end = min(end, log.end)
    found = []
    while at + RECORD_BYTES_MIN <= end:
        record = log.at(at)
        if record == NULL:
            break
        left = log.file_bytes - (at - log.first_position) % log.file_bytes
        if left < BLANK_BYTES:
            break
        magic = load32(record + MAGIC_AT)
        if magic == MAGIC_BLANK:
            at += left
            continue
        size = <int32_t> load32(record + SIZE_AT)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN or size > left or at + size > end:
            break
        flag = <int32_t> load32(record + SYSTEM_FLAG_AT)
        prepared_at = PREPARED_AT
        if flag & BORN_HOST_IPV6:
            prepared_at += IPV6_BYTES_MORE
        if flag & STORE_HOST_IPV6:
            prepared_at += IPV6_BYTES_MORE
        prepared = <int64_t> load64(record + prepared_at)
        if prepared != 0 or (flag & TRANSACTION_FLAGS) == TRANSACTION_COMMIT:
            found.append((at, prepared))
        at += size
    return found
