//! `grove cleanup`: what must happen before Grove is uninstalled, so that nothing hangs when nobody is there to answer.
//!
//! The order matters. An operator or a scheduler that still runs would put everything back, so they are stopped first; a
//! webhook that is still registered would be asked about every object that a finalizer is taken from, so they go next, and
//! with them the conversion of graphs. Only what is Grove's is touched: workloads, graphs, their pods and topologies stay.
//! Doing it twice is as good as once.

use std::process::ExitCode;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use grove_admission::registration::withdraw_conversion;
use grove_api::labels::finalizer;
use grove_api::{
    ClusterTopology, ComputeDomain, PodClique, PodCliqueScalingGroup, PodCliqueSet, TopologyDomain, rights,
};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::client::Cluster;
use crate::exit::{self, Failure, one_line};
use crate::target::Target;

/// How long the pods of a part may take to end; Kubernetes gives each of them 30 s.
const STOP_MAX: Duration = Duration::from_secs(90);
/// Objects that are written at once.
const AT_ONCE: usize = 16;
const PAGE: u32 = 500;
/// How often somebody else may write an object between our look and our write.
const TRIES: usize = 5;

/// What is known of an object here.
type Held = PartialObjectMeta<DynamicObject>;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The namespace that the operator runs in; by default the one that this command runs in
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The Secret with the certificate that the operator made, to be removed; one that is yours is not to be named
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
    /// A Lease by which replicas elect a leader, to be removed; may be given several times
    #[arg(long, value_name = "NAME")]
    lease: Vec<String>,
    /// The namespace of the Leases; by default that of the operator
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    exit::answer(clean(args))
}

async fn clean(args: &Args) -> Result<ExitCode, Failure> {
    let cluster = Cluster::reach(&args.target).await?;
    let client = &cluster.client;
    let namespace = args.namespace.as_deref().unwrap_or(&cluster.namespace);
    for part in [rights::OPERATOR, rights::scheduler::NAME] {
        match stop(client, namespace, part).await? {
            true => println!("{part} in namespace {namespace} stopped"),
            false => println!("no {part} in namespace {namespace}; one that runs elsewhere must be stopped first"),
        }
    }
    let removed = remove_webhooks(client).await.map_err(|error| told("webhooks", error))?;
    println!("{removed} webhook configurations removed");
    let withdrawn = withdraw_conversion(client).await;
    let withdrawn = withdrawn.map_err(|error| told("the conversion of graphs", error))?;
    println!("{withdrawn} definitions of kinds no longer lead to a conversion webhook");
    let lifted = [
        lift::<PodCliqueSet>(client, finalizer::PODCLIQUESET).await?,
        lift::<PodCliqueScalingGroup>(client, finalizer::SCALING_GROUP).await?,
        lift::<PodClique>(client, finalizer::PODCLIQUE).await?,
        lift::<ComputeDomain>(client, finalizer::COMPUTE_DOMAIN).await?,
        lift::<ClusterTopology>(client, finalizer::CLUSTER_TOPOLOGY).await?,
        lift::<TopologyDomain>(client, finalizer::TOPOLOGY_DOMAIN).await?,
    ];
    let leases = args.lease_namespace.as_deref().unwrap_or(namespace);
    let leases = Api::<Lease>::namespaced(client.clone(), leases);
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let kept = remove(&leases, &args.lease).await? + remove(&secrets, args.secret.as_slice()).await?;
    println!("{kept} Leases and Secrets removed");
    println!("finalizers of {} objects lifted", lifted.iter().sum::<usize>());
    Ok(ExitCode::SUCCESS)
}

fn told(what: &str, error: kube::Error) -> Failure {
    Failure::NoAnswer(format!(
        "cannot clean up {what}: {}; it is safe to try again",
        one_line(error)
    ))
}

