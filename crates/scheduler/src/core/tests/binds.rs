//! What follows from the answers to binds.

use super::*;

impl Table {
    /// Decides until there is nothing to decide; nothing is answered.
    fn decide(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.core.step(self.now))
            .flat_map(|decided| decided.actions)
            .collect()
    }
}

fn kept(pod: &Value) -> KeptPod {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    pod.into()
}

#[test]
fn a_pod_that_is_gone_when_its_answer_comes_holds_no_place() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let first = pod("p", "4", None);
    table.see::<Pod>(&first);
    assert!(matches!(&table.decide()[..], [Action::Bind { .. }]));
    // Bound by somebody else, and deleted before anybody heard of it.
    let mut bound = first.clone();
    bound["spec"]["nodeName"] = json!("n0");
    table.lose::<Pod>(&first);
    let found = Done::Found {
        pod: Box::new(kept(&bound)),
    };
    table.core.done(found, table.now);
    let mut second = pod("p", "4", None);
    second["metadata"]["uid"] = json!("second");
    table.see::<Pod>(&second);
    assert_eq!(table.run(), ["p@n0"]);
}
