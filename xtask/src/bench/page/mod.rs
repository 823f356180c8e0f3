//! `docs/benchmarks.md`: the results of all parts that have run, as tables and pictures.

mod plot;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;

use super::Part;
use super::results::{Bound, Machine, Number, Outcome, Samples, Section};

/// Where results are kept and pictures are drawn, beside the page.
pub(super) const FOLDER: &str = "benchmarks";
pub(super) const PAGE: &str = "benchmarks.md";

/// Makes the page of what was kept in a folder of its own below `docs`.
pub(super) fn write(docs: &Path) -> Result<PathBuf> {
    let folder = docs.join(FOLDER);
    let mut outcomes = Vec::new();
    for part in Part::value_variants() {
        outcomes.extend(Outcome::kept(*part, &folder)?);
    }
    ensure!(!outcomes.is_empty(), "nothing was measured yet; run: cargo xtask bench");
    remove_pictures(&folder)?;
    let page = docs.join(PAGE);
    let written = |path: PathBuf, text: String| {
        let shown = path.display().to_string();
        fs::write(path, text).with_context(|| format!("cannot write {shown}"))
    };
    for (name, picture) in outcomes.iter().flat_map(pictures) {
        written(folder.join(name), picture)?;
    }
    written(page.clone(), text(&outcomes))?;
    Ok(page)
}

/// Those of an earlier page may show what is measured no more.
fn remove_pictures(folder: &Path) -> Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "svg") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// The pictures of a part, with the names of their files.
fn pictures(outcome: &Outcome) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (number, section) in outcome.sections.iter().enumerate() {
        let ratios = plot::ratios(section)
            .into_iter()
            .map(|picture| ("ratios".to_owned(), picture));
        let lines = section.plots.iter().enumerate();
        let lines = lines.map(|(index, drawn)| (format!("lines-{}", index + 1), plot::lines(drawn)));
        let named = |(kind, picture)| (format!("{}-{}-{kind}.svg", outcome.part, number + 1), picture);
        all.extend(lines.chain(ratios).map(named));
    }
    all
}

fn text(outcomes: &[Outcome]) -> String {
    let mut page = String::from(
        "# Benchmarks\n\n\
         <!-- Written by `cargo xtask bench`; results are in benchmarks/*.json. -->\n\n\
         What Grove costs, beside what cannot be faster: a bare client that makes the same writes and decides nothing, in the\n\
         same run on the same machine. A ratio of 1 is the limit of the API server. Each number is the median of its runs, and\n\
         the range beside it the smallest and the largest: the noise of the machine. Ratios are taken run by run. `kept` and\n\
         `missed` judge the median.\n\n\
         <!-- not run: it measures for an hour and more -->\n\
         ```sh\n\
         cargo xtask bench                    # everything, then this page\n\
         cargo xtask bench --only scheduler   # one part, then this page with what was kept of the others\n\
         ```\n",
    );
    for outcome in outcomes {
        let _ = write!(page, "\n## {}\n\n{}\n", outcome.part.title(), told(outcome));
        let pictures = pictures(outcome);
        for (number, section) in outcome.sections.iter().enumerate() {
            let _ = write!(page, "\n### {}\n\n{}\n", section.title, section.text);
            let own = format!("{}-{}-", outcome.part, number + 1);
            for (file, _) in pictures.iter().filter(|(file, _)| file.starts_with(&own)) {
                let _ = write!(page, "\n![{}]({FOLDER}/{file})\n", section.title);
            }
            page.push_str(&table(section));
        }
    }
    page
}

/// On what a part ran.
fn told(outcome: &Outcome) -> String {
    let Machine {
        cores,
        processor,
        memory_gib,
        load,
        commit,
    } = &outcome.machine;
    let quick = match outcome.is_quick {
        true => "**A quick run: it shows that the measurement works, not what comes out.** ",
        false => "",
    };
    format!(
        "{quick}Commit {commit}, {cores} cores ({processor}), {memory_gib:.0} GiB of memory, load {load:.1} at the start; took \
         {:.0} min.",
        (outcome.took_s / 60.0).ceil()
    )
}

fn table(section: &Section) -> String {
    if section.numbers.is_empty() {
        return String::new();
    }
    let mut table = String::from(
        "\n| what | measured | range | runs | against | its value | ratio | promised |\n|---|--:|--:|--:|---|--:|--:|---|\n",
    );
    for number in &section.numbers {
        let _ = writeln!(table, "| {} |", row(number).join(" | "));
    }
    table
}

fn row(number: &Number) -> [String; 8] {
    let measured = &number.measured;
    let against = number.against.as_ref();
    let value = |samples: &Samples| {
        format!("{} {}", shown(samples.median()), number.unit)
            .trim_end()
            .to_owned()
    };
    [
        number.what.replace('|', "\\|"),
        value(measured),
        range(measured),
        measured.count().to_string(),
        against.map_or(String::new(), |against| against.name.clone()),
        against.map_or(String::new(), |against| {
            with_range(value(&against.measured), &against.measured)
        }),
        number.ratio().map_or(String::new(), |ratio| {
            with_range(format!("**{}**", shown(ratio.median())), &ratio)
        }),
        promised(number),
    ]
}

