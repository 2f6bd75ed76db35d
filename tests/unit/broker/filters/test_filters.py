"""What filters let through: RocketMQ's rules on what is missing and what is of another kind."""

import pytest

from ariane.broker.filters import EVERYTHING, of_expression
from ariane.errors import BadFilter
from ariane.protocol.message import tags_code_of

FIVE, TEXT, NONE, LARGE, DECIMAL, TRUTH = (
    {"a": "5"}, {"a": "abc"}, {}, {"a": "3000000000"}, {"a": "5.0"}, {"a": "true"},
)  # fmt: skip
MESSAGES: list[dict[str, str]] = [FIVE, TEXT, NONE, LARGE, DECIMAL, TRUTH]

# A letter for each message: does it match?
RULES = {
    "a = 5": "y-----",
    "a = '5'": "y-----",
    "a <> 5": "------",  # a text that is no number of that kind ends it, either way
    "a <> '5'": "-y-yyy",  # unknown for a message without the property
    "NOT (a = '5')": "-y-yyy",
    "a > 4": "y-----",  # 3000000000 is no 32-bit number
    "a > 4000000000": "------",
    "a > 2999999999": "---y--",
    "a > 4.0": "y--yy-",
    "a = 5.0": "y---y-",
    "a IS NULL": "--y---",
    "a IS NOT NULL": "yy-yyy",
    "a BETWEEN 1 AND 9": "y-----",
    "a NOT BETWEEN 6 AND 9": "y-----",
    "a IN ('5', 'abc')": "yy----",
    "a NOT IN ('5', 'abc')": "---yyy",
    "a CONTAINS 'b'": "-y----",
    "a NOT CONTAINS 'b'": "y--yyy",  # what is missing contains nothing, and lacks nothing
    "a STARTSWITH '5'": "y---y-",
    "a ENDSWITH '0'": "---yy-",
    "a NOT STARTSWITH ''": "------",
    "a = TRUE": "-----y",
    "a": "------",
    "NOT a": "yy-yyy",
    "TRUE": "yyyyyy",
    "NULL": "------",
    "a > 4 OR TRUE": "y-y---",  # the failure comes first
    "TRUE OR a > 4": "yyyyyy",  # it is never met
    "a IS NULL OR a > 4": "y-y---",
    "b = a": "--y---",
    "a <> b": "yy-yyy",
    "a > b": "------",
}


def encoded(properties: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


@pytest.mark.parametrize(("expression", "matches"), RULES.items(), ids=RULES)
def test_rules(expression: str, matches: str) -> None:
    accepts = of_expression(expression, "SQL92").accepts
    assert accepts is not None
    assert "".join("y" if accepts(encoded(message)) else "-" for message in MESSAGES) == matches


def test_properties_are_read_as_java_reads_them() -> None:
    accepts = of_expression("TAGS = 'A' AND UNIQ_KEY IS NOT NULL", "SQL92").accepts
    assert accepts is not None
    for properties in (
        b"TAGS\x01A\x02UNIQ_KEY\x01k\x02",
        b"TAGS\x01A\x02UNIQ_KEY\x01k",  # not closed
        b"TAGS\x01B\x02TAGS\x01A\x02UNIQ_KEY\x01k\x02",  # the last one counts
        b"TAGS\x01A\x02TAGS\x01\x02UNIQ_KEY\x01k\x02",  # unless it is empty
        b"\x02\x02\x01\x02TAGS\x01A\x02UNIQ_KEY\x01k\x01k\x02",
    ):
        assert accepts(properties), properties
    for properties in (
        b"",
        b"TAGS\x01A\x02",
        b"TAG\x01A\x02UNIQ_KEY\x01k\x02",
        b"TAGS A UNIQ_KEY k",
    ):
        assert not accepts(properties), properties


def test_tags() -> None:
    assert of_expression("*", "TAG") is EVERYTHING
    assert of_expression("", None) is EVERYTHING
    assert of_expression("A || B", "").tag_codes == {tags_code_of("A"), tags_code_of("B")}
    assert of_expression("A || *", "TAG").tag_codes is None
    assert EVERYTHING.accepts is None


@pytest.mark.parametrize(
    ("expression", "kind"), [("||", "TAG"), ("a = 5", "SQL"), ("a =", "SQL92")]
)
def test_refused(expression: str, kind: str) -> None:
    with pytest.raises(BadFilter):
        of_expression(expression, kind)


def test_too_many_tags() -> None:
    with pytest.raises(BadFilter, match="1 to 1024"):
        of_expression("||".join(map(str, range(1025))), "TAG")


def test_many_properties_and_a_long_list() -> None:
    names = [f"p{number}" for number in range(300)]
    accepts = of_expression(" AND ".join(f"{name} = '{name}'" for name in names), "SQL92").accepts
    assert accepts is not None
    message = {name: name for name in names}
    assert accepts(encoded(message))
    assert not accepts(encoded(message | {"p299": "x"}))
    texts = ",".join(f"'{number}'" for number in range(1_000))
    accepts = of_expression(f"a IN ({texts})", "SQL92").accepts
    assert accepts is not None
    assert [accepts(encoded({"a": text})) for text in ("0", "999", "1000", "")] == [
        True, True, False, False,
    ]  # fmt: skip
