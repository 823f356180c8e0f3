//! Keeps the webhook configurations as they should be: written at the start, when the authorities change, and when
//! somebody else changed or removed one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use futures::StreamExt as _;
use grove_api::labels::{MANAGED_BY, MANAGED_BY_OPERATOR};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{Endpoint, Registration, conversion, registration};
use crate::certificates::Current;
use crate::webhooks::Policy;

const FIELD_MANAGER: &str = "grove-operator-webhooks";
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

const CONTESTED: &str = "another operator has registered its webhooks in place of ours; end one of the two, or enable \
                         leaderElection in both";
/// How long a registration that another replica has overwritten waits before it is written again, at least.
const CONTEST_WAIT: Duration = Duration::from_secs(30);
/// And this much longer at most: two that wait equally long would write at the same moment ever after.
const CONTEST_SPREAD_MS: u64 = 5_000;

/// When a replica registers. Replicas behind one Service all say the same, so each may at once; an address is of one
/// replica only, and two that register theirs would overwrite each other for ever.
#[derive(Clone, Debug)]
pub enum Turn {
    AtOnce,
    /// When it has become the leader.
    WhenTrue(watch::Receiver<bool>),
}

impl Turn {
    /// Returns when it has come; never if it cannot come any more.
    async fn come(&mut self) {
        if let Self::WhenTrue(leads) = self
            && leads.wait_for(|leads| *leads).await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }
}

/// Registers webhooks and keeps them registered.
#[derive(Clone)]
pub struct Upkeep {
    pub client: Client,
    pub policy: Policy,
    pub endpoint: Endpoint,
    pub turn: Turn,
}

impl std::fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upkeep")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Upkeep {
    /// Waits for certificates and for its turn, registers, and stays. `registered` becomes true with the first success;
    /// `trusted` is told of the authorities with every one.
    pub async fn run(
        mut self,
        mut certificates: Current,
        registered: watch::Sender<bool>,
        trusted: watch::Sender<Option<String>>,
    ) {
        if certificates.wait_for(Option::is_some).await.is_err() {
            return;
        }
        self.turn.come().await;
        let selected = watcher::Config::default().labels(&format!("{MANAGED_BY}={MANAGED_BY_OPERATOR}"));
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut mutating = std::pin::pin!(watcher(mutating, selected.clone()).default_backoff());
        let mut validating = std::pin::pin!(watcher(validating, selected).default_backoff());
        let mut definition = std::pin::pin!(conversion::watched(&self.client, self.policy.dynamo));
        let mut due = Some(Instant::now());
        // While the operator is upgraded, replicas of two releases may want different things: they take turns, slowly.
        let mut earliest = Instant::now();
        let mut retry = RETRY_MIN;
        loop {
            let authorities = authorities(&mut certificates);
            let desired = registration(&self.policy, &self.endpoint, authorities.as_deref());
            if due.is_some_and(|due| due <= Instant::now()) {
                due = match self.write(&desired, authorities.as_deref()).await {
                    Ok(()) => {
                        if !registered.send_replace(true) {
                            tracing::info!(endpoint = ?self.endpoint, "registered the webhooks");
                        }
                        tell(&trusted, authorities.clone());
                        retry = RETRY_MIN;
                        earliest = Instant::now() + RETRY_MIN;
                        None
                    }
                    Err(error) => {
                        tracing::warn!(%error, ?retry, "cannot register the webhooks; will try again");
                        let again = Instant::now() + retry;
                        retry = (retry * 2).min(RETRY_MAX);
                        Some(again)
                    }
                };
            }
            let seen = tokio::select! {
                Some(seen) = mutating.next() => compare(&desired.mutating, seen),
                Some(seen) = validating.next() => compare(&desired.validating, seen),
                Some(seen) = definition.next() => converts(&seen, &self.endpoint, authorities.as_deref()),
                changed = certificates.changed() => match changed {
                    Ok(()) => Seen::Changed,
                    // Whoever provides certificates is gone: the process ends.
                    Err(_) => return,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Seen::AsItShouldBe,
            };
            match seen {
                Seen::AsItShouldBe => {}
                Seen::Changed => due = Some(earliest),
                // Said and answered once for all the configurations that it overwrote.
                Seen::Contested(_) if due.is_some() => {}
                Seen::Contested(url) => {
                    tracing::error!(url, "{CONTESTED}");
                    due = Some(Instant::now() + contest_wait(&self.endpoint));
                }
            }
        }
    }

    async fn write(&self, desired: &Registration, authorities: Option<&str>) -> Result<(), kube::Error> {
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
        if self.policy.dynamo {
            conversion::write(&self.client, &self.endpoint, authorities).await?;
        }
        Ok(())
    }
}

