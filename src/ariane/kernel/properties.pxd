"""The properties of a message as they lie in its record: `name 0x01 value 0x02 name 0x01 value 0x02 ...`."""

from libc.stdint cimport int64_t, uint8_t

from ariane.kernel.layout cimport Draft, Text

cdef extern from "texts.h" nogil:
    ctypedef struct Pairs:          # a properties text that is read pair by pair
        size_t at                   # where the next one begins
    ctypedef struct Shape:
        size_t size
        uint8_t* text
        uint8_t* fixed
    Pairs pairs_of(Text text)
    bint next_pair(Pairs* rest, Text* name, Text* value)
    const uint8_t* find_byte(const uint8_t* at, const uint8_t* end, uint8_t mark)

# What the kernel wants to know of a properties text, found in one pass.
cdef struct Properties:
    Text tags
    Text keys
    Text unique_key
    Text delay
    Text timer            # of the one property that asks for a time
    int64_t timer_unit_ms # what one of it stands for; 0: it is a time of the clock
    bint waits            # WAIT is absent or not "false"
    bint is_late          # asks to come later, by level or by time
    bint has_real         # holds a mark of messages that wait: REAL_TOPIC or REAL_QID
    bint is_special       # holds a key that only the Python handler may act on
    bint ends_open        # the last pair lacks its closing 0x02

# A shape, and what was found in the text it was taken from. None of it asks to come later.
cdef struct Alike:
    Shape shape
    Properties found


cdef inline bint is_true(Text value) noexcept nogil:
    """Java's Boolean.parseBoolean: only "true", in any case, is true."""
    return (value.size == 4 and (value.at[0] | 0x20) == c't' and (value.at[1] | 0x20) == c'r'
            and (value.at[2] | 0x20) == c'u' and (value.at[3] | 0x20) == c'e')


cdef inline Text next_key(Text* rest) noexcept nogil:
    """Cut the next of several keys off, which spaces keep apart; one without letters at the end."""
    cdef const uint8_t* end = rest.at + rest.size
    cdef const uint8_t* stop
    cdef Text key = Text(rest.at, 0)
    while rest.size and not key.size:
        stop = find_byte(rest.at, end, c' ')
        key = Text(rest.at, stop - rest.at)
        rest.at = stop + (stop < end)
        rest.size = end - rest.at
    return key


cdef void find_properties(Text text, Properties* found) noexcept nogil
cdef void take_shape(Text text, Alike* alike) noexcept nogil
cdef bint find_alike(Text text, Alike* alike, Properties* found) noexcept nogil
cdef Text value_of(Text text, Text name) noexcept nogil
cdef dict properties_of(Text text)
cdef int key_count(const Draft* draft) noexcept nogil
