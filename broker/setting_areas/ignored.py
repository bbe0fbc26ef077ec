"""Keys of Apache Pulsar 4.2 without effect here: the broker accepts its configuration files, with a note."""

from typing import Final

PREFIXES: Final = (
    "dbStorage_",
    "brokerClient_",
    "bookkeeper_",
    "metadataStore_",
    "functions_",
    "kafka_",
    "schemaRegistry_",
    "s3ManagedLedgerOffload",
    "gcsManagedLedgerOffload",
)

_IN_FORCE: Final = frozenset({"bookkeeper_tlsHostnameVerificationEnabled"})
"""Keys with an ignored prefix that the table of settings has, so that they do have an effect."""

IGNORED: Final = frozenset(
    """
additionalServletDirectory additionalSystemCursorNames aggregatePublisherStatsByProducerName
allowedTopicPropertyKeysForMetrics allowLoopback allowOverrideEntryFilters
bindAddresses bookieId bookiePort bookkeeperClientExposeStatsToPrometheus
bookkeeperClientHealthCheckErrorThresholdPerInterval
bookkeeperClientHealthCheckIntervalSeconds bookkeeperClientLimitStatsLogging
bookkeeperClientMinAvailableBookiesInIsolationGroups bookkeeperClientNumIoThreads bookkeeperClientNumWorkerThreads
bookkeeperClientSeparatedIoThreadsEnabled bookkeeperClientThrottleValue
bookkeeperEnableStickyReads bookkeeperExplicitLacIntervalInMills bookkeeperJournalDirectory
bookkeeperNumberOfChannelsPerBookie bookkeeperUseV2WireProtocol bootstrapNamespaces
brokerClientSslFactoryPlugin brokerClientSslFactoryPluginParams brokerClientSslProvider
brokerClientTlsCiphers brokerClientTlsEnabledWithKeyStore brokerClientTlsKeyStore
brokerClientTlsKeyStorePassword brokerClientTlsKeyStoreType brokerClientTlsProtocols brokerClientTlsTrustStore
brokerClientTlsTrustStorePassword brokerClientTlsTrustStoreType
brokerInterceptorsDirectory
brokerPublisherThrottlingTickTimeMillis brokerReplicationInactiveThresholdSeconds
brokerServiceCompactionPhaseOneLoopTimeInSeconds brokerServicePurgeInactiveFrequencyInSeconds
cacheEvictionByExpectedReadCount cacheEvictionByMarkDeletedPosition clusterMigrationAutoResourceCreation
clusterMigrationCheckDurationSeconds compactionRate compactionServiceFactoryClassName
configurationMetadataSyncEventTopic configurationStoreConfigPath configurationStoreServers
createTopicToRemoteClusterForReplication disableHttpDebugMethods diskCheckInterval
dispatcherDispatchMessagesInSubscriptionThread dispatcherEntryFilterRescheduledMessageDelay
dispatcherMinReadBatchSize dispatcherPauseOnAckStatePersistentEnabled dispatcherReadFailureBackoffInitialTimeInMs
dispatcherReadFailureBackoffMandatoryStopTimeInMs dispatcherReadFailureBackoffMaxTimeInMs
dispatcherRetryBackoffInitialTimeInMs dispatcherRetryBackoffMaxTimeInMs dispatchRateLimiterFactoryClassName
enableBusyWait enableNamespaceIsolationUpdateOnTime enablePackagesManagement enableReplicatedSubscriptions
enableRunBookieAutoRecoveryTogether enableRunBookieTogether entryFiltersDirectory exposeBundlesMetricsInPrometheus
exposeCustomTopicMetricLabelsEnabled exposeManagedCursorMetricsInPrometheus exposeManagedLedgerMetricsInPrometheus
exposePreciseBacklogInPrometheus exposePublisherStats exposeSubscriptionBacklogSizeInPrometheus
fileSystemProfilePath fileSystemURI flowOrQpsDifferenceThresholdPercentage flushInterval
functionsWorkerEnabled functionsWorkerEnablePackageManagement functionsWorkerServiceNarPackage gcWaitTime
globalZookeeperServers healthCheckMetricsUpdateTimeInSeconds httpRequestsFailOnUnknownPropertiesEnabled
httpServerAcceptQueueSize httpServerEnabled httpServerGzipCompressionExcludedPaths httpServerThreadPoolQueueSize
inflightSaslContextExpiryMs isRunningStandalone journalDirectories journalMaxGroupWaitMSec journalSyncData
jvmGCMetricsLoggerClassName keySharedUnblockingIntervalMs kinitCommand lazyCursorRecovery ledgerDirectories
ledgerStorageClass
loadBalancerBrokerComfortLoadLevelPercentage loadBalancerBrokerLoadDataTTLInSeconds loadBalancerBrokerLoadTargetStd
loadBalancerBrokerUnderloadedThresholdPercentage
loadBalancerDebugModeEnabled
loadBalancerHostUsageCheckIntervalMinutes
loadBalancerInFlightServiceUnitStateWaitingTimeInMillis
loadBalancerMaxNumberOfBrokerSheddingPerCycle loadBalancerMemoryResourceWeight
loadBalancerMultiPhaseBundleUnload
loadBalancerNamespaceBundleSplitConditionHitCountThreshold
loadBalancerPlacementStrategy
loadBalancerServiceUnitStateMaxConcurrentOverrides loadBalancerServiceUnitStateMonitorIntervalInSeconds
loadBalancerServiceUnitStateTombstoneDelayTimeInSeconds loadBalancerServiceUnitTableViewSyncer
loadBalancerSheddingBundlesWithPoliciesEnabled loadBalancerSheddingConditionHitCountThreshold
loadBalancerTransferEnabled
loadBalanceSheddingDelayInSeconds loadManagerServiceUnitStateTableViewClassName
lookupPropertyPrefix majorCompactionInterval
managedCursorInfoCompressionThresholdInBytes managedCursorInfoCompressionType managedLedgerAddEntryTimeoutSeconds
managedLedgerCacheCopyEntries managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes
managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed managedLedgerCacheEvictionFrequency
managedLedgerCacheEvictionIntervalMs managedLedgerCacheEvictionTimeThresholdMillis
managedLedgerCacheEvictionWatermark managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis
managedLedgerCursorBackloggedThreshold managedLedgerCursorPositionFlushSeconds
managedLedgerCursorResetLedgerCloseTimestampMaxClockSkewMillis managedLedgerCursorRolloverTimeInSeconds
managedLedgerDataReadPriority managedLedgerDeleteMaxConcurrentRequests
managedLedgerForceRecovery managedLedgerInactiveOffloadedLedgerEvictionTimeSeconds
managedLedgerInfoCompressionThresholdInBytes managedLedgerInfoCompressionType managedLedgerMaxAckQuorum
managedLedgerMaxBacklogBetweenCursorsForCaching managedLedgerMaxBatchDeletedIndexToPersist
managedLedgerMaxEnsembleSize managedLedgerMaxReadsInFlightPermitsAcquireQueueSize
managedLedgerMaxReadsInFlightPermitsAcquireTimeoutMillis managedLedgerMaxUnackedRangesToPersist
managedLedgerMaxUnackedRangesToPersistInMetadataStore managedLedgerMaxUnackedRangesToPersistInZooKeeper
managedLedgerMaxWriteQuorum managedLedgerMetadataOperationsTimeoutSeconds
managedLedgerMinimumBacklogCursorsForCaching managedLedgerMinimumBacklogEntriesForCaching
managedLedgerNewEntriesCheckDelayInMillis managedLedgerNumSchedulerThreads
managedLedgerOffloadAutoTriggerSizeThresholdBytes managedLedgerOffloadBucket managedLedgerOffloadDeletionLagMs
managedLedgerOffloadDriver managedLedgerOffloadMaxBlockSizeInBytes managedLedgerOffloadMaxThreads
managedLedgerOffloadPrefetchRounds managedLedgerOffloadReadBufferSizeInBytes managedLedgerOffloadReadThreads
managedLedgerOffloadRegion managedLedgerOffloadServiceEndpoint managedLedgerOffloadThresholdInSeconds
managedLedgerPersistIndividualAckAsLongArray
managedLedgerPrometheusStatsLatencyRolloverSeconds managedLedgerReadEntryTimeoutSeconds
managedLedgerStatsPeriodSeconds managedLedgerStorageClassName managedLedgerTraceTaskExecution
managedLedgerUnackedRangesOpenCacheSetEnabled maxActiveTransactionsPerCoordinator
maxConcurrentNonPersistentMessagePerConnection maxInflightSaslContext maxMessageSizeCheckIntervalInSeconds
maxSecondsToClearTopicNameCache maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize
maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize
maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis
metadataStoreAllowReadOnlyOperations metadataStoreBatchingEnabled metadataStoreBatchingMaxDelayMillis
metadataStoreBatchingMaxOperations metadataStoreBatchingMaxSizeKb metadataStoreCacheExpirySeconds
metadataStoreSerDesThreads
metadataSyncEventTopic metricsBufferResponse
metricsServletTimeoutMs minorCompactionInterval
namespaceBundleUnloadingTimeoutMs narExtractionDirectory nettyMaxFrameSizeBytes numAcceptorThreads
numCacheExecutorThreadPoolSize numExecutorThreadPoolSize numHttpServerThreads numIOThreads numOrderedExecutorThreads
numTransactionReplayThreadPoolSize numWorkerThreadsForNonPersistentTopic offloadersDirectory
packagesManagementLedgerRootPath packagesManagementStorageProvider packagesReplicas
persistentUnackedRangesWithMultipleEntriesEnabled preciseDispatcherFlowControl preciseTopicPublishRateLimiterEnable
preferLaterVersions prometheusStatsHttpPort protocolHandlerDirectory pulsarChannelPauseReceivingCooldownMs
pulsarChannelPauseReceivingCooldownRateLimitPeriodMs pulsarChannelPauseReceivingCooldownRateLimitPermits
pulsarChannelPauseReceivingRequestsIfUnwritable pulsarChannelWriteBufferHighWaterMark
pulsarChannelWriteBufferLowWaterMark pulsarResourcesExtendedClassName replicatedSubscriptionsSnapshotFrequencyMillis
replicatedSubscriptionsSnapshotMaxCachedPerSubscription replicatedSubscriptionsSnapshotTimeoutSeconds
replicationConnectionsPerBroker replicationMetricsEnabled replicationPolicyCheckDurationSeconds
replicationProducerQueueSize replicationStartAt replicationTlsEnabled replicatorPrefix
resourceUsageTransportClassName resourceUsageTransportPublishIntervalInSecs saslJaasClientAllowedIds
saslJaasServerSectionName schemaJsonAllowLegacyJacksonFormat schemaLedgerForceRecovery
schemaRegistryCompatibilityCheckers schemaRegistryStorageClassName skipBrokerShutdownOnOOM sslFactoryPluginParams
statsUpdateInitialDelayInSecs
subscriptionKeySharedUseClassicPersistentImplementation subscriptionRedeliveryTrackerEnabled
subscriptionSharedUseClassicPersistentImplementation supportedNamespaceBundleSplitAlgorithms systemTopicEnabled
systemTopicSchemaCompatibilityStrategy tlsKeyStorePassword tlsKeyStoreType
tlsProvider tlsTrustStorePassword tlsTrustStoreType topicBundleAssignmentStrategy topicCompactionRetainNullKey
topicFactoryClassName topicFencingTimeoutSeconds topicNameCacheMaxCapacity topicOrderedExecutorThreadNum
topicPoliciesCacheInitTimeoutSeconds topicPolicyListenerReplayEnabled
topicPublisherThrottlingTickTimeMillis topicsPatternRegexImplementation transactionBufferClientMaxConcurrentRequests
transactionBufferClientOperationTimeoutInMills transactionBufferProviderClassName
transactionBufferSegmentedSnapshotEnabled transactionBufferSnapshotMaxTransactionCount
transactionBufferSnapshotMinTimeInMillis transactionBufferSnapshotSegmentSize transactionCoordinatorEnabled
transactionLogBatchedWriteEnabled transactionLogBatchedWriteMaxDelayInMillis transactionLogBatchedWriteMaxRecords
transactionLogBatchedWriteMaxSize transactionMetadataStoreProviderClassName transactionPendingAckBatchedWriteEnabled
transactionPendingAckBatchedWriteMaxDelayInMillis transactionPendingAckBatchedWriteMaxRecords
transactionPendingAckBatchedWriteMaxSize transactionPendingAckLogIndexMinLag
transactionPendingAckStoreProviderClassName triggerOffloadOnTopicLoad unblockStuckSubscriptionEnabled
useSeparateThreadPoolForProtocolHandlers webServiceLogDetailedAddresses webServiceTlsProvider
webServiceTrustXForwardedFor webSocketConnectionsPerBroker webSocketNumIoThreads
webSocketNumServiceThreads webSocketPulsarClientMemoryLimitInMB zkServers
zooKeeperAllowReadOnlyOperations zooKeeperCacheExpirySeconds
zooKeeperOperationTimeoutSeconds zookeeperServers zookeeperSessionExpiredPolicy zooKeeperSessionTimeoutMillis
""".split()  # noqa: SIM905 - one name per line would be 400 lines
)

