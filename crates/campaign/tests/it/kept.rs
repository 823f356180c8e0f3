//! Runs that broke a rule once, each with what was wrong.

use grove_campaign::{Campaign, Plot, Row};

/// What was wrong, and the run.
const KEPT: [(&str, &str); 1] = [(
    "a clique whose deletion was refused was taken for gone and never seen again",
    r#"{"scenario":"gang-termination","seed":13,"faults":[
        {"stale":{"role":"operator","nth":4,"times":15,"revisions":3}}, {"chance":{"percent":7,"answer":"conflict"}},
        {"freeze":{"role":"operator","after":5,"seconds":53}}]}"#,
)];

#[test]
fn what_was_mended_stays_so() {
    for (wrong, plot) in KEPT {
        let plot: Plot = serde_json::from_str(plot).expect("a plot");
        let campaign = Campaign::learn(std::slice::from_ref(&plot.scenario), 1).expect("a scenario");
        let verdict = campaign.try_one(Row::Swarm, &plot, None).expect("a run");
        assert!(verdict.violations.is_empty(), "{wrong}: {:?}", verdict.violations);
    }
}
