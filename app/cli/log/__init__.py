"""`barnabas log`: dump, verify, repair and statistics of the files of a broker."""
