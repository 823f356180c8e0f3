//! `grove bench cases`: queues of gangs on 1,000 hosts, beside what another scheduler made of them.
//!
//! Every gang is placed in the order of names and takes its room; one that does not fit is passed over. The judge looks
//! at every placement, and counts what no scheduler could exceed.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use grove_placement::bench::{Queue, QueueGang, QueueHost, QueueResult, place_all, tally};
use grove_placement::{Budget, Policy};
use grove_plancheck::{Alike, Demand, Host as JudgedHost, Instance, Near, Put, check, most_served};
use serde::{Deserialize, Serialize};

use crate::output::{columns, row};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CaseFile {
    label: String,
    nodes: Vec<Host>,
    gangs: Vec<Gang>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Host {
    name: String,
    zone: String,
    block: String,
    rack: String,
    used: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Gang {
    name: String,
    req: String,
    pref: String,
    size: u32,
    gpu: u64,
    placed: Option<u32>,
    racks: Option<usize>,
}

fn word(letter: &str) -> Option<String> {
    let word = match letter {
        "z" => "zone",
        "b" => "block",
        "r" => "rack",
        "h" => "host",
        _ => return None,
    };
    Some(word.to_owned())
}

fn read(path: &Path) -> Result<CaseFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a gang-case file", path.display()))
}

fn queue(file: &CaseFile) -> Queue {
    let host = |host: &Host| QueueHost {
        name: host.name.clone(),
        zone: host.zone.clone(),
        block: host.block.clone(),
        rack: host.rack.clone(),
        used: host.used,
    };
    let gang = |gang: &Gang| QueueGang {
        name: gang.name.clone(),
        required: word(&gang.req),
        preferred: word(&gang.pref),
        pods: gang.size,
        gpus: gang.gpu,
    };
    let mut gangs: Vec<QueueGang> = file.gangs.iter().map(gang).collect();
    gangs.sort_by(|one, other| one.name.cmp(&other.name));
    Queue {
        hosts: file.nodes.iter().map(host).collect(),
        gangs,
    }
}

/// One file under one policy.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    file: String,
    policy: &'static str,
    gangs: usize,
    placed: usize,
    peer_placed: usize,
    /// What no scheduler could exceed, if that can be counted.
    most_gangs: Option<usize>,
    gpus: u64,
    peer_gpus: u64,
    most_gpus: Option<u64>,
    /// Over the gangs that both placed.
    racks_per_gang: f64,
    peer_racks_per_gang: f64,
    /// As good as the peer: in gangs or in GPUs, within 1 % in the other, and in racks per gang.
    as_good: bool,
    undecided: usize,
    /// Placements that the judge did not accept.
    rejected: usize,
    us_per_gang: f64,
}

/// All files of a folder.
pub(super) fn measure(folder: &Path) -> Result<Vec<Line>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no gang-case file (*.json)", folder.display());
    let mut lines = Vec::new();
    for path in paths {
        let mut file = read(&path)?;
        file.gangs.sort_by(|one, other| one.name.cmp(&other.name));
        for (policy, name) in [
            (Policy::FewestHosts, "fewest hosts"),
            (Policy::SpareHosts, "spare hosts"),
        ] {
            lines.push(compare(&file, policy, name));
        }
    }
    Ok(lines)
}

fn compare(file: &CaseFile, policy: Policy, name: &'static str) -> Line {
    let queue = queue(file);
    let start = Instant::now();
    let results = place_all(&queue, policy, Budget::default());
    let micros = start.elapsed().as_secs_f64() * 1e6;
    let ours = tally(&queue, &results, |index| file.gangs[index].placed.is_some());
    let peer = || file.gangs.iter().filter(|gang| gang.placed.is_some());
    let both = file.gangs.iter().zip(&results).filter(|(_, result)| result.placed);
    let racks: Vec<usize> = both.filter_map(|(gang, _)| gang.racks).collect();
    let most = most(&queue);
    let mut line = Line {
        file: file.label.clone(),
        policy: name,
        gangs: file.gangs.len(),
        placed: ours.gangs,
        peer_placed: peer().count(),
        most_gangs: most.map(|(gangs, _)| gangs),
        gpus: ours.gpus,
        peer_gpus: peer().map(|gang| u64::from(gang.size) * gang.gpu).sum(),
        most_gpus: most.map(|(_, gpus)| gpus),
        racks_per_gang: ours.racks_per_gang,
        peer_racks_per_gang: racks.iter().sum::<usize>() as f64 / racks.len().max(1) as f64,
        as_good: false,
        undecided: ours.undecided,
        rejected: rejected(&queue, &results),
        us_per_gang: micros / file.gangs.len().max(1) as f64,
    };
    line.as_good = line.is_as_good_as(line.peer_placed, line.peer_gpus, line.peer_racks_per_gang);
    line
}

impl Line {
    /// As good as others in gangs or in GPUs, within 1 % in the other, with no more racks per gang.
    fn is_as_good_as(&self, gangs: usize, gpus: u64, racks_per_gang: f64) -> bool {
        let all_gangs = self.placed >= gangs && self.gpus * 100 >= gpus * 99;
        let all_gpus = self.gpus >= gpus && self.placed * 100 >= gangs * 99;
        // Racks per gang are given to two places.
        (all_gangs || all_gpus) && self.racks_per_gang <= racks_per_gang + 0.005
    }
}

