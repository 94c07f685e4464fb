// A member of a share group of the Java client, for the driver.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** It releases the first delivery of some values, and accepts all else. */
final class Sharing implements Driver.Member, Runnable {
    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final Set<String> released = new HashSet<>();
    private final String topic;
    private final List<Object> received = new ArrayList<>();
    private final Thread thread = new Thread(this, "sharing");
    private Throwable failure;
    private volatile boolean closing;

    Sharing(Properties settings, JsonNode command) {
        settings.put("group.id", command.get("group").asText());
        settings.put("share.acknowledgement.mode", "explicit");
        topic = command.get("topic").asText();
        command.get("released").forEach(value -> released.add(value.asText()));
        consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        thread.start();
    }

    @Override
    public void run() {
        try (consumer) {
            consumer.subscribe(List.of(topic));
            while (!closing) {
                List<Object> came = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    int delivery = record.deliveryCount().orElse((short) 0);
                    boolean again = delivery == 1 && released.contains(Driver.text(record.value()));
                    consumer.acknowledge(record, again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    Map<String, Object> found = Driver.toJson(record);
                    found.put("deliveryCount", delivery);
                    came.add(found);
                }
                synchronized (this) {
                    received.addAll(came);
                }
            }
        } catch (Throwable error) { // the next command gets it
            synchronized (this) {
                failure = error;
            }
        }
    }

    @Override
    public synchronized Object state(int from) throws Throwable {
        if (failure != null) {
            throw failure;
        }
        return Map.of("assignment", List.of(), "received", List.copyOf(received.subList(from, received.size())));
    }

    @Override
    public void commit() {
        // comes with poll and close
    }

    @Override
    public void close() throws InterruptedException {
        closing = true;
        thread.join(Driver.PATIENCE.toMillis());
    }
}
