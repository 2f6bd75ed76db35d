"""Streaming queries: started, watched batch by batch, ended by completion, Ctrl-C or a fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ariane.errors import ArianeError
from ariane.spark.pipelines.outcome import Progress, Report

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# ruff: noqa: PLC0415 - Spark is imported when it is used

POLL_S: Final = 0.2
CALLING: Final = "An error occurred while calling"
OURS: Final = re.compile(r"^(?:Caused by: )?ariane(?:\.\w+)+: (.+)$", re.MULTILINE)


class PipelineFailed(ArianeError):
    """Spark gave up; the message is the innermost cause that has words for it."""


def run_query(
    writer: DataStreamWriter,
    report: Report,
    *,
    follow: bool = False,
    interval_s: float = 1.0,
    note: Callable[[StreamingQueryProgress], str] = lambda progress: "",
    count: Callable[[StreamingQueryProgress], int] = lambda progress: progress.numInputRows,
) -> list[Progress]:
    """Run to the end of what is there now, or with `follow` until Ctrl-C; one item a batch.

    Ctrl-C that comes before that end is not the end: it is passed on.
    """
    from pyspark.errors import PySparkException

    if follow:
        writer = writer.trigger(processingTime=f"{interval_s:g} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    batches: list[Progress] = []
    try:
        while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]
            _tell(query, batches, report, note, count)
    except KeyboardInterrupt:
        query.stop()
        if not follow:
            raise
    except PySparkException as error:
        raise failure(error) from error
    _tell(query, batches, report, note, count)
    return batches


def failure(error: Exception) -> PipelineFailed:
    """What went wrong, without the stacks of two languages around it."""
    text = str(error)
    if found := OURS.findall(text):
        return PipelineFailed(str(found[-1]))
    first, *others = text.strip().split("\n")
    if first.startswith(CALLING) and others:  # the next line says what went wrong
        return PipelineFailed(others[0].removeprefix(": "))
    return PipelineFailed(first)


def _tell(
    query: StreamingQuery,
    batches: list[Progress],
    report: Report,
    note: Callable[[StreamingQueryProgress], str],
    count: Callable[[StreamingQueryProgress], int],
) -> None:
    told = batches[-1].batch_id if batches else -1
    for progress in query.recentProgress:
        if progress.batchId <= told or not _has_run(progress):
            continue
        told = progress.batchId
        batches.append(
            Progress(
                batch_id=progress.batchId,
                message_count=count(progress),
                seconds=progress.durationMs.get("triggerExecution", 0) / 1000,
                note=note(progress),
            )
        )
        report(batches[-1])


def _has_run(progress: Any) -> bool:
    """Whether a batch was run, rather than found to be empty."""
    return "addBatch" in progress.durationMs
