import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Drives a broker with Apache's own Java client and mqadmin, one feature after the other, and prints
 * "PASS name" or "FAIL name why" for each.
 *
 * <p>Usage: Interop NAME_SERVER [FEATURE...]
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

    /** Thrown by a feature that the server does not have, with the reason. */
    static final class NotThere extends Exception {
        NotThere(String reason) {
            super(reason);
        }
    }

    private static final PrintStream OUT = System.out; // mqadmin's output is caught by setting another

    public static void main(String[] arguments) {
        run(features(), arguments, 1, 1);
    }

    /** Checks all features or those named from an argument on, some at once, prints the verdicts and ends the process. */
    static void run(Map<String, Feature> features, String[] arguments, int named, int atOnce) {
        List<String> wanted = List.of(arguments).subList(named, arguments.length);
        ExecutorService workers = Executors.newFixedThreadPool(atOnce);
        boolean passed = true;
        try (Cluster cluster = new Cluster(arguments[0], named > 1 ? arguments[1] : "ariane")) {
            List<Future<Boolean>> verdicts = new ArrayList<>();
            features.forEach((name, feature) -> {
                if (wanted.isEmpty() || wanted.contains(name)) {
                    verdicts.add(workers.submit(() -> passes(name, feature, cluster)));
                }
            });
            for (Future<Boolean> verdict : verdicts) {
                passed &= verdict.get();
            }
        } catch (Exception error) {
            error.printStackTrace();
            passed = false;
        }
        System.exit(passed ? 0 : 1); // the client leaves threads behind that are no daemons
    }

    private static boolean passes(String name, Feature feature, Cluster cluster) {
        long start = System.nanoTime();
        String verdict;
        boolean passed = true;
        try {
            feature.check(cluster);
            verdict = String.format("PASS %s (%.1f s)", name, (System.nanoTime() - start) / 1e9);
        } catch (NotThere reason) {
            verdict = "SKIP " + name + " " + reason.getMessage();
        } catch (Throwable error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            OUT.print(trace);
            verdict = "FAIL " + name + " " + String.valueOf(error).replace('\n', ' ');
            passed = false;
        }
        OUT.println(verdict);
        OUT.flush();
        return passed;
    }
}
