//! The life of an operator process against an API server on a loopback port.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::routing::any;
use axum::{Router, serve};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Config};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::cli::file;
use crate::embedded::{ApiServer, refusal};

/// No condition of these tests takes longer, even on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What the operator promises for its end.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Serves `router` on a free port until the test's runtime ends.
async fn listen(router: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { serve(listener, router).await });
    address
}

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// A configured operator and, once started, its process.
struct Operator {
    folder: TempDir,
    config: PathBuf,
    kubeconfig: PathBuf,
    health: u16,
    metrics: u16,
    profiles: u16,
    webhooks: u16,
}

impl Operator {
    fn new(api_server: SocketAddr, more: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let [health, metrics, profiles, webhooks] = free_ports();
        let config = format!(
            "apiVersion: operator.config.grove.io/v1alpha1\n\
             kind: OperatorConfiguration\n\
             server:\n  \
               webhooks: {{bindAddress: 127.0.0.1, port: {webhooks}}}\n  \
               healthProbes: {{bindAddress: 127.0.0.1, port: {health}}}\n  \
               metrics: {{bindAddress: 127.0.0.1, port: {metrics}}}\n\
             debugging: {{enableProfiling: true, pprofBindPort: {profiles}}}\n\
             {more}"
        );
        let kubeconfig = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{api_server}")}}],
            "users": [{"name": "test", "user": {"token": "secret-token"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "grove-system"}}],
        });
        let config = file(&folder, "operator.yaml", &config);
        let kubeconfig = file(&folder, "kubeconfig", &kubeconfig.to_string());
        Self {
            folder,
            config,
            kubeconfig,
            health,
            metrics,
            profiles,
            webhooks,
        }
    }

    /// The process dies with the test, however that ends.
    fn start(&self, env: &[(&str, &str)]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_grove"))
            .arg("operator")
            .arg("--config")
            .arg(&self.config)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .env_clear()
            .envs(env.iter().copied())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.folder.path().join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    async fn wait_for_ready(&self) {
        eventually("ready", || async {
            http(self.health, "/readyz").await.is_some_and(|(code, _)| code == 200)
        })
        .await;
    }

    async fn metric(&self, line: &str) -> bool {
        http(self.metrics, "/metrics")
            .await
            .is_some_and(|(_, body)| text(body).lines().any(|found| found == line))
    }
}

