"""`barnabas topics`: create, list, describe, change, delete and recover topics."""
