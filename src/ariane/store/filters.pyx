"""Filter expressions, evaluated on a message's properties as they lie in the log.

A `Filter` is a program: nodes in one array, children before their parents. An evaluation passes over
the properties once, noting where the values of the names it knows lie, and then walks the program
from its last node; nothing is decoded, copied or allocated. Values are Java's: a property is a text, a
number is 32 or 64 bits wide or a double, and a text that meets a number is read as one of its kind. A
text that cannot be read so ends the evaluation, and the message does not match, whatever else the
expression says (docs/reference/filters.md).

`read` is `kernel.log.read` with a filter: entries are looked at one by one until enough match or
enough work has been done, so no expression can hold the loop up.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ariane.kernel.layout cimport (
    ENTRY_SIZE_AT, PADDING_SIZE, QUEUE_ENTRY_BYTES, Fields, Text, bytes_of, load32, load64, same, text_of,
)
from ariane.kernel.log cimport Log, visible_end
from ariane.kernel.properties cimport Pairs, is_true, next_pair, pairs_of
from ariane.kernel.queue cimport Queue
from ariane.kernel.reading cimport MESSAGES_PER_READ_MAX, ReadLimits, ReadResult, is_enough, joined
from ariane.kernel.records cimport read_fields, readable_size

import re

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t haystack_size, const void* needle, size_t needle_size)

# What a node does; `broker.filters.compiler` writes these.
cdef enum Op:
    CONSTANT = 0
    PROPERTY = 1
    NEGATE = 2
    NOT = 3
    TRUTH = 4
    EQUAL = 5
    GREATER = 6
    GREATER_OR_EQUAL = 7
    LESS = 8
    LESS_OR_EQUAL = 9
    AND = 10
    OR = 11
    IN = 12
    CONTAINS = 13
    STARTS_WITH = 14
    ENDS_WITH = 15
    OP_COUNT = 16

# Java's classes, as far as they occur.
cdef enum Kind:
    NULL_VALUE = 0
    BOOLEAN = 1
    INTEGER = 2
    LONG = 3
    DOUBLE = 4
    STRING = 5

cdef enum:
    UNORDERED = 2           # no order: `compare` met a text that is no number

FALSE, TRUE, UNKNOWABLE, BROKEN = NO, YES, UNKNOWN, FAILED

cdef int64_t WORK_MAX = 4 << 20   # bytes looked at in one read: some milliseconds


cdef class Filter:
    """One expression, ready to be asked about messages.

    `names` are the properties it looks at, by slot; `nodes` are tuples that begin with an Op (see
    `load`). The last node is the expression.
    """

    def __cinit__(self, *arguments):
        self.names = self.slots = self.texts = NULL
        self.nodes = NULL
        self.lists = self.same_bucket = NULL

    def __init__(self, list names not None, list nodes not None):
        self.kept = list(names)
        self.name_count = len(names)
        self.node_count = len(nodes)
        if self.node_count == 0:
            raise ValueError("a filter without a node")
        cdef Py_ssize_t list_count = sum(len(node[1]) for node in nodes if node[0] in (AND, OR))
        cdef Py_ssize_t text_count = sum(len(node[2]) for node in nodes if node[0] == IN)
        self.names = <Text*> room((self.name_count + 1) * sizeof(Text))
        self.slots = <Text*> room((self.name_count + 1) * sizeof(Text))
        self.same_bucket = <int*> room((self.name_count + 1) * sizeof(int))
        self.nodes = <Node*> room(self.node_count * sizeof(Node))
        self.lists = <int*> room((list_count + 1) * sizeof(int))
        self.texts = <Text*> room((text_count + 1) * sizeof(Text))
        self.place_names(names)
        cdef int lists_used = 0, texts_used = 0, i
        self.work_fixed = 64 + self.name_count
        self.work_per_byte = 1
        for i in range(self.node_count):
            self.load(i, nodes[i], &lists_used, &texts_used)
        if self.nodes[self.node_count - 1].op < NOT and self.nodes[self.node_count - 1].op != CONSTANT:
            raise ValueError("a filter must end in a condition")

    def __dealloc__(self):
        PyMem_Free(self.names)
        PyMem_Free(self.slots)
        PyMem_Free(self.same_bucket)
        PyMem_Free(self.nodes)
        PyMem_Free(self.lists)
        PyMem_Free(self.texts)

    def accepts(self, bytes properties not None) -> bool:
        """Whether a message with these properties is meant."""
        return self.verdict(text_of(properties)) == YES

    def evaluate(self, bytes properties not None) -> int:
        """What the expression comes to: FALSE, TRUE, UNKNOWABLE or BROKEN."""
        return self.verdict(text_of(properties))

    def count(self, bytes properties not None, int64_t times) -> int:
        """Evaluate so many times, and count how often it was true: what a measurement calls."""
        cdef Text text = text_of(properties)
        cdef int64_t accepted = 0, i
        for i in range(times):
            accepted += self.verdict(text) == YES
        return accepted

    cdef int verdict(self, Text properties) except? -1:
        self.find(properties)
        return condition(self, self.node_count - 1)

    cdef int place_names(self, list names) except -1:
        cdef int i, bucket
        for i in range(SAME_BUCKET_COUNT):
            self.buckets[i] = -1
        for i in range(self.name_count):
            self.names[i] = text_of(names[i])
            if self.names[i].size == 0:
                raise ValueError("a property without a name")
            bucket = bucket_of(self.names[i])
            self.same_bucket[i] = self.buckets[bucket]
            self.buckets[bucket] = i
        return 0

    cdef int load(self, int index, tuple source, int* lists_used, int* texts_used) except -1:
        """Take over a node: an Op, then what it takes.

        CONSTANT: a Kind's number and the value. PROPERTY: a slot. NEGATE, NOT, TRUTH: a node. EQUAL
        and comparisons: two nodes. AND, OR: a list of nodes. IN: a slot, sorted texts, whether
        negated. CONTAINS and its kin: a node, a text, whether negated.
        """
        cdef Node* node = &self.nodes[index]
        memset(node, 0, sizeof(Node))
        cdef int op = source[0]
        if not 0 <= op < OP_COUNT:
            raise ValueError(f"no such node: {op}")
        node.op = op
        self.work_fixed += 8
        if op == CONSTANT:
            self.kept.append(source[2])
            load_constant(&node.constant, source[1], source[2])
        elif op == PROPERTY or op == IN:
            node.slot = source[1]
            if not 0 <= node.slot < self.name_count:
                raise ValueError(f"no such name: {node.slot}")
            if op == IN:
                node.texts_first = texts_used[0]
                node.texts_count = len(source[2])
                for text in source[2]:
                    self.kept.append(text)
                    self.texts[texts_used[0]] = text_of(text)
                    texts_used[0] += 1
                node.is_negated = source[3]
        elif op == AND or op == OR:
            node.first = lists_used[0]
            node.second = len(source[1])
            for operand in source[1]:
                self.lists[lists_used[0]] = self.operand(operand, index)
                lists_used[0] += 1
        else:
            node.first = self.operand(source[1], index)
            if EQUAL <= op <= LESS_OR_EQUAL:
                node.second = self.operand(source[2], index)
                self.work_fixed += 64
            elif op >= CONTAINS:
                self.kept.append(source[2])
                load_constant(&node.constant, STRING, source[2])
                node.is_negated = source[3]
                self.work_per_byte += op == CONTAINS
        return 0

    cdef int operand(self, int child, int parent) except -1:
        if not 0 <= child < parent:
            raise ValueError(f"node {parent} takes node {child}, which is not before it")
        return child

    cdef void find(self, Text properties) noexcept nogil:
        """Note the value of each name; of a name that comes twice the last counts, as in Java."""
        cdef Pairs rest = pairs_of(properties)
        cdef Text name, value
        cdef int slot
        memset(self.slots, 0, self.name_count * sizeof(Text))
        while next_pair(&rest, &name, &value):
            slot = self.buckets[bucket_of(name)]
            while slot >= 0 and not same(self.names[slot], name):
                slot = self.same_bucket[slot]
            if slot >= 0:
                self.slots[slot] = value


def read(Log log not None, Queue queue not None, int64_t first, Filter filter not None, *, int32_t count_max,
         int64_t bytes_max, int32_t memory_count_max, int64_t memory_bytes_max, int32_t disk_count_max,
         int64_t disk_bytes_max, int64_t memory_window, int64_t scan_count_max) -> tuple[bytes, int, int]:
    """Messages of a queue from `first` on that match: (their records back to back, count, next offset)."""
    cdef ReadLimits limits = ReadLimits(count_max, bytes_max, memory_count_max, memory_bytes_max,
                                        disk_count_max, disk_bytes_max, memory_window, scan_count_max)
    cdef ReadResult result = ReadResult(0, 0, 0, first)
    cdef Text[MESSAGES_PER_READ_MAX] slices
    cdef int64_t end = visible_end(log, queue), where, size, work = 0
    cdef uint8_t* entry
    cdef Fields fields
    while result.next_offset < end and result.scanned < scan_count_max and work < WORK_MAX:
        entry = queue.at(result.next_offset * QUEUE_ENTRY_BYTES)
        if entry == NULL:
            break
        where = <int64_t> load64(entry)
        size = readable_size(log, where, log.visible)   # the entry's may be damaged
        result.scanned += 1
        # Padding, or a segment that retention has taken, has nothing to ask about.
        if size and load32(entry + ENTRY_SIZE_AT) != PADDING_SIZE and read_fields(log.at(where), &fields):
            work += filter.work_fixed + filter.work_per_byte * fields.properties.size
            if filter.verdict(fields.properties) == YES:
                if is_enough(log, &limits, &result, where, size):
                    break
                slices[result.count] = Text(log.at(where), size)
                result.count += 1
                result.bytes += size
        result.next_offset += 1
    return joined(slices, &result), result.count, result.next_offset


# ---------------------------------------------------------------- conditions


cdef int condition(Filter filter, int index) except? -1:
    """What a node that is a condition comes to."""
    cdef Node* node = &filter.nodes[index]
    cdef int verdict, decides, i
    cdef bint is_unknown = False
    cdef Value value
    if node.op == AND or node.op == OR:
        decides = node.op == OR
        for i in range(node.first, node.first + node.second):
            verdict = condition(filter, filter.lists[i])
            if verdict == FAILED or verdict == decides:
                return verdict
            is_unknown |= verdict == UNKNOWN
        return UNKNOWN if is_unknown else YES - decides
    if EQUAL <= node.op <= LESS_OR_EQUAL:
        return comparison(filter, node)
    if node.op == NOT:
        verdict = condition(filter, node.first)
        return YES - verdict if verdict <= YES else verdict
    if node.op == IN:
        if filter.slots[node.slot].at == NULL:
            return UNKNOWN
        return is_listed(filter, node, filter.slots[node.slot]) != node.is_negated
    if node.op >= CONTAINS:
        return search(filter, node)
    if not value_of(filter, index if node.op == CONSTANT else node.first, &value):
        return FAILED
    if value.kind == NULL_VALUE:
        return UNKNOWN
    return YES if value.kind == BOOLEAN and value.number else NO


cdef int comparison(Filter filter, Node* node) except? -1:
    """An equality, or which of two numbers is greater."""
    cdef Value left, right
    cdef int order
    if not value_of(filter, node.first, &left):
        return FAILED
    if node.op != EQUAL and left.kind == NULL_VALUE:
        return UNKNOWN
    if not value_of(filter, node.second, &right):
        return FAILED
    if left.kind == NULL_VALUE or right.kind == NULL_VALUE:
        if node.op != EQUAL or left.kind != right.kind and left.kind == NULL_VALUE:
            return UNKNOWN
        return left.kind == right.kind
    if node.op != EQUAL and left.kind == STRING and right.kind == STRING:
        if not read_double(left.text, &left.real) or not read_double(right.text, &right.real):
            return FAILED
        left.kind = right.kind = DOUBLE
    order = compare(&left, &right)
    if order == UNORDERED:
        return FAILED
    if node.op == EQUAL:
        return order == 0
    if node.op == GREATER:
        return order > 0
    if node.op == GREATER_OR_EQUAL:
        return order >= 0
    if node.op == LESS:
        return order < 0
    return order <= 0


cdef int search(Filter filter, Node* node) except? -1:
    """Whether a text is found in a value. What is no text has nothing in it, and lacks nothing."""
    cdef Text text = node.constant.text
    cdef Value value
    cdef bint is_found
    if text.size == 0:
        return NO
    if not value_of(filter, node.first, &value):
        return FAILED
    if value.kind != STRING:
        return NO
    if value.text.size < text.size:
        is_found = False
    elif node.op == STARTS_WITH:
        is_found = memcmp(value.text.at, text.at, text.size) == 0
    elif node.op == ENDS_WITH:
        is_found = memcmp(value.text.at + value.text.size - text.size, text.at, text.size) == 0
    else:
        is_found = memmem(value.text.at, value.text.size, text.at, text.size) != NULL
    return is_found != node.is_negated


cdef bint is_listed(Filter filter, Node* node, Text value) noexcept nogil:
    cdef int low = node.texts_first, high = node.texts_first + node.texts_count, middle, order
    cdef Text* text
    while low < high:
        middle = (low + high) // 2
        text = &filter.texts[middle]
        if text.size != value.size:
            order = 1 if text.size > value.size else -1
        else:
            order = memcmp(text.at, value.at, value.size)
        if order == 0:
            return True
        if order > 0:
            high = middle
        else:
            low = middle + 1
    return False


# ---------------------------------------------------------------- values


cdef bint value_of(Filter filter, int index, Value* value) except -1:
    """Evaluate any node; False when that failed."""
    cdef Node* node = &filter.nodes[index]
    cdef int verdict
    if node.op == PROPERTY:
        value.text = filter.slots[node.slot]
        value.kind = NULL_VALUE if value.text.at == NULL else STRING
    elif node.op == CONSTANT:
        value[0] = node.constant
    elif node.op == NEGATE:
        if not value_of(filter, node.first, value):
            return False
        if INTEGER <= value.kind <= DOUBLE:
            value.number = -value.number
            value.real = -value.real
        else:
            value.kind = NULL_VALUE
    else:
        verdict = condition(filter, index)
        if verdict == FAILED:
            return False
        value.kind = NULL_VALUE if verdict == UNKNOWN else BOOLEAN
        value.number = verdict == YES
    return True


cdef int compare(Value* left, Value* right) except? -2:
    """The order of two values that are not NULL, negative, 0 or positive; UNORDERED on a text that is no number.

    Different kinds meet as Java makes them: a text is read as what the other side is, and a truth
    value is less than any number.
    """
    if left.kind == STRING and right.kind != STRING:
        if right.kind == BOOLEAN:
            left.number = is_true(left.text)
        elif not read_as(right.kind, left):
            return UNORDERED
        left.kind = right.kind
    elif right.kind == STRING and left.kind != STRING:
        if left.kind == BOOLEAN or not read_as(left.kind, right):
            return UNORDERED    # Java takes the truth value for a text, and stumbles
        right.kind = left.kind
    if left.kind == STRING:
        return 0 if same(left.text, right.text) else -1
    if (left.kind == BOOLEAN) != (right.kind == BOOLEAN):
        return -1
    if left.kind == DOUBLE or right.kind == DOUBLE:
        return compare_doubles(left.real if left.kind == DOUBLE else <double> left.number,
                               right.real if right.kind == DOUBLE else <double> right.number)
    return (left.number > right.number) - (left.number < right.number)


cdef inline int compare_doubles(double left, double right) noexcept nogil:
    """Java's order of all doubles: -0.0 before 0.0, and NaN after everything and equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    cdef int64_t left_bits = rank(left), right_bits = rank(right)
    return (left_bits > right_bits) - (left_bits < right_bits)


