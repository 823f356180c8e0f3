//! `cargo xtask campaign`: plays many runs, shows how far it is, and ends with a table. A run that breaks a rule is shrunk
//! and shown with the command that plays it again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use grove_campaign::{Campaign, Plot, Row, Table, Verdict, scenarios};

/// Between two lines that say how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// As many failures as are shrunk and shown.
const SHOWN_MAX: usize = 5;

/// Plays all of Grove on embedded clusters with faults, and judges every run.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask campaign", bin_name = "cargo xtask campaign")]
struct Args {
    /// How many runs are drawn from seeds, beside a kill at every write
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only these scenarios
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Only these sorts of faults
    #[arg(long, value_name = "NAME")]
    fault: Vec<String>,
    /// Only the k-th of n parts of all places to die, as in 3/8
    #[arg(long, value_name = "K/N")]
    part: Option<String>,
    /// Plays one run again: what a failure prints
    #[arg(long, value_name = "PLOT")]
    replay: Option<String>,
    /// Runs at the same time; by default one for each core
    #[arg(long)]
    jobs: Option<usize>,
    /// Puts the table into this document
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Names the scenarios and faults, and ends
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    if args.list {
        scenarios()
            .iter()
            .for_each(|scenario| println!("scenario  {}", scenario.name));
        Row::ALL
            .iter()
            .for_each(|row| println!("fault     {}: {}", row.words().0, row.words().1));
        return Ok(true);
    }
    let jobs = match args.jobs {
        Some(jobs) => jobs,
        None => std::thread::available_parallelism()?.get(),
    };
    if let Some(plot) = &args.replay {
        let plot: Plot = serde_json::from_str(plot).context("--replay takes what a failure prints")?;
        return replay(&plot);
    }
    let campaign = learn(&wanted_scenarios(args)?, jobs)?;
    let plots = plots(args, &campaign)?;
    let (verdicts, time) = play_all(&campaign, &plots, jobs)?;
    let failed: Vec<&Verdict> = verdicts
        .iter()
        .filter(|verdict| !verdict.violations.is_empty())
        .collect();
    for verdict in failed.iter().take(SHOWN_MAX) {
        show(&campaign.shrunk((*verdict).clone())?);
    }
    let table = Table::of(&verdicts);
    println!("\n{table}");
    println!(
        "{} runs in {:.0} s, {} at a time; {} broke a rule",
        verdicts.len(),
        time.as_secs_f64(),
        jobs,
        failed.len()
    );
    if let Some(path) = &args.table {
        let document = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let document = table.put_into(&document);
        let document = document.with_context(|| format!("{} has no place for the table", path.display()))?;
        std::fs::write(path, document)?;
    }
    Ok(failed.is_empty())
}

fn wanted_scenarios(args: &Args) -> Result<Vec<String>> {
    let all: Vec<String> = scenarios().iter().map(|scenario| scenario.name.to_owned()).collect();
    if args.scenario.is_empty() {
        return Ok(all);
    }
    for name in &args.scenario {
        ensure!(
            all.contains(name),
            "there is no scenario '{name}'; there are: {}",
            all.join(", ")
        );
    }
    Ok(args.scenario.clone())
}

/// Plays every scenario without faults; a rule that is broken even so must be seen first.
fn learn(scenarios: &[String], jobs: usize) -> Result<Campaign> {
    let begun = Instant::now();
    let campaign = Campaign::learn(scenarios, jobs)?;
    let mut writes = 0;
    for (scenario, learned) in campaign.learned() {
        for violation in &learned.violations {
            println!("{scenario} without faults: {violation}");
        }
        ensure!(
            learned.violations.is_empty(),
            "{scenario} breaks a rule without any fault"
        );
        writes += learned.points.operator + learned.points.scheduler;
    }
    println!(
        "{} scenarios learned in {:.1} s: {writes} writes, {} places to die",
        scenarios.len(),
        begun.elapsed().as_secs_f64(),
        writes * 3
    );
    Ok(campaign)
}

fn plots(args: &Args, campaign: &Campaign) -> Result<Vec<(Row, Plot)>> {
    let mut rows = Row::ALL.to_vec();
    if !args.fault.is_empty() {
        let row = |name: &String| Row::named(name).with_context(|| format!("there is no fault '{name}'; see --list"));
        rows = args.fault.iter().map(row).collect::<Result<_>>()?;
    }
    let mut plots = Vec::new();
    if rows.contains(&Row::Kill) {
        let (part, parts) = part(args.part.as_deref())?;
        let mine = campaign.kills().into_iter().enumerate();
        plots.extend(mine.filter(|(index, _)| index % parts == part).map(|(_, plot)| plot));
    }
    let seeds = args.from..args.from.saturating_add(args.seeds);
    plots.extend(seeds.filter_map(|seed| campaign.drawn(seed, &rows)));
    Ok(plots)
}

/// Which part of how many, counted from 1 by people.
fn part(text: Option<&str>) -> Result<(usize, usize)> {
    let Some(text) = text else { return Ok((0, 1)) };
    let parsed = text
        .split_once('/')
        .and_then(|(k, n)| Some((k.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
    match parsed {
        Some((k, n)) if (1..=n).contains(&k) => Ok((k - 1, n)),
        _ => bail!("--part is K/N with K from 1 to N, as in 3/8, and not '{text}'"),
    }
}

fn play_all(campaign: &Campaign, plots: &[(Row, Plot)], jobs: usize) -> Result<(Vec<Verdict>, Duration)> {
    let begun = Instant::now();
    let progress = Mutex::new((0_usize, 0_usize, begun));
    let told = |verdict: &Verdict| {
        let Ok(mut progress) = progress.lock() else { return };
        progress.0 += 1;
        progress.1 += usize::from(!verdict.violations.is_empty());
        if progress.2.elapsed() >= TELL_EVERY {
            progress.2 = Instant::now();
            let rate = progress.0 as f64 / begun.elapsed().as_secs_f64();
            let left = (plots.len() - progress.0) as f64 / rate;
            println!(
                "{}/{} runs, {} broke a rule, {rate:.1} a second, {left:.0} s left",
                progress.0,
                plots.len(),
                progress.1
            );
        }
        if let Some(first) = verdict.violations.first() {
            println!("{} {}: {first}", verdict.row.words().0, verdict.plot.scenario);
        }
    };
    let verdicts = campaign.try_all(plots, jobs, &told)?;
    Ok((verdicts, begun.elapsed()))
}

fn replay(plot: &Plot) -> Result<bool> {
    let campaign = learn(std::slice::from_ref(&plot.scenario), 1)?;
    let verdict = campaign.try_one(Row::Swarm, plot, None)?;
    show(&verdict);
    println!("trace {:016x}", verdict.hash);
    Ok(verdict.violations.is_empty())
}

fn show(verdict: &Verdict) {
    println!("\n{} with {} faults:", verdict.plot.scenario, verdict.plot.faults.len());
    for fault in &verdict.plot.faults {
        println!("  {fault:?}");
    }
    for violation in &verdict.violations {
        println!("  {violation}");
    }
    let plot = serde_json::to_string(&verdict.plot).unwrap_or_default();
    println!("play it again: cargo xtask campaign --replay '{plot}'");
}
