//! Every family of rules reaches the wire. What each rule says is tested where the rule is.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use grove_admission::Webhook;
use grove_api::{ClusterTopology, PodCliqueSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};

use crate::kit::{FULL, OPERATOR, ROBOT, Served, causes, message, request, serve, serve_with_kinds};

fn clique(name: &str) -> Value {
    let pod = json!({"containers": [{"name": "main", "image": "example.com/none"}]});
    json!({"name": name, "spec": {"roleName": name, "replicas": 2, "minAvailable": 1, "podSpec": pod}})
}

fn set(name: &str) -> Value {
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, "template": {"cliques": [clique("fe"), clique("be")]}},
    })
}

fn topology(name: &str, key: &str) -> Value {
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": name},
        "spec": {"levels": [{"domain": "rack", "key": key}, {"domain": "host", "key": "kubernetes.io/hostname"}]},
    })
}

fn create_set(set: Value) -> Value {
    request("CREATE", "podcliquesets", Value::Null, set)
}

fn update_set(old: Value, new: Value) -> Value {
    request("UPDATE", "podcliquesets", old, new)
}

async fn store<K>(api: Api<K>, object: Value) -> Result<()>
where
    K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &from_value(object)?).await?;
    Ok(())
}

async fn store_topology(served: &Served, name: &str, key: &str) -> Result<()> {
    store::<ClusterTopology>(Api::all(served.cluster.client()), topology(name, key)).await
}

// shows: V3-58
#[tokio::test]
async fn defaults_are_patched_in_and_nothing_else() -> Result<()> {
    let served = serve(FULL).await?;
    let mut sent = set("a");
    sent["spec"]["template"]["cliques"][0]["spec"]["fromTheFuture"] = json!(true);
    let response = served.ask(Webhook::DefaultSet, create_set(sent)).await?;
    assert_eq!(
        (&response["allowed"], &response["patchType"]),
        (&json!(true), &json!("JSONPatch"))
    );
    let patch = response["patch"].as_str().unwrap_or_default();
    let patch: Vec<Value> = serde_json::from_slice(&base64::prelude::BASE64_STANDARD.decode(patch)?)?;
    let mut paths: Vec<&str> = patch
        .iter()
        .filter_map(|operation| operation["path"].as_str())
        .collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "/spec/template/cliques/0/spec/podSpec/restartPolicy",
            "/spec/template/cliques/0/spec/podSpec/terminationGracePeriodSeconds",
            "/spec/template/cliques/1/spec/podSpec/restartPolicy",
            "/spec/template/cliques/1/spec/podSpec/terminationGracePeriodSeconds",
            "/spec/template/headlessServiceConfig",
            "/spec/template/terminationDelay",
            "/spec/template/topologyConstraint",
        ]
    );
    Ok(())
}

#[tokio::test]
async fn defaulting_leaves_alone_what_it_cannot_read() -> Result<()> {
    let served = serve(FULL).await?;
    let mut sent = set("a");
    sent["spec"]["replicas"] = json!("many");
    let response = served.ask(Webhook::DefaultSet, create_set(sent)).await?;
    assert_eq!(response, json!({"uid": "u1", "allowed": true}));
    Ok(())
}

// shows: V1-28, V1-30
#[tokio::test]
async fn the_default_level_reaches_new_sets_and_no_set_that_exists() -> Result<()> {
    let served = serve(FULL).await?;
    let constraint = |response: &Value| -> Result<Option<Value>> {
        let patch = response["patch"].as_str().unwrap_or_default();
        let patch = base64::prelude::BASE64_STANDARD.decode(patch)?;
        let patch: Vec<Value> = serde_json::from_slice(&patch)?;
        let is_it = |operation: &&Value| operation["path"] == "/spec/template/topologyConstraint";
        Ok(patch.iter().find(is_it).map(|operation| operation["value"].clone()))
    };
    let created = served.ask(Webhook::DefaultSet, create_set(set("a"))).await?;
    assert_eq!(constraint(&created)?, Some(json!({"pack": {"required": "rack"}})));
    let updated = served.ask(Webhook::DefaultSet, update_set(set("a"), set("a"))).await?;
    assert_eq!(constraint(&updated)?, None);
    Ok(())
}

