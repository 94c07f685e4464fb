"""The schema registry: subjects and versions over a compacted topic, served by HTTP."""
