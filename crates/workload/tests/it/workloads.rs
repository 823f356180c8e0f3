//! The workloads of the upstream tests.

use grove_api::podcliqueset::{UpdateStrategy, UpdateStrategyType};

use crate::world::World;

/// The workloads of the upstream tests: replicas of pc-a, of the scaling group sg-x and of its pc-b and pc-c, each with
/// its minimum. W1 needs all of them, W2 one of each.
pub(crate) fn workload(minimum: Minimum, order: &str) -> String {
    let min = |replicas: i32| match minimum {
        Minimum::All => replicas,
        Minimum::One => 1,
    };
    let clique = |name: &str, replicas: i32, after: &str| {
        format!(
            "    - name: {name}\n      spec:\n        roleName: {name}\n        replicas: {replicas}\n        \
             minAvailable: {}\n        startsAfter: [{after}]\n        podSpec:\n          containers:\n          \
             - {{name: main, image: one}}\n",
            min(replicas)
        )
    };
    let after = |name| match (order, name) {
        ("Explicit", "pc-c") => "pc-a",
        ("Explicit", "pc-b") => "pc-c",
        _ => "",
    };
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata:\n  name: w\nspec:\n  replicas: 1\n  template:\n    \
         cliqueStartupType: CliqueStartupType{order}\n    terminationDelay: 10s\n    cliques:\n{}{}{}    \
         podCliqueScalingGroups:\n    - {{name: sg-x, cliqueNames: [pc-b, pc-c], replicas: 2, minAvailable: {}}}\n",
        clique("pc-a", 2, ""),
        clique("pc-b", 1, after("pc-b")),
        clique("pc-c", 3, after("pc-c")),
        min(2)
    )
}

/// How many of its replicas each part of a workload needs.
#[derive(Clone, Copy)]
pub(crate) enum Minimum {
    All,
    One,
}

/// A world in which the workload runs, with places to spare.
pub(crate) fn running(minimum: Minimum, places: usize) -> World {
    let mut world = World::new(&workload(minimum, "AnyOrder"));
    world.places = places;
    world.settle();
    assert_eq!(world.ready(), 10);
    world
}

pub(crate) fn on_delete(world: &mut World) {
    world.edit(|set| {
        set.spec.update_strategy = Some(UpdateStrategy {
            type_: UpdateStrategyType::OnDelete,
        });
    });
}
