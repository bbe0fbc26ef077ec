"""Settings of `magnetar broker`: how it uses the bookies of the cluster."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class BookieSettings(Table):
    """The client of Apache BookKeeper within `magnetar broker`: deadlines, and which bookies a ledger gets. A
    standalone broker has no bookies.
    """

    bookkeeper_client_timeout_in_seconds: int = setting(
        "bookkeeperClientTimeoutInSeconds",
        5,
        "A bookie that has not answered an add or a read for so long counts as failed. Apache Pulsar waits 30 seconds.",
        unit="s",
        minimum=1,
        source="Magnetar",
    )
    bookkeeper_client_speculative_read_timeout_in_millis: int = setting(
        "bookkeeperClientSpeculativeReadTimeoutInMillis",
        1000,
        "A read that has no answer after this time goes to the next replica too; 0: after an error alone, as in "
        "Apache Pulsar.",
        unit="ms",
        minimum=0,
        source="Magnetar",
    )
    bookkeeper_client_health_check_enabled: bool = setting(
        "bookkeeperClientHealthCheckEnabled",
        True,
        "A bookie that failed an add gets no new ledgers for a while, as long as others do for them.",
    )
    bookkeeper_client_health_check_quarantine_time_in_seconds: int = setting(
        "bookkeeperClientHealthCheckQuarantineTimeInSeconds",
        60,
        "How long that is. Apache Pulsar, which counts five failures in a minute first, takes 1800 seconds.",
        unit="s",
        minimum=0,
        source="Magnetar",
    )
    bookkeeper_client_quarantine_ratio: float = setting(
        "bookkeeperClientQuarantineRatio",
        1.0,
        "Chance of a bookie that failed an add to be left out so: less than 1 where many brokers see one failure.",
        unit="part",
        minimum=0,
        maximum=1,
    )
    bookkeeper_client_rackaware_policy_enabled: bool = setting(
        "bookkeeperClientRackawarePolicyEnabled",
        True,
        "The copies of an entry lie in different racks where there are racks enough. Racks are set by "
        "`admin bookies set-bookie-rack`.",
    )
    bookkeeper_client_regionaware_policy_enabled: bool = setting(
        "bookkeeperClientRegionawarePolicyEnabled",
        False,
        "The copies of an entry lie in different regions first, then in different racks; racks are named /region/rack.",
    )
    bookkeeper_client_min_num_racks_per_write_quorum: int = setting(
        "bookkeeperClientMinNumRacksPerWriteQuorum",
        2,
        "Racks that the copies of an entry need, the write quorum at most; in force by the next setting alone.",
        unit="racks",
        minimum=1,
    )
    bookkeeper_client_enforce_min_num_racks_per_write_quorum: bool = setting(
        "bookkeeperClientEnforceMinNumRacksPerWriteQuorum",
        False,
        "Create no ledger if its bookies have fewer racks; bookies without a rack get no ledgers then.",
    )
    bookkeeper_disk_weight_based_placement_enabled: bool = setting(
        "bookkeeperDiskWeightBasedPlacementEnabled",
        False,
        "Bookies with more free space on their disks get more ledgers, up to three times the share of the middle.",
    )
    bookkeeper_client_get_bookie_info_interval_seconds: int = setting(
        "bookkeeperClientGetBookieInfoIntervalSeconds",
        86_400,
        "How often the broker reads the free space of the bookies.",
        unit="s",
        minimum=1,
    )
    bookkeeper_client_get_bookie_info_retry_interval_seconds: int = setting(
        "bookkeeperClientGetBookieInfoRetryIntervalSeconds",
        60,
        "How long the broker waits for the next attempt after a bookie did not tell its free space.",
        unit="s",
        minimum=1,
    )
    bookkeeper_client_reorder_read_sequence_enabled: bool = setting(
        "bookkeeperClientReorderReadSequenceEnabled",
        True,
        "Reads go to replicas in the rack of this broker first, then to those in its region: the rack of a bookie that "
        "has the address of this broker.",
    )
    bookkeeper_client_isolation_groups: str = setting(
        "bookkeeperClientIsolationGroups",
        "",
        "Groups of bookies (a,b) for ledgers of namespaces without groups; empty: all bookies.",
    )
    bookkeeper_client_secondary_isolation_groups: str = setting(
        "bookkeeperClientSecondaryIsolationGroups",
        "",
        "Groups that serve as well while the groups of bookkeeperClientIsolationGroups have too few bookies.",
    )
    strict_bookie_affinity_enabled: bool = setting(
        "strictBookieAffinityEnabled",
        False,
        "Ledgers of namespaces that name no groups of bookies get bookies of no group alone.",
    )


@table
class BookieSecuritySettings(Table):
    """The credentials of `magnetar broker` for bookies and ZooKeeper, and the TLS of connections to bookies."""

    bookkeeper_tls_client_authentication: bool = setting(
        "bookkeeperTLSClientAuthentication",
        False,
        "Connections to bookies use TLS and show the certificate of the next settings; without it they are plain.",
    )
    bookkeeper_tls_provider_factory_class: str = setting(
        "bookkeeperTLSProviderFactoryClass",
        "org.apache.bookkeeper.tls.TLSContextFactory",
        "How TLS is made in Apache Pulsar; here by the TLS of this platform.",
        choices=("org.apache.bookkeeper.tls.TLSContextFactory",),
    )
    bookkeeper_tls_trust_certs_file_path: str = setting(
        "bookkeeperTLSTrustCertsFilePath", "", "Authorities of the bookies; empty: the system's."
    )
    bookkeeper_tls_trust_cert_types: str = setting(
        "bookkeeperTLSTrustCertTypes", "PEM", "Form of that file: PEM or PKCS12."
    )
    bookkeeper_tls_trust_store_password_path: str = setting(
        "bookkeeperTLSTrustStorePasswordPath", "", "File with the password of a PKCS12 file of authorities."
    )
    bookkeeper_tls_key_file_path: str = setting("bookkeeperTLSKeyFilePath", "", "Key shown to bookies.")
    bookkeeper_tls_key_file_type: str = setting(
        "bookkeeperTLSKeyFileType", "PEM", "Form of that file: PEM, or PKCS12 with the certificate in the same file."
    )
    bookkeeper_tls_key_store_password_path: str = setting(
        "bookkeeperTLSKeyStorePasswordPath", "", "File with the password of the key."
    )
    bookkeeper_tls_certificate_file_path: str = setting(
        "bookkeeperTLSCertificateFilePath", "", "Certificate (PEM) of the key; empty: in the file of the key."
    )
    bookkeeper_tls_hostname_verification_enabled: bool = setting(
        "bookkeeper_tlsHostnameVerificationEnabled",
        False,
        "Require that a bookie has the name of its address in its certificate.",
    )
    bookkeeper_tls_cert_files_refresh_duration_seconds: int = setting(
        "bookkeeperTlsCertFilesRefreshDurationSeconds",
        300,
        "How often these files are looked at for changes; new connections use the new files. 0: never.",
        unit="s",
        minimum=0,
    )
    bookkeeper_client_authentication_plugin: str = setting(
        "bookkeeperClientAuthenticationPlugin",
        "",
        "org.apache.bookkeeper.sasl.SASLClientProviderFactory: a user and a password (SASL DIGEST-MD5) for bookies.",
        choices=("", "org.apache.bookkeeper.sasl.SASLClientProviderFactory"),
    )
    bookkeeper_client_authentication_parameters_name: str = setting(
        "bookkeeperClientAuthenticationParametersName",
        "",
        "saslJaasClientSectionName: the next setting names the section of jaasLoginConfigPath.",
        choices=("", "saslJaasClientSectionName"),
    )
    bookkeeper_client_authentication_parameters: str = setting(
        "bookkeeperClientAuthenticationParameters", "", "Name of that section; empty: BookKeeper.", secret=True
    )
    jaas_login_config_path: str = setting(
        "jaasLoginConfigPath",
        "",
        "File with users and passwords in the form of Java's login configuration (java.security.auth.login.config): "
        "section BookKeeper for bookies, section Client for ZooKeeper. DigestLoginModule alone.",
        source="Magnetar",
    )
