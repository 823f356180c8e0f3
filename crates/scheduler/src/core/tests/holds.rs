//! Room that is kept for a gang that has waited long: for as long as it is of use, and against those who come after it.

use super::*;

/// Two nodes that pods of half a node fill, two on each, and a gang that needs a whole node and has waited for long. On
/// the first node one is kept for it.
fn kept_for_a_gang() -> (Table, Value, Vec<Value>) {
    let mut table = Table::new(&[node("n0", "r0", "4"), node("n1", "r1", "4")]);
    for name in ["s0", "s1", "s2", "s3"] {
        let small = pod(name, "2", None);
        table.see::<Pod>(&small);
        let told = table.run();
        let [bind] = &told[..] else { panic!("{told:?}") };
        let (_, on) = bind.split_once('@').unwrap();
        table.see::<Pod>(&bound(small, on));
    }
    let (gang, pods) = gang("g", 2, None);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    let told = table.run();
    assert!(told.iter().all(|told| !told.contains('@')), "it does not fit: {told:?}");
    table.pass(301);
    table.run();
    assert_eq!(table.held(), ["n0"]);
    (table, gang, pods)
}

fn bound(mut pod: Value, on: &str) -> Value {
    pod["spec"]["nodeName"] = json!(on);
    pod
}

/// A pod of half a node that nobody has waited for.
fn late(table: &Table) -> Value {
    let mut late = pod("late", "2", None);
    late["metadata"]["creationTimestamp"] = json!(table.now);
    late
}

impl Table {
    /// What is said of the gang.
    fn said(&self) -> &Statement {
        let unit = Unit::Gang(grove_runtime::ObjectKey::new("ns", "g"));
        self.core.records[&unit].said.as_ref().unwrap()
    }

    /// The nodes on which something is kept.
    fn held(&self) -> Vec<String> {
        let cluster = self.core.state.mirror.cluster();
        let is_held = |node: &grove_placement::NodeId| self.core.holds.values().any(|hold| hold.is_on(*node));
        let held = cluster.nodes().filter(is_held);
        held.map(|node| cluster.node_name(node).to_owned()).collect()
    }

    /// Somebody leaves the second node, and another one comes who could use that.
    fn is_kept_on_the_second(&mut self) {
        assert_eq!(self.held(), ["n1"]);
        self.lose::<Pod>(&pod("s2", "2", None));
        let late = late(self);
        self.see::<Pod>(&late);
        assert_eq!(self.run(), [""; 0], "half of the node is kept");
        self.lose::<Pod>(&pod("s3", "2", None));
        assert_eq!(self.run()[..2], ["g-0@n1", "g-1@n1"]);
    }
}

#[test]
fn what_is_kept_moves_when_its_node_goes() {
    let (mut table, ..) = kept_for_a_gang();
    table.lose::<Node>(&node("n0", "r0", "4"));
    table.run();
    table.is_kept_on_the_second();
}

#[test]
fn what_is_kept_moves_when_its_node_is_cordoned() {
    let (mut table, ..) = kept_for_a_gang();
    let mut cordoned = node("n0", "r0", "4");
    cordoned["spec"] = json!({"unschedulable": true});
    table.see::<Node>(&cordoned);
    table.run();
    table.is_kept_on_the_second();
}

#[test]
fn what_is_kept_moves_to_where_the_gang_is_nearer_to_fit_later() {
    let (mut table, ..) = kept_for_a_gang();
    // Somebody who is not ours to evict comes to stay.
    table.lose::<Pod>(&pod("s0", "2", None));
    table.lose::<Pod>(&pod("s1", "2", None));
    table.see::<Pod>(&pod("stays", "4", Some("n0")));
    table.run();
    assert_eq!(table.held(), ["n0"]);
    table.pass(301);
    table.run();
    table.is_kept_on_the_second();
}

/// One who waits for what is kept has it as soon as that is not.
fn is_free_when(change: impl FnOnce(&mut Table, Value, Vec<Value>)) {
    let (mut table, gang, pods) = kept_for_a_gang();
    table.lose::<Pod>(&pod("s0", "2", None));
    let late = late(&table);
    table.see::<Pod>(&late);
    assert_eq!(table.run(), [""; 0], "half of the node is kept");
    change(&mut table, gang, pods);
    assert!(table.run().contains(&"late@n0".to_owned()));
    assert_eq!(table.held(), [""; 0]);
}

#[test]
fn nothing_is_kept_for_a_gang_that_is_deleted() {
    is_free_when(|table, gang, pods| {
        table.lose::<PodGang>(&gang);
        pods.iter().for_each(|pod| table.lose::<Pod>(pod));
    });
}

#[test]
fn nothing_is_kept_for_a_gang_that_lost_its_pods() {
    is_free_when(|table, _, pods| table.lose::<Pod>(&pods[0]));
}

#[test]
fn nothing_is_kept_for_a_gang_that_asks_for_what_no_node_has() {
    is_free_when(|table, _, pods| {
        for mut pod in pods {
            pod["spec"]["nodeSelector"] = json!({"disk": "golden"});
            table.see::<Pod>(&pod);
        }
    });
}

