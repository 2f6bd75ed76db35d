"""Bugs to be planted in the staging service of the broker and in the sink; `mutants.py` does it."""

from .mutants import Mutant

SERVICE = ("tests/unit/broker/staging",)
STAGING_MODEL = ("tests/property/test_staging_model.py",)
SINK = ("tests/unit/spark/test_sink.py",)
PUBLISHING_MODEL = ("tests/property/test_publishing_model.py",)

STAGING = {
    "a batch that is under way or over is decided again": Mutant(
        "state = self._state_to_publish(query, batch)  # others had their turn meanwhile",
        "state = BatchState.UNKNOWN",
        SERVICE,
        "test_a_batch_published_again_changes_nothing_whatever_its_plan",
    ),
    "rows that were there before a kill come again": Mutant(
        "publication.stand_at(intent.chunk, intent.row + rows, position)",
        "publication.stand_at(intent.chunk, intent.row, intent.position)",
        STAGING_MODEL,
        "test_a_kill_at_any_instant_neither_loses_nor_doubles_a_row",
    ),
    "two attempts of a task make one batch": Mutant(
        "        if chunk.attempt != attempt:\n",
        "        if False:\n",
        SERVICE,
        "test_a_plan_of_two_attempts_of_a_partition_is_refused",
    ),
    "a batch is told before it is on the platter": Mutant(
        "            after=after if after is not None else self._wanted_flush,\n",
        "",
        SERVICE,
        "test_the_answer_waits_for_the_disk",
    ),
    "a discarded batch is published": Mutant(
        "if state in (BatchState.DISCARDED, BatchState.CUT_SHORT):",
        "if state is BatchState.CUT_SHORT:",
        SERVICE,
        "test_a_discarded_batch_is_never_published",
    ),
    "a start does not go on publishing": Mutant(
        "            self._publisher.recover(publication)\n",
        "            self.ledger._end(publication, BatchState.PUBLISHED)\n",
        STAGING_MODEL,
        "test_a_kill_at_any_instant_neither_loses_nor_doubles_a_row",
    ),
    "other rows than the plan says are published": Mutant(
        "if queue_offset != reference.offset or crc32 != reference.crc32 or chunk is None:",
        "if chunk is None:",
        SERVICE,
        "test_a_plan_must_find_what_it_names",
    ),
    "each broker publishes by the newest plan": Mutant(
        "type=BatchPlan) if answer.body else decided or plan\n",
        "type=BatchPlan) and plan\n",
        PUBLISHING_MODEL,
        "test_a_driver_that_dies_at_any_request_neither_loses_nor_doubles_a_row",
    ),
    "a new broker does not hear of what was decided": Mutant(
        "decided = next((found.plan for found in known.values() if found.plan is not None), None)",
        "decided = None",
        PUBLISHING_MODEL,
        "its plan is not kept any more",
    ),
    "only the broker that decided publishes": Mutant(
        "others = [name for name in counts.brokers if name != first]",
        "others: list[str] = []",
        PUBLISHING_MODEL,
        "test_a_driver_that_dies_at_any_request_neither_loses_nor_doubles_a_row",
    ),
    "a broker that may have decided is not waited for": Mutant(
        "needed = away if has_grown or not known else away & {min(told)}",
        "needed: set[str] = set()",
        PUBLISHING_MODEL,
        "test_a_broker_that_is_away_holds_up_a_batch_it_may_have_decided",
    ),
    "parts are published as the tasks ended": Mutant(
        "return sorted(parts, key=lambda part: part.partition)",
        "return parts",
        SINK,
        "test_parts_are_published_in_the_order_of_partitions",
    ),
    "the chunks of a task have one number": Mutant(
        "        self._sequences[broker] = sequence + 1\n",
        "",
        SINK,
        "the plan has chunk 0 of partition 0 where chunk 1 belongs",
    ),
    "a job that is aborted is not discarded": Mutant(
        "        discard(talk, batch, plan, brokers_of(parts), options.timeout_s)\n",
        "",
        SINK,
        "test_a_job_that_is_aborted_is_never_published",
    ),
}
