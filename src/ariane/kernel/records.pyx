"""The records of a pull's answer as light objects: found in one pass, their parts made when asked for.

All records of one answer share its bytes. Lengths are checked before they are followed; text is
not, since what a producer wrote badly must not keep others from being read.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from ariane.errors import ProtocolError

cdef extern from "bytes.h" nogil:
    unsigned short load16(const uint8_t* p)
    uint32_t load32(const uint8_t* p)
    unsigned long long load64(const uint8_t* p)

cdef enum:
    HOSTS_AT = 48        # where the born host starts; what follows it moves with the hosts' sizes
    BORN_HOST_IPV6 = 0x10
    STORE_HOST_IPV6 = 0x20
    NAME_END = 1
    VALUE_END = 2

cdef uint32_t MAGIC_V1 = 0xDAA320A7
cdef uint32_t MAGIC_V2 = 0xDAA320AB


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
            self.cached_properties = properties_of(self.at + self.properties_at, self.properties_size)
        return self.cached_properties

    @property
    def stored_properties(self) -> bytes:
        """The properties' text as it lies in the log."""
        return PyBytes_FromStringAndSize(<const char*> self.at + self.properties_at, self.properties_size)

    @property
    def born_host_bytes(self) -> bytes:
        """Address and port of the producer."""
        return PyBytes_FromStringAndSize(
            <const char*> self.at + HOSTS_AT, 20 if self.system_flag & BORN_HOST_IPV6 else 8
        )

    @property
    def store_host_bytes(self) -> bytes:
        """Address and port of the broker."""
        return PyBytes_FromStringAndSize(
            <const char*> self.at + self.store_host_at, 20 if self.system_flag & STORE_HOST_IPV6 else 8
        )

    @property
    def stored_record(self) -> bytes:
        """All of it."""
        return PyBytes_FromStringAndSize(<const char*> self.at, self.size)

    def find(self, bytes name):
        """The value of one property, without reading the others; None when it is not there."""
        cdef const uint8_t* at = self.at + self.properties_at
        cdef const uint8_t* end = at + self.properties_size
        cdef const uint8_t* entry_end
        cdef const uint8_t* found = NULL
        cdef Py_ssize_t name_size = PyBytes_GET_SIZE(name), found_size = 0
        if self.cached_properties is not None:
            return self.cached_properties.get(name.decode())
        while at < end:
            entry_end = <const uint8_t*> memchr(at, VALUE_END, end - at)
            if entry_end == NULL:
                entry_end = end
            if (entry_end - at > name_size + 1 and at[name_size] == NAME_END
                    and memcmp(at, PyBytes_AS_STRING(name), name_size) == 0):
                found = at + name_size + 1      # of two with one name the last counts
                found_size = entry_end - found
            at = entry_end + 1
        return None if found == NULL else PyUnicode_DecodeUTF8(<const char*> found, found_size, "replace")


cdef dict properties_of(const uint8_t* at, Py_ssize_t size):
    cdef dict properties = {}
    cdef const uint8_t* end = at + size
    cdef const uint8_t* entry_end
    cdef const uint8_t* name_end
    while at < end:
        entry_end = <const uint8_t*> memchr(at, VALUE_END, end - at)
        if entry_end == NULL:
            entry_end = end
        name_end = <const uint8_t*> memchr(at, NAME_END, entry_end - at)
        if name_end != NULL and name_end > at and entry_end - name_end > 1:
            properties[PyUnicode_DecodeUTF8(<const char*> at, name_end - at, "replace")] = (
                PyUnicode_DecodeUTF8(<const char*> name_end + 1, entry_end - name_end - 1, "replace")
            )
        at = entry_end + 1
    return properties


cdef int measure(Record record, const uint8_t* at, Py_ssize_t left) except -1:
    """Fill the record from the bytes at `at`; raises ProtocolError when a length is not true."""
    cdef Py_ssize_t end, length_bytes
    cdef uint32_t magic
    if left < HOSTS_AT:
        raise ProtocolError(f"a record's head expected, {left} bytes are left")
    magic = load32(at + 4)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise ProtocolError(f"{magic:#x} is not the magic number of a record")
    record.at = at
    record.size = <int32_t> load32(at)
    record.body_crc32 = <int32_t> load32(at + 8)
    record.queue_id = <int32_t> load32(at + 12)
    record.flag = <int32_t> load32(at + 16)
    record.queue_offset = <int64_t> load64(at + 20)
    record.log_offset = <int64_t> load64(at + 28)
    record.system_flag = <int32_t> load32(at + 36)
    record.born_at_ms = <int64_t> load64(at + 40)
    record.store_host_at = HOSTS_AT + (20 if record.system_flag & BORN_HOST_IPV6 else 8) + 8
    end = record.store_host_at + (20 if record.system_flag & STORE_HOST_IPV6 else 8) + 16
    if left < end:
        raise ProtocolError(f"a record's head expected, {left} bytes are left")
    record.stored_at_ms = <int64_t> load64(at + record.store_host_at - 8)
    record.reconsume_times = <int32_t> load32(at + end - 16)
    record.prepared_offset = <int64_t> load64(at + end - 12)
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
