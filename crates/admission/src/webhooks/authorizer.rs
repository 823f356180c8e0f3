//! The authorizer: only the operator, and those it is told of, may write what the operator made.
//!
//! The way to change a managed object is its PodCliqueSet. Left open on purpose: `scale`, which is how autoscalers and
//! people scale; the status of pods, gangs, claims and fabrics, which kubelets, schedulers and drivers write; finalizers of
//! others on claims and fabrics; deleting or evicting a pod, which is how people restart one and drain its node; and
//! `ephemeralcontainers`, which is how people look into one (`kubectl debug`): such a container changes none of those that
//! the template has, and RBAC opens it as it does `exec`, which does as much. `resize` is closed: it changes what the
//! template asks for.

use grove_api::podgang::NamespacedName;
use grove_api::{ComputeDomain, PodCliqueSet, labels};
use kube::Resource as _;
use serde_json::Value;

use super::Policy;
use crate::lookup::Lookup;
use crate::review::{Answer, Operation, Request};

/// Kubernetes' own hands: the garbage collector and the namespace controller delete what belongs to something that is
/// gone. Where controllers have no accounts of their own, they act as the controller manager.
const KUBERNETES: [&str; 3] = [
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
];

pub(super) async fn answer(request: &Request, policy: &Policy, lookup: &Lookup) -> Result<Answer, kube::Error> {
    let Some(parent) = guarded_by(request, policy) else {
        return Ok(Answer::admitted());
    };
    let set = match parent.name.as_str() {
        "" => None,
        _ => lookup.set(&parent).await?,
    };
    Ok(judge(request, &parent.name, set.as_ref()))
}

/// The PodCliqueSet that the written object is part of, its name empty if unknown; `None` where the caller or the
/// object is not the authorizer's concern.
fn guarded_by(request: &Request, policy: &Policy) -> Option<NamespacedName> {
    let caller = &request.user_info.username;
    let exempt = &policy.authorizer.exempt_service_account_user_names;
    if *caller == policy.operator || exempt.contains(caller) || KUBERNETES.contains(&caller.as_str()) {
        return None;
    }
    let is_pod = request.resource.group.is_empty() && request.resource.resource == "pods";
    let is_open = is_pod && (request.operation == Operation::Delete || request.sub_resource == "ephemeralcontainers");
    if request.operation == Operation::Connect || is_open || is_note_of_a_driver(request) {
        return None;
    }
    // What is stored decides: a caller could write any label into the new object.
    let object = match request.operation {
        Operation::Create | Operation::Connect => &request.object,
        Operation::Update | Operation::Delete => &request.old_object,
    };
    let is_managed = label(object, labels::MANAGED_BY) == Some(labels::MANAGED_BY_OPERATOR);
    is_managed.then(|| NamespacedName {
        namespace: request.namespace.clone(),
        name: label(object, labels::PART_OF).unwrap_or_default().to_owned(),
    })
}

/// Claims and fabrics have controllers of their own beside us: schedulers and drivers, whose names nobody can know, put
/// finalizers on them. They may write whatever leaves alone what the operator wrote.
fn is_note_of_a_driver(request: &Request) -> bool {
    let group = request.resource.group.as_str();
    let is_shared = group == "resource.k8s.io" || group == ComputeDomain::group(&());
    let (old, new) = (&request.old_object, &request.object);
    let is_kept = |field: &str| old["metadata"][field] == new["metadata"][field];
    is_shared
        && request.operation == Operation::Update
        && old["spec"] == new["spec"]
        && is_kept("labels")
        && is_kept("ownerReferences")
        && our_finalizers(old) == our_finalizers(new)
}

fn our_finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    let ours = all
        .filter_map(Value::as_str)
        .filter(|finalizer| finalizer.starts_with("grove.io/"));
    ours.collect()
}

fn judge(request: &Request, parent: &str, set: Option<&PodCliqueSet>) -> Answer {
    let Some(set) = set else {
        let warning = format!("the PodCliqueSet '{parent}' of this object does not exist; the write is not checked");
        return Answer::admitted().with_warnings([warning]);
    };
    let annotations = set.metadata.annotations.as_ref();
    let opened = annotations.and_then(|annotations| annotations.get(labels::annotation::DISABLE_PROTECTION));
    if opened.is_some_and(|value| value == "true") {
        return Answer::admitted();
    }
    let done = match request.operation {
        Operation::Delete => "deletion",
        _ => "creation/updation",
    };
    let subject = request.subject();
    Answer::forbidden(format!(
        "admission denied, {done} of resource: {subject} is not allowed: PodCliqueSet '{parent}' owns it; change that \
         instead"
    ))
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}
