//! Certificates that somebody else puts into a directory: `tls.crt`, `tls.key` and, if the API server is not told
//! otherwise, `ca.crt`.
//!
//! Whether a file is another one is looked up at an interval, by what the directory says of it; only then is it read. A
//! mounted Secret changes by a swapped link, up to a minute after the fact, and on some volumes no event of the file
//! system tells of it: with events there would have to be a look at an interval all the same. Files that cannot be used
//! leave what is served as it is.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;

use super::{CertificateError, Certificates, publish};

/// Well below the minute or so that a kubelet takes to update a mount.
const LOOK_EVERY: Duration = Duration::from_secs(10);

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";

/// By what a file that was replaced or written over differs: where it is, how long, and when it was changed. None for a
/// file that is not there.
type Mark = Option<(u64, u64, i64, i64)>;

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
        let mut interval = tokio::time::interval(LOOK_EVERY);
        let mut last_problem = String::new();
        let mut read = None;
        loop {
            interval.tick().await;
            let marks = self.marks().await;
            if read == Some(marks) {
                continue;
            }
            let problem = match self.read().await {
                Ok(certificates) => {
                    // Looked up before: what changes meanwhile is read the next time.
                    read = Some(marks);
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

    async fn marks(&self) -> [Mark; 3] {
        let mark = async |name: &str| {
            let found = tokio::fs::metadata(self.dir.join(name)).await.ok()?;
            Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        };
        [mark(CHAIN).await, mark(KEY).await, mark(AUTHORITIES).await]
    }

    async fn read(&self) -> Result<Certificates, ManualError> {
        let (chain, key) = (self.file(CHAIN).await?, self.file(KEY).await?);
        let authorities = match self.file(AUTHORITIES).await {
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
