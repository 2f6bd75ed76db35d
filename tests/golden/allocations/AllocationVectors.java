import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;

import com.alibaba.fastjson2.JSON;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints, one JSON object a line, how Apache's own classes split queues among members.
 * java -cp "../../interop/java:LIB/*" AllocationVectors.java > vectors.jsonl
 */
public class AllocationVectors {
    static final Random RANDOM = new Random(20261116);

    public static void main(String[] words) {
        for (int queues : new int[] {1, 2, 3, 4, 7, 8, 16})
            for (int members : new int[] {1, 2, 3, 5, 9})
                all(queues(queues, "orders", "broker-a", "broker-b"), members(members));
        for (int round = 0; round < 10; round++)
            all(queues(1 + RANDOM.nextInt(40), "topic" + round, "room1@b-" + round, "room2@b", "room3@b"),
                members(1 + RANDOM.nextInt(12)));
        // Names that sort otherwise by UTF-16 units than by code points, and rooms that split oddly.
        all(queues(9, "%RETRY%g", "room1@", "@b", "room1@x@y", "room2@\uD83D\uDE00", "room2@\uFFEE", "plain"),
            List.of("room1@\uD83D\uDE00", "room1@\uFFEE", "room2@a", "room2@A", "room1@10", "room1@9"));
    }

    static void all(List<MessageQueue> queues, List<String> members) {
        List<MessageQueue> sortedQueues = new ArrayList<>(queues);
        Collections.sort(sortedQueues);
        List<String> sortedMembers = new ArrayList<>(members);
        Collections.sort(sortedMembers);
        Set<String> rooms = new HashSet<>(List.of("room1", "room3"));
        AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
        byRoom.setConsumeridcs(rooms);
        AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
        byConfig.setMessageQueueList(sortedQueues.subList(0, (sortedQueues.size() + 1) / 2));
        Map<String, AllocateMessageQueueStrategy> strategies = new LinkedHashMap<>();
        strategies.put("average", new AllocateMessageQueueAveragely());
        strategies.put("circle", new AllocateMessageQueueAveragelyByCircle());
        strategies.put("consistent_hash", new AllocateMessageQueueConsistentHash());
        strategies.put("consistent_hash_3", new AllocateMessageQueueConsistentHash(3));
        strategies.put("machine_room", byRoom);
        strategies.put("nearby_average", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), ROOMS));
        strategies.put("nearby_circle", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), ROOMS));
        strategies.put("config", byConfig);

        Map<String, Object> line = new LinkedHashMap<>();
        line.put("queues", places(queues, queues));
        line.put("members", members);
        line.put("sorted_members", sortedMembers);
        line.put("sorted_queues", places(sortedQueues, queues));
        for (Map.Entry<String, AllocateMessageQueueStrategy> entry : strategies.entrySet()) {
            Map<String, Object> shares = new LinkedHashMap<>();
            for (String member : sortedMembers)
                shares.put(member, numbers(entry.getValue().allocate("g", member, sortedQueues, sortedMembers), sortedQueues));
            line.put(entry.getKey(), shares);
            line.put(entry.getKey() + "_name", entry.getValue().getName());
        }
        System.out.println(JSON.toJSONString(line));
    }

    static final AllocateMachineRoomNearby.MachineRoomResolver ROOMS = new AllocateMachineRoomNearby.MachineRoomResolver() {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return roomOf(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String member) {
            return roomOf(member);
        }
    };

    static String roomOf(String name) {
        int at = name.indexOf('@');
        return at <= 0 ? "elsewhere" : name.substring(0, at);
    }

    static List<MessageQueue> queues(int count, String topic, String... brokers) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < count; i++)
            queues.add(new MessageQueue(topic, brokers[i % brokers.length], i / brokers.length));
        Collections.shuffle(queues, RANDOM);
        return queues;
    }

    static List<String> members(int count) {
        List<String> members = new ArrayList<>();
        for (int i = 0; i < count; i++)
            members.add("room" + (1 + RANDOM.nextInt(4)) + "@" + RANDOM.nextInt(100_000) + "#" + i);
        Collections.shuffle(members, RANDOM);
        return members;
    }

    static List<Object> places(List<MessageQueue> queues, List<MessageQueue> of) {
        List<Object> places = new ArrayList<>();
        for (MessageQueue queue : queues)
            places.add(queues == of ? List.of(queue.getTopic(), queue.getBrokerName(), queue.getQueueId()) : of.indexOf(queue));
        return places;
    }

    static List<Integer> numbers(List<MessageQueue> share, List<MessageQueue> sorted) {
        List<Integer> numbers = new ArrayList<>();
        for (MessageQueue queue : share)
            numbers.add(sorted.indexOf(queue));
        return numbers;
    }
}
