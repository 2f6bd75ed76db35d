"""Every pipeline on real Spark, against a real broker process."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its usual letter

from ariane.client.retrying import Retry
from ariane.clock import ManualClock
from ariane.errors import ConfigError
from ariane.protocol.message import StoredMessage
from ariane.spark.pipelines import (
    archive,
    audit,
    compact,
    dlq,
    files,
    hybrid,
    metrics,
    mirror,
    quality,
    replay,
    trace,
)
from ariane.spark.pipelines.lake import Lake
from ariane.spark.pipelines.manifest import Entry, State
from ariane.spark.pipelines.outcome import Progress
from ariane.spark.pipelines.queries import PipelineFailed
from ariane.sync import Client
from ariane.topics import TRACE_TOPIC
from tests.harness.processes import ARIANE, Ariane, wait_until
from tests.harness.spark import QUICK_START
from tests.spark.topics import Topic, topic_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 60  # messages in each of two queues
WINDOW_MS = 5


class Crash(Exception):
    """Where the process is killed."""


@pytest.fixture(scope="module")
def namesrv(cluster: Ariane) -> str:
    return cluster.namesrv_address


@pytest.fixture(scope="module")
def client(namesrv: str) -> Iterator[Client]:
    with Client(namesrv) as client:
        yield client


@pytest.fixture(scope="module")
def orders(namesrv: str) -> Iterator[Topic]:
    """A topic that the tests read and do not change."""
    with topic_of(namesrv, "pipeline-orders") as topic:
        for queue in (0, 1):
            bodies = [json.dumps({"id": n, "queue": queue}) for n in range(COUNT)]
            topic.fill(queue, bodies[: COUNT // 2], tags="paid", keys=f"k{queue}")
            topic.fill(queue, bodies[COUNT // 2 :], tags="new", properties={"vip": "yes"})
        yield topic


@pytest.fixture(scope="module")
def lake(spark: "SparkSession", orders: Topic, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The topic's lake, of several batches; not changed either."""
    path = str(tmp_path_factory.mktemp("lakes") / "lake")
    config = archive.Config(
        topics=(orders.name,), lake=path, namesrv=orders.namesrv, batch_messages=50
    )
    told: list[Progress] = []
    outcome = archive.run(spark, config, told.append)
    assert (outcome.facts["messages"], outcome.facts["batches"]) == (2 * COUNT, 3)
    assert [progress.message_count for progress in told] == [50, 50, 20]
    return path


def places_of(messages: "DataFrame") -> list[tuple[int, int]]:
    rows = messages.select("queueId", "queueOffset").collect()
    return sorted((row["queueId"], row["queueOffset"]) for row in rows)


def all_places(count: int = COUNT) -> list[tuple[int, int]]:
    return [(queue, offset) for queue in (0, 1) for offset in range(count)]


def lake_places(spark: "SparkSession", path: str) -> list[tuple[int, int]]:
    lake = Lake(spark, path)
    return places_of(lake.read(lake.state().files.values()))


# archive, compact, hybrid


def test_an_archive_has_every_message_with_all_there_is_of_it(
    spark: "SparkSession", orders: Topic, lake: str
) -> None:
    opened = Lake(spark, lake)
    rows = opened.read(opened.state().files.values()).orderBy("queueId", "queueOffset").collect()
    for row, stored in zip(rows, orders.stored(), strict=True):
        assert bytes(row["body"]) == stored.body
        assert (row["topic"], row["queueId"], row["queueOffset"]) == (
            *(orders.name, stored.queue_id, stored.queue_offset),
        )
        assert (row["tags"], row["msgId"]) == (stored.tags, stored.message_id)
        assert row["properties"].get("vip") == stored.properties.get("vip")
        assert round(row["storeTimestamp"].timestamp() * 1000) == stored.stored_at_ms


