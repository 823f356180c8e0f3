//! A start beside everything that is there already: from the start of the process until it serves, and until it acts.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use grove_api::PodCliqueSet;
use kube::api::{Api, PostParams};

use super::bare::create_namespace;
use super::embedded::{Embedded, GANG_PODS, Sizes, set_of_gangs};
use super::follow::Follower;
use super::process::Usage;
use super::results::{Number, Section};

/// Where the gang is made that each start must deal with.
const NEW: &str = "new";
const READER: &str = "bare reader";

const FULL: Sizes = Sizes {
    nodes: 10_000,
    sets: 250,
    replicas: 25,
    rounds: 3,
};
const QUICK: Sizes = Sizes {
    nodes: 64,
    sets: 2,
    replicas: 2,
    rounds: 1,
};

/// How one program started.
#[derive(Clone, Copy, Debug)]
struct Started {
    ready_s: f64,
    acted_s: f64,
    usage: Usage,
}

/// One round.
#[derive(Clone, Copy, Debug)]
struct Round {
    operator: Started,
    scheduler: Started,
    /// What reading all pods and nodes takes a client that does nothing with them.
    reader_s: f64,
}

pub(super) async fn part(grove: &Path, is_quick: bool) -> Result<Vec<Section>> {
    let sizes = if is_quick { QUICK } else { FULL };
    let pods = sizes.pods();
    let embedded = Embedded::start(grove, sizes.nodes).await?;
    fill(&embedded, sizes).await?;
    create_namespace(&embedded.client, NEW).await?;
    let mut rounds = Vec::new();
    for number in 1..=sizes.rounds {
        eprintln!(
            "start: {} nodes and {pods} pods, round {number} of {}",
            sizes.nodes, sizes.rounds
        );
        rounds.push(round(&embedded, number).await?);
    }
    Ok(vec![summary(sizes, pods, &rounds)])
}

/// Fills the cluster, and ends whoever did.
async fn fill(embedded: &Embedded, sizes: Sizes) -> Result<()> {
    let pods = sizes.pods();
    eprintln!("start: {pods} pods are made");
    let (operator, scheduler) = (embedded.operator().await?, embedded.scheduler().await?);
    let begun = Instant::now();
    embedded.create_sets(sizes.sets, sizes.replicas).await?;
    embedded.all_bound(&scheduler, pods, begun).await?;
    embedded.all_available(sizes.sets * sizes.replicas).await?;
    operator.stop().await?;
    scheduler.stop().await
}

async fn round(embedded: &Embedded, number: usize) -> Result<Round> {
    let begun = Instant::now();
    embedded.read_pods().await?;
    embedded.node_names().await?;
    let reader_s = begun.elapsed().as_secs_f64();

    let client = &embedded.client;
    let mut follower = Follower::open(client, NEW).await?;
    let begun = Instant::now();
    let operator = embedded.operator().await?;
    let ready_s = begun.elapsed().as_secs_f64();
    let sets = Api::<PodCliqueSet>::namespaced(client.clone(), NEW);
    let set = set_of_gangs(&format!("n{number}"), 1)?;
    sets.create(&PostParams::default(), &set).await?;
    let times = follower.all(GANG_PODS).await?;
    let operator_started = Started {
        ready_s,
        acted_s: (times.ungated - begun).as_secs_f64(),
        usage: operator.usage()?,
    };

    let mut follower = Follower::open(client, NEW).await?;
    let begun = Instant::now();
    let scheduler = embedded.scheduler().await?;
    let ready_s = begun.elapsed().as_secs_f64();
    let bound = follower.bound(GANG_PODS).await?;
    let scheduler_started = Started {
        ready_s,
        acted_s: (bound.last - begun).as_secs_f64(),
        usage: scheduler.usage()?,
    };
    operator.stop().await?;
    scheduler.stop().await?;
    Ok(Round {
        operator: operator_started,
        scheduler: scheduler_started,
        reader_s,
    })
}

fn summary(sizes: Sizes, pods: usize, rounds: &[Round]) -> Section {
    let reader = || rounds.iter().map(|round| round.reader_s);
    let mut numbers = Vec::new();
    type Program = fn(&Round) -> Started;
    let programs: [(&str, &str, Program); 2] = [
        ("grove operator", "a new set has its pods, released", |round| {
            round.operator
        }),
        ("grove scheduler", "a waiting gang is bound", |round| round.scheduler),
    ];
    for (program, acts, of) in programs {
        let each = |value: fn(Started) -> f64| rounds.iter().map(move |round| value(of(round)));
        numbers.extend([
            Number::new(
                format!("{program}: until it is ready"),
                "s",
                each(|started| started.ready_s),
            ),
            Number::new(format!("{program}: until {acts}"), "s", each(|started| started.acted_s))
                .against(READER, reader()),
            Number::new(
                format!("{program}: memory then"),
                "MiB",
                each(|started| started.usage.rss_mib),
            ),
            Number::new(
                format!("{program}: memory at its peak"),
                "MiB",
                each(|started| started.usage.peak_rss_mib),
            ),
            Number::new(
                format!("{program}: CPU until then"),
                "s",
                each(|started| started.usage.cpu_s),
            ),
        ]);
    }
    Section {
        title: format!("A start beside {} nodes and {pods} pods", sizes.nodes),
        text: "On the embedded cluster, over HTTPS: from the start of the process until its `/readyz` says so, and until it has \
               acted on something new, for which it must have read everything. The bare reader lists the same pods and nodes in \
               pages of 500 and keeps nothing."
            .to_owned(),
        numbers,
        plots: Vec::new(),
    }
}
