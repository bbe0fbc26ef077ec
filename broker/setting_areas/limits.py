"""Settings of rates and of limits that all topics, subscriptions and requests share."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class LimitSettings(Table):
    """Rates that hold a client back, and limits that stop a subscription; 0 and -1 are unlimited."""

    max_publish_rate_per_topic_in_messages: int = setting(
        "maxPublishRatePerTopicInMessages",
        0,
        "Messages that the producers of one topic may send; connections over it are not read for a while.",
        unit="messages/s",
        minimum=-1,
    )
    max_publish_rate_per_topic_in_bytes: int = setting(
        "maxPublishRatePerTopicInBytes", 0, "The same in bytes.", unit="bytes/s", minimum=-1
    )
    broker_publisher_throttling_max_message_rate: int = setting(
        "brokerPublisherThrottlingMaxMessageRate",
        0,
        "Messages that the producers of all topics together may send.",
        unit="messages/s",
        minimum=-1,
    )
    broker_publisher_throttling_max_byte_rate: int = setting(
        "brokerPublisherThrottlingMaxByteRate", 0, "The same in bytes.", unit="bytes/s", minimum=-1
    )

    dispatch_throttling_rate_in_msg: int = setting(
        "dispatchThrottlingRateInMsg",
        0,
        "Messages sent to the consumers of all topics together.",
        unit="messages/s",
        minimum=-1,
    )
    dispatch_throttling_rate_in_byte: int = setting(
        "dispatchThrottlingRateInByte", 0, "The same in bytes.", unit="bytes/s", minimum=-1
    )
    dispatch_throttling_rate_per_topic_in_msg: int = setting(
        "dispatchThrottlingRatePerTopicInMsg",
        0,
        "Messages sent to the consumers of one topic, where no policy says otherwise.",
        unit="messages/s",
        minimum=-1,
    )
    dispatch_throttling_rate_per_topic_in_byte: int = setting(
        "dispatchThrottlingRatePerTopicInByte", 0, "The same in bytes.", unit="bytes/s", minimum=-1
    )
    dispatch_throttling_rate_per_subscription_in_msg: int = setting(
        "dispatchThrottlingRatePerSubscriptionInMsg",
        0,
        "Messages sent to the consumers of one subscription, where no policy says otherwise.",
        unit="messages/s",
        minimum=-1,
    )
    dispatch_throttling_rate_per_subscription_in_byte: int = setting(
        "dispatchThrottlingRatePerSubscriptionInByte", 0, "The same in bytes.", unit="bytes/s", minimum=-1
    )
    dispatch_throttling_rate_per_replicator_in_msg: int = setting(
        "dispatchThrottlingRatePerReplicatorInMsg",
        0,
        "Shown as the replicators' rate where no policy says otherwise; there are no replicators to limit.",
        unit="messages/s",
        minimum=-1,
    )
    dispatch_throttling_rate_per_replicator_in_byte: int = setting(
        "dispatchThrottlingRatePerReplicatorInByte", 0, "The same in bytes.", unit="bytes/s", minimum=-1
    )
    dispatch_throttling_rate_relative_to_publish_rate: bool = setting(
        "dispatchThrottlingRateRelativeToPublishRate",
        False,
        "Add the publish rate of the last period of statsUpdateFrequencyInSecs to the rates of topics and "
        "subscriptions above.",
    )
    dispatch_throttling_on_batch_message_enabled: bool = setting(
        "dispatchThrottlingOnBatchMessageEnabled", False, "Dispatch rates count a batch as one message."
    )
    dispatch_throttling_on_non_backlog_consumer_enabled: bool = setting(
        "dispatchThrottlingOnNonBacklogConsumerEnabled",
        True,
        "Dispatch rates hold for subscriptions with a backlog of less than 1000 entries too.",
    )

    subscribe_throttling_rate_per_consumer: int = setting(
        "subscribeThrottlingRatePerConsumer",
        0,
        "How often one consumer (address, name, id) may subscribe in a period.",
        unit="subscribes",
        minimum=-1,
    )
    subscribe_rate_period_per_consumer_in_second: int = setting(
        "subscribeRatePeriodPerConsumerInSecond", 30, "Length of that period.", unit="s", minimum=1
    )

    max_unacked_messages_per_broker: int = setting(
        "maxUnackedMessagesPerBroker",
        0,
        "At this many unacknowledged messages of all Shared and Key_Shared subscriptions together those that hold more "
        "than their share get no more, until half of it is acknowledged.",
        unit="messages",
        minimum=-1,
    )
    max_unacked_messages_per_subscription_on_broker_blocked: float = setting(
        "maxUnackedMessagesPerSubscriptionOnBrokerBlocked",
        0.16,
        "That share, as a part of maxUnackedMessagesPerBroker; a subscription goes on at half of it.",
        unit="part",
        minimum=0,
        maximum=1,
    )

    max_concurrent_lookup_request: int = setting(
        "maxConcurrentLookupRequest",
        50000,
        "Lookups, questions for partitions and for lists of topics of all clients in progress at a time; more are "
        "refused. 0 refuses all.",
        unit="requests",
        minimum=0,
    )
    http_requests_limit_enabled: bool = setting(
        "httpRequestsLimitEnabled", False, "Answer 429 to HTTP requests beyond httpRequestsMaxPerSecond."
    )
    http_requests_max_per_second: float = setting(
        "httpRequestsMaxPerSecond", 100.0, "HTTP requests of all clients together.", unit="requests/s", minimum=0.01
    )
