//! `grove topology` against a cluster on a loopback port.

use std::path::{Path, PathBuf};

use grove_simcluster::{Cluster, NodeSpec, User};
use kube::api::{Api, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::{file, grove};

const RACK: &str = "example.com/rack";
const BLOCK: &str = "example.com/block";

pub(crate) async fn install(cluster: &Cluster) {
    let api = Api::all(cluster.client());
    for definition in grove_api::crds::all() {
        let name = definition.metadata.name.clone().unwrap();
        api.create(&PostParams::default(), &definition).await.unwrap();
        await_condition(api.clone(), &name, conditions::is_crd_established())
            .await
            .unwrap();
    }
}

async fn create<K>(cluster: &Cluster, object: Value)
where
    K: kube::Resource<DynamicType = ()> + serde::Serialize + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    let request = kube::core::Request::new(K::url_path(&(), object.meta().namespace.as_deref()));
    let body = serde_json::to_vec(&object).unwrap();
    let request = request.create(&PostParams::default(), body).unwrap();
    cluster.client().request::<K>(request).await.unwrap();
}

/// Runs the binary to its end while the cluster goes on.
async fn run(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let (kubeconfig, args): (PathBuf, Vec<String>) = (
        kubeconfig.to_owned(),
        args.iter().map(|arg| (*arg).to_owned()).collect(),
    );
    tokio::task::spawn_blocking(move || {
        let output = grove()
            .arg("topology")
            .args(args)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    })
    .await
    .unwrap()
}

// shows: G244-78, G244-19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topologies_are_listed_drawn_used_checked_and_discovered() {
    let node = |name: &str, block: &str, rack: &str| NodeSpec::new(name).label(BLOCK, block).label(RACK, rack);
    let nodes = [node("n1", "b1", "r1"), node("n2", "b1", "r1"), node("n3", "b2", "r2")];
    let cluster = Cluster::builder().nodes(nodes).start();
    install(&cluster).await;
    cluster.server().trust_token("secret", User::admin());
    let listener = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let kubeconfig = file(&folder, "kubeconfig", &listener.kubeconfig("secret"));

    let (code, said, _) = run(&kubeconfig, &["list"]).await;
    assert_eq!(code, Some(0));
    assert!(said.contains("grove topology discover"), "{said}");

    let (code, proposed, table) = run(&kubeconfig, &["discover", "--name", "grove-topology"]).await;
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("example.com/rack"), "{table}");
    let proposed: Value = serde_saphyr::from_str(&proposed).unwrap();
    create::<grove_api::ClusterTopology>(&cluster, proposed).await;
    let container = json!({"name": "main", "image": "one"});
    let clique = json!({"name": "a", "spec": {"roleName": "a", "replicas": 1, "podSpec": {"containers": [container]}}});
    create::<grove_api::PodCliqueSet>(
        &cluster,
        json!({"metadata": {"name": "w", "namespace": "default"}, "spec": {"replicas": 1, "template": {
            "topologyConstraint": {"packDomain": "rack"}, "cliques": [clique.clone()]}}}),
    )
    .await;

    let (code, said, _) = run(&kubeconfig, &["list"]).await;
    let lines: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(code, Some(0));
    let cells: Vec<&str> = lines[1].iter().map(|cell| cell.trim()).collect();
    assert_eq!(
        cells,
        [
            "ClusterTopology",
            "grove-topology",
            "block > rack > host",
            "3",
            "0",
            "1",
            "-"
        ]
    );

    let (_, said, _) = run(&kubeconfig, &["tree"]).await;
    assert_eq!(
        said,
        "block b1  2 nodes\n`- rack r1  2 nodes\nblock b2  1 node\n`- rack r2  1 node\n"
    );
    let (_, said, _) = run(&kubeconfig, &["tree", "--depth", "block"]).await;
    assert_eq!(said, "block b1  2 nodes\nblock b2  1 node\n");
    let (code, _, said) = run(&kubeconfig, &["tree", "nowhere"]).await;
    assert_eq!(
        (code, said.as_str()),
        (Some(2), "no topology is called 'nowhere'; known: grove-topology\n")
    );

    let (_, said, _) = run(&kubeconfig, &["usage"]).await;
    assert_eq!(
        said,
        "TOPOLOGY                  PODCLIQUESET\ngrove-topology (default)  default/w\n"
    );
    let (_, said, _) = run(&kubeconfig, &["usage", "-o", "json"]).await;
    let uses: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&uses["apiVersion"], &uses["kind"]),
        (&json!("cli.grove.io/v1"), &json!("TopologyUsage"))
    );
    let uses = &uses["items"];
    assert_eq!((&uses[0]["isDefault"], &uses[0]["name"]), (&json!(true), &json!("w")));

    let (code, said, _) = run(&kubeconfig, &["check"]).await;
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "1 topologies, 3 nodes and 1 sets are in order\n")
    );
    let mut large = clique;
    large["spec"]["podSpec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100k"}});
    create::<grove_api::PodCliqueSet>(
        &cluster,
        json!({"metadata": {"name": "large", "namespace": "default"}, "spec": {"replicas": 1, "template": {
            "topologyConstraint": {"packDomain": "rack"}, "cliques": [large]}}}),
    )
    .await;
    let (code, said, _) = run(&kubeconfig, &["check"]).await;
    assert_eq!(code, Some(1));
    assert!(said.starts_with("fail  GT023 PodCliqueSet default/large"), "{said}");
    let sets = kube::Api::<grove_api::PodCliqueSet>::default_namespaced(cluster.client());
    sets.delete("large", &Default::default()).await.unwrap();
    cluster.fleet().add(NodeSpec::new("n4").label(BLOCK, "b2"));
    let (code, said, _) = run(&kubeconfig, &["check"]).await;
    assert_eq!(code, Some(0), "a warning is no failure: {said}");
    assert!(said.starts_with("warn  GT011"), "{said}");
    assert_eq!(run(&kubeconfig, &["check", "--strict"]).await.0, Some(1));
    cluster.fleet().add(node("n5", "b2", "r1"));
    let (code, said, _) = run(&kubeconfig, &["check", "-o", "json"]).await;
    assert_eq!(code, Some(1));
    let findings: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(findings["items"][0]["code"], "GT012");
}

#[test]
fn a_cluster_that_does_not_answer_is_exit_code_3() {
    let folder = TempDir::new().unwrap();
    let nobody = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}], "users": [],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": ""}}],
    });
    let kubeconfig = file(&folder, "kubeconfig", &nobody.to_string());
    grove()
        .args(["topology", "list", "--kubeconfig"])
        .arg(kubeconfig)
        .assert()
        .code(3)
        .stdout("");
}
