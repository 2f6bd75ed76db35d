import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;

/**
 * Members of a group that others belong to as well: tells which queues each has ("QUEUES member 0,3") whenever that
 * changes, and every message ("GOT member body"). A line of input ends one member, the end of input all of them.
 *
 * <p>Usage: Member NAME_SERVER TOPIC GROUP STRATEGY COUNT
 */
public final class Member {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        List<Receiver> members = new ArrayList<>();
        try (Cluster cluster = new Cluster(arguments[0], "")) {
            for (int i = 0; i < Integer.parseInt(arguments[4]); i++) {
                String name = "java-" + i;
                Receiver receiver = new Receiver(cluster, arguments[2], topic)
                    .with(consumer -> consumer.setAllocateMessageQueueStrategy(strategy(arguments[3])));
                receiver.concurrent("*", (message, context) -> {
                    say("GOT " + name + " " + Cluster.body(message));
                    return true;
                });
                members.add(receiver);
                Thread watch = new Thread(() -> watch(name, receiver, topic));
                watch.setDaemon(true);
                watch.start();
            }
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            while (!members.isEmpty() && orders.readLine() != null) {
                members.remove(0).close();
            }
            members.forEach(Receiver::close);
        }
        System.exit(0);
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        return switch (name) {
            case "AVG" -> new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE" -> new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH" -> new AllocateMessageQueueConsistentHash();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static void watch(String name, Receiver receiver, String topic) {
        String before = "";
        while (true) {
            TreeSet<Integer> queues = new TreeSet<>();
            receiver.consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().forEach((queue, state) -> {
                if (queue.getTopic().equals(topic) && !state.isDropped()) {
                    queues.add(queue.getQueueId());
                }
            });
            String now = queues.stream().map(String::valueOf).collect(Collectors.joining(","));
            if (!now.equals(before)) {
                say("QUEUES " + name + " " + now);
                before = now;
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException stopped) {
                return;
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