async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "not {what} after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Status and body of a GET, or nothing while nobody listens.
async fn http(port: u16, path: &str) -> Option<(u16, Vec<u8>)> {
    let mut stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return None,
        stream => stream.unwrap(),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.ok()?;
    let head_len = response.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let body = response.split_off(head_len);
    let code = text(response).split(' ').nth(1)?.parse().ok()?;
    Some((code, body))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Sends SIGTERM; returns the exit code and how long the end took.
pub(crate) async fn terminate(mut child: Child) -> (Option<i32>, Duration) {
    let start = Instant::now();
    let pid = child.id().unwrap().to_string();
    assert!(
        Command::new("/bin/sh")
            .args(["-c", "kill -TERM \"$0\"", &pid])
            .status()
            .await
            .unwrap()
            .success()
    );
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    (status.code(), start.elapsed())
}

async fn exit_code(mut child: Child) -> Option<i32> {
    tokio::time::timeout(PATIENCE, child.wait())
        .await
        .unwrap()
        .unwrap()
        .code()
}

const LEADS: &str = "grove_leader{component=\"operator\"} 1";
const FOLLOWS: &str = "grove_leader{component=\"operator\"} 0";
const ELECTION: &str =
    "leaderElection: {enabled: true, retryPeriod: 200ms, resourceName: grove, resourceNamespace: leases}\n";

/// The port at which the API server was told to ask about sets.
async fn registered_port(api_server: SocketAddr) -> Option<u16> {
    let client = Client::try_from(Config::new(format!("http://{api_server}").parse().unwrap())).unwrap();
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let found = configurations
        .get_opt("podcliqueset-validating-webhook")
        .await
        .unwrap()?;
    let url = found.webhooks.unwrap().remove(0).client_config.url.unwrap();
    let (_, rest) = url.split_once("127.0.0.1:").unwrap();
    rest.split('/').next().unwrap().parse().ok()
}

#[tokio::test]
async fn replicas_lead_one_after_the_other() {
    let server = ApiServer::default();
    let address = listen(server.router()).await;
    let (first, second) = (Operator::new(address, ELECTION), Operator::new(address, ELECTION));
    let first_process = first.start(&[]);
    eventually("elected", || first.metric(LEADS)).await;
    let lease = server.lease("leases", "grove").unwrap();
    assert_eq!(lease["leaseDurationSeconds"], 15);
    assert!(lease["holderIdentity"].is_string(), "{lease}");
    eventually("registered", || async {
        registered_port(address).await == Some(first.webhooks)
    })
    .await;

    // The only time that it writes this one: it was not there.
    let written = "grove_api_writes_total{resource=\"secrets\",verb=\"create\",code=\"201\"} 1";
    assert!(
        first.metric(written).await,
        "its certificates are kept in a Secret, and that is counted"
    );

    let second_process = second.start(&[]);
    second.wait_for_ready().await;
    eventually("waiting", || async { second.log().contains("another replica leads") }).await;
    assert!(second.metric(FOLLOWS).await, "ready, but does not lead");
    assert_eq!(
        registered_port(address).await,
        Some(first.webhooks),
        "only the leader is asked"
    );

    let (code, took) = terminate(first_process).await;
    assert_eq!(code, Some(0), "{}", first.log());
    assert!(took < STOP_MAX, "took {took:?}");
    assert!(first.log().contains("released the lease"), "{}", first.log());
    eventually("succeeded", || second.metric(LEADS)).await;
    assert_eq!(server.lease("leases", "grove").unwrap()["leaseTransitions"], 1);
    eventually("registered in its place", || async {
        registered_port(address).await == Some(second.webhooks)
    })
    .await;
    assert_eq!(terminate(second_process).await.0, Some(0));
    assert_eq!(server.lease("leases", "grove").unwrap()["holderIdentity"], Value::Null);
}

#[tokio::test]
async fn a_lost_lease_ends_the_process() {
    let server = ApiServer::default();
    let operator = Operator::new(listen(server.router()).await, ELECTION);
    let process = operator.start(&[]);
    eventually("elected", || operator.metric(LEADS)).await;
    server.set_lease("leases", "grove", Some(serde_json::json!({"holderIdentity": "thief"})));
    // A renewal that is on its way may still win once; then the thief tries again.
    let ended = tokio::spawn(exit_code(process));
    eventually("ended", || async {
        server.set_lease("leases", "grove", Some(serde_json::json!({"holderIdentity": "thief"})));
        ended.is_finished()
    })
    .await;
    assert_eq!(ended.await.unwrap(), Some(3));
    assert!(
        operator.log().contains("lost lease leases/grove: thief holds it now"),
        "{}",
        operator.log()
    );
}

#[tokio::test]
async fn a_leader_that_sends_slowly_renews_its_lease_in_time() {
    let server = ApiServer::default();
    let slow = "runtimeClientConnection: {qps: 0.2, burst: 1}\n\
                leaderElection: {enabled: true, leaseDuration: 4s, renewDeadline: 3s, retryPeriod: 200ms, \
                resourceName: grove, resourceNamespace: leases}\n";
    let operator = Operator::new(listen(server.router()).await, slow);
    let process = operator.start(&[]);
    let seconds_held = || {
        let lease = server.lease("leases", "grove")?;
        let time = |field: &str| lease[field].as_str()?.parse::<jiff::Timestamp>().ok();
        Some(time("renewTime")?.duration_since(time("acquireTime")?).as_secs())
    };
    // Longer than the deadline, which one other request outlasts.
    eventually("held", || async { seconds_held().is_some_and(|held| held >= 6) }).await;
    assert!(operator.metric(LEADS).await, "{}", operator.log());
    drop(process);
}

#[tokio::test]
async fn an_operator_that_places_gangs_counts_them_as_the_scheduler_does() {
    let places = "scheduler: {profiles: [{name: default-scheduler, default: true}]}\n";
    let operator = Operator::new(listen(ApiServer::default().router()).await, places);
    let process = operator.start(&[]);
    let line = "grove_scheduler_queue_depth{state=\"ready\"} 0.0";
    eventually("counted", || operator.metric(line)).await;
    drop(process);
}

#[tokio::test]
async fn the_endpoints_answer_and_the_log_is_json_at_the_configured_level() {
    let operator = Operator::new(listen(ApiServer::default().router()).await, "");
    let process = operator.start(&[("RUST_LOG", "trace")]);
    operator.wait_for_ready().await;
    assert_eq!(
        http(operator.health, "/healthz").await.unwrap(),
        (200, b"ok\n".to_vec())
    );
    assert_eq!(http(operator.health, "/metrics").await.unwrap().0, 404);
    assert!(
        operator
            .metric(&format!(
                "grove_build_info{{version=\"{}\"}} 1",
                env!("CARGO_PKG_VERSION")
            ))
            .await
    );
    let (code, profile) = http(operator.profiles, "/debug/pprof/profile?seconds=1").await.unwrap();
    // The first field of a pprof profile is its first sample type.
    assert_eq!((code, profile.first()), (200, Some(&0x0a)));
    assert_eq!(
        http(operator.profiles, "/debug/pprof/profile?seconds=0")
            .await
            .unwrap()
            .0,
        400
    );
    assert_eq!(terminate(process).await.0, Some(0));

    let log = operator.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let message = |line: &Value| line["message"].as_str().unwrap_or_default().to_owned();
    let user = lines
        .iter()
        .find(|line| message(line) == "reached the API server")
        .unwrap();
    assert_eq!(user["user"], "system:serviceaccount:grove-system:grove-operator");
    assert!(
        lines
            .iter()
            .all(|line| ["INFO", "WARN"].contains(&line["level"].as_str().unwrap())),
        "{log}"
    );
    assert!(log.contains("RUST_LOG is set but has no effect"), "{log}");
    assert!(!log.contains("secret-token"), "{log}");
}

#[tokio::test]
async fn the_page_is_there_when_it_is_asked_for_and_its_readers_do_not_hold_up_the_end() {
    let api_server = listen(ApiServer::default().router()).await;
    let [page] = free_ports();
    let operator = Operator::new(api_server, &format!("ui: {{enabled: true, port: {page}}}\n"));
    let child = operator.start(&[]);
    operator.wait_for_ready().await;
    let (code, body) = http(page, "/").await.unwrap();
    assert!(code == 200 && text(body).contains("<title>Grove"), "{}", operator.log());
    let (code, body) = http(page, "/api/map").await.unwrap();
    let map: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((code, &map["hosts"]), (200, &serde_json::json!([])));

    let mut reader = TcpStream::connect((Ipv4Addr::LOCALHOST, page)).await.unwrap();
    let ask = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    reader.write_all(ask.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    reader.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let (code, took) = terminate(child).await;
    assert_eq!(code, Some(0));
    assert!(took < STOP_MAX, "{took:?}");
}

#[tokio::test]
async fn a_ready_operator_has_certificates_and_is_registered_by_its_address() {
    let address = listen(ApiServer::default().router()).await;
    let operator = Operator::new(address, "authorizer: {enabled: true}\n");
    let process = operator.start(&[]);
    operator.wait_for_ready().await;
    let client = Client::try_from(Config::new(format!("http://{address}").parse().unwrap())).unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "grove-system");
    let secret = secrets.get("grove-webhook-server-cert").await.unwrap();
    let authorities = &secret.data.unwrap()["ca.crt"];
    let registered: Api<ValidatingWebhookConfiguration> = Api::all(client);
    for name in ["podcliqueset-validating-webhook", "authorizer-webhook"] {
        let webhook = registered.get(name).await.unwrap().webhooks.unwrap().remove(0);
        assert_eq!(webhook.client_config.ca_bundle.as_ref(), Some(authorities));
        let url = webhook.client_config.url.unwrap();
        let expected = format!("https://127.0.0.1:{}/webhooks/", operator.webhooks);
        assert!(url.starts_with(&expected), "{url}");
        let condition = &webhook.match_conditions.unwrap()[0].expression;
        let is_other = r#"request.userInfo.username != "system:serviceaccount:grove-system:grove-operator""#;
        assert!(condition.ends_with(is_other), "{condition}");
    }
    assert!(TcpStream::connect(("127.0.0.1", operator.webhooks)).await.is_ok());
    assert_eq!(terminate(process).await.0, Some(0));
}

#[tokio::test]
async fn text_logs_are_plain_lines() {
    let operator = Operator::new(
        listen(ApiServer::default().router()).await,
        "logFormat: text\ntopology: {enabled: false}\n",
    );
    let process = operator.start(&[]);
    operator.wait_for_ready().await;
    assert_eq!(terminate(process).await.0, Some(0));
    let log = operator.log();
    let warning =
        "WARN grove::commands::operator: topology: this spelling is deprecated; rename it to topologyAwareScheduling";
    assert!(log.lines().any(|line| line.ends_with(warning)), "{log}");
}

#[tokio::test]
async fn an_unreachable_api_server_is_exit_code_3() {
    let [port] = free_ports();
    let operator = Operator::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), "logFormat: text\n");
    assert_eq!(exit_code(operator.start(&[])).await, Some(3));
    let log = operator.log();
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    let [line] = errors[..] else {
        panic!("one line, not {log}")
    };
    assert!(
        line.contains(&format!("cannot reach the API server at http://127.0.0.1:{port}/: ")),
        "{line}"
    );
    assert!(
        line.contains("Connection refused") && line.contains("check the address"),
        "{line}"
    );
}

