"""Settings of ways to the broker other than the binary protocol and the REST API."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class DoorSettings(Table):
    """Settings of WebSocket sessions, and of the fault kit for tests."""

    web_socket_service_enabled: bool = setting(
        "webSocketServiceEnabled",
        False,
        "Serve producers, consumers and readers over WebSockets below /ws of the web port.",
    )
    web_socket_max_text_frame_size: int = setting(
        "webSocketMaxTextFrameSize",
        1 << 20,
        "Largest message of a WebSocket client; a larger message closes its session with 1009.",
        unit="bytes",
        minimum=1024,
        maximum=128 << 20,
    )
    web_socket_session_idle_timeout_millis: int = setting(
        "webSocketSessionIdleTimeoutMillis",
        300000,
        "A WebSocket session in which nothing came or went for this time is closed with 1001; 0 never.",
        unit="ms",
        minimum=0,
    )
    web_socket_ping_duration_seconds: int = setting(
        "webSocketPingDurationSeconds",
        -1,
        "WebSocket clients are sent a PING this often, so that idle sessions stay; 0 or less never.",
        unit="s",
        minimum=-1,
    )
    fault_kit_port: int | None = setting(
        "faultKitPort",
        None,
        "Port on 127.0.0.1 of the fault kit, which lets tests cause faults; 0 picks a free port, empty turns the kit "
        "off. Every client that reaches it may do anything: never in production.",
        minimum=0,
        maximum=65535,
        source="Magnetar",
    )
