//! The commands that ask a cluster, on a real one: they print what they print on the embedded cluster
//! (`crates/grove/tests/it/screens.rs`), with the same objects before them.

#[path = "common/kinds.rs"]
mod kinds;
#[path = "../../crates/grove/tests/it/stage.rs"]
mod stage;

use std::fs;

use anyhow::Result;
use grove_e2e::{ControlPlane, Identity, binary_for_test, node};

use stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn commands_say_on_a_real_cluster_what_they_say_on_the_embedded_one() -> Result<()> {
    let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
    let nodes = stage::NODES.map(|(name, labels)| node(name, labels, &stage::CAPACITY));
    let plane = ControlPlane::builder().node_objects(nodes).start().await?;
    kinds::install_kinds(&plane, &[]).await?;
    let client = plane.client(Identity::Admin).await?;
    stage::furnish(&client).await?;
    let kubeconfig = fs::read_to_string(plane.kubeconfig(Identity::Admin))?;
    let stage = Stage::new(&grove, &kubeconfig)?;
    stage.compare().await?;
    stage.compare_followed(&client).await
}