/// GPUs of a host.
const GPUS: u64 = 8;

fn most(queue: &Queue) -> Option<(usize, u64)> {
    let free: Vec<u64> = queue.hosts.iter().map(|host| GPUS.saturating_sub(host.used)).collect();
    let demand = |gang: &QueueGang| Demand {
        pods: gang.pods,
        size: gang.gpus,
    };
    most_served(&free, &queue.gangs.iter().map(demand).collect::<Vec<_>>())
}

/// How many placements the judge rejects, each on what the ones before left.
fn rejected(queue: &Queue, results: &[QueueResult]) -> usize {
    let mut judged = judged(queue);
    let mut rejected = 0;
    for (gang, result) in queue.gangs.iter().zip(results).filter(|(_, result)| result.placed) {
        let near = Near {
            required: depth(gang.required.as_deref()),
            preferred: depth(gang.preferred.as_deref()),
        };
        judged.ask(near, [Alike::anywhere(vec![gang.gpus], gang.pods)]);
        let puts = Put::alone(&result.hosts);
        rejected += usize::from(!check(&judged, &puts).is_empty());
        judged.take(&puts);
    }
    rejected
}

/// The hosts of a queue.
fn judged(queue: &Queue) -> Instance {
    let number = |names: &mut Vec<String>, name: &str| -> u32 {
        let known = names.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        }) as u32
    };
    let mut names = [Vec::new(), Vec::new(), Vec::new()];
    let host = |host: &QueueHost| {
        let values = [&host.zone, &host.block, &host.rack];
        let path = names.iter_mut().zip(values).map(|(names, value)| number(names, value));
        JudgedHost {
            free: vec![GPUS as i64 - host.used as i64],
            path: Some(path.collect()),
            cells: vec![],
        }
    };
    Instance::of_hosts(LEVELS.len() - 1, queue.hosts.iter().map(host).collect())
}

/// Levels of the queues, broad to narrow.
const LEVELS: [&str; 4] = ["zone", "block", "rack", "host"];

/// Depth of a level; 0 is none.
fn depth(word: Option<&str>) -> usize {
    let known = word.and_then(|word| LEVELS.iter().position(|level| *level == word));
    known.map_or(0, |index| index + 1)
}

pub(super) fn table(lines: &[Line]) -> String {
    let counted = |most: Option<u64>| most.map_or("?".to_owned(), |most| most.to_string());
    let mut rows = vec![row([
        "FILE",
        "POLICY",
        "GANGS",
        "PLACED",
        "PEER",
        "MOST",
        "GPUS",
        "PEER",
        "MOST",
        "RACKS/GANG",
        "PEER",
        "AS GOOD",
        "UNDECIDED",
        "REJECTED",
        "US/GANG",
    ])];
    rows.extend(lines.iter().map(|line| {
        row([
            &line.file,
            line.policy,
            &line.gangs.to_string(),
            &line.placed.to_string(),
            &line.peer_placed.to_string(),
            &counted(line.most_gangs.map(|most| most as u64)),
            &line.gpus.to_string(),
            &line.peer_gpus.to_string(),
            &counted(line.most_gpus),
            &format!("{:.2}", line.racks_per_gang),
            &format!("{:.2}", line.peer_racks_per_gang),
            if line.as_good { "yes" } else { "no" },
            &line.undecided.to_string(),
            &line.rejected.to_string(),
            &format!("{:.0}", line.us_per_gang),
        ])
    }));
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a greedy of 70 lines makes of the same files: gangs, GPUs, racks per gang.
    const GREEDY: [(&str, usize, u64, f64); 5] = [
        ("light1000-s1", 113, 2416, 1.03),
        ("loc1000-s1", 30, 2808, 1.53),
        ("mix1000-f60-s1", 143, 3128, 1.05),
        ("pref1000-24x8", 10, 1920, 2.00),
        ("s1000", 200, 1600, 1.00),
    ];

    /// On each file at least as good as either answer in gangs or in GPUs, within 1 % of the better in the other, and no
    /// more racks per gang than the smaller.
    #[test]
    fn queues_are_placed_as_well_as_by_others() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/gang-cases");
        let lines = measure(&folder).unwrap();
        for (file, gangs, gpus, racks) in GREEDY {
            let line = lines
                .iter()
                .find(|line| line.file == file && line.policy == "spare hosts")
                .unwrap();
            let better = (gangs.max(line.peer_placed), gpus.max(line.peer_gpus));
            let racks = racks.min(line.peer_racks_per_gang);
            assert!(line.is_as_good_as(better.0, better.1, racks), "{line:?}");
            assert!(line.as_good, "{line:?}");
            assert_eq!(line.undecided, 0);
        }
        for line in &lines {
            assert_eq!(line.rejected, 0, "{line:?}");
            let most = (line.most_gangs.unwrap(), line.most_gpus.unwrap());
            assert!(line.placed.max(line.peer_placed) <= most.0, "{line:?}");
            assert!(line.gpus.max(line.peer_gpus) <= most.1, "{line:?}");
        }
    }
}
