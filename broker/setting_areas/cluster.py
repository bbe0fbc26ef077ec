"""Settings of `magnetar broker`: the services that brokers of one cluster share."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class ClusterSettings(Table):
    """Where metadata and ledgers are: of `magnetar broker`. A standalone broker keeps both in its data directory."""

    metadata_store_url: str = setting(
        "metadataStoreUrl",
        "",
        "ZooKeeper of the cluster: zk:host:port,host:port, with an optional path behind the last port.",
    )
    configuration_metadata_store_url: str = setting(
        "configurationMetadataStoreUrl",
        "",
        "ZooKeeper of tenants, namespaces and policies: empty, or the same as metadataStoreUrl.",
    )
    bookkeeper_metadata_service_uri: str = setting(
        "bookkeeperMetadataServiceUri",
        "",
        "Metadata of the bookies: zk+null://host:port/ledgers. Empty: /ledgers in the ZooKeeper of the cluster.",
    )
    metadata_store_session_timeout_millis: int = setting(
        "metadataStoreSessionTimeoutMillis",
        30000,
        "A broker that ZooKeeper has not heard of for so long is gone: others take over its topics.",
        unit="ms",
        minimum=1000,
    )
    metadata_store_operation_timeout_seconds: int = setting(
        "metadataStoreOperationTimeoutSeconds",
        30,
        "An operation that ZooKeeper has not answered for so long fails.",
        unit="s",
        minimum=1,
    )
    load_manager_class_name: str = setting(
        "loadManagerClassName",
        "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "How brokers of the cluster share its topics: the modular load manager, Apache Pulsar's default. All brokers "
        "must have the same.",
    )
    standstill_guard_enabled: bool = setting(
        "standstillGuardEnabled",
        True,
        "A second, small process ends this broker when it has stood still (suspended, or in a call that never returns) "
        "for two thirds of metadataStoreSessionTimeoutMillis: others serve its topics soon, its clients would wait.",
        source="Magnetar",
    )
