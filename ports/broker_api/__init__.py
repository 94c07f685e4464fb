"""The requests that a broker answers, as typed values free of versions and bytes, with one module per family of APIs.

The broker service implements `envelope.BrokerApi`. The wire adapters serve it to the network and offer it again on the
client's side, so a client works the same against a socket and against a broker object in its own process.
"""
