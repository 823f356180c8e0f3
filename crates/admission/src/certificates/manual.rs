//! Certificates that somebody else puts into a directory: `tls.crt`, `tls.key` and, if the API server is not told
//! otherwise, `ca.crt`.
//!
//! The directory is read again at an interval: a mounted Secret changes by a swapped link, minutes after the fact, and no
//! event of the file system tells that on every platform. Files that cannot be used leave what is served as it is.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

use super::{CertificateError, Certificates, publish};

/// Well below the minute or so that a kubelet takes to update a mount.
const READ_EVERY: Duration = Duration::from_secs(10);

/// Why a directory is of no use.
#[derive(Debug, Error)]
enum ManualError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("{dir}: {error}")]
    Content { dir: PathBuf, error: CertificateError },
}

/// A directory with certificates.
#[derive(Clone, Debug)]
pub struct Manual {
    pub dir: PathBuf,
}

impl Manual {
    /// Tells `sender` what the directory holds, and every change of it. Ends only with the future.
    pub async fn run(self, sender: watch::Sender<Option<Certificates>>) {
        let mut interval = tokio::time::interval(READ_EVERY);
        let mut last_problem = String::new();
        loop {
            interval.tick().await;
            let problem = match self.read().await {
                Ok(certificates) => {
                    if publish(&sender, certificates) {
                        tracing::info!(dir = %self.dir.display(), "webhook certificates in force");
                    }
                    String::new()
                }
                Err(error) => error.to_string(),
            };
            // Once for each problem, not once for each look.
            if problem != last_problem && !problem.is_empty() {
                tracing::warn!(problem, "cannot use the webhook certificates");
            }
            last_problem = problem;
        }
    }

    async fn read(&self) -> Result<Certificates, ManualError> {
        let (chain, key) = (self.file("tls.crt").await?, self.file("tls.key").await?);
        let authorities = match self.file("ca.crt").await {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(ManualError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Certificates::from_pem(&chain, &key, authorities).map_err(|error| ManualError::Content {
            dir: self.dir.clone(),
            error,
        })
    }

    async fn file(&self, name: &str) -> Result<Vec<u8>, ManualError> {
        let path: &Path = &self.dir.join(name);
        tokio::fs::read(path).await.map_err(|error| ManualError::Read {
            path: path.to_owned(),
            error,
        })
    }
}
