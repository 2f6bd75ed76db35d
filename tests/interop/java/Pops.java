import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Pop: push consumers switched to it by the server, and the requests themselves through the client's own API. */
final class Pops {
    private static final String BROKER = "broker-a";
    private static final long TIMEOUT_MS = 20_000;

    /** A group that pops one topic by hand. */
    private static final class Popper {
        private final Cluster cluster;
        private final MQClientAPIImpl api;
        private final String group;
        private final String topic;

        Popper(Cluster cluster, String group, String topic) {
            this.cluster = cluster;
            this.group = group;
            this.topic = topic;
            api = cluster.producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        }

        PopResult pop(int count, long invisibleMs, long pollMs, boolean isOrdered) throws Exception {
            PopMessageRequestHeader header = new PopMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(topic);
            header.setQueueId(-1);
            header.setMaxMsgNums(count);
            header.setInvisibleTime(invisibleMs);
            header.setPollTime(pollMs);
            header.setBornTime(System.currentTimeMillis());
            header.setInitMode(0);
            header.setExpType("TAG");
            header.setExp("*");
            header.setOrder(isOrdered);
            CompletableFuture<PopResult> future = new CompletableFuture<>();
            api.popMessageAsync(BROKER, cluster.brokerAddress, header, TIMEOUT_MS, new PopCallback() {
                @Override
                public void onSuccess(PopResult result) {
                    future.complete(result);
                }

                @Override
                public void onException(Throwable error) {
                    future.completeExceptionally(error);
                }
            });
            return future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }

        /** Pops until it has that many messages, the way a consumer would. */
        List<MessageExt> take(int count, long invisibleMs, boolean isOrdered) throws Exception {
            List<MessageExt> messages = new ArrayList<>();
            Cluster.await(() -> count + " messages by pop, got " + messages.stream().map(Cluster::body).toList(), () -> {
                PopResult result = pop(Math.min(32, count - messages.size()), invisibleMs, 1_000, isOrdered);
                if (result.getPopStatus() == PopStatus.FOUND) {
                    messages.addAll(result.getMsgFoundList());
                }
                return messages.size() >= count;
            });
            return messages;
        }

        AckResult ack(MessageExt message) throws Exception {
            String handle = message.getProperty(MessageConst.PROPERTY_POP_CK);
            String[] parts = ExtraInfoUtil.split(handle);
            AckMessageRequestHeader header = new AckMessageRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
            header.setQueueId(ExtraInfoUtil.getQueueId(parts));
            header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
            header.setExtraInfo(handle);
            Answer answer = new Answer();
            api.ackMessageAsync(cluster.brokerAddress, TIMEOUT_MS, answer, header);
            return answer.get();
        }

        AckResult ackAll(List<MessageExt> messages) throws Exception {
            Answer answer = new Answer();
            List<String> handles = messages.stream().map(message -> message.getProperty(MessageConst.PROPERTY_POP_CK)).toList();
            api.batchAckMessageAsync(cluster.brokerAddress, TIMEOUT_MS, answer, topic, group, handles);
            return answer.get();
        }

        /** Hides the message for a time from now on; the handle that is good from then on is put into it. */
        void hide(MessageExt message, long invisibleMs) throws Exception {
            String handle = message.getProperty(MessageConst.PROPERTY_POP_CK);
            String[] parts = ExtraInfoUtil.split(handle);
            ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
            header.setConsumerGroup(group);
            header.setTopic(ExtraInfoUtil.getRealTopic(parts, topic, group));
            header.setQueueId(ExtraInfoUtil.getQueueId(parts));
            header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
            header.setExtraInfo(handle);
            header.setInvisibleTime(invisibleMs);
            Answer answer = new Answer();
            api.changeInvisibleTimeAsync(BROKER, cluster.brokerAddress, header, TIMEOUT_MS, answer);
            AckResult result = answer.get();
            Cluster.equal("change of invisible time", AckStatus.OK, result.getStatus());
            message.getProperties().put(MessageConst.PROPERTY_POP_CK, result.getExtraInfo());
        }
    }

    private static final class Answer implements AckCallback {
        private final CompletableFuture<AckResult> future = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult result) {
            future.complete(result);
        }

