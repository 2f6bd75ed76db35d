"""Filter expressions, for those who ask them about records they have found themselves."""

from libc.stdint cimport int64_t

from ariane.kernel.layout cimport Text

# What a condition comes to. An evaluation that failed cannot be made good by what stands beside it.
cdef enum Verdict:
    NO = 0
    YES = 1
    UNKNOWN = 2
    FAILED = 3

cdef enum:
    SAME_BUCKET_COUNT = 64

cdef struct Value:
    int kind
    int64_t number      # BOOLEAN, INTEGER and LONG
    double real
    Text text

cdef struct Node:
    int op
    bint is_negated
    int first           # the only or left operand; of AND and OR, where its operands begin in `lists`
    int second          # the right operand; of AND and OR, how many operands it has
    int slot            # PROPERTY and IN: which name
    Value constant      # CONSTANT; the text of CONTAINS and its kin
    int texts_first     # IN: its texts, in order of size and bytes
    int texts_count

cdef class Filter:
    cdef list kept              # whatever the pointers below point into
    cdef Text* names
    cdef Text* slots            # the values of the message being looked at; at NULL where it has none
    cdef int name_count
    cdef int[SAME_BUCKET_COUNT] buckets     # by a name's hash, the first name that has it; -1 for none
    cdef int* same_bucket       # by name, the next one with its hash
    cdef Node* nodes
    cdef int node_count
    cdef int* lists
    cdef Text* texts
    cdef int64_t work_fixed     # what an evaluation costs at most, in bytes looked at
    cdef int64_t work_per_byte
    cdef int verdict(self, Text properties) except? -1
    cdef int place_names(self, list names) except -1
    cdef int load(self, int index, tuple source, int* lists_used, int* texts_used) except -1
    cdef int operand(self, int child, int parent) except -1
    cdef void find(self, Text properties) noexcept nogil
