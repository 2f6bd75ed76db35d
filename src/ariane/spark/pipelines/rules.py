"""Rules for JSON bodies: read from TOML, turned into conditions of Spark's.

    [[rule]]
    field = "amount"
    type = "number"
    required = true
    min = 0

A rule says what must hold; a message that breaks one is told by the rule's name.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from ariane.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column

# ruff: noqa: PLC0415, N812 - Spark is imported when it is used, under its usual letter

Kind = Literal["string", "number", "integer", "boolean", "object", "array"]

NOT_JSON: Final = "body is not JSON"
PATH: Final = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*|\[\d+\])*")
# What Spark calls the types of JSON's values.
TYPES: Final[dict[str, str]] = {
    "string": "STRING",
    "number": "(BIGINT|DOUBLE|DECIMAL.*|FLOAT)",
    "integer": "BIGINT",
    "boolean": "BOOLEAN",
    "object": "OBJECT<.*",
    "array": "ARRAY<.*",
}
FIELD_CHECKS: Final = (
    "type",
    "required",
    "min",
    "max",
    "pattern",
    "values",
    "min_length",
    "max_length",
)


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one field of a body, or the whole message, must be like."""

    field: str = ""  # a path: customer.id, items[0].price
    type: Kind | None = None
    required: bool = False
    min: float | None = None
    max: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""  # a regular expression that must match somewhere
    values: tuple[str | int | float | bool, ...] = ()
    check: str = ""  # a condition in Spark's SQL over the columns, and the body as `json`
    name: str = ""
    tags: tuple[str, ...] = ()  # only for messages with one of these tags

    def __post_init__(self) -> None:
        if bool(self.field) == bool(self.check):
            raise ValueError("a rule has a field or a check, one of the two")
        if self.field and PATH.fullmatch(self.field) is None:
            raise ValueError(
                f"field {self.field!r} is no path such as customer.id or items[0].price"
            )
        if self.field and not any(
            getattr(self, each) not in (None, False, "", ()) for each in FIELD_CHECKS
        ):
            raise ValueError(
                f"the rule for {self.field} asks for nothing: {', '.join(FIELD_CHECKS)}"
            )
        if self.pattern:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern {self.pattern!r}: {error}") from None

    @property
    def title(self) -> str:
        """How a message that breaks the rule is told of."""
        return self.name or self.field or self.check

    def faults(self) -> list[tuple[Column, str]]:
        """Conditions that no message may meet, each with the reason to give; the first counts."""
        faults = self._check_faults() if self.check else self._field_faults()
        if not self.tags:
            return faults
        from pyspark.sql import functions as F

        is_meant = F.coalesce(F.col("tags").isin(*self.tags), F.lit(False))
        return [(is_meant & fault, reason) for fault, reason in faults]

    def _check_faults(self) -> list[tuple[Column, str]]:
        from pyspark.sql import functions as F

        return [(~F.coalesce(F.expr(self.check), F.lit(False)), f"{self.title}: does not hold")]

    def _field_faults(self) -> list[tuple[Column, str]]:
        from pyspark.sql import functions as F

        path = f"$.{self.field}"
        value = F.try_variant_get("json", path, "variant")
        kind = F.schema_of_variant(value)
        is_there = value.isNotNull() & (kind != "VOID")
        number = F.try_variant_get("json", path, "double")
        text = F.try_variant_get("json", path, "string")
        length = F.length(text)
        found: list[tuple[Column, str]] = []
        if self.required:
            found.append((~is_there, "is missing"))
        if self.type is not None:
            found.append((~kind.rlike(f"^{TYPES[self.type]}$"), f"is no {self.type}"))
        if self.min is not None:
            found.append((number.isNull() | (number < self.min), f"is under {self.min:g}"))
        if self.max is not None:
            found.append((number.isNull() | (number > self.max), f"is over {self.max:g}"))
        if self.min_length is not None:
            found.append((length < self.min_length, f"is shorter than {self.min_length}"))
        if self.max_length is not None:
            found.append((length > self.max_length, f"is longer than {self.max_length}"))
        if self.pattern:
            found.append((~text.rlike(self.pattern), f"does not match {self.pattern}"))
        if self.values:
            allowed = [_json_text(each) for each in self.values]
            found.append((~text.isin(*allowed), "is none of the values"))
        return [
            (
                F.coalesce((fault if reason == "is missing" else is_there & fault), F.lit(False)),
                f"{self.title}: {reason}",
            )
            for fault, reason in found
        ]


class RuleFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of a topic."""

    rule: tuple[Rule, ...]


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Rules of a TOML or JSON file; raises ConfigError that names the rule and what is wrong."""
    data = path.read_bytes()
    try:
        if path.suffix == ".json":
            found = msgspec.json.decode(data, type=RuleFile)
        else:
            found = msgspec.convert(tomllib.loads(data.decode()), RuleFile)
    except (msgspec.MsgspecError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if not found.rule:
        raise ConfigError(f"{path} has no rule")
    return found.rule


def _json_text(value: str | float | bool) -> str:
    """A value as Spark writes the text of a JSON value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
