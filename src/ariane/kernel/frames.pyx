"""Reading request headers and writing reply headers, both forms, without a Python object.

The scanners are strict and shy: whatever is not the plain shape that clients send (nested values,
nulls, odd numbers, bad UTF-8) they decline, and the full decoder in `protocol` has the last word.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ariane.codes import PROTOCOL_VERSION
from ariane.kernel.digits cimport put_digits
from ariane.kernel.layout cimport Text, is_word, load16, load32, save16, save32

cdef extern from "texts.h" nogil:
    void put_hex(uint8_t* to, const uint8_t* bytes, size_t size)
    bint is_utf8(const uint8_t* at, const uint8_t* end)

cdef int32_t VERSION = PROTOCOL_VERSION

cdef enum:
    BINARY_FIXED_BYTES = 21
    RESPONSE_FLAG = 1


# ---------------------------------------------------------------- JSON


cdef inline Py_ssize_t escape_size(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """How long the escape is that follows a backslash; beyond the end when it is none, as the handlers would find."""
    cdef int point
    if at == end:
        return 1
    if at[0] != c'u':
        return 1 if at[0] in b'"\\/bfnrt' else end - at + 1
    point = hex_of(at + 1) if end - at >= 5 else -1
    if (0xD800 <= point <= 0xDBFF and end - at >= 11 and at[5] == c'\\' and at[6] == c'u'
            and 0xDC00 <= hex_of(at + 7) <= 0xDFFF):
        return 11
    return end - at + 1 if point < 0 or 0xD800 <= point <= 0xDFFF else 5


cdef inline bint take_string(Cursor* c, Text* text, bint* is_escaped) noexcept nogil:
    """A JSON string, as the bytes between its quotes."""
    cdef const uint8_t* at
    cdef uint8_t seen = 0
    if not take_char(c, c'"'):
        return False
    at = c.at
    text.at = at
    is_escaped[0] = False
    while at < c.end:
        if at[0] == c'"':
            text.size = at - text.at
            c.at = at + 1
            c.seen |= seen
            return True
        if at[0] == c'\\':
            is_escaped[0] = True
            at += 1
            at += escape_size(at, c.end) - 1
            if at >= c.end:
                return False
        elif at[0] < 0x20:
            return False
        seen |= at[0]
        at += 1
    return False


cdef bint take_plain(Cursor* c, Text* text) noexcept nogil:
    """A string without escapes, of ASCII."""
    cdef bint is_escaped
    return take_string(c, text, &is_escaped) and not is_escaped and c.seen < 0x80


cdef inline bint take_bare(Cursor* c, Text* text) noexcept nogil:
    """A number, true or false, as its letters."""
    skip_blanks(c)
    text.at = c.at
    while c.at < c.end and (c'0' <= c.at[0] <= c'9' or c'a' <= c.at[0] <= c'z' or c.at[0] == c'-'):
        c.at += 1
    text.size = c.at - text.at
    return text.size > 0 and not (text.size == 4 and memcmp(text.at, <const char*> "null", 4) == 0)


cdef inline bint take_int32(Cursor* c, int32_t* value) noexcept nogil:
    cdef Field field
    cdef int64_t number
    field.is_escaped = False
    if not take_bare(c, &field.value) or not number_of(&field, -2147483648, 2147483647, &number):
        return False
    value[0] = <int32_t> number
    return True


cdef inline bint is_plain_bare(Field* field) noexcept nogil:
    """Whether a bare value is true, false, or a whole number in its shortest spelling."""
    cdef int64_t number
    return (is_word(field.value, "true", 4) or is_word(field.value, "false", 5)
            or number_of(field, -(<int64_t> 1 << 62), <int64_t> 1 << 62, &number))


cdef bint take_fields(Cursor* c, Head* head) noexcept nogil:
    """The object of custom header fields."""
    cdef Field* field
    cdef bint is_escaped
    head.field_count = 0
    if not take_char(c, c'{'):
        return False
    if take_char(c, c'}'):
        return True
    while True:
        if head.field_count == FIELDS_MAX:
            return False
        field = &head.fields[head.field_count]
        if not take_string(c, &field.key, &is_escaped) or is_escaped or not take_char(c, c':'):
            return False
        skip_blanks(c)
        if c.at < c.end and c.at[0] == c'"':
            if not take_string(c, &field.value, &field.is_escaped):
                return False
        else:
            field.is_escaped = False
            if not take_bare(c, &field.value) or not is_plain_bare(field):
                return False
        head.field_count += 1
        if take_char(c, c','):
            continue
        return take_char(c, c'}')


cdef bint scan_json(const uint8_t* at, Py_ssize_t size, Head* head) noexcept nogil:
    """Read a JSON header; False when it is not of the plain shape."""
    cdef Cursor c = Cursor(at, at + size, 0)
    cdef Text key, ignored
    cdef int32_t version
    cdef bint is_escaped, has_code = False, good
    head.opaque = head.flag = 0
    head.field_count = 0
    head.is_binary = False
    if not take_char(&c, c'{'):
        return False
    while True:
        if not take_string(&c, &key, &is_escaped) or is_escaped or not take_char(&c, c':'):
            return False
        if is_word(key, "code", 4):
            good = has_code = take_int32(&c, &head.code)
        elif is_word(key, "opaque", 6):
            good = take_int32(&c, &head.opaque)
        elif is_word(key, "flag", 4):
            good = take_int32(&c, &head.flag)
        elif is_word(key, "extFields", 9):
            good = take_fields(&c, head)
        elif is_word(key, "version", 7):
            good = take_int32(&c, &version)
        elif is_word(key, "language", 8) or is_word(key, "remark", 6) or is_word(key, "serializeTypeCurrentRPC", 23):
            good = take_string(&c, &ignored, &is_escaped) and not is_escaped
        else:
            good = False
        if not good:
            return False
        if take_char(&c, c','):
            continue
        if not take_char(&c, c'}'):
            return False
        skip_blanks(&c)
        return has_code and c.at == c.end and (c.seen < 0x80 or is_utf8(at, at + size))


cdef bint number_of(Field* field, int64_t low, int64_t high, int64_t* value) noexcept nogil:
    """A decimal number within bounds; False for anything else."""
    cdef const uint8_t* at = field.value.at
    cdef Py_ssize_t size = field.value.size
    cdef bint is_negative = size > 0 and at[0] == c'-'
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if field.is_escaped or size - is_negative < 1 or size - is_negative > 18:
        return False
    if at[is_negative] == c'0' and size > 1:  # 007 and -0 are for the full decoder to judge
        return False
    for i in range(is_negative, size):
        if not c'0' <= at[i] <= c'9':
            return False
        number = number * 10 + (at[i] - c'0')
    value[0] = -number if is_negative else number
    return low <= value[0] <= high


cdef bint is_true(Field* field) noexcept nogil:
    """Java's rule: "true" in any case, and nothing else."""
    cdef const char* letters = "true"
    cdef int i
    if field.value.size != 4:
        return False
    for i in range(4):
        if (field.value.at[i] | 0x20) != letters[i]:
            return False
    return True


