//! Certificates of the webhook server: where they come from, and when they change.
//!
//! ```text
//! auto:    Secret ─watch─▶ plan (keep, renew, …) ─▶ issue ─▶ Secret      every replica; the Secret is what they share
//! manual:  files  ─────────────────────────────────────────▶ Certificates
//! ```
//!
//! Whoever serves or registers holds the receiving end of a watch channel and never learns which of the two it is.
//! Keys are kept in memory and in the Secret, nowhere else.

mod auto;
mod issue;
mod manual;
mod material;
mod plan;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;
use tokio::sync::watch;

pub use auto::Auto;
pub use issue::carry_out;
pub use manual::Manual;
pub use material::Material;
pub use plan::{Change, Plan, plan};

/// What is served and what the API server must trust for it.
#[derive(Clone, Debug)]
pub struct Certificates {
    pub(crate) serving: Arc<CertifiedKey>,
    /// PEM. `None` where somebody else tells the API server whom to trust.
    pub(crate) authorities: Option<String>,
}

/// The certificates in force, once there are any.
pub type Current = watch::Receiver<Option<Certificates>>;

/// The authorities (PEM) that the API server was last told to trust, once it was told of any.
pub type Trusted = watch::Receiver<Option<String>>;

/// Why a certificate cannot be served.
#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("not a PEM certificate: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    #[error("not a PEM key: {0}")]
    Key(rustls::pki_types::pem::Error),
    #[error("the certificate and its key cannot be used together: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Certificates {
    /// From PEM: a chain, its key, and the authorities to trust.
    pub fn from_pem(chain: &[u8], key: &[u8], authorities: Option<String>) -> Result<Self, CertificateError> {
        let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(CertificateError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::Key)?;
        let provider = rustls::crypto::ring::default_provider();
        // Refuses an empty chain, and a key that is not the certificate's.
        let serving = CertifiedKey::from_der(chain, key, &provider)?;
        Ok(Self {
            serving: Arc::new(serving),
            authorities,
        })
    }

    /// When the certificate that is served ends.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        let leaf = self.serving.cert.first()?;
        Some(material::facts_of_der(leaf)?.not_after)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.serving.cert == other.serving.cert && self.authorities == other.authorities
    }
}

/// Tells the holders of the channel, if there is news.
fn publish(sender: &watch::Sender<Option<Certificates>>, certificates: Certificates) -> bool {
    sender.send_if_modified(|current| {
        let is_news = !current.as_ref().is_some_and(|current| current.is_same(&certificates));
        if is_news {
            *current = Some(certificates);
        }
        is_news
    })
}

/// How long certificates live, and when they are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    pub authority: Duration,
    pub leaf: Duration,
    /// A leaf is renewed when less than this is left of it.
    pub renew_before: Duration,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            authority: DAY * 3650,
            leaf: DAY * 365,
            renew_before: DAY * 90,
        }
    }
}

/// The names under which the API server may call: those of the Service, loopback, and an address of the host's.
pub fn server_names(service: &str, namespace: &str, address: Option<IpAddr>) -> Vec<String> {
    let mut names = vec![
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ];
    let address = address.filter(|address| !address.is_unspecified() && !address.is_loopback());
    names.extend(address.map(|address| address.to_string()));
    names
}
