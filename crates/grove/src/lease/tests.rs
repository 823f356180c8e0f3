//! The decisions as a table, then the whole election on virtual time against an in-process API server with faults.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::{Method, Request, StatusCode};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::client::Body;
use serde_json::json;
use tower::ServiceExt as _;

use super::*;
use embedded::ApiServer;

#[path = "../../tests/it/embedded.rs"]
mod embedded;

fn terms(identity: &str) -> Terms {
    Terms::new(&LeaderElection::default(), "grove-system", identity.into())
}

fn sighting(holder: Option<&str>, duration_secs: Option<i32>, since: Instant) -> Sighting {
    let spec = LeaseSpec {
        holder_identity: holder.map(str::to_owned),
        lease_duration_seconds: duration_secs,
        lease_transitions: Some(3),
        ..LeaseSpec::default()
    };
    let lease = Lease {
        spec: Some(spec),
        ..Lease::default()
    };
    Sighting { lease, since }
}

/// The alert about leaders asks for Leases by this label; those of older releases get it too.
#[test]
fn a_lease_is_found_by_its_label() {
    let mut known = sighting(Some("a"), Some(15), Instant::now());
    known.lease.metadata.labels = Some([("theirs".to_owned(), "kept".to_owned())].into());
    for (seen, expected) in [(None, 1), (Some(&known), 2)] {
        let labels = claimed(seen, &terms("a"), wall()).metadata.labels.unwrap();
        let part_of = labels.get("app.kubernetes.io/part-of").map(String::as_str);
        assert_eq!((part_of, labels.len()), (Some("grove"), expected));
    }
    let alerts = include_str!("../../../../charts/grove/monitoring/alerts.yaml");
    assert!(alerts.contains("kubectl get leases,pods -A -l app.kubernetes.io/part-of=grove"));
}

#[test]
fn decisions() {
    let start = Instant::now();
    let secs = |secs| start + Duration::from_secs(secs);
    let wait = || Action::Wait { holder: "b".into() };
    let yields = || Action::Yield { holder: "b".into() };
    let (candidate, leader) = (Role::Candidate, Role::Leader);
    let by = |holder, duration| Some(sighting(holder, duration, start));
    for (what, role, seen, now, expected) in [
        ("no lease", candidate, None, secs(0), Action::Create),
        ("deleted while we lead", leader, None, secs(0), Action::Create),
        ("nobody's", candidate, by(None, Some(1)), secs(0), Action::Take),
        (
            "nobody's, as an empty name",
            candidate,
            by(Some(""), Some(15)),
            secs(0),
            Action::Take,
        ),
        ("ours", leader, by(Some("a"), Some(15)), secs(0), Action::Renew),
        (
            "ours from a moment ago",
            candidate,
            by(Some("a"), Some(15)),
            secs(0),
            Action::Renew,
        ),
        ("another's, fresh", candidate, by(Some("b"), Some(15)), secs(14), wait()),
        (
            "another's, run out",
            candidate,
            by(Some("b"), Some(15)),
            secs(15),
            Action::Take,
        ),
        (
            "another's, longer promise than ours",
            candidate,
            by(Some("b"), Some(60)),
            secs(59),
            wait(),
        ),
        (
            "another's, without a promise",
            candidate,
            by(Some("b"), None),
            secs(14),
            wait(),
        ),
        (
            "another's, without a promise, run out",
            candidate,
            by(Some("b"), None),
            secs(15),
            Action::Take,
        ),
        (
            "another's, senseless promise",
            candidate,
            by(Some("b"), Some(-1)),
            secs(14),
            wait(),
        ),
        ("taken from us", leader, by(Some("b"), Some(15)), secs(0), yields()),
        (
            "taken from us, and run out again",
            leader,
            by(Some("b"), Some(15)),
            secs(99),
            yields(),
        ),
    ] {
        assert_eq!(decide(role, seen.as_ref(), &terms("a"), now), expected, "{what}");
    }
}

#[test]
fn a_claim_is_timed_from_its_last_change() {
    let start = Instant::now();
    let later = start + Duration::from_secs(5);
    let before = sighting(Some("b"), Some(15), start);
    let same = seen(Some(before.clone()), Some(before.lease.clone()), later).unwrap();
    assert_eq!(same.since, start);
    let mut renewed = before.lease.clone();
    renewed.spec.as_mut().unwrap().renew_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(wall()));
    assert_eq!(seen(Some(before.clone()), Some(renewed), later).unwrap().since, later);
    assert_eq!(seen(Some(before), None, later), None);
}

#[test]
fn transitions_count_changes_of_holder_only() {
    let now = Instant::now();
    let count = |seen: Option<&Sighting>| claimed(seen, &terms("a"), wall()).spec.unwrap().lease_transitions;
    assert_eq!(count(None), Some(0));
    assert_eq!(count(Some(&sighting(Some("a"), Some(15), now))), Some(3));
    assert_eq!(count(Some(&sighting(Some("b"), Some(15), now))), Some(4));
}

