"""`magnetar admin`: the verbs and flags of Apache Pulsar's pulsar-admin, as one table."""
