//! What the operator may do (`grove_api::rights`) is what it does: one run goes through everything that it can be asked
//! for, and every right that the run did not use is listed here with the reason.
//!
//! That no scenario goes beyond the rights is checked at the end of every test of this crate.

use std::collections::BTreeSet;
use std::time::Duration;

use grove_admission::Policy;
use grove_admission::certificates::{Auto, Lifetimes};
use grove_admission::registration::{Turn, Upkeep};
use grove_api::podcliqueset::CliqueStartupType;
use grove_api::rights;
use grove_api::{
    ClusterTopologyBinding, ComputeDomain, PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, TopologyDomain,
    labels,
};
use grove_scenarios::rights::{Right, used};
use grove_scenarios::{
    HOST, Look as _, OFF, RACK, compute_domain_definition, kai_definition, levels, placed_by_kai, pod_group_definition,
    topology_definition,
};
use grove_simcluster::fault::{Match, RequestFault, Rule, WatchFault};
use grove_simcluster::server::Verb;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{HOME, Kind, OPERATOR, World};
use crate::topology::hooks::endpoint;

const PLACING: &str = "asked for where the operator places gangs itself, which is tested with the scheduler";

/// Rights that a run of the controllers and the webhooks does not show in the requests of the operator.
const UNSEEN: &[(&str, &[&str], &str)] = &[
    (
        "grove.io",
        &[
            "update podcliquesets/finalizers",
            "update podcliques/finalizers",
            "update podcliquescalinggroups/finalizers",
        ],
        "asked for by the API server when an owner reference blocks the owner's deletion",
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "create mutatingwebhookconfigurations",
            "create validatingwebhookconfigurations",
        ],
        "asked for by the API server when a patch makes the object",
    ),
    (
        "",
        &[
            "list nodes",
            "watch nodes",
            "list persistentvolumes",
            "watch persistentvolumes",
            "list persistentvolumeclaims",
            "watch persistentvolumeclaims",
            "create pods/eviction",
            "patch pods/status",
        ],
        PLACING,
    ),
    (
        "topology.node.k8s.io",
        &["list noderesourcetopologies", "watch noderesourcetopologies"],
        PLACING,
    ),
    (
        "scheduling.k8s.io",
        &["list priorityclasses", "watch priorityclasses"],
        PLACING,
    ),
    (
        "policy",
        &["list poddisruptionbudgets", "watch poddisruptionbudgets"],
        PLACING,
    ),
    (
        "coordination.k8s.io",
        &[
            "get leases",
            "list leases",
            "watch leases",
            "create leases",
            "update leases",
        ],
        "the process elects its leader; shown by replicas_lead_one_after_the_other",
    ),
];

/// Every level shares, scales by itself, waits for the one before, sits close together and spans NVLink.
const EVERYTHING: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata:
  name: w
  labels: {kai.scheduler/queue: research}
  annotations: {grove.io/mnnvl-group: nv}
spec:
  replicas: 2
  template:
    cliqueStartupType: CliqueStartupTypeInOrder
    terminationDelay: 10s
    topologyConstraint: {pack: {required: rack}}
    resourceSharing: [{name: elsewhere, scope: PerReplica}]
    cliques:
    - name: solo
      resourceSharing: [{name: elsewhere, scope: PerReplica}]
      spec:
        roleName: solo
        replicas: 2
        minAvailable: 1
        autoScalingConfig: {minReplicas: 1, maxReplicas: 5}
        podSpec: {containers: [{name: main, image: one, resources: {limits: {nvidia.com/gpu: 1}}}]}
    - name: member
      spec:
        roleName: member
        replicas: 1
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one}]}
    podCliqueScalingGroups:
    - {name: sg, cliqueNames: [member], replicas: 2, minAvailable: 1, scaleConfig: {minReplicas: 1, maxReplicas: 4}}
"#;

fn granted() -> BTreeSet<Right> {
    let cluster_wide = rights::cluster_role().rules.unwrap_or_default();
    let at_home = rights::role(&HOME).rules.unwrap_or_default();
    grove_scenarios::rights::granted(cluster_wide.into_iter().chain(at_home))
}

/// Changes every object of a kind.
async fn bend<K: Kind>(world: &World, patch: &Value) {
    for name in world.list::<K>().await.into_keys() {
        // It may be on its way out.
        let patch = Patch::Merge(patch);
        let _ = world.all::<K>().patch(&name, &PatchParams::default(), &patch).await;
    }
}