#[tokio::test]
async fn an_api_server_that_refuses_is_exit_code_3() {
    let refuse = any(|| async { refusal(StatusCode::UNAUTHORIZED, "Unauthorized") });
    let address = listen(Router::new().fallback(refuse)).await;
    let operator = Operator::new(address, "logFormat: text\n");
    assert_eq!(exit_code(operator.start(&[])).await, Some(3));
    let expected = format!(
        "the API server at http://{address}/ refuses us (401 Unauthorized: Unauthorized, says the test); \
         check the credentials and the roles of this user"
    );
    assert!(
        operator.log().lines().any(|line| line.ends_with(&expected)),
        "{}",
        operator.log()
    );
}

#[tokio::test]
async fn a_start_that_hangs_is_alive_not_ready_and_can_be_ended() {
    let hang = any(|| async { std::future::pending::<StatusCode>().await });
    let operator = Operator::new(listen(Router::new().fallback(hang)).await, "");
    let process = operator.start(&[]);
    eventually("alive", || async {
        http(operator.health, "/healthz")
            .await
            .is_some_and(|(code, _)| code == 200)
    })
    .await;
    assert_eq!(
        http(operator.health, "/readyz").await.unwrap(),
        (503, b"waiting for the API server\n".to_vec())
    );
    let (code, took) = terminate(process).await;
    assert_eq!(code, Some(0));
    assert!(took < STOP_MAX, "took {took:?}");
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_hold_up_the_end() {
    let operator = Operator::new(listen(ApiServer::default().router()).await, "");
    let process = operator.start(&[]);
    operator.wait_for_ready().await;
    // The one profiler is busy: that is how to see that the long request is the one that runs.
    let long = || tokio::spawn(http(operator.profiles, "/debug/pprof/profile?seconds=300"));
    let mut profile = long();
    let start = Instant::now();
    while http(operator.profiles, "/debug/pprof/profile?seconds=1")
        .await
        .is_none_or(|(code, _)| code != 409)
    {
        assert!(start.elapsed() < PATIENCE, "the long request never runs");
        if profile.is_finished() {
            profile = long();
        }
    }
    let (code, took) = terminate(process).await;
    assert_eq!(code, Some(0));
    assert!(took < STOP_MAX, "took {took:?}");
    profile.abort();
}

#[tokio::test]
async fn what_cannot_be_used_is_exit_code_2() {
    let address = listen(ApiServer::default().router()).await;
    let operator = Operator::new(address, "logFormat: text\n");
    let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, operator.metrics))
        .await
        .unwrap();
    assert_eq!(exit_code(operator.start(&[])).await, Some(2));
    let expected = format!(
        "server.metrics: cannot listen on port {} of 127.0.0.1: ",
        operator.metrics
    );
    assert!(operator.log().contains(&expected), "{}", operator.log());

    let operator = Operator::new(address, "logFormat: text\n");
    std::fs::write(&operator.kubeconfig, "clusters: 5\n").unwrap();
    assert_eq!(exit_code(operator.start(&[])).await, Some(2));
    assert!(operator.log().contains("cannot use kubeconfig"), "{}", operator.log());
}
