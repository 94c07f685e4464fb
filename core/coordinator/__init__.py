"""Coordinators: what a broker keeps in internal topics on behalf of clients."""
