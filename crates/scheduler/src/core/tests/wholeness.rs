//! A gang that was whole keeps its pods when it loses some; one that never was does not keep a few for ever.

use super::*;
use grove_api::conditions::podgang::scheduled::MEMBERS_MISSING;

/// A pod as it is seen when it is bound.
pub(super) fn bound(mut pod: Value, on: &str, at: Timestamp) -> Value {
    pod["spec"]["nodeName"] = json!(on);
    pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]);
    pod
}

#[test]
fn a_gang_that_loses_a_pod_before_its_own_status_is_seen_was_whole_and_keeps_the_others() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let (gang, pods) = gang("g", 2, None);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    assert_eq!(table.run()[..2], ["g-0@n0", "g-1@n0"]);
    for pod in &pods {
        let now = table.now;
        table.see::<Pod>(&bound(pod.clone(), "n0", now));
    }
    table.run();
    table.lose::<Pod>(&pods[1]);
    table.run();
    table.pass(6);
    assert_eq!(table.run(), ["pod-group a has 1 of the 2 pods that it needs"]);
    let said = table.core.records.values().find_map(|record| record.said.clone());
    assert_eq!(said.unwrap().reason, MEMBERS_MISSING);
    table.pass(60);
    assert_eq!(table.run(), [""; 0], "nobody is released");
}

#[test]
fn a_gang_all_of_whose_pods_are_new_is_not_whole_for_what_its_status_said_of_the_old_ones() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let (mut gang, pods) = gang("g", 2, None);
    gang["status"] = json!({"phase": "Running", "conditions": [{"type": "Scheduled", "status": "True",
        "reason": "Placed", "message": "", "lastTransitionTime": table.now}]});
    table.see::<PodGang>(&gang);
    // Its old pods are gone, and nothing was said of that yet. One of the new ones is bound.
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    let mut actions = table.core.step(table.now).unwrap().actions.into_iter();
    let (Some(Action::Bind { pod: first, .. }), Some(Action::Bind { pod: second, .. })) =
        (actions.next(), actions.next())
    else {
        panic!("two binds");
    };
    table.core.done(Done::Bound { pod: first }, table.now);
    table.see::<Pod>(&bound(pods[0].clone(), "n0", table.now));
    table.see::<Pod>(&pod("rival", "2", Some("n0")));
    let why = "taken".to_owned();
    table.core.done(Done::Refused { pod: second, why }, table.now);
    table.pass(29);
    let told = table.run();
    assert!(!told.contains(&"!g-0".to_owned()), "{told:?}");
    table.pass(1);
    assert_eq!(table.run(), ["!g-0"]);
}

#[test]
fn an_outcome_is_told_and_counted_once_however_often_its_status_is_written() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let (mut gang, pods) = gang("g", 1, None);
    gang["metadata"]["creationTimestamp"] = json!(table.now);
    table.see::<PodGang>(&gang);
    table.see::<Pod>(&pods[0]);
    let (mut writes, mut notices, mut waited) = (0, 0, Vec::new());
    table.pass(7);
    table.run_first_bind(&pods[0]);
    for _ in 0..3 {
        while let Some(decided) = table.core.step(table.now) {
            notices += decided.notices.len();
            waited.extend(decided.waited);
            for action in decided.actions {
                let Action::Say { gang, .. } = action else { continue };
                writes += 1;
                let failed = Done::Said {
                    gang: grove_runtime::ObjectKey::of(&gang.metadata),
                    uid: gang.uid().unwrap_or_default(),
                    is_written: false,
                };
                table.core.done(failed, table.now);
            }
        }
        table.pass(1);
    }
    assert_eq!((writes, notices), (3, 1));
    assert_eq!(waited, [Duration::from_secs(7)]);
}

impl Table {
    /// Lets the first bind go well, and the pod be seen.
    fn run_first_bind(&mut self, seen: &Value) {
        let decided = self.core.step(self.now).unwrap();
        let Some(Action::Bind { pod, node }) = decided.actions.into_iter().next() else {
            panic!("a bind");
        };
        self.core.done(Done::Bound { pod }, self.now);
        self.see::<Pod>(&bound(seen.clone(), &node, self.now));
    }
}
