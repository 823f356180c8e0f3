//! The placement engine by itself: what `grove bench placement` and `grove bench trace` print, several times.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::process::Command;

use super::results::{Axis, Bound, Line, Number, Plot, Section, median};

/// Hosts of the clusters, and how often each is measured.
const FULL: (&[usize], usize) = (&[1_000, 10_000, 100_000], 3);
const QUICK: (&[usize], usize) = (&[256, 512], 1);
/// What is promised at ten thousand hosts.
const PROMISED_HOSTS: usize = 10_000;
const MICROS_MAX: f64 = 1_000.0;
/// Cases that the picture shows.
const DRAWN_MAX: usize = 8;

/// A few hosts and pods in the form of the trace.
const FEW_HOSTS: &str = "sn,cpu_milli,memory_mib,gpu,model\nn1,32000,64000,8,A\nn2,32000,64000,8,A\n";
const FEW_PODS: &str = "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n\
                        p0,1000,1000,1,0,100\np1,1000,1000,4,10,100\np2,1000,1000,1,20,60\n";

/// A line of `grove bench placement`.
#[derive(Clone, Debug, Deserialize)]
struct Solved {
    case: String,
    nodes: usize,
    new_shape_us: f64,
    known_shape_us: f64,
    commit_us: f64,
    allocations: usize,
    work: Work,
    result: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Work {
    candidates: u64,
    hosts: u64,
    states: u64,
}

/// A line of `grove bench trace`.
#[derive(Clone, Debug, Deserialize)]
struct Replayed {
    rule: String,
    gangs: usize,
    gpu_time_accepted: f64,
    racks_per_gang: f64,
    hosts_per_gang: f64,
    stranded_gpus: f64,
    us_per_gang: f64,
}

/// The folder has the trace; without one, days of that kind are made up.
pub(super) async fn part(grove: &Path, is_quick: bool, trace: Option<&Path>) -> Result<Vec<Section>> {
    let (sizes, rounds) = if is_quick { QUICK } else { FULL };
    let mut solved = Vec::new();
    for nodes in sizes {
        let nodes = nodes.to_string();
        for round in 1..=rounds {
            eprintln!("placement: {nodes} hosts, round {round} of {rounds}");
            solved.push(printed::<Vec<Solved>>(grove, &["placement", "--nodes", &nodes]).await?);
        }
    }
    let few = TempDir::new()?;
    fs::write(few.path().join("nodes.csv"), FEW_HOSTS)?;
    fs::write(few.path().join("pods.csv"), FEW_PODS)?;
    let trace = trace.or(is_quick.then_some(few.path()));
    let folder = trace.map(|folder| {
        folder
            .to_str()
            .context("the folder of the trace has a name that is not text")
    });
    let folder = folder.transpose()?;
    eprintln!("placement: the trace");
    let replayed: Vec<Replayed> = printed(grove, &[&["trace"][..], folder.as_slice()].concat()).await?;
    let mut sections: Vec<Section> = sizes.iter().map(|nodes| single_gangs(*nodes, &solved)).collect();
    if let Some(last) = sections.last_mut() {
        last.plots.push(growth(&solved));
    }
    sections.push(replay(&replayed, folder.is_some()));
    Ok(sections)
}

/// What a command of `grove bench` prints for programs.
async fn printed<T: DeserializeOwned>(grove: &Path, args: &[&str]) -> Result<T> {
    let mut command = Command::new(grove);
    command.arg("bench").args(args).args(["-o", "json"]).kill_on_drop(true);
    let output = command.output().await.context("cannot start grove")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "grove bench {}: {told}", args.join(" "));
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("grove bench {} printed something else", args.join(" ")))
}

/// The rounds of one case on one cluster.
fn rounds<'a>(solved: &'a [Vec<Solved>], nodes: usize, case: &'a str) -> impl Iterator<Item = &'a Solved> + Clone {
    let lines = solved.iter().flatten();
    lines.filter(move |line| line.nodes == nodes && line.case == case)
}

fn cases(solved: &[Vec<Solved>], nodes: usize) -> Vec<&str> {
    let round = solved
        .iter()
        .find(|round| round.first().is_some_and(|line| line.nodes == nodes));
    round.into_iter().flatten().map(|line| line.case.as_str()).collect()
}