cdef inline int hex_of(const uint8_t* at) noexcept nogil:
    """Four hexadecimal digits, or -1."""
    cdef int value = 0, i
    cdef uint8_t digit
    for i in range(4):
        digit = at[i]
        if c'0' <= digit <= c'9':
            value = value << 4 | (digit - c'0')
        elif c'a' <= (digit | 0x20) <= c'f':
            value = value << 4 | ((digit | 0x20) - c'a' + 10)
        else:
            return -1
    return value


cdef Py_ssize_t unescape(Text text, uint8_t* to) noexcept nogil:
    """Write a JSON string's text as UTF-8, never longer than it was; its size, or -1 when it is odd."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef uint8_t* start = to
    cdef int point, low
    while at < end:
        if at[0] != c'\\':
            to[0] = at[0]
            to += 1
            at += 1
            continue
        if end - at >= 6 and at[1] == c'u':
            point = hex_of(at + 2)
            at += 6
            if 0xD800 <= point <= 0xDBFF and end - at >= 6 and at[0] == c'\\' and at[1] == c'u':
                low = hex_of(at + 2)
                if not 0xDC00 <= low <= 0xDFFF:
                    return -1
                point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
                at += 6
            if point < 0 or 0xD800 <= point <= 0xDFFF:
                return -1
            to = write_point(to, point)
            continue
        if end - at < 2:
            return -1
        if at[1] == c'"' or at[1] == c'\\' or at[1] == c'/':
            to[0] = at[1]
        elif at[1] == c'n':
            to[0] = c'\n'
        elif at[1] == c't':
            to[0] = c'\t'
        elif at[1] == c'r':
            to[0] = c'\r'
        elif at[1] == c'b':
            to[0] = 8
        elif at[1] == c'f':
            to[0] = 12
        else:
            return -1
        to += 1
        at += 2
    return to - start


cdef inline uint8_t* write_point(uint8_t* to, int point) noexcept nogil:
    if point < 0x80:
        to[0] = <uint8_t> point
        return to + 1
    if point < 0x800:
        to[0] = <uint8_t> (0xC0 | point >> 6)
        to[1] = <uint8_t> (0x80 | (point & 0x3F))
        return to + 2
    if point < 0x10000:
        to[0] = <uint8_t> (0xE0 | point >> 12)
        to[1] = <uint8_t> (0x80 | (point >> 6 & 0x3F))
        to[2] = <uint8_t> (0x80 | (point & 0x3F))
        return to + 3
    to[0] = <uint8_t> (0xF0 | point >> 18)
    to[1] = <uint8_t> (0x80 | (point >> 12 & 0x3F))
    to[2] = <uint8_t> (0x80 | (point >> 6 & 0x3F))
    to[3] = <uint8_t> (0x80 | (point & 0x3F))
    return to + 4


cdef bint needs_escape(Text text) noexcept nogil:
    """Whether the text cannot stand in a JSON string as it is."""
    cdef Py_ssize_t i
    for i in range(text.size):
        if text.at[i] < 0x20 or text.at[i] == c'"' or text.at[i] == c'\\' or text.at[i] >= 0x7F:
            return True
    return False


# ---------------------------------------------------------------- RocketMQ's binary form


cdef bint scan_binary(const uint8_t* at, Py_ssize_t size, Head* head) noexcept nogil:
    """Read a binary header; False when it is not sound. Empty values are absent ones."""
    cdef const uint8_t* end = at + size
    cdef int64_t remark_size, block_size, value_size
    cdef int32_t key_size
    cdef Field* field
    head.is_binary = True
    head.field_count = 0
    if size < BINARY_FIXED_BYTES:
        return False
    head.code = <int16_t> load16(at)
    head.opaque = <int32_t> load32(at + 5)
    head.flag = <int32_t> load32(at + 9)
    remark_size = <int32_t> load32(at + 13)
    if remark_size != 0:
        return False
    block_size = <int32_t> load32(at + 17)
    at += BINARY_FIXED_BYTES
    if block_size != end - at or not is_ascii(at, block_size):
        return False
    while at < end:
        if end - at < 2 or head.field_count == FIELDS_MAX:
            return False
        key_size = <int16_t> load16(at)
        if key_size < 0 or end - at < 6 + key_size:
            return False
        field = &head.fields[head.field_count]
        field.key = Text(at + 2, key_size)
        value_size = <int32_t> load32(at + 2 + key_size)
        at += 6 + key_size
        if value_size < 0 or value_size > end - at:
            return False
        field.value = Text(at, value_size)
        field.is_escaped = False
        at += value_size
        if value_size:
            head.field_count += 1
    return True


cdef bint is_ascii(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Whether no byte is above ASCII; text beyond that is left to the full decoder."""
    cdef Py_ssize_t i
    for i in range(size):
        if at[i] >= 0x80:
            return False
    return True


