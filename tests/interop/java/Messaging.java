import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Every message type and every way to consume, with Apache's own Java client; several features at a time, for
 * most of them wait.
 *
 * <p>Usage: Messaging NAME_SERVER ariane|apache [FEATURE...]
 */
public final class Messaging {
    private static final int AT_ONCE = 6;

    static Map<String, Interop.Feature> features() {
        Map<String, Interop.Feature> features = new LinkedHashMap<>();
        features.put("transaction-given-up", Transactions::givenUp); // those that wait longest begin first
        features.put("pop-push-retry", Pops::pushRetried);
        features.put("pop-ack", Pops::acknowledged);
        features.put("pop-change-invisible-time", Pops::hidden);
        features.put("pop-fifo", Pops::fifo);
        features.put("dead-letter", Retries::deadLetter);
        features.put("ordered-by-key", Ordered::partition);
        features.put("ordered-globally", Ordered::global);
        features.put("ordered-suspended", Ordered::suspended);
        features.put("ordered-dead-letter", Ordered::deadLetter);
        features.put("delay-levels", Delays::levels);
        features.put("timer", Delays::timer);
        features.put("timer-recall", Delays::recall);
        features.put("timer-too-far-refused", Delays::tooFar);
        features.put("transaction-commit-rollback", Transactions::ended);
        features.put("transaction-check-back", Transactions::checked);
        features.put("transaction-other-producer", Transactions::otherProducer);
        features.put("retry", Retries::retried);
        features.put("dead-letter-at-once", Retries::straightToDeadLetter);
        features.put("broadcast", Retries::broadcastNeverRetries);
        features.put("filter-tags", Filters::tags);
        features.put("filter-sql92", Filters::sql);
        features.put("filter-sql92-refused", Filters::sqlRefused);
        features.put("pop-push", Pops::push);
        features.put("pop-long-polling", Pops::longPolling);
        features.put("offset-reset-online", Offsets::resetOnline);
        features.put("offset-reset-offline", Offsets::resetOffline);
        features.put("offset-skip", Offsets::skipped);
        features.put("offset-clone", Offsets::cloned);
        features.put("offset-first-start", Offsets::firstStart);
        features.put("offset-corrected", Offsets::corrected);
        features.put("message-types", Status::types);
        features.put("track", Status::track);
        features.put("consumer-status", Status::consumerStatus);
        features.put("trace", Status::trace);
        features.put("request-reply", Conversations::requestReply);
        features.put("request-reply-apart", Conversations::repliesApart);
        features.put("batch-with-properties", Bodies::batch);
        features.put("compressed-bodies", Bodies::compressed);
        return features;
    }

    public static void main(String[] arguments) {
        Interop.run(features(), arguments, 2, AT_ONCE);
    }
}