cdef inline int64_t rank(double value) noexcept nogil:
    cdef int64_t bits
    if value != value:
        return 1
    memcpy(&bits, &value, 8)
    return -1 if value == 0 and bits < 0 else 0


cdef inline bint read_as(int kind, Value* value) except -1:
    if kind == DOUBLE:
        return read_double(value.text, &value.real)
    return read_integer(value.text, kind == LONG, &value.number)


cdef bint read_integer(Text text, bint is_wide, int64_t* number) except -1:
    """Java's Integer.valueOf, or Long.valueOf: a sign, digits, and nothing else."""
    cdef Py_ssize_t at = 0
    cdef bint is_negative = False
    cdef uint64_t value = 0, limit
    cdef uint8_t digit
    if text.size and (text.at[0] == c'-' or text.at[0] == c'+'):
        is_negative = text.at[0] == c'-'
        at = 1
    if at == text.size:
        return False
    limit = (<uint64_t> 1 << (63 if is_wide else 31)) - (0 if is_negative else 1)
    while at < text.size:
        digit = <uint8_t> (text.at[at] - c'0')
        if digit > 9:
            if text.at[at] < 0x80:
                return False
            return read_foreign_integer(text, limit, is_negative, number)
        if value > (limit - digit) // 10:
            return False
        value = value * 10 + digit
        at += 1
    number[0] = -<int64_t> value if is_negative else <int64_t> value
    return True


