"""The metadata of a cluster: topics, brokers, partitions, configs; and the coordination tree that stores them."""