// shows: G244-81
#[tokio::test]
async fn constraints_are_refused_while_kai_has_no_topology_and_nobody_makes_one() -> Result<()> {
    let kai =
        "scheduler: {profiles: [{name: kai-scheduler, default: true, config: {createTopologyResources: false}}]}\n";
    let served = serve_with_kinds(&format!("{kai}{FULL}")).await?;
    store_topology(&served, "grove-topology", "example.com/rack").await?;
    let mut sent = set("a");
    sent["spec"]["template"]["topologyConstraint"] = json!({"pack": {"required": "rack"}});
    let response = served.ask(Webhook::ValidateSet, create_set(sent)).await?;
    let expected = "kai-scheduler has no Topology 'grove-topology'";
    assert!(message(&response).contains(expected), "{response}");
    let response = served.ask(Webhook::ValidateSet, create_set(set("b"))).await?;
    assert_eq!(response["allowed"], json!(true), "{response}");
    Ok(())
}

#[tokio::test]
async fn violations_of_every_family_come_together() -> Result<()> {
    let served = serve(FULL).await?;
    let mut sent = set("Not_a_name");
    let template = &mut sent["spec"]["template"];
    template["cliques"][0]["spec"]["minAvailable"] = json!(3);
    template["cliques"][1]["spec"]["podSpec"]["nodeName"] = json!("n1");
    template["cliqueStartupType"] = json!("CliqueStartupTypeExplicit");
    template["cliques"][1]["spec"]["startsAfter"] = json!(["ghost"]);
    template["podCliqueScalingGroups"] = json!([{"name": "g", "cliqueNames": ["nobody"]}]);
    template["resourceSharing"] = json!([{"name": "", "scope": "AllReplicas"}]);
    template["terminationDelay"] = json!("0s");
    template["topologyConstraint"] = json!({"packDomain": "rack"});
    let response = served.ask(Webhook::ValidateSet, create_set(sent)).await?;
    assert_eq!(
        (&response["allowed"], &response["status"]["code"]),
        (&json!(false), &json!(422))
    );
    let causes = causes(&response);
    let expected = [
        ("metadata.name", "FieldValueInvalid"),
        ("spec.template.cliques[0].spec.minAvailable", "FieldValueInvalid"),
        ("spec.template.cliques[1].spec.podSpec.nodeName", "FieldValueInvalid"),
        ("spec.template.terminationDelay", "FieldValueInvalid"),
        ("spec.template.topologyConstraint", "FieldValueNotFound"),
    ];
    for (field, reason) in expected {
        let cause = (field.to_owned(), reason.to_owned());
        assert!(causes.contains(&cause), "{field} {reason} is not in {causes:#?}");
    }
    for family in ["startsAfter", "podCliqueScalingGroups", "resourceSharing"] {
        assert!(
            causes.iter().any(|(field, _)| field.contains(family)),
            "{family} is not in {causes:#?}"
        );
    }
    assert!(message(&response).contains("ClusterTopology 'grove-topology' not found"));
    Ok(())
}

#[tokio::test]
async fn a_good_set_passes_and_a_set_may_not_change_what_is_fixed() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    let response = served.ask(Webhook::ValidateSet, create_set(set("a"))).await?;
    assert_eq!(response, json!({"uid": "u1", "allowed": true}));

    let mut fewer = set("a");
    fewer["spec"]["template"]["cliques"] = json!([clique("fe")]);
    let response = served.ask(Webhook::ValidateSet, update_set(set("a"), fewer)).await?;
    assert_eq!(message(&response), "not allowed to change clique composition");

    let mut constrained = set("a");
    constrained["spec"]["template"]["topologyConstraint"] = json!({"packDomain": "rack"});
    store_topology(&served, "grove-topology", "example.com/rack").await?;
    let response = served
        .ask(Webhook::ValidateSet, update_set(set("a"), constrained.clone()))
        .await?;
    assert!(
        message(&response).starts_with("topology constraints are immutable: "),
        "{response}"
    );

    // On its way out it may change in any way.
    constrained["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let response = served
        .ask(Webhook::ValidateSet, update_set(set("a"), constrained))
        .await?;
    assert_eq!(response["allowed"], true);
    Ok(())
}