cdef bint read_foreign_integer(Text text, uint64_t limit, bint is_negative, int64_t* number) except -1:
    """The same with digits of any script, which Java takes too."""
    digits = string_of(text).lstrip("+-")
    if not digits.isdecimal() or max(digits) > "\uffff":
        return False
    if len(string_of(text)) - len(digits) > 1:
        return False
    significant = "".join(str(int(digit)) for digit in digits).lstrip("0")
    if len(significant) > 19:
        return False
    value = int(significant or "0")
    if value > limit:
        return False
    number[0] = -value if is_negative else value
    return True


cdef bint read_double(Text text, double* value) except -1:
    """Java's Double.valueOf. Plain decimals are read here, as long as one rounding gives the exact result."""
    cdef Py_ssize_t at = 0
    cdef bint is_negative = False
    cdef int64_t mantissa = 0
    cdef int digits = 0, scale = 0
    cdef uint8_t digit
    cdef bint has_point = False
    if text.size and (text.at[0] == c'-' or text.at[0] == c'+'):
        is_negative = text.at[0] == c'-'
        at = 1
    while at < text.size:
        digit = <uint8_t> (text.at[at] - c'0')
        if digit <= 9:
            mantissa = mantissa * 10 + digit
            digits += 1
            scale += has_point
        elif text.at[at] == c'.' and not has_point:
            has_point = True
        else:
            return read_odd_double(text, value)
        if digits > 15:
            return read_odd_double(text, value)
        at += 1
    if digits == 0:
        return read_odd_double(text, value)
    value[0] = <double> mantissa / POWERS[scale]
    if is_negative:
        value[0] = -value[0]
    return True


