//! Numbers of replicas that somebody has set, kept while a gang termination replaces the cliques that had them.
//!
//! They are written onto the base PodGang, which outlives its cliques, before any clique goes: between a deletion and
//! the new clique nothing else in the API knows them.

use std::collections::BTreeMap;

use grove_api::labels::annotation::RECYCLED_REPLICAS;
use grove_api::{PodClique, PodGang};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::Live;
use super::live::template_replicas;
use crate::meta::uid;

/// A clique that is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    uid: String,
    pub(super) replicas: i32,
    /// What the template said.
    pub(super) template: Option<i32>,
}

/// The numbers of cliques that are replaced, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recycled(BTreeMap<String, Entry>);

impl Recycled {
    /// What must be kept of these cliques: those that have another number than their template.
    pub fn of<'a>(cliques: impl IntoIterator<Item = &'a PodClique>) -> Self {
        let entry = |clique: &PodClique| Entry {
            uid: uid(clique).to_owned(),
            replicas: clique.spec.replicas,
            template: template_replicas(&clique.metadata),
        };
        let scaled = cliques
            .into_iter()
            .filter(|clique| template_replicas(&clique.metadata) != Some(clique.spec.replicas));
        Self(scaled.map(|clique| (clique.name_any(), entry(clique))).collect())
    }

    /// As it was written onto a gang; nothing if somebody bent it.
    pub fn on(gang: &PodGang) -> Self {
        let record = gang.annotations().get(RECYCLED_REPLICAS);
        let read = record.and_then(|record| serde_json::from_str(record).ok());
        read.unwrap_or_default()
    }

    /// As it is written onto a gang; none if there is nothing to keep.
    pub fn record(&self) -> Option<String> {
        let record = || serde_json::to_string(self).expect("names and numbers are JSON");
        (!self.0.is_empty()).then(record)
    }

    /// Without those whose successor is there: from then on the number is its own.
    pub fn outstanding(mut self, live: &Live<'_>) -> Self {
        self.0
            .retain(|name, entry| live.clique(name).is_none_or(|clique| uid(clique) == entry.uid));
        self
    }

    pub(super) fn get(&self, clique: &str) -> Option<&Entry> {
        self.0.get(clique)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::TEMPLATE_REPLICAS;
    use crate::fixtures::{clique, expand, podclique, set, settle};

    fn scaled(replicas: i32) -> PodClique {
        let mut clique = podclique("w-0-a", replicas, "h");
        clique.annotations_mut().insert(TEMPLATE_REPLICAS.into(), "2".into());
        clique
    }

    fn gang(recycled: &Recycled) -> PodGang {
        let mut gang = PodGang::new("w-0", Default::default());
        let record = recycled.record().unwrap_or_default();
        gang.annotations_mut().insert(RECYCLED_REPLICAS.into(), record);
        gang
    }

    #[test]
    fn only_what_somebody_scaled_is_kept() {
        assert_eq!(Recycled::of([&scaled(2)]).record(), None);
        let kept = Recycled::of([&scaled(5)]);
        assert_eq!(Recycled::on(&gang(&kept)), kept);
        let mut bent = gang(&kept);
        bent.annotations_mut().insert(RECYCLED_REPLICAS.into(), "{".into());
        assert_eq!(Recycled::on(&bent), Recycled::default());
    }

    /// It counts while the clique is missing, yields to an edit of the template, and is over with the successor.
    #[test]
    fn a_number_is_handed_on_to_the_next_clique_and_no_further() {
        let set = set("w").with_clique(clique("a").sized(2, 2)).build();
        let kept = Recycled::of([&scaled(5)]);
        let template = &set.spec.template.cliques[0];
        let none: (&[PodClique], &[grove_api::PodCliqueScalingGroup]) = (&[], &[]);
        let live = Live::of(&set, none.0, none.1).with_recycled(kept.clone());
        assert_eq!(live.clique_replicas("w-0-a", template), 5);
        let mut edited = template.clone();
        edited.spec.replicas = 3;
        assert_eq!(live.clique_replicas("w-0-a", &edited), 3);

        let (cliques, _) = settle(&set);
        let live = Live::of(&set, &cliques, none.1).with_recycled(kept.clone());
        assert_eq!(live.clique_replicas("w-0-a", template), 2, "it has its own");
        expand(&set, (&cliques, &[]), |expansion| {
            let same = Recycled::of([expansion.live.clique("w-0-a").unwrap()]);
            assert_eq!(same.record(), None);
            let mut successor = kept.clone();
            assert_eq!(successor.clone().outstanding(expansion.live), successor, "not gone yet");
            successor.0.get_mut("w-0-a").unwrap().uid = "another".into();
            assert_eq!(successor.outstanding(expansion.live), Recycled::default());
        });
    }
}
