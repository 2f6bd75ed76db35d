"""The lag of a streaming query, where operators look for lag: in a consumer group.

    spark.streams.addListener(OffsetMirror("127.0.0.1:9876"))

After every batch the offsets that the query has finished are written to the group
`spark-<name of the query>`. They are never read back: a query goes on from its checkpoint. The
source's option `group` does the same without a listener, but one batch later, since Spark tells a
source of the end of a batch only when it plans the next.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from ariane.client.routes import addresses_of
from ariane.errors import ClientError, ConfigError
from ariane.spark.bytes.contract import AccessOptions
from ariane.spark.cluster import cluster_of
from ariane.spark.offsets import Queue, stream_offset_of
from ariane.spark.survey import Cluster
from ariane.topics import GROUP_BYTES_MAX, group_fault

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("ariane.spark")

# ruff: noqa: N802 - the method names are Spark's


class OffsetMirror(StreamingQueryListener):
    """Writes the progress of streaming queries to consumer groups of one cluster."""

    def __init__(
        self,
        name_servers: str,  # "host:port;host:port"
        *,
        group: str | None = None,  # for all queries, instead of one for each
        cluster: Cluster | None = None,
    ) -> None:
        if group is not None and (fault := group_fault(group)):
            raise ConfigError(fault)
        self._group = group
        self._cluster = cluster or cluster_of(
            AccessOptions(name_servers=tuple(addresses_of(name_servers)))
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing has been read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended."""
        progress = event.progress
        group = self._group or group_of_query(progress.name, str(progress.id))
        for source in progress.sources:
            if offsets := offsets_in(source.endOffset):
                try:
                    self._cluster.mirror(group, offsets)
                except ClientError as error:  # a mirror never troubles the query
                    log.warning("progress not mirrored group=%s: %s", group, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What its batches finished has been told already."""

    def close(self) -> None:
        """Take leave of the cluster; remove the listener first."""
        self._cluster.close()


def group_of_query(name: str | None, query_id: str) -> str:
    """The group that shows a query's progress; signs that no group may have become `_`."""
    return re.sub(r"[^%|a-zA-Z0-9_-]", "_", f"spark-{name or query_id}")[:GROUP_BYTES_MAX]


def offsets_in(text: str | None) -> Mapping[Queue, int]:
    """The offsets of a source in a query's progress; none when the source is not ours."""
    try:
        return stream_offset_of(json.loads(text or "null")).queues
    except (ConfigError, ValueError):
        return {}
