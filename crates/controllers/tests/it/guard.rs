//! What the operator made is the operator's: who else may write it, by identity, through the real webhooks.

use std::collections::BTreeSet;

use grove_api::{ComputeDomain, PodClique, labels};
use grove_scenarios::{Look as _, OFF, SHARED, compute_domain_definition};
use grove_simcluster::User;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::{Kind, NAMESPACE, OPERATOR, Placer, World};

const AUTHOR: &str = "ann";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// A controller of somebody else, of which nobody has told the operator.
const DRIVER: &str = "system:serviceaccount:nvidia:driver";

/// Everything that a set can become: ordered starts, claims, a fabric, an autoscaler.
fn everything() -> String {
    let mut set: Value = serde_saphyr::from_str(SHARED).expect("a set");
    let template = &mut set["spec"]["template"];
    template["cliqueStartupType"] = json!("CliqueStartupTypeInOrder");
    let first = &mut template["cliques"][0];
    first["annotations"] = json!({"grove.io/mnnvl-group": "fabric"});
    first["spec"]["podSpec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
    let alone = template["cliques"].as_array_mut().expect("cliques");
    let scaled = json!({"name": "scaled", "spec": {"roleName": "scaled", "replicas": 1, "minAvailable": 1,
        "autoScalingConfig": {"minReplicas": 1, "maxReplicas": 3},
        "podSpec": {"containers": [{"name": "main", "image": "one"}]}}});
    alone.push(scaled);
    set.to_string()
}

async fn guarded() -> World {
    let world = World::placed_by(Placer::Operator, 30).await;
    world.install(compute_domain_definition()).await;
    world.create_set(&everything()).await;
    world.settle().await;
    world
        .serve_webhooks(&format!("{OFF}authorizer: {{enabled: true}}\n"))
        .await;
    world
}

/// Where somebody reaches an object of a kind.
fn reach(world: &World, user: &str, resource: &str) -> Api<DynamicObject> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let version = match group {
        "grove.io" | "scheduler.grove.io" => "v1alpha1",
        "resource.nvidia.com" => "v1beta1",
        "autoscaling" => "v2",
        _ => "v1",
    };
    let api_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: plural.to_owned(),
        plural: plural.to_owned(),
    };
    Api::namespaced_with(world.cluster.client_as(User::named(user, &[])), NAMESPACE, &resource)
}

fn of<K: Kind>(world: &World, user: &str) -> Api<K> {
    Api::namespaced(world.cluster.client_as(User::named(user, &[])), NAMESPACE)
}

fn denied<T: std::fmt::Debug>(what: &str, outcome: kube::Result<T>) {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 403 && status.message.contains("admission denied") => {}
        other => panic!("{what} was not denied: {other:?}"),
    }
}

fn noted() -> Patch<Value> {
    Patch::Merge(json!({"metadata": {"labels": {"note": "mine"}}}))
}

/// Whatever kind it is of: one that is added to the operator and forgotten here would be open.
#[tokio::test(start_paused = true)]
async fn an_author_changes_nothing_that_the_operator_made() {
    let world = guarded().await;
    let ours = |object: &Value| object["metadata"]["labels"][labels::MANAGED_BY] == labels::MANAGED_BY_OPERATOR;
    let made: Vec<(String, String)> = world
        .remaining(0)
        .into_iter()
        .filter(|(_, object)| ours(object))
        .map(|(key, _)| key)
        .collect();
    let kinds: BTreeSet<&str> = made.iter().map(|(resource, _)| resource.as_str()).collect();
    let expected = BTreeSet::from([
        "computedomains.resource.nvidia.com",
        "controllerrevisions.apps",
        "horizontalpodautoscalers.autoscaling",
        "podcliques.grove.io",
        "podcliquescalinggroups.grove.io",
        "podgangs.scheduler.grove.io",
        "pods",
        "resourceclaims.resource.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "services",
    ]);
    assert_eq!(kinds, expected, "everything that a set can become is here");
    for (resource, name) in &made {
        let api = reach(&world, AUTHOR, resource);
        denied(resource, api.patch(name, &PatchParams::default(), &noted()).await);
        if resource != "pods" {
            denied(resource, api.delete(name, &DeleteParams::default()).await);
        }
    }
    let kept = world.remaining(0);
    assert!(made.iter().all(|key| kept.contains_key(key)));
}

/// Restarting a pod, scaling, and what Kubernetes and drivers do by themselves.
#[tokio::test(start_paused = true)]
async fn what_others_do_to_managed_objects_stays_open() {
    let world = guarded().await;
    let params = PatchParams::default();
    let pod = world.pods().await[0].name_any();
    let deleted = of::<Pod>(&world, AUTHOR).delete(&pod, &DeleteParams::default()).await;
    deleted.expect("people restart pods");
    let more = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let scaled = of::<PodClique>(&world, AUTHOR)
        .patch_scale("w-0-solo", &params, &more)
        .await;
    scaled.expect("people scale");
    world.settle().await;

    let held = |ours: Option<&str>| {
        let all: Vec<&str> = ours.into_iter().chain(["example.com/held"]).collect();
        Patch::Merge(json!({"metadata": {"finalizers": all}}))
    };
    let claim = world.list::<ResourceClaim>().await.into_keys().next().expect("a claim");
    let claims = of::<ResourceClaim>(&world, DRIVER);
    claims
        .patch(&claim, &params, &held(None))
        .await
        .expect("a claim that is held");
    let reserved = Patch::Merge(json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}));
    let reserved = claims.patch_status(&claim, &params, &reserved).await;
    reserved.expect("a claim that is reserved");
    let fabrics = of::<ComputeDomain>(&world, DRIVER);
    let fabric = world
        .list::<ComputeDomain>()
        .await
        .into_keys()
        .next()
        .expect("a fabric");
    let ours = labels::finalizer::COMPUTE_DOMAIN;
    fabrics
        .patch(&fabric, &params, &held(Some(ours)))
        .await
        .expect("a fabric that is held");
    denied("our finalizer", fabrics.patch(&fabric, &params, &held(None)).await);
    denied("the fabric's labels", fabrics.patch(&fabric, &params, &noted()).await);
    let freed = Patch::Merge(json!({"metadata": {"finalizers": [ours]}}));
    fabrics
        .patch(&fabric, &params, &freed)
        .await
        .expect("a fabric that is let go");
    let freed = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims
        .patch(&claim, &params, &freed)
        .await
        .expect("a claim that is let go");

    for (who, name) in [(COLLECTOR, "collector"), (OPERATOR, "operator")] {
        let revisions = of::<ControllerRevision>(&world, who);
        let revision = world
            .list::<ControllerRevision>()
            .await
            .into_keys()
            .next()
            .expect("a record");
        let patched = revisions.patch(&revision, &params, &noted()).await;
        patched.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// The records of a set say which pods follow its template: one that anybody could make would replace pods, or keep them.
#[tokio::test(start_paused = true)]
async fn nobody_else_makes_a_record_of_a_set() {
    let world = guarded().await;
    let stored = world
        .list::<ControllerRevision>()
        .await
        .into_values()
        .next()
        .expect("a record");
    let mut forged = stored.clone();
    forged.metadata.name = Some("forged".to_owned());
    forged.metadata.resource_version = None;
    forged.metadata.uid = None;
    let made = of::<ControllerRevision>(&world, AUTHOR)
        .create(&Default::default(), &forged)
        .await;
    denied("a record", made);
}
