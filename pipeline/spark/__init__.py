"""What Spark needs around it: a Java, a Python for its workers, its errors in plain words."""
