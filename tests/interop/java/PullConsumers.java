import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** DefaultLitePullConsumer with and without a group, and the plain pull it stands on. */
final class PullConsumers {
    static void subscribe(Cluster cluster) throws Exception {
        String topic = cluster.topic("lite", 4);
        String group = cluster.fresh("group_lite");
        send(cluster, topic, 0, 100);
        Cluster.equal("first run", Producers.expected("lite-", 100), poll(cluster, group, topic, 100));
        send(cluster, topic, 100, 130);
        Set<String> later = Producers.expected("lite-", 130);
        later.removeAll(Producers.expected("lite-", 100));
        Cluster.equal("second run", later, poll(cluster, group, topic, 30));
    }

    private static void send(Cluster cluster, String topic, int first, int end) throws Exception {
        for (int i = first; i < end; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, "lite-" + i));
        }
    }

    /** What a new consumer of the group is given; its progress is committed. */
    private static Set<String> poll(Cluster cluster, String group, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = consumer(cluster, group);
        consumer.subscribe(topic, "*");
        consumer.start();
        List<MessageExt> messages = new ArrayList<>();
        try {
            Cluster.await(count + " messages", () -> {
                messages.addAll(consumer.poll(200));
                return messages.size() >= count;
            });
            consumer.commit();
        } finally {
            consumer.shutdown();
        }
        return Producers.bodies(messages);
    }

    static void assign(Cluster cluster) throws Exception {
        String topic = cluster.topic("assign", 1);
        send(cluster, topic, 0, 30);
        Thread.sleep(5); // so that a time lies between the two halves
        long middle = System.currentTimeMillis();
        Thread.sleep(5);
        send(cluster, topic, 30, 60);
        DefaultLitePullConsumer consumer = consumer(cluster, cluster.fresh("group_assign"));
        consumer.setAutoCommit(false);
        consumer.start();
        try {
            Cluster.await("the queue", () -> consumer.fetchMessageQueues(topic).size() == 1);
            MessageQueue queue = consumer.fetchMessageQueues(topic).iterator().next();
            consumer.assign(List.of(queue));
            // Each time everything is taken before the next seek: the client lets a pull that was under way
            // when seek was called deliver its old messages afterwards.
            Cluster.equal("at first", "lite-0", take(consumer, 60).get(0));
            consumer.seek(queue, 45);
            Cluster.equal("after seek", "lite-45", take(consumer, 15).get(0));
            consumer.seekToBegin(queue);
            Cluster.equal("at the beginning", "lite-0", take(consumer, 60).get(0));
            Cluster.equal("offset at time", 30, consumer.offsetForTimestamp(queue, middle));
            consumer.seekToEnd(queue);
            send(cluster, topic, 60, 61);
            Cluster.equal("at the end", List.of("lite-60"), take(consumer, 1));
            consumer.commitSync();
            Cluster.await("the committed offset", () -> consumer.committed(queue) == 61);
        } finally {
            consumer.shutdown();
        }
    }

    private static List<String> take(DefaultLitePullConsumer consumer, int count) throws Exception {
        List<String> bodies = new ArrayList<>();
        Cluster.await(count + " messages", () -> {
            consumer.poll(200).forEach(message -> bodies.add(Cluster.body(message)));
            return bodies.size() >= count;
        });
        Cluster.equal("messages", count, bodies.size());
        return bodies;
    }

    private static DefaultLitePullConsumer consumer(Cluster cluster, String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(cluster.nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return consumer;
    }

    /** A pull that finds nothing waits at the broker and is answered as soon as a message arrives. */
    static void longPolling(Cluster cluster) throws Exception {
        String topic = cluster.topic("longpoll", 1);
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(cluster.fresh("group_longpoll"));
        consumer.setNamesrvAddr(cluster.nameServer);
        consumer.start();
        try {
            MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
            Cluster.equal("without waiting", PullStatus.NO_NEW_MSG, consumer.pull(queue, "*", 0, 1).getPullStatus());
            long[] sent = new long[1];
            Thread later = new Thread(() -> {
                try {
                    Thread.sleep(700);
                    sent[0] = System.nanoTime();
                    cluster.producer.send(Cluster.message(topic, "T", "k", "awaited"));
                } catch (Exception error) {
                    error.printStackTrace();
                }
            });
            later.start();
            PullResult result = consumer.pullBlockIfNotFound(queue, "*", 0, 1);
            long waited = System.nanoTime() - sent[0];
            later.join();
            Cluster.equal("status", PullStatus.FOUND, result.getPullStatus());
            Cluster.equal("body", "awaited", Cluster.body(result.getMsgFoundList().get(0)));
            Cluster.check(sent[0] != 0 && waited < 1_000_000_000L, "answered " + waited + " ns after the send");
            Cluster.equal("beyond the end", PullStatus.OFFSET_ILLEGAL, consumer.pull(queue, "*", 9, 1).getPullStatus());
        } finally {
            consumer.shutdown();
        }
    }
}
