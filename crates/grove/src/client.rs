//! The way to the API server: which one, how fast, and as whom.

use std::time::Duration;

use grove_api::config::ClientConnection;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::client::ClientBuilder;
use kube::{Api, Client};
use tokio::time::{Instant, timeout};
use tower::buffer::BufferLayer;
use tower::util::option_layer;

use crate::api_writes::ApiWrites;
use crate::busy::BusyLayer;
use crate::exit::{Failure, one_line};
use crate::fence::Fence;
use crate::rate_limit::RateLimitLayer;
use crate::target::Target;

/// How long the first answer may take before the API server counts as unreachable.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(10);

/// Requests that wait for the connection before whoever sends one waits too.
const QUEUE_MAX: usize = 1024;

/// Where a pod finds the token of its service account.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// A cluster that has been named, not yet reached.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// Waits for no other request: a leader that renews its Lease behind a queue of them would lose it.
    pub(crate) lease_client: Client,
    /// Whoever leads says until when `client` may write.
    pub(crate) fence: Fence,
    /// Where the API server is, for messages.
    pub(crate) address: String,
    /// The namespace that this process runs in, or the one its kubeconfig chooses.
    pub(crate) namespace: String,
    /// This process is a pod of the cluster: it uses a pod's credentials.
    pub(crate) is_inside: bool,
}

impl Cluster {
    /// Sets up the client; sends nothing. What is written is counted.
    pub(crate) async fn connect(
        target: &Target,
        connection: &ClientConnection,
        writes: &ApiWrites,
    ) -> Result<Self, Failure> {
        let mut config = target.config().await?;
        // It sends writes again too, and so hides that the first one may have been carried out.
        config.default_retry = false;
        // Only a pod's own credentials name this very file.
        let is_inside = config.auth_info.token_file.as_deref() == Some(POD_TOKEN);
        let address = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let limit = RateLimitLayer::new(connection.qps, connection.burst, Instant::now());
        let refused = |error: kube::Error| {
            Failure::Usage(format!(
                "cannot set up a client for {address}: {}; check the kubeconfig",
                one_line(error)
            ))
        };
        let lease_client = Client::try_from(config.clone()).map_err(refused)?;
        let fence = Fence::open();
        let builder = ClientBuilder::try_from(config).map_err(refused)?;
        let client = builder
            .with_layer(&option_layer(limit))
            .with_layer(&BufferLayer::new(QUEUE_MAX))
            .with_layer(&BusyLayer)
            .with_layer(&fence)
            .with_layer(writes)
            .build();
        Ok(Self {
            client,
            lease_client,
            fence,
            address,
            namespace,
            is_inside,
        })
    }

    /// For a command that asks and ends. The first answer is the one that may take too long; after it the cluster is known
    /// to be there.
    pub(crate) async fn reach(target: &Target) -> Result<Self, Failure> {
        // The only provider in the binary; it can be installed already when commands share a process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cluster = Self::connect(target, &ClientConnection::default(), &ApiWrites::default()).await?;
        cluster.own_user().await?;
        Ok(cluster)
    }

    /// What it means that a list of Grove's objects failed.
    pub(crate) fn failed(&self, error: kube::Error) -> Failure {
        let address = &self.address;
        match error {
            // A list of no objects is empty; only a kind that is not served is not found.
            kube::Error::Api(status) if status.code == 404 => Failure::Usage(format!(
                "the API server at {address} does not serve Grove's kinds; install the chart (docs/install.md), or \
                 check --kubeconfig and --context"
            )),
            other => Failure::NoAnswer(no_answer(address, other)),
        }
    }

    /// Asks the API server who we are: the first contact, and the name that our webhooks let pass.
    pub(crate) async fn own_user(&self) -> Result<String, Failure> {
        let reviews = Api::<SelfSubjectReview>::all(self.client.clone());
        let review = SelfSubjectReview::default();
        let address = &self.address;
        let answer = match timeout(FIRST_ANSWER_MAX, reviews.create(&PostParams::default(), &review)).await {
            Err(_) => {
                let secs = FIRST_ANSWER_MAX.as_secs();
                let message = format!("the API server at {address} did not answer within {secs} s; {CHECK_NETWORK}");
                return Err(Failure::NoAnswer(message));
            }
            Ok(Err(error)) => return Err(Failure::NoAnswer(no_answer(address, error))),
            Ok(Ok(review)) => review,
        };
        let user = answer
            .status
            .and_then(|status| status.user_info)
            .and_then(|user| user.username);
        user.ok_or_else(|| {
            let message =
                format!("the server at {address} did not say who we are; check that it is Kubernetes 1.28 or newer");
            Failure::NoAnswer(message)
        })
    }
}

const CHECK_NETWORK: &str =
    "check the address, the network and that the API server runs; without a cluster, try: grove demo";

/// What a failed request means to the person who asked.
fn no_answer(address: &str, error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => format!(
            "the API server at {address} refuses us ({} {}: {}); check the credentials and the roles of this user",
            status.code, status.reason, status.message
        ),
        kube::Error::Api(status) => format!(
            "the API server at {address} failed ({} {}: {}); check its health, then start again",
            status.code, status.reason, status.message
        ),
        other => format!(
            "cannot reach the API server at {address}: {}; {CHECK_NETWORK}",
            one_line(other)
        ),
    }
}

#[cfg(test)]
mod tests;
