import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The system under test and the few helpers every feature needs: topics, a producer, reading back, waiting. */
final class Cluster implements AutoCloseable {
    // Longer than the minute of a lease: a client that renews its leases just as it gives up a queue keeps it that long.
    static final long PATIENCE_MS = 90_000;

    final String nameServer;
    final String brokerAddress;
    final boolean isApache;
    final DefaultMQAdminExt admin = new DefaultMQAdminExt(PATIENCE_MS);
    final DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
    private final DefaultMQPullConsumer reader = new DefaultMQPullConsumer("interop-reader");
    private final AtomicInteger names = new AtomicInteger();

    Cluster(String nameServer, String kind) throws Exception {
        this.nameServer = nameServer;
        this.isApache = kind.equals("apache");
        admin.setNamesrvAddr(nameServer);
        admin.setInstanceName("interop-admin");
        admin.start();
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout((int) PATIENCE_MS);
        producer.start();
        reader.setNamesrvAddr(nameServer);
        reader.start();
        ClusterInfo info = admin.examineBrokerClusterInfo();
        brokerAddress = info.getBrokerAddrTable().get("broker-a").getBrokerAddrs().get(0L);
    }

    @Override
    public void close() {
        reader.shutdown();
        producer.shutdown();
        admin.shutdown();
    }

    /** A name no other run on this broker has used. */
    String fresh(String what) {
        return "Interop_" + what + "_" + Long.toString(System.currentTimeMillis(), 36) + "_" + names.getAndIncrement();
    }

    /** A new topic that clients can find. */
    String topic(String what, int queues) throws Exception {
        String topic = fresh(what);
        admin.createAndUpdateTopicConfig(brokerAddress, new TopicConfig(topic, queues, queues, 6));
        await("route of " + topic, () -> !admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty());
        return topic;
    }

    /** A new group, made with settings before anybody consumes in it. */
    void group(String group, Consumer<SubscriptionGroupConfig> setting) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        setting.accept(config);
        admin.createAndUpdateSubscriptionGroupConfig(brokerAddress, config);
    }

    /** A setting of the broker. */
    String setting(String key) throws Exception {
        return admin.getBrokerConfig(brokerAddress).getProperty(key);
    }

    /** The delays of the levels, the first level's first. */
    long[] delaysMs() throws Exception {
        return Stream.of(setting("messageDelayLevel").split(" ")).mapToLong(level ->
            Long.parseLong(level.substring(0, level.length() - 1)) * Map.of('s', 1_000, 'm', 60_000, 'h', 3_600_000).get(level.charAt(level.length() - 1))
        ).toArray();
    }

    long timerPrecisionMs() throws Exception {
        return Long.parseLong(setting("timerPrecisionMs"));
    }

    static Message message(String topic, String tag, String key, String body) {
        return new Message(topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    TreeSet<MessageQueue> queues(String topic) throws Exception {
        return new TreeSet<>(reader.fetchSubscribeMessageQueues(topic));
    }

    /** How many messages the topic's queues hold. */
    long count(String topic) throws Exception {
        long count = 0;
        for (MessageQueue queue : queues(topic)) {
            count += reader.maxOffset(queue) - reader.minOffset(queue);
        }
        return count;
    }

    /** Everything in the topic, queue by queue, once it holds `expected` messages. */
    List<MessageExt> readAll(String topic, int expected) throws Exception {
        await(expected + " messages in " + topic, () -> count(topic) >= expected);
        List<MessageExt> messages = all(topic);
        equal("messages in " + topic, expected, messages.size());
        return messages;
    }

    /** Everything in the topic now. */
    List<MessageExt> all(String topic) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        for (MessageQueue queue : queues(topic)) {
            long offset = reader.minOffset(queue);
            PullResult result;
            while ((result = reader.pull(queue, "*", offset, 32)).getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    equal("queue offset", offset++, message.getQueueOffset());
                }
                equal("next offset", offset, result.getNextBeginOffset());
                messages.addAll(result.getMsgFoundList());
            }
        }
        return messages;
    }

    static void await(String what, Callable<Boolean> condition) throws Exception {
        await(() -> what, condition);
    }

    /** Waits until the condition holds; an exception counts as not yet. */
    static void await(Supplier<String> what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        Exception last = null;
        while (System.currentTimeMillis() < deadline) {
            try {
                if (condition.call()) {
                    return;
                }
            } catch (Exception error) {
                last = error;
            }
            Thread.sleep(20);
        }
        throw new AssertionError("waited " + PATIENCE_MS + " ms in vain for " + what.get(), last);
    }

    static void equal(String what, Object expected, Object found) {
        boolean same = expected instanceof Number && found instanceof Number
            ? ((Number) expected).longValue() == ((Number) found).longValue()
            : expected.equals(found);
        check(same, what + ": expected " + expected + ", found " + found);
    }

    static void check(boolean condition, String otherwise) {
        if (!condition) {
            throw new AssertionError(otherwise);
        }
    }
}
