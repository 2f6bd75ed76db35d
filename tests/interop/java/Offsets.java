import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;

/** A group's progress: moved to a time while its members run and while none does, copied, and where a new group starts. */
final class Offsets {
    static void resetOnline(Cluster cluster) throws Exception {
        String topic = cluster.topic("reset", 2);
        String group = cluster.fresh("group");
        long middle = sendHalves(cluster, topic);
        try (Receiver receiver = new Receiver(cluster, group, topic).concurrent("*", Receiver.TAKE)) {
            receiver.await(20);
            Map<MessageQueue, Long> offsets = cluster.admin.resetOffsetByTimestamp(topic, group, middle, true);
            Cluster.equal("reset queues", 2, offsets.size());
            offsets.values().forEach(offset -> Cluster.equal("offset", 5, offset));
            Cluster.await(() -> "the second half again, got " + receiver.bodies(),
                () -> receiver.bodies().stream().filter(body -> body.startsWith("second-")).count() >= 20);
            Cluster.equal("first half", 10L, receiver.bodies().stream().filter(body -> body.startsWith("first-")).count());
        }
    }

    static void resetOffline(Cluster cluster) throws Exception {
        String topic = cluster.topic("reset_off", 2);
        String group = cluster.fresh("group");
        long middle = sendHalves(cluster, topic);
        try (Receiver receiver = new Receiver(cluster, group, topic).concurrent("*", Receiver.TAKE)) {
            receiver.await(20);
            awaitTold(cluster, receiver, group, topic);
        }
        Admin.expect(Admin.mqadmin(cluster, "resetOffsetByTime", "-g", group, "-t", topic, "-s", String.valueOf(middle)), "broker-a");
        Cluster.await("the progress to be reset", () -> progress(cluster, group, topic) == 10);
        try (Receiver receiver = new Receiver(cluster, group, topic).concurrent("*", Receiver.TAKE)) {
            receiver.expectNoMore(10);
            Cluster.check(receiver.bodies().stream().allMatch(body -> body.startsWith("second-")), "got " + receiver.bodies());
        }
    }

    /** To the end, for a group that has fallen behind and must not catch up. */
    static void skipped(Cluster cluster) throws Exception {
        String topic = cluster.topic("skip", 2);
        String group = cluster.fresh("group");
        sendHalves(cluster, topic);
        cluster.group(group, config -> { });
        cluster.admin.updateConsumeOffset(cluster.brokerAddress, group, new MessageQueue(topic, "broker-a", 0), 3);
        cluster.admin.updateConsumeOffset(cluster.brokerAddress, group, new MessageQueue(topic, "broker-a", 1), 3);
        Admin.mqadmin(cluster, "skipAccumulatedMessage", "-g", group, "-t", topic);
        Cluster.await("the progress to be at the end", () -> progress(cluster, group, topic) == 20);
    }

    static void cloned(Cluster cluster) throws Exception {
        String topic = cluster.topic("clone", 2);
        String source = cluster.fresh("group_source");
        String copy = cluster.fresh("group_copy");
        sendHalves(cluster, topic);
        try (Receiver receiver = new Receiver(cluster, source, topic).concurrent("*", Receiver.TAKE)) {
            receiver.await(20);
            awaitTold(cluster, receiver, source, topic);
        }
        cluster.group(copy, config -> { });
        Admin.expect(Admin.mqadmin(cluster, "cloneGroupOffset", "-s", source, "-d", copy, "-t", topic, "-o", "true"),
            "clone group offset success");
        cluster.producer.send(Cluster.message(topic, "T", "k", "after"));
        try (Receiver receiver = new Receiver(cluster, copy, topic).concurrent("*", Receiver.TAKE)) {
            receiver.expectNoMore(1);
            Cluster.equal("only the new one", List.of("after"), receiver.bodies());
        }
    }

    /** A new group on a topic that still has its first message reads it all, even if told to begin at the end. */
    static void firstStart(Cluster cluster) throws Exception {
        String topic = cluster.topic("first", 1);
        for (int i = 0; i < 5; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "k", "early-" + i));
        }
        Cluster.await("the messages", () -> cluster.count(topic) == 5);
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic)
            .with(consumer -> consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET))
            .concurrent("*", Receiver.TAKE)) {
            receiver.expectNoMore(5);
        }
    }

    /** What stands in the way of a message that no longer exists: the group goes on with what does. */
    static void corrected(Cluster cluster) throws Exception {
        String topic = cluster.topic("corrected", 1);
        String group = cluster.fresh("group");
        cluster.group(group, config -> { });
        sendHalves(cluster, topic);
        cluster.admin.updateConsumeOffset(cluster.brokerAddress, group, new MessageQueue(topic, "broker-a", 0), 1_000);
        try (Receiver receiver = new Receiver(cluster, group, topic).concurrent("*", Receiver.TAKE)) {
            Cluster.await("the offset to be put right", () -> progress(cluster, group, topic) == 20);
            Cluster.await("the consumer to go on", () -> {
                cluster.producer.send(Cluster.message(topic, "T", "k", "late"));
                Thread.sleep(500);
                return receiver.distinct().contains("late");
            });
        }
    }

    private static long sendHalves(Cluster cluster, String topic) throws Exception {
        send(cluster, topic, "first-");
        Thread.sleep(50);
        long middle = System.currentTimeMillis();
        Thread.sleep(50);
        send(cluster, topic, "second-");
        Cluster.await("the messages", () -> cluster.count(topic) == 20);
        return middle;
    }

    private static void send(Cluster cluster, String topic, String prefix) throws Exception {
        for (int i = 0; i < 10; i++) {
            int queue = i;
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, prefix + i),
                (queues, message, argument) -> queues.get(queue % queues.size()), null);
        }
    }

    private static void awaitTold(Cluster cluster, Receiver receiver, String group, String topic) throws Exception {
        Cluster.await("the progress to be told", () -> {
            receiver.consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return progress(cluster, group, topic) == 20;
        });
    }

    private static long progress(Cluster cluster, String group, String topic) throws Exception {
        return cluster.admin.examineConsumeStats(group, topic).getOffsetTable().entrySet().stream()
            .filter(entry -> entry.getKey().getTopic().equals(topic))
            .map(Map.Entry::getValue).mapToLong(OffsetWrapper::getConsumerOffset).sum();
    }
}
