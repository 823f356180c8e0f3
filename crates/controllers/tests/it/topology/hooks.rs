//! The real webhooks, reached by the embedded cluster through a pipe.

use grove_admission::certificates::{Change, Lifetimes, carry_out};
use grove_admission::registration::{Endpoint, registration};
use grove_admission::{Lookup, Policy, Server, Webhooks};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::support::{OPERATOR, World};

const HOST: &str = "grove-operator.grove-system.svc";

/// Where the API server is told to ask: at `HOST`.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint::Service {
        namespace: "grove-system".into(),
        name: "grove-operator".into(),
        port: 443,
    }
}

impl World {
    /// Lets the API server ask the operator's webhooks, as that configuration has them, before it stores our objects.
    pub(crate) async fn serve_webhooks(&self, text: &str) {
        let mut configuration = self.configuration(text);
        let settings = grove_controllers::settle(&self.operator_client(), self.settings(&configuration)).await;
        configuration.topology_aware_scheduling = settings.expect("settings in force").topology;
        let policy = Policy::new(&configuration, OPERATOR);
        let now = self.cluster.clock().now();
        let made = carry_out(Change::Everything, None, &[HOST.to_owned()], now, &Lifetimes::default());
        let material = made.expect("good names make good certificates");
        let (sender, current) = watch::channel(Some(material.certificates().expect("certificates")));
        let webhooks = Webhooks::new(policy.clone(), Lookup::new(self.operator_client()));
        let server = Server::new(webhooks, current).expect("a server");
        let mut listener = self.cluster.network().listen(&format!("{HOST}:443"));
        tokio::spawn(async move {
            // Kept so that the certificate stays in force.
            let _sender = sender;
            while let Some(stream) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move { server.serve_stream(stream, CancellationToken::new()).await });
            }
        });
        let authorities = material.data()["ca.crt"].0.clone();
        let authorities = String::from_utf8(authorities).expect("PEM is text");
        self.register(&policy, &authorities).await;
    }

    async fn register(&self, policy: &Policy, authorities: &str) {
        let registration = registration(policy, &endpoint(), Some(authorities));
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client.clone());
        let (delete, every) = (DeleteParams::default(), ListParams::default());
        mutating.delete_collection(&delete, &every).await.expect("a deletion");
        validating.delete_collection(&delete, &every).await.expect("a deletion");
        for configuration in &registration.mutating {
            let made = mutating.create(&PostParams::default(), configuration).await;
            made.expect("a webhook configuration");
        }
        for configuration in &registration.validating {
            let made = validating.create(&PostParams::default(), configuration).await;
            made.expect("a webhook configuration");
        }
    }
}
