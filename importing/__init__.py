"""`magnetar kafka import`: record batches of Kafka files into a topic of a running broker, exactly once."""