        @Override
        public void onException(Throwable error) {
            future.completeExceptionally(error);
        }

        AckResult get() throws Exception {
            return future.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
    }

    private static void sendOne(Cluster cluster, String topic, int number) throws Exception {
        cluster.producer.send(Cluster.message(topic, "T", "k" + number, "pop-" + number));
    }

    /** Three consumers share two queues, which none could do by pulling. */
    static void push(Cluster cluster) throws Exception {
        String topic = cluster.topic("pop_push", 2);
        String group = popGroup(cluster, topic, 0);
        List<Receiver> receivers = new ArrayList<>();
        try {
            for (int i = 0; i < 3; i++) {
                receivers.add(popping(cluster, group, topic).concurrent("*", (message, context) -> {
                    Thread.sleep(5);
                    return true;
                }));
            }
            int[] sent = {0};
            while (sent[0] < 300) {
                sendOne(cluster, topic, sent[0]++);
            }
            Cluster.await("each consumer to get messages, one of which may have started late", () -> {
                if (receivers.stream().noneMatch(receiver -> receiver.deliveries.isEmpty())) {
                    return true;
                }
                sendOne(cluster, topic, sent[0]++);
                return false;
            });
            Set<String> all = new TreeSet<>();
            Cluster.await(() -> sent[0] + " messages, got " + all.size(), () -> {
                receivers.forEach(receiver -> all.addAll(receiver.distinct()));
                return all.size() == sent[0];
            });
            Thread.sleep(1_000);
            int deliveries = receivers.stream().mapToInt(receiver -> receiver.deliveries.size()).sum();
            Cluster.equal("deliveries", sent[0], deliveries);
        } finally {
            receivers.forEach(Receiver::close);
        }
    }

    /** What failed is hidden for the client's first interval, ten seconds, and given out again. */
    static void pushRetried(Cluster cluster) throws Exception {
        String topic = cluster.topic("pop_retry", 1);
        String group = popGroup(cluster, topic, 0);
        String id = cluster.producer.send(Cluster.message(topic, "T", "k", "fails once")).getMsgId();
        try (Receiver receiver = popping(cluster, group, topic).concurrent("*", (message, context) -> message.getReconsumeTimes() > 0)) {
            receiver.await(2);
            Cluster.equal("tries", List.of(0, 1), receiver.deliveries.stream().map(Receiver.Delivery::retries).toList());
            for (Receiver.Delivery delivery : receiver.deliveries) {
                Cluster.equal("id", id, delivery.message().getMsgId());
                Cluster.equal("topic", topic, delivery.message().getTopic());
            }
        }
    }

    private static Receiver popping(Cluster cluster, String group, String topic) {
        return new Receiver(cluster, group, topic).with(consumer -> {
            consumer.setClientRebalance(false);
            consumer.setPopBatchNums(8);
        });
    }

    /** A group that the broker has been told to let pop. */
    private static String popGroup(Cluster cluster, String topic, int shared) throws Exception {
        String group = cluster.fresh("group_pop");
        cluster.group(group, config -> { });
        cluster.admin.setMessageRequestMode(cluster.brokerAddress, topic, group, MessageRequestMode.POP, shared, 5_000);
        return group;
    }

    static void acknowledged(Cluster cluster) throws Exception {
        String topic = cluster.topic("pop_ack", 2);
        Popper popper = new Popper(cluster, cluster.fresh("group"), topic);
        cluster.group(popper.group, config -> { });
        send(cluster, topic, 20);
        List<MessageExt> messages = popper.take(20, 3_000, false);
        Cluster.equal("distinct", 20, Producers.bodies(messages).size());
        for (MessageExt message : messages.subList(0, 5)) {
            Cluster.equal("ack", AckStatus.OK, popper.ack(message).getStatus());
        }
        Cluster.equal("batch ack", AckStatus.OK, popper.ackAll(messages.subList(5, 17)).getStatus());
        Cluster.equal("while invisible", PopStatus.POLLING_NOT_FOUND, popper.pop(32, 3_000, 100, false).getPopStatus());
        Set<String> left = new TreeSet<>();
        messages.subList(17, 20).forEach(message -> left.add(Cluster.body(message)));
        List<MessageExt> again = popper.take(3, 3_000, false);
        Cluster.equal("not acknowledged", left, Producers.bodies(again));
        for (MessageExt message : again) {
            Cluster.equal("tries", 1, message.getReconsumeTimes());
            Cluster.equal("topic", topic, message.getTopic());
            Cluster.equal("ack", AckStatus.OK, popper.ack(message).getStatus());
        }
        Thread.sleep(5_000);
        Cluster.equal("in the end", PopStatus.POLLING_NOT_FOUND, popper.pop(32, 3_000, 100, false).getPopStatus());
    }

