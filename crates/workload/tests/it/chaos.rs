//! Whatever users and nodes do, and in whatever order, the world ends where a calm one would, and rests there.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::workloads::{Minimum, workload};
use crate::world::World;

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Image { clique: usize, image: u8 },
    Replicas(i32),
    GroupReplicas(i32),
    CliqueReplicas(i32),
    LosePod(usize),
    KillNode(usize),
    Pass(usize),
}

const CLIQUES: [&str; 3] = ["pc-a", "pc-b", "pc-c"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..CLIQUES.len(), 0u8..3).prop_map(|(clique, image)| Event::Image { clique, image }),
        (0..3).prop_map(Event::Replicas),
        (0..4).prop_map(Event::GroupReplicas),
        (1..4).prop_map(Event::CliqueReplicas),
        (0usize..20).prop_map(Event::LosePod),
        (0usize..20).prop_map(Event::KillNode),
        (1usize..12).prop_map(Event::Pass),
        (1usize..12).prop_map(Event::Pass),
    ]
}

impl Event {
    fn happen(&self, world: &mut World) {
        match self {
            Self::Image { clique, image } => world.set_image(CLIQUES[*clique], &format!("image-{image}")),
            Self::Replicas(replicas) => world.edit(|set| set.spec.replicas = *replicas),
            Self::GroupReplicas(replicas) => {
                if let Some(name) = world.groups.first().and_then(|group| group.metadata.name.clone()) {
                    world.scale_group(&name, *replicas);
                }
            }
            Self::CliqueReplicas(replicas) => {
                if world
                    .cliques
                    .iter()
                    .any(|clique| clique.metadata.name.as_deref() == Some("w-0-pc-a"))
                {
                    world.scale_clique("w-0-pc-a", *replicas);
                }
            }
            Self::LosePod(which) | Self::KillNode(which) => {
                let ready = world.pods_of("w").into_iter().filter(|pod| pod.seen.is_ready());
                let cliques: Vec<String> = ready.map(|pod| pod.clique.clone()).collect();
                if let Some(clique) = cliques.get(which % cliques.len().max(1)) {
                    if matches!(self, Self::LosePod(_)) {
                        world.lose_pod(clique)
                    } else {
                        world.kill_node_under(clique)
                    }
                }
            }
            Self::Pass(passes) => {
                for _ in 0..*passes {
                    world.pass();
                    never_too_many(world);
                }
            }
        }
    }
}

/// No clique ever has more live pods than it asks for, nor two with one index.
fn never_too_many(world: &World) {
    for clique in &world.cliques {
        let name = clique.metadata.name.as_deref().unwrap();
        let live = world
            .pods
            .values()
            .filter(|pod| pod.seen.is_live() && pod.clique == name);
        let indices: Vec<Option<i32>> = live.map(|pod| pod.seen.index).collect();
        let distinct: BTreeSet<&Option<i32>> = indices.iter().collect();
        assert!(indices.len() <= clique.spec.replicas as usize, "{name} has {indices:?}");
        assert_eq!(distinct.len(), indices.len(), "{name} has {indices:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_world_always_comes_to_rest(
        events in prop::collection::vec(event(), 1..14),
        all in any::<bool>(),
        places in 6usize..60,
    ) {
        let minimum = if all { Minimum::All } else { Minimum::One };
        let mut world = World::new(&workload(minimum, "AnyOrder"));
        world.places = places;
        for event in &events {
            event.happen(&mut world);
        }
        // The cluster grows, and time goes by for whatever waits for it.
        world.places = 500;
        world.settle();
        world.advance(3_600);
        world.settle();

        let wanted: i32 = world.cliques.iter().map(|clique| clique.spec.replicas).sum();
        prop_assert_eq!(world.ready() as i32, wanted);
        prop_assert_eq!(world.pending(), 0);
        let status = world.set.status.clone().unwrap();
        prop_assert_eq!(status.available_replicas, world.set.spec.replicas);
        prop_assert_eq!(status.updated_replicas, world.set.spec.replicas);
        prop_assert!(status.update_progress.is_none_or(|progress| progress.update_ended_at.is_some()));
        for template in &world.set.spec.template.cliques {
            let image = template.spec.pod_spec.containers[0].image.clone().unwrap();
            let pods = world.pods.values().filter(|pod| pod.seen.is_live());
            let of_role = pods.filter(|pod| world.clique(&pod.clique).spec.role_name == template.spec.role_name);
            for pod in of_role {
                prop_assert_eq!(&pod.image, &image);
            }
        }
        prop_assert_eq!(world.settle(), 0, "nothing is written at rest");
    }
}
