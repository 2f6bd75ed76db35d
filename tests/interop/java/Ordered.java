import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/** Order within a queue: by key, over a whole topic, with a message that fails for a while, and one that always does. */
final class Ordered {
    static void partition(Cluster cluster) throws Exception {
        String topic = cluster.topic("by_key", 4);
        String group = cluster.fresh("group");
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        Receiver.Handler note = (message, context) -> seen.add(Cluster.body(message));
        try (Receiver first = new Receiver(cluster, group, topic).orderly(note);
             Receiver second = new Receiver(cluster, group, topic).orderly(note)) {
            for (int step = 0; step < 12; step++) {
                for (int order = 0; order < 10; order++) {
                    cluster.producer.send(Cluster.message(topic, "T", "order-" + order, order + ":" + step),
                        (queues, message, argument) -> queues.get((Integer) argument % queues.size()), order);
                }
            }
            Cluster.await("all steps", () -> seen.stream().distinct().count() == 120);
            Map<String, Integer> last = new HashMap<>();
            for (String body : new ArrayList<>(seen)) { // a rebalance may repeat, never skip
                String[] parts = body.split(":");
                int step = Integer.parseInt(parts[1]);
                Cluster.check(step <= last.getOrDefault(parts[0], -1) + 1, body + " came too early in " + seen);
                last.put(parts[0], step);
            }
        }
    }

    static void global(Cluster cluster) throws Exception {
        String topic = cluster.topic("global", 1);
        String group = cluster.fresh("group");
        List<String> expected = new ArrayList<>();
        try (Receiver receiver = new Receiver(cluster, group, topic).orderly(Receiver.TAKE)) {
            for (int i = 0; i < 100; i++) {
                expected.add("g-" + i);
                cluster.producer.send(Cluster.message(topic, "T", "k", "g-" + i));
            }
            receiver.await(100);
            Cluster.equal("order", expected, receiver.bodies());
        }
    }

    /** Nothing overtakes a message that failed: it is tried again after the pause, and only then the next. */
    static void suspended(Cluster cluster) throws Exception {
        String topic = cluster.topic("suspended", 1);
        send(cluster, topic);
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic)
            .with(consumer -> consumer.setSuspendCurrentQueueTimeMillis(300))
            .orderly((message, context) -> !Cluster.body(message).equals("1") || message.getReconsumeTimes() == 2)) {
            receiver.await(6);
            Cluster.equal("order", List.of("0", "1", "1", "1", "2", "3"), receiver.bodies());
            Cluster.equal("tries", List.of(0, 1, 2), receiver.of("1").stream().map(Receiver.Delivery::retries).toList());
            long pause = receiver.of("1").get(1).atMs() - receiver.of("1").get(0).atMs();
            Cluster.check(pause >= 290, "tried again after " + pause + " ms");
        }
    }

    static void deadLetter(Cluster cluster) throws Exception {
        String topic = cluster.topic("orderly_dead", 1);
        String group = cluster.fresh("group");
        send(cluster, topic);
        try (Receiver receiver = new Receiver(cluster, group, topic)
            .with(consumer -> {
                consumer.setSuspendCurrentQueueTimeMillis(50);
                consumer.setMaxReconsumeTimes(2);
            })
            .orderly((message, context) -> !Cluster.body(message).equals("1"))) {
            receiver.await(6);
            Cluster.equal("order", List.of("0", "1", "1", "1", "2", "3"), receiver.bodies());
            MessageExt dead = Retries.dead(cluster, group, receiver.of("1").get(0).message().getMsgId());
            Cluster.equal("body", "1", Cluster.body(dead));
        }
    }

    private static void send(Cluster cluster, String topic) throws Exception {
        for (int i = 0; i < 4; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, String.valueOf(i)));
        }
    }
}