#[test]
fn the_configured_namespace_wins_over_our_own() {
    let chosen = LeaderElection {
        resource_namespace: "leases".into(),
        ..LeaderElection::default()
    };
    assert_eq!(Terms::new(&chosen, "grove-system", "a".into()).namespace, "leases");
    assert_eq!(terms("a").namespace, "grove-system");
}

/// The hosts' clocks are wrong, and by different amounts each time: the election must not care.
fn wall() -> Timestamp {
    static CALLS: AtomicU8 = AtomicU8::new(0);
    let days = i64::from(CALLS.fetch_add(97, Ordering::Relaxed)) - 128;
    Timestamp::from_second(days * 86_400).unwrap()
}

/// What happens to the requests of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Network {
    Good,
    /// Requests vanish.
    Silent,
    /// Requests arrive, answers vanish.
    Mute,
    /// The API server is not well.
    Failing,
    /// Only single objects can be read.
    Blind,
    /// Writes are answered with 504 and not carried out.
    TooLate,
    /// Writes are answered with 504 and carried out.
    CarriedOut,
}

const NETWORKS: [Network; 7] = [
    Network::Good,
    Network::Silent,
    Network::Mute,
    Network::Failing,
    Network::Blind,
    Network::TooLate,
    Network::CarriedOut,
];

/// One replica's way to the API server.
#[derive(Clone)]
struct Link {
    server: ApiServer,
    network: Arc<AtomicU8>,
    /// When writes were answered with 504.
    timed_out: Arc<Mutex<Vec<Instant>>>,
}

impl Link {
    fn new(server: &ApiServer) -> Self {
        Self {
            server: server.clone(),
            network: Arc::default(),
            timed_out: Arc::default(),
        }
    }

    fn set(&self, network: Network) {
        self.network.store(network as u8, Ordering::Relaxed);
    }

    fn candidate(&self, identity: &str) -> Candidate {
        let link = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let link = link.clone();
            async move {
                let network = NETWORKS[usize::from(link.network.load(Ordering::Relaxed))];
                let answer = match network {
                    Network::Failing => embedded::refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
                    Network::Silent => std::future::pending().await,
                    Network::Blind
                        if request
                            .uri()
                            .query()
                            .is_some_and(|query| query.contains("fieldSelector")) =>
                    {
                        embedded::refusal(StatusCode::FORBIDDEN, "Forbidden")
                    }
                    Network::TooLate | Network::CarriedOut if request.method() != Method::GET => {
                        link.timed_out.lock().unwrap().push(Instant::now());
                        if network == Network::CarriedOut {
                            link.server.router().oneshot(request).await?;
                        }
                        embedded::refusal(StatusCode::GATEWAY_TIMEOUT, "Timeout")
                    }
                    _ => link.server.router().oneshot(request).await?,
                };
                if network == Network::Mute {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(answer)
            }
        });
        Candidate::new(Client::new(service, "default"), terms(identity), wall)
    }
}

const LEASE: (&str, &str) = ("grove-system", "grove-operator-leader-election");

