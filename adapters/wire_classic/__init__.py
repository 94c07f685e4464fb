"""The wire protocol of Kafka 0.7 (facts A1, A3), both ends, sans-I/O."""
