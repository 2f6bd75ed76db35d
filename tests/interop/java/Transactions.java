import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Half messages: committed, rolled back, asked about, given up on, and asked of another producer of the group. */
final class Transactions {
    /** A producer that decides by what a body begins with, first when sending and then when asked. */
    private static class Decider implements TransactionListener, AutoCloseable {
        final TransactionMQProducer producer;
        final List<MessageExt> checks = Collections.synchronizedList(new ArrayList<>());
        final Map<String, TransactionSendResult> sent = new ConcurrentHashMap<>();
        private final String topic;

        Decider(Cluster cluster, String group, String topic) throws Exception {
            this.topic = topic;
            producer = new TransactionMQProducer(group);
            producer.setNamesrvAddr(cluster.nameServer);
            producer.setInstanceName(cluster.fresh("instance"));
            producer.setTransactionListener(this);
            producer.setSendMsgTimeout((int) Cluster.PATIENCE_MS);
            producer.start();
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return decision(Cluster.body(message).split("-")[0]);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.add(message);
            String[] words = Cluster.body(message).split("-");
            return decision(words[words.length - 1]);
        }

        private static LocalTransactionState decision(String word) {
            return switch (word) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        void send(String body) throws Exception {
            Message message = Cluster.message(topic, "Paid", "key-" + body, body);
            message.putUserProperty("colour", "blue");
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            Cluster.equal("status", SendStatus.SEND_OK, result.getSendStatus());
            sent.put(body, result);
        }

        List<String> checked() {
            synchronized (checks) {
                return checks.stream().map(Cluster::body).toList();
            }
        }

        @Override
        public void close() {
            producer.shutdown();
        }
    }

    /** A producer whose every transaction is committed; to be shut down by whoever asked for it. */
    static TransactionMQProducer committing(Cluster cluster) throws Exception {
        return new Decider(cluster, cluster.fresh("producers"), "") {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        }.producer;
    }

    static void ended(Cluster cluster) throws Exception {
        String topic = cluster.topic("transaction", 4);
        try (Decider decider = new Decider(cluster, cluster.fresh("producers"), topic);
             Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            for (int i = 0; i < 5; i++) {
                decider.send("commit-" + i);
                decider.send("rollback-" + i);
            }
            receiver.expectNoMore(5);
            for (Receiver.Delivery delivery : receiver.deliveries) {
                MessageExt message = delivery.message();
                Cluster.check(delivery.body().startsWith("commit-"), delivery.body() + " was given out");
                Cluster.equal("topic", topic, message.getTopic());
                Cluster.equal("id", decider.sent.get(delivery.body()).getMsgId(), message.getMsgId());
                Cluster.equal("transaction", decider.sent.get(delivery.body()).getTransactionId(), message.getTransactionId());
                Cluster.equal("queue", decider.sent.get(delivery.body()).getMessageQueue().getQueueId(), message.getQueueId());
                Cluster.equal("key", "key-" + delivery.body(), message.getKeys());
                Cluster.equal("property", "blue", message.getUserProperty("colour"));
            }
            // Had the ends not counted, those would be asked about before this one, which is younger.
            decider.send("unknown-then-rollback");
            Cluster.await("the check", () -> !decider.checked().isEmpty());
            Cluster.equal("checked", List.of("unknown-then-rollback"), decider.checked().stream().distinct().toList());
        }
    }

    static void checked(Cluster cluster) throws Exception {
        String topic = cluster.topic("checked", 1);
        try (Decider decider = new Decider(cluster, cluster.fresh("producers"), topic);
             Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            decider.send("unknown-then-commit");
            decider.send("unknown-then-rollback");
            Cluster.equal("visible before the check", 0, cluster.count(topic));
            receiver.await(1);
            Cluster.await("both checks", () -> decider.checked().size() >= 2);
            receiver.expectNoMore(1);
            Cluster.equal("committed", List.of("unknown-then-commit"), receiver.bodies());
            for (MessageExt check : new ArrayList<>(decider.checks)) {
                String body = Cluster.body(check);
                Cluster.equal("topic of the check", topic, check.getTopic());
                Cluster.equal("transaction of the check", decider.sent.get(body).getTransactionId(), check.getTransactionId());
                Cluster.equal("key of the check", "key-" + body, check.getKeys());
            }
        }
    }

    /** Asked as often as the broker is set to and no more, then put aside where an operator can find it. */
    static void givenUp(Cluster cluster) throws Exception {
        String topic = cluster.topic("given_up", 1);
        int most = Integer.parseInt(cluster.setting("transactionCheckMax"));
        try (Decider decider = new Decider(cluster, cluster.fresh("producers"), topic)) {
            decider.send("unknown-for-ever");
            Cluster.await("the message to be put aside", () -> putAside(cluster, "unknown-for-ever", topic));
            int count = decider.checked().size(); // Apache's broker counts questions that found nobody to answer
            Cluster.check(count == most || cluster.isApache && count > 0 && count < most, count + " checks");
            Cluster.equal("visible", 0, cluster.count(topic));
        }
    }

    private static boolean putAside(Cluster cluster, String body, String topic) throws Exception {
        for (MessageExt message : cluster.all("TRANS_CHECK_MAX_TIME_TOPIC")) {
            if (Cluster.body(message).equals(body) && topic.equals(message.getProperty("REAL_TOPIC"))) {
                return true;
            }
        }
        return false;
    }

    static void otherProducer(Cluster cluster) throws Exception {
        String topic = cluster.topic("restarted", 1);
        String group = cluster.fresh("producers");
        try (Decider first = new Decider(cluster, group, topic)) {
            first.send("unknown-then-commit");
        }
        try (Decider second = new Decider(cluster, group, topic);
             Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            second.send("commit-0"); // a producer is known to brokers once it has sent
            receiver.await(2);
            Cluster.equal("both", List.of("commit-0", "unknown-then-commit"), List.copyOf(receiver.distinct()));
            Cluster.equal("checked", List.of("unknown-then-commit"), second.checked().stream().distinct().toList());
        }
    }
}
