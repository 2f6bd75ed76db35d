"""The queue a key belongs to."""

from ariane.client import MessageQueue, by_hash

QUEUES = [MessageQueue(topic="t", broker_name="a", queue_id=number) for number in range(4)]


def test_a_key_keeps_to_the_queue_java_would_choose() -> None:
    assert by_hash("TagA")(QUEUES).queue_id == 2_598_919 % 4
    assert by_hash("order-created")(QUEUES).queue_id == 392_709_271 % 4  # its hash is negative


def test_the_least_integer_has_no_absolute_value_in_java() -> None:
    assert by_hash("polygenelubricants")(QUEUES).queue_id == 0
