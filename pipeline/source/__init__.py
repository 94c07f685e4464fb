"""The Spark data source `barnabas`: options, planning, tasks, writing."""
