"""Filter expressions and properties by the dice, made of what is near the edges of the rules."""

from random import Random

NAMES = ("a", "b", "c", "TAGS", "_x", "$y")
NUMBERS = (
    "0", "1", "5", "7L", "2147483647", "2147483648", "3000000000l", "9223372036854775807", "1.5",
    "5.0", "5.", ".5", "1e3", "2.5E-3", "123456789.123456789", "1e22", "1e23", "4.9e-324",
    "1.7e308",
)  # fmt: skip
TEXTS = ("", "5", "x", "abc", "it''s", "true", "é", "\U0001f600", "5.0", "-1", " ")
VALUES = (
    "5", "7", "-1", "+5", "5.0", "05", "abc", "true", "TRUE", "tRuE", "trüe", "false", "x", "é",
    "aéb", "\U0001f600", "it's", "\x7f",
    # texts within others
    "xabcx", "abcabc", "x5x", "5x5", "yx5", "-1-1-", "éé5", "xtruex",
    # whole numbers, and what is almost one
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "-0",
    "9223372036854775808", "-9223372036854775808", "123456789012345678901234567890", "-", "+",
    "--5", "5L", "1_0", "1,5", " 5", "5 ", "\t5\n", "\u0663", "-\u0663\u0664", "\uff15",
    "\U0001d7d3",
    # doubles, and what is almost one
    "1e3", "1E3", ".5", "5.", ".", "1.5f", "1.5d", "1.5x", "1.2.3", "1e", "0.0", "-0.0", "0.1",
    "NaN", "-NaN", "Infinity", "-Infinity", "nan", "inf", "1e999", "-1e999", "1e-400",
    "0x1p3", "0x1.8p1", "0x.8p1d", "0x1", "0x1p99999", "123456789.123456789", "1234567890123456",
    "100000000000000000000000", "0.30000000000000004",
)  # fmt: skip


def operand(random: Random, depth: int) -> str:
    """A value: mostly a property or a literal."""
    kind = random.randrange(12)
    if kind < 5:
        return random.choice(NAMES)
    if kind < 8:
        return random.choice(NUMBERS)
    if kind == 8:
        return "'" + random.choice(TEXTS) + "'"
    if kind == 9:
        return random.choice(("TRUE", "FALSE", "NULL", "true", "Null"))
    if kind == 10:
        return random.choice(("-", "- ", "+", "- -", "NOT ")) + operand(random, depth)
    return f"({expression(random, depth - 1)})" if depth > 0 else random.choice(NAMES)


def comparison(random: Random, depth: int) -> str:
    """One condition, or what looks like one."""
    left = operand(random, depth)
    is_not = random.choice(("", "", "NOT "))
    match random.randrange(11):
        case 0 | 1 | 2:
            return f"{left} {random.choice(('=', '<>'))} {operand(random, depth)}"
        case 3 | 4 | 5:
            return f"{left} {random.choice(('>', '>=', '<', '<='))} {operand(random, depth)}"
        case 6:
            return f"{left} IS {is_not}NULL"
        case 7:
            low, high = operand(random, 0), operand(random, 0)
            return f"{left} {is_not}BETWEEN {low} AND {high}"
        case 8:
            count = random.choice((1, 2, 3, 7))
            texts = ",".join("'" + random.choice(TEXTS) + "'" for _ in range(count))
            return f"{random.choice(NAMES)} {is_not}IN ({texts})"
        case _:
            word = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return f"{left} {is_not}{word} '{random.choice(TEXTS)}'"


def expression(random: Random, depth: int = 2) -> str:
    """An expression; about half of them are refused."""
    match random.randrange(6):
        case 0 | 1:
            parts = [expression(random, depth - 1) if depth > 0 else comparison(random, 0)] * 1
            parts += [comparison(random, depth) for _ in range(random.randrange(1, 4))]
            return random.choice((" AND ", " OR ", " and ", "\nOr ")).join(parts)
        case 2:
            return f"NOT ({expression(random, depth - 1) if depth > 0 else comparison(random, 0)})"
        case 3:
            return operand(random, depth)
        case _:
            return comparison(random, depth)


def properties(random: Random) -> str:
    """A properties text, now and then with pairs that do not count."""
    pairs = []
    for _ in range(random.randrange(7)):
        name, value = random.choice((*NAMES, "KEYS", "aa")), random.choice(VALUES)
        pairs.append(
            random.choice((f"{name}\x01{value}",) * 12 + (f"\x01{value}", f"{name}\x01", name))
        )
    return "\x02".join(pairs) + random.choice(("", "\x02"))
