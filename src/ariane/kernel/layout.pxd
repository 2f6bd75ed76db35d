"""What every part of the kernel speaks: words of a file, texts, and how records and entries are laid out.

Formats: docs/formats/.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

cdef extern from "bytes.h" nogil:
    ctypedef struct Text:
        const uint8_t* at
        Py_ssize_t size
    uint16_t load16(const uint8_t* p)
    uint32_t load32(const uint8_t* p)
    uint64_t load64(const uint8_t* p)
    void save16(uint8_t* p, uint16_t value)
    void save32(uint8_t* p, uint32_t value)
    void save64(uint8_t* p, uint64_t value)
    void copy_name(uint8_t* to, const uint8_t* from_, size_t size)
    uint64_t inverse_of(uint32_t divisor)
    uint32_t remainder_of(uint32_t number, uint32_t divisor, uint64_t inverse)
    void publish()
    void expect_write(const void* p)
    void expect_read(const void* p)
    const uint32_t MAGIC_V1
    const uint32_t MAGIC_V2         # two bytes of topic length instead of one
    const uint32_t MAGIC_BLANK

# Records (docs/formats/record.md). Positions up to the born host are fixed; an IPv6 host moves the rest.
cdef enum:
    SIZE_AT = 0
    MAGIC_AT = 4
    CRC_AT = 8
    QUEUE_ID_AT = 12
    FLAG_AT = 16
    QUEUE_OFFSET_AT = 20
    LOG_OFFSET_AT = 28
    SYSTEM_FLAG_AT = 36
    BORN_MS_AT = 40
    BORN_HOST_AT = 48
    RECONSUME_TIMES_BEFORE_BODY = 16
    PREPARED_OFFSET_BEFORE_BODY = 12
    RECORD_BYTES_MIN = 91
    PROPERTIES_BYTES_MAX = 32767
    BLANK_BYTES = 8
    SECTOR_BYTES = 512

# The system flag.
cdef enum:
    COMPRESSED = 0x1
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    TRANSACTION_BITS = 0xC
    BORN_HOST_IPV6 = 0x10
    STORE_HOST_IPV6 = 0x20

# Entries of a consume queue: log offset, record size, tags code.
cdef enum:
    QUEUE_ENTRY_BYTES = 20
    ENTRY_SIZE_AT = 8
    ENTRY_TAGS_AT = 12
    PADDING_SIZE = 0x7FFFFFFF       # of a queue entry that was never used

# Entries of a batch: size, magic, CRC, flag, body size, body, properties size, properties.
cdef enum:
    BATCH_ENTRY_FLAG_AT = 12
    BATCH_ENTRY_HEAD_BYTES = 20
    BATCH_ENTRY_BYTES_MIN = 22

# The parts of a record that have no fixed place.
cdef struct Fields:
    Text topic
    Text body
    Text properties
    int32_t queue_id
    int64_t store_ms

# A record before the log gives it its place.
cdef struct Draft:
    Text topic
    Text body
    Text properties
    Text suffix           # more properties, written right after
    Text born_host        # 4 or 16 address bytes and a port
    Text keys
    Text unique_key
    int64_t tags_code
    int64_t born_ms
    int64_t prepared_offset
    int32_t queue_id
    int32_t flag
    int32_t system_flag
    int32_t reconsume_times


cdef inline bint is_record_magic(uint32_t magic) noexcept nogil:
    return magic == MAGIC_V1 or magic == MAGIC_V2


cdef inline Py_ssize_t born_host_bytes(uint32_t system_flag) noexcept nogil:
    return 20 if system_flag & BORN_HOST_IPV6 else 8


cdef inline Py_ssize_t store_host_bytes(uint32_t system_flag) noexcept nogil:
    return 20 if system_flag & STORE_HOST_IPV6 else 8


cdef inline bint same(Text one, Text other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef inline bint is_word(Text text, const char* word, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, word, size) == 0


cdef inline Text text_of(bytes value):
    """The bytes of an object, good as long as it is."""
    return Text(<const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef extern from "Python.h":
    char* bytes_start "PyBytes_AS_STRING"(void*) nogil
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(void*) nogil


cdef inline Text text_in(bytes value) noexcept nogil:
    """As `text_of`, without the interpreter: the caller knows that it is no None."""
    return Text(<const uint8_t*> bytes_start(<void*> value), bytes_size(<void*> value))


cdef inline bytes bytes_of(Text text):
    return PyBytes_FromStringAndSize(<const char*> text.at, text.size)