    static void hidden(Cluster cluster) throws Exception {
        String topic = cluster.topic("pop_hide", 1);
        Popper popper = new Popper(cluster, cluster.fresh("group"), topic);
        cluster.group(popper.group, config -> { });
        send(cluster, topic, 2);
        List<MessageExt> messages = popper.take(2, 4_000, false);
        popper.hide(messages.get(0), 60_000); // longer
        popper.hide(messages.get(1), 1_000); // shorter
        long start = System.currentTimeMillis();
        MessageExt again = popper.take(1, 10_000, false).get(0);
        Cluster.equal("the one shown early", Cluster.body(messages.get(1)), Cluster.body(again));
        Cluster.check(System.currentTimeMillis() - start >= 900, "shown after " + (System.currentTimeMillis() - start) + " ms");
        Cluster.equal("ack", AckStatus.OK, popper.ack(again).getStatus());
        Thread.sleep(3_000); // the other would be visible now
        Cluster.equal("the one hidden", PopStatus.POLLING_NOT_FOUND, popper.pop(32, 10_000, 100, false).getPopStatus());
        Cluster.equal("ack with the new handle", AckStatus.OK, popper.ack(messages.get(0)).getStatus());
    }

    /** In order, one batch of a queue at a time; what is not acknowledged comes again before anything else. */
    static void fifo(Cluster cluster) throws Exception {
        String topic = cluster.topic("pop_fifo", 1);
        Popper popper = new Popper(cluster, cluster.fresh("group"), topic);
        cluster.group(popper.group, config -> config.setConsumeMessageOrderly(true));
        send(cluster, topic, 6);
        List<MessageExt> first = popper.take(3, 2_000, true);
        Cluster.equal("first", List.of("pop-0", "pop-1", "pop-2"), first.stream().map(Cluster::body).toList());
        Cluster.equal("blocked", PopStatus.POLLING_NOT_FOUND, popper.pop(3, 2_000, 100, true).getPopStatus());
        Cluster.equal("ack", AckStatus.OK, popper.ack(first.get(0)).getStatus());
        List<MessageExt> second = popper.take(3, 10_000, true); // once the time of the first is up
        Cluster.equal("again", List.of("pop-1", "pop-2", "pop-3"), second.stream().map(Cluster::body).toList());
        for (MessageExt message : second) {
            Cluster.equal("ack", AckStatus.OK, popper.ack(message).getStatus());
        }
        List<MessageExt> third = popper.take(2, 10_000, true);
        Cluster.equal("rest", List.of("pop-4", "pop-5"), third.stream().map(Cluster::body).toList());
        for (MessageExt message : third) {
            popper.ack(message);
        }
    }

    static void longPolling(Cluster cluster) throws Exception {
        String topic = cluster.topic("pop_poll", 2);
        Popper popper = new Popper(cluster, cluster.fresh("group"), topic);
        cluster.group(popper.group, config -> { });
        Cluster.equal("nothing", PopStatus.POLLING_NOT_FOUND, popper.pop(1, 10_000, 300, false).getPopStatus());
        CompletableFuture<PopResult> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return popper.pop(1, 10_000, 15_000, false);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        Thread.sleep(500);
        long start = System.currentTimeMillis();
        send(cluster, topic, 1);
        PopResult result = waiting.get(20, TimeUnit.SECONDS);
        Cluster.equal("status", PopStatus.FOUND, result.getPopStatus());
        Cluster.check(System.currentTimeMillis() - start < 2_000, "answered late");
        popper.ack(result.getMsgFoundList().get(0));
    }

    private static void send(Cluster cluster, String topic, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            sendOne(cluster, topic, i);
        }
    }
}
