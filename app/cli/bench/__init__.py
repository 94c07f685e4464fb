"""`barnabas bench`: rates and latencies of a broker, alone or beside other servers."""
