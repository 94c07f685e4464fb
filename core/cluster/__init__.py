"""What a cluster agrees on: topics, brokers, partitions, configs; and the tree of nodes that it agrees through."""
