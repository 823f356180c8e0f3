//! NVLink groups (MNNVL): ComputeDomains are made for the groups of each replica, follow its scale, and are held while
//! pods use them. NVIDIA's driver is not run: of it there is only the definition of its kind.

use std::collections::BTreeMap;

use grove_api::{ComputeDomain, PodCliqueSet, labels};
use grove_scenarios::{Look as _, compute_domain_definition, refusal};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{Placer, World};

const GROUP: &str = "grove.io/mnnvl-group";

async fn install_driver(world: &World) {
    world.install(compute_domain_definition()).await;
    world
        .eventually("ComputeDomains are served", async |world| {
            world.all::<ComputeDomain>().list(&Default::default()).await.is_ok()
        })
        .await;
}

async fn with_driver(places: usize) -> World {
    let world = World::placed_by(Placer::Operator, places).await;
    install_driver(&world).await;
    world
}

/// A clique of one pod with this number of GPUs, in this group or in none of its own.
fn clique(name: &str, gpus: u32, group: Option<&str>) -> Value {
    let limits = if gpus > 0 {
        json!({"nvidia.com/gpu": gpus.to_string()})
    } else {
        json!({"cpu": "1"})
    };
    let containers = json!([{"name": "main", "image": "one", "resources": {"limits": limits}}]);
    let annotations = group.map_or(json!({}), |group| json!({GROUP: group}));
    json!({
        "name": name, "annotations": annotations,
        "spec": {"roleName": name, "replicas": 1, "minAvailable": 1, "podSpec": {"containers": containers}},
    })
}

fn set(group: Option<&str>, cliques: Vec<Value>) -> Value {
    let annotations = group.map_or(json!({}), |group| json!({GROUP: group}));
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": "w", "namespace": "default", "annotations": annotations},
        "spec": {"replicas": 1, "template": {"terminationDelay": "10s", "cliques": cliques}},
    })
}

async fn create(world: &World, set: Value) {
    world.create_set(&set.to_string()).await;
    world.settle().await;
}

async fn domains(world: &World) -> Vec<String> {
    world.list::<ComputeDomain>().await.into_keys().collect()
}

/// The ComputeDomain whose channel each clique's pod claims.
async fn claimed(world: &World) -> BTreeMap<String, Option<String>> {
    let claimed = |pod: &Pod| {
        let claims = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        let mut named = claims.filter(|claim| claim.name == "mnnvl-claim");
        named
            .next()
            .and_then(|claim| claim.resource_claim_template_name.clone())
    };
    let pods = world.pods().await;
    let name = |pod: &Pod| pod.labels()[labels::PODCLIQUE].clone();
    pods.iter().map(|pod| (name(pod), claimed(pod))).collect()
}

async fn errors(world: &World) -> Vec<String> {
    let status = world.get::<PodCliqueSet>("w").await.status.unwrap_or_default();
    status.last_errors.into_iter().map(|error| error.description).collect()
}

#[tokio::test(start_paused = true)]
async fn mnnvl_without_an_annotation_there_is_no_domain() {
    let world = with_driver(10).await;
    create(&world, set(None, vec![clique("a", 8, None)])).await;
    assert_eq!(world.ready().await, 1);
    assert!(domains(&world).await.is_empty());
    assert_eq!(claimed(&world).await["w-0-a"], None);
}

