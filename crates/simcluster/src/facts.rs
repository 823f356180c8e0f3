//! What a cluster knows about itself besides its objects, and how a cluster that lives in a directory starts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{Builder, Cluster};
use crate::disk::{Contents, DataDir, DataError, Database, Keeper, Place};
use crate::door::Authority;
use crate::registry::{Conversion, custom};
use crate::server::signing_key_of;
use crate::store::{NotKept, ResourceName, Store, Stored};

const SIGNING_KEY: &str = "signing-key";
const AUTHORITY: &str = "authority";
const AUTHORITY_KEY: &str = "authority-key";

/// Named facts; they outlive the process where there is somebody to keep them.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    known: Mutex<BTreeMap<String, Vec<u8>>>,
    keeper: Option<Keeper>,
}

impl Facts {
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(known.get(name)?.clone()).ok()
    }

    pub(crate) async fn keep(&self, name: &str, value: &[u8]) -> Result<(), NotKept> {
        let kept = self.keeper.as_ref().map(|keeper| keeper.fact(name, value));
        if let Some(kept) = kept {
            kept.await.map_err(|_| NotKept("nobody writes to it any more".into()))?;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Who vouches for the cluster's address, if somebody does yet.
    pub(crate) fn authority(&self) -> Option<Authority> {
        Some(Authority {
            certificate_pem: self.text(AUTHORITY)?,
            key_pem: self.text(AUTHORITY_KEY)?,
        })
    }

    pub(crate) async fn keep_authority(&self, authority: &Authority) -> Result<(), NotKept> {
        self.keep(AUTHORITY_KEY, authority.key_pem.as_bytes()).await?;
        self.keep(AUTHORITY, authority.certificate_pem.as_bytes()).await
    }
}

/// Starts the cluster that a directory holds, or a new one in it.
pub(crate) async fn open(builder: Builder, dir: DataDir) -> Result<Cluster, DataError> {
    match dir.into_parts() {
        (place, Some((database, contents))) => go_on(builder, place, database, contents),
        (place, None) => begin(builder, place).await,
    }
}

async fn begin(mut builder: Builder, place: Place) -> Result<Cluster, DataError> {
    let seed = builder.seed;
    let key = builder.signing_key.get_or_insert_with(|| signing_key_of(seed)).clone();
    let facts = BTreeMap::from([(SIGNING_KEY.to_owned(), key)]);
    let cluster = builder.start();
    // What is kept first is a whole cluster: its nodes belong to it.
    cluster.fleet.caught_up().await;
    let time = cluster.clock().now();
    keep(cluster, place, facts.clone(), |place, revision, objects| {
        place.begin(&Contents {
            revision,
            time,
            objects,
            facts,
        })
    })
}

fn go_on(mut builder: Builder, place: Place, database: Database, contents: Contents) -> Result<Cluster, DataError> {
    // The same seed would give names and uids that are taken.
    builder.seed ^= contents.revision.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Time does not go back, whatever the machine's clock says.
    builder.start = builder.start.max(contents.time);
    builder.signing_key = contents.facts.get(SIGNING_KEY).cloned().or(builder.signing_key);
    let nodes = std::mem::take(&mut builder.nodes);
    let history = builder.history_per_resource;
    let store = Arc::new(Store::restored(history, contents.revision, contents.objects));
    let cluster = builder.over(store.clone());
    serve_custom_kinds(&cluster);
    let cluster = keep(cluster, place, contents.facts, |_, _, _| Ok(database))?;
    cluster.fleet.adopt();
    nodes.into_iter().for_each(|node| cluster.fleet.add(node));
    store.replay();
    Ok(cluster)
}

/// Custom kinds are there from the first request on.
fn serve_custom_kinds(cluster: &Cluster) {
    let definitions = ResourceName::new("apiextensions.k8s.io", "customresourcedefinitions");
    let (store, lineages) = (cluster.store(), custom::lineages());
    for (key, entry) in store.list(&definitions, None).items {
        let definition = entry.value();
        if custom::is_established(&definition) {
            let lineage = store.get(&lineages, &key).map(|entry| entry.value());
            let resumed = |conversion: Conversion| conversion.resumed(&definition, lineage.as_ref(), store.revision());
            let kind = custom::resource(&definition).converting(resumed);
            cluster.server.change_registry(|registry| registry.with(kind));
        }
    }
}

/// From now on what the cluster writes is kept.
fn keep(
    mut cluster: Cluster,
    place: Place,
    facts: BTreeMap<String, Vec<u8>>,
    open: impl FnOnce(&Place, u64, Vec<Stored>) -> Result<Database, DataError>,
) -> Result<Cluster, DataError> {
    let failed = cluster.server.vitals.mourner("disk");
    let keeper = Keeper::start(cluster.store(), cluster.clock(), place, open, failed)?;
    cluster.facts = Facts {
        known: Mutex::new(facts),
        keeper: Some(keeper),
    };
    Ok(cluster)
}
