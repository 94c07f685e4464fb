"""Import of Apache Kafka's data folders into a data folder of Barnabas."""