#[test]
fn when_nothing_is_kept_any_more_the_next_that_has_waited_long_has_its_turn() {
    let (mut table, gang_g, pods_g) = kept_for_a_gang();
    let (gang_h, pods_h) = gang("h", 2, None);
    table.see::<PodGang>(&gang_h);
    pods_h.iter().for_each(|pod| table.see::<Pod>(pod));
    table.run();
    assert!(
        !table
            .core
            .holds
            .contains_key(&Unit::Gang(grove_runtime::ObjectKey::new("ns", "h")))
    );
    table.lose::<PodGang>(&gang_g);
    pods_g.iter().for_each(|pod| table.lose::<Pod>(pod));
    table.run();
    assert!(
        table
            .core
            .holds
            .contains_key(&Unit::Gang(grove_runtime::ObjectKey::new("ns", "h")))
    );
}

#[test]
fn a_pod_that_may_not_go_yet_is_asked_again_after_a_while() {
    let mut table = Table::new(&[node("n0", "r0", "4")]);
    let low = pod("low", "4", None);
    table.see::<Pod>(&low);
    table.run();
    table.see::<Pod>(&bound(low.clone(), "n0"));
    table.see::<PriorityClass>(&json!({"metadata": {"name": "high"}, "value": 1000}));
    let (gang, pods) = gang("g", 2, Some("high"));
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    for wait in [50, 100] {
        let Some(Action::Evict { pod, room_for }) = table.evicts() else {
            panic!("an eviction");
        };
        table.core.done(Done::Stays { pod, room_for }, table.now);
        assert!(table.evicts().is_none(), "not at once");
        table.now += Duration::from_millis(wait);
    }
    // It left by itself.
    table.lose::<Pod>(&low);
    assert_eq!(table.run()[..2], ["g-0@n0", "g-1@n0"]);
}

impl Table {
    /// The first eviction, if there is one; everything else is not answered.
    fn evicts(&mut self) -> Option<Action> {
        let decided = std::iter::from_fn(|| self.core.step(self.now));
        let actions: Vec<Action> = decided.flat_map(|decided| decided.actions).collect();
        actions
            .into_iter()
            .find(|action| matches!(action, Action::Evict { .. }))
    }
}

/// A gang that has waited long for room that nobody may be asked to leave.
fn waits_in_vain(table: &mut Table, name: &str) {
    let (gang, pods) = gang(name, 3, None);
    table.see::<PodGang>(&gang);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    table.run();
}

#[test]
fn that_no_room_can_be_made_is_found_once_for_all_who_ask_for_the_same() {
    let mut table = Table::new(&[node("n0", "r0", "8")]);
    let theirs = pod("theirs", "4", Some("n0"));
    table.see::<Pod>(&theirs);
    for name in ["a", "b", "c"] {
        waits_in_vain(&mut table, name);
    }
    table.pass(301);
    // Somebody leaves, and they are all tried again.
    for small in ["1", "2"] {
        let asked = table.asked();
        assert_eq!(asked, 1, "of three who ask for the same");
        let passes = pod("passes", small, Some("n0"));
        table.see::<Pod>(&passes);
        table.lose::<Pod>(&passes);
    }
    table.asked();
    let mut leaves = theirs.clone();
    leaves["metadata"]["deletionTimestamp"] = json!(table.now + Duration::from_secs(30));
    table.see::<Pod>(&leaves);
    table.asked();
    waits_in_vain(&mut table, "d");
    assert_eq!(table.held(), ["n0"], "what is on its way out can be counted on");
}

impl Table {
    /// Attempts for which the engine was asked, until there is nothing to decide.
    fn asked(&mut self) -> usize {
        let mut asked = 0;
        while self.core.step(self.now).is_some() {
            asked += usize::from(self.core.visited().is_some());
        }
        asked
    }
}

#[test]
fn who_is_kept_out_by_what_is_kept_is_told_for_whom() {
    let (mut table, ..) = kept_for_a_gang();
    table.lose::<Pod>(&pod("s0", "2", None));
    let (small, pods) = gang("small", 1, None);
    table.see::<PodGang>(&small);
    table.see::<Pod>(&pods[0]);
    assert_eq!(table.run(), ["the room that it could use is kept for gang ns/g"]);
    let (large, pods) = gang("large", 8, None);
    table.see::<PodGang>(&large);
    pods.iter().for_each(|pod| table.see::<Pod>(pod));
    let told = table.run();
    assert!(
        told.iter().all(|told| !told.contains("kept")),
        "it would not fit anyway: {told:?}"
    );
}

#[test]
fn a_gang_that_becomes_too_large_for_what_is_kept_says_so() {
    let (mut table, ..) = kept_for_a_gang();
    assert!(table.said().message.contains("is kept for it"));
    table.lose::<Node>(&node("n1", "r1", "4"));
    table.see::<Node>(&node("n0", "r0", "3"));
    table.pass(10);
    table.run();
    assert_eq!(table.said().reason, "TooLarge");
}
