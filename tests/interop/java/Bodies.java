import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What messages carry: batches whose messages differ, and bodies compressed in each way there is. */
final class Bodies {
    static void batch(Cluster cluster) throws Exception {
        String topic = cluster.topic("batch_properties", 2);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            Message message = Cluster.message(topic, i % 2 == 0 ? "Even" : "Odd", "key-" + i, "batch-" + i);
            message.putUserProperty("number", String.valueOf(i));
            batch.add(message);
        }
        SendResult result = cluster.producer.send(batch);
        Cluster.equal("status", SendStatus.SEND_OK, result.getSendStatus());
        String[] ids = result.getMsgId().split(",");
        try (Receiver even = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("Even", Receiver.TAKE)) {
            even.expectNoMore(5);
            Cluster.equal("even ones", Set.of("batch-0", "batch-2", "batch-4", "batch-6", "batch-8"), even.distinct());
            for (Receiver.Delivery delivery : even.deliveries) {
                MessageExt message = delivery.message();
                int i = Integer.parseInt(message.getUserProperty("number"));
                Cluster.equal("body", "batch-" + i, delivery.body());
                Cluster.equal("key", "key-" + i, message.getKeys());
                Cluster.equal("offset", result.getQueueOffset() + i, message.getQueueOffset());
                Cluster.equal("id", ids[i], message.getMsgId());
            }
        }
        Cluster.await("a message of the batch by key", () -> cluster.admin.queryMessage(topic, "key-7", 8, 0, Long.MAX_VALUE)
            .getMessageList().size() == 1);
    }

    static void compressed(Cluster cluster) throws Exception {
        String topic = cluster.topic("compression", 1);
        String text = "to be compressed by the client ".repeat(1_000);
        for (CompressionType type : CompressionType.values()) {
            DefaultMQProducer producer = new DefaultMQProducer("interop-compressing");
            producer.setNamesrvAddr(cluster.nameServer);
            producer.setInstanceName(cluster.fresh("instance"));
            producer.setCompressType(type);
            producer.start();
            try {
                producer.send(Cluster.message(topic, type.name(), "k", text + type));
            } finally {
                producer.shutdown();
            }
        }
        byte[] noise = new byte[10_000];
        new Random(1).nextBytes(noise);
        cluster.producer.send(new Message(topic, "noise", noise));
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            receiver.await(4);
            for (Receiver.Delivery delivery : receiver.deliveries) {
                if (delivery.message().getTags().equals("noise")) {
                    Cluster.check(java.util.Arrays.equals(noise, delivery.message().getBody()), "noise has changed");
                } else {
                    Cluster.equal("body", text + delivery.message().getTags(), delivery.body());
                    Cluster.check(delivery.message().getStoreSize() < 3_000, "stored in " + delivery.message().getStoreSize() + " bytes");
                }
            }
        }
    }
}
