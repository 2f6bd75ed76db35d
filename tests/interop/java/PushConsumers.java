import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultMQPushConsumer: two instances sharing a topic, order, tags, and progress across restarts. */
final class PushConsumers {
    static final int QUEUES = 8;

    /** One running consumer and everything it was given, in the order it came. */
    static final class Instance {
        final DefaultMQPushConsumer consumer;
        final List<MessageExt> received = Collections.synchronizedList(new ArrayList<>());

        Instance(Cluster cluster, String group, String topic, String tags, boolean orderly) throws Exception {
            consumer = new DefaultMQPushConsumer(group);
            consumer.setNamesrvAddr(cluster.nameServer);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            // The client may skip the heartbeat that tells of its new subscription; the next one must not be 30 s away.
            consumer.setHeartbeatBrokerInterval(1_000);
            consumer.setConsumeThreadMin(4);
            consumer.setConsumeThreadMax(4);
            consumer.subscribe(topic, tags);
            if (orderly) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    received.addAll(messages);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    received.addAll(messages);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
        }

        Set<String> bodies() {
            synchronized (received) {
                Set<String> bodies = new TreeSet<>();
                received.forEach(message -> bodies.add(Cluster.body(message)));
                return bodies;
            }
        }

        /** The topic's queues this instance holds now; an orderly one holds only those it has locked. */
        Set<MessageQueue> queues(String topic) {
            Set<MessageQueue> queues = new HashSet<>();
            consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().forEach((queue, state) -> {
                if (queue.getTopic().equals(topic) && !state.isDropped()) {
                    queues.add(queue);
                }
            });
            return queues;
        }
    }

    static void concurrent(Cluster cluster) throws Exception {
        rebalance(cluster, "concurrent", false);
    }

    static void orderly(Cluster cluster) throws Exception {
        rebalance(cluster, "orderly", true);
    }

    /** One instance alone, then two, then one again: the split is even, nothing is lost, and nothing doubled while steady. */
    private static void rebalance(Cluster cluster, String what, boolean orderly) throws Exception {
        String topic = cluster.topic(what, QUEUES);
        String group = cluster.fresh("group_" + what);
        send(cluster, topic, 0, 200);
        Instance first = new Instance(cluster, group, topic, "*", orderly);
        Instance second = null;
        try {
            Cluster.await("the first to get all", () -> first.bodies().size() == 200);
            Instance joined = second = new Instance(cluster, group, topic, "*", orderly);
            Cluster.await("an even split", () -> first.queues(topic).size() == QUEUES / 2
                && joined.queues(topic).size() == QUEUES / 2
                && Collections.disjoint(first.queues(topic), joined.queues(topic)));
            int before = first.received.size() + joined.received.size();
            send(cluster, topic, 200, 600);
            Cluster.await("both to get all", () -> union(first, joined).size() == 600);
            Cluster.equal("deliveries to both", 400, first.received.size() + joined.received.size() - before);
            Cluster.check(joined.received.size() >= 100, "the second got " + joined.received.size());
            send(cluster, topic, 600, 700);
            joined.consumer.shutdown();
            Cluster.await("the first to take over", () -> first.queues(topic).size() == QUEUES);
            send(cluster, topic, 700, 800);
            Cluster.await("the first to get the rest", () -> union(first, joined).size() == 800);
            if (orderly) {
                checkOrder(first);
                checkOrder(joined);
            }
        } finally {
            first.consumer.shutdown();
            if (second != null) {
                second.consumer.shutdown();
            }
        }
    }

    private static void send(Cluster cluster, String topic, int first, int end) throws Exception {
        for (int i = first; i < end; i++) {
            int queue = i % QUEUES;
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, String.valueOf(i)),
                (queues, message, argument) -> queues.get(queue), null);
        }
    }

    private static Set<String> union(Instance one, Instance other) {
        Set<String> bodies = one.bodies();
        bodies.addAll(other.bodies());
        return bodies;
    }

    private static void checkOrder(Instance instance) {
        Map<Integer, Long> last = new HashMap<>();
        for (MessageExt message : instance.received) {
            Long previous = last.put(message.getQueueId(), message.getQueueOffset());
            Cluster.check(previous == null || previous < message.getQueueOffset(),
                "queue " + message.getQueueId() + " gave offset " + message.getQueueOffset() + " after " + previous);
        }
    }

    /** "Aa" and "BB" have the same Java hash, so the broker lets both through and the client must tell them apart. */
    static void tags(Cluster cluster) throws Exception {
        String topic = cluster.topic("tags", 4);
        String[] tags = {"Aa", "BB", "C", "D"};
        for (int i = 0; i < 80; i++) {
            cluster.producer.send(Cluster.message(topic, tags[i % 4], "k" + i, tags[i % 4] + "-" + i));
        }
        Instance some = new Instance(cluster, cluster.fresh("group_tags"), topic, "Aa || C", false);
        Instance last = new Instance(cluster, cluster.fresh("group_tags"), topic, "D", false);
        try {
            Cluster.await("the tagged ones", () -> some.bodies().size() >= 40 && last.bodies().size() >= 20);
            cluster.producer.send(Cluster.message(topic, "C", "k", "C-80"));
            Cluster.await("a late one", () -> some.bodies().contains("C-80"));
            Cluster.equal("Aa and C", 41, some.received.size());
            Cluster.equal("D", 20, last.received.size());
            Cluster.check(some.bodies().stream().allMatch(body -> body.matches("(Aa|C)-.*")), "others came: " + some.bodies());
        } finally {
            some.consumer.shutdown();
            last.consumer.shutdown();
        }
    }

    static void resume(Cluster cluster) throws Exception {
        String topic = cluster.topic("resume", QUEUES);
        String group = cluster.fresh("group_resume");
        send(cluster, topic, 0, 80);
        Instance first = new Instance(cluster, group, topic, "*", false);
        Cluster.await("the first run", () -> first.bodies().size() == 80);
        first.consumer.shutdown();
        send(cluster, topic, 80, 120);
        Instance again = new Instance(cluster, group, topic, "*", false);
        try {
            Cluster.await("the second run", () -> again.bodies().size() >= 40);
            Cluster.equal("only new ones", 40, again.received.size());
            Cluster.check(!again.bodies().contains("79"), "an old one came again");
        } finally {
            again.consumer.shutdown();
        }
    }
}
