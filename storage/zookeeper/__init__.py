"""Metadata on Apache ZooKeeper: the ``MetadataStore`` of brokers that share one cluster."""
