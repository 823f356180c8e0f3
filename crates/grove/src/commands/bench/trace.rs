//! `grove bench trace`: days of a cluster, placed by Grove and by what schedulers do that place host by host.
//!
//! A folder has `nodes.csv` and `pods.csv` of the public trace "openb" (Alibaba, 2023). It knows no racks and almost no
//! gangs, so this is what is made of it, and of the days that are made up where there is no folder:
//!
//! - hosts without GPUs and pods that ask for none are left out; a pod that asks for a part of a GPU gets all of it;
//! - hosts of one model stand together, 16 a rack, 8 racks a block;
//! - the pods of the trace become gangs of 1, 1, 2, 4, 8 and 16 of their kind, in turn;
//! - gangs stay as long as their pod did, and come as they did but faster, so that `--load` of all GPU-time is asked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use grove_placement::Policy;
use grove_placement::bench::{Moment, Rule, Trace, TraceGang, TraceHost, replay};
use grove_plancheck::{Alike, Host as JudgedHost, Instance, Near, Put, check};
use serde::Serialize;

use crate::output::{columns, row};

const HOSTS_PER_RACK: usize = 16;
const RACKS_PER_BLOCK: u32 = 8;
/// How many pods the gangs have, in turn.
const SIZES: [u32; 6] = [1, 1, 2, 4, 8, 16];

const RULES: [(Rule, &str); 5] = [
    (Rule::FirstFit, "first fit"),
    (Rule::BestFit, "best fit"),
    (Rule::TightestDomain, "tightest domain"),
    (Rule::Engine(Policy::FewestHosts), "grove, fewest hosts"),
    (Rule::Engine(Policy::SpareHosts), "grove, spare hosts"),
];

/// One rule.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    rule: &'static str,
    gangs: usize,
    placed: usize,
    /// Of what was asked for.
    gpu_time_accepted: f64,
    racks_per_gang: f64,
    hosts_per_gang: f64,
    /// Free GPUs of hosts of which some are taken, on average.
    stranded_gpus: f64,
    /// Placements that the judge did not accept.
    rejected: usize,
    us_per_gang: f64,
}

/// A host as a trace tells of it: GPUs, thousandths of a core, MiB.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Host {
    model: String,
    name: String,
    has: [u64; 3],
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pod {
    asks: [u64; 3],
    created: u64,
    deleted: u64,
}

pub(super) fn measure(folder: Option<&Path>, load: f64) -> Result<Vec<Line>> {
    let (hosts, pods) = match folder {
        Some(folder) => (
            read(&folder.join("nodes.csv"), host)?,
            read(&folder.join("pods.csv"), pod)?,
        ),
        None => made_up(),
    };
    let trace = trace(hosts, &pods, load)?;
    let asked: u64 = trace.gangs.iter().map(TraceGang::gpu_time).sum();
    let span = trace.gangs.last().map_or(1, |gang| gang.starts.max(1));
    let line = |(rule, name)| {
        let start = Instant::now();
        let replayed = replay(&trace, rule, |_| ());
        let micros = start.elapsed().as_secs_f64() * 1e6;
        let per_gang = |count: usize| count as f64 / replayed.together.max(1) as f64;
        Line {
            rule: name,
            gangs: trace.gangs.len(),
            placed: replayed.gangs,
            gpu_time_accepted: replayed.gpu_time as f64 / asked.max(1) as f64,
            racks_per_gang: per_gang(replayed.racks),
            hosts_per_gang: per_gang(replayed.hosts),
            stranded_gpus: replayed.stranded as f64 / span as f64,
            rejected: rejected(&trace, rule),
            us_per_gang: micros / trace.gangs.len().max(1) as f64,
        }
    };
    Ok(RULES.into_iter().map(line).collect())
}

/// How many placements of a rule the judge rejects, each on what is taken at that moment.
fn rejected(trace: &Trace, rule: Rule) -> usize {
    let host = |host: &TraceHost| JudgedHost {
        free: host.has.map(|amount| amount as i64).to_vec(),
        path: Some(vec![host.block, host.rack]),
        cells: Vec::new(),
    };
    let mut judged = Instance::of_hosts(2, trace.hosts.iter().map(host).collect());
    let mut rejected = 0;
    replay(trace, rule, |moment| {
        let (Moment::Comes(gang, places) | Moment::Goes(gang, places)) = moment;
        // More than one pod require a block.
        let near = Near {
            required: usize::from(gang.pods > 1),
            preferred: 0,
        };
        judged.ask(near, [Alike::anywhere(gang.asks.to_vec(), gang.pods)]);
        let puts = Put::alone(places);
        match moment {
            Moment::Comes(..) => {
                rejected += usize::from(!check(&judged, &puts).is_empty());
                judged.take(&puts);
            }
            Moment::Goes(..) => judged.give_back(&puts),
        }
    });
    rejected
}

