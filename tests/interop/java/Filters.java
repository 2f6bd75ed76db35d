import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** Which messages a group wants: by tags, and by SQL92 on properties. */
final class Filters {
    static void tags(Cluster cluster) throws Exception {
        String topic = cluster.topic("tags", 2);
        for (String tag : new String[] {"Aa", "BB", "C", "D"}) { // the first two have the same hash
            cluster.producer.send(Cluster.message(topic, tag, "k", tag));
        }
        cluster.producer.send(Cluster.message(topic, null, "k", "none"));
        try (Receiver two = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("Aa || C", Receiver.TAKE);
             Receiver all = new Receiver(cluster, cluster.fresh("group"), topic).concurrent("*", Receiver.TAKE)) {
            two.expectNoMore(2);
            Cluster.equal("two tags", Set.of("Aa", "C"), two.distinct());
            all.await(5);
            Cluster.equal("all", Set.of("Aa", "BB", "C", "D", "none"), all.distinct());
            cluster.producer.send(Cluster.message(topic, "BB", "k", "BB late"));
            cluster.producer.send(Cluster.message(topic, "C", "k", "C late")); // while pulls are held
            Cluster.await("the late one", () -> two.distinct().contains("C late"));
            Cluster.check(!two.distinct().contains("BB late"), "a tag with the same hash came through");
        }
    }

    static void sql(Cluster cluster) throws Exception {
        String topic = cluster.topic("sql", 2);
        send(cluster, topic, "1", "number", "5", "name", "abc");
        send(cluster, topic, "2", "number", "10", "name", "it's");
        send(cluster, topic, "3", "number", "-2", "flag", "true");
        send(cluster, topic, "4", "name", "xabcy", "flag", "false");
        send(cluster, topic, "5");
        Map<String, Set<String>> expected = new LinkedHashMap<>();
        expected.put("number > 4", Set.of("1", "2"));
        expected.put("number >= 10 OR number < 0", Set.of("2", "3"));
        expected.put("number BETWEEN 5 AND 10", Set.of("1", "2"));
        expected.put("number NOT BETWEEN 5 AND 10", Set.of("3"));
        expected.put("name IN ('abc', 'it''s')", Set.of("1", "2"));
        expected.put("name NOT IN ('abc')", Set.of("2", "4"));
        expected.put("name IS NULL", Set.of("3", "5"));
        expected.put("name IS NOT NULL AND number <> 5", Set.of("2"));
        expected.put("flag = TRUE", Set.of("3"));
        expected.put("flag <> TRUE", Set.of("4"));
        expected.put("name CONTAINS 'abc'", Set.of("1", "4"));
        expected.put("name STARTSWITH 'x'", Set.of("4"));
        expected.put("name ENDSWITH 'c'", Set.of("1"));
        expected.put("TAGS = 'T' AND (number = 5 OR name = 'xabcy')", Set.of("1", "4"));
        expected.put("NOT (number > 4)", Set.of("3"));
        Map<String, Receiver> receivers = new LinkedHashMap<>();
        try {
            for (String expression : expected.keySet()) {
                receivers.put(expression, new Receiver(cluster, cluster.fresh("group"), topic)
                    .concurrent(MessageSelector.bySql(expression), Receiver.TAKE));
            }
            for (Map.Entry<String, Set<String>> each : expected.entrySet()) {
                Receiver receiver = receivers.get(each.getKey());
                Cluster.await(() -> each.getKey() + " to give " + each.getValue() + ", gave " + receiver.distinct(),
                    () -> receiver.distinct().equals(new TreeSet<>(each.getValue())));
            }
            Thread.sleep(500);
            for (Map.Entry<String, Set<String>> each : expected.entrySet()) {
                Cluster.equal(each.getKey(), new TreeSet<>(each.getValue()), receivers.get(each.getKey()).distinct());
            }
            send(cluster, topic, "6", "number", "3"); // while pulls are held
            send(cluster, topic, "7", "number", "7");
            Receiver receiver = receivers.get("number > 4");
            Cluster.await("the late one", () -> receiver.distinct().contains("7"));
            Cluster.check(!receiver.distinct().contains("6"), "a message that does not match came");
        } finally {
            receivers.values().forEach(Receiver::close);
        }
    }

    static void sqlRefused(Cluster cluster) throws Exception {
        String topic = cluster.topic("sql_bad", 1);
        for (String expression : new String[] {"number >", "number = 'a' AND", "name IN ()", "BETWEEN"}) {
            Receiver receiver = new Receiver(cluster, cluster.fresh("group"), topic);
            try {
                receiver.concurrent(MessageSelector.bySql(expression), Receiver.TAKE);
                throw new AssertionError("a consumer started with: " + expression);
            } catch (MQClientException refusal) {
                Cluster.equal("code", ResponseCode.SUBSCRIPTION_PARSE_FAILED, refusal.getResponseCode());
            } finally {
                receiver.close();
            }
        }
    }

    private static void send(Cluster cluster, String topic, String body, String... properties) throws Exception {
        Message message = Cluster.message(topic, "T", "k", body);
        for (int i = 0; i < properties.length; i += 2) {
            message.putUserProperty(properties[i], properties[i + 1]);
        }
        cluster.producer.send(message);
    }
}
