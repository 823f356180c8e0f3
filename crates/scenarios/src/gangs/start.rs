//! GS1–GS12.

use grove_api::PodGang;
use grove_api::conditions::podgang::SCHEDULED;
use grove_api::podgang::PodGangPhase;

use super::{Floor, Minimum, all, begin, is_ready, pods, running, scale_group, scale_set, with_places};

pub async fn gs01_a_gang_that_does_not_fit_waits_whole<F: Floor>(floor: &F) {
    begin(floor, Minimum::All, 9).await;
    with_places(floor, 9, (0, 10)).await;
    with_places(floor, 10, (10, 0)).await;
    // The condition of whoever places survives all that the operator writes beside it.
    let says_both = async |floor: &F| {
        let status = all::<PodGang>(floor)
            .get("w-0")
            .await
            .unwrap()
            .status
            .unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let is_scheduled = conditions.any(|condition| condition.type_ == SCHEDULED && condition.status == "True");
        status.phase == PodGangPhase::Running && is_scheduled
    };
    floor.eventually("the gang runs and is scheduled", says_both).await;
}

pub async fn gs02_a_scaled_group_waits_as_its_own_gang(floor: &impl Floor) {
    running(floor, Minimum::All, 10).await;
    scale_group(floor, "w-0-sg-x", 3).await;
    with_places(floor, 13, (10, 4)).await;
    with_places(floor, 14, (14, 0)).await;
}

pub async fn gs03_a_second_replica_waits_whole(floor: &impl Floor) {
    running(floor, Minimum::All, 10).await;
    scale_set(floor, 2).await;
    with_places(floor, 19, (10, 10)).await;
    with_places(floor, 20, (20, 0)).await;
}

pub async fn gs04_replicas_and_groups_scale_together(floor: &impl Floor) {
    running(floor, Minimum::All, 10).await;
    scale_set(floor, 2).await;
    with_places(floor, 20, (20, 0)).await;
    scale_group(floor, "w-0-sg-x", 3).await;
    scale_group(floor, "w-1-sg-x", 3).await;
    with_places(floor, 27, (24, 4)).await;
    with_places(floor, 28, (28, 0)).await;
}

pub async fn gs05_the_minimum_runs_first_then_the_rest(floor: &impl Floor) {
    begin(floor, Minimum::One, 2).await;
    with_places(floor, 2, (0, 10)).await;
    with_places(floor, 3, (3, 7)).await;
    for clique in ["w-0-pc-a", "w-0-sg-x-0-pc-b", "w-0-sg-x-0-pc-c"] {
        let ready = pods(floor, clique).await.iter().filter(|pod| is_ready(pod)).count();
        assert_eq!(ready, 1, "{clique}");
    }
    with_places(floor, 10, (10, 0)).await;
}

pub async fn gs06_a_scaled_gang_needs_only_its_own_minimum(floor: &impl Floor) {
    running(floor, Minimum::One, 10).await;
    scale_group(floor, "w-0-sg-x", 3).await;
    with_places(floor, 11, (10, 4)).await;
    with_places(floor, 12, (12, 2)).await;
    with_places(floor, 14, (14, 0)).await;
}

pub async fn gs07_scaled_gangs_come_one_by_one_as_room_does<F: Floor>(floor: &F) {
    running(floor, Minimum::One, 10).await;
    scale_group(floor, "w-0-sg-x", 4).await;
    with_places(floor, 10, (10, 8)).await;
    // Both were made at once: which one is the older, the API server decides.
    let running = async |expected: usize| {
        let are_they = async |floor: &F| {
            let mut running = 0;
            for gang in ["w-0-sg-x-1", "w-0-sg-x-2"] {
                let status = all::<PodGang>(floor).get(gang).await.unwrap().status;
                running += usize::from(status.is_some_and(|status| status.phase == PodGangPhase::Running));
            }
            running == expected
        };
        let what = format!("{expected} of the new gangs are Running");
        floor.eventually(&what, are_they).await;
    };
    with_places(floor, 12, (12, 6)).await;
    running(1).await;
    with_places(floor, 14, (14, 4)).await;
    running(2).await;
    with_places(floor, 18, (18, 0)).await;
}

pub async fn gs08_scaled_before_any_capacity_the_base_comes_first(floor: &impl Floor) {
    begin(floor, Minimum::One, 0).await;
    scale_group(floor, "w-0-sg-x", 3).await;
    with_places(floor, 0, (0, 14)).await;
    with_places(floor, 3, (3, 11)).await;
    // Two scaled gangs of two pods each.
    with_places(floor, 7, (7, 7)).await;
    with_places(floor, 14, (14, 0)).await;
}

pub async fn gs09_a_second_replica_comes_gang_by_gang(floor: &impl Floor) {
    running(floor, Minimum::One, 10).await;
    scale_set(floor, 2).await;
    with_places(floor, 12, (10, 10)).await;
    with_places(floor, 13, (13, 7)).await;
    with_places(floor, 15, (15, 5)).await;
    with_places(floor, 20, (20, 0)).await;
}

pub async fn gs10_two_replicas_before_any_capacity(floor: &impl Floor) {
    begin(floor, Minimum::One, 0).await;
    scale_set(floor, 2).await;
    with_places(floor, 0, (0, 20)).await;
    with_places(floor, 6, (6, 14)).await;
    with_places(floor, 10, (10, 10)).await;
    with_places(floor, 20, (20, 0)).await;
}

pub async fn gs11_set_and_group_scale_in_turn(floor: &impl Floor) {
    running(floor, Minimum::One, 10).await;
    scale_group(floor, "w-0-sg-x", 3).await;
    with_places(floor, 14, (14, 0)).await;
    scale_set(floor, 2).await;
    with_places(floor, 17, (17, 7)).await;
    with_places(floor, 24, (24, 0)).await;
    scale_group(floor, "w-1-sg-x", 3).await;
    with_places(floor, 26, (26, 2)).await;
    with_places(floor, 28, (28, 0)).await;
}

pub async fn gs12_everything_up_front(floor: &impl Floor) {
    begin(floor, Minimum::One, 0).await;
    scale_set(floor, 2).await;
    scale_group(floor, "w-0-sg-x", 3).await;
    scale_group(floor, "w-1-sg-x", 3).await;
    with_places(floor, 0, (0, 28)).await;
    with_places(floor, 6, (6, 22)).await;
    with_places(floor, 14, (14, 14)).await;
    with_places(floor, 28, (28, 0)).await;
}