// shows: G244-17
#[tokio::test]
async fn the_topology_of_a_set_is_fixed_by_its_scheduled_pods_as_they_are_now() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    store_topology(&served, "a", "example.com/rack").await?;
    store_topology(&served, "b", "example.com/rack").await?;
    let named = |name: &str| {
        let mut set = set("s");
        set["spec"]["template"]["clusterTopologyName"] = json!(name);
        set["spec"]["template"]["topologyConstraint"] = json!({"packDomain": "rack"});
        set
    };
    let response = served
        .ask(Webhook::ValidateSet, update_set(named("a"), named("b")))
        .await?;
    assert_eq!(response["allowed"], true, "{response}");

    scheduled_pod(&served, "s").await?;
    let response = served
        .ask(Webhook::ValidateSet, update_set(named("a"), named("b")))
        .await?;
    let expected = "clusterTopologyName cannot be changed from 'a' to 'b': 1 pod is scheduled";
    assert_eq!(message(&response), expected);
    Ok(())
}

async fn scheduled_pod(served: &Served, set: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(served.cluster.client());
    let pod = json!({
        "metadata": {"name": format!("{set}-pod"), "labels": {"app.kubernetes.io/part-of": set}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "example.com/none"}]},
    });
    store(pods, pod).await
}

// shows: V3-21, V3-64, V3-65, V3-66
#[tokio::test]
async fn the_default_topology_is_the_operators() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    let (old, new) = (
        topology("grove-topology", "a.com/rack"),
        topology("grove-topology", "b.com/rack"),
    );
    let requests = [
        (
            request("CREATE", "clustertopologies", Value::Null, new.clone()),
            "created",
        ),
        (request("UPDATE", "clustertopologies", old.clone(), new), "modified"),
        (request("DELETE", "clustertopologies", old, Value::Null), "deleted"),
    ];
    for (mut request, done) in requests {
        let response = served.ask(Webhook::ValidateTopology, request.clone()).await?;
        let expected = format!("ClusterTopology 'grove-topology' can only be {done} by the operator");
        assert_eq!(message(&response), expected);
        request["userInfo"]["username"] = json!(OPERATOR);
        let response = served.ask(Webhook::ValidateTopology, request).await?;
        assert_eq!(response["allowed"], true);
    }
    Ok(())
}

// shows: G244-26, G244-27
#[tokio::test]
async fn levels_in_use_by_scheduled_workloads_stay() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    store_topology(&served, "mine", "a.com/rack").await?;
    let mut user = set("s");
    user["spec"]["template"]["clusterTopologyName"] = json!("mine");
    user["spec"]["template"]["topologyConstraint"] = json!({"packDomain": "rack"});
    store::<PodCliqueSet>(Api::default_namespaced(served.cluster.client()), user).await?;
    let change = request(
        "UPDATE",
        "clustertopologies",
        topology("mine", "a.com/rack"),
        topology("mine", "b.com/rack"),
    );
    let response = served.ask(Webhook::ValidateTopology, change.clone()).await?;
    assert_eq!(response["allowed"], true, "{response}");
    scheduled_pod(&served, "s").await?;
    let response = served.ask(Webhook::ValidateTopology, change).await?;
    let expected = "topology levels of ClusterTopology 'mine' cannot be changed: topology in use by scheduled \
                    workloads: default/s";
    assert_eq!(message(&response), expected);
    Ok(())
}

// shows: V2-4, V1-14
#[tokio::test]
async fn the_levels_of_a_topology_domain_are_fixed() -> Result<()> {
    let served = serve(FULL).await?;
    let domain = |key: &str| {
        json!({
            "apiVersion": "grove.run.ai/v1alpha1", "kind": "TopologyDomain", "metadata": {"name": "default"},
            "spec": {"levels": [{"name": "rack", "topologyKey": key}]},
        })
    };
    let change = request("UPDATE", "topologydomains", domain("a"), domain("b"));
    let response = served.ask(Webhook::ValidateTopologyDomain, change).await?;
    assert_eq!(causes(&response), [("spec.levels".into(), "FieldValueInvalid".into())]);
    Ok(())
}

