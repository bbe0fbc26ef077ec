"""Settings of how the brokers of a cluster share its load."""

from magnetar.broker.setting_areas.setting import Table, setting, table


@table
class BalancingSettings(Table):
    """Settings of the balancing of load by the leader of a cluster. Without effect on a broker without a cluster."""

    load_balancer_enabled: bool = setting("loadBalancerEnabled", True, "The leader moves and splits bundles by load.")
    load_balancer_shedding_enabled: bool = setting(
        "loadBalancerSheddingEnabled", True, "The leader has brokers that are loaded above the average give up bundles."
    )
    load_balancer_shedding_interval_minutes: int = setting(
        "loadBalancerSheddingIntervalMinutes",
        1,
        "How often the leader compares the load of the brokers.",
        unit="min",
        minimum=1,
    )
    load_balancer_shedding_grace_period_minutes: int = setting(
        "loadBalancerSheddingGracePeriodMinutes",
        30,
        "A bundle that was moved for load stays where it is for so long.",
        unit="min",
        minimum=0,
    )
    load_balancer_shedding_excluded_namespaces: tuple[str, ...] = setting(
        "loadBalancerSheddingExcludedNamespaces",
        (),
        "Namespaces (tenant/namespace) whose bundles are not moved for load; brokers take turns for them.",
    )
    load_balancer_broker_threshold_shedder_percentage: int = setting(
        "loadBalancerBrokerThresholdShedderPercentage",
        10,
        "A broker whose usage is so much above the average gives up bundles.",
        unit="%",
        minimum=0,
        maximum=100,
    )
    load_balancer_history_resource_percentage: float = setting(
        "loadBalancerHistoryResourcePercentage",
        0.9,
        "Share of the earlier figures in the smoothed usage of a broker.",
        unit="share",
        minimum=0,
        maximum=1,
    )
    load_balancer_bandwidth_in_resource_weight: float = setting(
        "loadBalancerBandwidthInResourceWeight",
        1.0,
        "Weight of incoming traffic in the usage of a broker.",
        unit="weight",
        minimum=0,
    )
    load_balancer_bandwidth_out_resource_weight: float = setting(
        "loadBalancerBandwidthOutResourceWeight",
        1.0,
        "Weight of outgoing traffic in the usage of a broker.",
        unit="weight",
        minimum=0,
    )
    load_balancer_bandwith_in_resource_weight: float = setting(
        "loadBalancerBandwithInResourceWeight",
        1.0,
        "Former name of loadBalancerBandwidthInResourceWeight: counts while that is 1.",
        unit="weight",
        minimum=0,
    )
    load_balancer_bandwith_out_resource_weight: float = setting(
        "loadBalancerBandwithOutResourceWeight",
        1.0,
        "Former name of loadBalancerBandwidthOutResourceWeight: counts while that is 1.",
        unit="weight",
        minimum=0,
    )
    load_balancer_cpu_resource_weight: float = setting(
        "loadBalancerCPUResourceWeight",
        1.0,
        "Weight of processor time in the usage of a broker.",
        unit="weight",
        minimum=0,
    )
    load_balancer_direct_memory_resource_weight: float = setting(
        "loadBalancerDirectMemoryResourceWeight",
        0.0,
        "Weight of memory that clients make a broker hold.",
        unit="weight",
        minimum=0,
    )
    load_balancer_bundle_unload_min_throughput_threshold: float = setting(
        "loadBalancerBundleUnloadMinThroughputThreshold",
        10.0,
        "A broker that would give up less traffic than this keeps its bundles.",
        unit="MiB/s",
        minimum=0,
    )
    load_balancer_auto_bundle_split_enabled: bool = setting(
        "loadBalancerAutoBundleSplitEnabled",
        True,
        "The leader has bundles split that are beyond one of the limits below.",
    )
    load_balancer_auto_unload_split_bundles_enabled: bool = setting(
        "loadBalancerAutoUnloadSplitBundlesEnabled", True, "The parts of such a bundle find owners anew."
    )
    load_balancer_split_interval_minutes: int = setting(
        "loadBalancerSplitIntervalMinutes", 1, "How often the leader looks for such bundles.", unit="min", minimum=1
    )
    load_balancer_max_number_of_bundles_to_split_per_cycle: int = setting(
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle",
        10,
        "Bundles that are split at one time.",
        unit="bundles",
        minimum=1,
    )
    load_balancer_namespace_bundle_max_topics: int = setting(
        "loadBalancerNamespaceBundleMaxTopics", 1000, "Topics of a bundle.", unit="topics", minimum=1
    )
    load_balancer_namespace_bundle_max_sessions: int = setting(
        "loadBalancerNamespaceBundleMaxSessions",
        1000,
        "Producers and consumers of a bundle.",
        unit="sessions",
        minimum=1,
    )
    load_balancer_namespace_bundle_max_msg_rate: int = setting(
        "loadBalancerNamespaceBundleMaxMsgRate",
        30000,
        "Messages per second in and out of a bundle.",
        unit="messages/s",
        minimum=1,
    )
    load_balancer_namespace_bundle_max_bandwidth_mbytes: int = setting(
        "loadBalancerNamespaceBundleMaxBandwidthMbytes", 100, "Traffic in and out of a bundle.", unit="MiB/s", minimum=1
    )
    lower_boundary_shedding_enabled: bool = setting(
        "lowerBoundarySheddingEnabled",
        False,
        "ThresholdShedder: where no broker is far above the average, the broker used most gives bundles to brokers far "
        "below it.",
    )
    load_balancer_broker_overloaded_threshold_percentage: int = setting(
        "loadBalancerBrokerOverloadedThresholdPercentage",
        85,
        "A broker of which a resource, by its weight, is used further gets bundles when all brokers are; "
        "OverloadShedder: it gives up bundles.",
        unit="%",
        minimum=0,
        maximum=100,
    )
    load_balancer_msg_rate_difference_shedder_threshold: float = setting(
        "loadBalancerMsgRateDifferenceShedderThreshold",
        50.0,
        "UniformLoadShedder: the broker with most messages gives up bundles when it has so much more than that with "
        "least; 0 = never.",
        unit="%",
        minimum=0,
    )
    load_balancer_msg_throughput_multiplier_difference_shedder_threshold: float = setting(
        "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold",
        4.0,
        "UniformLoadShedder: the same by traffic, when the broker has so many times the least traffic of a broker; 0 = "
        "never.",
        unit="times",
        minimum=0,
    )
    max_unload_percentage: float = setting(
        "maxUnloadPercentage",
        0.2,
        "UniformLoadShedder: so much of the difference is given up at once.",
        unit="share",
        minimum=0,
        maximum=1,
    )
    min_unload_message: int = setting(
        "minUnloadMessage",
        1000,
        "UniformLoadShedder: fewer messages are not worth a move.",
        unit="messages/s",
        minimum=0,
    )
    min_unload_message_throughput: int = setting(
        "minUnloadMessageThroughput",
        2**20,
        "UniformLoadShedder: less traffic is not worth a move.",
        unit="bytes/s",
        minimum=0,
    )
    max_unload_bundle_num_per_shedding: int = setting(
        "maxUnloadBundleNumPerShedding",
        -1,
        "UniformLoadShedder: bundles given up at once; -1 = as many as it takes.",
        unit="bundles",
        minimum=-1,
    )
    load_balancer_broker_max_topics: int = setting(
        "loadBalancerBrokerMaxTopics",
        50_000,
        "A broker with more topics gets no bundles while others have fewer.",
        unit="topics",
        minimum=0,
    )
    load_balancer_distribute_bundles_evenly_enabled: bool = setting(
        "loadBalancerDistributeBundlesEvenlyEnabled",
        True,
        "A bundle goes to one of the brokers with fewest bundles of its namespace.",
    )
    failure_domains_enabled: bool = setting(
        "failureDomainsEnabled",
        False,
        "Namespaces of one anti-affinity group are spread over the failure domains of the cluster first.",
    )
    load_balancer_report_update_min_interval_millis: int = setting(
        "loadBalancerReportUpdateMinIntervalMillis",
        5000,
        "How often a broker looks whether its load report has changed.",
        unit="ms",
        minimum=100,
    )
    load_balancer_report_update_max_interval_minutes: int = setting(
        "loadBalancerReportUpdateMaxIntervalMinutes",
        15,
        "A load report is written after this time, changed or not.",
        unit="min",
        minimum=1,
    )
    load_balancer_report_update_threshold_percentage: int = setting(
        "loadBalancerReportUpdateThresholdPercentage",
        10,
        "A load report is written when usage, messages, traffic or bundles have changed by more.",
        unit="%",
        minimum=0,
    )
    load_balancer_override_broker_nics: tuple[str, ...] = setting(
        "loadBalancerOverrideBrokerNics",
        (),
        "Network interfaces whose traffic the load report has; empty: the physical interfaces.",
    )
    load_balancer_override_broker_nic_speed_gbps: float = setting(
        "loadBalancerOverrideBrokerNicSpeedGbps",
        0.0,
        "Speed of each network interface; 0 = as the machine states it.",
        unit="Gbit/s",
        minimum=0,
    )
    load_balancer_namespace_maximum_bundles: int = setting(
        "loadBalancerNamespaceMaximumBundles",
        128,
        "A namespace with so many bundles gets no more by itself.",
        unit="bundles",
        minimum=1,
    )
    load_balancer_avg_shedder_low_threshold: int = setting(
        "loadBalancerAvgShedderLowThreshold",
        15,
        "AvgShedder: two brokers whose usage differs by so much, several times in a row, share their load.",
        unit="%",
        minimum=0,
        maximum=100,
    )
    load_balancer_avg_shedder_high_threshold: int = setting(
        "loadBalancerAvgShedderHighThreshold",
        40,
        "AvgShedder: the same for a difference that counts after fewer times.",
        unit="%",
        minimum=0,
        maximum=100,
    )
    load_balancer_avg_shedder_hit_count_low_threshold: int = setting(
        "loadBalancerAvgShedderHitCountLowThreshold",
        8,
        "AvgShedder: comparisons in a row with a difference beyond loadBalancerAvgShedderLowThreshold.",
        unit="comparisons",
        minimum=1,
    )
    load_balancer_avg_shedder_hit_count_high_threshold: int = setting(
        "loadBalancerAvgShedderHitCountHighThreshold",
        2,
        "AvgShedder: comparisons in a row with a difference beyond loadBalancerAvgShedderHighThreshold.",
        unit="comparisons",
        minimum=1,
    )
    load_balancer_resource_quota_update_interval_minutes: int = setting(
        "loadBalancerResourceQuotaUpdateIntervalMinutes",
        15,
        "How often the leader writes the average load of bundles and brokers, for the next leader.",
        unit="min",
        minimum=1,
    )
    load_balancer_max_number_of_bundles_in_bundle_load_report: int = setting(
        "loadBalancerMaxNumberOfBundlesInBundleLoadReport",
        10,
        "Bundles for each broker whose average load the leader writes, those with most load; 0 = all.",
        unit="bundles",
        minimum=-1,
    )
    load_balancer_load_shedding_strategy: str = setting(
        "loadBalancerLoadSheddingStrategy",
        "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder",
        "How the leader finds bundles to move: ThresholdShedder, OverloadShedder, UniformLoadShedder, AvgShedder.",
    )
    load_balancer_load_placement_strategy: str = setting(
        "loadBalancerLoadPlacementStrategy",
        "org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate",
        "How the leader finds the owner of a bundle: LeastLongTermMessageRate, LeastResourceUsageWithWeight, "
        "RoundRobinBrokerSelector, or AvgShedder with the shedding strategy of that name.",
    )
    load_balancer_average_resource_usage_difference_threshold_percentage: int = setting(
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage",
        10,
        "LeastResourceUsageWithWeight: a bundle goes to a broker whose usage is so much below the average, if there is "
        "one.",
        unit="%",
        minimum=0,
        maximum=100,
    )
