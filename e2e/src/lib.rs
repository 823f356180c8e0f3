//! A real control plane for tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok as
//! ordinary processes on loopback, thrown away afterwards.
//!
//! ```no_run
//! use grove_e2e::{ControlPlane, Identity, Shared};
//!
//! // All tests of one binary share one control plane; it ends with the process.
//! static PLANE: Shared = Shared::new(|| ControlPlane::builder().nodes(50));
//!
//! # async fn test() -> Result<(), Box<dyn std::error::Error>> {
//! let plane = PLANE.get().await?;
//! let admin = plane.client(Identity::Admin).await?;
//! plane.create_namespace("my-test").await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`kit`] builds and finds the programs, [`ControlPlane`] runs them, [`eventually`] waits for what they do; [`binary`]
//! builds a program of this workspace.
//! Nothing here knows Grove: tests install the CRDs and start the operator themselves.

mod binary;
mod control_plane;
mod credentials;
pub mod kit;
mod nodes;
pub mod openapi;
mod process;
mod programs;
mod wait;

pub use binary::{BinaryError, binary, binary_for_test, cargo};
pub use control_plane::{Builder, ControlPlane, Shared, StartError};
pub use credentials::{ClientError, CredentialsError, Identity};
pub use nodes::node;
pub use process::guarded;
pub use programs::DEAD_KUBELET;
pub use wait::{NotYet, eventually};
