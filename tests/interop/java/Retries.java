import java.util.List;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** Messages that fail: tried again later with who they are kept, and in the end a dead letter. */
final class Retries {
    static void retried(Cluster cluster) throws Exception {
        String topic = cluster.topic("retried", 2);
        SendResult sent = cluster.producer.send(message(topic, "fails twice"));
        cluster.producer.send(message(topic, "fine"));
        long[] delays = cluster.delaysMs();
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic)
            .concurrent("*", (message, context) -> Cluster.body(message).equals("fine") || message.getReconsumeTimes() >= 2)) {
            receiver.expectNoMore(4);
            List<Receiver.Delivery> tries = receiver.of("fails twice");
            Cluster.equal("tries", List.of(0, 1, 2), tries.stream().map(Receiver.Delivery::retries).toList());
            for (int i = 0; i < 3; i++) {
                MessageExt message = tries.get(i).message();
                Cluster.equal("id", sent.getMsgId(), message.getMsgId());
                Cluster.equal("topic", topic, message.getTopic());
                Cluster.equal("tag", "T", message.getTags());
                Cluster.equal("key", "k", message.getKeys());
                Cluster.equal("property", "blue", message.getUserProperty("colour"));
                if (i > 0) {
                    Cluster.equal("first id", sent.getOffsetMsgId(), message.getProperty(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID));
                    long waited = tries.get(i).atMs() - tries.get(i - 1).atMs();
                    long delay = delays[2 + i - 1]; // levels 3, 4, ...
                    Cluster.check(waited >= delay - 5 && waited < delay + Delays.LATE_MS, "try " + i + " after " + waited + " ms");
                }
            }
        }
    }

    static void deadLetter(Cluster cluster) throws Exception {
        String topic = cluster.topic("dead", 2);
        String group = cluster.fresh("group");
        SendResult sent = cluster.producer.send(message(topic, "hopeless"));
        try (Receiver receiver = new Receiver(cluster, group, topic)
            .with(consumer -> consumer.setMaxReconsumeTimes(2))
            .concurrent("*", (message, context) -> false)) {
            receiver.await(3);
            MessageExt dead = dead(cluster, group, sent.getMsgId());
            Cluster.equal("body", "hopeless", Cluster.body(dead));
            Cluster.equal("id", sent.getMsgId(), dead.getMsgId());
            Cluster.equal("topic", "%DLQ%" + group, dead.getTopic());
            Cluster.equal("origin", topic, dead.getProperty(MessageConst.PROPERTY_RETRY_TOPIC));
            Cluster.equal("first id", sent.getOffsetMsgId(), dead.getProperty(MessageConst.PROPERTY_ORIGIN_MESSAGE_ID));
            Cluster.equal("key", "k", dead.getKeys());
            Cluster.equal("property", "blue", dead.getUserProperty("colour"));
            Cluster.equal("reconsume times", 3, dead.getReconsumeTimes());
            receiver.expectNoMore(3);
        }
    }

    static void straightToDeadLetter(Cluster cluster) throws Exception {
        String topic = cluster.topic("straight", 1);
        String group = cluster.fresh("group");
        SendResult sent = cluster.producer.send(message(topic, "poison"));
        try (Receiver receiver = new Receiver(cluster, group, topic)
            .concurrent("*", (message, context) -> {
                context.setDelayLevelWhenNextConsume(-1);
                return false;
            })) {
            Cluster.equal("body", "poison", Cluster.body(dead(cluster, group, sent.getMsgId())));
            receiver.expectNoMore(1);
        }
    }

    static void broadcastNeverRetries(Cluster cluster) throws Exception {
        String topic = cluster.topic("broadcast", 2);
        String group = cluster.fresh("group");
        try (Receiver first = broadcast(cluster, group, topic); Receiver second = broadcast(cluster, group, topic)) {
            for (int i = 0; i < 6; i++) {
                cluster.producer.send(message(topic, "to all " + i));
            }
            first.expectNoMore(6);
            second.expectNoMore(6);
            Cluster.equal("each once", 6, first.distinct().size());
        }
    }

    private static Receiver broadcast(Cluster cluster, String group, String topic) throws Exception {
        return new Receiver(cluster, group, topic)
            .with(consumer -> consumer.setMessageModel(MessageModel.BROADCASTING))
            .concurrent("*", (message, context) -> !Cluster.body(message).endsWith("3"));
    }

    /** The dead letter with that id, once it is there; found by its key, for it may not be readable. */
    static MessageExt dead(Cluster cluster, String group, String id) throws Exception {
        MessageExt[] found = new MessageExt[1];
        Cluster.await("the dead letter", () -> {
            found[0] = cluster.admin.queryMessage("DefaultCluster", "%DLQ%" + group, id);
            return found[0] != null;
        });
        return found[0];
    }

    private static Message message(String topic, String body) {
        Message message = Cluster.message(topic, "T", "k", body);
        message.putUserProperty("colour", "blue");
        return message;
    }
}
