//! Faults put into force on a cluster and its processes.

use std::time::Duration;

use grove_simcluster::fault::{Match, Mix, RequestFault, Rule, WatchFault};
use grove_simcluster::server::Verb;
use jiff::SignedDuration;

use super::Fault;
use crate::process::Role;
use crate::world::World;

/// Puts the faults of a schedule into force.
pub(crate) fn install(world: &World, faults: &[Fault]) {
    let (mut mix, mut has_chances) = (Mix::on(Match::any()), false);
    for fault in faults {
        match fault {
            Fault::Chance { percent, answer } => mix = mix.request(share(*percent), RequestFault::from(*answer)),
            Fault::ChanceOfEvent { percent, told } => mix = mix.event(share(*percent), WatchFault::from(*told)),
            Fault::Webhooks { percent } => mix = mix.webhook_down(share(*percent)),
            other => {
                install_one(world, other);
                continue;
            }
        }
        has_chances = true;
    }
    if has_chances {
        world.cluster.faults().mix(mix);
    }
}

fn share(percent: u8) -> f64 {
    f64::from(percent) / 100.0
}

fn install_one(world: &World, fault: &Fault) {
    let faults = world.cluster.faults();
    let of = |role: &Role| Match::any().user(role.user());
    match fault {
        Fault::Kill { role, write, moment } => {
            let (died, kill) = (
                faults.kill(role.user(), *write, (*moment).into()),
                world.processes[role].killer(),
            );
            tokio::spawn(async move {
                if died.await.is_ok() {
                    kill();
                }
            });
        }
        Fault::Stale {
            role,
            nth,
            times,
            revisions,
        } => {
            let stale = RequestFault::Stale { revisions: *revisions };
            faults.script([Rule::request(of(role), stale).nth(*nth).times(*times)]);
        }
        Fault::Event { role, nth, told } => faults.script([Rule::event(of(role), (*told).into()).nth(*nth)]),
        Fault::Request {
            role,
            nth,
            times,
            answer,
        } => {
            faults.script([Rule::request(of(role), (*answer).into()).nth(*nth).times(*times)]);
        }
        Fault::Quota { role, nth, times } => {
            let creates = of(role).verb(Verb::Create);
            faults.script([Rule::request(creates, RequestFault::QuotaFull).nth(*nth).times(*times)]);
        }
        Fault::NoSpace { role, nth, times } => {
            let rule = |verb| {
                Rule::request(of(role).verb(verb), RequestFault::Internal)
                    .nth(*nth)
                    .times(*times)
            };
            faults.script([Verb::Create, Verb::Update, Verb::Patch].map(rule));
        }
        Fault::Storm { per_second, seconds } => world.storm(*per_second, *seconds),
        Fault::Clock { after, jump } => {
            let (cluster, jump) = (world.cluster.clone(), SignedDuration::from_secs(*jump));
            after_seconds(*after, move || cluster.faults().jump_clock(jump));
        }
        Fault::Drift { role, percent } => world.processes[role].drift(*percent),
        Fault::Freeze { role, after, seconds } => {
            after_seconds(*after, world.processes[role].freezer(Duration::from_secs(*seconds)));
        }
        Fault::Chance { .. } | Fault::ChanceOfEvent { .. } | Fault::Webhooks { .. } => {}
    }
}

fn after_seconds(seconds: u64, deed: impl FnOnce() + Send + 'static) {
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        deed();
    });
}
