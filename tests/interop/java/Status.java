import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.body.CMResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.admin.api.MessageTrack;
import org.apache.rocketmq.tools.admin.api.TrackType;

/** What can be known of messages and consumers: who has consumed, where a message went, what types a topic takes. */
final class Status {
    static void track(Cluster cluster) throws Exception {
        String topic = cluster.topic("track", 1);
        String done = cluster.fresh("group_done");
        String behind = cluster.fresh("group_behind");
        String broadcast = cluster.fresh("group_broadcast");
        String gone = cluster.fresh("group_gone");
        try (Receiver leaver = new Receiver(cluster, gone, topic).concurrent("*", Receiver.TAKE)) {
            cluster.producer.send(Cluster.message(topic, "T", "k", "before"));
            leaver.await(1);
        }
        try (Receiver first = new Receiver(cluster, done, topic).concurrent("*", Receiver.TAKE);
             Receiver second = new Receiver(cluster, behind, topic).concurrent("*", (message, context) -> {
                 Thread.sleep(Cluster.body(message).equals("tracked") ? 20_000 : 0);
                 return true;
             });
             Receiver third = new Receiver(cluster, broadcast, topic)
                 .with(consumer -> consumer.setMessageModel(MessageModel.BROADCASTING)).concurrent("*", Receiver.TAKE)) {
            SendResult sent = cluster.producer.send(Cluster.message(topic, "T", "k", "tracked"));
            Cluster.await("all to have it", () -> first.distinct().contains("tracked")
                && second.distinct().contains("tracked") && third.distinct().contains("tracked"));
            MessageExt message = cluster.admin.viewMessage(topic, sent.getOffsetMsgId());
            Map<String, TrackType> tracks = new HashMap<>();
            first.consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            Cluster.await(() -> "the tracks, they are " + tracks, () -> {
                for (MessageTrack track : cluster.admin.messageTrackDetail(message)) {
                    tracks.put(track.getConsumerGroup(), track.getTrackType());
                }
                return tracks.get(done) == TrackType.CONSUMED;
            });
            Cluster.equal("busy with it", TrackType.NOT_CONSUME_YET, tracks.get(behind));
            Cluster.equal("broadcast", TrackType.CONSUME_BROADCASTING, tracks.get(broadcast));
            Cluster.equal("offline", TrackType.NOT_ONLINE, tracks.get(gone));
            Admin.expect(Admin.mqadmin(cluster, "queryMsgById", "-i", sent.getOffsetMsgId(), "-t", topic),
                "consumerGroup=" + done + ", trackType=CONSUMED");
        }
    }

    static void consumerStatus(Cluster cluster) throws Exception {
        String topic = cluster.topic("status_of", 1);
        String group = cluster.fresh("group");
        try (Receiver receiver = new Receiver(cluster, group, topic).concurrent("*", Receiver.TAKE)) {
            SendResult sent = cluster.producer.send(Cluster.message(topic, "T", "k", "once more"));
            receiver.await(1);
            String client = receiver.consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
            ConsumerRunningInfo info = cluster.admin.getConsumerRunningInfo(group, client, false);
            Cluster.check(info.getMqTable().keySet().stream().anyMatch(queue -> queue.getTopic().equals(topic)), "queues " + info.getMqTable());
            Cluster.equal("consumed directly", CMResult.CR_SUCCESS,
                cluster.admin.consumeMessageDirectly(group, client, topic, sent.getMsgId()).getConsumeResult());
            Cluster.equal("deliveries", List.of("once more", "once more"), receiver.bodies());
        }
    }

    static void trace(Cluster cluster) throws Exception {
        String topic = cluster.topic("trace", 1);
        DefaultMQProducer producer = new DefaultMQProducer(cluster.fresh("producers"), true, null);
        producer.setNamesrvAddr(cluster.nameServer);
        producer.setInstanceName(cluster.fresh("instance"));
        producer.start();
        String group = cluster.fresh("group");
        try (Receiver receiver = new Receiver(cluster, topic, new DefaultMQPushConsumer(group, true, null)).concurrent("*", Receiver.TAKE)) {
            SendResult sent = producer.send(Cluster.message(topic, "Seen", "traced-key", "traced"));
            receiver.await(1);
            String[] output = new String[1];
            Cluster.await(() -> "the trace, it is " + output[0], () -> {
                output[0] = Admin.mqadmin(cluster, "queryMsgTraceById", "-i", sent.getMsgId());
                return output[0].contains("Pub") && output[0].contains("Sub");
            });
            Admin.expect(output[0], "Pub +" + producer.getProducerGroup() + " .*success", "Sub +" + group + " .*success");
        } finally {
            producer.shutdown();
        }
    }

    static void types(Cluster cluster) throws Exception {
        if (cluster.isApache) {
            throw new Interop.NotThere("Apache's broker takes every type, only its proxy refuses");
        }
        Map<String, Message> messages = new HashMap<>();
        Map<String, String> topics = new HashMap<>();
        for (String type : new String[] {"NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}) {
            topics.put(type, typed(cluster, type));
        }
        messages.put("NORMAL", Cluster.message("", "T", "k", "NORMAL"));
        messages.put("FIFO", Cluster.message("", "T", "k", "FIFO"));
        messages.get("FIFO").putUserProperty("__SHARDINGKEY", "order-1");
        messages.put("DELAY", Cluster.message("", "T", "k", "DELAY"));
        messages.get("DELAY").setDelayTimeLevel(1);
        for (Map.Entry<String, String> topic : topics.entrySet()) {
            for (Map.Entry<String, Message> message : messages.entrySet()) {
                boolean takes = topic.getKey().equals("MIXED") || topic.getKey().equals(message.getKey());
                message.getValue().setTopic(topic.getValue());
                Cluster.equal(message.getKey() + " to " + topic.getKey(), takes, isTaken(cluster, message.getValue()));
            }
        }
        TransactionMQProducer producer = Transactions.committing(cluster);
        try {
            for (Map.Entry<String, String> topic : topics.entrySet()) {
                boolean takes = topic.getKey().equals("MIXED") || topic.getKey().equals("TRANSACTION");
                boolean taken;
                try {
                    producer.sendMessageInTransaction(Cluster.message(topic.getValue(), "T", "k", "TRANSACTION"), null);
                    taken = true;
                } catch (org.apache.rocketmq.client.exception.MQClientException refused) {
                    taken = false;
                }
                Cluster.equal("TRANSACTION to " + topic.getKey(), takes, taken);
            }
        } finally {
            producer.shutdown();
        }
    }

    private static String typed(Cluster cluster, String type) throws Exception {
        String topic = cluster.fresh("typed_" + type);
        TopicConfig config = new TopicConfig(topic, 1, 1, 6);
        config.getAttributes().put("+message.type", type);
        cluster.admin.createAndUpdateTopicConfig(cluster.brokerAddress, config);
        Cluster.await("route of " + topic, () -> !cluster.admin.examineTopicRouteInfo(topic).getQueueDatas().isEmpty());
        return topic;
    }

    private static boolean isTaken(Cluster cluster, Message message) throws Exception {
        try {
            cluster.producer.send(message);
            return true;
        } catch (MQBrokerException refusal) {
            Cluster.equal("code", ResponseCode.MESSAGE_ILLEGAL, refusal.getResponseCode());
            return false;
        }
    }
}
