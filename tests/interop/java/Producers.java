import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** DefaultMQProducer in each of its manners; what was sent is read back. */
final class Producers {
    static void sync(Cluster cluster) throws Exception {
        String topic = cluster.topic("sync", 4);
        Map<MessageQueue, Long> next = new HashMap<>();
        for (int i = 0; i < 40; i++) {
            Message message = Cluster.message(topic, "Tag" + i % 3, "key-" + i, "Grüße №" + i);
            message.putUserProperty("colour", "blue");
            message.setFlag(i);
            SendResult result = cluster.producer.send(message);
            Cluster.equal("status", SendStatus.SEND_OK, result.getSendStatus());
            Cluster.equal("offset", next.merge(result.getMessageQueue(), 1L, Long::sum) - 1, result.getQueueOffset());
        }
        Cluster.equal("queues used", 4, next.size());
        for (MessageExt message : cluster.readAll(topic, 40)) {
            int i = message.getFlag();
            Cluster.equal("body", "Grüße №" + i, Cluster.body(message));
            Cluster.equal("tag", "Tag" + i % 3, message.getTags());
            Cluster.equal("key", "key-" + i, message.getKeys());
            Cluster.equal("property", "blue", message.getUserProperty("colour"));
        }
    }

    static void async(Cluster cluster) throws Exception {
        String topic = cluster.topic("async", 4);
        int count = 500;
        CountDownLatch done = new CountDownLatch(count);
        List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
        for (int i = 0; i < count; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, "async-" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failures.add(error);
                    done.countDown();
                }
            });
        }
        Cluster.check(done.await(30, TimeUnit.SECONDS), done.getCount() + " callbacks missing");
        Cluster.check(failures.isEmpty(), "failed sends: " + failures);
        Cluster.equal("bodies", expected("async-", count), bodies(cluster.readAll(topic, count)));
    }

    static void oneWay(Cluster cluster) throws Exception {
        String topic = cluster.topic("oneway", 4);
        for (int i = 0; i < 100; i++) {
            cluster.producer.sendOneway(Cluster.message(topic, "T", "k" + i, "oneway-" + i));
        }
        Cluster.equal("bodies", expected("oneway-", 100), bodies(cluster.readAll(topic, 100)));
    }

    static void batch(Cluster cluster) throws Exception {
        String topic = cluster.topic("batch", 4);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            batch.add(Cluster.message(topic, "T" + i, "k" + i, "batch-" + i));
        }
        SendResult result = cluster.producer.send(batch);
        Cluster.equal("status", SendStatus.SEND_OK, result.getSendStatus());
        Cluster.equal("message ids", 50, result.getMsgId().split(",").length);
        Cluster.equal("offset ids", 50, result.getOffsetMsgId().split(",").length);
        List<MessageExt> messages = cluster.readAll(topic, 50);
        Cluster.equal("bodies", expected("batch-", 50), bodies(messages));
        for (MessageExt message : messages) {
            Cluster.equal("one queue", result.getMessageQueue().getQueueId(), message.getQueueId());
            Cluster.equal("order", "batch-" + message.getQueueOffset(), Cluster.body(message));
            Cluster.equal("tag", "T" + message.getQueueOffset(), message.getTags());
        }
    }

    static void compressed(Cluster cluster) throws Exception {
        String topic = cluster.topic("compressed", 1);
        String body = "to be compressed by the client ".repeat(2_000);
        cluster.producer.send(Cluster.message(topic, "T", "k", body));
        MessageExt message = cluster.readAll(topic, 1).get(0);
        Cluster.equal("body", body, Cluster.body(message));
        Cluster.check(message.getStoreSize() < body.length() / 4, "stored in " + message.getStoreSize() + " bytes");
    }

    static void selected(Cluster cluster) throws Exception {
        String topic = cluster.topic("selected", 4);
        for (int i = 0; i < 60; i++) {
            int order = i % 7;
            SendResult result = cluster.producer.send(
                Cluster.message(topic, "T", "k", order + ":" + i),
                (queues, message, argument) -> queues.get((Integer) argument % queues.size()), order);
            Cluster.equal("queue", order % 4, result.getMessageQueue().getQueueId());
        }
        Map<String, Integer> last = new HashMap<>();
        for (MessageExt message : cluster.readAll(topic, 60)) {
            String[] parts = Cluster.body(message).split(":");
            int i = Integer.parseInt(parts[1]);
            Cluster.check(last.getOrDefault(parts[0], -1) < i, "order " + parts[0] + " is out of order at " + i);
            last.put(parts[0], i);
        }
    }

    static void topicCreatedOnSend(Cluster cluster) throws Exception {
        String topic = cluster.fresh("created_on_send");
        for (int i = 0; i < 8; i++) {
            Cluster.equal("status", SendStatus.SEND_OK,
                cluster.producer.send(Cluster.message(topic, "T", "k", "made-" + i)).getSendStatus());
        }
        Cluster.await("route of " + topic, () -> cluster.queues(topic).size() == 4);
        Cluster.equal("bodies", expected("made-", 8), bodies(cluster.readAll(topic, 8)));
    }

    /** The client would refuse by itself; told to allow more than the broker, it must hear the broker's refusal. */
    static void tooLargeRefused(Cluster cluster) throws Exception {
        String topic = cluster.topic("large", 1);
        DefaultMQProducer producer = new DefaultMQProducer("interop-large");
        producer.setNamesrvAddr(cluster.nameServer);
        producer.setMaxMessageSize(64 << 20);
        producer.setCompressMsgBodyOverHowmuch(64 << 20);
        producer.start();
        try {
            producer.send(new Message(topic, new byte[5 << 20]), 10_000);
            throw new AssertionError("5 MiB were accepted");
        } catch (MQBrokerException refusal) {
            Cluster.equal("code", ResponseCode.MESSAGE_ILLEGAL, refusal.getResponseCode());
        } finally {
            producer.shutdown();
        }
        producer = cluster.producer;
        producer.send(new Message(topic, new byte[3 << 20]), 10_000);
        Cluster.equal("size", 3 << 20, cluster.readAll(topic, 1).get(0).getBody().length);
    }

    static Set<String> expected(String prefix, int count) {
        Set<String> bodies = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            bodies.add(prefix + i);
        }
        return bodies;
    }

    static Set<String> bodies(List<MessageExt> messages) {
        Set<String> bodies = new TreeSet<>();
        for (MessageExt message : messages) {
            Cluster.check(bodies.add(Cluster.body(message)), "twice: " + Cluster.body(message));
        }
        return bodies;
    }
}
