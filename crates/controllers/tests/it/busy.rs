//! An API server that is busy or too slow: what became of a write is found out, and not hidden by sending it again.

use std::collections::BTreeMap;

use grove_api::PodClique;
use grove_simcluster::fault::{Match, RequestFault, Rule};
use grove_simcluster::history::{Asked, Outcome};
use grove_simcluster::server::Verb;

use crate::support::workloads::{Minimum, Order, workload};
use crate::support::{OPERATOR, World};

/// How the creates of each object of a kind were answered, in order.
fn creates(world: &World, (group, plural): (&str, &str)) -> BTreeMap<String, Vec<Outcome>> {
    let asked = world.operator_requests().of_kind(group, plural).verbs(&[Verb::Create]);
    let mut answers: BTreeMap<String, Vec<Outcome>> = BTreeMap::new();
    for Asked { intent, outcome, .. } in asked.iter() {
        answers.entry(intent.name.clone()).or_default().push(*outcome);
    }
    answers
}

async fn meets(kind: (&str, &str), fault: RequestFault) -> World {
    let world = World::with_places(10).await;
    let created = Match::any().user(OPERATOR).verb(Verb::Create).resource(kind.0, kind.1);
    world.cluster.faults().script([Rule::request(created, fault)]);
    world.create_set(&workload(Minimum::One, Order::Any)).await;
    // An answer may take a minute, in which nothing happens.
    world
        .eventually("all pods are ready", async |world| world.ready().await == 10)
        .await;
    world.pass(120).await;
    assert_eq!(world.ready().await, 10, "{kind:?} {fault:?}");
    let status = world.set_status("w").await;
    assert_eq!(
        (status.available_replicas, status.last_errors.len()),
        (1, 0),
        "{kind:?} {fault:?}"
    );
    for clique in world.list::<PodClique>().await.into_values() {
        let errors = clique.status.expect("a status").last_errors;
        assert!(errors.is_empty(), "{kind:?} {fault:?}: {errors:?}");
    }
    world
}

const KINDS: [(&str, &str); 4] = [
    ("", "pods"),
    ("grove.io", "podcliques"),
    ("grove.io", "podcliquescalinggroups"),
    ("scheduler.grove.io", "podgangs"),
];

#[tokio::test(start_paused = true)]
async fn a_create_that_times_out_though_carried_out_is_not_sent_again() {
    for kind in KINDS {
        let world = meets(kind, RequestFault::Timeout { written: true }).await;
        let late: Vec<_> = creates(&world, kind)
            .into_values()
            .filter(|sent| sent[0] != Outcome::Answered(201))
            .collect();
        assert_eq!(late, [[Outcome::Answered(504)]], "{kind:?}: what was made is seen");
    }
}

#[tokio::test(start_paused = true)]
async fn a_create_that_was_not_carried_out_is_sent_by_the_next_look() {
    let busy = RequestFault::TooManyRequests { retry_after_secs: 1 };
    for (fault, code) in [(RequestFault::Timeout { written: false }, 504), (busy, 429)] {
        for kind in KINDS {
            let world = meets(kind, fault).await;
            let sent: Vec<_> = creates(&world, kind)
                .into_values()
                .filter(|sent| sent.len() > 1)
                .collect();
            assert_eq!(sent, [[Outcome::Answered(code), Outcome::Answered(201)]], "{kind:?}");
        }
    }
}

/// Gates, statuses, deletions: whatever changes something. Nothing is written twice for it, and nothing is left undone.
#[tokio::test(start_paused = true)]
async fn every_other_write_survives_a_busy_server() {
    let busy = RequestFault::TooManyRequests { retry_after_secs: 1 };
    for fault in [
        RequestFault::Timeout { written: true },
        RequestFault::Timeout { written: false },
        busy,
    ] {
        let world = World::with_places(10).await;
        let by = |verb| Match::any().user(OPERATOR).verb(verb);
        let rules = [Verb::Update, Verb::Patch, Verb::Delete].map(|verb| Rule::request(by(verb), fault).times(3));
        world.cluster.faults().script(rules);
        world.create_set(&workload(Minimum::One, Order::Any)).await;
        world
            .eventually("all pods are ready", async |world| world.ready().await == 10)
            .await;
        world.pass(120).await;
        world.set_image(&["pc-a", "pc-b"], "two").await;
        world.update_ends().await;
        world.pass(120).await;
        assert_eq!(world.ready().await, 10, "{fault:?}");
        world.all_run("w-0-pc-a", "two").await;
        world.replay(0, |scene| assert!(scene.of("w-0-pc-a").count() <= 2, "{fault:?}"));
    }
}
