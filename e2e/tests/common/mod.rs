//! The two clusters that are compared: the real control plane and the embedded one, both behind HTTPS on loopback.
//!
//! Tests that compare them share one runtime, because the embedded cluster lives on the runtime that started it.

pub(crate) mod embedded;

use std::sync::LazyLock;

use anyhow::Result;
use grove_e2e::{ControlPlane, Identity, Shared};
use kube::Client;
use kube::config::Kubeconfig;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use embedded::Embedded;

/// No kubelets: nothing but the tests writes to nodes and pods.
static REAL: Shared = Shared::new(|| ControlPlane::builder().kubelets(false));
static EMBEDDED: OnceCell<Embedded> = OnceCell::const_new();

/// On it run both clusters' clients and the embedded cluster.
pub(crate) static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("the system gives threads to a test"));

/// The real control plane.
pub(crate) async fn real() -> Result<&'static ControlPlane> {
    Ok(REAL.get().await?)
}

/// The embedded cluster.
pub(crate) async fn embedded() -> Result<&'static Embedded> {
    EMBEDDED.get_or_try_init(Embedded::start).await
}

/// Clients of both, the real one first.
pub(crate) async fn clients() -> Result<[Client; 2]> {
    let real = Kubeconfig::read_from(real().await?.kubeconfig(Identity::Admin))?;
    Ok([embedded::client(real).await?, embedded().await?.client().await?])
}
