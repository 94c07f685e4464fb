"""Security as pure rules and state machines: principals, access control, SASL exchanges, quotas."""
