"""Surroundings of Spark: a Java, a Python for its workers, its errors in plain words."""
