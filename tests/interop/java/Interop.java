import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Drives a broker with Apache's own Java client and mqadmin, one feature after the other, and prints
 * "PASS name" or "FAIL name why" for each.
 *
 * <p>Usage: Interop NAME_SERVER [FEATURE...]; "--list" instead of an address prints the features' names.
 */
public final class Interop {
    interface Feature {
        void check(Cluster cluster) throws Exception;
    }

    static Map<String, Feature> features() {
        Map<String, Feature> features = new LinkedHashMap<>();
        features.put("producer-sync", Producers::sync);
        features.put("producer-async", Producers::async);
        features.put("producer-one-way", Producers::oneWay);
        features.put("producer-batch", Producers::batch);
        features.put("producer-compressed", Producers::compressed);
        features.put("producer-queue-selector", Producers::selected);
        features.put("producer-topic-created-on-send", Producers::topicCreatedOnSend);
        features.put("producer-too-large-refused", Producers::tooLargeRefused);
        features.put("push-concurrent-rebalance", PushConsumers::concurrent);
        features.put("push-orderly-rebalance", PushConsumers::orderly);
        features.put("push-tag-filter", PushConsumers::tags);
        features.put("push-offsets-survive-restart", PushConsumers::resume);
        features.put("lite-pull-subscribe", PullConsumers::subscribe);
        features.put("lite-pull-assign-and-seek", PullConsumers::assign);
        features.put("pull-long-polling", PullConsumers::longPolling);
        features.put("query-by-key", Admin::queryByKey);
        features.put("query-by-unique-key", Admin::queryByUniqueKey);
        features.put("mqadmin-update-topic", Admin::updateTopic);
        features.put("mqadmin-topic-list", Admin::topicList);
        features.put("mqadmin-topic-route", Admin::topicRoute);
        features.put("mqadmin-topic-status", Admin::topicStatus);
        features.put("mqadmin-cluster-list", Admin::clusterList);
        features.put("mqadmin-broker-status", Admin::brokerStatus);
        features.put("mqadmin-broker-config", Admin::brokerConfig);
        features.put("mqadmin-update-group", Admin::updateGroup);
        features.put("mqadmin-connections", Admin::connections);
        features.put("mqadmin-consumer-progress", Admin::consumerProgress);
        features.put("mqadmin-query-by-key", Admin::mqadminQueryByKey);
        features.put("mqadmin-query-by-id", Admin::mqadminQueryById);
        features.put("mqadmin-delete-topic", Admin::deleteTopic);
        return features;
    }

    public static void main(String[] arguments) {
        Map<String, Feature> features = features();
        if (arguments[0].equals("--list")) {
            features.keySet().forEach(System.out::println);
            System.exit(0);
        }
        List<String> wanted = List.of(arguments).subList(1, arguments.length);
        boolean failed = false;
        try (Cluster cluster = new Cluster(arguments[0])) {
            for (Map.Entry<String, Feature> entry : features.entrySet()) {
                if (wanted.isEmpty() || wanted.contains(entry.getKey())) {
                    failed |= !passes(entry.getKey(), entry.getValue(), cluster);
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
            failed = true;
        }
        System.exit(failed ? 1 : 0); // the client leaves threads behind that are no daemons
    }

    private static boolean passes(String name, Feature feature, Cluster cluster) {
        long start = System.nanoTime();
        String verdict;
        try {
            feature.check(cluster);
            verdict = String.format("PASS %s (%.1f s)", name, (System.nanoTime() - start) / 1e9);
        } catch (Throwable error) {
            error.printStackTrace();
            verdict = "FAIL " + name + " " + String.valueOf(error).replace('\n', ' ');
        }
        System.out.println(verdict);
        System.out.flush();
        return verdict.startsWith("PASS");
    }
}
