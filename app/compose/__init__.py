"""The one place that knows the adapters: what a running broker, and a client of one, is made of.

Adapters are imported where they are used, so that a client does not load the broker, nor the broker the client.
"""