#[tokio::test]
async fn fewer_replicas_than_the_minimum_are_refused_also_by_scale() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    let clique = |replicas: i32| {
        json!({
            "apiVersion": "grove.io/v1alpha1", "kind": "PodClique",
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"roleName": "r", "replicas": replicas, "minAvailable": 2,
                     "podSpec": {"containers": [{"name": "main", "image": "example.com/none"}]}},
        })
    };
    store::<grove_api::PodClique>(Api::default_namespaced(served.cluster.client()), clique(4)).await?;
    let scale = |replicas: i32| {
        let scale = |replicas: i32| json!({"kind": "Scale", "metadata": {"name": "c", "namespace": "default"}, "spec": {"replicas": replicas}});
        let mut request = request("UPDATE", "podcliques", scale(4), scale(replicas));
        request["subResource"] = json!("scale");
        request
    };
    for refused in [request("UPDATE", "podcliques", clique(4), clique(1)), scale(1)] {
        let response = served.ask(Webhook::ValidateReplicas, refused).await?;
        let expected = "replicas must be 0 or at least minAvailable (2): fewer are of no use";
        assert_eq!(message(&response), expected);
    }
    for fine in [
        scale(0),
        scale(2),
        request("UPDATE", "podcliques", clique(1), clique(1)),
    ] {
        let response = served.ask(Webhook::ValidateReplicas, fine).await?;
        assert_eq!(response["allowed"], true);
    }
    Ok(())
}

#[tokio::test]
async fn only_the_operator_and_its_friends_write_what_it_made() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    store::<PodCliqueSet>(Api::default_namespaced(served.cluster.client()), set("s")).await?;
    let managed = |parent: &str| {
        let labels = json!({"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": parent});
        json!({"kind": "PodClique", "metadata": {"name": "c", "namespace": "default", "labels": labels}})
    };
    let mine = json!({"kind": "PodClique", "metadata": {"name": "c", "namespace": "default"}});
    let by = |user: &str, mut request: Value| {
        request["userInfo"]["username"] = json!(user);
        request
    };
    let delete = request("DELETE", "podcliques", managed("s"), Value::Null);
    let mut pod = delete.clone();
    pod["resource"] = json!({"group": "", "version": "v1", "resource": "pods"});
    let through = |subresource: &str| {
        let mut update = request("UPDATE", "pods", managed("s"), managed("s"));
        update["resource"] = pod["resource"].clone();
        update["subResource"] = json!(subresource);
        update
    };
    let refused = [
        (through(""), "creation/updation"),
        (through("resize"), "creation/updation"),
        (delete.clone(), "deletion"),
        (
            request("CREATE", "podcliques", Value::Null, managed("s")),
            "creation/updation",
        ),
        // Taking the label off does not help.
        (
            request("UPDATE", "podcliques", managed("s"), mine.clone()),
            "creation/updation",
        ),
    ];
    for (request, done) in refused {
        let response = served.ask(Webhook::Authorizer, request).await?;
        let expected = format!("admission denied, {done} of resource: default/c is not allowed");
        assert!(message(&response).starts_with(&expected), "{response}");
        assert_eq!(response["status"]["code"], 403);
    }
    let admitted = [
        by(OPERATOR, delete.clone()),
        by(ROBOT, delete.clone()),
        by(
            "system:serviceaccount:kube-system:generic-garbage-collector",
            delete.clone(),
        ),
        pod.clone(),
        through("ephemeralcontainers"),
        request("UPDATE", "podcliques", mine.clone(), mine),
    ];
    for request in admitted {
        let response = served.ask(Webhook::Authorizer, request).await?;
        assert_eq!(response, json!({"uid": "u1", "allowed": true}));
    }
    let orphan = request("DELETE", "podcliques", managed("gone"), Value::Null);
    let response = served.ask(Webhook::Authorizer, orphan).await?;
    assert_eq!(response["allowed"], true);
    assert!(response["warnings"][0].as_str().unwrap_or_default().contains("'gone'"));
    Ok(())
}

