"""`barnabas cluster`: run a cluster on this machine, and administer one."""
