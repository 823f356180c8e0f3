//! Who may talk to the control plane: its certificate authority, the tokens of each identity, and kubeconfigs.
//!
//! Clients prove themselves by a random token from the API server's token file; certificates only prove the server.
//! All of it lies in the control plane's own directory and is worthless when that is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::json;

const SERVICE_ACCOUNT_GROUPS: &str = "system:serviceaccounts,system:serviceaccounts:grove-system";
const MASTERS: &str = "system:masters";

/// A user of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A cluster administrator: may do everything.
    Admin,
    /// Somebody who is known and has been granted nothing.
    User,
    /// The operator's service account. It has the rights that a test gives it, like any other.
    Operator,
    /// The control plane's own programs. The controller manager and kwok act as masters, because the roles that
    /// Kubernetes would give them are split over dozens of service accounts.
    ControllerManager,
    Scheduler,
    Kwok,
}

impl Identity {
    const ALL: [Self; 6] = [
        Self::Admin,
        Self::User,
        Self::Operator,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
    ];

    /// The word that stands for it in file names and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
            Self::Operator => "operator",
            Self::ControllerManager => "controller-manager",
            Self::Scheduler => "scheduler",
            Self::Kwok => "kwok",
        }
    }

    /// The name that the API server knows it by.
    pub fn username(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::User => "user",
            Self::Operator => "system:serviceaccount:grove-system:grove-operator",
            Self::ControllerManager => "system:kube-controller-manager",
            Self::Scheduler => "system:kube-scheduler",
            Self::Kwok => "kwok",
        }
    }

    /// Its kubeconfig in the directory of a control plane.
    pub fn kubeconfig_in(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.kubeconfig", self.word()))
    }

    fn groups(self) -> &'static str {
        match self {
            Self::Admin | Self::ControllerManager | Self::Kwok => MASTERS,
            Self::Operator => SERVICE_ACCOUNT_GROUPS,
            // Kubernetes binds the scheduler's role to its user name.
            Self::User | Self::Scheduler => "",
        }
    }
}

/// Why the credentials of a new control plane could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("the system has no random numbers")]
    NoRandomness,
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
}

/// Why a client could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot read the kubeconfig of {0}: {1}")]
    Kubeconfig(&'static str, kube::config::KubeconfigError),
    #[error("cannot make a client for {0}: {1}")]
    Client(&'static str, kube::Error),
}

/// The credentials of one control plane, as files in its directory.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    dir: PathBuf,
}

impl Credentials {
    /// Writes keys, certificates and the token file.
    pub(crate) fn create(dir: &Path) -> Result<Self, CredentialsError> {
        let credentials = Self { dir: dir.to_owned() };
        let (issuer, key, certificate) = serving_certificate()?;
        credentials.write("ca.crt", &issuer)?;
        credentials.write("server.key", &key)?;
        credentials.write("server.crt", &certificate)?;
        let service_accounts = KeyPair::generate()?;
        credentials.write("service-accounts.key", &service_accounts.serialize_pem())?;
        credentials.write("service-accounts.pub", &service_accounts.public_key_pem())?;
        let mut tokens = String::new();
        for identity in Identity::ALL {
            let token = random_token()?;
            tokens.push_str(&format!(
                "{token},{0},{0},\"{1}\"\n",
                identity.username(),
                identity.groups()
            ));
            credentials.write(&format!("{}.token", identity.word()), &token)?;
        }
        credentials.write("tokens.csv", &tokens)?;
        Ok(credentials)
    }

    /// Writes one kubeconfig for each identity. JSON, because all JSON is YAML.
    pub(crate) fn write_kubeconfigs(&self, server: &str) -> Result<(), CredentialsError> {
        for identity in Identity::ALL {
            let word = identity.word();
            let kubeconfig = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{
                    "name": "grove-kit",
                    "cluster": { "server": server, "certificate-authority": self.file("ca.crt") },
                }],
                "users": [{ "name": word, "user": { "tokenFile": self.file(&format!("{word}.token")) } }],
                "contexts": [{ "name": word, "context": { "cluster": "grove-kit", "user": word } }],
                "current-context": word,
            });
            write(identity.kubeconfig_in(&self.dir), &format!("{kubeconfig:#}\n"))?;
        }
        Ok(())
    }

    pub(crate) fn kubeconfig(&self, identity: Identity) -> PathBuf {
        identity.kubeconfig_in(&self.dir)
    }

    pub(crate) async fn client(&self, identity: Identity) -> Result<Client, ClientError> {
        let word = identity.word();
        let read = |error| ClientError::Kubeconfig(word, error);
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(identity)).map_err(read)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(read)?;
        // The way to loopback never leads through the proxy that the environment may name.
        config.proxy_url = None;
        Client::try_from(config).map_err(|error| ClientError::Client(word, error))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, name: &str, content: &str) -> Result<(), CredentialsError> {
        write(self.file(name), content)
    }
}

fn write(path: PathBuf, content: &str) -> Result<(), CredentialsError> {
    fs::write(&path, content).map_err(|error| CredentialsError::File { path, error })
}

/// The authority's certificate, and the server's key and certificate, in PEM.
fn serving_certificate() -> Result<(String, String, String), rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "grove-kit");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;
    Ok((authority.pem(), key.serialize_pem(), certificate.pem()))
}

fn random_token() -> Result<String, CredentialsError> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| CredentialsError::NoRandomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
