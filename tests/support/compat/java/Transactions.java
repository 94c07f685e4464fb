// Transactions of the Java client, for the driver.

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

final class Transactions {
    private final Driver driver;

    Transactions(Driver driver) {
        this.driver = driver;
    }

    Object carryOut(String what, JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        try (KafkaProducer<byte[], byte[]> producer = begun(command)) {
            switch (what) {
                case "transact":
                    for (JsonNode record : command.get("records")) {
                        producer.send(new ProducerRecord<>(topic, 0, null, Driver.bytes(record.get("value"))));
                    }
                    producer.flush();
                    end(producer, command);
                    return null;
                case "zombie":
                    return zombie(producer, command);
                default:
                    transform(producer, command);
                    return null;
            }
        }
    }

    /** A producer in a transaction. */
    private KafkaProducer<byte[], byte[]> begun(JsonNode command) {
        Properties settings = driver.common();
        settings.put("transactional.id", command.get("transactionalId").asText());
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        producer.beginTransaction();
        return producer;
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, JsonNode command) {
        if (command.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private String zombie(KafkaProducer<byte[], byte[]> first, JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        first.send(new ProducerRecord<>(topic, 0, null, Driver.bytes(command.get("first").get("value")))).get();
        try (KafkaProducer<byte[], byte[]> second = begun(command)) {
            second.send(new ProducerRecord<>(topic, 0, null, Driver.bytes(command.get("second").get("value"))));
            second.commitTransaction();
        }
        try {
            first.commitTransaction();
            return "";
        } catch (KafkaException error) {
            return error.toString();
        }
    }

    private void transform(KafkaProducer<byte[], byte[]> producer, JsonNode command) {
        int left = command.get("count").asInt();
        Properties settings = driver.common();
        settings.put("group.id", command.get("group").asText());
        settings.put("isolation.level", "read_committed");
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        try (KafkaConsumer<byte[], byte[]> consumer = driver.consumer(settings)) {
            consumer.subscribe(List.of(command.get("source").asText()));
            long deadline = System.nanoTime() + Driver.PATIENCE.toNanos();
            while (left > 0 && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    if (left-- > 0) {
                        producer.send(new ProducerRecord<>(command.get("topic").asText(), 0, null, record.value()));
                        TopicPartition place = new TopicPartition(record.topic(), record.partition());
                        positions.put(place, new OffsetAndMetadata(record.offset() + 1));
                    }
                }
            }
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            end(producer, command);
        }
    }
}
