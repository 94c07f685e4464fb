"""Loading the segments of a partition after a clean or an unclean stop."""