fn current(server: &ApiServer) -> Option<String> {
    server.lease(LEASE.0, LEASE.1)?["holderIdentity"]
        .as_str()
        .map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once_or_without_a_watch_at_the_next_try() {
    for (network, most) in [
        (Network::Good, Duration::ZERO),
        (Network::Blind, Duration::from_secs(2)),
    ] {
        let server = ApiServer::default();
        let mut first = Link::new(&server).candidate("a").elected().await;
        assert_eq!(current(&server).as_deref(), Some("a"));
        let link = Link::new(&server);
        link.set(network);
        let second = tokio::spawn(link.candidate("b").elected());
        // Held for a minute, the lease is renewed and the other waits.
        assert!(
            timeout(Duration::from_secs(61), first.hold(&Fence::open()))
                .await
                .is_err()
        );
        assert!(!second.is_finished());
        first.release(Duration::from_secs(1)).await;
        let released_at = Instant::now();
        let _second = second.await.unwrap();
        let took = released_at.elapsed();
        assert!(took <= most, "{network:?}: took {took:?}");
        assert_eq!(server.lease(LEASE.0, LEASE.1).unwrap()["leaseTransitions"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_when_its_lease_runs_out() {
    let server = ApiServer::default();
    let dead = Link::new(&server).candidate("a").elected().await;
    drop(dead);
    let died_at = Instant::now();
    let _next = Link::new(&server).candidate("b").elected().await;
    let waited = died_at.elapsed();
    assert!(
        (15..=17).contains(&waited.as_secs()),
        "lease duration plus one try, not {waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_gives_up_before_others_may_lead() {
    for network in [Network::Silent, Network::Mute, Network::Failing] {
        let server = ApiServer::default();
        let link = Link::new(&server);
        let mut leadership = link.candidate("a").elected().await;
        let elected_at = Instant::now();
        link.set(network);
        let lost = leadership.hold(&Fence::open()).await;
        assert_eq!(
            lost.to_string(),
            "lost lease grove-system/grove-operator-leader-election: could not renew it for 10 s"
        );
        assert_eq!(elected_at.elapsed(), Duration::from_secs(10), "{network:?}");
    }
}

/// Every round is one request; the next one reads first, and so finds out what became of it.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_times_out_is_not_sent_again_before_the_next_round() {
    for (network, renews) in [(Network::TooLate, false), (Network::CarriedOut, true)] {
        let server = ApiServer::default();
        let link = Link::new(&server);
        let mut leadership = link.candidate("a").elected().await;
        let written = || server.lease(LEASE.0, LEASE.1).unwrap()["renewTime"].clone();
        let before = written();
        link.set(network);
        let held = timeout(Duration::from_secs(7), leadership.hold(&Fence::open())).await;
        assert!(held.is_err(), "{network:?}: leads until the deadline");
        assert_eq!(written() != before, renews, "{network:?}");
        let sent = link.timed_out.lock().unwrap().clone();
        assert_eq!(sent.len(), 3, "{network:?}: one in each round");
        assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(2)));
        link.set(Network::Good);
        let held = timeout(Duration::from_secs(60), leadership.hold(&Fence::open())).await;
        assert!(held.is_err(), "{network:?}: leads on");
        assert_eq!(server.lease(LEASE.0, LEASE.1).unwrap()["leaseTransitions"], 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_yields_to_whoever_took_the_lease() {
    let server = ApiServer::default();
    let mut leadership = Link::new(&server).candidate("a").elected().await;
    server.set_lease(
        LEASE.0,
        LEASE.1,
        Some(json!({"holderIdentity": "thief", "leaseDurationSeconds": 15})),
    );
    let lost = leadership.hold(&Fence::open()).await;
    assert_eq!(
        lost.to_string(),
        "lost lease grove-system/grove-operator-leader-election: thief holds it now"
    );
    // What is not ours any more is not ours to release.
    leadership.release(Duration::from_secs(1)).await;
    assert_eq!(current(&server).as_deref(), Some("thief"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again() {
    let server = ApiServer::default();
    let mut leadership = Link::new(&server).candidate("a").elected().await;
    server.set_lease(LEASE.0, LEASE.1, None);
    assert!(
        timeout(Duration::from_secs(30), leadership.hold(&Fence::open()))
            .await
            .is_err(),
        "still leads"
    );
    assert_eq!(current(&server).as_deref(), Some("a"));
}

/// Small numbers from a seed; quality does not matter here, repeatability does.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Times at which some replica believed that it led.
type Reigns = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// Stands for election again and again; each reign ends by loss, by crash or by release.
async fn replica(link: Link, name: u64, mut dice: Dice, reigns: Reigns) {
    for life in 0_u64.. {
        let mut leadership = link.candidate(&format!("{name}-{life}")).elected().await;
        let since = Instant::now();
        let is_lost = timeout(Duration::from_secs(dice.below(120)), leadership.hold(&Fence::open()))
            .await
            .is_ok();
        reigns.lock().unwrap().push((since, Instant::now()));
        if !is_lost && dice.below(2) == 0 {
            leadership.release(Duration::from_secs(1)).await;
        }
    }
}

#[test]
fn never_two_leaders_and_never_none_for_long() {
    for seed in 0..12 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (server, reigns) = (ApiServer::default(), Reigns::default());
            let links: Vec<_> = (0..3).map(|_| Link::new(&server)).collect();
            let mut replicas = tokio::task::JoinSet::new();
            for (name, link) in (0..).zip(&links) {
                replicas.spawn(replica(link.clone(), name, Dice(seed * 10 + name), reigns.clone()));
            }
            let mut dice = Dice(seed);
            for _ in 0..100 {
                sleep(Duration::from_millis(dice.below(30_000))).await;
                links[dice.below(3) as usize].set(NETWORKS[dice.below(7) as usize]);
            }
            let healed_at = Instant::now();
            links.iter().for_each(|link| link.set(Network::Good));
            sleep(Duration::from_secs(600)).await;
            replicas.shutdown().await;

            let mut reigns = reigns.lock().unwrap().clone();
            reigns.sort();
            for pair in reigns.windows(2) {
                assert!(pair[0].1 <= pair[1].0, "seed {seed}: two leaders at once: {pair:?}");
            }
            let healthy: Vec<_> = reigns.iter().filter(|reign| reign.0 > healed_at).collect();
            assert!(
                healthy.len() >= 2,
                "seed {seed}: only {} changes of leader in ten healthy minutes",
                healthy.len()
            );
            for pair in healthy.windows(2) {
                let gap = pair[1].0 - pair[0].1;
                assert!(gap <= Duration::from_secs(18), "seed {seed}: no leader for {gap:?}");
            }
        });
    }
}