# ---------------------------------------------------------------- replies


cdef class Output:
    """Bytes on their way out, grown as needed and used again."""

    def __cinit__(self):
        self.data = NULL
        self.size = self.capacity = 0

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef uint8_t* room(self, Py_ssize_t size) except NULL:
        """Where the next `size` bytes go."""
        cdef uint8_t* grown
        if self.size + size > self.capacity:
            grown = <uint8_t*> PyMem_Realloc(self.data, (self.size + size) * 2)
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.capacity = (self.size + size) * 2
        return self.data + self.size

    cdef bytes take(self):
        """All of it; the buffer is empty again."""
        cdef bytes taken = PyBytes_FromStringAndSize(<char*> self.data, self.size)
        self.clear()
        return taken

    cdef void clear(self) noexcept:
        """Be empty again, and small again after an unusually large answer."""
        self.size = 0
        if self.capacity > 1 << 22:
            PyMem_Free(self.data)
            self.data = NULL
            self.capacity = 0


cdef inline uint8_t* write_text(uint8_t* to, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(to, text, size)
    return to + size


cdef uint8_t* write_number(uint8_t* to, int64_t number) noexcept nogil:
    cdef uint64_t rest = <uint64_t> number
    if number < 0:
        to[0] = c'-'
        to += 1
        rest = -rest
    return put_digits(to, rest)


cdef uint8_t* write_hex(uint8_t* to, const uint8_t* bytes, Py_ssize_t size) noexcept nogil:
    put_hex(to, bytes, size)
    return to + 2 * size


cdef void begin_reply(ReplyFrame* reply, uint8_t* to, Head* head, int32_t code, Text remark) noexcept nogil:
    """Start a reply in the form its request had, at `to`, where room must have been made."""
    reply.start = to
    reply.is_binary = head.is_binary
    reply.has_fields = False
    to += 8
    if head.is_binary:
        save16(to, <uint16_t> code)
        to[2] = 0  # JAVA: the language every client knows
        save16(to + 3, <uint16_t> VERSION)
        save32(to + 5, <uint32_t> head.opaque)
        save32(to + 9, RESPONSE_FLAG)
        save32(to + 13, <uint32_t> remark.size)
        to = write_text(to + 17, <const char*> remark.at, remark.size)
        reply.map_at = to
        to += 4
    else:
        to = write_text(to, '{"code":', 8)
        to = write_number(to, code)
        to = write_text(to, ',"extFields":{', 14)
    reply.to = to


cdef void put_name(ReplyFrame* reply, const char* name, Py_ssize_t name_size) noexcept nogil:
    """Write a field's name; the caller writes the value (and in JSON its closing quote)."""
    cdef uint8_t* to = reply.to
    if reply.is_binary:
        save16(to, <uint16_t> name_size)
        to = write_text(to + 2, name, name_size)
    else:
        if reply.has_fields:
            to[0] = c','
            to += 1
        to[0] = c'"'
        to = write_text(to + 1, name, name_size)
        to = write_text(to, '":"', 3)
    reply.has_fields = True
    reply.to = to


cdef void put_text(ReplyFrame* reply, const char* name, Py_ssize_t name_size, Text value) noexcept nogil:
    put_name(reply, name, name_size)
    if reply.is_binary:
        save32(reply.to, <uint32_t> value.size)
        reply.to = write_text(reply.to + 4, <const char*> value.at, value.size)
    else:
        reply.to = write_text(reply.to, <const char*> value.at, value.size)
        reply.to[0] = c'"'
        reply.to += 1


cdef void put_number(ReplyFrame* reply, const char* name, Py_ssize_t name_size, int64_t value) noexcept nogil:
    cdef uint8_t[24] digits
    cdef Text text
    text.at = &digits[0]
    text.size = write_number(&digits[0], value) - &digits[0]
    put_text(reply, name, name_size, text)


cdef void end_header(ReplyFrame* reply, Head* head, Text remark, Py_ssize_t body_size) noexcept nogil:
    """Close the header and fill in the frame's lengths; `body_size` bytes follow at `reply.to`."""
    cdef uint8_t* to = reply.to
    cdef Py_ssize_t header_size
    if reply.is_binary:
        save32(reply.map_at, <uint32_t> (to - reply.map_at - 4))
    else:
        to = write_text(to, '},"flag":1,"language":"JAVA","opaque":', 38)
        to = write_number(to, head.opaque)
        to = write_text(to, ',"version":', 11)
        to = write_number(to, VERSION)
        if remark.size:
            to = write_text(to, ',"remark":"', 11)
            to = write_text(to, <const char*> remark.at, remark.size)
            to[0] = c'"'
            to += 1
        to[0] = c'}'
        to += 1
    header_size = to - reply.start - 8
    save32(reply.start, <uint32_t> (4 + header_size + body_size))
    save32(reply.start + 4, <uint32_t> header_size | (<uint32_t> 0x1000000 if reply.is_binary else 0))
    reply.to = to