/// The same for everything that the operator makes, one kind after the other.
async fn bend_all(world: &World, patch: &Value) {
    bend::<PodClique>(world, patch).await;
    bend::<PodCliqueScalingGroup>(world, patch).await;
    bend::<PodGang>(world, patch).await;
    bend::<Pod>(world, patch).await;
    bend::<Service>(world, patch).await;
    bend::<HorizontalPodAutoscaler>(world, patch).await;
    bend::<ControllerRevision>(world, patch).await;
    bend::<Role>(world, patch).await;
    bend::<RoleBinding>(world, patch).await;
    bend::<ResourceClaim>(world, patch).await;
    bend::<ComputeDomain>(world, patch).await;
    world.settle().await;
}

async fn furnish() -> World {
    let world = World::without_operator(1, []).await;
    world.install(kai_definition()).await;
    world.install(pod_group_definition()).await;
    world.install(compute_domain_definition()).await;
    let mut kueue = topology_definition("kueue.x-k8s.io", &["v1beta1"]);
    let levels = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/levels/x-kubernetes-validations";
    *kueue.pointer_mut(levels).expect("a rule") = json!([]);
    world.install(kueue).await;
    let home: Namespace = serde_json::from_value(json!({"metadata": {"name": HOME.namespace}})).expect("a namespace");
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces
        .create(&PostParams::default(), &home)
        .await
        .expect("a namespace");
    let template = json!({"metadata": {"name": "elsewhere"}, "spec": {"spec": {"devices": {"requests":
        [{"name": "d", "exactly": {"deviceClassName": "fabric.example"}}]}}}});
    let template: ResourceClaimTemplate = serde_json::from_value(template).expect("a template");
    world.create(&template).await;
    world
}

/// A set lives: made, bent by others, changed, scaled, deleted.
async fn live(world: &mut World) {
    world
        .launch(&placed_by_kai(&["rack", "host"]))
        .await
        .expect("an operator that starts");
    world.create_set(EVERYTHING).await;
    world.settle().await;
    bend_all(world, &json!({"metadata": {"labels": {labels::MANAGED_BY: null}}})).await;
    bend_all(world, &json!({"metadata": {"labels": {labels::COMPONENT: null}}})).await;
    world
        .edit_set("w", |set| {
            let template = &mut set.spec.template;
            template.cliques[0].spec.pod_spec.containers[0].image = Some("two".to_owned());
            template.cliques[1].spec.pod_spec.containers[0].image = Some("two".to_owned());
            template.priority_class_name = Some("high".to_owned());
        })
        .await;
    world.settle().await;
    world.scale::<PodClique>("w-0-solo", 1).await;
    world.scale::<PodCliqueScalingGroup>("w-0-sg", 1).await;
    world.scale::<PodCliqueSet>("w", 1).await;
    world.settle().await;
    // No webhook stands in the way yet: nobody waits for anybody any more.
    world
        .edit_set("w", |set| {
            set.spec.template.clique_startup_type = CliqueStartupType::AnyOrder
        })
        .await;
    world.settle().await;
}

/// The first answer to a creation is lost, and the watch that would tell of it is late: it is found by its name.
fn lose_a_creation(world: &World, group: &str) {
    let topologies = || Match::any().user(OPERATOR).resource(group, "topologies");
    world.cluster.faults().script([
        Rule::event(
            topologies().verb(Verb::Watch),
            WatchFault::Delay(Duration::from_secs(60)),
        )
        .times(10),
        Rule::request(topologies().verb(Verb::Create), RequestFault::FailAfter).times(1),
    ]);
}

/// Topologies of both kinds come, change and go, and KAI and Kueue are told.
async fn change_topologies(world: &mut World) {
    lose_a_creation(world, "kai.scheduler");
    world.create_topology("mine", &[("rack", RACK), ("host", HOST)]).await;
    world.await_kai_labels("mine", &[RACK, HOST]).await;
    let levels_of_mine = json!({"spec": {"levels": [{"domain": "host", "key": HOST}]}});
    let patch = Patch::Merge(levels_of_mine);
    let patched = world.topologies().patch("mine", &PatchParams::default(), &patch).await;
    patched.expect("levels that nobody uses can be changed");
    world.await_kai_labels("mine", &[HOST]).await;
    let silent = placed_by_kai(&["rack", "host"]).replace(
        "{name: kai-scheduler, ",
        "{name: kai-scheduler, config: {createTopologyResources: false}, ",
    );
    world.launch(&silent).await.expect("an operator that starts");
    world.settle().await;
    world.delete_topology("mine").await;
    world.await_topology_gone("mine").await;

    let domain = json!({"metadata": {"name": "d"}, "spec": {"levels": [{"name": "rack", "topologyKey": RACK}]}});
    let domain: TopologyDomain = serde_json::from_value(domain).expect("a TopologyDomain");
    let domains = Api::<TopologyDomain>::all(world.client.clone());
    domains
        .create(&PostParams::default(), &domain)
        .await
        .expect("a TopologyDomain");
    let selected = "topologyAwareScheduling: {source: TopologyDomain, topologyDomainName: d, enabled: true}\n";
    lose_a_creation(world, "kueue.x-k8s.io");
    world.launch(selected).await.expect("an operator that starts");
    world.settle().await;
    let kueue = world.backend_topologies("kueue.x-k8s.io", "v1beta1");
    let bent = Patch::Merge(json!({"spec": {"levels": [{"nodeLabel": HOST}]}}));
    kueue
        .patch("d", &PatchParams::default(), &bent)
        .await
        .expect("a Kueue Topology");
    world.pass(120).await;
    world.cluster.faults().clear();
    // Another source: Kueue's Topology is let go of.
    world
        .launch(&levels(&["rack", "host"]))
        .await
        .expect("an operator that starts");
    world.settle().await;
}

