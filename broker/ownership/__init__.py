"""Which broker of a cluster serves which topic: bundles of namespaces, their owners, the register of brokers."""
