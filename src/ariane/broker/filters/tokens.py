"""A filter expression cut into tokens, by RocketMQ's rules: words are case-blind, names are not."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from ariane.errors import BadFilter


class Kind(Enum):
    """What sort of token."""

    WORD = "a reserved word"
    NAME = "a property"
    TEXT = "a text"
    INTEGER = "a number"
    DECIMAL = "a decimal number"
    SIGN = "a sign"
    END = "the end of the expression"


class Token(NamedTuple):
    """One token and where it stands; words are in capitals, texts as written, quotes and all."""

    kind: Kind
    text: str
    position: int

    @property
    def shown(self) -> str:
        """The token as an error names it."""
        if self.kind is Kind.END:
            return str(self.kind.value)
        text = self.text if len(self.text) <= SHOWN_MAX else self.text[:SHOWN_MAX] + "..."
        return f"{text!r} at {self.position + 1}"


SHOWN_MAX: Final = 40
TOKEN_COUNT_MAX: Final = 2_048  # reading them takes some hundredths of a second
WORDS: Final = frozenset(
    (
        *("NOT", "AND", "OR", "BETWEEN", "IN", "IS"),
        *("TRUE", "FALSE", "NULL"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
)

# The longest match wins, so decimals come before integers. A comment to the end of the line needs
# that end: without one `--5` is minus minus five.
_TOKEN: Final = re.compile(
    r"""
      (?P<space>    [ \t\n\r\f]+ | --[^\n\r]*[\n\r] | /\*(?:[^*]|\*(?!/))*\*/ )
    | (?P<decimal>  (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<integer>  0 | [1-9][0-9]*[lL]? )
    | (?P<text>     '(?:[^']|'')*' )
    | (?P<name>     [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<sign>     <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
_KINDS: Final = {
    "decimal": Kind.DECIMAL,
    "integer": Kind.INTEGER,
    "text": Kind.TEXT,
    "name": Kind.NAME,
    "sign": Kind.SIGN,
}
_HINTS: Final = {
    "!": "; unequal is written <>",
    '"': "; texts stand in single quotes",
    "'": "; the text has no closing quote",
    "/": "; the comment has no end, or arithmetic was meant, which there is none of",
}


def tokens_of(expression: str) -> list[Token]:
    """The tokens of an expression, and a last one for its end; raises BadFilter."""
    tokens: list[Token] = []
    position = 0
    while position < len(expression):
        if (
            expression.startswith("--", position)
            and _ends_operand(tokens)
            and ("\n" not in (rest := expression[position:]) and "\r" not in rest)
        ):
            break  # a comment that nothing follows, not even the end of its line
        found = _TOKEN.match(expression, position)
        if found is None:
            character = expression[position]
            raise BadFilter(
                f"{character!r} at {position + 1} has no meaning here{_HINTS.get(character, '')}"
            )
        if found.lastgroup != "space":
            tokens.append(_token(str(found.lastgroup), found[0], position))
            if len(tokens) > TOKEN_COUNT_MAX:
                raise BadFilter(
                    f"a filter expression of more than {TOKEN_COUNT_MAX} names, values and signs"
                )
        position = found.end()
    tokens.append(Token(Kind.END, "", len(expression)))
    return tokens


def _ends_operand(tokens: list[Token]) -> bool:
    """Whether a value stands before, so that a minus sign cannot belong to the next one."""
    if not tokens:
        return False
    kind, text, _ = tokens[-1]
    if kind is Kind.WORD:
        return text in ("TRUE", "FALSE", "NULL")
    return kind is not Kind.SIGN or text == ")"


def _token(group: str, text: str, position: int) -> Token:
    if group == "name" and text.upper() in WORDS:
        return Token(Kind.WORD, text.upper(), position)
    return Token(_KINDS[group], text, position)
