"""Settings of authentication and authorization."""

from magnetar.broker.setting_areas.setting import Table, setting, table

_PULSAR_AUTHORIZATION = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"


@table
class SecuritySettings(Table):
    """Authentication and authorization of clients."""

    authentication_enabled: bool = setting("authenticationEnabled", False, "Clients must prove a role.")
    authentication_providers: tuple[str, ...] = setting(
        "authenticationProviders",
        (),
        "Accepted proofs of a role: Apache Pulsar's class names (AuthenticationProviderToken, ...) or token, basic, "
        "tls.",
    )
    authentication_refresh_check_seconds: int = setting(
        "authenticationRefreshCheckSeconds",
        60,
        "How often expired credentials of live connections are looked for.",
        unit="s",
        minimum=1,
    )
    anonymous_user_role: str = setting(
        "anonymousUserRole", "", "Role of clients without credentials; empty: they are refused."
    )
    token_secret_key: str = setting(
        "tokenSecretKey",
        "",
        "Key of HMAC-signed tokens: data:;base64,<key>, file:///<path>, env:<name> or the base64 text itself.",
        secret=True,
    )
    token_public_key: str = setting("tokenPublicKey", "", "Public key of signed tokens, in the same forms; PEM or DER.")
    token_public_alg: str = setting(
        "tokenPublicAlg",
        "RS256",
        "Algorithm of tokens that the public key checks.",
        choices=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
    )
    token_auth_claim: str = setting("tokenAuthClaim", "sub", "Claim of a token that holds the role.")
    token_audience_claim: str = setting(
        "tokenAudienceClaim", "", "Claim that must hold the audience; empty: not checked."
    )
    token_audience: str = setting("tokenAudience", "", "Audience that tokens must be made for.")
    token_allowed_clock_skew_seconds: int = setting(
        "tokenAllowedClockSkewSeconds", 0, "How far exp and nbf of a token may be off.", unit="s", minimum=0
    )
    basic_auth_conf: str = setting(
        "basicAuthConf",
        "",
        "Users and passwords as in .htpasswd: file:///<path>, data:;base64,<text> or a path.",
        secret=True,
    )

    authorization_enabled: bool = setting("authorizationEnabled", False, "Roles need grants for their actions.")
    authorization_provider: str = setting(
        "authorizationProvider", _PULSAR_AUTHORIZATION, "Rules of authorization.", choices=(_PULSAR_AUTHORIZATION,)
    )
    authorization_allow_wildcards_matching: bool = setting(
        "authorizationAllowWildcardsMatching", False, "Roles in grants may begin or end with *."
    )
    allow_acl_changes_on_non_existent_topics: bool = setting(
        "allowAclChangesOnNonExistentTopics", False, "Topics that do not exist may have grants."
    )
    super_user_roles: tuple[str, ...] = setting("superUserRoles", (), "Roles that may do everything.")
    proxy_roles: tuple[str, ...] = setting("proxyRoles", (), "Roles that speak for other clients and must name them.")
    authenticate_original_auth_data: bool = setting(
        "authenticateOriginalAuthData", False, "Check the credentials of the client behind a proxy, not only its name."
    )
    authenticate_metrics_endpoint: bool = setting(
        "authenticateMetricsEndpoint", False, "/metrics needs credentials too."
    )