/// One line of a file, by the names of its columns.
struct Record<'a> {
    columns: BTreeMap<&'a str, &'a str>,
}

impl Record<'_> {
    fn text(&self, column: &str) -> Result<&str> {
        let value = self.columns.get(column);
        value.copied().with_context(|| format!("column {column} is missing"))
    }

    fn number(&self, column: &str) -> Result<u64> {
        let text = self.text(column)?;
        text.parse()
            .with_context(|| format!("{column} is \"{text}\", not a whole number"))
    }
}

fn read<T>(path: &Path, item: impl Fn(&Record) -> Result<T>) -> Result<Vec<T>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines().enumerate();
    let names: Vec<&str> = lines.next().map_or(Vec::new(), |(_, line)| line.split(',').collect());
    let parsed = lines.map(|(number, line)| {
        let columns = names.iter().copied().zip(line.split(',')).collect();
        item(&Record { columns }).with_context(|| format!("{} line {}", path.display(), number + 1))
    });
    parsed.collect()
}

fn host(record: &Record) -> Result<Host> {
    Ok(Host {
        model: record.text("model")?.to_owned(),
        name: record.text("sn")?.to_owned(),
        has: [
            record.number("gpu")?,
            record.number("cpu_milli")?,
            record.number("memory_mib")?,
        ],
    })
}

fn pod(record: &Record) -> Result<Pod> {
    Ok(Pod {
        asks: [
            record.number("num_gpu")?,
            record.number("cpu_milli")?,
            record.number("memory_mib")?,
        ],
        created: record.number("creation_time")?,
        deleted: record.number("deletion_time")?,
    })
}

fn trace(hosts: Vec<Host>, pods: &[Pod], load: f64) -> Result<Trace> {
    let hosts = in_racks(hosts);
    let mut pods: Vec<&Pod> = pods.iter().filter(|pod| pod.asks[0] > 0).collect();
    ensure!(!hosts.is_empty(), "no host of the trace has a GPU");
    ensure!(!pods.is_empty(), "no pod of the trace asks for a GPU");
    pods.sort_by_key(|pod| pod.created);
    let gpus: u64 = hosts.iter().map(|host| host.has[0]).sum();
    let span = span_for(&pods, load * gpus as f64);
    Ok(Trace {
        gangs: gangs(&pods, span),
        hosts,
    })
}

fn in_racks(mut hosts: Vec<Host>) -> Vec<TraceHost> {
    hosts.retain(|host| host.has[0] > 0);
    hosts.sort();
    let mut placed: Vec<TraceHost> = Vec::new();
    let mut rack = 0;
    for model in hosts.chunk_by(|one, other| one.model == other.model) {
        for hosts in model.chunks(HOSTS_PER_RACK) {
            placed.extend(hosts.iter().map(|host| TraceHost {
                name: host.name.clone(),
                block: rack / RACKS_PER_BLOCK,
                rack,
                has: host.has,
            }));
            rack += 1;
        }
    }
    placed
}

/// Gangs that come within a span of time and are gone at its end.
fn gangs(pods: &[&Pod], span: u64) -> Vec<TraceGang> {
    let first = pods.first().map_or(0, |pod| pod.created);
    let before = pods.last().map_or(1, |pod| pod.created.saturating_sub(first)).max(1);
    let gang = |(number, pod): (usize, &&Pod)| {
        let starts = (u128::from(pod.created - first) * u128::from(span) / u128::from(before)) as u64;
        let stays = pod.deleted.saturating_sub(pod.created).max(1);
        TraceGang {
            pods: SIZES[number % SIZES.len()],
            asks: pod.asks,
            starts,
            ends: starts.saturating_add(stays).min(span.max(starts + 1)),
        }
    };
    pods.iter().enumerate().map(gang).collect()
}