cdef double[16] POWERS
for _power in range(16):
    POWERS[_power] = 10.0 ** _power

_DOUBLE = re.compile(
    r"[+-]?(?:(?P<named>NaN|Infinity)"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r"|(?P<plain>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)"
)
_BLANKS = "".join(map(chr, range(0x21)))


cdef bint read_odd_double(Text text, double* value) except -1:
    """Every other double: long ones, exponents, hexadecimal, a type's letter at the end, blanks around it."""
    stripped = string_of(text).strip(_BLANKS)
    found = _DOUBLE.fullmatch(stripped)
    if found is None:
        return False
    if found["hex"]:
        try:
            value[0] = float.fromhex(found["hex"])
        except OverflowError:
            value[0] = float("inf")
    else:
        value[0] = float(found["named"] or found["plain"])
    if stripped[0] == "-":
        value[0] = -value[0]
    return True


# ---------------------------------------------------------------- texts


cdef inline int bucket_of(Text name) noexcept nogil:
    return (name.at[0] + 7 * name.at[name.size - 1] + 31 * name.size) & (SAME_BUCKET_COUNT - 1)


cdef str string_of(Text text):
    return bytes_of(text).decode("utf-8", "replace")


cdef void* room(size_t size) except NULL:
    cdef void* found = PyMem_Malloc(size)
    if found == NULL:
        raise MemoryError
    return found


cdef int load_constant(Value* value, int kind, source) except -1:
    memset(value, 0, sizeof(Value))
    value.kind = kind
    if kind == STRING:
        value.text = text_of(source)
    elif kind == DOUBLE:
        value.real = source
    elif kind == BOOLEAN or kind == INTEGER or kind == LONG:
        value.number = source
    elif kind != NULL_VALUE:
        raise ValueError(f"no such kind of value: {kind}")
    return 0