# keys of earlier versions that Apache Pulsar 4.2 no longer knows and that clients' own test brokers set
OLDER: Final = frozenset(
    {"clientLibraryVersionCheckAllowUnversioned", "loadBalancerNamespaceBundleSplitIntervalMinutes"}
)


_COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "managedCursorInfoCompressionType": _COMPRESSIONS,
    "managedLedgerInfoCompressionType": _COMPRESSIONS,
}
"""Values of ignored keys with which Apache Pulsar starts: another value, or another case, ends the start there."""


def is_ignored(key: str) -> bool:
    """Whether Apache Pulsar has this key and Magnetar ignores it."""
    return key in IGNORED or key in OLDER or (key.startswith(PREFIXES) and key not in _IN_FORCE)


NOTHING_TO_PROTECT: Final[dict[str, str]] = {
    # --- parts of Apache Pulsar that are not here (prefixes end with *)
    "bookkeeper*": "there are no bookies",
    "brokerClient*": "PEM files and the defaults of this platform are used",
    "loadBalanc*": "there is one broker",
    "managedLedgerOffload*": "there is no offloading",
    "metadataStore*": "metadata are in the data directory",
    "zooKeeper*": "metadata are in the data directory",
    "zookeeper*": "metadata are in the data directory",
    "packages*": "there are no packages",
    "replicat*": "there is no replication",
    "transaction*": "transactions are refused",
    "webSocket*": "WebSocket sessions are part of the broker",
    "maxActiveTransactionsPerCoordinator": "transactions are refused",
    "maxInflightSaslContext": "the SASL provider is refused",
    "saslJaasClientAllowedIds": "the SASL provider is refused",
    "flowOrQpsDifferenceThresholdPercentage": "there is one broker",
    "topicBundleAssignmentStrategy": "there is one broker",
    "namespaceBundleUnloadingTimeoutMs": "there is one broker",
    "brokerReplicationInactiveThresholdSeconds": "there is no replication",
    "clusterMigrationCheckDurationSeconds": "there is no migration",
    "managedLedgerMaxEnsembleSize": "entries have one copy",
    "managedLedgerMaxWriteQuorum": "entries have one copy",
    "managedLedgerMaxAckQuorum": "entries have one copy",
    "managedLedgerDeleteMaxConcurrentRequests": "ledgers are deleted one by one",
    "useSeparateThreadPoolForProtocolHandlers": "Java protocol handlers are refused",
    "allowOverrideEntryFilters": "Java filters are refused",
    "tlsKeyStoreType": "key stores are refused",
    "tlsKeyStorePassword": "key stores are refused",
    "tlsTrustStoreType": "trust stores are refused",
    "tlsTrustStorePassword": "trust stores are refused",
    "sslFactoryPluginParams": "TLS plugins are refused",
    "tlsProvider": "OpenSSL is the one provider",
    "webServiceTlsProvider": "OpenSSL is the one provider",
    # --- kept in another way, or more strictly
    "disableHttpDebugMethods": "TRACE and TRACK are always refused",
    "nettyMaxFrameSizeBytes": "maxMessageSize decides",
    "maxConcurrentNonPersistentMessagePerConnection": "limits of pending publishes bound those that wait",
    "maxMessageSizeCheckIntervalInSeconds": "a policy's maximum is in force at once",
    "schemaRegistryCompatibilityCheckers": "every kind of schema has its checker",
    "systemTopicSchemaCompatibilityStrategy": "there are no system topics",
    "schemaJsonAllowLegacyJacksonFormat": "only Avro's form is taken for JSON schemas",
    "diskCheckInterval": "the disk is looked at every ten seconds",
    "journalMaxGroupWaitMSec": "group commit waits for nothing",
    "allowLoopback": "bindAddress decides",
    "managedLedgerMaxUnackedRangesToPersist*": "all acknowledgements are kept, however many ranges they are",
    "managedLedgerMaxBatchDeletedIndexToPersist": "all acknowledgements are kept",
    "topicFencingTimeoutSeconds": "a fenced topic opens again by itself or its broker ends",
    "managedLedgerAddEntryTimeoutSeconds": "an append ends with the disk's answer; a failed disk ends the broker",
    "managedLedgerReadEntryTimeoutSeconds": "a read ends with the disk's answer",
    "managedLedgerMetadataOperationsTimeoutSeconds": "metadata are on the same disk",
    "metricsServletTimeoutMs": "/metrics is written at once",
    # --- tuning of caches, ticks and queues, without a bound that operators could rely on
    "*TickTimeMillis": "rates are buckets, without a tick",
    "dispatchRateLimiterFactoryClassName": "rates are token buckets",
    "preciseTopicPublishRateLimiterEnable": "rates are always precise",
    "dispatcherRe*": "the pause after a failed read or an empty turn",
    "pulsarChannelPauseReceiving*": "a connection whose output is full is never read",
    "maxTopicListInFlight*Permits*": "a queue of the limit that is refused",
    "managedLedgerMaxReadsInFlightPermits*": "a queue of the limit that is refused",
    "managedLedgerCache*": "managedLedgerCacheSizeMB is the bound",
    "managedLedgerCursor*": "when a cursor counts as backlogged, and clock skew of an offload",
    "managedLedgerMaxBacklogBetweenCursorsForCaching": "managedLedgerCacheSizeMB is the bound",
    "managedLedgerNewEntriesCheckDelayInMillis": "new entries are dispatched at once",
    "*InfoCompressionThresholdInBytes": "metadata are not compressed",
    "compactionRate": "of bookies' garbage collection",
    "topicNameCacheMaxCapacity": "the cache of names has a separate bound",
    "maxSecondsToClearTopicNameCache": "the cache of names has a separate bound",
    "topicPoliciesCacheInitTimeoutSeconds": "policies are in memory before the broker listens",
    "allowedTopicPropertyKeysForMetrics": "metrics have no labels of properties",
    "healthCheckMetricsUpdateTimeInSeconds": "every request for the health runs the check",
}
"""Keys whose names sound like protections or limits, each with the reason why the broker needs no such protection.
"""
