// Apache Kafka's assignors of the group coordinator behind lines of text.
//
// use uniform|range|simple                       the assignor of what follows
// topic NAME PARTITIONS                          one more topic
// member ID INSTANCE|- TOPIC[,TOPIC] OWNED|-     one more member; OWNED is like t:0,1;u:2
// run                                            prints "ID OWNED" for each member in the order of ids, then "."
// reset                                          no topics and no members

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberSubscription;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;

public class AssignOracle {
    record Member(Optional<String> instanceId, Set<Uuid> subscribedTopicIds, Map<Uuid, Set<Integer>> owned)
        implements MemberSubscription, MemberAssignment {
        public Optional<String> rackId() { return Optional.empty(); }
        public Map<Uuid, Set<Integer>> partitions() { return owned; }
    }

    static class World implements GroupSpec, SubscribedTopicDescriber {
        final Map<String, Uuid> ids = new HashMap<>();
        final Map<Uuid, String> names = new HashMap<>();
        final Map<Uuid, Integer> counts = new HashMap<>();
        final Map<String, Member> members = new LinkedHashMap<>();

        void addTopic(String name, int count) {
            Uuid id = new Uuid(1, ids.size() + 1);
            ids.put(name, id);
            names.put(id, name);
            counts.put(id, count);
        }

        void addMember(String[] words) {
            Set<Uuid> topics = new HashSet<>();
            for (String name : words[3].split(",")) topics.add(ids.get(name));
            members.put(words[1], new Member(words[2].equals("-") ? Optional.empty() : Optional.of(words[2]), topics, parsed(words[4])));
        }

        Map<Uuid, Set<Integer>> parsed(String text) {
            Map<Uuid, Set<Integer>> owned = new HashMap<>();
            if (!text.equals("-")) {
                for (String topic : text.split(";")) {
                    String[] parts = topic.split(":");
                    Set<Integer> numbers = new TreeSet<>();
                    for (String number : parts[1].split(",")) numbers.add(Integer.parseInt(number));
                    owned.put(ids.get(parts[0]), numbers);
                }
            }
            return Collections.unmodifiableMap(owned);
        }

        String text(Map<Uuid, Set<Integer>> owned) {
            Map<String, Set<Integer>> byName = new TreeMap<>();
            owned.forEach((id, numbers) -> { if (!numbers.isEmpty()) byName.put(names.get(id), new TreeSet<>(numbers)); });
            StringJoiner joined = new StringJoiner(";");
            byName.forEach((name, numbers) -> joined.add(name + ":" + numbers.toString().replaceAll("[\\[\\] ]", "")));
            return joined.length() == 0 ? "-" : joined.toString();
        }

        public int numPartitions(Uuid id) { return counts.getOrDefault(id, -1); }
        public Set<String> racksForPartition(Uuid id, int partition) { return Set.of(); }
        public Collection<String> memberIds() { return members.keySet(); }
        public SubscriptionType subscriptionType() {
            Set<Set<Uuid>> distinct = new HashSet<>();
            members.values().forEach(member -> distinct.add(member.subscribedTopicIds()));
            return distinct.size() <= 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        }
        public boolean isPartitionAssigned(Uuid id, int partition) {
            return members.values().stream().anyMatch(member -> member.owned().getOrDefault(id, Set.of()).contains(partition));
        }
        public boolean isPartitionAssignable(Uuid id, int partition) { return true; }
        public MemberSubscription memberSubscription(String id) { return members.get(id); }
        public MemberAssignment memberAssignment(String id) { return members.get(id); }
    }

    public static void main(String[] arguments) throws Exception {
        PartitionAssignor assignor = new UniformAssignor();
        World world = new World();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new java.io.BufferedOutputStream(System.out, 1 << 16));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            switch (words[0]) {
                case "use":
                    assignor = words[1].equals("range") ? new RangeAssignor()
                        : words[1].equals("simple") ? new SimpleAssignor() : new UniformAssignor();
                    break;
                case "reset": world = new World(); break;
                case "topic": world.addTopic(words[1], Integer.parseInt(words[2])); break;
                case "member": world.addMember(words); break;
                case "run":
                    GroupAssignment assignment = assignor.assign(world, world);
                    for (String id : new TreeSet<>(world.members.keySet())) {
                        MemberAssignment member = assignment.members().get(id);
                        out.println(id + " " + (member == null ? "-" : world.text(member.partitions())));
                    }
                    out.println(".");
                    break;
                default: throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }
}
