//! What follows from the answers to binds.

use super::wholeness::bound;
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

#[test]
fn a_gang_all_of_whose_binds_are_refused_has_failed_once() {
    let mut table = Table::new(&[node("n0", "r0", "16")]);
    let (gang, pods) = gang("g", 8, None);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    for wait in [50, 100, 200] {
        let binds = table.decide();
        assert_eq!(binds.len(), 8);
        for action in binds {
            let Action::Bind { pod, .. } = action else {
                panic!("{action:?}")
            };
            let why = "no".to_owned();
            table.core.done(Done::Refused { pod, why }, table.now);
        }
        assert!(table.decide().is_empty(), "after a failure it waits");
        let due = table.now + Duration::from_millis(wait);
        assert_eq!(table.core.queue.next_at(), Some(due));
        table.now = due;
    }
}

#[test]
fn a_gang_one_of_whose_binds_is_refused_waits_though_the_others_went_well() {
    let mut table = Table::new(&[node("n0", "r0", "16")]);
    let (gang, pods) = gang("g", 2, None);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    let mut binds = table.decide().into_iter();
    let (Some(Action::Bind { pod: first, .. }), Some(Action::Bind { pod: second, .. })) = (binds.next(), binds.next())
    else {
        panic!("two binds");
    };
    let why = "no".to_owned();
    table.core.done(Done::Refused { pod: first, why }, table.now);
    table.core.done(Done::Bound { pod: second }, table.now);
    assert!(table.decide().is_empty());
    table.now += Duration::from_millis(50);
    assert!(matches!(&table.decide()[..], [Action::Bind { .. }]));
}

#[test]
fn a_part_of_a_gang_is_released_though_the_bind_of_the_rest_is_never_answered() {
    let mut table = Table::new(&[node("n0", "r0", "16")]);
    let (gang, pods) = gang("g", 2, None);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    let Some(Action::Bind { pod, .. }) = table.decide().into_iter().next() else {
        panic!("a bind");
    };
    table.pass(1);
    let name = pod.name().to_owned();
    table.core.done(Done::Bound { pod }, table.now);
    let seen = pods
        .iter()
        .find(|pod| pod["metadata"]["name"] == name.as_str())
        .unwrap();
    table.see::<Pod>(&bound(seen.clone(), "n0", table.now));
    table.pass(89);
    assert_eq!(table.run(), [""; 0], "the answer may be on its way");
    table.pass(1);
    assert_eq!(table.run(), [format!("!{name}")]);
}

#[test]
fn binds_that_are_answered_leave_nothing_to_look_at() {
    let mut table = Table::new(&[node("n0", "r0", "16")]);
    let (gang, pods) = gang("g", 2, None);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    table.run();
    assert_eq!(table.core.next_at(), None);
}
