//! What measurements come to: each number with its repetitions, beside what it is measured against. A part's results are
//! kept as JSON, so that the page can be made of parts that ran at different times.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Part;
use crate::root;

/// The same measured several times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Samples(Vec<f64>);

impl FromIterator<f64> for Samples {
    /// What is not a number was not measured.
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().filter(|value| value.is_finite()).collect())
    }
}

impl Samples {
    pub(super) fn one(value: f64) -> Self {
        Self::from_iter([value])
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn median(&self) -> f64 {
        median(self.0.clone())
    }

    pub(super) fn low(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(super) fn high(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Round by round where there are as many of both; otherwise the medians.
    fn over(&self, other: &Self) -> Self {
        match self.count() == other.count() {
            true => self
                .0
                .iter()
                .zip(&other.0)
                .map(|(ours, theirs)| ours / theirs)
                .collect(),
            false => Self::one(self.median() / other.median()),
        }
    }
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// The 50th and the 99th of a hundred.
pub(super) fn percentiles(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [0.5, 0.99].map(|share| {
        let rank = (times.len() as f64 * share).ceil() as usize;
        times.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    })
}

/// How a number grows with another one: the exponent of the power law that fits best.
pub(super) fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|log| log.0), mean(|log| log.1));
    let both: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    both / logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}

/// What was promised of a number, or of its ratio to what it is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bound {
    AtMost(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
}

/// One number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Number {
    pub(super) what: String,
    pub(super) unit: String,
    pub(super) measured: Samples,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) against: Option<Against>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bound: Option<Bound>,
}

/// What a number is measured against, in the same run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Against {
    pub(super) name: String,
    pub(super) measured: Samples,
}

impl Number {
    pub(super) fn new(what: impl Into<String>, unit: &str, measured: impl IntoIterator<Item = f64>) -> Self {
        Self {
            what: what.into(),
            unit: unit.to_owned(),
            measured: measured.into_iter().collect(),
            against: None,
            bound: None,
        }
    }

    pub(super) fn against(mut self, name: &str, measured: impl IntoIterator<Item = f64>) -> Self {
        self.against = Some(Against {
            name: name.to_owned(),
            measured: measured.into_iter().collect(),
        });
        self
    }

    pub(super) fn bound(mut self, bound: impl Into<Option<Bound>>) -> Self {
        self.bound = bound.into();
        self
    }

    pub(super) fn ratio(&self) -> Option<Samples> {
        let against = self.against.as_ref()?;
        Some(self.measured.over(&against.measured))
    }

    /// Whether the median keeps what was promised.
    pub(super) fn is_kept(&self) -> Option<bool> {
        let ratio = || self.ratio().map_or(f64::NAN, |ratio| ratio.median());
        Some(match self.bound? {
            Bound::AtMost(most) => self.measured.median() <= most,
            Bound::RatioAtMost(most) => ratio() <= most,
            Bound::RatioAtLeast(least) => ratio() >= least,
        })
    }
}

/// Lines of one picture.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) is_log: bool,
}

impl Axis {
    pub(super) fn linear(label: &str) -> Self {
        let label = label.to_owned();
        Self { label, is_log: false }
    }

    pub(super) fn log(label: &str) -> Self {
        let label = label.to_owned();
        Self { label, is_log: true }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Numbers that are told together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Section {
    pub(super) title: String,
    /// What is measured, and how.
    pub(super) text: String,
    pub(super) numbers: Vec<Number>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) plots: Vec<Plot>,
}

/// Where a part ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cores: usize,
    pub(super) processor: String,
    pub(super) memory_gib: f64,
    /// What else ran when the part began: processes that ran or waited to, over a minute.
    pub(super) load: f64,
    /// The commit that was measured, and its day.
    pub(super) commit: String,
}

impl Machine {
    pub(super) fn this() -> Self {
        let line = |file: &str, key: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let found = text.lines().find(|line| line.starts_with(key));
            found.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
        };
        let first = |text: Option<String>| text.as_deref()?.split(' ').next()?.parse::<f64>().ok();
        let mut git = Command::new("git");
        let commit = git
            .current_dir(root())
            .args(["log", "-1", "--format=%h (%cs)"])
            .output();
        let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            memory_gib: first(line("/proc/meminfo", "MemTotal")).unwrap_or(0.0) / f64::from(1 << 20),
            load: first(fs::read_to_string("/proc/loadavg").ok()).unwrap_or(0.0),
            commit: commit.unwrap_or_default(),
        }
    }
}

/// What came out of a part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) part: Part,
    pub(super) is_quick: bool,
    pub(super) took_s: f64,
    pub(super) machine: Machine,
    pub(super) sections: Vec<Section>,
}

fn file_of(part: Part, folder: &Path) -> PathBuf {
    folder.join(format!("{part}.json"))
}

impl Outcome {
    pub(super) fn keep(&self, folder: &Path) -> Result<()> {
        let file = file_of(self.part, folder);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// What was kept of a part, if it has run.
    pub(super) fn kept(part: Part, folder: &Path) -> Result<Option<Self>> {
        let file = file_of(part, folder);
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let outcome = serde_json::from_str(&text);
        let again = || {
            format!(
                "{} is of another time; run: cargo xtask bench --only {part}",
                file.display()
            )
        };
        outcome.map(Some).with_context(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }

    #[test]
    fn percentiles_are_of_what_was_measured() {
        assert_eq!(percentiles((1..=100).map(f64::from).collect()), [50.0, 99.0]);
        assert_eq!(percentiles(vec![3.0, 1.0]), [1.0, 3.0]);
    }

    #[test]
    fn the_exponent_of_a_square_is_two() {
        let points: Vec<(f64, f64)> = [1.0, 2.0, 5.0].map(|x: f64| (x, 3.0 * x * x)).into();
        assert!((exponent(&points) - 2.0).abs() < 1e-9);
    }

    /// Noise that hits both sides of a round leaves its ratio alone.
    #[test]
    fn ratios_are_taken_round_by_round_and_judged_by_their_median() {
        let number = Number::new("time", "s", [1.0, 10.0, 3.0]).against("bare", [1.0, 10.0, 2.0]);
        let ratio = number.ratio().expect("it is measured against something");
        assert_eq!((ratio.low(), ratio.median(), ratio.high()), (1.0, 1.0, 1.5));
        let is_kept = |bound| number.clone().bound(bound).is_kept();
        assert_eq!(is_kept(Bound::RatioAtMost(1.2)), Some(true));
        assert_eq!(is_kept(Bound::RatioAtLeast(1.1)), Some(false));
        assert_eq!(is_kept(Bound::AtMost(2.0)), Some(false));
        assert_eq!(number.is_kept(), None);
        assert_eq!(Samples::from_iter([1.0, f64::NAN]).count(), 1);
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Outcome::kept(Part::Start, folder.path()).expect("readable").is_none());
        let outcome = Outcome {
            part: Part::Start,
            is_quick: true,
            took_s: 1.0,
            machine: Machine::this(),
            sections: Vec::new(),
        };
        outcome.keep(folder.path()).expect("writable");
        let kept = Outcome::kept(Part::Start, folder.path())
            .expect("readable")
            .expect("there");
        assert_eq!(kept.machine, outcome.machine);
        assert!(kept.machine.memory_gib > 0.1);
    }
}
