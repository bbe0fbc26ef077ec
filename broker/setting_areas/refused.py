"""Keys of Apache Pulsar 4.2 that protect or limit resources there and cannot do so here: refused at start.

An operator that sets such a key relies on its protection; a broker that ignored the key would run unprotected. So every
value except a harmless value (the default, or a value that turns the protection off) ends the start with the reason and
the remedy.
"""

from typing import Final, NamedTuple


class Refusal(NamedTuple):
    """Harmless values (compared without regard to case), and the remedy for other values.

    kept_by: keys that have the effect of the refused key when any of them is set.
    """

    harmless: tuple[str, ...]
    remedy: str
    kept_by: tuple[str, ...] = ()

    def allows(self, text: str) -> bool:
        """Whether the value is harmless; an empty value always is."""
        return not text or text.lower() in (value.lower() for value in self.harmless)


_OFF: Final = ("false",)
_NONE: Final = ("0", "-1")
_PEM: Final = "give PEM files by tlsCertificateFilePath, tlsKeyFilePath and tlsTrustCertsFilePath"

REFUSED: Final[dict[str, Refusal]] = {
    # --- TLS and authentication
    "tlsEnabled": Refusal(
        _OFF, "set brokerServicePortTls and webServicePortTls", ("brokerServicePortTls", "webServicePortTls")
    ),
    "tlsEnabledWithKeyStore": Refusal(_OFF, f"key stores are not read: {_PEM}"),
    "tlsKeyStore": Refusal((), f"key stores are not read: {_PEM}"),
    "tlsTrustStore": Refusal((), f"trust stores are not read: {_PEM}"),
    "sslFactoryPlugin": Refusal(
        ("org.apache.pulsar.common.util.DefaultPulsarSslFactory",), f"Java classes cannot be loaded: {_PEM}"
    ),
    "managedLedgerPassword": Refusal(
        (), "leave it out: ledgers have the empty password, as Apache Pulsar's by default"
    ),
    "strictAuthMethod": Refusal(_OFF, "leave it out; HTTP requests prove themselves by Authorization alone"),
    "tokenSettingPrefix": Refusal((), "leave it out and name the keys tokenSecretKey, tokenPublicKey, ... themselves"),
    "athenzDomainNames": Refusal((), "use one of the authenticationProviders token, basic, tls"),
    "saslJaasServerRoleTokenSignerSecretPath": Refusal((), "use one of the authenticationProviders token, basic, tls"),
    "authenticationRoleLoggingAnonymizer": Refusal(
        ("NONE",), "leave it out and restrict access to the log: roles are logged as they are"
    ),
    "webServiceHaProxyProtocolEnabled": Refusal(_OFF, "have the proxy forward plain HTTP to webServicePort"),
    "clientLibraryVersionCheckEnabled": Refusal(_OFF, "leave it out; clients are not told apart by their version"),
    # --- plugins for messages and requests
    "entryFilterNames": Refusal((), "leave it out; Java filters cannot be loaded and entries would pass unfiltered"),
    "brokerInterceptors": Refusal((), "leave it out; Java interceptors cannot be loaded"),
    "brokerEntryPayloadProcessors": Refusal((), "use messageConverters; Java payload processors cannot be loaded"),
    "additionalServlets": Refusal((), "leave it out; Java servlets cannot be loaded"),
    "messagingProtocols": Refusal((), "leave it out; Java protocol handlers cannot be loaded"),
    "strictTopicNameEnabled": Refusal(_OFF, "leave it out; short topic names stay valid"),
    "strictlyVerifySubscriptionName": Refusal(_OFF, "leave it out; every subscription name that is not blank is valid"),
    "subscriptionKeySharedEnable": Refusal(("true",), "take Key_Shared out of subscriptionTypesEnabled"),
    # --- limits
    "maxConcurrentHttpRequests": Refusal(("1024",), "set maxHttpServerConnections"),
    "maxTopicListInFlightHeapMemSizeMB": Refusal(("100",), "leave it out; set brokerMaxConnections"),
    "maxTopicListInFlightDirectMemSizeMB": Refusal(("100",), "leave it out; set brokerMaxConnections"),
    "managedLedgerMaxReadsInFlightSizeInMB": Refusal(_NONE, "set dispatcherMaxReadSizeBytes, which bounds each read"),
    "dispatchThrottlingForFilteredEntriesEnabled": Refusal(_OFF, "leave it out; entries are not filtered here"),
}
