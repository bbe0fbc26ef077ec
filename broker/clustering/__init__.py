"""A broker as a member of a cluster: the shared stores, what it hears of other brokers, how it joins and leaves."""
