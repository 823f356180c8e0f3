//! Many runs, side by side: what each scenario does without faults is learned first, then every plot is judged by it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::fault::{Dice, Points, Row};
use crate::oracle::{Clean, Violation, judge};
use crate::play::{Actor, PlayError, Plot, play};

/// Rows that seeds are spread over; every kill has its own plot. Mixes find most, so half of all seeds are theirs.
const DRAWN: [Row; 18] = [
    Row::Swarm,
    Row::KillPair,
    Row::Swarm,
    Row::Stale,
    Row::Swarm,
    Row::Watch,
    Row::Swarm,
    Row::Storm,
    Row::Swarm,
    Row::Errors,
    Row::Swarm,
    Row::Webhooks,
    Row::Swarm,
    Row::Clock,
    Row::Swarm,
    Row::Leader,
    Row::Swarm,
    Row::Quota,
];

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub row: Row,
    pub plot: Plot,
    pub violations: Vec<Violation>,
    /// Lives that faults ended.
    pub kills: usize,
    /// One number for everything that was asked and written, in order.
    pub hash: u64,
}

/// What a scenario does when nothing goes wrong.
#[derive(Clone, Debug)]
pub struct Learned {
    clean: Clean,
    /// How many writes there are to hit.
    pub points: Points,
    pub hash: u64,
    /// What is wrong even so.
    pub violations: Vec<Violation>,
}

/// Scenarios whose undisturbed run is known.
#[derive(Clone, Debug, Default)]
pub struct Campaign {
    learned: BTreeMap<String, Learned>,
}

impl Campaign {
    /// Plays each of these scenarios without faults.
    pub fn learn(scenarios: &[String], jobs: usize) -> Result<Self, PlayError> {
        let learn = |scenario: &String| -> Result<(String, Learned), PlayError> {
            let plot = Plot {
                scenario: scenario.clone(),
                seed: 0,
                faults: Vec::new(),
            };
            let played = play(&plot, None)?;
            let clean = Clean::of(&played);
            let learned = Learned {
                violations: judge(&played, &clean),
                clean,
                points: played.points,
                hash: played.hash,
            };
            Ok((scenario.clone(), learned))
        };
        let learned = side_by_side(scenarios, jobs, learn);
        Ok(Self {
            learned: learned.into_iter().collect::<Result<_, PlayError>>()?,
        })
    }

    /// What was learned, by scenario.
    pub fn learned(&self) -> &BTreeMap<String, Learned> {
        &self.learned
    }

    /// A plot for every place to die.
    pub fn kills(&self) -> Vec<(Row, Plot)> {
        let kills = self.learned.iter().flat_map(|(scenario, learned)| {
            let faults = learned.points.kills().into_iter();
            faults.map(move |fault| Plot {
                scenario: scenario.clone(),
                seed: 0,
                faults: vec![fault],
            })
        });
        kills.map(|plot| (Row::Kill, plot)).collect()
    }

    /// The plot that follows from a seed: the scenarios in turn, with a row of faults that moves on by one from scenario to
    /// scenario, so that few seeds see all rows.
    pub fn drawn(&self, seed: u64, rows: &[Row]) -> Option<(Row, Plot)> {
        let rows: Vec<Row> = DRAWN.into_iter().filter(|row| rows.contains(row)).collect();
        let scenarios = self.learned.len() as u64;
        let (scenario, learned) = self.learned.iter().nth(seed.checked_rem(scenarios)? as usize)?;
        let row = *rows.get((seed % scenarios + seed / scenarios).checked_rem(rows.len() as u64)? as usize)?;
        let faults = row.draw(&mut Dice::new(seed), &learned.points);
        let plot = Plot {
            scenario: scenario.clone(),
            seed,
            faults,
        };
        Some((row, plot))
    }

    /// Plays one and judges it.
    pub fn try_one(&self, row: Row, plot: &Plot, actor: Option<&Actor>) -> Result<Verdict, PlayError> {
        let learned = self.learned.get(&plot.scenario);
        let learned = learned.ok_or_else(|| PlayError::NoSuchScenario(plot.scenario.clone()))?;
        let played = play(plot, actor)?;
        Ok(Verdict {
            row,
            violations: judge(&played, &learned.clean),
            kills: played.kills,
            hash: played.hash,
            plot: plot.clone(),
        })
    }

    /// Plays all of them, so many at once, and tells of each as it ends.
    pub fn try_all(
        &self,
        plots: &[(Row, Plot)],
        jobs: usize,
        told: &(dyn Fn(&Verdict) + Sync),
    ) -> Result<Vec<Verdict>, PlayError> {
        let verdicts = side_by_side(plots, jobs, |(row, plot)| -> Result<Verdict, PlayError> {
            let verdict = self.try_one(*row, plot, None)?;
            told(&verdict);
            Ok(verdict)
        });
        verdicts.into_iter().collect()
    }
}

/// Does something with each of these, so many at once; the results in the same order.
fn side_by_side<T: Sync, R: Send>(items: &[T], jobs: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, R>> = Mutex::default();
    let work_on = || {
        while let Some((index, item)) = items.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(item);
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(index, result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work_on);
        }
    });
    done.into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_values()
        .collect()
}
