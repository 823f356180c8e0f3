//! Pods that are not placed, and why.

use grove_api::podgang::NamespacedName;

/// Something that a pod asks for and the engine cannot take into account. Placing the pod without it would be wrong, so
/// it is not placed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Unsupported {
    #[error("unsupported: resource claims (spec.resourceClaims)")]
    ResourceClaims,
    #[error("unsupported: required pod affinity; state a topology constraint instead")]
    PodAffinity,
    #[error("unsupported: required topology spread over {key}")]
    TopologySpread { key: String },
    #[error("unsupported: pod anti-affinity towards namespaces by their labels; list them by name")]
    NamespaceSelector,
}

/// Why a gang cannot be handed to the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPlaceable {
    #[error("pod {}/{}: {what}", .pod.namespace, .pod.name)]
    Unsupported { pod: NamespacedName, what: Unsupported },
    #[error(
        "pod {}/{}: volume claim {claim} is not bound; a claim that waits for its first pod is bound under profile \
         default-scheduler only", .pod.namespace, .pod.name
    )]
    UnboundClaim { pod: NamespacedName, claim: String },
    #[error("pod {}/{}: volume claim {claim} is bound to volume {volume}, which does not exist", .pod.namespace, .pod.name)]
    NoVolume {
        pod: NamespacedName,
        claim: String,
        volume: String,
    },
    #[error("pod-group {pod_group} has {found} of the {needed} pods that it needs")]
    Incomplete { pod_group: String, found: u32, needed: u32 },
    #[error("topology {name} does not exist; create it, or remove the constraint")]
    NoTopology { name: String },
    #[error("topology {topology} has no level with the node label {key}; add the level, or change the constraint")]
    NoLevel { topology: String, key: String },
    #[error(
        "pods {one} and {other} of pod-group {pod_group} ask for different things inside a constraint of their own"
    )]
    Unlike {
        pod_group: String,
        one: String,
        other: String,
    },
}