/// Stops the pods of a Deployment. Whether there was one.
async fn stop(client: &Client, namespace: &str, part: &str) -> Result<bool, Failure> {
    let failed = |error| told(part, error);
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    if deployments.get_opt(part).await.map_err(failed)?.is_none() {
        return Ok(false);
    }
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    let params = PatchParams::default();
    let scaled = deployments.patch_scale(part, &params, &none).await;
    scaled.map_err(failed)?;
    let has_ended = |deployment: Option<&Deployment>| {
        deployment.is_none_or(|deployment| {
            let status = deployment.status.as_ref();
            let is_seen = status.and_then(|status| status.observed_generation) >= deployment.metadata.generation;
            is_seen && status.and_then(|status| status.replicas).unwrap_or(0) == 0
        })
    };
    match tokio::time::timeout(STOP_MAX, await_condition(deployments, part, has_ended)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) => Err(Failure::NoAnswer(format!(
            "cannot see whether {part} has stopped: {}; it is safe to try again",
            one_line(error)
        ))),
        Err(_) => Err(Failure::NoAnswer(format!(
            "the pods of {part} in namespace {namespace} still run after {} s; look at them with kubectl, then try again",
            STOP_MAX.as_secs()
        ))),
    }
}

/// How many there were.
async fn remove_webhooks(client: &Client) -> Result<usize, kube::Error> {
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mut removed = 0;
    for name in rights::WEBHOOK_CONFIGURATIONS {
        removed += usize::from(is_there(mutating.delete(name, &DeleteParams::default()).await)?);
        removed += usize::from(is_there(validating.delete(name, &DeleteParams::default()).await)?);
    }
    Ok(removed)
}

/// Removes what the programs kept for themselves; how many there were.
async fn remove<K>(api: &Api<K>, names: &[String]) -> Result<usize, Failure>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut removed = 0;
    for name in names {
        let answer = api.delete(name, &DeleteParams::default()).await;
        removed += usize::from(is_there(answer).map_err(|error| told(&K::plural(&()), error))?);
    }
    Ok(removed)
}

/// What is gone already is as good as removed.
fn is_there<T>(answer: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes a finalizer from all objects of a kind; how many had it. A kind that is not served has none.
async fn lift<K: Resource<DynamicType = ()>>(client: &Client, finalizer: &str) -> Result<usize, Failure> {
    let resource = ApiResource::erase::<K>(&());
    let failed = |error| told(&resource.plural, error);
    let all = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let mut params = ListParams::default().limit(PAGE);
    let mut lifted = 0;
    loop {
        let page = match all.list_metadata(&params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(lifted),
            page => page.map_err(failed)?,
        };
        let held = page
            .items
            .into_iter()
            .filter(|object| object.finalizers().iter().any(|known| known == finalizer));
        let writes = stream::iter(held).map(|object| {
            let api = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => all.clone(),
            };
            async move { release(&api, object, finalizer).await }
        });
        lifted += writes
            .buffer_unordered(AT_ONCE)
            .try_fold(0, async |sum, one| Ok(sum + one))
            .await
            .map_err(failed)?;
        params.continue_token = page.metadata.continue_;
        if params.continue_token.as_deref().is_none_or(str::is_empty) {
            return Ok(lifted);
        }
    }
}

/// Takes the finalizer from one object, and leaves those of others. 1 if it was there.
async fn release(api: &Api<DynamicObject>, object: Held, finalizer: &str) -> Result<usize, kube::Error> {
    let (name, params) = (object.name_any(), PatchParams::default());
    let mut seen = object;
    for tries_left in (0..TRIES).rev() {
        match api.patch_metadata(&name, &params, &without(&seen, finalizer)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && tries_left > 0 => {
                match api.get_metadata_opt(&name).await? {
                    Some(now) => seen = now,
                    None => return Ok(0),
                }
            }
            answer => return is_there(answer).map(usize::from),
        }
    }
    Ok(0)
}

/// A patch that fails when somebody else has written the object since.
fn without(object: &Held, finalizer: &str) -> Patch<serde_json::Value> {
    let others: Vec<&String> = object.finalizers().iter().filter(|known| *known != finalizer).collect();
    Patch::Merge(json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": others}}))
}
