"""Settings of `magnetar broker`: the services that brokers of one cluster share."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class ClusterSettings(Table):
    """The places of metadata and ledgers, for `magnetar broker`. A standalone broker keeps both in its data
    directory.
    """

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
    managed_ledger_digest_type: str = setting(
        "managedLedgerDigestType",
        "CRC32C",
        "Digest of the entries of new ledgers on bookies; MAC is HMAC-SHA1, DUMMY none, which leaves damage unnoticed.",
        choices=("CRC32C", "CRC32", "MAC", "DUMMY"),
    )
    metadata_store_session_timeout_millis: int = setting(
        "metadataStoreSessionTimeoutMillis",
        30000,
        "When a broker sends ZooKeeper nothing for so long, other brokers take over its topics.",
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
    metadata_store_config_path: str = setting(
        "metadataStoreConfigPath",
        "",
        "File with ZooKeeper's own client settings, for TLS: zookeeper.client.secure=true, "
        "zookeeper.ssl.trustStore.location and zookeeper.ssl.keyStore.location (PEM).",
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
    topic_policies_service_class_name: str = setting(
        "topicPoliciesServiceClassName",
        "org.apache.pulsar.broker.service.SystemTopicBasedTopicPoliciesService",
        "Where brokers of a cluster keep policies of topics: in a topic of each namespace. All must have the same.",
    )
    broker_client_authentication_plugin: str = setting(
        "brokerClientAuthenticationPlugin",
        "",
        "The credentials with which this broker proves itself to the brokers of its cluster, itself among "
        "them: token, basic or tls, or the class AuthenticationToken, AuthenticationBasic or AuthenticationTls of "
        "Apache Pulsar's client.",
    )
    broker_client_authentication_parameters: str = setting(
        "brokerClientAuthenticationParameters",
        "",
        "Its parameters: token:... or file:///path; user:password; tlsCertFile:path,tlsKeyFile:path.",
        secret=True,
    )
    broker_client_tls_enabled: bool = setting(
        "brokerClientTlsEnabled", False, "Connect to the brokers of the cluster by TLS where they have it."
    )
    broker_client_trust_certs_file_path: str = setting(
        "brokerClientTrustCertsFilePath", "", "Authorities (PEM) of the brokers of the cluster; empty: the system's."
    )
    broker_client_certificate_file_path: str = setting(
        "brokerClientCertificateFilePath", "", "Certificate (PEM) shown to the brokers of the cluster."
    )
    broker_client_key_file_path: str = setting("brokerClientKeyFilePath", "", "Key (PEM) of that certificate.")
    tls_hostname_verification_enabled: bool = setting(
        "tlsHostnameVerificationEnabled",
        False,
        "Require that a broker of the cluster has the name of its address in its certificate.",
    )