fn single_gangs(nodes: usize, solved: &[Vec<Solved>]) -> Section {
    let bound = (nodes == PROMISED_HOSTS).then_some(Bound::AtMost(MICROS_MAX));
    let number = |case: &&str| {
        let lines = rounds(solved, nodes, case);
        let first = lines.clone().next();
        let told = first.map_or(String::new(), |line| {
            let work = line.work.candidates + line.work.hosts + line.work.states;
            let (new, commit) = (line.new_shape_us.round(), line.commit_us.round());
            let allocations = line.allocations;
            format!(
                " ({}; work {work}, {allocations} allocations; new shape {new} µs, commit {commit} µs)",
                line.result
            )
        });
        Number::new(format!("{case}{told}"), "µs", lines.map(|line| line.known_shape_us)).bound(bound)
    };
    Section {
        title: format!("One gang on {nodes} hosts"),
        text: "`grove bench placement`: each time is the best of 30 tries in one run, with the shape of the pods known; in \
               brackets the work that was counted and the time for a shape that was never seen."
            .to_owned(),
        numbers: cases(solved, nodes).iter().map(number).collect(),
        plots: Vec::new(),
    }
}

fn growth(solved: &[Vec<Solved>]) -> Plot {
    let mut sizes: Vec<usize> = solved.iter().flatten().map(|line| line.nodes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // Those that are told on all clusters, spread over the list.
    let first = cases(solved, sizes.first().copied().unwrap_or(0));
    let everywhere = |case: &&str| sizes.iter().all(|nodes| rounds(solved, *nodes, case).next().is_some());
    let common: Vec<&str> = first.into_iter().filter(everywhere).collect();
    let step = common.len().div_ceil(DRAWN_MAX).max(1);
    let line = |case: &str| Line {
        name: case.chars().take(28).collect(),
        points: sizes
            .iter()
            .map(|nodes| {
                let times = rounds(solved, *nodes, case).map(|line| line.known_shape_us).collect();
                (*nodes as f64, median(times))
            })
            .collect(),
    };
    Plot {
        title: "Placing one gang, its shape known".to_owned(),
        x: Axis::log("hosts"),
        y: Axis::log("µs"),
        lines: common.into_iter().step_by(step).map(line).collect(),
    }
}

fn replay(replayed: &[Replayed], is_recorded: bool) -> Section {
    type Value = fn(&Replayed) -> f64;
    let values: [(&str, &str, Value); 5] = [
        ("GPU-time accepted", "%", |line| line.gpu_time_accepted * 100.0),
        ("racks per gang", "", |line| line.racks_per_gang),
        ("hosts per gang", "", |line| line.hosts_per_gang),
        ("stranded GPUs", "", |line| line.stranded_gpus),
        ("time per gang", "µs", |line| line.us_per_gang),
    ];
    let (ours, others): (Vec<&Replayed>, Vec<&Replayed>) =
        replayed.iter().partition(|line| line.rule.starts_with("grove"));
    let mut numbers = Vec::new();
    for line in ours {
        for (what, unit, of) in values {
            for other in &others {
                let number = Number::new(format!("{}: {what}", line.rule), unit, [of(line)]);
                numbers.push(number.against(&other.rule, [of(other)]));
            }
        }
    }
    let gangs = replayed.first().map_or(0, |line| line.gangs);
    let days = match is_recorded {
        true => "the public trace \"openb\"",
        false => "days that are made up in the manner of the public trace \"openb\"",
    };
    Section {
        title: "Days of a cluster".to_owned(),
        text: format!(
            "`grove bench trace`: {gangs} gangs of {days} come and go. The trace knows no racks and almost no gangs: hosts of one \
             model stand together, 16 a rack and 8 racks a block, and its pods become gangs of 1, 1, 2, 4, 8 and 16 of their \
             kind, in turn. All GPU-time that there is is asked for. The others place host by host: the first that fits, the one \
             that it fills best, the tightest domain. The same days give the same placements: there is nothing to repeat."
        ),
        numbers,
        plots: Vec::new(),
    }
}
