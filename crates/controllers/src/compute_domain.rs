//! A ComputeDomain that is being deleted: it is held while pods use it, whoever deleted it and whatever became of its set.
//!
//! That it exists in the first place is the matter of its replica.

use grove_api::{ComputeDomain, labels};
use grove_runtime::{ObjectKey, Outcome};
use kube::ResourceExt;

use crate::shell::Shell;

pub(crate) async fn look(shell: &Shell, key: &ObjectKey) -> Outcome {
    match shell.view.compute_domains.get(key) {
        Some(domain) if domain.metadata.deletion_timestamp.is_some() && !is_used(shell, &domain) => {
            let ours = labels::finalizer::COMPUTE_DOMAIN;
            shell.release::<ComputeDomain>(&domain, ours).await
        }
        // Each pod that goes is a reason to look again.
        _ => Outcome::Settled,
    }
}

/// Whether a pod that stays is on a node with a channel of this domain.
pub(crate) fn is_used(shell: &Shell, domain: &ComputeDomain) -> bool {
    let (namespace, name) = (domain.namespace(), domain.name_any());
    let key = ObjectKey::new(namespace.unwrap_or_default(), name);
    let pods = shell.view.pods.all();
    pods.iter()
        .any(|pod| pod.compute_domain.as_ref() == Some(&key) && pod.seen.is_scheduled())
}
