"""Avro, JSON Schema and Protobuf: parsing of schemas, and their compatibility."""
