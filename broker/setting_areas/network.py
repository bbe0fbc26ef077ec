"""Settings of listeners, connections, TLS and the data directory."""

from magnetar.broker.setting_areas.setting import Table, setting, table

_OWN = "Magnetar"
_PORT = 65535


@table
class NetworkSettings(Table):
    """Settings of listeners, advertised addresses, and limits of connections."""

    cluster_name: str = setting(
        "clusterName", "standalone", "Name of the cluster this broker is; label of every metric."
    )
    data_dir: str = setting(
        "dataDir",
        "./data",
        "Directory of everything that must survive: journal, ledgers, metadata. One broker at a time uses it.",
        source=_OWN,
    )
    broker_service_port: int | None = setting(
        "brokerServicePort",
        6650,
        "Port of the binary protocol; 0 picks a free port, empty turns it off.",
        minimum=0,
        maximum=_PORT,
    )
    broker_service_port_tls: int | None = setting(
        "brokerServicePortTls",
        None,
        "Port of the binary protocol over TLS; empty turns it off.",
        minimum=0,
        maximum=_PORT,
    )
    web_service_port: int | None = setting(
        "webServicePort",
        8080,
        "Port of the admin REST API, HTTP lookup and metrics; 0 picks a free port, empty turns it off.",
        minimum=0,
        maximum=_PORT,
    )
    web_service_port_tls: int | None = setting(
        "webServicePortTls", None, "Port of the same over TLS; empty turns it off.", minimum=0, maximum=_PORT
    )
    bind_address: str = setting(
        "bindAddress",
        "127.0.0.1",
        "Address the listeners bind to. Apache Pulsar's default is 0.0.0.0: every interface.",
        source=_OWN,
    )
    advertised_address: str = setting(
        "advertisedAddress",
        "",
        "Host that lookups give to clients. Empty: the bind address, or the host name if that is every interface.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        "advertisedListeners",
        (),
        "Addresses for clients that ask for a listener by name: <name>:pulsar://<host>:<port>, also pulsar+ssl, http, "
        "https. They beat advertisedAddress.",
    )
    internal_listener_name: str = setting(
        "internalListenerName",
        "",
        "Listener for clients that name none; empty: the first of advertisedListeners.",
    )

    ha_proxy_protocol_enabled: bool = setting(
        "haProxyProtocolEnabled",
        False,
        "Binary connections may begin with a PROXY header (version 1 or 2), over TLS behind the handshake; it names "
        "the client in statistics and logs. Only where a proxy alone reaches the port: the header is believed.",
    )

    max_message_size: int = setting(
        "maxMessageSize",
        5 * 1024 * 1024,
        "Largest payload with metadata that a producer may send; part of the answer to CONNECT.",
        unit="bytes",
        minimum=1024,
        maximum=1024**3,
    )
    keep_alive_interval_seconds: int = setting(
        "keepAliveIntervalSeconds",
        30,
        "The broker sends PING to a silent connection after this time and closes it after as much again.",
        unit="s",
        minimum=1,
    )
    connection_liveness_check_timeout_millis: int = setting(
        "connectionLivenessCheckTimeoutMillis",
        5000,
        "A connection silent to a PING for this long loses its place to a new exclusive client; 0 never asks.",
        unit="ms",
        minimum=0,
    )
    broker_max_connections: int = setting(
        "brokerMaxConnections",
        0,
        "Most connections at a time; 0, or more than the process has descriptors for, leaves it to RLIMIT_NOFILE. At "
        "the limit the connection that has proved no role for longest gives way.",
        unit="connections",
        minimum=0,
    )
    broker_max_connections_per_ip: int = setting(
        "brokerMaxConnectionsPerIp",
        0,
        "Most connections at a time from one address; 0 is unlimited.",
        unit="connections",
        minimum=0,
    )
    max_pending_publish_requests_per_connection: int = setting(
        "maxPendingPublishRequestsPerConnection",
        1000,
        "Reading from a connection pauses when SENDs come while this many are unanswered, and goes on at half of it.",
        unit="requests",
        minimum=1,
    )
    max_message_publish_buffer_size_in_mb: int = setting(
        "maxMessagePublishBufferSizeInMB",
        256,
        "Reading from publishing connections pauses while more than this waits for the disk.",
        unit="MiB",
        minimum=1,
        source=_OWN,
    )
    max_client_memory_in_mb: int = setting(
        "maxClientMemoryInMB",
        512,
        "Most memory that all clients together make the broker hold for unfinished frames and requests, unread "
        "answers, producers and consumers. An address gets half of it, a connection an eighth; beyond its share a "
        "connection waits.",
        unit="MiB",
        minimum=16,
        source=_OWN,
    )
    max_concurrent_topic_load_request: int = setting(
        "maxConcurrentTopicLoadRequest", 5000, "Topics being loaded at a time; more wait.", unit="topics", minimum=1
    )
    topic_load_timeout_seconds: int = setting(
        "topicLoadTimeoutSeconds", 60, "Loading a topic fails after this time.", unit="s", minimum=1
    )
    broker_shutdown_timeout_ms: int = setting(
        "brokerShutdownTimeoutMs",
        60000,
        "A stop that is not finished after this time ends the process anyway.",
        unit="ms",
        minimum=0,
    )
    max_http_server_connections: int = setting(
        "maxHttpServerConnections",
        2048,
        "Most HTTP connections at a time, at most a quarter of the descriptors. At the limit the broker closes the "
        "connection with the longest idle time; without idle connections health and metrics answer, and all other "
        "routes give 503.",
        unit="connections",
        minimum=1,
    )
    http_max_request_header_size: int = setting(
        "httpMaxRequestHeaderSize",
        8192,
        "Largest head of an HTTP request (path and headers); a larger head gets 431, an endless head 400.",
        unit="bytes",
        minimum=1024,
        maximum=1 << 20,
    )
    http_server_idle_timeout: int = setting(
        "httpServerIdleTimeout",
        30000,
        "An HTTP connection without a request is closed after this time, in whole seconds.",
        unit="ms",
        minimum=1000,
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        "httpAllowedHosts",
        (),
        "Further names by which clients and pages of yours reach the web port. Requests under a foreign name (Host), "
        "and changes requested by foreign pages (Origin), get 403. Addresses, names without a dot, reserved "
        "domains (.local, .internal) and the advertised names need no entry; * turns the check off.",
        source=_OWN,
    )
    console_enabled: bool = setting(
        "consoleEnabled",
        True,
        "Whether the web port serves the console under /ui. Without authenticationEnabled=true it opens on loopback "
        "addresses alone.",
        source=_OWN,
    )
    http_max_request_size: int = setting(
        "httpMaxRequestSize",
        16 * 1024 * 1024,
        "Largest body of an HTTP request; a larger body gets 413. Apache Pulsar's default is -1: no limit.",
        unit="bytes",
        minimum=-1,
        source=_OWN,
    )

    tls_certificate_file_path: str = setting(
        "tlsCertificateFilePath", "", "PEM file with the certificate (and chain) of the TLS listeners."
    )
    tls_key_file_path: str = setting("tlsKeyFilePath", "", "PEM file with the private key of that certificate.")
    tls_trust_certs_file_path: str = setting(
        "tlsTrustCertsFilePath", "", "PEM file with the certificates that client certificates are checked against."
    )
    tls_allow_insecure_connection: bool = setting(
        "tlsAllowInsecureConnection",
        False,
        "Accept client certificates of unknown authorities; they carry no identity.",
    )
    tls_require_trusted_client_cert_on_connect: bool = setting(
        "tlsRequireTrustedClientCertOnConnect", False, "Refuse TLS clients without a trusted certificate."
    )
    tls_protocols: tuple[str, ...] = setting(
        "tlsProtocols", (), "TLS versions to speak; empty: TLSv1.2 and TLSv1.3.", choices=("TLSv1.2", "TLSv1.3")
    )
    tls_ciphers: tuple[str, ...] = setting(
        "tlsCiphers",
        (),
        "Cipher suites of TLSv1.2, in IANA's or OpenSSL's names; empty: the library's choice. Those of TLSv1.3 are "
        "always all spoken.",
    )
    web_service_tls_protocols: tuple[str, ...] = setting(
        "webServiceTlsProtocols",
        (),
        "The same as tlsProtocols for the web port; empty: as those.",
        choices=("TLSv1.2", "TLSv1.3"),
    )
    web_service_tls_ciphers: tuple[str, ...] = setting(
        "webServiceTlsCiphers", (), "The same as tlsCiphers for the web port; empty: as those."
    )
    tls_cert_refresh_check_duration_sec: int = setting(
        "tlsCertRefreshCheckDurationSec",
        300,
        "Changed certificate files are read again after at most this time; 0 never.",
        unit="s",
        minimum=0,
    )
