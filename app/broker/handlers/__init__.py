"""The request handlers: one file per family of requests. `BrokerService` leads each request to its handler."""
