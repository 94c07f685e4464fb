"""Ad-hoc queries over topics and tables."""
