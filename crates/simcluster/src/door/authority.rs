//! Who vouches for the cluster's address: an authority that a kubeconfig names, and that outlives the sockets.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

const NAME: &str = "kubernetes";

/// A certificate that vouches for others, and its key.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let key_pem = key.serialize_pem();
        let made = CertifiedIssuer::self_signed(params, key)?;
        let certificate_pem = made.pem();
        Ok(Self {
            certificate_pem,
            key_pem,
        })
    }

    /// A certificate for a server that is reached by these names.
    pub(crate) fn vouch(
        &self,
        names: Vec<String>,
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), rcgen::Error> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate_pem, KeyPair::from_pem(&self.key_pem)?)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok((
            certificate.der().clone(),
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        ))
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