fn promised(number: &Number) -> String {
    let Some(bound) = number.bound else {
        return String::new();
    };
    let text = match bound {
        Bound::AtMost(most) => format!("≤ {} {}", shown(most), number.unit),
        Bound::RatioAtMost(most) => format!("ratio ≤ {}", shown(most)),
        Bound::RatioAtLeast(least) => format!("ratio ≥ {}", shown(least)),
    };
    let verdict = if number.is_kept() == Some(true) {
        "kept"
    } else {
        "**missed**"
    };
    format!("{}: {verdict}", text.trim_end())
}

fn with_range(value: String, samples: &Samples) -> String {
    match range(samples) {
        range if range.is_empty() => value,
        range => format!("{value} ({range})"),
    }
}

/// From the smallest to the largest; nothing where there is one only.
fn range(samples: &Samples) -> String {
    match samples.count() {
        0 | 1 => String::new(),
        _ => format!("{}–{}", shown(samples.low()), shown(samples.high())),
    }
}

/// A number to three places, thousands apart.
fn shown(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "?".to_owned();
    }
    if value == value.trunc() && size < 100.0 {
        return format!("{value:.0}");
    }
    match size {
        100.0.. => grouped(value.round() as i64),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::results::{Axis, Line, Plot};
    use super::*;

    fn outcome() -> Outcome {
        let number = Number::new("1 × 1,000: created", "s", [1.0, 1.5, 1.2]).against("bare client", [1.0, 1.0, 1.0]);
        let plot = Plot {
            title: "growth".to_owned(),
            x: Axis::log("pods"),
            y: Axis::linear("s"),
            lines: vec![Line {
                name: "operator <ours>".to_owned(),
                points: vec![(1_000.0, 1.0), (10_000.0, 12.0)],
            }],
        };
        Outcome {
            part: Part::Operator,
            is_quick: false,
            took_s: 61.0,
            machine: Machine {
                cores: 2,
                processor: "some".to_owned(),
                memory_gib: 24.0,
                load: 0.25,
                commit: "abc (2026-01-01)".to_owned(),
            },
            sections: vec![Section {
                title: "Life".to_owned(),
                text: "How.".to_owned(),
                numbers: vec![number.bound(Bound::RatioAtMost(1.1))],
                plots: vec![plot],
            }],
        }
    }

    #[test]
    fn numbers_are_shown_to_three_places() {
        let shown = [0.0, 0.01234, 0.5, 1.234, 45.67, 999.6, 1_234_567.0, -1_000.0, 5.0].map(shown);
        assert_eq!(
            shown,
            [
                "0",
                "0.0123",
                "0.50",
                "1.23",
                "45.7",
                "1,000",
                "1,234,567",
                "-1,000",
                "5"
            ]
        );
        assert_eq!(super::shown(f64::NAN), "?");
    }

    #[test]
    fn a_row_tells_value_range_reference_ratio_and_verdict() {
        let outcome = outcome();
        let row = row(&outcome.sections[0].numbers[0]);
        let promised = "ratio ≤ 1.10: **missed**";
        let expected = [
            "1 × 1,000: created",
            "1.20 s",
            "1–1.50",
            "3",
            "bare client",
            "1 s (1–1)",
            "**1.20** (1–1.50)",
            promised,
        ];
        assert_eq!(row, expected);
    }

    /// Every picture that the page shows is there, and every one that is there is shown.
    #[test]
    fn the_page_is_made_of_what_was_kept() {
        let docs = tempfile::tempdir().expect("a folder");
        let folder = docs.path().join(FOLDER);
        fs::create_dir(&folder).expect("writable");
        assert!(write(docs.path()).is_err(), "nothing was measured");
        outcome().keep(&folder).expect("writable");
        fs::write(folder.join("operator-9-ratios.svg"), "of an earlier page").expect("writable");
        let page = write(docs.path()).expect("a page");
        let text = fs::read_to_string(page).expect("readable");
        assert!(text.contains("took 2 min"), "{text}");
        let shown: Vec<&str> = text
            .split("](benchmarks/")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .collect();
        assert_eq!(shown, ["operator-1-lines-1.svg", "operator-1-ratios.svg"]);
        for file in shown {
            let picture = fs::read_to_string(folder.join(file)).expect("a picture");
            assert!(
                picture.starts_with("<svg") && picture.ends_with("</svg>\n"),
                "{picture}"
            );
            assert!(!picture.contains("<ours>") && !picture.contains("NaN"), "{picture}");
        }
        assert!(!folder.join("operator-9-ratios.svg").exists());
    }
}
