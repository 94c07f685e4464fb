"""Schemas of messages: formats, encoders, and a registry that speaks the Confluent REST API."""
