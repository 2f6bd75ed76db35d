import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** Messages for later: by level, by a time to the millisecond, taken back, and too far away. */
final class Delays {
    /** How late the machine may make us; the broker's own punctuality is measured elsewhere. */
    static final long LATE_MS = 10_000;

    static void levels(Cluster cluster) throws Exception {
        String topic = cluster.topic("levels", 4);
        long[] delays = cluster.delaysMs();
        Map<String, SendResult> sent = new HashMap<>();
        Map<String, Long> due = new HashMap<>();
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            for (int level : new int[] {0, 1, 2, 5, 18, 40}) {
                Message message = Cluster.message(topic, "Later", "key-" + level, "level-" + level);
                message.putUserProperty("colour", "blue");
                message.setDelayTimeLevel(level);
                long delay = level == 0 ? 0 : delays[Math.min(level, delays.length) - 1]; // beyond the last is the last
                due.put("level-" + level, System.currentTimeMillis() + delay);
                SendResult result = cluster.producer.send(message);
                Cluster.equal("status", SendStatus.SEND_OK, result.getSendStatus());
                sent.put("level-" + level, result);
            }
            receiver.await(6);
            for (Receiver.Delivery delivery : receiver.deliveries) {
                MessageExt message = delivery.message();
                checkTime(delivery, due.get(delivery.body()), 0);
                Cluster.equal("id", sent.get(delivery.body()).getMsgId(), message.getMsgId());
                Cluster.equal("queue", sent.get(delivery.body()).getMessageQueue().getQueueId(), message.getQueueId());
                Cluster.equal("topic", topic, message.getTopic());
                Cluster.equal("tag", "Later", message.getTags());
                Cluster.equal("property", "blue", message.getUserProperty("colour"));
                Cluster.equal("tries", 0, message.getReconsumeTimes());
            }
        }
    }

    static void timer(Cluster cluster) throws Exception {
        String topic = cluster.topic("timer", 4);
        Map<String, Long> due = new HashMap<>();
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            long now = System.currentTimeMillis();
            Message seconds = Cluster.message(topic, "T", "k", "seconds");
            seconds.setDelayTimeSec(2);
            Message milliseconds = Cluster.message(topic, "T", "k", "milliseconds");
            milliseconds.setDelayTimeMs(1_234);
            Message absolute = Cluster.message(topic, "T", "k", "absolute");
            absolute.setDeliverTimeMs(now + 2_345);
            Message past = Cluster.message(topic, "T", "k", "past");
            past.setDeliverTimeMs(now - 5_000);
            due.put("seconds", now + 2_000);
            due.put("milliseconds", now + 1_234);
            due.put("absolute", now + 2_345);
            due.put("past", now);
            for (Message message : new Message[] {seconds, milliseconds, absolute, past}) {
                Cluster.equal("status", SendStatus.SEND_OK, cluster.producer.send(message).getSendStatus());
            }
            receiver.await(4);
            for (Receiver.Delivery delivery : receiver.deliveries) {
                checkTime(delivery, due.get(delivery.body()), cluster.timerPrecisionMs());
                Cluster.equal("topic", topic, delivery.message().getTopic());
                Cluster.equal("key", "k", delivery.message().getKeys());
            }
        }
    }

    static void recall(Cluster cluster) throws Exception {
        String topic = cluster.topic("recall", 1);
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            Message kept = Cluster.message(topic, "T", "k", "kept");
            kept.setDelayTimeMs(4_000);
            Message recalled = Cluster.message(topic, "T", "k", "recalled");
            recalled.setDelayTimeMs(4_000);
            cluster.producer.send(kept);
            SendResult result = cluster.producer.send(recalled);
            Cluster.check(result.getRecallHandle() != null, "no recall handle");
            Cluster.equal("recalled", result.getMsgId(), cluster.producer.recallMessage(topic, result.getRecallHandle()));
            receiver.expectNoMore(1);
            Cluster.equal("delivered", "kept", receiver.bodies().get(0));
        }
        try {
            cluster.producer.recallMessage(topic, "not-a-handle");
            throw new AssertionError("a senseless handle was accepted");
        } catch (Exception refused) {
            Cluster.check(!(refused instanceof NullPointerException), "no answer but " + refused);
        }
    }

    static void tooFar(Cluster cluster) throws Exception {
        String topic = cluster.topic("too_far", 1);
        Message message = Cluster.message(topic, "T", "k", "in a year");
        message.setDelayTimeSec(365L * 24 * 3600);
        try {
            cluster.producer.send(message);
            throw new AssertionError("a delay of a year was accepted");
        } catch (MQBrokerException refusal) {
            Cluster.equal("code", ResponseCode.MESSAGE_ILLEGAL, refusal.getResponseCode());
        }
    }

    private static void checkTime(Receiver.Delivery delivery, long due, long earlyMs) {
        long late = delivery.atMs() - due;
        Cluster.check(late >= -earlyMs && late < LATE_MS, delivery.body() + " came " + late + " ms after its time");
    }
}
