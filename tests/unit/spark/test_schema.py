"""The columns, and a user's schema as a choice among them."""

import pytest
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructType

from ariane.errors import ConfigError
from ariane.spark.schema import COLUMNS, columns_of, ddl, projection


def chosen(text: str) -> tuple[str, ...]:
    fields = [field.split(" ") for field in text.split(", ")]
    return columns_of([(name, kind) for name, kind in fields])


def test_the_schema_is_fixed() -> None:
    assert ddl() == (
        "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, "
        "keys string, tags string, body binary, properties map<string,string>, "
        "bornTimestamp timestamp_ltz, storeTimestamp timestamp_ltz, bornHost string, "
        "reconsumeTimes int, sysFlag int, physicalOffset bigint"
    )
    assert "properties" not in ddl(with_properties=False)


def test_any_columns_in_any_order() -> None:
    fields = ddl().replace("timestamp_ltz", "timestamp")  # as Spark tells it back
    assert chosen(fields) == tuple(COLUMNS)
    assert chosen("body binary, queueOffset bigint") == ("body", "queueOffset")


def test_a_schema_of_sparks() -> None:
    schema = StructType().add("body", BinaryType()).add("queueOffset", LongType(), nullable=False)
    assert projection(schema) == ("body", "queueOffset")
    properties = MapType(StringType(), StringType(), valueContainsNull=False)
    assert projection(StructType().add("properties", properties)) == ("properties",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("value binary", "no column 'value'; its columns are topic"),
        ("queueoffset bigint", r"no column 'queueoffset'; did you mean queueOffset\?"),
        ("body string", "column body is binary, and the schema says string"),
        ("queueOffset int", r"cast\(queueOffset as int\)"),
        ("storeTimestamp timestamp_ntz", "storeTimestamp is timestamp"),
        ("properties map<string,binary>", "map<string,string>"),
        ("body binary, topic string, body binary", "body more than once"),
    ],
)
def test_refusals(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        chosen(text)
