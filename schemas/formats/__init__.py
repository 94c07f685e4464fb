"""Avro, JSON Schema and Protobuf: what a schema says, and which of its versions get on with each other."""