/// The span in which so many GPUs are asked for on average: the longer it is, the fewer.
fn span_for(pods: &[&Pod], gpus: f64) -> u64 {
    let asked = |span: u64| {
        let time: u64 = gangs(pods, span).iter().map(TraceGang::gpu_time).sum();
        time as f64 / span as f64
    };
    let (mut low, mut high) = (1_u64, 1 << 40);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if asked(middle) > gpus {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// Hosts and pods of about the same kinds, numbers and lengths of stay as the trace's, the same each time.
fn made_up() -> (Vec<Host>, Vec<Pod>) {
    let kinds = [("A", 600, 8), ("B", 500, 2), ("C", 60, 4)];
    let hosts = kinds.into_iter().flat_map(|(model, count, gpus)| {
        (0..count).map(move |number| Host {
            model: model.to_owned(),
            name: format!("{model}{number:04}"),
            has: [gpus, 32_000 + gpus * 8_000, 131_072 + gpus * 65_536],
        })
    });
    let mut noise = 42_u64;
    let mut roll = move |sides: u64| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise % sides
    };
    let pods = (0..7_000_u64).map(|number| {
        let gpus = match roll(100) {
            0..98 => 1,
            98 => 2,
            _ => 8,
        };
        // Half stay for minutes, a few for days.
        let stays = 60 << roll(14);
        let created = number * 380;
        Pod {
            asks: [gpus, gpus * (3_000 + 1_500 * roll(6)), gpus * (6_000 + 8_000 * roll(6))],
            created,
            deleted: created + stays,
        }
    });
    (hosts.collect(), pods.collect())
}

pub(super) fn table(lines: &[Line]) -> String {
    let mut rows = vec![row([
        "RULE",
        "GANGS",
        "PLACED",
        "GPU-TIME",
        "RACKS/GANG",
        "HOSTS/GANG",
        "STRANDED GPUS",
        "REJECTED",
        "US/GANG",
    ])];
    rows.extend(lines.iter().map(|line| {
        row([
            line.rule,
            &line.gangs.to_string(),
            &line.placed.to_string(),
            &format!("{:.1} %", line.gpu_time_accepted * 100.0),
            &format!("{:.2}", line.racks_per_gang),
            &format!("{:.2}", line.hosts_per_gang),
            &format!("{:.0}", line.stranded_gpus),
            &line.rejected.to_string(),
            &format!("{:.0}", line.us_per_gang),
        ])
    }));
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,1000,1000,0,\nn1,32000,64000,8,A\nn2,32000,64000,8,A\n";
    const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n\
                        p0,1000,1000,1,0,100\np1,1000,1000,0,5,100\np2,1000,1000,4,10,100\np3,1000,1000,1,20,60\n";

    #[test]
    fn a_folder_is_read_and_every_rule_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("nodes.csv"), NODES).unwrap();
        fs::write(folder.path().join("pods.csv"), PODS).unwrap();
        let lines = measure(Some(folder.path()), 0.5).unwrap();
        assert_eq!(lines.len(), RULES.len());
        for line in &lines {
            assert_eq!((line.gangs, line.placed), (3, 3), "{line:?}");
            assert_eq!(line.gpu_time_accepted, 1.0, "{line:?}");
            assert_eq!(line.rejected, 0, "{line:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("nodes.csv"), NODES.replace(",8,A", ",many,A")).unwrap();
        let error = measure(Some(folder.path()), 0.5).unwrap_err();
        let told = format!("{error:#}");
        assert!(
            told.ends_with("nodes.csv line 3: gpu is \"many\", not a whole number: invalid digit found in string"),
            "{told}"
        );
    }

    #[test]
    fn as_much_is_asked_for_as_the_load_says() {
        let (hosts, pods) = made_up();
        let trace = trace(hosts, &pods, 0.8).unwrap();
        let span = trace.gangs.last().unwrap().starts as f64;
        let asked: u64 = trace.gangs.iter().map(TraceGang::gpu_time).sum();
        let gpus: u64 = trace.hosts.iter().map(|host| host.has[0]).sum();
        let load = asked as f64 / span / gpus as f64;
        assert!((load - 0.8).abs() < 0.01, "{load}");
    }

    /// More is asked for than there is, so that every corner is filled.
    #[test]
    fn the_judge_accepts_every_placement_of_a_full_cluster() {
        let (mut hosts, mut pods) = made_up();
        hosts.retain(|host| host.name.ends_with('0'));
        pods.truncate(1_500);
        let trace = trace(hosts, &pods, 1.5).unwrap();
        for (rule, name) in RULES {
            assert_eq!(rejected(&trace, rule), 0, "{name}");
            assert!(
                replay(&trace, rule, |_| ()).gangs < trace.gangs.len(),
                "{name}: nobody was turned away"
            );
        }
    }

    #[test]
    fn a_rack_holds_hosts_of_one_model() {
        let racks = in_racks(made_up().0);
        let of = |number: u32| racks.iter().filter(move |host| host.rack == number);
        let last = racks.last().unwrap().rack;
        for number in 0..=last {
            let gpus: std::collections::BTreeSet<u64> = of(number).map(|host| host.has[0]).collect();
            assert_eq!(gpus.len(), 1);
            assert!(of(number).count() <= HOSTS_PER_RACK);
        }
    }
}
