//! Condition types, and the reasons that each can have. People and other operators match on these words.

/// Of a PodCliqueSet.
pub mod podcliqueset {
    pub const READY: &str = "Ready";
    pub const PROGRESSING: &str = "Progressing";
    /// Whether a level that the set's constraints name is gone.
    pub const TOPOLOGY_LEVELS_UNAVAILABLE: &str = "TopologyLevelsUnavailable";
    /// The same matter the other way round: whether all constraints hold.
    pub const TOPOLOGY_CONSTRAINTS: &str = "TopologyConstraints";

    /// Reasons of [`READY`].
    pub mod ready {
        pub const AVAILABLE: &str = "ReplicasAvailable";
        pub const UNAVAILABLE: &str = "ReplicasUnavailable";
    }

    /// Reasons of [`PROGRESSING`].
    pub mod progressing {
        pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";
        pub const STARTING: &str = "ReplicasStarting";
        pub const SETTLED: &str = "Settled";
    }

    /// Reasons of [`TOPOLOGY_LEVELS_UNAVAILABLE`].
    pub mod levels_unavailable {
        pub const ALL_AVAILABLE: &str = "AllClusterTopologyLevelsAvailable";
        pub const UNAVAILABLE: &str = "ClusterTopologyLevelsUnavailable";
        pub const TOPOLOGY_NOT_FOUND: &str = "ClusterTopologyNotFound";
        pub const DISABLED: &str = "TopologyAwareSchedulingDisabled";
    }

    /// Reasons of [`TOPOLOGY_CONSTRAINTS`].
    pub mod constraints {
        pub const AVAILABLE: &str = "TopologyLevelsAvailable";
        pub const LEVEL_NOT_FOUND: &str = "TopologyLevelNotFound";
        pub const LEVELS_REMOVED: &str = "TopologyLevelsRemoved";
        pub const TOPOLOGY_NOT_FOUND: &str = "ClusterTopologyNotFound";
        pub const DISABLED: &str = "TopologyDisabled";
    }
}

/// Of a PodClique.
pub mod podclique {
    pub const MIN_AVAILABLE_BREACHED: &str = "MinAvailableBreached";
    pub const SCHEDULED: &str = "PodCliqueScheduled";

    /// Reasons of [`MIN_AVAILABLE_BREACHED`].
    pub mod breach {
        pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";
        pub const SCHEDULED_BELOW_MINIMUM: &str = "ScheduledReplicasBelowMinAvailable";
        pub const INSUFFICIENT_READY: &str = "InsufficientReadyPods";
        pub const SUFFICIENT_READY: &str = "SufficientReadyPods";
    }

    /// Reasons of [`SCHEDULED`].
    pub mod scheduled {
        pub const SUFFICIENT: &str = "SufficientScheduledPods";
        pub const INSUFFICIENT: &str = "InsufficientScheduledPods";
    }
}

/// Of a PodCliqueScalingGroup.
pub mod scaling_group {
    pub const MIN_AVAILABLE_BREACHED: &str = "MinAvailableBreached";
    pub const GANG_TERMINATION_IN_PROGRESS: &str = "GangTerminationInProgress";

    /// Reasons of [`MIN_AVAILABLE_BREACHED`].
    pub mod breach {
        pub const UPDATE_IN_PROGRESS: &str = "UpdateInProgress";
        pub const INSUFFICIENT: &str = "InsufficientAvailablePodCliqueScalingGroupReplicas";
        pub const SUFFICIENT: &str = "SufficientAvailablePodCliqueScalingGroupReplicas";
    }

    /// Reason of [`GANG_TERMINATION_IN_PROGRESS`].
    pub const GANG_TERMINATION_ACTIVE: &str = "GangTerminationActive";
}

/// Of a PodGang.
pub mod podgang {
    pub const INITIALIZED: &str = "Initialized";
    pub const SCHEDULED: &str = "Scheduled";
    pub const READY: &str = "Ready";
    pub const UNHEALTHY: &str = "Unhealthy";
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

    /// Reasons of [`INITIALIZED`].
    pub mod initialized {
        pub const PODS_PENDING: &str = "PodGangPodsCreationPending";
        pub const PODS_CREATED: &str = "PodGangPodsCreated";
    }

    /// Reasons of [`SCHEDULED`].
    pub mod scheduled {
        /// It is not any more: it was placed whole, and lost some of its pods.
        pub const MEMBERS_MISSING: &str = "MembersMissing";
    }

    /// Reasons of [`READY`].
    pub mod ready {
        pub const PODS_READY: &str = "PodsReady";
        pub const PODS_NOT_READY: &str = "PodsNotReady";
    }
}

/// Of a ClusterTopology or TopologyDomain.
pub mod topology {
    pub const READY: &str = "Ready";

    /// Reasons of [`READY`].
    pub mod ready {
        pub const READY: &str = "TopologyReady";
        pub const KAI_CREATION_FAILED: &str = "KAITopologyCreationFailed";
        pub const KAI_CREATION_OR_UPDATE_FAILED: &str = "KAITopologyCreationOrUpdateFailed";
        pub const BACKEND_CREATION_FAILED: &str = "BackendTopologyCreationFailed";
    }

    /// Code in `lastErrors` of a failed KAI Topology.
    pub const KAI_CREATE_ERROR_CODE: &str = "KAI_TOPOLOGY_CREATE_ERROR";
}

/// Of a ClusterTopologyBinding; read, never written.
pub mod topology_binding {
    pub const DRIFT: &str = "SchedulerTopologyDrift";

    /// Reasons of [`DRIFT`].
    pub mod drift {
        pub const IN_SYNC: &str = "InSync";
        pub const DRIFT: &str = "Drift";
        pub const TOPOLOGY_NOT_FOUND: &str = "TopologyNotFound";
    }
}
