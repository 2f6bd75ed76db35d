import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Queries by key and id, and mqadmin's commands as an operator types them, with what they print. */
final class Admin {
    static void queryByKey(Cluster cluster) throws Exception {
        String topic = cluster.topic("keys", 4);
        long begin = System.currentTimeMillis() - 1_000;
        for (int i = 0; i < 30; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "all key-" + i, "body-" + i));
        }
        long end = System.currentTimeMillis() + 1_000;
        Cluster.await("all by the shared key", () -> query(cluster, topic, "all", begin, end).size() == 30);
        List<MessageExt> one = query(cluster, topic, "key-17", begin, end);
        Cluster.equal("one by its key", 1, one.size());
        Cluster.equal("body", "body-17", Cluster.body(one.get(0)));
        Cluster.equal("before the time", 0, query(cluster, topic, "all", 0, begin).size());
    }

    private static List<MessageExt> query(Cluster cluster, String topic, String key, long begin, long end) throws Exception {
        try {
            QueryResult result = cluster.admin.queryMessage(topic, key, 64, begin, end);
            return result.getMessageList();
        } catch (org.apache.rocketmq.client.exception.MQClientException none) {
            return new ArrayList<>(); // the client throws when nothing is found
        }
    }

    static void queryByUniqueKey(Cluster cluster) throws Exception {
        String topic = cluster.topic("unique", 4);
        SendResult result = cluster.producer.send(Cluster.message(topic, "T", "k", "sought"));
        Cluster.await("the message by unique key", () ->
            Cluster.body(cluster.admin.queryMessage(null, topic, result.getMsgId())).equals("sought"));
        MessageExt found = cluster.admin.queryMessage(null, topic, result.getOffsetMsgId());
        Cluster.equal("by offset id", "sought", Cluster.body(found));
        Cluster.equal("offset", result.getQueueOffset(), found.getQueueOffset());
    }

    static void updateTopic(Cluster cluster) throws Exception {
        String topic = cluster.fresh("made_by_mqadmin");
        expect(mqadmin(cluster, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "6", "-w", "3"),
            "create topic to " + Pattern.quote(cluster.brokerAddress) + " success", "readQueueNums=6", "writeQueueNums=3");
        Cluster.await("six queues", () -> cluster.queues(topic).size() == 6);
        expect(mqadmin(cluster, "updateTopic", "-b", cluster.brokerAddress, "-t", topic, "-r", "8", "-w", "8", "-p", "4"),
            "create topic to " + Pattern.quote(cluster.brokerAddress) + " success", "perm=R--");
        Cluster.await("eight queues", () -> cluster.queues(topic).size() == 8);
    }

    static void topicList(Cluster cluster) throws Exception {
        String topic = cluster.topic("listed", 2);
        expect(mqadmin(cluster, "topicList"), "(?m)^" + topic + "$", "(?m)^TBW102$", "(?m)^DefaultCluster$", "(?m)^broker-a$");
        expect(mqadmin(cluster, "topicList", "-c"), "DefaultCluster +" + topic);
    }

    static void topicRoute(Cluster cluster) throws Exception {
        String topic = cluster.topic("routed", 3);
        expect(mqadmin(cluster, "topicRoute", "-t", topic), "\"brokerDatas\"", "\"brokerName\": ?\"broker-a\"",
            Pattern.quote(cluster.brokerAddress), "\"readQueueNums\": ?3", "\"writeQueueNums\": ?3", "\"perm\": ?6");
    }

    static void topicStatus(Cluster cluster) throws Exception {
        String topic = cluster.topic("status", 4);
        for (int i = 0; i < 20; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, "b"),
                (queues, message, argument) -> queues.get(message.getKeys().equals("k0") ? 1 : 2), null);
        }
        Cluster.await("all to be seen", () -> cluster.count(topic) == 20);
        expect(mqadmin(cluster, "topicStatus", "-t", topic), "broker-a +0 +0 +0 *\\n", "broker-a +1 +0 +1 +\\d{4}-",
            "broker-a +2 +0 +19 +\\d{4}-", "broker-a +3 +0 +0 *\\n");
    }

    static void clusterList(Cluster cluster) throws Exception {
        expect(mqadmin(cluster, "clusterList"),
            "DefaultCluster +broker-a +0 +" + Pattern.quote(cluster.brokerAddress) + " +V\\d+_\\d+_\\d+ .*true");
        expect(mqadmin(cluster, "clusterList", "-m"), "DefaultCluster +broker-a +\\d+ +\\d+ +\\d+ +\\d+");
    }

    static void brokerStatus(Cluster cluster) throws Exception {
        expect(mqadmin(cluster, "brokerStatus", "-b", cluster.brokerAddress), "(?m)^putTps +: [\\d.]+ ", "(?m)^bootTimestamp +: \\d+",
            "(?m)^commitLogMaxOffset +: \\d+", "(?m)^msgPutTotalTodayNow +: \\d+", "(?m)^brokerVersionDesc +: V");
    }

    static void brokerConfig(Cluster cluster) throws Exception {
        expect(mqadmin(cluster, "getBrokerConfig", "-b", cluster.brokerAddress), "brokerName +=  broker-a", "flushDiskType +=  ASYNC_FLUSH",
            "mappedFileSizeCommitLog +=  \\d+");
        expect(mqadmin(cluster, "updateBrokerConfig", "-b", cluster.brokerAddress, "-k", "fileReservedTime", "-v", "71"),
            "update broker config success");
        expect(mqadmin(cluster, "getBrokerConfig", "-b", cluster.brokerAddress), "fileReservedTime +=  71");
    }

    static void updateGroup(Cluster cluster) throws Exception {
        String group = cluster.fresh("group_by_mqadmin");
        expect(mqadmin(cluster, "updateSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "5"),
            "create subscription group to " + Pattern.quote(cluster.brokerAddress) + " success");
        Cluster.equal("retries", 5,
            cluster.admin.getAllSubscriptionGroup(cluster.brokerAddress, 3_000).getSubscriptionGroupTable().get(group).getRetryMaxTimes());
    }

    static void connections(Cluster cluster) throws Exception {
        String topic = cluster.topic("connected", 2);
        String group = cluster.fresh("group_connected");
        cluster.producer.send(Cluster.message(topic, "T", "k", "b"));
        cluster.producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
        PushConsumers.Instance instance = new PushConsumers.Instance(cluster, group, topic, "A || B", false);
        try {
            expect(mqadmin(cluster, "producerConnection", "-g", "interop-producer", "-t", topic), "127\\.0\\.0\\.1:\\d+ +JAVA +V5");
            expect(mqadmin(cluster, "consumerConnection", "-g", group), "127\\.0\\.0\\.1:\\d+ +JAVA +V5", topic + " +A \\|\\| B",
                "ConsumeType: CONSUME_PASSIVELY", "MessageModel: CLUSTERING", "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET");
        } finally {
            instance.consumer.shutdown();
        }
    }

    static void consumerProgress(Cluster cluster) throws Exception {
        String topic = cluster.topic("progress", 2);
        String group = cluster.fresh("group_progress");
        for (int i = 0; i < 10; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, "b"));
        }
        PushConsumers.Instance instance = new PushConsumers.Instance(cluster, group, topic, "*", false);
        try {
            Cluster.await("the consumer", () -> instance.received.size() == 10);
            expect(mqadmin(cluster, "consumerProgress"), group + " +1 +V5\\S+ +PUSH +CLUSTERING");
        } finally {
            instance.consumer.shutdown();
        }
        for (int i = 0; i < 4; i++) {
            cluster.producer.send(Cluster.message(topic, "T", "k" + i, "b"));
        }
        Cluster.await("all to be seen", () -> cluster.count(topic) == 14);
        expect(mqadmin(cluster, "consumerProgress", "-g", group), topic + " +broker-a +0 +7 +5 +2 ", topic + " +broker-a +1 +7 +5 +2 ",
            "Consume Diff Total: 4");
    }

    static void mqadminQueryByKey(Cluster cluster) throws Exception {
        String topic = cluster.topic("mqadmin_key", 1);
        SendResult first = cluster.producer.send(Cluster.message(topic, "T", "order-1 order-2", "b"));
        SendResult second = cluster.producer.send(Cluster.message(topic, "T", "order-2", "b"));
        Cluster.await("the index", () -> query(cluster, topic, "order-2", 0, Long.MAX_VALUE).size() == 2);
        expect(mqadmin(cluster, "queryMsgByKey", "-t", topic, "-k", "order-2"),
            first.getMsgId() + " +0 +0", second.getMsgId() + " +0 +1");
        expect(mqadmin(cluster, "queryMsgByUniqueKey", "-t", topic, "-i", second.getMsgId()), "Keys: +\\[?order-2", "Queue Offset: +1");
    }

    static void mqadminQueryById(Cluster cluster) throws Exception {
        String topic = cluster.topic("mqadmin_id", 1);
        SendResult result = cluster.producer.send(Cluster.message(topic, "TagI", "k-id", "by id"));
        String output = mqadmin(cluster, "queryMsgById", "-i", result.getOffsetMsgId(), "-t", topic);
        expect(output, "OffsetID: +" + result.getOffsetMsgId(), "Topic: +" + topic, "Tags: +\\[TagI\\]", "Keys: +\\[k-id\\]",
            "Queue ID: +0", "Queue Offset: +0", "Reconsume Times: +0", "Store Host: +" + Pattern.quote(cluster.brokerAddress));
        Matcher file = Pattern.compile("Message Body Path: +(\\S+)").matcher(output);
        if (file.find()) { // the command leaves the body in a file
            Cluster.equal("body", "by id", Files.readString(Path.of(file.group(1))));
            Files.delete(Path.of(file.group(1)));
        }
    }

    static void deleteTopic(Cluster cluster) throws Exception {
        String topic = cluster.topic("deleted", 2);
        cluster.producer.send(Cluster.message(topic, "T", "k", "gone"));
        expect(mqadmin(cluster, "deleteTopic", "-c", "DefaultCluster", "-t", topic), "delete topic \\[" + topic + "\\] from cluster .* success");
        Cluster.await("the route to go", () -> {
            try {
                cluster.admin.examineTopicRouteInfo(topic);
                return false;
            } catch (org.apache.rocketmq.client.exception.MQClientException gone) {
                return true;
            }
        });
        Cluster.check(!mqadmin(cluster, "topicList").contains(topic), "still listed");
    }

    /** Runs one mqadmin command in this process and gives what it printed. */
    static synchronized String mqadmin(Cluster cluster, String command, String... arguments) {
        List<String> line = new ArrayList<>(List.of(command, "-n", cluster.nameServer));
        line.addAll(List.of(arguments));
        PrintStream out = System.out;
        PrintStream error = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main(line.toArray(new String[0]));
        } finally {
            System.setOut(out);
            System.setErr(error);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    static void expect(String output, String... patterns) {
        for (String pattern : patterns) {
            Cluster.check(Pattern.compile(pattern).matcher(output).find(), "no /" + pattern + "/ in: " + output);
        }
    }
}
