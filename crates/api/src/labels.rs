//! Labels, annotations, finalizers and other fixed names, each written once.
//!
//! They are a contract: manifests, dashboards, autoscalers and other operators select by them.

/// Who made an object; [`MANAGED_BY_OPERATOR`] on everything that the operator makes.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY_OPERATOR: &str = "grove-operator";
/// The PodCliqueSet that an object belongs to.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// What an object is to its PodCliqueSet; see [`component`].
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Name of the labelled object itself.
pub const NAME: &str = "app.kubernetes.io/name";

/// Index of the PodCliqueSet replica.
pub const PCS_REPLICA_INDEX: &str = "grove.io/podcliqueset-replica-index";
/// PodGang that a clique and its pods belong to.
pub const PODGANG: &str = "grove.io/podgang";
/// Base gang that must be scheduled before this scaled gang; only on scaled gangs, their cliques and pods.
pub const BASE_PODGANG: &str = "grove.io/base-podgang";
/// Hash of the pod template that a clique or pod follows.
pub const POD_TEMPLATE_HASH: &str = "grove.io/pod-template-hash";
/// PodCliqueScalingGroup that a clique and its pods belong to.
pub const SCALING_GROUP: &str = "grove.io/podcliquescalinggroup";
/// Index of the scaling group's replica.
pub const SCALING_GROUP_REPLICA_INDEX: &str = "grove.io/podcliquescalinggroup-replica-index";
/// PodClique that a pod belongs to.
pub const PODCLIQUE: &str = "grove.io/podclique";
/// Index of a pod in its clique.
pub const POD_INDEX: &str = "grove.io/podclique-pod-index";
/// Scheduler profile that places a PodGang.
pub const SCHEDULER_NAME: &str = "grove.io/scheduler-name";

/// Values of [`COMPONENT`].
pub mod component {
    pub const HEADLESS_SERVICE: &str = "pcs-headless-service";
    pub const POD_ROLE: &str = "pod-role";
    pub const POD_ROLE_BINDING: &str = "pod-role-binding";
    pub const POD_SERVICE_ACCOUNT: &str = "pod-service-account";
    pub const POD_TOKEN_SECRET: &str = "pod-sa-token-secret";
    pub const SCALING_GROUP: &str = "pcs-podcliquescalinggroup";
    pub const AUTOSCALER: &str = "pcs-hpa";
    pub const PODGANG: &str = "podgang";
    pub const SET_PODCLIQUE: &str = "pcs-podclique";
    pub const SCALING_GROUP_PODCLIQUE: &str = "pcsg-podclique";
    pub const RESOURCE_CLAIM: &str = "resource-claim";
    pub const COMPUTE_DOMAIN: &str = "pcs-computedomain";
}

/// Annotations.
pub mod annotation {
    /// On a PodCliqueSet: `true` lets anyone change what the operator made from it.
    pub const DISABLE_PROTECTION: &str = "grove.io/disable-managed-resource-protection";
    /// On a PodCliqueSet: any change of its value reconciles the set once more.
    pub const RECONCILE_TRIGGER: &str = "grove.io/reconcile-trigger";
    /// On a PodCliqueSet, clique or scaling group: the NVLink group that its GPU pods share, or `none`.
    pub const MNNVL_GROUP: &str = "grove.io/mnnvl-group";
    /// On a PodGang: name of the topology whose keys its constraints use.
    pub const TOPOLOGY_NAME: &str = "grove.io/topology-name";
    /// On a PodGang: node label key of the level that all gangs of the PodCliqueSet replica must share. A scaled
    /// gang's own constraint is its scaling group's, so a scheduler could not know it otherwise.
    pub const REPLICA_PACK_REQUIRED: &str = "grove.io/replica-pack-required";
    /// On a PodGang: names of the scopes (the gang, its groups, its pod-groups) whose preferred level the operator's
    /// policy filled in, with commas between. Nobody asked for it, so missing it does not lower the score.
    pub const PREFERRED_BY_POLICY: &str = "grove.io/preferred-by-policy";
    /// On what the operator made: the labels and annotations that it took over from the PodCliqueSet, as JSON. They go when
    /// they are taken out there; what others put on the object stays.
    pub const TAKEN_OVER: &str = "grove.io/taken-over";
    /// On the base PodGang of a replica while its cliques are recreated: which of them somebody had scaled, and how far, as
    /// JSON. They come back with that number.
    pub const RECYCLED_REPLICAS: &str = "grove.io/recycled-replicas";
    /// On a PodCliqueSet and its PodGangs, where traces are collected: the span of the apply that made the set, as W3C
    /// Trace Context writes it (`traceparent`). Who applies may state one; else admission does.
    pub const TRACE_CONTEXT: &str = "grove.io/traceparent";
}

/// Finalizers.
pub mod finalizer {
    pub const PODCLIQUESET: &str = "grove.io/podcliqueset.grove.io";
    pub const PODCLIQUE: &str = "grove.io/podclique.grove.io";
    pub const SCALING_GROUP: &str = "grove.io/podcliquescalinggroup.grove.io";
    pub const COMPUTE_DOMAIN: &str = "grove.io/computedomain-finalizer";
    pub const CLUSTER_TOPOLOGY: &str = "grove.io/clustertopology.grove.io";
    pub const TOPOLOGY_DOMAIN: &str = "grove.run.ai/topology-protection";
}

/// The scheduling gate that holds a pod until its gang is complete.
pub const SCHEDULING_GATE: &str = "grove.io/podgang-pending-creation";
