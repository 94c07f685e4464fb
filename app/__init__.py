"""Use cases, configuration, composition, clients and the command line."""
