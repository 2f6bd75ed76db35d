"""Properties read where they lie, by one reader for all: `next_pair` of texts.h.

`protocol/properties.py` is the specification: of a name that comes twice the last value counts, and a pair that
lacks its name or its value is none.
"""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from ariane.kernel.layout cimport Draft, Text, is_word, same, text_of

cdef extern from "texts.h" nogil:
    int SHAPE_BYTES_MAX
    bint has_shape(const Shape* shape, const uint8_t* text, size_t size)

cdef Properties NO_PROPERTIES
memset(&NO_PROPERTIES, 0, sizeof(Properties))
NO_PROPERTIES.waits = True


def read(bytes properties not None) -> dict[str, str]:
    """Names and values, as whoever reads a record sees them."""
    return properties_of(text_of(properties))


def key_count_of(bytes properties not None) -> int:
    """How many index entries a message with these properties makes."""
    cdef Properties found
    cdef Draft draft
    find_properties(text_of(properties), &found)
    draft.keys = found.keys
    draft.unique_key = found.unique_key
    return key_count(&draft)


cdef int key_count(const Draft* draft) noexcept nogil:
    """How many index entries a message makes: its unique key and each space-separated key."""
    cdef int count = 1 if draft.unique_key.size else 0
    cdef Text rest = draft.keys
    while next_key(&rest).size:
        count += 1
    return count


cdef Text value_of(Text text, Text name) noexcept nogil:
    """The value of one property; at NULL when it is not there."""
    cdef Pairs rest = pairs_of(text)
    cdef Text found = Text(NULL, 0), other, value
    while next_pair(&rest, &other, &value):
        if same(other, name):
            found = value
    return found


cdef dict properties_of(Text text):
    """All of them; bytes that are not UTF-8 are replaced."""
    cdef Pairs rest = pairs_of(text)
    cdef Text name, value
    cdef dict found = {}
    while next_pair(&rest, &name, &value):
        found[PyUnicode_DecodeUTF8(<const char*> name.at, name.size, "replace")] = (
            PyUnicode_DecodeUTF8(<const char*> value.at, value.size, "replace"))
    return found


cdef void find_properties(Text text, Properties* found) noexcept nogil:
    """Look once for all that the kernel acts on."""
    cdef Pairs rest = pairs_of(text)
    cdef Text name, value
    found[0] = NO_PROPERTIES
    found.ends_open = text.size > 0 and text.at[text.size - 1] != 2
    while next_pair(&rest, &name, &value):
        note_property(name, value, found)


cdef void take_shape(Text text, Alike* alike) noexcept nogil:
    """Let texts that differ from this one only in their values be read without looking for their names."""
    cdef Shape* shape = &alike.shape
    cdef Pairs rest
    cdef Text name, value
    shape.size = 0
    if text.size > SHAPE_BYTES_MAX:
        return
    memcpy(shape.text, text.at, text.size)
    memset(shape.fixed, 255, text.size)
    text.at = shape.text
    find_properties(text, &alike.found)
    if alike.found.is_late:
        return
    rest = pairs_of(text)
    while next_pair(&rest, &name, &value):
        if not is_word(name, "WAIT", 4):    # of which the meaning is kept, of others only where they are
            memset(shape.fixed + (value.at - text.at), 0, value.size)
    shape.size = text.size


cdef bint find_alike(Text text, Alike* alike, Properties* found) noexcept nogil:
    """Do as `find_properties`, for a text of a known shape; False when it has another."""
    cdef int64_t step = text.at - alike.shape.text
    if not has_shape(&alike.shape, text.at, text.size):
        return False
    found[0] = alike.found
    found.tags.at += step
    found.keys.at += step
    found.unique_key.at += step
    return True


cdef inline bint begins_with(Text text, const char* word, Py_ssize_t size) noexcept nogil:
    return text.size > size and memcmp(text.at, word, size) == 0


cdef inline void note_property(Text name, Text value, Properties* found) noexcept nogil:
    cdef uint8_t initial = name.at[0]
    if initial == c'T':
        if is_word(name, "TAGS", 4):
            found.tags = value
        elif is_word(name, "TRAN_MSG", 8) or is_word(name, "TRACE_ON", 8):
            found.is_special = True
        elif begins_with(name, "TIMER_", 6):
            note_time(name, value, found)
    elif initial == c'K':
        if is_word(name, "KEYS", 4):
            found.keys = value
    elif initial == c'U':
        if is_word(name, "UNIQ_KEY", 8):
            found.unique_key = value
    elif initial == c'W':
        if is_word(name, "WAIT", 4):
            found.waits = is_true(value)
    elif initial == c'D':
        if is_word(name, "DELAY", 5):
            found.delay = value
            found.is_late = True
    elif initial == c'R':
        if is_word(name, "REAL_TOPIC", 10) or is_word(name, "REAL_QID", 8):
            found.has_real = True
    elif initial == c'M':
        if is_word(name, "MSG_REGION", 10) or is_word(name, "MSG_TYPE", 8):
            found.is_special = True
    elif initial == c'C':
        if is_word(name, "CLUSTER", 7):
            found.is_special = True
    elif initial == c'P':
        if is_word(name, "POP_CK", 6):
            found.is_special = True
    elif initial == c'I':
        if begins_with(name, "INNER_", 6):
            found.is_special = True
    elif initial == c'_':
        if is_word(name, "__CRC32#", 8) or begins_with(name, "__RMQ.TRANSIENT.", 16):
            found.is_special = True


cdef void note_time(Text name, Text value, Properties* found) noexcept nogil:
    """One property may ask for a time; what else the timer knows is for the handlers, and so are two."""
    if found.timer.size:
        found.is_special = True
    elif is_word(name, "TIMER_DELAY_SEC", 15):
        found.timer_unit_ms = 1000
    elif is_word(name, "TIMER_DELAY_MS", 14):
        found.timer_unit_ms = 1
    elif not is_word(name, "TIMER_DELIVER_MS", 16):
        found.is_special = True
    found.timer = value
    found.is_late = True
