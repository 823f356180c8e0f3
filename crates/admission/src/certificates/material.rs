//! What the Secret holds: the authorities that are trusted, the newest one's key, and the certificate that is served.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::{CertificateError, Certificates};

const AUTHORITIES: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const LEAF: &str = "tls.crt";
const LEAF_KEY: &str = "tls.key";

/// Keys and certificates as PEM. The keys are why this type does not print itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// Newest first; more than one only while one replaces another. Never empty.
    pub(super) authorities: Vec<String>,
    /// Of the newest authority.
    pub(super) authority_key: String,
    pub(super) leaf: String,
    pub(super) leaf_key: String,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material")
            .field("authorities", &self.authorities.len())
            .finish_non_exhaustive()
    }
}

/// What a plan looks at in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) not_after: Timestamp,
    pub(super) names: BTreeSet<String>,
}

impl Material {
    /// `None` where something is missing or cannot be read: then all of it must be made anew.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text(AUTHORITIES)?.as_bytes()).collect();
        let authorities: Vec<String> = authorities.ok()?.iter().map(|der| to_pem(der)).collect();
        let material = Self {
            authorities,
            authority_key: text(AUTHORITY_KEY)?,
            leaf: text(LEAF)?,
            leaf_key: text(LEAF_KEY)?,
        };
        let is_whole = material.newest_facts().is_some()
            && material.leaf_facts().is_some()
            && rcgen::KeyPair::from_pem(&material.authority_key).is_ok()
            && material.certificates().is_ok();
        is_whole.then_some(material)
    }

    pub fn data(&self) -> BTreeMap<String, ByteString> {
        [
            (AUTHORITIES, self.bundle()),
            (AUTHORITY_KEY, self.authority_key.clone()),
            (LEAF, self.leaf.clone()),
            (LEAF_KEY, self.leaf_key.clone()),
        ]
        .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
        .into()
    }

    pub fn certificates(&self) -> Result<Certificates, CertificateError> {
        Certificates::from_pem(self.leaf.as_bytes(), self.leaf_key.as_bytes(), Some(self.bundle()))
    }

    pub(super) fn newest_facts(&self) -> Option<Facts> {
        facts(self.authorities.first()?)
    }

    /// When the first of the authorities that the newest one replaces expires; none if there are no others.
    pub(super) fn replaced_until(&self) -> Option<Timestamp> {
        let replaced = self.authorities.iter().skip(1);
        replaced.filter_map(|pem| Some(facts(pem)?.not_after)).min()
    }

    /// Trusts no longer whom nobody believes any more; the newest authority stays.
    pub(super) fn drop_expired(&mut self, now: Timestamp) {
        let newest = self.authorities.first().cloned();
        let is_good = |pem: &String| facts(pem).is_some_and(|facts| facts.not_after > now);
        self.authorities
            .retain(|pem| Some(pem) == newest.as_ref() || is_good(pem));
    }

    /// The authorities to trust, as PEM.
    pub(super) fn bundle(&self) -> String {
        self.authorities.concat()
    }

    pub(super) fn leaf_facts(&self) -> Option<Facts> {
        facts(&self.leaf)
    }

    /// Which of the authorities signed the leaf; 0 is the newest.
    pub(super) fn issuer(&self) -> Option<usize> {
        self.authorities
            .iter()
            .position(|authority| is_signed_by(&self.leaf, authority).unwrap_or(false))
    }
}

pub(super) fn to_pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::prelude::BASE64_STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|start| &text[start..text.len().min(start + 64)])
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

fn facts(pem: &str) -> Option<Facts> {
    facts_of_der(&CertificateDer::from_pem_slice(pem.as_bytes()).ok()?)
}

pub(super) fn facts_of_der(der: &[u8]) -> Option<Facts> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.map(|names| names.value.general_names.iter().filter_map(name).collect());
    Some(Facts {
        not_after: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
        names: names.unwrap_or_default(),
    })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| v6()).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

fn is_signed_by(leaf: &str, authority: &str) -> Option<bool> {
    let leaf = CertificateDer::from_pem_slice(leaf.as_bytes()).ok()?;
    let authority = CertificateDer::from_pem_slice(authority.as_bytes()).ok()?;
    let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
    let (_, authority) = X509Certificate::from_der(&authority).ok()?;
    Some(leaf.verify_signature(Some(authority.public_key())).is_ok())
}
