"""The records of a pull's answer as light objects: found in one pass, their parts made when asked for.

All records of one answer share its bytes. Lengths are checked before they are followed; text is
not, since what a producer wrote badly must not keep others from being read.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ariane.errors import ProtocolError
from ariane.kernel.layout cimport (
    BORN_HOST_AT, BORN_MS_AT, CRC_AT, FLAG_AT, LOG_OFFSET_AT, MAGIC_AT, MAGIC_V1, PREPARED_OFFSET_BEFORE_BODY,
    QUEUE_ID_AT, QUEUE_OFFSET_AT, RECONSUME_TIMES_BEFORE_BODY, SIZE_AT, SYSTEM_FLAG_AT, Text, born_host_bytes,
    is_record_magic, load16, load32, load64, store_host_bytes, text_of,
)
from ariane.kernel.properties cimport properties_of, value_of


cdef class Record:
    """One stored message; subclasses add what it means to their users."""

    cdef bytes data                  # the whole answer, which `at` points into
    cdef const uint8_t* at
    cdef int32_t store_host_at
    cdef int32_t body_at
    cdef int32_t body_size
    cdef int32_t topic_at
    cdef int32_t topic_size
    cdef int32_t properties_at
    cdef int32_t properties_size
    cdef readonly int32_t size
    cdef readonly int32_t body_crc32
    cdef readonly int32_t queue_id
    cdef readonly int32_t flag
    cdef readonly int32_t system_flag
    cdef readonly int64_t queue_offset
    cdef readonly int64_t log_offset
    cdef readonly int64_t born_at_ms
    cdef readonly int64_t stored_at_ms
    cdef readonly int64_t prepared_offset
    cdef public int32_t reconsume_times
    cdef public object holder        # whoever has to know what becomes of it
    cdef public bint is_started
    cdef public bint is_done
    cdef object cached_body
    cdef object cached_properties
    cdef object cached_topic

    @property
    def stored_topic(self) -> str:
        """The topic it is stored under."""
        if self.cached_topic is None:
            self.cached_topic = PyUnicode_DecodeUTF8(<const char*> self.at + self.topic_at, self.topic_size, "replace")
        return self.cached_topic

    @property
    def stored_body(self) -> bytes:
        """The body as it lies in the log, maybe compressed."""
        if self.cached_body is None:
            self.cached_body = PyBytes_FromStringAndSize(<const char*> self.at + self.body_at, self.body_size)
        return self.cached_body

    @property
    def properties(self) -> dict:
        """Names and values; an entry without a name or a value is skipped, as Java does."""
        if self.cached_properties is None:
            self.cached_properties = properties_of(self.properties_text())
        return self.cached_properties

    @property
    def stored_properties(self) -> bytes:
        """The properties' text as it lies in the log."""
        return PyBytes_FromStringAndSize(<const char*> self.at + self.properties_at, self.properties_size)

    @property
    def born_host_bytes(self) -> bytes:
        """Address and port of the producer."""
        return PyBytes_FromStringAndSize(
            <const char*> self.at + BORN_HOST_AT, born_host_bytes(self.system_flag)
        )

    @property
    def store_host_bytes(self) -> bytes:
        """Address and port of the broker."""
        return PyBytes_FromStringAndSize(
            <const char*> self.at + self.store_host_at, store_host_bytes(self.system_flag)
        )

    @property
    def stored_record(self) -> bytes:
        """All of it."""
        return PyBytes_FromStringAndSize(<const char*> self.at, self.size)

    def find(self, bytes name):
        """The value of one property, without reading the others; None when it is not there."""
        cdef Text value
        if self.cached_properties is not None:
            return self.cached_properties.get(name.decode())
        value = value_of(self.properties_text(), text_of(name))
        return None if value.at == NULL else PyUnicode_DecodeUTF8(<const char*> value.at, value.size, "replace")

    cdef Text properties_text(self) noexcept:
        return Text(self.at + self.properties_at, self.properties_size)


cdef int measure(Record record, const uint8_t* at, Py_ssize_t left) except -1:
    """Fill the record from the bytes at `at`; raises ProtocolError when a length is not true."""
    cdef Py_ssize_t end, length_bytes
    cdef uint32_t magic
    if left < BORN_HOST_AT:
        raise ProtocolError(f"a record's head expected, {left} bytes are left")
    magic = load32(at + MAGIC_AT)
    if not is_record_magic(magic):
        raise ProtocolError(f"{magic:#x} is not the magic number of a record")
    record.at = at
    record.size = <int32_t> load32(at + SIZE_AT)
    record.body_crc32 = <int32_t> load32(at + CRC_AT)
    record.queue_id = <int32_t> load32(at + QUEUE_ID_AT)
    record.flag = <int32_t> load32(at + FLAG_AT)
    record.queue_offset = <int64_t> load64(at + QUEUE_OFFSET_AT)
    record.log_offset = <int64_t> load64(at + LOG_OFFSET_AT)
    record.system_flag = <int32_t> load32(at + SYSTEM_FLAG_AT)
    record.born_at_ms = <int64_t> load64(at + BORN_MS_AT)
    record.store_host_at = BORN_HOST_AT + born_host_bytes(record.system_flag) + 8
    end = record.store_host_at + store_host_bytes(record.system_flag) + 16
    if left < end:
        raise ProtocolError(f"a record's head expected, {left} bytes are left")
    record.stored_at_ms = <int64_t> load64(at + record.store_host_at - 8)
    record.reconsume_times = <int32_t> load32(at + end - RECONSUME_TIMES_BEFORE_BODY)
    record.prepared_offset = <int64_t> load64(at + end - PREPARED_OFFSET_BEFORE_BODY)
    record.body_size = <int32_t> load32(at + end - 4)
    record.body_at = <int32_t> end
    length_bytes = 1 if magic == MAGIC_V1 else 2
    if record.body_size < 0 or left - end < record.body_size + length_bytes:
        raise ProtocolError(f"a body of {record.body_size} bytes does not fit into the {left} left")
    end += record.body_size
    record.topic_size = at[end] if length_bytes == 1 else <short> load16(at + end)
    end += length_bytes
    record.topic_at = <int32_t> end
    if record.topic_size < 0 or left - end < record.topic_size + 2:
        raise ProtocolError(f"a topic of {record.topic_size} bytes does not fit into the {left} left")
    end += record.topic_size
    record.properties_size = <short> load16(at + end)
    end += 2
    record.properties_at = <int32_t> end
    if record.properties_size < 0 or left - end < record.properties_size:
        raise ProtocolError(f"properties of {record.properties_size} bytes do not fit into the {left} left")
    end += record.properties_size
    if record.size != end:
        raise ProtocolError(f"what says it has {record.size} bytes has parts of {end}")
    return 0


def decode(bytes data, type kind, holder=None) -> list:
    """All records of an answer, back to back, as objects of `kind`; raises ProtocolError."""
    cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(data)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(data)
    cdef list records = []
    cdef Record record
    while left > 0:
        record = kind.__new__(kind)
        record.data = data
        record.holder = holder
        measure(record, at, left)
        records.append(record)
        at += record.size
        left -= record.size
    return records
