"""`magnetar client`: produce, consume and read with the flags of Apache Pulsar's pulsar-client."""
