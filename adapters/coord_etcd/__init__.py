"""The coordination tree in etcd (aetcd's messages over gRPC)."""
