"""Settings of Apache's broker that name a mechanism inside it which there is none of here.

Tools and test suites set them while a broker runs. They are taken, kept and shown, with a word that
nothing here goes by them: what they tune in Apache's broker is done here in another way, or needs
no tuning. A setting whose effect somebody would count on, such as one that keeps consumers out, is
not among them; it is refused.
"""

from __future__ import annotations

import re
from typing import Final

SHOWN_AS: Final = "settingsWithoutEffect"  # the key under which their names are listed
VALUE: Final = re.compile(r"[\w.,:;+-]{0,64}", re.ASCII)  # numbers, flags, words

_POOLS: Final = """
    ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
    adminBrokerThreadPoolQueueCapacity clientManageThreadPoolNums
    clientManagerThreadPoolQueueCapacity consumerManageThreadPoolNums
    consumerManagerThreadPoolQueueCapacity endTransactionPoolQueueCapacity
    endTransactionThreadPoolNums heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
    processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity recoverConcurrently recoverThreadPoolNums
    replyThreadPoolQueueCapacity sendMessageThreadPoolNums sendThreadPoolQueueCapacity
    waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue
    waitTimeMillsInLitePullQueue waitTimeMillsInTransactionQueue
"""
_POPS: Final = """
    appendAckAsync appendCkAsync enableNotifyAfterPopOrderLockRelease
    enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog
    enableSkipLongAwaitingAck popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
    popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
    popConsumerKVServiceInit popConsumerKVServiceLog popLongPollingForceNotifyInterval
    popPollingMapExpireTimeSeconds popPollingMapSize popReviveConcurrency popReviveMaxAttemptTimes
    popReviveMaxReturnSizePerRead reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime
    skipWhenCKRePutReachMaxTimes
"""
_BROKER: Final = """
    accountStatsEnable accountStatsPrintZeroValues asyncSendEnable autoDeleteUnusedStats
    commercialBaseCount commercialSizePerMsg compatibleWithOldNameSrv compressedRegister
    configManagerVersion consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep
    enableCalcFilterBitMap enableDetailStat enableFastChannelEventProcess enableLmqStats
    enableSplitMetadata enableSplitRegistration expectConsumerNumUseFilter
    flushConsumerOffsetHistoryInterval forceRegister highSpeedMode isolateLogEnable
    loadBalancePollNameServerInterval maxErrorRateOfBloomFilter maxStatsIdleTimeInMinutes
    printChannelGroups printChannelGroupsMinNum realTimeNotifyConsumerChange splitMetadataSize
    splitRegistrationSize transactionMetricFlushInterval transferMsgByHeap
    updateNameServerAddrPeriod
"""
_STORE: Final = """
    accessMessageInMemoryHotRatio batchDispatchRequestThreadPoolNums bitMapLengthConsumeQueueExt
    cleanSwapedMapInterval commitCommitLogLeastPages commitCommitLogThoroughInterval
    commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval debugLockEnable
    deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
    diskFallRecorded dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
    enableAcceleratedRecovery enableAsyncReput enableBuildConsumeQueueConcurrently
    enableConsumeQueueExt enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRocksDBLog
    enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
    fastFailIfNoBufferInStorePool flushCommitLogLeastPages flushCommitLogThoroughInterval
    flushCommitLogTimed flushConsumeQueueLeastPages flushIntervalConsumeQueue
    flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval logicQueueSwapMapInterval
    logicQueueSwapMapReserveFileNum mappedFileSwapEnable maxAsyncPutMessageRequests
    maxConsumeQueueScan memTableFlushIntervalMs putConsumeQueueDataByFileChannel
    putMessageTimeout putMsgIndexHightWater readUnCommitted recheckReputOffsetFromCq
    redeleteHangedFileInterval sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable spinLockCollisionRetreatOptimalDegree timerCheckMetricsWhen
    timerColdDataCheckIntervalMs timerEnableCheckMetrics timerEnableDisruptor
    timerGetMessageThreadNum timerMetricSmallThreshold timerProgressLogIntervalMs
    timerPutMessageThreadNum timerWarmEnable topicQueueLockNum transientStorePoolSize
    travelCqFileNumWhenGetMessage useABSLock useReentrantLockWhenPutMessage
    wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable writeWithoutMmap
"""
INNER: Final = frozenset((_POOLS + _POPS + _BROKER + _STORE).split())
