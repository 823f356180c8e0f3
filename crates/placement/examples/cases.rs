//! Places the queues of a folder of gang-case files and compares with the answers in them:
//! `cargo run --release -p grove-placement --example cases -- DIR`.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use grove_placement::bench::{Queue, QueueGang, QueueHost, place_all, tally};
use grove_placement::{Budget, Policy};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    label: String,
    nodes: Vec<Host>,
    gangs: Vec<Gang>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Host {
    name: String,
    zone: String,
    block: String,
    rack: String,
    used: u64,
}

#[derive(Deserialize)]
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

fn read(path: &Path) -> Result<File> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a gang-case file", path.display()))
}

fn queue(file: &File) -> Queue {
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

fn main() -> Result<()> {
    let dir = std::env::args()
        .nth(1)
        .context("say which folder holds the gang-case files")?;
    let mut paths: Vec<_> = std::fs::read_dir(&dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    println!(
        "{:16} {:>6} {:>12} {:>14} {:>16} {:>9} {:>10}",
        "file", "gangs", "placed/peer", "GPUs/peer", "racks/gang/peer", "undecided", "us/gang"
    );
    for path in paths {
        let mut file = read(&path)?;
        file.gangs.sort_by(|one, other| one.name.cmp(&other.name));
        let queue = queue(&file);
        for policy in [Policy::FewestHosts, Policy::SpareHosts] {
            let start = Instant::now();
            let results = place_all(&queue, policy, Budget::default());
            let micros = start.elapsed().as_micros() as usize / file.gangs.len().max(1);
            let both = |index: usize| file.gangs[index].placed.is_some();
            let ours = tally(&queue, &results, both);
            let peer: Vec<&Gang> = file.gangs.iter().filter(|gang| gang.placed.is_some()).collect();
            let gpus: u64 = peer.iter().map(|gang| u64::from(gang.size) * gang.gpu).sum();
            let shared = file
                .gangs
                .iter()
                .zip(&results)
                .filter(|(gang, result)| gang.placed.is_some() && result.placed);
            let racks: Vec<usize> = shared.filter_map(|(gang, _)| gang.racks).collect();
            let peer_racks = racks.iter().sum::<usize>() as f64 / racks.len().max(1) as f64;
            println!(
                "{:16} {:>6} {:>6}/{:<5} {:>7}/{:<6} {:>8.2}/{:<7.2} {:>9} {:>10}",
                file.label,
                file.gangs.len(),
                ours.gangs,
                peer.len(),
                ours.gpus,
                gpus,
                ours.racks_per_gang,
                peer_racks,
                ours.undecided,
                micros
            );
        }
    }
    Ok(())
}
