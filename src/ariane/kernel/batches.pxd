"""Messages that are sent together: entries one after the other, cut off a text one at a time."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ariane.kernel.layout cimport (
    BATCH_ENTRY_BYTES_MIN, BATCH_ENTRY_FLAG_AT, BATCH_ENTRY_HEAD_BYTES, Draft, Text, load16, load32,
)


cdef inline bint next_entry(Text* rest, Draft* draft) noexcept nogil:
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