/// Users meet the webhooks, and what these must know is read; then their certificates and configurations are kept.
async fn ask_webhooks(world: &mut World) {
    let guarded = format!("{}authorizer: {{enabled: true}}\n", levels(&["rack", "host"]));
    world.serve_webhooks(&guarded).await;
    let binding = json!({"metadata": {"name": "theirs"}, "spec": {"levels": [{"domain": "rack", "key": RACK}]}});
    let binding: ClusterTopologyBinding = serde_json::from_value(binding).expect("a ClusterTopologyBinding");
    let bindings = Api::<ClusterTopologyBinding>::all(world.client.clone());
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .expect("a ClusterTopologyBinding");
    let mut on_theirs = grove_scenarios::set("v", (1, 1), grove_scenarios::on("theirs", "rack"));
    on_theirs.metadata.labels = None;
    world.try_create(&on_theirs).await.expect("a set that is admitted");
    world.settle().await;
    let below = world.all::<PodClique>();
    let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
    let refused = below.patch("v-0-a", &PatchParams::default(), &patch).await;
    assert!(refused.is_err(), "below the minimum, and not the operator");
    let patch = Patch::Merge(json!({"spec": {"topologyConstraint": null}}));
    let _ = world
        .all::<PodGang>()
        .patch("v-0", &PatchParams::default(), &patch)
        .await;

    let (certificates, current) = watch::channel(None);
    let (registered, mut is_registered) = watch::channel(false);
    let (told, trusted) = watch::channel(None);
    let auto = Auto {
        client: world.operator_client(),
        namespace: HOME.namespace.to_owned(),
        secret: HOME.secret.to_owned(),
        names: vec!["127.0.0.1".to_owned()],
        lifetimes: Lifetimes::default(),
    };
    let upkeep = Upkeep {
        client: world.operator_client(),
        policy: Policy::new(&world.configuration(OFF), OPERATOR),
        // Where they are registered already: an address in its place would be refused beside what others own.
        endpoint: endpoint(),
        turn: Turn::AtOnce,
    };
    let clock = world.cluster.clock();
    let certificates = tokio::spawn(auto.run(certificates, trusted, move || clock.now()));
    let upkeep = tokio::spawn(upkeep.run(current, registered, told));
    is_registered
        .wait_for(|registered| *registered)
        .await
        .expect("a registration");
    let secrets = Api::<k8s_openapi::api::core::v1::Secret>::namespaced(world.client.clone(), HOME.namespace);
    let emptied = Patch::Merge(json!({"data": {"tls.crt": "", "tls.key": "", "ca.crt": "", "ca.key": ""}}));
    secrets
        .patch(HOME.secret, &PatchParams::default(), &emptied)
        .await
        .expect("a Secret");
    world.settle().await;
    certificates.abort();
    upkeep.abort();
}

// shows: V3-83, V3-84, V2-44
#[tokio::test(start_paused = true)]
async fn every_right_is_used_or_has_a_reason() {
    let mut world = furnish().await;
    live(&mut world).await;
    change_topologies(&mut world).await;
    ask_webhooks(&mut world).await;
    world.launch(OFF).await.expect("an operator that starts");
    world.settle().await;

    let unseen = UNSEEN.iter().flat_map(|(group, rights, _)| {
        let right = move |right: &&str| ((*group).to_owned(), (*right).to_owned());
        rights.iter().map(right)
    });
    let unseen: BTreeSet<Right> = unseen.collect();
    let (granted, used) = (granted(), used(world.history(), OPERATOR));
    let unused: BTreeSet<Right> = granted.difference(&used).cloned().collect();
    let idle: Vec<&Right> = unused.difference(&unseen).collect();
    assert!(
        idle.is_empty(),
        "granted in crates/api/src/rights.rs and never used: {idle:#?}"
    );
    let wrong: Vec<&Right> = unseen.difference(&unused).collect();
    assert!(
        wrong.is_empty(),
        "used, or not granted, and yet listed as unseen: {wrong:#?}"
    );
}
