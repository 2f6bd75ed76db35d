import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer that asks a handler about each message and notes every delivery, good or bad. */
final class Receiver implements AutoCloseable {
    /** Says whether a message was dealt with; the context is null for orderly consumers. */
    interface Handler {
        boolean handle(MessageExt message, ConsumeConcurrentlyContext context) throws Exception;
    }

    /** One delivery: what was given, the how manieth time, and when. */
    record Delivery(String body, int retries, long atMs, MessageExt message) { }

    static final Handler TAKE = (message, context) -> true;

    final DefaultMQPushConsumer consumer;
    final List<Delivery> deliveries = Collections.synchronizedList(new ArrayList<>());
    private final Cluster cluster;
    private final String topic;

    Receiver(Cluster cluster, String group, String topic) {
        this(cluster, topic, new DefaultMQPushConsumer(group));
    }

    Receiver(Cluster cluster, String topic, DefaultMQPushConsumer consumer) {
        this.cluster = cluster;
        this.topic = topic;
        this.consumer = consumer;
        consumer.setNamesrvAddr(cluster.nameServer);
        consumer.setInstanceName(cluster.fresh("instance"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        // The client may skip the heartbeat that tells of its new subscription, and learns only later of the topic
        // that its retries come by; neither may be 30 s away.
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setPollNameServerInterval(1_000);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
    }

    Receiver with(Consumer<DefaultMQPushConsumer> setting) {
        setting.accept(consumer);
        return this;
    }

    Receiver concurrent(String tags, Handler handler) throws Exception {
        return concurrent(MessageSelector.byTag(tags), handler);
    }

    Receiver concurrent(MessageSelector selector, Handler handler) throws Exception {
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            messages.stream().allMatch(message -> take(message, context, handler))
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        consumer.start();
        return this;
    }

    Receiver orderly(Handler handler) throws Exception {
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
            messages.stream().allMatch(message -> take(message, null, handler))
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        consumer.start();
        return this;
    }

    private boolean take(MessageExt message, ConsumeConcurrentlyContext context, Handler handler) {
        deliveries.add(new Delivery(Cluster.body(message), message.getReconsumeTimes(), System.currentTimeMillis(), message));
        try {
            return handler.handle(message, context);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Everything given so far, in the order it came. */
    List<String> bodies() {
        synchronized (deliveries) {
            return deliveries.stream().map(Delivery::body).toList();
        }
    }

    Set<String> distinct() {
        return new TreeSet<>(bodies());
    }

    List<Delivery> of(String body) {
        synchronized (deliveries) {
            return deliveries.stream().filter(delivery -> delivery.body.equals(body)).toList();
        }
    }

    void await(int count) throws Exception {
        Cluster.await(() -> count + " deliveries of " + topic + ", got " + bodies(), () -> deliveries.size() >= count);
    }

    /** Waits long enough for another second of the broker's clocks, then checks that nothing more came. */
    void expectNoMore(int count) throws Exception {
        await(count);
        Thread.sleep(1_500);
        Cluster.equal("deliveries " + bodies(), count, deliveries.size());
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
