//! Which of the APIs that can be missing are served: those of other schedulers and drivers, and kinds of ours that an
//! admin may leave out.
//!
//! Nothing is asked again after a while: a watch on the metadata of CustomResourceDefinitions tells when one comes, goes
//! or becomes established, and only then is that one read. What is served by other means than a definition is not seen.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use grove_api::{ClusterTopologyBinding, ComputeDomain, TopologyDomain};
use grove_topology::backend::Backend;
use grove_topology::kai;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;

use grove_runtime::Backoff;

/// An API that can be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OptionalApi {
    TopologyDomain,
    ClusterTopologyBinding,
    ComputeDomain,
    Foreign(ForeignKind),
}

/// A kind of another scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ForeignKind {
    Topology(Backend),
    KaiPodGroup,
}

impl ForeignKind {
    pub(crate) const ALL: [Self; 3] = [
        Self::Topology(Backend::Kai),
        Self::Topology(Backend::Kueue),
        Self::KaiPodGroup,
    ];

    /// The kind in this version of its API.
    pub(crate) fn resource(self, version: &str) -> ApiResource {
        let (group, kind, plural) = match self {
            Self::Topology(backend) => (backend.group(), Backend::KIND, Backend::PLURAL),
            Self::KaiPodGroup => (kai::POD_GROUP_GROUP, kai::POD_GROUP_KIND, kai::POD_GROUP_PLURAL),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

impl OptionalApi {
    const ALL: [Self; 6] = [
        Self::TopologyDomain,
        Self::ClusterTopologyBinding,
        Self::ComputeDomain,
        Self::Foreign(ForeignKind::Topology(Backend::Kai)),
        Self::Foreign(ForeignKind::Topology(Backend::Kueue)),
        Self::Foreign(ForeignKind::KaiPodGroup),
    ];

    /// Name of the definition that serves it.
    pub(crate) fn definition(self) -> String {
        match self {
            Self::TopologyDomain => definition::<TopologyDomain>(),
            Self::ClusterTopologyBinding => definition::<ClusterTopologyBinding>(),
            Self::ComputeDomain => definition::<ComputeDomain>(),
            Self::Foreign(kind) => {
                let ApiResource { group, plural, .. } = kind.resource("");
                format!("{plural}.{group}")
            }
        }
    }

    fn of(definition: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.definition() == definition)
    }

    /// The version to use of those that are served.
    fn version<'a>(self, served: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let mut served = served.into_iter();
        match self {
            Self::TopologyDomain => served.find(|version| *version == TopologyDomain::version(&())),
            Self::ClusterTopologyBinding => served.find(|version| *version == ClusterTopologyBinding::version(&())),
            Self::ComputeDomain => served.find(|version| *version == ComputeDomain::version(&())),
            Self::Foreign(ForeignKind::Topology(backend)) => backend.version(served),
            Self::Foreign(ForeignKind::KaiPodGroup) => served.find(|version| *version == kai::POD_GROUP_VERSION),
        }
    }
}

fn definition<K: Resource<DynamicType = ()>>() -> String {
    format!("{}.{}", K::plural(&()), K::group(&()))
}

type Versions = BTreeMap<OptionalApi, String>;

/// The optional APIs that are served, each with the version to use; none until all definitions have been seen.
#[derive(Debug)]
pub(crate) struct ServedApis(watch::Sender<Option<Versions>>);

impl Default for ServedApis {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl ServedApis {
    /// The version of `api` to use, if it is served.
    pub(crate) fn version(&self, api: OptionalApi) -> Option<String> {
        self.0.borrow().as_ref()?.get(&api).cloned()
    }

    /// Waits until all definitions have been seen, then until the version of `api` is another than `known`. Returns it.
    pub(crate) async fn changed(&self, api: OptionalApi, known: Option<&Option<String>>) -> Option<String> {
        let mut served = self.0.subscribe();
        let version = |versions: &Option<Versions>| versions.as_ref().map(|versions| versions.get(&api).cloned());
        let is_news = |versions: &Option<Versions>| version(versions).is_some_and(|now| Some(&now) != known);
        match served.wait_for(is_news).await {
            Ok(versions) => version(&versions).flatten(),
            // The sender is this; it is not gone.
            Err(_) => None,
        }
    }

    /// Follows the definitions for ever.
    pub(crate) async fn follow(&self, client: Client) {
        let api = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone());
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
        let mut listed = BTreeSet::new();
        let mut failures = 0;
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    failures += 1;
                    let wait = Backoff::WATCH.after(failures);
                    tracing::debug!(%error, ?wait, "watch of definitions broke; opening it again");
                    tokio::time::sleep(wait).await;
                    continue;
                }
            };
            failures = 0;
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(definition) => listed.extend(OptionalApi::of(&definition.name_any())),
                Event::InitDone => self.note_all(&client, &listed).await,
                Event::Apply(definition) => {
                    if let Some(api) = OptionalApi::of(&definition.name_any()) {
                        let version = read(&client, api).await;
                        self.note(api, version);
                    }
                }
                Event::Delete(definition) => {
                    if let Some(api) = OptionalApi::of(&definition.name_any()) {
                        self.note(api, None);
                    }
                }
            }
        }
    }

    async fn note_all(&self, client: &Client, listed: &BTreeSet<OptionalApi>) {
        let mut versions = Versions::new();
        for api in listed {
            versions.extend(read(client, *api).await.map(|version| (*api, version)));
        }
        self.0.send_replace(Some(versions));
    }

    fn note(&self, api: OptionalApi, version: Option<String>) {
        self.0.send_modify(|versions| {
            let versions = versions.get_or_insert_default();
            match version {
                Some(version) => drop(versions.insert(api, version)),
                None => drop(versions.remove(&api)),
            }
        });
    }
}

/// The version of an API to use, now; asks until there is an answer.
async fn read(client: &Client, api: OptionalApi) -> Option<String> {
    let mut failures = 0;
    loop {
        match served_version(client, api).await {
            Ok(version) => return version,
            Err(error) => {
                failures += 1;
                let wait = Backoff::WATCH.after(failures);
                tracing::debug!(definition = api.definition(), %error, ?wait, "cannot read a definition; asking again");
                tokio::time::sleep(wait).await;
            }
        }
    }
}

/// The version of an API to use, if it is served.
pub(crate) async fn served_version(client: &Client, api: OptionalApi) -> Result<Option<String>, kube::Error> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let Some(definition) = definitions.get_opt(&api.definition()).await? else {
        return Ok(None);
    };
    let conditions = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut established = conditions.filter(|condition| condition.type_ == "Established");
    if !established.any(|condition| condition.status == "True") {
        return Ok(None);
    }
    let served = definition.spec.versions.iter().filter(|version| version.served);
    Ok(api
        .version(served.map(|version| version.name.as_str()))
        .map(str::to_owned))
}
