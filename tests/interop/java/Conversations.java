import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply: the answer finds its way back to the one who asked. */
final class Conversations {
    static void requestReply(Cluster cluster) throws Exception {
        String topic = cluster.topic("request", 2);
        DefaultMQProducer asking = producer(cluster);
        DefaultMQProducer answering = producer(cluster);
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", (message, context) -> {
            if (!Cluster.body(message).equals("silence")) {
                answering.send(MessageUtil.createReplyMessage(message, ("re: " + Cluster.body(message)).getBytes()), 5_000);
            }
            return true;
        })) {
            for (int i = 0; i < 5; i++) {
                Message reply = asking.request(Cluster.message(topic, "T", "k", "question " + i), 15_000);
                Cluster.equal("reply", "re: question " + i, Cluster.body(reply));
            }
            CompletableFuture<Message> later = new CompletableFuture<>();
            asking.request(Cluster.message(topic, "T", "k", "no hurry"), new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    if (message != null) { // the client calls first when the request has been sent
                        later.complete(message);
                    }
                }

                @Override
                public void onException(Throwable error) {
                    later.completeExceptionally(error);
                }
            }, 15_000);
            Cluster.equal("reply", "re: no hurry", Cluster.body(later.get(20, TimeUnit.SECONDS)));
            try {
                asking.request(Cluster.message(topic, "T", "k", "silence"), 1_000);
                throw new AssertionError("an answer to what nobody answered");
            } catch (RequestTimeoutException expected) {
                Cluster.check(receiver.distinct().contains("silence"), "the question did not arrive");
            }
        } finally {
            asking.shutdown();
            answering.shutdown();
        }
    }

    /** Two who ask with the same group and topic: each gets its own answers. */
    static void repliesApart(Cluster cluster) throws Exception {
        String topic = cluster.topic("apart", 1);
        DefaultMQProducer one = producer(cluster);
        DefaultMQProducer other = producer(cluster);
        try (Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", (message, context) -> {
            cluster.producer.send(reply(message), 5_000);
            return true;
        })) {
            Cluster.equal("one", "re: from one", Cluster.body(one.request(Cluster.message(topic, "T", "k", "from one"), 15_000)));
            Cluster.equal("other", "re: from other", Cluster.body(other.request(Cluster.message(topic, "T", "k", "from other"), 15_000)));
            Cluster.equal("requests", 2, receiver.deliveries.size());
        } finally {
            one.shutdown();
            other.shutdown();
        }
    }

    private static Message reply(MessageExt message) throws Exception {
        return MessageUtil.createReplyMessage(message, ("re: " + Cluster.body(message)).getBytes());
    }

    private static DefaultMQProducer producer(Cluster cluster) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-conversation");
        producer.setNamesrvAddr(cluster.nameServer);
        producer.setInstanceName(cluster.fresh("instance"));
        producer.start();
        return producer;
    }
}