#[tokio::test]
async fn the_annotation_of_a_set_opens_what_belongs_to_it() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    let mut open = set("s");
    open["metadata"]["annotations"] = json!({"grove.io/disable-managed-resource-protection": "true"});
    store::<PodCliqueSet>(Api::default_namespaced(served.cluster.client()), open).await?;
    let labels = json!({"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "s"});
    let object = json!({"kind": "PodClique", "metadata": {"name": "c", "namespace": "default", "labels": labels}});
    let response = served
        .ask(
            Webhook::Authorizer,
            request("DELETE", "podcliques", object, Value::Null),
        )
        .await?;
    assert_eq!(response["allowed"], true);
    Ok(())
}

// shows: G244-13
#[tokio::test]
async fn who_asks_for_numa_is_told_while_no_node_publishes_its_cells() -> Result<()> {
    let served = serve_with_kinds(FULL).await?;
    let mut numa = topology("numa", "example.com/rack");
    let level = json!({"domain": "numa", "key": "example.com/numa"});
    numa["spec"]["levels"].as_array_mut().context("levels")?.push(level);
    store::<ClusterTopology>(Api::all(served.cluster.client()), numa).await?;
    let mut sent = set("a");
    sent["spec"]["template"]["clusterTopologyName"] = json!("numa");
    sent["spec"]["template"]["topologyConstraint"] = json!({"pack": {"required": "numa"}});
    let warnings = async |sent: &Value| -> Result<Value> {
        let response = served.ask(Webhook::ValidateSet, create_set(sent.clone())).await?;
        assert_eq!(response["allowed"], true, "{response}");
        Ok(response["warnings"].clone())
    };
    let expected = "spec.template.topologyConstraint.pack.required: 'numa' is enforced as 'host': no node publishes its \
                    NUMA cells (NodeResourceTopology)";
    assert_eq!(warnings(&sent).await?, json!([expected]), "the kind is not even served");

    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "noderesourcetopologies.topology.node.k8s.io"},
        "spec": {
            "group": "topology.node.k8s.io", "scope": "Cluster",
            "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies"},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definitions = Api::<CustomResourceDefinition>::all(served.cluster.client());
    definitions
        .create(&PostParams::default(), &from_value(definition)?)
        .await?;
    let name = "noderesourcetopologies.topology.node.k8s.io";
    await_condition(definitions, name, conditions::is_crd_established()).await?;
    assert_eq!(warnings(&sent).await?, json!([expected]));
    let kind = GroupVersionKind::gvk("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology");
    let resource = ApiResource::from_gvk_with_plural(&kind, "noderesourcetopologies");
    let published = DynamicObject::new("n1", &resource);
    let nodes: Api<DynamicObject> = Api::all_with(served.cluster.client(), &resource);
    nodes.create(&PostParams::default(), &published).await?;
    assert_eq!(warnings(&sent).await?, Value::Null);
    Ok(())
}

#[tokio::test]
async fn a_field_that_cannot_be_read_is_named() -> Result<()> {
    let served = serve(FULL).await?;
    let mut sent = set("a");
    sent["spec"]["template"]["cliques"][1]["spec"]["replicas"] = json!("two");
    let response = served.ask(Webhook::ValidateSet, create_set(sent)).await?;
    let field = "spec.template.cliques[1].spec.replicas";
    assert_eq!(causes(&response), [(field.into(), "FieldValueInvalid".into())]);
    Ok(())
}

/// Upstream makes one of nothing, and so do manifests that were written for it. Who meant nothing is told.
#[tokio::test]
async fn zero_replicas_of_a_clique_become_one_and_the_author_is_told() -> Result<()> {
    let served = serve(FULL).await?;
    let mut sent = set("a");
    sent["spec"]["template"]["cliques"][1]["spec"]["replicas"] = json!(0);
    sent["spec"]["template"]["cliques"][1]["spec"]["minAvailable"] = Value::Null;
    let response = served.ask(Webhook::DefaultSet, create_set(sent)).await?;
    assert_eq!(response["allowed"], true);
    let warnings = response["warnings"].as_array().cloned().unwrap_or_default();
    assert_eq!(warnings.len(), 1, "{response}");
    let expected = "spec.template.cliques[1].spec.replicas: 0 becomes 1 in clique 'be'";
    assert!(
        warnings[0]
            .as_str()
            .is_some_and(|warning| warning.starts_with(expected)),
        "{response}"
    );
    Ok(())
}
