//! From a set to pods that run.

use grove_api::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang};

use crate::support::World;

const TWO_ROLES: &str = r#"
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: w}
spec:
  replicas: 1
  template:
    cliques:
    - name: a
      spec:
        roleName: a
        replicas: 2
        minAvailable: 2
        podSpec: {containers: [{name: main, image: one, resources: {requests: {cpu: 100m}}}]}
    - name: b
      spec:
        roleName: b
        replicas: 1
        minAvailable: 1
        podSpec: {containers: [{name: main, image: one, resources: {requests: {cpu: 100m}}}]}
    podCliqueScalingGroups:
    - name: sg
      cliqueNames: [b]
      replicas: 3
      minAvailable: 1
"#;

#[tokio::test(start_paused = true)]
async fn a_set_becomes_running_gangs() {
    let world = World::plain(1).await;
    world.create_set(TWO_ROLES).await;
    world
        .eventually("five pods are ready", async |world| world.ready().await == 5)
        .await;
    world
        .eventually("the status says so", async |world| {
            let set = &world.list::<PodCliqueSet>().await["w"];
            set.status.as_ref().is_some_and(|status| status.available_replicas == 1)
        })
        .await;
    let gangs: Vec<String> = world.list::<PodGang>().await.into_keys().collect();
    assert_eq!(gangs, ["w-0", "w-0-sg-0", "w-0-sg-1"]);
    let cliques: Vec<String> = world.list::<PodClique>().await.into_keys().collect();
    assert_eq!(cliques, ["w-0-a", "w-0-sg-0-b", "w-0-sg-1-b", "w-0-sg-2-b"]);
    assert_eq!(world.list::<PodCliqueScalingGroup>().await.len(), 1);
}
