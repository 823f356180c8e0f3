//! Keeps the webhook configurations as they should be: written at the start, when the authorities change, and when
//! somebody else changed or removed one.

use std::time::Duration;

use futures::StreamExt as _;
use grove_api::labels::{MANAGED_BY, MANAGED_BY_OPERATOR};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Endpoint, Registration, registration};
use crate::certificates::Current;
use crate::webhooks::Policy;

const FIELD_MANAGER: &str = "grove-operator-webhooks";
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Registers webhooks and keeps them registered.
#[derive(Clone)]
pub struct Upkeep {
    pub client: Client,
    pub policy: Policy,
    pub endpoint: Endpoint,
}

impl std::fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upkeep")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Upkeep {
    /// Waits for certificates, registers, and stays. `registered` becomes true with the first success; `trusted` is told
    /// of the authorities with every one.
    pub async fn run(
        self,
        mut certificates: Current,
        registered: watch::Sender<bool>,
        trusted: watch::Sender<Option<String>>,
    ) {
        let selected = watcher::Config::default().labels(&format!("{MANAGED_BY}={MANAGED_BY_OPERATOR}"));
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut mutating = std::pin::pin!(watcher(mutating, selected.clone()).default_backoff());
        let mut validating = std::pin::pin!(watcher(validating, selected).default_backoff());
        if certificates.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let mut is_due = true;
        let mut retry = RETRY_MIN;
        loop {
            let authorities = authorities(&mut certificates);
            let desired = registration(&self.policy, &self.endpoint, authorities.as_deref());
            if is_due {
                is_due = match self.write(&desired).await {
                    Ok(()) => {
                        registered.send_replace(true);
                        trusted.send_if_modified(|known| {
                            let is_news = *known != authorities;
                            *known = authorities;
                            is_news
                        });
                        retry = RETRY_MIN;
                        false
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot register the webhooks; will try again");
                        true
                    }
                };
            }
            tokio::select! {
                Some(seen) = mutating.next() => is_due |= differs(&desired.mutating, seen),
                Some(seen) = validating.next() => is_due |= differs(&desired.validating, seen),
                changed = certificates.changed() => match changed {
                    Ok(()) => is_due = true,
                    // Whoever provides certificates is gone: the process ends.
                    Err(_) => return,
                },
                () = sleep(retry), if is_due => retry = (retry * 2).min(RETRY_MAX),
            }
        }
    }

    async fn write(&self, desired: &Registration) -> Result<(), kube::Error> {
        apply(&Api::all(self.client.clone()), &desired.mutating).await?;
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        apply(&validating, &desired.validating).await?;
        for name in &desired.retired {
            match validating.delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
                Ok(_) => tracing::info!(name, "removed a webhook that is switched off"),
            }
        }
        Ok(())
    }
}

fn authorities(certificates: &mut Current) -> Option<String> {
    let current = certificates.borrow_and_update();
    current
        .as_ref()
        .and_then(|certificates| certificates.authorities.clone())
}

async fn apply<K>(api: &Api<K>, configurations: &[K]) -> Result<(), kube::Error>
where
    K: Resource + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
{
    let params = PatchParams::apply(FIELD_MANAGER).force();
    for configuration in configurations {
        api.patch(&configuration.name_any(), &params, &Patch::Apply(configuration))
            .await?;
    }
    Ok(())
}

/// Whether what was seen is not, or no more, as it should be. What could not be seen says nothing.
fn differs<K>(desired: &[K], seen: Result<Event<K>, watcher::Error>) -> bool
where
    K: Resource + Serialize + Clone + std::fmt::Debug + 'static,
{
    let wanted = |seen: &K| desired.iter().find(|wanted| wanted.name_any() == seen.name_any());
    match seen {
        Ok(Event::Apply(seen) | Event::InitApply(seen)) => wanted(&seen).is_some_and(|wanted| !holds(&seen, wanted)),
        Ok(Event::Delete(seen)) => wanted(&seen).is_some(),
        // After a gap in the watch one may be gone without a word; writing what is there already changes nothing.
        Ok(Event::InitDone) => true,
        Ok(Event::Init) => false,
        Err(error) => {
            tracing::warn!(%error, "cannot watch the webhook configurations; will try again");
            false
        }
    }
}

fn holds<K: Serialize>(seen: &K, wanted: &K) -> bool {
    match (serde_json::to_value(seen), serde_json::to_value(wanted)) {
        (Ok(seen), Ok(wanted)) => contains(&seen, &wanted),
        _ => false,
    }
}

/// Everything that is wanted is there; the API server and others may have added to it.
fn contains(seen: &Value, wanted: &Value) -> bool {
    match (seen, wanted) {
        (Value::Object(seen), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| seen.get(key).is_some_and(|seen| contains(seen, wanted))),
        (Value::Array(seen), Value::Array(wanted)) => {
            seen.len() == wanted.len() && seen.iter().zip(wanted).all(|(seen, wanted)| contains(seen, wanted))
        }
        (seen, wanted) => seen == wanted,
    }
}