/// Every address has a wait of its own, the same at every start.
fn contest_wait(endpoint: &Endpoint) -> Duration {
    let mut hasher = DefaultHasher::new();
    endpoint.hash(&mut hasher);
    CONTEST_WAIT + Duration::from_millis(hasher.finish() % CONTEST_SPREAD_MS)
}

/// Tells whom the API server trusts now, if that is news.
fn tell(trusted: &watch::Sender<Option<String>>, authorities: Option<String>) {
    trusted.send_if_modified(|known| {
        let is_news = *known != authorities;
        *known = authorities;
        is_news
    });
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

/// What was seen of the configurations.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    AsItShouldBe,
    Changed,
    /// They lead to the address of another replica, which must be alive: they led here before.
    Contested(String),
}

/// Compares what was seen with what should be. What could not be seen says nothing.
fn compare<K>(desired: &[K], seen: Result<Event<K>, watcher::Error>) -> Seen
where
    K: Resource + Serialize + Clone + std::fmt::Debug + 'static,
{
    let wanted = |seen: &K| desired.iter().find(|wanted| wanted.name_any() == seen.name_any());
    match seen {
        Ok(Event::Apply(seen)) => wanted(&seen).map_or(Seen::AsItShouldBe, |wanted| difference(&seen, wanted)),
        // Who registered before this one may have ended long ago.
        Ok(Event::InitApply(_) | Event::Init) => Seen::AsItShouldBe,
        // After a gap in the watch one may be gone without a word; writing what is there already changes nothing.
        Ok(Event::InitDone) => Seen::Changed,
        Ok(Event::Delete(seen)) => wanted(&seen).map_or(Seen::AsItShouldBe, |_| Seen::Changed),
        Err(error) => {
            tracing::warn!(%error, "cannot watch the webhook configurations; will try again");
            Seen::AsItShouldBe
        }
    }
}

/// The same for the definition that tells where to convert.
fn converts(seen: &CustomResourceDefinition, endpoint: &Endpoint, authorities: Option<&str>) -> Seen {
    match conversion::is_as_it_should_be(seen, endpoint, authorities) {
        true => Seen::AsItShouldBe,
        false => Seen::Changed,
    }
}

fn difference<K: Serialize>(seen: &K, wanted: &K) -> Seen {
    let (Ok(seen), Ok(wanted)) = (serde_json::to_value(seen), serde_json::to_value(wanted)) else {
        return Seen::Changed;
    };
    let url = |configuration: &Value| {
        configuration["webhooks"][0]["clientConfig"]["url"]
            .as_str()
            .map(str::to_owned)
    };
    match (url(&seen), url(&wanted)) {
        _ if contains(&seen, &wanted) => Seen::AsItShouldBe,
        (Some(theirs), Some(ours)) if theirs != ours => Seen::Contested(theirs),
        _ => Seen::Changed,
    }
}

/// Everything that is wanted is there; the API server and others may have added to it.
pub(super) fn contains(seen: &Value, wanted: &Value) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn registered(url: &str) -> Vec<ValidatingWebhookConfiguration> {
        let text = b"apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n";
        let loaded = grove_api::config::parse(text, &Default::default()).unwrap();
        let policy = Policy::new(&loaded.configuration, "operator");
        registration(&policy, &Endpoint::Url(url.to_owned()), Some("PEM")).validating
    }

    #[test]
    fn another_address_is_told_from_an_edit() {
        let (ours, theirs) = (registered("https://here"), registered("https://there"));
        let seen =
            |configuration: &ValidatingWebhookConfiguration| compare(&ours, Ok(Event::Apply(configuration.clone())));
        assert_eq!(seen(&ours[0]), Seen::AsItShouldBe);
        let Seen::Contested(url) = seen(&theirs[0]) else {
            panic!("a replica that is alive overwrote ours");
        };
        assert!(url.starts_with("https://there/"), "{url}");
        // Left over from a process that ended: nobody to complain about.
        let found = compare(&ours, Ok(Event::InitApply(theirs[0].clone())));
        assert_eq!(found, Seen::AsItShouldBe);

        let mut edited = ours[0].clone();
        for webhook in edited.webhooks.iter_mut().flatten() {
            webhook.failure_policy = Some("Ignore".to_owned());
        }
        assert_eq!(seen(&edited), Seen::Changed);
        assert_eq!(compare(&ours, Ok(Event::Delete(ours[0].clone()))), Seen::Changed);
    }
}