def test_an_archive_by_spark_is_the_same(
    spark: "SparkSession",
    orders: Topic,
    lake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On file systems that are not this machine's, Spark writes the files, by way of Hadoop."""
    monkeypatch.setattr(files, "LOCAL_PREFIX", "a scheme that nobody has")
    config = archive.Config(
        topics=(orders.name,), lake=str(tmp_path), namesrv=orders.namesrv, batch_messages=50
    )
    told: list[Progress] = []
    archive.run(spark, config, told.append)
    assert [progress.message_count for progress in told] == [50, 50, 20]
    by_spark, by_tasks = (Lake(spark, path) for path in (str(tmp_path), lake))
    contents = [
        {
            (file.day, file.stored_first_ms, file.stored_last_ms, frozenset(file.ranges))
            for file in opened.state().files.values()
        }
        for opened in (by_spark, by_tasks)
    ]
    assert contents[0] == contents[1]
    rows = [
        opened.read(opened.state().files.values()).withColumn("properties", F.to_json("properties"))
        for opened in (by_spark, by_tasks)
    ]
    assert rows[0].exceptAll(rows[1]).count() == rows[1].exceptAll(rows[0]).count() == 0
    monkeypatch.undo()
    again = archive.run(spark, config)  # the other way goes on where this one stood
    assert (again.facts["messages"], again.facts["lake_messages"]) == (0, 2 * COUNT)


@pytest.mark.provokes("test_pipelines.Crash", "the lake has these messages already")
def test_archiving_goes_on_and_repeats_nothing(
    spark: "SparkSession", namesrv: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lake"
    with topic_of(namesrv, "pipeline-growing") as topic:
        config = archive.Config(topics=(topic.name,), lake=str(path), namesrv=namesrv)

        def add(first: int, end: int) -> None:
            for queue in (0, 1):
                topic.fill(queue, [str(n) for n in range(first, end)])

        def archived() -> int:
            return int(str(archive.run(spark, config).facts["messages"]))

        add(0, 5)
        assert archived() == 10
        checkpoint = path / "_checkpoints" / topic.name

        # Spark forgets that the batch was finished and runs it again.
        (checkpoint / "commits" / "0").unlink()
        (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
        assert archived() == 0
        assert lake_places(spark, str(path)) == all_places(5)

        # Killed when the files are in place and the manifest does not know of them.
        add(5, 8)
        real = Lake.commit

        def crash(self: Lake, make: Callable[[State], Entry | None]) -> State:
            raise Crash

        monkeypatch.setattr(Lake, "commit", crash)
        with pytest.raises(PipelineFailed):
            archived()
        monkeypatch.setattr(Lake, "commit", real)
        opened = Lake(spark, str(path))
        assert lake_places(spark, str(path)) == all_places(5)
        assert len(opened.strays(opened.state())) > 0
        assert archived() == 6
        assert lake_places(spark, str(path)) == all_places(8)
        assert opened.strays(opened.state()) == []

        # Its files are compacted and its checkpoint is lost: the lake knows where it ends.
        assert compact.run(spark, compact.Config(lake=str(path))).facts["files_after"] == 1
        shutil.rmtree(checkpoint)
        add(8, 10)
        assert archived() == 4
        assert lake_places(spark, str(path)) == all_places(10)
        again = archive.Config(
            topics=(topic.name,),
            lake=str(path),
            namesrv=namesrv,
            starting="earliest",
            checkpoint=str(tmp_path / "another"),
        )
        with pytest.raises(PipelineFailed, match="the lake has these messages already"):
            archive.run(spark, again)


def test_following_ends_by_ctrl_c(spark: "SparkSession", orders: Topic, tmp_path: Path) -> None:
    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    config = archive.Config(
        topics=(orders.name,),
        lake=str(tmp_path),
        namesrv=orders.namesrv,
        follow=True,
        interval=0.1,
    )
    outcome = archive.run(spark, config, interrupt)
    assert outcome.facts["messages"] == 2 * COUNT
    assert not spark.streams.active


def test_lake_and_topic_read_as_one(spark: "SparkSession", namesrv: str, tmp_path: Path) -> None:
    path = str(tmp_path)
    with topic_of(namesrv, "pipeline-hybrid") as topic:
        topic.fill(0, [str(n) for n in range(20)])
        topic.fill(1, [str(n) for n in range(10)])
        archive.run(spark, archive.Config(topics=(topic.name,), lake=path, namesrv=namesrv))
        topic.fill(0, [str(n) for n in range(20, 25)])
        options = {"lake": path, "namesrv": namesrv}
        rows = hybrid.read_hybrid(spark, topic.name, **options)
        everything = [(0, n) for n in range(25)] + [(1, n) for n in range(10)]
        assert places_of(rows) == everything
        part = hybrid.read_hybrid(spark, topic.name, 8, 23, **options)
        assert places_of(part) == [place for place in everything if 8 <= place[1] < 23]

        # Not by time: the topic's part begins with an offset, though all are of one moment.
        config = hybrid.Config(topics=(topic.name,), to=str(tmp_path / "all"), **options)
        outcome = hybrid.run(spark, config)
        columns = ("queue", "first", "seam", "end", "messages")
        assert [tuple(row[name] for name in columns) for row in outcome.records] == [
            (0, 0, 20, 25, 25),
            (1, 0, 10, 10, 10),
        ]
        assert places_of(spark.read.parquet(str(tmp_path / "all"))) == everything


# replay


def test_a_dry_run_counts_and_sends_nothing(
    spark: "SparkSession", orders: Topic, lake: str
) -> None:
    for source in ({"lake": lake}, {"lake": lake, "live": True}, {}):
        config = replay.Config(
            topics=(orders.name,),
            to="pipeline-nowhere",
            namesrv=orders.namesrv,
            tags=("paid",),
            first_offset=10,
            dry_run=True,
            **source,  # type: ignore[arg-type]
        )
        outcome = replay.run(spark, config)
        assert outcome.facts == {"messages": 0, "planned": 40, "dry_run": True}
        assert [(row["queue"], row["first"], row["last"]) for row in outcome.records] == [
            (0, 10, 29),
            (1, 10, 29),
        ]


def test_a_replay_is_paced_in_order_and_sends_nothing_twice(
    spark: "SparkSession", orders: Topic, lake: str, tmp_path: Path
) -> None:
    with topic_of(orders.namesrv, "pipeline-again") as again:
        config = replay.Config(
            topics=(orders.name,),
            to=again.name,
            lake=lake,
            namesrv=orders.namesrv,
            where="properties['vip'] = 'yes'",
            rate=20.0,
            checkpoint=str(tmp_path / "plan"),
        )
        clock = ManualClock()
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            clock.advance(seconds)

        outcome = replay.run(spark, config, clock=clock, wait=wait)
        assert (outcome.facts["messages"], outcome.facts["planned"]) == (COUNT, COUNT)
        assert waits == [
            1,
            2,
        ]  # none of the first chunk is chosen, 20 of the second, 40 of the third

        stored = again.stored()
        assert len(stored) == COUNT
        by_queue = [message for message in orders.stored() if message.properties.get("vip")]
        assert [m.body for m in stored] == [m.body for m in by_queue]
        for copy, original in zip(stored, by_queue, strict=True):
            assert copy.properties["ORIGIN_ID"] == original.message_id
            assert copy.properties["ORIGIN_BORN_MS"] == str(original.born_at_ms)
            assert (copy.tags, copy.properties["vip"]) == ("new", "yes")

        # Killed after a chunk was published and before that was noted: it is run again.
        for name in (tmp_path / "plan" / "done").glob("0000000[01]"):
            name.unlink()
        replay.run(spark, config, clock=clock, wait=wait)
        assert len(again.stored()) == COUNT
        assert replay.run(spark, config).facts["messages"] == 0
        other = replay.Config(
            topics=(orders.name,),
            to=again.name,
            checkpoint=config.checkpoint,
            namesrv=config.namesrv,
        )
        with pytest.raises(ConfigError, match="is of another replay"):
            replay.run(spark, other)


# mirror


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ariane]:
    """Another cluster."""
    with Ariane(tmp_path_factory.mktemp("elsewhere")).start() as server:
        yield server


def test_a_mirror_keeps_order_and_moves_groups(
    spark: "SparkSession", orders: Topic, elsewhere: Ariane, tmp_path: Path
) -> None:
    reader = orders.client.pull_consumer("pipeline-readers")
    first, second = orders.queues()
    reader.read(first, 0)  # by which the broker knows the group
    reader.commit(first, 17)
    reader.commit(second, COUNT)
    config = mirror.Config(
        topics=(orders.name,),
        namesrv=orders.namesrv,
        to_namesrv=elsewhere.namesrv_address,
        checkpoint=str(tmp_path / "checkpoint"),
        batch_messages=50,
        groups=("pipeline-readers",),
        offsets_to=str(tmp_path / "offsets"),
    )
    outcome = mirror.run(spark, config)
    assert outcome.facts["messages"] == 2 * COUNT
    with Client(elsewhere.namesrv_address) as there:
        copy = Topic(orders.name, elsewhere.namesrv_address, there)
        assert len(copy.queues()) == 2
        pairs = list(zip(copy.stored(), orders.stored(), strict=True))
        for copied, original in pairs:
            assert (copied.body, copied.queue_id) == (original.body, original.queue_id)
            assert (copied.tags, copied.keys) == (original.tags, original.keys)
        moved = there.pull_consumer("pipeline-readers")
        assert [moved.committed(queue) for queue in copy.queues()] == [17, COUNT]
        assert spark.read.parquet(str(tmp_path / "offsets")).count() == 2

        last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
        mirror.run(spark, config)
        assert len(copy.stored()) == 2 * COUNT


def test_a_backlog_into_more_queues_keeps_the_order_of_keys(
    spark: "SparkSession", namesrv: str, tmp_path: Path
) -> None:
    with topic_of(namesrv, "pipeline-narrow", queue_count=1) as narrow:
        users = [f"user-{n % 5}" for n in range(50)]
        for number, user in enumerate(users):
            narrow.client.send(narrow.name, str(number).encode(), sharding_key=user)
        config = mirror.Config(
            topics=(narrow.name,),
            namesrv=namesrv,
            to_namesrv=namesrv,
            to="pipeline-wide",
            queues=4,
            order="key",
            checkpoint=str(tmp_path),
        )
        mirror.run(spark, config)
        wide = Topic("pipeline-wide", namesrv, narrow.client)
        stored = wide.stored()
        assert sorted(int(m.body) for m in stored) == list(range(50))
        assert len({m.queue_id for m in stored}) > 1
        for user in set(users):
            theirs = [m for m in stored if m.properties["__SHARDINGKEY"] == user]
            assert len({m.queue_id for m in theirs}) == 1
            assert [int(m.body) for m in theirs] == [n for n, u in enumerate(users) if u == user]


# metrics, trace, dlq, quality


def test_metrics_to_a_table_a_topic_and_files(
    spark: "SparkSession", orders: Topic, lake: str, tmp_path: Path
) -> None:
    config = metrics.Config(topics=(orders.name,), namesrv=orders.namesrv, window=3600, by_tag=True)
    outcome = metrics.run(spark, config)
    assert outcome.facts["messages"] == 2 * COUNT
    assert sum(row["messages"] for row in outcome.records if row["tags"] == "paid") == COUNT
    with topic_of(orders.namesrv, "pipeline-metrics") as told:
        config = metrics.Config(
            topics=(orders.name,),
            namesrv=orders.namesrv,
            lake=lake,
            to=f"topic:{told.name}",
            window=3600,
        )
        metrics.run(spark, config)
        bodies = [json.loads(message.body) for message in told.stored()]
        assert sum(body["messages"] for body in bodies) == 2 * COUNT
        assert {body["topic"] for body in bodies} == {orders.name}
    config = metrics.Config(
        topics=(orders.name,), namesrv=orders.namesrv, to=str(tmp_path / "metrics"), window=3600
    )
    metrics.run(spark, config)
    [total] = spark.read.parquet(str(tmp_path / "metrics")).selectExpr("sum(messages)").collect()
    assert total[0] == 2 * COUNT


@pytest.mark.parametrize("target", ["", "topic:pipeline-windows"])
def test_metrics_that_follow_tell_of_each_window_once(
    spark: "SparkSession", namesrv: str, tmp_path: Path, target: str
) -> None:
    with (
        topic_of(namesrv, f"pipeline-watched-{len(target)}") as watched,
        topic_of(namesrv, "pipeline-windows") as told,
    ):
        times: list[int] = []
        # A window is told of once messages behind its end have come.
        while len(times) < 100 or times[-1] - times[0] < 20 * WINDOW_MS:
            watched.client.send(watched.name, str(len(times)).encode())
            times = sorted(message.stored_at_ms for message in watched.stored())
        closed = Counter(time - time % WINDOW_MS for time in times)
        del closed[times[-1] - times[-1] % WINDOW_MS]
        config = metrics.Config(
            topics=(watched.name,),
            namesrv=namesrv,
            window=WINDOW_MS / 1000,
            lateness=0,
            to=target,
            follow=True,
            interval=0.1,
            checkpoint=str(tmp_path / "checkpoint"),
            source_options={"startingOffsets": "earliest"},
        )

        def until_told(progress: Progress) -> None:
            if progress.note or (target and told.stored()):
                raise KeyboardInterrupt

        outcome = metrics.run(spark, config, until_told)
        rows = [json.loads(message.body) for message in told.stored()] or outcome.records
        windows = [(row["window_ms"], row["messages"]) for row in rows]
        assert sorted(windows) == sorted(closed.items())


def test_traces_of_a_real_client(spark: "SparkSession", namesrv: str, tmp_path: Path) -> None:
    with Client(namesrv, trace=True) as client:
        client.admin.create_topic("pipeline-traced", write_queue_count=1)
        receipts = [client.send("pipeline-traced", b"x", keys=f"t{n}") for n in range(5)]
        seen: list[str] = []

        def handle(message: StoredMessage) -> None:
            seen.append(message.message_id)

        consumer = client.push_consumer("pipeline-tracing", handle)
        consumer.subscribe("pipeline-traced")
        with consumer:
            wait_until(lambda: len(seen) == 5, "the consumer to have all")
        lost = client.send("pipeline-traced", b"nobody is here")
    config = trace.Config(namesrv=namesrv, topics=("pipeline-traced",), to=str(tmp_path / "rows"))
    outcome = trace.run(spark, config)
    assert outcome.facts == {"messages": 6, "orphans": 1, "doubles": 0, "unsent": 0}
    rows = {row["msgId"]: row for row in spark.read.parquet(str(tmp_path / "rows")).collect()}
    assert rows.keys() == {receipt.message_id for receipt in [*receipts, lost]}
    assert rows[lost.message_id]["isOrphan"]
    for receipt in receipts:
        row = rows[receipt.message_id]
        assert (row["deliveries"], row["consumers"][0]["group"]) == (1, "pipeline-tracing")
        assert row["totalMs"] >= 0
    assert config.trace_topic == TRACE_TOPIC


def test_dead_letters_are_sorted_and_sent_back(
    spark: "SparkSession", namesrv: str, tmp_path: Path
) -> None:
    with topic_of(namesrv, "pipeline-bills", queue_count=1) as bills:
        for number in range(4):
            bills.client.send(
                bills.name, json.dumps({"id": number}), tags="paid", properties={"cause": "timeout"}
            )
        bills.client.send(bills.name, b"?", properties={"cause": "unreadable"})

        def fail(message: StoredMessage) -> None:
            raise ValueError("never")

        buried: list[StoredMessage] = []
        consumer = bills.client.push_consumer(
            "pipeline-billing", fail, retry=Retry(max=0), dead_letter=buried.append
        )
        consumer.subscribe(bills.name)
        with consumer:
            wait_until(lambda: len(buried) == 5, "all to be dead letters")
        outcome = dlq.run(spark, dlq.Config(groups=("pipeline-billing",), namesrv=namesrv))
        kinds = {
            (row["group"], row["topic"], row["tag"], row["cause"], row["shape"]): row["letters"]
            for row in outcome.records
        }
        assert kinds == {
            ("pipeline-billing", bills.name, "paid", "timeout", "json{id}"): 4,
            ("pipeline-billing", bills.name, None, "unreadable", "text"): 1,
        }
        config = replay.Config(
            topics=("%DLQ%pipeline-billing",),
            to_origin=True,
            namesrv=namesrv,
            where="cause = 'timeout' AND shape = 'json{id}'",
            checkpoint=str(tmp_path),
        )
        assert replay.run(spark, config).facts["messages"] == 4
        assert sorted(json.loads(m.body)["id"] for m in bills.stored()[5:]) == [0, 1, 2, 3]
        nobody = dlq.Config(groups=("pipeline-faultless",), namesrv=namesrv)
        assert dlq.run(spark, nobody).facts == {"letters": 0, "kinds": 0}


def test_quality_parts_good_from_bad(spark: "SparkSession", namesrv: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nfield = "amount"\ntype = "number"\nrequired = true\nmin = 0\n')
    with (
        topic_of(namesrv, "pipeline-raw") as raw,
        topic_of(namesrv, "pipeline-good") as good,
        topic_of(namesrv, "pipeline-quarantine") as bad,
    ):
        raw.fill(0, [json.dumps({"amount": n - 5}) for n in range(20)])
        raw.fill(1, ["nonsense", "{}"])
        config = quality.Config(
            topics=(raw.name,),
            rules=str(rules),
            good=good.name,
            quarantine=bad.name,
            checkpoint=str(tmp_path / "checkpoint"),
            namesrv=namesrv,
        )
        outcome = quality.run(spark, config)
        assert outcome.facts == {"messages": 22, "good": 15, "quarantined": 7}
        assert outcome.records == [
            {"rule": "body is not JSON", "broken": 1},
            {"rule": "amount", "broken": 6},
        ]
        assert [json.loads(m.body)["amount"] for m in good.stored()] == list(range(15))
        reasons = sorted(m.properties["QUALITY_REASON"] for m in bad.stored())
        assert reasons == ["amount: is missing", *["amount: is under 0"] * 5, "body is not JSON"]
        assert all("QUALITY_REASON" not in m.properties for m in good.stored())


# audit, and the command line


def test_an_audit_finds_nothing_in_a_sound_system(
    spark: "SparkSession", orders: Topic, lake: str
) -> None:
    reader = orders.client.pull_consumer("pipeline-audited")
    reader.read(orders.queues()[0], 0)  # by which the broker knows the group
    reader.commit(orders.queues()[0], 50)
    config = audit.Config(
        topics=(orders.name,), namesrv=orders.namesrv, lake=lake, groups=("pipeline-audited",)
    )
    outcome = audit.run(spark, config)
    assert outcome.findings == ()
    assert outcome.facts["messages_read"] == 4 * COUNT
    first, second = outcome.records
    assert (first["produced_end"], first["archived_end"], first["unarchived"]) == (COUNT, COUNT, 0)
    assert (first["lag"], second["lag"]) == ("pipeline-audited 10", f"pipeline-audited {COUNT}")


def changed_copy(spark: "SparkSession", lake: str, tmp_path: Path) -> Path:
    """The lake with a file whose bodies are others."""
    copy = tmp_path / "lake"
    shutil.copytree(lake, copy)
    opened = Lake(spark, str(copy))
    victim = next(iter(opened.state().files.values()))
    rows = spark.read.parquet(opened.files.uri(victim.path)).selectExpr(
        "* except (body)", "cast(upper(cast(body as string)) as binary) as body"
    )
    rows.coalesce(1).write.parquet(str(tmp_path / "other"))
    [written] = (tmp_path / "other").glob("*.parquet")
    target = copy / victim.path
    target.with_name(f".{target.name}.crc").unlink(missing_ok=True)
    shutil.copy(written, target)
    return copy


def test_an_audit_tells_of_changed_bodies_and_so_does_the_exit_code(
    spark: "SparkSession", orders: Topic, lake: str, tmp_path: Path
) -> None:
    copy = changed_copy(spark, lake, tmp_path)
    config = audit.Config(topics=(orders.name,), namesrv=orders.namesrv, lake=str(copy))
    found = audit.run(spark, config).findings
    assert any("differ between lake and broker" in finding for finding in found)

    words = ["--topics", orders.name, "--lake", str(copy), "--namesrv", orders.namesrv, "--quick"]
    java = f"spark.driver.extraJavaOptions={QUICK_START['spark.driver.extraJavaOptions']}"
    spark_words = ["--master", "local[1]", "--conf", "spark.ui.enabled=false", "--conf", java]
    done = subprocess.run(
        [str(ARIANE), "pipeline", "run", "audit", *words, *spark_words, "--output", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["facts"]["messages_read"] == 0
    assert any("bytes, and" in finding for finding in told["findings"])
