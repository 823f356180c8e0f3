//! A fixed sample of all places to die, and some seeds. A run takes about three seconds of a core that is not optimised, so
//! that this is what two minutes of two cores allow; `cargo xtask campaign` plays all of it, optimised, and as many seeds
//! as it is told to.

use std::sync::OnceLock;

use grove_campaign::{Campaign, Plot, Row, Verdict, scenarios};

/// Seeds of every run: a mix of faults for each of the first scenarios.
const SEEDS: u64 = 15;
const PARTS: usize = 256;

/// All scenarios, learned once for both tests, which wait for it together.
fn all() -> &'static Campaign {
    static LEARNED: OnceLock<Campaign> = OnceLock::new();
    let campaign = LEARNED.get_or_init(|| {
        let names: Vec<String> = scenarios().iter().map(|scenario| scenario.name.to_owned()).collect();
        Campaign::learn(&names, 2).expect("scenarios that can be played")
    });
    for (scenario, learned) in campaign.learned() {
        assert!(learned.violations.is_empty(), "{scenario}: {:?}", learned.violations);
    }
    campaign
}

fn no_rule_is_broken(campaign: &Campaign, plots: &[(Row, Plot)]) -> Vec<Verdict> {
    let verdicts = campaign.try_all(plots, 1, &|_| {}).expect("runs");
    let broken = verdicts.iter().filter(|verdict| !verdict.violations.is_empty());
    let words: Vec<String> = broken
        .map(|verdict| {
            let plot = serde_json::to_string(&verdict.plot).expect("a plot");
            format!("{:?}\n  cargo xtask campaign --replay '{plot}'", verdict.violations)
        })
        .collect();
    assert!(
        words.is_empty(),
        "{} of {} runs:\n{}",
        words.len(),
        plots.len(),
        words.join("\n")
    );
    verdicts
}

#[test]
fn killed_at_a_sample_of_all_writes() {
    let campaign = all();
    let mine = campaign.kills().into_iter().enumerate();
    let plots: Vec<(Row, Plot)> = mine
        .filter(|(index, _)| index % PARTS == 0)
        .map(|(_, plot)| plot)
        .collect();
    println!("{} places to die", plots.len());
    let verdicts = no_rule_is_broken(campaign, &plots);
    let kills: usize = verdicts.iter().map(|verdict| verdict.kills).sum();
    // Statuses that wait for their burst may be written once more or less often.
    assert!(kills * 10 >= plots.len() * 9, "{kills} kills in {} runs", plots.len());
}

#[test]
fn mixes_of_faults() {
    let campaign = all();
    let drawn: Vec<(Row, Plot)> = (0..SEEDS).filter_map(|seed| campaign.drawn(seed, &Row::ALL)).collect();
    no_rule_is_broken(campaign, &drawn);
}
