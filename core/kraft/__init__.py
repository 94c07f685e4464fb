"""The metadata of an Apache Kafka cluster in KRaft mode, as the log `__cluster_metadata` and its snapshots hold it."""