#[tokio::test(start_paused = true)]
async fn mnnvl_domains_follow_the_scale_and_go_with_the_set() {
    let world = with_driver(10).await;
    create(
        &world,
        set(Some("nv"), vec![clique("a", 8, None), clique("b", 8, None)]),
    )
    .await;
    assert_eq!(domains(&world).await, ["w-0-nv"]);
    let domain = world.get::<ComputeDomain>("w-0-nv").await;
    assert_eq!(domain.spec.fields["numNodes"], 0);
    assert_eq!(domain.spec.fields["channel"]["resourceClaimTemplate"]["name"], "w-0-nv");
    assert_eq!(domain.owner_references()[0].kind, "PodCliqueSet");
    assert_eq!(domain.labels()[labels::COMPONENT], "pcs-computedomain");

    world.scale::<PodCliqueSet>("w", 3).await;
    world.settle().await;
    assert_eq!(domains(&world).await, ["w-0-nv", "w-1-nv", "w-2-nv"]);
    assert_eq!(claimed(&world).await["w-2-b"].as_deref(), Some("w-2-nv"));
    let uid = world.get::<ComputeDomain>("w-0-nv").await.uid();
    world.scale::<PodCliqueSet>("w", 1).await;
    world.settle().await;
    assert_eq!(domains(&world).await, ["w-0-nv"]);
    assert_eq!(
        world.get::<ComputeDomain>("w-0-nv").await.uid(),
        uid,
        "one in use stays"
    );

    world.delete::<PodCliqueSet>("w").await;
    world.settle().await;
    assert!(domains(&world).await.is_empty() && world.pods().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn mnnvl_who_opts_out_or_has_no_gpu_takes_no_part() {
    let world = with_driver(10).await;
    let cliques = vec![
        clique("in", 8, None),
        clique("out", 8, Some("none")),
        clique("cpu", 0, None),
    ];
    create(&world, set(Some("nv"), cliques)).await;
    let claimed = claimed(&world).await;
    assert_eq!(claimed["w-0-in"].as_deref(), Some("w-0-nv"));
    assert_eq!((&claimed["w-0-out"], &claimed["w-0-cpu"]), (&None, &None));
    // Nobody takes part: nothing is made.
    world.delete::<PodCliqueSet>("w").await;
    world.settle().await;
    create(&world, set(Some("nv"), vec![clique("cpu", 0, Some("own"))])).await;
    assert!(domains(&world).await.is_empty());
}

/// The nearest annotation decides: clique, then scaling group, then set. Each combination, with and without GPUs.
#[tokio::test(start_paused = true)]
async fn mnnvl_of_twelve_cliques_the_nearest_annotation_decides() {
    let world = with_driver(20).await;
    let kinds = [("own", Some("deep")), ("out", Some("none")), ("heir", None)];
    let cliques = ["solo", "g", "h"].iter().flat_map(|place| {
        kinds
            .iter()
            .map(move |(kind, group)| clique(&format!("{place}-{kind}"), 4, *group))
    });
    let cpus = ["solo", "g", "h"].map(|place| clique(&format!("{place}-cpu"), 0, Some("deep")));
    let mut set = set(Some("wide"), cliques.chain(cpus).collect());
    let members = |place: &str| ["own", "out", "heir", "cpu"].map(|kind| format!("{place}-{kind}"));
    set["spec"]["template"]["podCliqueScalingGroups"] = json!([
        {"name": "g", "cliqueNames": members("g"), "replicas": 1, "annotations": {GROUP: "mid"}},
        {"name": "h", "cliqueNames": members("h"), "replicas": 1, "annotations": {GROUP: "none"}},
    ]);
    create(&world, set).await;
    assert_eq!(world.ready().await, 12);
    assert_eq!(domains(&world).await, ["w-0-deep", "w-0-mid", "w-0-wide"]);
    let expected = [
        ("w-0-g-0-g-cpu", None),
        ("w-0-g-0-g-heir", Some("w-0-mid")),
        ("w-0-g-0-g-out", None),
        ("w-0-g-0-g-own", Some("w-0-deep")),
        ("w-0-h-0-h-cpu", None),
        ("w-0-h-0-h-heir", None),
        ("w-0-h-0-h-out", None),
        ("w-0-h-0-h-own", Some("w-0-deep")),
        ("w-0-solo-cpu", None),
        ("w-0-solo-heir", Some("w-0-wide")),
        ("w-0-solo-out", None),
        ("w-0-solo-own", Some("w-0-deep")),
    ];
    let claimed = claimed(&world).await;
    let claimed: Vec<(&str, Option<&str>)> = claimed
        .iter()
        .map(|(clique, domain)| (clique.as_str(), domain.as_deref()))
        .collect();
    assert_eq!(claimed, expected);
}

#[tokio::test(start_paused = true)]
async fn mnnvl_annotations_are_judged_and_cannot_be_changed() {
    let world = with_driver(10).await;
    let sets = world.all::<PodCliqueSet>();
    let submit = async |set: Value| {
        let set: PodCliqueSet = serde_json::from_value(set).expect("a set");
        sets.create(&PostParams::default(), &set).await
    };
    world.serve_webhooks("network: {autoMNNVLEnabled: false}\n").await;
    let said = refusal(submit(set(Some("nv"), vec![clique("a", 8, None)])).await);
    assert!(
        said.contains("MNNVL is not enabled in the operator configuration"),
        "{said}"
    );
    submit(set(Some("none"), vec![clique("a", 8, None)]))
        .await
        .expect("to opt out is allowed");
    world.delete::<PodCliqueSet>("w").await;
    world.settle().await;

    world.serve_webhooks("network: {autoMNNVLEnabled: true}\n").await;
    let said = refusal(submit(set(None, vec![clique("a", 8, Some("Not/A/Label"))])).await);
    assert!(
        said.contains("invalid group 'Not/A/Label': must be a DNS label"),
        "{said}"
    );
    let long = "g".repeat(60);
    let said = refusal(submit(set(Some(&long), vec![clique("a", 8, None)])).await);
    assert!(said.contains("longer than 63 characters"), "{said}");
    submit(set(Some("nv"), vec![clique("a", 8, None)]))
        .await
        .expect("a good group");
    for (value, expected) in [
        (json!("other"), "cannot be changed from 'nv' to 'other'"),
        (Value::Null, "cannot be removed"),
    ] {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {GROUP: value}}}));
        let said = refusal(sets.patch("w", &PatchParams::default(), &patch).await);
        assert!(said.contains(expected), "{said}");
    }
}

