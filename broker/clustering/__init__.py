"""A broker as a member of a cluster: the shared stores, events of other brokers, joining and leaving."""
