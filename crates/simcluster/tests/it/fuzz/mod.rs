//! Whatever arrives, the parsers and the door answer: no panic, no endless work, no memory without bounds.
//!
//! Inputs are made of a kept corpus (`corpus/*.jsonl`) by changing it at random, in batches: the number of a batch makes
//! the same inputs on every machine. An input with an answer of a new sort is changed further. Every run replays the
//! corpus and a sample; this runs as many as are asked for:
//!
//! ```sh
//! FUZZ_PARSERS=10000000 FUZZ_DOOR=500000 cargo test --release -p grove-simcluster --test it fuzz:: -- --nocapture
//! ```
//!
//! `FUZZ_KEEP=1` adds inputs with answers of new sorts to the corpus, `FUZZ_FIRST=7` begins with the seventh batch.

mod corpus;
mod door;
mod mutate;
mod parsers;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use mutate::Dice;

/// Inputs in one batch.
const BATCH: u64 = 2_000;
/// So many inputs of a batch are kept to be changed further.
const FOUND_MAX: usize = 2_000;
/// Work that takes longer would not end.
const WORK_MAX: Duration = Duration::from_secs(60);
/// All that a run may take.
const MEMORY_KIB_MAX: u64 = 2 * 1024 * 1024;

/// What a run has seen.
#[derive(Debug, Default)]
pub(super) struct Tally {
    executions: u64,
    slowest: Duration,
    /// One input for each sort of answer that the corpus has none of.
    found: BTreeMap<String, Vec<u8>>,
}

/// One batch of inputs, from a corpus and the batch's number.
pub(super) struct Batch {
    inputs: Vec<Vec<u8>>,
    sorts: BTreeSet<String>,
    dice: Dice,
}

impl Batch {
    fn new(kept: &[Vec<u8>], number: u64) -> Self {
        Self {
            inputs: kept.to_vec(),
            sorts: BTreeSet::new(),
            dice: Dice(number),
        }
    }

    fn next(&mut self) -> Vec<u8> {
        mutate::changed(&self.inputs, &mut self.dice)
    }

    /// Notes what became of an input.
    fn note(&mut self, input: &[u8], sort: String, tally: &mut Tally) {
        tally.executions += 1;
        if self.sorts.insert(sort.clone()) {
            if self.inputs.len() < FOUND_MAX {
                self.inputs.push(input.to_vec());
            }
            tally.found.entry(sort).or_insert_with(|| input.to_vec());
        }
    }
}

/// Runs something that must not panic, and not for ever; if it does, `told` says on what.
fn unharmed<T>(work: impl FnOnce() -> T, told: impl Fn() -> String, tally: &mut Tally) -> T {
    let begun = Instant::now();
    let done = catch_unwind(AssertUnwindSafe(work));
    let took = begun.elapsed();
    tally.slowest = tally.slowest.max(took);
    assert!(took < WORK_MAX, "{took:?} for {}", told());
    done.unwrap_or_else(|_| panic!("a panic on {}", told()))
}

/// A number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return usual };
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}"))
}

fn batches(executions: u64) -> std::ops::Range<u64> {
    let first = number("FUZZ_FIRST", 0);
    first..first + executions.div_ceil(BATCH)
}

/// What sort of answer a text is: its words, without names and numbers.
pub(super) fn sort_of(text: &str) -> String {
    let mut sort = String::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if quoted || !(c.is_ascii_alphabetic() || c == ' ') => {}
            c => sort.push(c),
        }
        if sort.len() >= 60 {
            break;
        }
    }
    sort
}

fn finish(name: &str, kept: &[Vec<u8>], sorts: &BTreeSet<String>, tally: Tally) {
    let fresh: Vec<Vec<u8>> = tally
        .found
        .into_iter()
        .filter(|(sort, _)| !sorts.contains(sort))
        .map(|(_, input)| input)
        .collect();
    println!(
        "{name}: {} executions, {} inputs kept, {} new sorts of answers, slowest {:?}",
        tally.executions,
        kept.len(),
        fresh.len(),
        tally.slowest
    );
    if std::env::var_os("FUZZ_KEEP").is_some() {
        corpus::add(name, &fresh);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    assert!(
        peak.is_none_or(|kib| kib < MEMORY_KIB_MAX),
        "{name} took {peak:?} KiB of memory"
    );
}

#[test]
fn parsers_answer_whatever_is_sent() {
    let share = number("FUZZ_PARSERS", 110_000).div_ceil(parsers::ALL.len() as u64);
    for (name, parse) in parsers::ALL {
        let (kept, mut tally) = (corpus::read(name), Tally::default());
        assert!(!kept.is_empty(), "{name} has no corpus");
        let told = |input: &[u8]| format!("{name}: {:?}", String::from_utf8_lossy(input));
        let run = |input: &[u8], tally: &mut Tally| unharmed(|| parse(input), || told(input), tally);
        let sorts: BTreeSet<String> = kept.iter().map(|input| run(input, &mut tally)).collect();
        for number in batches(share) {
            let mut batch = Batch::new(&kept, number);
            for _ in 0..BATCH {
                let input = batch.next();
                let sort = run(&input, &mut tally);
                batch.note(&input, sort, &mut tally);
            }
        }
        finish(name, &kept, &sorts, tally);
    }
}

#[test]
fn the_door_answers_whatever_is_sent() {
    let (kept, mut tally) = (corpus::read("door"), Tally::default());
    let sorts = door::replay(&kept, &mut tally);
    for number in batches(number("FUZZ_DOOR", 4_000)) {
        door::batch(&kept, number, &mut tally);
    }
    finish("door", &kept, &sorts, tally);
}
