"""The web console: pages about a cluster of Barnabas or Apache Kafka, by the public clients alone."""
