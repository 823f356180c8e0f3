//! Every kind of fault, seen to happen.

use std::time::Duration;

use futures::StreamExt;
use grove_simcluster::door::Door;
use grove_simcluster::fault::{Match, Mix, Moment, RequestFault, Rule, WatchFault};
use grove_simcluster::history::Outcome;
use grove_simcluster::server::Verb;
use grove_simcluster::{Cluster, User};
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use crate::support::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A cluster that remembers, and the maps in it.
fn recorded() -> (Cluster, Api<ConfigMap>) {
    let cluster = Cluster::builder().seed(1).record_history(true).start();
    let maps = maps_of(&cluster, "operator");
    (cluster, maps)
}

fn maps_of(cluster: &Cluster, user: &str) -> Api<ConfigMap> {
    Api::namespaced(cluster.client_as(User::named(user, &[])), "default")
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn operator() -> Match {
    Match::any().user("operator")
}

async fn create(maps: &Api<ConfigMap>, name: &str) -> Result<ConfigMap, kube::Error> {
    maps.create(&PostParams::default(), &map(name)).await
}

fn is_stored(cluster: &Cluster, name: &str) -> bool {
    let resource = grove_simcluster::store::ResourceName::new("", "configmaps");
    let key = grove_simcluster::store::Key::new("default", name);
    cluster.store().get(&resource, &key).is_some()
}

/// Code and reason of an error that the API answered.
fn told<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("not an answer: {other:?}"),
    }
}

fn is_lost<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> bool {
    match result {
        Err(kube::Error::Service(error)) => error.to_string().contains("connection closed"),
        other => panic!("not a lost connection: {other:?}"),
    }
}

/// The lines of an open watch, each with the virtual seconds at which it came.
struct Lines {
    body: grove_simcluster::server::ResponseBody,
    start: Instant,
}

impl Lines {
    async fn open(cluster: &Cluster, collection: &str) -> Self {
        let door = Door::new(cluster.server().clone(), User::named("operator", &[]));
        let revision = cluster.store().revision();
        let path = format!("{collection}?watch=true&resourceVersion={revision}");
        let request = Request::get(path).body(Body::empty()).unwrap();
        let body = door.oneshot(request).await.unwrap().into_body();
        let start = Instant::now();
        Self { body, start }
    }

    /// Type and name of the next event and when it came; `None` when the watch has ended.
    async fn next(&mut self) -> Option<(String, String, u64)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        loop {
            let frame = self.body.frame().await?.unwrap();
            let line: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
            let name = text(&line["object"]["metadata"]["name"]);
            // The cluster furnishes its namespaces while we look on.
            if name != "kube-root-ca.crt" {
                return Some((text(&line["type"]), name, self.start.elapsed().as_secs()));
            }
        }
    }
}

fn event(kind: &str, name: &str, secs: u64) -> Option<(String, String, u64)> {
    Some((kind.into(), name.into(), secs))
}

