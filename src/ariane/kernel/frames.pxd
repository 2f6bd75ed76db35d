"""Frame headers as the lane reads them: pointers into the bytes just received."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ariane.kernel.layout cimport Text, is_word

cdef enum:
    FIELDS_MAX = 40

cdef struct Field:
    Text key
    Text value
    bint is_escaped     # the value holds JSON escapes

cdef struct Head:
    int32_t code
    int32_t opaque
    int32_t flag
    bint is_binary
    int field_count
    Field[FIELDS_MAX] fields

cdef bint number_of(Field* field, int64_t low, int64_t high, int64_t* value) noexcept nogil


cdef inline bint number(Field* field, int64_t* value) noexcept nogil:
    """A 32-bit number that must be there."""
    return field != NULL and number_of(field, -2147483648, 2147483647, value)


cdef inline bint wide_number(Field* field, int64_t* value) noexcept nogil:
    return number_of(field, -(<int64_t> 1 << 60), <int64_t> 1 << 60, value)


# How far a JSON text has been read.
cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    uint8_t seen        # all bytes of all strings, or-ed: above 0x7F somewhere means check UTF-8


cdef inline void skip_blanks(Cursor* c) noexcept nogil:
    while c.at < c.end and (c.at[0] == c' ' or c.at[0] == c'\n' or c.at[0] == c'\t' or c.at[0] == c'\r'):
        c.at += 1


cdef inline bint take_char(Cursor* c, uint8_t wanted) noexcept nogil:
    skip_blanks(c)
    if c.at == c.end or c.at[0] != wanted:
        return False
    c.at += 1
    return True


cdef inline bint named(Field* field, const char* name, Py_ssize_t size) noexcept nogil:
    return is_word(field.key, name, size)


cdef bint take_plain(Cursor* c, Text* text) noexcept nogil
cdef bint scan_json(const uint8_t* at, Py_ssize_t size, Head* head) noexcept nogil
cdef bint scan_binary(const uint8_t* at, Py_ssize_t size, Head* head) noexcept nogil
cdef bint is_true(Field* field) noexcept nogil
cdef Py_ssize_t unescape(Text text, uint8_t* to) noexcept nogil
cdef bint needs_escape(Text text) noexcept nogil

cdef class Output:
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity
    cdef uint8_t* room(self, Py_ssize_t size) except NULL
    cdef bytes take(self)
    cdef void clear(self) noexcept

cdef uint8_t* write_text(uint8_t* to, const char* text, Py_ssize_t size) noexcept nogil
cdef uint8_t* write_number(uint8_t* to, int64_t number) noexcept nogil
cdef uint8_t* write_hex(uint8_t* to, const uint8_t* bytes, Py_ssize_t size) noexcept nogil

# A reply frame under construction: lengths are filled in when its header and body are known.
cdef struct ReplyFrame:
    uint8_t* start
    uint8_t* to
    uint8_t* map_at
    bint is_binary
    bint has_fields

cdef void begin_reply(ReplyFrame* reply, uint8_t* to, Head* head, int32_t code, Text remark) noexcept nogil
cdef void put_name(ReplyFrame* reply, const char* name, Py_ssize_t name_size) noexcept nogil
cdef void put_text(ReplyFrame* reply, const char* name, Py_ssize_t name_size, Text value) noexcept nogil
cdef void put_number(ReplyFrame* reply, const char* name, Py_ssize_t name_size, int64_t value) noexcept nogil
cdef void end_header(ReplyFrame* reply, Head* head, Text remark, Py_ssize_t body_size) noexcept nogil
