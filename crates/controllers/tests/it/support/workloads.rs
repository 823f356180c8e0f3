//! The workloads of the upstream tests.

use super::World;

/// How many of its replicas each part of a workload needs.
#[derive(Clone, Copy)]
pub(crate) enum Minimum {
    All,
    One,
}

/// In which order cliques start.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    Any,
    Template,
    /// pc-c after pc-a, pc-b after pc-c.
    AcbExplicit,
    /// pc-b after pc-a, pc-c after pc-b.
    AbcExplicit,
}

/// pc-a with two pods, and two replicas of the scaling group sg-x of pc-b with one pod and pc-c with three: ten pods.
/// W1 (all of them needed), W2 (one of each); ordered, W3 to W6.
pub(crate) fn workload(minimum: Minimum, order: Order) -> String {
    let min = |replicas: i32| match minimum {
        Minimum::All => replicas,
        Minimum::One => 1,
    };
    let startup = match order {
        Order::Any => "AnyOrder",
        Order::Template => "InOrder",
        Order::AcbExplicit | Order::AbcExplicit => "Explicit",
    };
    let after = |name: &str| match (order, name) {
        (Order::AcbExplicit, "pc-c") | (Order::AbcExplicit, "pc-b") => "pc-a",
        (Order::AcbExplicit, "pc-b") => "pc-c",
        (Order::AbcExplicit, "pc-c") => "pc-b",
        _ => "",
    };
    let clique = |name: &str, replicas: i32| {
        format!(
            "    - name: {name}\n      spec:\n        roleName: {name}\n        replicas: {replicas}\n        \
             minAvailable: {}\n        startsAfter: [{}]\n        podSpec:\n          containers:\n          \
             - {{name: main, image: one}}\n",
            min(replicas),
            after(name)
        )
    };
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata:\n  name: w\nspec:\n  replicas: 1\n  template:\n    \
         cliqueStartupType: CliqueStartupType{startup}\n    terminationDelay: 10s\n    cliques:\n{}{}{}    \
         podCliqueScalingGroups:\n    - {{name: sg-x, cliqueNames: [pc-b, pc-c], replicas: 2, minAvailable: {}}}\n",
        clique("pc-a", 2),
        clique("pc-b", 1),
        clique("pc-c", 3),
        min(2)
    )
}

/// A set of one clique, as simple as can be.
pub(crate) fn simple(name: &str, replicas: i32, pods: i32) -> String {
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata:\n  name: {name}\nspec:\n  replicas: {replicas}\n  \
         template:\n    terminationDelay: 10s\n    cliques:\n    - name: a\n      spec:\n        roleName: a\n        \
         replicas: {pods}\n        minAvailable: {pods}\n        podSpec:\n          containers:\n          \
         - {{name: main, image: one}}\n"
    )
}

/// A world in which the workload runs, with places to spare.
pub(crate) async fn running(minimum: Minimum, places: usize) -> World {
    let world = World::with_places(places).await;
    world.create_set(&workload(minimum, Order::Any)).await;
    world.settle().await;
    assert_eq!(world.ready().await, 10);
    world
}