/// Upstream's operator ends when the driver is missing. This one says so on the set, and goes on once it is there.
#[tokio::test(start_paused = true)]
async fn mnnvl_without_the_driver_the_set_says_so_and_goes_on_when_it_comes() {
    let world = World::placed_by(Placer::Operator, 10).await;
    create(&world, set(Some("nv"), vec![clique("a", 8, None)])).await;
    let told = errors(&world).await;
    let expected = "the pods need a ComputeDomain, and computedomains.resource.nvidia.com is not served; install \
                    NVIDIA's DRA driver";
    assert_eq!(told, [expected]);
    // By then it is told too that the gang waits for its pods.
    world.pass(10).await;
    let told = world.told().await;
    let failed = told
        .iter()
        .filter(|event| event.reason.as_deref() == Some("SyncComputeDomainFailed"));
    assert_eq!(failed.count(), 1, "{told:?}");
    let before = world.operator_writes(0).count();
    world.pass(600).await;
    assert_eq!(world.operator_writes(0).count(), before, "nothing is tried meanwhile");

    install_driver(&world).await;
    world.settle().await;
    assert_eq!(domains(&world).await, ["w-0-nv"]);
    assert!(errors(&world).await.is_empty(), "a clean pass clears old errors");
}

/// Deleted by mistake, a domain would take the fabric from pods that run: it is held until they are gone, and made again.
#[tokio::test(start_paused = true)]
async fn mnnvl_a_domain_in_use_is_held_and_made_again() {
    let world = with_driver(10).await;
    create(
        &world,
        set(Some("nv"), vec![clique("a", 8, None), clique("cpu", 0, None)]),
    )
    .await;
    let first = world.get::<ComputeDomain>("w-0-nv").await;
    world.delete::<ComputeDomain>("w-0-nv").await;
    world.pass(60).await;
    let held = world.get::<ComputeDomain>("w-0-nv").await;
    assert_eq!(held.uid(), first.uid());
    assert!(held.metadata.deletion_timestamp.is_some());
    let told = errors(&world).await;
    assert!(
        told.iter()
            .any(|error| error.contains("ComputeDomain default/w-0-nv was deleted")),
        "{told:?}"
    );

    for pod in world.pods_of("w-0-a").await {
        world.delete::<Pod>(&pod.name_any()).await;
    }
    world.settle().await;
    let second = world.get::<ComputeDomain>("w-0-nv").await;
    assert!(second.uid() != first.uid() && second.metadata.deletion_timestamp.is_none());
    assert_eq!(world.ready().await, 2);
    assert!(errors(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn mnnvl_a_domain_that_is_gone_or_lost_its_finalizer_is_mended() {
    let mut world = with_driver(10).await;
    create(&world, set(Some("nv"), vec![clique("a", 8, None)])).await;
    let bare = json!({"metadata": {"finalizers": null}});
    world.merge::<ComputeDomain>("w-0-nv", bare.clone()).await;
    world.settle().await;
    let finalizers = world.get::<ComputeDomain>("w-0-nv").await.finalizers().to_vec();
    assert_eq!(finalizers, [labels::finalizer::COMPUTE_DOMAIN]);
    let spec = world.get::<ComputeDomain>("w-0-nv").await.spec;
    assert_eq!(
        spec.fields["channel"]["allocationMode"], "Single",
        "what the driver fills in stays"
    );

    // Gone for good while no operator looks.
    world.stop_operator().await;
    world.merge::<ComputeDomain>("w-0-nv", bare).await;
    world.delete::<ComputeDomain>("w-0-nv").await;
    assert!(domains(&world).await.is_empty());
    world.start_operator();
    world.settle().await;
    assert_eq!(domains(&world).await, ["w-0-nv"]);
}

/// A domain of somebody else under our name is named, and left alone.
#[tokio::test(start_paused = true)]
async fn mnnvl_a_name_that_is_taken_is_told() {
    let world = with_driver(10).await;
    let theirs: ComputeDomain = serde_json::from_value(json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": "w-0-nv"},
        "spec": {"numNodes": 4, "channel": {"resourceClaimTemplate": {"name": "theirs"}}},
    }))
    .expect("a domain");
    world.create(&theirs).await;
    world
        .create_set(&set(Some("nv"), vec![clique("a", 8, None)]).to_string())
        .await;
    world
        .eventually("the set tells", async |world| {
            let told = errors(world).await;
            told.iter()
                .any(|error| error.contains("ComputeDomain default/w-0-nv already exists and belongs to nobody"))
        })
        .await;
    let found = world.get::<ComputeDomain>("w-0-nv").await;
    assert_eq!(found.spec.fields["numNodes"], 4);
    let writes = world
        .operator_writes(0)
        .of_kind("resource.nvidia.com", "computedomains");
    assert_eq!(writes.count(), 0);
}
