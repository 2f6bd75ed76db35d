import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Does what each line of input says, with Apache's client, and tells of it in a line of its own:
 *
 * <pre>
 * answer TOPIC GROUP           reply to requests with "java: BODY"           READY answer
 * take TOPIC GROUP             consume                                       GOT tag length crc
 * ask TOPIC BODY               a request                                     REPLY body
 * send TYPE TOPIC COUNT        "0123456789" so often, compressed that way    SENT type
 * check GROUP                  commit whatever is asked about                CHECKED body
 * </pre>
 *
 * <p>Usage: Peer NAME_SERVER
 */
public final class Peer {
    public static void main(String[] arguments) throws Exception {
        ExecutorService work = Executors.newCachedThreadPool();
        try (Cluster cluster = new Cluster(arguments[0], "")) {
            BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
            for (String line = orders.readLine(); line != null; line = orders.readLine()) {
                String[] words = line.split(" ");
                work.submit(() -> {
                    try {
                        obey(cluster, words);
                    } catch (Throwable error) {
                        say("FAILED " + String.join(" ", words) + ": " + error);
                    }
                });
            }
        }
        System.exit(0);
    }

    private static void obey(Cluster cluster, String[] words) throws Exception {
        switch (words[0]) {
            case "answer" -> answer(cluster, words[1], words[2]);
            case "take" -> {
                new Receiver(cluster, words[2], words[1]).concurrent("*", (message, context) -> {
                    CRC32 crc = new CRC32();
                    crc.update(message.getBody());
                    say("GOT " + message.getTags() + " " + message.getBody().length + " " + crc.getValue());
                    return true;
                });
                say("READY take");
            }
            case "ask" -> {
                Message reply = producer(cluster, CompressionType.ZLIB)
                    .request(Cluster.message(words[1], "T", "k", words[2]), 20_000);
                say("REPLY " + Cluster.body(reply));
            }
            case "send" -> {
                String body = "0123456789".repeat(Integer.parseInt(words[3]));
                producer(cluster, CompressionType.valueOf(words[1])).send(Cluster.message(words[2], words[1], "k", body));
                say("SENT " + words[1]);
            }
            case "check" -> check(cluster, words[1]);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void answer(Cluster cluster, String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(cluster, CompressionType.ZLIB);
        new Receiver(cluster, group, topic).concurrent("*", (message, context) -> {
            producer.send(MessageUtil.createReplyMessage(message, ("java: " + Cluster.body(message)).getBytes()), 5_000);
            return true;
        });
        say("READY answer");
    }

    private static void check(Cluster cluster, String group) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(cluster.nameServer);
        producer.setInstanceName(cluster.fresh("instance"));
        producer.setHeartbeatBrokerInterval(1_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                say("CHECKED " + Cluster.body(message));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        // A producer is known to the brokers of the topics it has sent to.
        producer.send(Cluster.message(cluster.topic("checker", 1), "T", "k", "here I am"));
        say("READY check");
    }

    private static DefaultMQProducer producer(Cluster cluster, CompressionType type) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(cluster.fresh("peers"));
        producer.setNamesrvAddr(cluster.nameServer);
        producer.setInstanceName(cluster.fresh("instance"));
        producer.setCompressType(type);
        producer.start();
        return producer;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
