// The Java client behind lines of JSON: {"id", "do", ...} on standard input, {"id", "ok"} or {"id", "error"} on standard output.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public final class Driver {
    static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A member of a group, in a thread of its own. */
    interface Member {
        /** What it has, and what it has received beginning with a number. */
        Object state(int from) throws Throwable;

        void commit() throws Throwable;

        void close() throws InterruptedException;
    }

    private final Map<Integer, Member> members = new ConcurrentHashMap<>();
    private String bootstrap;
    private final Properties login = new Properties();
    private Admin admin;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(System.err); // whoever prints does not disturb the answers
        ExecutorService workers = Executors.newCachedThreadPool();
        Driver driver = new Driver();
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = JSON.readTree(line);
            workers.submit(() -> driver.answer(command, answers));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(JsonNode command, PrintStream answers) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.get("id").asInt());
        try {
            answer.put("ok", carryOut(command.get("do").asText(), command));
        } catch (Throwable error) { // the test gets it
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            answer.put("error", cause.toString() + (cause.getCause() == null ? "" : ": " + rootOf(cause)));
        }
        try {
            String line = JSON.writeValueAsString(answer);
            synchronized (answers) {
                answers.println(line);
                answers.flush();
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
        if (command.get("do").asText().equals("exit")) {
            Runtime.getRuntime().halt(0);
        }
    }

    private static Throwable rootOf(Throwable error) {
        return error.getCause() == null ? error : rootOf(error.getCause());
    }

    private Object carryOut(String what, JsonNode command) throws Throwable {
        switch (what) {
            case "start":
                bootstrap = command.get("bootstrap").asText();
                admin = Admin.create(common());
                return Map.of("version", AppInfoParser.getVersion());
            case "login":
                logIn(command);
                return null;
            case "produce":
                return produce(command);
            case "read":
                return read(command);
            case "join":
            case "joinConsumerGroup":
                members.put(command.get("member").asInt(), new GroupMember(command));
                return null;
            case "joinShareGroup": // compiled for Java 4 only
                Class<?> sharing = Class.forName("Sharing");
                members.put(
                        command.get("member").asInt(),
                        (Member) sharing.getDeclaredConstructor(Properties.class, JsonNode.class)
                                .newInstance(common(), command));
                return null;
            case "state":
                return members.get(command.get("member").asInt()).state(command.get("from").asInt());
            case "commit":
                members.get(command.get("member").asInt()).commit();
                return null;
            case "leave":
                members.remove(command.get("member").asInt()).close();
                return null;
            case "transact":
            case "zombie":
            case "transform":
                return new Transactions(this).carryOut(what, command);
            case "tool":
                return Tool.run(command);
            case "exit":
                admin.close();
                return null;
            default:
                return administer(what, command);
        }
    }

    // --- messages

    Properties common() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.ms", "20");
        settings.putAll(login);
        return settings;
    }

    /** Producers, consumers and transactions connect like this from now on. */
    private void logIn(JsonNode command) {
        bootstrap = command.get("bootstrap").asText();
        login.clear();
        command.get("settings").fields().forEachRemaining(e -> login.put(e.getKey(), e.getValue().asText()));
        String token = login.getProperty("sasl.oauthbearer.token.endpoint.url");
        if (token != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token);
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.files", token.substring("file://".length()));
        }
    }

    private Object produce(JsonNode command) throws Exception {
        Properties settings = common();
        settings.put("compression.type", command.get("codec").asText());
        settings.put("acks", command.get("acks").asText());
        settings.put("enable.idempotence", command.get("idempotent").asText());
        settings.put("max.request.size", command.get("maxBytes").asText());
        settings.put("linger.ms", "5");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode node : command.get("records")) {
                Long timestamp = node.get("timestamp").isNull() ? null : node.get("timestamp").asLong();
                String topic = command.get("topic").asText();
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(topic, 0, timestamp, bytes(node.get("key")), bytes(node.get("value")));
                for (JsonNode header : node.get("headers")) {
                    record.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(record));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        return null;
    }

    KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("fetch.max.wait.ms", "100");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Object read(JsonNode command) throws Exception {
        Properties settings = common();
        settings.put("max.partition.fetch.bytes", command.get("maxBytes").asText());
        if (command.get("committed").asBoolean()) {
            settings.put("isolation.level", "read_committed");
        }
        TopicPartition place = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
        int count = command.get("count").asInt();
        List<Object> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            long offset = command.get("offset").asLong();
            if (!command.get("timestamp").isNull()) {
                offset = consumer.offsetsForTimes(Map.of(place, command.get("timestamp").asLong())).get(place).offset();
            }
            consumer.assign(List.of(place));
            consumer.seek(place, offset);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (found.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException(found.size() + " of " + count + " records came");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    found.add(toJson(record));
                }
            }
        }
        return found.subList(0, count);
    }

    /** A consumer in a group, in a thread of its own. */
    private final class GroupMember implements Member, Runnable {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final String topic;
        private final List<Object> received = new ArrayList<>();
        private final Thread thread = new Thread(this, "member");
        private Collection<TopicPartition> assignment = List.of();
        private Throwable failure;
        private boolean committing;
        private volatile boolean closing;

        GroupMember(JsonNode command) {
            Properties settings = common();
            settings.put("group.id", command.get("group").asText());
            if (command.get("do").asText().equals("joinConsumerGroup")) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("session.timeout.ms", command.get("sessionMs").asText());
                settings.put("heartbeat.interval.ms", command.get("heartbeatMs").asText());
            }
            String assignor = command.path("assignor").asText();
            if (!assignor.isEmpty()) {
                String name = assignor.equals("range") ? "RangeAssignor" : "CooperativeStickyAssignor";
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + name);
            }
            topic = command.get("topic").asText();
            consumer = consumer(settings);
            thread.start();
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic));
                while (!closing) {
                    List<Object> came = new ArrayList<>();
                    consumer.poll(Duration.ofMillis(50)).forEach(record -> came.add(toJson(record)));
                    Collection<TopicPartition> owned = List.copyOf(consumer.assignment());
                    synchronized (this) {
                        received.addAll(came);
                        assignment = owned;
                        if (committing) {
                            consumer.commitSync();
                            committing = false;
                            notifyAll();
                        }
                    }
                }
            } catch (Throwable error) { // the next command gets it
                synchronized (this) {
                    failure = error;
                    notifyAll();
                }
            }
        }

        @Override
        public synchronized Object state(int from) throws Throwable {
            if (failure != null) {
                throw failure;
            }
            List<Object> places = new ArrayList<>();
            assignment.forEach(place -> places.add(List.of(place.topic(), place.partition())));
            return Map.of("assignment", places, "received", List.copyOf(received.subList(from, received.size())));
        }

        @Override
        public synchronized void commit() throws Throwable {
            committing = true;
            while (committing && failure == null) {
                wait(PATIENCE.toMillis());
            }
            if (failure != null) {
                throw failure;
            }
        }

        @Override
        public void close() throws InterruptedException {
            closing = true;
            thread.join(PATIENCE.toMillis());
        }
    }

    // --- administration

    private Object administer(String what, JsonNode command) throws Exception {
        String topic = command.path("topic").asText();
        TopicPartition place = new TopicPartition(topic, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        switch (what) {
            case "offsets":
                return List.of(offset(place, OffsetSpec.earliest()), offset(place, OffsetSpec.latest()));
            case "offsetForTime":
                return offset(place, OffsetSpec.forTimestamp(command.get("timestamp").asLong()));
            case "create":
                NewTopic made = new NewTopic(topic, Optional.of(command.get("partitions").asInt()), Optional.empty());
                Map<String, String> configs = new HashMap<>();
                command.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
                admin.createTopics(List.of(made.configs(configs))).all().get();
                return null;
            case "partitions":
                try {
                    return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
                } catch (ExecutionException error) {
                    if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                        return null;
                    }
                    throw error;
                }
            case "addPartitions":
                NewPartitions grown = NewPartitions.increaseTo(command.get("count").asInt());
                admin.createPartitions(Map.of(topic, grown)).all().get();
                return null;
            case "setConfig":
                ConfigEntry entry = new ConfigEntry(command.get("key").asText(), command.get("value").asText());
                AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
                return null;
            case "topicConfig":
                String key = command.get("key").asText();
                return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
            case "deleteTopic":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "groups":
                List<String> names = new ArrayList<>();
                for (ConsumerGroupListing listing : admin.listConsumerGroups().all().get()) {
                    names.add(listing.groupId());
                }
                return names;
            case "group":
                return group(command.get("group").asText());
            default:
                throw new IllegalArgumentException(what);
        }
    }

    private long offset(TopicPartition place, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset();
    }

    private Object group(String name) throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
        List<Object> places = new ArrayList<>();
        Map<String, List<Object>> clients = new HashMap<>();
        for (MemberDescription member : found.members()) {
            List<Object> owned = clients.computeIfAbsent(member.clientId(), id -> new ArrayList<>());
            member.assignment().topicPartitions().forEach(p -> owned.add(List.of(p.topic(), p.partition())));
            places.addAll(owned);
        }
        return Map.of(
                "state", found.state().toString(),
                "members", found.members().size(),
                "partitions", places,
                "clients", clients);
    }

    // --- records

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    static Map<String, Object> toJson(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> found = new HashMap<>();
        found.put("value", text(record.value()));
        found.put("key", text(record.key()));
        found.put("headers", headers);
        found.put("timestamp", record.timestamp());
        found.put("partition", record.partition());
        found.put("offset", record.offset());
        return found;
    }
}
