"""The state of one partition at a broker: log, high watermark, followers and ISR."""
