"""`barnabas bench`: rates and latencies of a broker, alone or compared with other servers."""
