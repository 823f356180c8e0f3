//! The page over HTTP, beside the embedded cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where it stopped")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use grove_simcluster::{Cluster, NodeSpec};
use grove_web::Page;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(30);

struct Served {
    cluster: Cluster,
    address: SocketAddr,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

/// A page of a cluster with two hosts of eight GPUs.
async fn serve() -> Served {
    let host = |name: &str| NodeSpec::new(name).capacity("nvidia.com/gpu", "8");
    let cluster = Cluster::builder().nodes(vec![host("h1"), host("h2")]).start();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let page = Page::new(cluster.client(), stop.clone());
    let ended = tokio::spawn(async move { page.serve(listener).await });
    Served {
        cluster,
        address,
        stop,
        ended,
    }
}

async fn ask(address: SocketAddr, path: &str, host: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Head and body of an answer.
async fn get(address: SocketAddr, path: &str, host: &str) -> (String, String) {
    let mut answer = String::new();
    let mut stream = ask(address, path, host).await;
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn pod(name: &str, gpus: u32) -> Pod {
    let container =
        json!({"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
    let spec = json!({"nodeName": "h2", "containers": [container]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

/// The next event of a stream: its name and its data.
async fn event(lines: &mut tokio::io::Lines<BufReader<TcpStream>>) -> (String, Value) {
    let mut name = String::new();
    loop {
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        if let Some(found) = line.strip_prefix("event: ") {
            name = found.to_owned();
        }
        if let Some(data) = line.strip_prefix("data: ") {
            return (name, serde_json::from_str(data).unwrap());
        }
    }
}

#[tokio::test]
async fn a_reader_gets_the_map_and_then_what_changes() {
    let served = serve().await;
    let pods: Api<Pod> = Api::default_namespaced(served.cluster.client());
    pods.create(&PostParams::default(), &pod("first", 2)).await.unwrap();
    let stream = ask(served.address, "/api/events", "localhost").await;
    let mut lines = BufReader::new(stream).lines();
    let (name, map) = event(&mut lines).await;
    assert_eq!((&*name, map["hosts"].as_array().unwrap().len()), ("map", 2));
    assert_eq!(map["topologies"], json!([]));

    pods.create(&PostParams::default(), &pod("second", 3)).await.unwrap();
    let holds = async |lines: &mut _, cells: Value| loop {
        let (name, change) = event(lines).await;
        assert_eq!(name, "change");
        if change["hosts"]
            .as_array()
            .is_some_and(|hosts| hosts.iter().any(|host| host["cells"] == cells))
        {
            return change;
        }
    };
    let change = holds(&mut lines, json!([0, 5])).await;
    assert_eq!(
        change["hosts"].as_array().unwrap().len(),
        1,
        "only the host that changed is told: {change}"
    );
    pods.delete("first", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    holds(&mut lines, json!([0, 3])).await;

    // A reader who is still there does not keep it from ending.
    served.stop.cancel();
    timeout(PATIENCE, served.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn every_answer_is_guarded() {
    let served = serve().await;
    let at = served.address;
    for (path, kind) in [
        ("/", "text/html"),
        ("/main.js", "text/javascript"),
        ("/api/map", "application/json"),
    ] {
        let (head, _) = get(at, path, &at.to_string()).await;
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        assert!(head.contains(&format!("content-type: {kind}")), "{path}: {head}");
        assert!(
            head.contains("content-security-policy: default-src 'none'"),
            "{path}: {head}"
        );
    }
    let (head, body) = get(at, "/api/map", "somebody.example").await;
    assert!(
        head.starts_with("HTTP/1.1 421") && !body.contains("hosts"),
        "{head}\n{body}"
    );
    let (head, _) = get(at, "/api/gangs/default/none/pods", "localhost").await;
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");

    let mut stream = TcpStream::connect(at).await.unwrap();
    let write = "POST /api/map HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(write.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    served.stop.cancel();
    timeout(PATIENCE, served.ended).await.unwrap().unwrap();
}