#[tokio::test(start_paused = true)]
async fn a_request_fails_before_or_after_its_write() {
    let (cluster, maps) = recorded();
    let creates = operator().verb(Verb::Create).resource("", "configmaps");
    cluster.faults().script([
        Rule::request(creates.clone(), RequestFault::FailBefore),
        Rule::request(creates, RequestFault::FailAfter).nth(2),
    ]);
    assert!(is_lost(create(&maps, "a").await));
    assert!(!is_stored(&cluster, "a"));
    create(&maps, "b").await.unwrap();
    assert!(is_lost(create(&maps, "c").await));
    assert!(is_stored(&cluster, "c"), "the write was done, only its reply is lost");
    assert_eq!(told(create(&maps, "c").await), (409, "AlreadyExists".into()));

    let requests = cluster.history().unwrap().requests().by_user("operator");
    let lost: Vec<_> = requests
        .ended(Outcome::Lost)
        .iter()
        .map(|a| (a.intent.name.clone(), a.writes))
        .collect();
    assert_eq!(lost, [("a".to_owned(), 0), ("c".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn the_server_refuses_in_kubernetes_words() {
    let (cluster, maps) = recorded();
    create(&maps, "a").await.unwrap();
    let a = operator().name("a");
    cluster.faults().script([
        Rule::request(a.clone(), RequestFault::Conflict),
        Rule::request(a.clone(), RequestFault::Internal),
        Rule::request(Match::any().verb(Verb::Create), RequestFault::QuotaFull).times(2),
    ]);
    let patch = Patch::Merge(json!({"data": {"x": "1"}}));
    let patched = async || maps.patch("a", &PatchParams::default(), &patch).await;
    assert_eq!(told(patched().await), (409, "Conflict".into()));
    assert_eq!(told(patched().await), (500, "InternalError".into()));
    patched().await.unwrap();
    let full = create(&maps, "b").await.unwrap_err().to_string();
    assert!(full.contains("configmaps \"b\" is forbidden: exceeded quota"), "{full}");
    assert_eq!(told(create(&maps, "b").await), (403, "Forbidden".into()));
    create(&maps, "b").await.unwrap();

    let busy = RequestFault::TooManyRequests { retry_after_secs: 7 };
    cluster
        .faults()
        .script([Rule::request(Match::any().verb(Verb::List), busy)]);
    let answer = get(&cluster, MAPS).await;
    assert_eq!((answer.code, answer.reason()), (429, "TooManyRequests"));
    assert_eq!(answer.headers["retry-after"], "7");
    assert_eq!(answer.body["details"]["retryAfterSeconds"], 7);
    assert_eq!(get(&cluster, MAPS).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn answers_come_late_or_never() {
    let (cluster, maps) = recorded();
    let on = |name: &str, fault| Rule::request(operator().verb(Verb::Create).name(name), fault);
    cluster.faults().script([
        on("slow", RequestFault::Slow(Duration::from_secs(30))),
        on("late", RequestFault::Timeout { written: false }),
        on("unknown", RequestFault::Timeout { written: true }),
        on("mute", RequestFault::NoReply { written: false }),
        on("deaf", RequestFault::NoReply { written: true }),
    ]);
    let start = Instant::now();
    create(&maps, "slow").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 30);
    assert_eq!(told(create(&maps, "late").await), (504, "Timeout".into()));
    assert_eq!(told(create(&maps, "unknown").await), (504, "Timeout".into()));
    assert_eq!(start.elapsed().as_secs(), 150);
    let patience = Duration::from_secs(3600);
    assert!(timeout(patience, create(&maps, "mute")).await.is_err());
    assert!(timeout(patience, create(&maps, "deaf")).await.is_err());
    let stored = ["slow", "late", "unknown", "mute", "deaf"].map(|name| is_stored(&cluster, name));
    assert_eq!(stored, [true, false, true, false, true]);
    let lost = cluster.history().unwrap().requests().ended(Outcome::Lost);
    assert_eq!(lost.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn reads_show_an_older_state() {
    let (cluster, maps) = recorded();
    let first = create(&maps, "a").await.unwrap();
    for value in ["1", "2", "3"] {
        let patch = Patch::Merge(json!({"data": {"x": value}}));
        maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    }
    create(&maps, "b").await.unwrap();
    let stale = |verb, revisions| Rule::request(operator().verb(verb), RequestFault::Stale { revisions });
    let data = |map: ConfigMap| map.data.unwrap_or_default().get("x").cloned();
    cluster.faults().script([
        stale(Verb::Get, 2),
        stale(Verb::Get, 3),
        stale(Verb::List, 1),
        stale(Verb::Get, 4),
    ]);
    assert_eq!(data(maps.get("a").await.unwrap()).as_deref(), Some("2"));
    assert_eq!(data(maps.get("a").await.unwrap()).as_deref(), Some("1"));
    let own = |list: kube::core::ObjectList<ConfigMap>| {
        let names = list.items.into_iter().filter_map(|map| map.metadata.name);
        names.filter(|name| name != "kube-root-ca.crt").collect::<Vec<_>>()
    };
    assert_eq!(own(maps.list(&ListParams::default()).await.unwrap()), ["a"]);
    assert_eq!(maps.get("a").await.unwrap(), first);
    assert_eq!(
        data(maps.get("a").await.unwrap()).as_deref(),
        Some("3"),
        "the script is over"
    );

    // A client that names what it has seen does not go back behind it.
    let seen = cluster.store().revision().to_string();
    cluster.faults().script([stale(Verb::List, 1000)]);
    let params = ListParams::default().at(&seen);
    assert_eq!(own(maps.list(&params).await.unwrap()), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn events_come_late_twice_or_not_at_all() {
    let cluster = cluster();
    let named = |name: &str, fault| Rule::event(operator().name(name), fault);
    cluster.faults().script([
        named("late", WatchFault::Delay(Duration::from_secs(20))),
        named("twice", WatchFault::Duplicate),
        named("lost", WatchFault::Drop),
    ]);
    let mut lines = Lines::open(&cluster, MAPS).await;
    let revision = cluster.store().revision();
    for name in ["first", "late", "twice", "lost", "never"] {
        post(&cluster, MAPS, &json!({"metadata": {"name": name}})).await;
    }
    assert_eq!(lines.next().await, event("ADDED", "first", 0));
    assert_eq!(lines.next().await, event("ADDED", "late", 20));
    assert_eq!(lines.next().await, event("ADDED", "twice", 20), "order is kept");
    assert_eq!(lines.next().await, event("ADDED", "twice", 20));
    assert_eq!(lines.next().await, None, "the event is lost, and the watch with it");
    let resumed = get(
        &cluster,
        &format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={revision}"),
    )
    .await;
    assert!(resumed.text.contains("\"name\":\"lost\""), "whoever resumes gets it");
}

#[tokio::test(start_paused = true)]
async fn watches_are_cut_gone_or_frozen() {
    let cluster = cluster();
    let fault = |fault| cluster.faults().script([Rule::event(operator(), fault)]);
    let add = async |name: &str| drop(post(&cluster, MAPS, &json!({"metadata": {"name": name}})).await);

    fault(WatchFault::Cut);
    let mut lines = Lines::open(&cluster, MAPS).await;
    add("a").await;
    assert_eq!(lines.next().await, event("ADDED", "a", 0));
    assert_eq!(lines.next().await, None);

    fault(WatchFault::Gone);
    let mut lines = Lines::open(&cluster, MAPS).await;
    add("b").await;
    assert_eq!(lines.next().await, event("ERROR", "", 0));
    assert_eq!(lines.next().await, None);

    fault(WatchFault::Freeze);
    let mut lines = Lines::open(&cluster, MAPS).await;
    add("c").await;
    add("d").await;
    let day = Duration::from_secs(24 * 3600);
    assert!(timeout(day, lines.next()).await.is_err(), "open, and silent");
}

#[tokio::test(start_paused = true)]
async fn open_watches_are_struck_on_demand() {
    let cluster = cluster();
    let mut maps = Lines::open(&cluster, MAPS).await;
    let mut secrets = Lines::open(&cluster, SECRETS).await;
    let of_maps = Match::any().resource("", "configmaps");
    assert_eq!(cluster.faults().strike_watches(&of_maps, WatchFault::Gone), 1);
    assert_eq!(maps.next().await, event("ERROR", "", 0));
    assert_eq!(maps.next().await, None);
    drop(maps);
    assert_eq!(
        cluster.faults().strike_watches(&Match::any(), WatchFault::Cut),
        1,
        "of the two one is left"
    );
    assert_eq!(secrets.next().await, None);
    cluster.store().compact(cluster.store().revision());
    let old = get(&cluster, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    assert!(old.text.contains("too old resource version"), "{}", old.text);
}

#[tokio::test(start_paused = true)]
async fn events_of_different_kinds_change_places() {
    // Of many seeds some give the maps the longer lag; order within a kind is always kept.
    let mut swapped = 0;
    for seed in 0..8 {
        let cluster = Cluster::builder().seed(seed).start();
        cluster.faults().mix(Mix::on(operator()).lag(Duration::from_secs(10)));
        let (maps, secrets) = (Lines::open(&cluster, MAPS).await, Lines::open(&cluster, SECRETS).await);
        post(&cluster, MAPS, &json!({"metadata": {"name": "m1"}})).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        post(&cluster, SECRETS, &json!({"metadata": {"name": "s"}})).await;
        post(&cluster, MAPS, &json!({"metadata": {"name": "m2"}})).await;
        let told =
            |lines: Lines| futures::stream::unfold(lines, async |mut lines| Some((lines.next().await?.1, lines)));
        let both = futures::stream::select(told(maps).boxed(), told(secrets).boxed());
        let order: Vec<String> = both.take(3).collect().await;
        let at = |name: &str| order.iter().position(|told| told == name).unwrap();
        assert!(at("m1") < at("m2"));
        swapped += usize::from(at("s") < at("m1"));
    }
    assert!((1..8).contains(&swapped), "{swapped}");
}

#[tokio::test(start_paused = true)]
async fn the_clock_jumps_and_webhooks_go_down() {
    let (cluster, maps) = recorded();
    let made_at = async |name: &str| {
        create(&maps, name)
            .await
            .unwrap()
            .metadata
            .creation_timestamp
            .unwrap()
            .0
    };
    let before = made_at("a").await;
    cluster.faults().jump_clock(jiff::SignedDuration::from_hours(1));
    let forward = made_at("b").await;
    cluster.faults().jump_clock(jiff::SignedDuration::from_hours(-2));
    let back = made_at("c").await;
    assert_eq!(forward.duration_since(before), jiff::SignedDuration::from_hours(1));
    assert_eq!(back.duration_since(before), jiff::SignedDuration::from_hours(-1));

    let faults = cluster.faults();
    assert!(!faults.webhook_down("w"));
    faults.set_webhook_down("w", true);
    assert!(faults.webhook_down("w") && !faults.webhook_down("v"));
    faults.set_webhook_down("w", false);
    assert!(!faults.webhook_down("w"));
    faults.mix(Mix::on(Match::any()).webhook_down(0.5));
    let down = (0..1000).filter(|_| faults.webhook_down("w")).count();
    assert!((400..600).contains(&down), "{down}");
}

#[tokio::test(start_paused = true)]
async fn a_client_dies_at_its_nth_write() {
    for (moment, stored, heard) in [
        (Moment::BeforeWrite, false, false),
        (Moment::BeforeReply, true, false),
        (Moment::AfterReply, true, true),
    ] {
        let (cluster, maps) = recorded();
        let other = maps_of(&cluster, "other");
        let mut lines = Lines::open(&cluster, SECRETS).await;
        let mut dead = cluster.faults().kill("operator", 2, moment);
        create(&maps, "a").await.unwrap();
        maps.get("a").await.unwrap();
        assert!(dead.try_recv().is_err(), "the first write lives");
        assert_eq!(create(&maps, "b").await.is_ok(), heard, "{moment:?}");
        assert_eq!(dead.await.unwrap().name, "b");
        assert_eq!(is_stored(&cluster, "b"), stored, "{moment:?}");
        assert!(is_lost(maps.get("a").await), "the dead do not read");
        assert!(is_lost(create(&maps, "c").await), "nor write");
        assert_eq!(lines.next().await, None, "nor watch");
        create(&other, "d").await.unwrap();
        create(&maps_of(&cluster, "operator"), "e").await.expect("a new life");
        cluster.faults().clear();
        assert!(is_lost(maps.get("a").await), "the dead stay dead");
    }
}

#[tokio::test]
async fn a_lost_reply_closes_the_socket() {
    let cluster = cluster();
    cluster.server().trust_token("secret", User::named("operator", &[]));
    let listener = cluster.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&listener.kubeconfig("secret")).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .unwrap();
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    let maps: Api<ConfigMap> = Api::namespaced(kube::Client::try_from(config).unwrap(), "default");
    cluster
        .faults()
        .script([Rule::request(operator().verb(Verb::Create), RequestFault::FailAfter)]);
    let lost = create(&maps, "a").await;
    assert!(!matches!(lost, Ok(_) | Err(kube::Error::Api(_))), "{lost:?}");
    assert!(is_stored(&cluster, "a"));
    assert_eq!(
        told(create(&maps, "a").await),
        (409, "AlreadyExists".into()),
        "a new connection works"
    );
}

#[tokio::test(start_paused = true)]
async fn the_history_tells_who_wrote_what() {
    let (cluster, maps) = recorded();
    let other = maps_of(&cluster, "other");
    let made = create(&maps, "a").await.unwrap();
    let patch = Patch::Merge(json!({"data": {"x": "1"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    create(&other, "b").await.unwrap();
    other.delete("a", &Default::default()).await.unwrap();

    let history = cluster.history().unwrap();
    let own = || history.writes().of_kind("", "configmaps").by_user("operator");
    assert_eq!(own().count(), 2);
    let patched = own().verbs(&[Verb::Patch]);
    let write = patched.iter().next().unwrap();
    assert_eq!(Some(&write.uid), made.metadata.uid.as_ref());
    assert_eq!(write.before().unwrap().get("data"), None);
    assert_eq!(write.after().unwrap()["data"], json!({"x": "1"}));
    assert_eq!(
        history.requests().by_user("operator").no_ops().count(),
        1,
        "the second patch changed nothing"
    );
    let deleted = history.writes().by_user("other").verbs(&[Verb::Delete]);
    assert!(deleted.iter().all(|write| write.after().is_none()) && deleted.count() == 1);
    assert!(history.writes().by_user("").count() > 5, "the cluster's own");
    assert!(
        cluster
            .history()
            .unwrap()
            .writes()
            .after(write.revision)
            .by_user("operator")
            .count()
            == 0
    );
    assert!(Cluster::builder().start().history().is_none());
}
