//! Which hashes the templates of a set have: those that were recorded, for as long as the templates stay the same.
//!
//! A hash is a promise to the pods that carry it: while it stays, they stay. Computing it anew with every release
//! would break the promise as soon as a library knows one field more. So the templates and their hashes are recorded
//! in a ControllerRevision, and a recorded hash is kept when
//!
//! 1. the set's spec is the very one that was last reconciled (its generation says so), whatever its text is now; or
//! 2. the template's canonical text is the recorded one.
//!
//! Without any record, a hash label that existing PodCliques carry is adopted when their content is the template's.
//! The content of a ControllerRevision cannot be changed, so a new record is made and the old one deleted.
//!
//! A record in a form that this release does not know was made by a newer one, which may come back: it is left alone.
//! What it says is read off the PodCliques, whose content that release may have written otherwise: while the set is the
//! one that it last reconciled, the hash that all of a role's PodCliques carry holds.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use grove_api::podcliqueset::PodCliqueTemplate;
use grove_api::{PodClique, PodCliqueSet, labels};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::hash::{canonical_parts, canonical_template, generation_hash, template_hash, with_priority};
use crate::meta::{child_meta, uid};
use crate::names::{self, Place, is_owned_by};

/// The version of the recorded form.
const VERSION: u32 = 1;

/// The hashes of a set's templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    /// Of all templates together.
    pub generation: String,
    /// Of each clique's template, by the clique's name in the set.
    pub cliques: BTreeMap<String, String>,
}

impl Hashes {
    /// The hash of a clique's template; empty for a clique that the set does not have.
    pub fn of(&self, clique: &str) -> &str {
        self.cliques.get(clique).map_or("", String::as_str)
    }
}

/// The hashes that hold, and what to write so that they keep holding.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    pub hashes: Hashes,
    /// The record to create, before any object carries the hashes.
    pub create: Option<ControllerRevision>,
    /// Names of records that are no longer needed, to delete after that.
    pub delete: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    version: u32,
    generation_hash: String,
    cliques: Vec<CliqueRecord>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct CliqueRecord {
    name: String,
    hash: String,
    /// The canonical text of the template.
    template: String,
}

impl Record {
    fn read(revision: &ControllerRevision) -> Option<Self> {
        let record: Self = serde_json::from_value(revision.data.as_ref()?.0.clone()).ok()?;
        (record.version == VERSION).then_some(record)
    }

    fn find(&self, clique: &str) -> Option<&CliqueRecord> {
        self.cliques.iter().find(|record| record.name == clique)
    }

    fn hashes(&self) -> Hashes {
        let cliques = self
            .cliques
            .iter()
            .map(|record| (record.name.clone(), record.hash.clone()));
        Hashes {
            generation: self.generation_hash.clone(),
            cliques: cliques.collect(),
        }
    }
}

/// The hashes of `set`, given the records and the PodCliques in its namespace.
pub fn resolve<R, C>(set: &PodCliqueSet, records: &[R], cliques: &[C]) -> Resolved
where
    R: Borrow<ControllerRevision>,
    C: Borrow<PodClique>,
{
    let owned = || {
        records
            .iter()
            .map(Borrow::borrow)
            .filter(|revision| is_owned_by(&revision.metadata, uid(set)))
    };
    let newest = owned().max_by_key(|revision| (revision.revision, revision.name_any()));
    let recorded = newest.and_then(Record::read);
    let is_newer = newest.is_some_and(is_of_a_newer_release);
    let carried = |template: &PodCliqueTemplate| carried(set, template, cliques).filter(|_| is_newer);

    let hash_of = |template: &PodCliqueTemplate, text: &str| match &recorded {
        Some(record) => {
            let found = record.find(&template.name);
            let kept = found.filter(|found| is_reconciled(set, record) || found.template == text);
            kept.map(|found| found.hash.clone())
        }
        None => adopted(set, template, cliques).or_else(|| carried(template)),
    };
    let current: Vec<CliqueRecord> = set
        .spec
        .template
        .cliques
        .iter()
        .map(|template| {
            let text = canonical_template(set, template);
            let hash = hash_of(template, &text).unwrap_or_else(|| template_hash(&text));
            CliqueRecord {
                name: template.name.clone(),
                hash,
                template: text,
            }
        })
        .collect();

    let mut templates = set.spec.template.cliques.iter().zip(&current);
    let is_carried = templates.all(|(template, record)| carried(template).as_ref() == Some(&record.hash));
    let generation_hash = generation(set, recorded.as_ref(), &current, is_carried);
    let record = Record {
        version: VERSION,
        generation_hash,
        cliques: current,
    };
    let hashes = record.hashes();
    let is_recorded = recorded.as_ref() == Some(&record);
    let number = newest.map_or(0, |revision| revision.revision).saturating_add(1);
    let create = (!is_recorded).then(|| render(set, &record, number));
    let kept = create.as_ref().or(newest).map(ResourceExt::name_any);
    let stale = owned()
        .filter(|revision| !is_of_a_newer_release(revision))
        .map(ResourceExt::name_any)
        .filter(|name| kept.as_ref() != Some(name));
    Resolved {
        hashes,
        delete: stale.collect(),
        create,
    }
}

/// Whether a record has a form that is newer than the one that this release writes.
fn is_of_a_newer_release(revision: &ControllerRevision) -> bool {
    let version = revision.data.as_ref().and_then(|data| data.0["version"].as_u64());
    version.is_some_and(|version| version > u64::from(VERSION))
}

/// Whether the set's spec is the one for which the record was made.
fn is_reconciled(set: &PodCliqueSet, record: &Record) -> bool {
    let status = set.status.as_ref();
    let hash = status.and_then(|status| status.current_generation_hash.as_ref());
    is_observed(set) && hash == Some(&record.generation_hash)
}

/// Whether the set's spec is the one that was last reconciled, by whichever release.
fn is_observed(set: &PodCliqueSet) -> bool {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == set.metadata.generation
}

/// The hash label that all PodCliques of this role carry, if the set has not changed since they got it.
fn carried(set: &PodCliqueSet, template: &PodCliqueTemplate, cliques: &[impl Borrow<PodClique>]) -> Option<String> {
    let of_role = |clique: &&PodClique| {
        is_of(set, clique) && Place::of(set, clique).is_some_and(|place| place.template.name == template.name)
    };
    let mut hashes = cliques
        .iter()
        .map(Borrow::borrow)
        .filter(of_role)
        .map(|clique| clique.labels().get(labels::POD_TEMPLATE_HASH));
    let first = hashes.next()??;
    let is_one = hashes.all(|hash| hash == Some(first));
    (is_one && is_observed(set)).then(|| first.clone())
}

/// A hash label that a PodClique of this role carries, if the PodClique is made from the template as it is now.
fn adopted(set: &PodCliqueSet, template: &PodCliqueTemplate, cliques: &[impl Borrow<PodClique>]) -> Option<String> {
    let text = canonical_parts(
        &users(&template.labels),
        &users(&template.annotations),
        &with_priority(set, &template.spec.pod_spec),
    );
    let same = |clique: &&PodClique| {
        let made = canonical_parts(
            &users(clique.labels()),
            &users(clique.annotations()),
            // Earlier operators left the set's priority out of the PodClique.
            &with_priority(set, &clique.spec.pod_spec),
        );
        Place::of(set, clique).is_some_and(|place| place.template.name == template.name) && made == text
    };
    let mut cliques = cliques.iter().map(Borrow::borrow);
    let found = cliques.find(|clique| is_of(set, clique) && same(clique))?;
    found.labels().get(labels::POD_TEMPLATE_HASH).cloned()
}

/// Labels or annotations without those that operators add.
fn users(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = [labels::MANAGED_BY, labels::PART_OF, labels::COMPONENT, labels::NAME];
    let kept = all
        .iter()
        .filter(|(key, _)| !ours.contains(&key.as_str()) && !key.starts_with("grove.io/"));
    kept.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn is_of(set: &PodCliqueSet, clique: &PodClique) -> bool {
    clique.metadata.deletion_timestamp.is_none() && clique.labels().get(labels::PART_OF) == Some(&set.name_any())
}

/// The hash of all templates is kept with the hashes that it stands for.
fn generation(set: &PodCliqueSet, recorded: Option<&Record>, current: &[CliqueRecord], is_carried: bool) -> String {
    let hashes: BTreeMap<String, String> = current
        .iter()
        .map(|record| (record.name.clone(), record.hash.clone()))
        .collect();
    match recorded {
        Some(record) if record.hashes().cliques == hashes => return record.generation_hash.clone(),
        Some(_) => {}
        None => {
            let stored = set
                .status
                .as_ref()
                .and_then(|status| status.current_generation_hash.clone());
            let all_adopted = current
                .iter()
                .all(|record| record.hash != template_hash(&record.template));
            if let Some(stored) = stored.filter(|_| all_adopted || is_carried) {
                return stored;
            }
        }
    }
    generation_hash(&hashes)
}

fn render(set: &PodCliqueSet, record: &Record, number: i64) -> ControllerRevision {
    let data = serde_json::to_value(record).expect("texts and numbers are JSON");
    let name = names::revision(&set.name_any(), &data.to_string());
    ControllerRevision {
        metadata: child_meta(set, &name, None),
        data: Some(RawExtension(data)),
        revision: number,
    }
}

#[cfg(test)]
mod tests {
    use grove_api::PodCliqueSetStatus;

    use super::*;
    use crate::fixtures::{clique, set};

    fn resolve(set: &PodCliqueSet, records: &[ControllerRevision], cliques: &[PodClique]) -> Resolved {
        super::resolve(set, records, cliques)
    }

    fn two_roles() -> PodCliqueSet {
        set("a").with_clique(clique("fe")).with_clique(clique("be")).build()
    }

    /// The set after a clean pass.
    fn reconciled(mut set: PodCliqueSet, hashes: &Hashes) -> PodCliqueSet {
        set.status = Some(PodCliqueSetStatus {
            observed_generation: set.metadata.generation,
            current_generation_hash: Some(hashes.generation.clone()),
            ..PodCliqueSetStatus::default()
        });
        set
    }

    fn edit(record: &ControllerRevision, change: impl FnOnce(&mut Record)) -> ControllerRevision {
        let mut changed = Record::read(record).unwrap();
        change(&mut changed);
        let data = Some(RawExtension(serde_json::to_value(changed).unwrap()));
        ControllerRevision { data, ..record.clone() }
    }

    #[test]
    fn a_recorded_template_keeps_its_hash_and_only_a_changed_one_gets_another() {
        let mut set = two_roles();
        let first = resolve(&set, &[], &[]);
        let record = first.create.unwrap();
        assert_eq!(
            record.name_any(),
            names::revision("a", &record.data.clone().unwrap().0.to_string())
        );

        let again = resolve(&set, std::slice::from_ref(&record), &[]);
        assert_eq!(again.hashes, first.hashes);
        assert!(again.create.is_none() && again.delete.is_empty());

        set.spec.template.cliques[1].spec.pod_spec.containers[0].image = Some("registry.example/app:2".into());
        let changed = resolve(&set, std::slice::from_ref(&record), &[]);
        assert_eq!(changed.hashes.of("fe"), first.hashes.of("fe"));
        assert_ne!(changed.hashes.of("be"), first.hashes.of("be"));
        assert_ne!(changed.hashes.generation, first.hashes.generation);
        assert_eq!(changed.create.unwrap().revision, 2);
        assert_eq!(changed.delete, [record.name_any()]);
    }

    /// Invariant 8.
    #[test]
    fn an_operator_that_hashes_differently_rolls_nothing() {
        // The record of an earlier release: other hashes, made by another algorithm.
        let set = two_roles();
        let old = edit(&resolve(&set, &[], &[]).create.unwrap(), |record| {
            record.generation_hash = "old".into();
            for clique in &mut record.cliques {
                clique.hash = format!("old-{}", clique.name);
            }
        });
        let kept = resolve(&set, std::slice::from_ref(&old), &[]);
        assert_eq!(kept.hashes.generation, "old");
        assert_eq!(kept.hashes.of("fe"), "old-fe");
        assert!(kept.create.is_none());
    }

    #[test]
    fn a_library_that_knows_more_fields_rolls_nothing_either() {
        let plain = two_roles();
        let first = resolve(&plain, &[], &[]);
        // The earlier release did not know a field that was in the manifest all the time.
        let blind = edit(&first.create.unwrap(), |record| {
            record.cliques[0].template = "{}".into()
        });
        let set = reconciled(plain, &first.hashes);
        let seeing = resolve(&set, std::slice::from_ref(&blind), &[]);
        assert_eq!(seeing.hashes, first.hashes);

        // What it sees now is recorded, so that a later change of the replicas does not look like a new template.
        let mut scaled = set.clone();
        scaled.spec.replicas = 5;
        scaled.metadata.generation = Some(2);
        let later = resolve(&scaled, &[seeing.create.unwrap()], &[]);
        assert_eq!(later.hashes, first.hashes);
        assert!(later.create.is_none());
    }

    /// A PodClique of the set in this replica.
    fn made(set: &PodCliqueSet, replica: i32, name: &str, hash: &str) -> PodClique {
        let mut templates = set.spec.template.cliques.iter();
        let template = templates.find(|clique| clique.name == name).unwrap();
        let mut clique = PodClique::new(&names::podclique("a", replica, name), template.spec.clone());
        clique.metadata.labels = Some(BTreeMap::from([
            (labels::PART_OF.to_owned(), "a".to_owned()),
            (labels::PCS_REPLICA_INDEX.to_owned(), replica.to_string()),
            (labels::POD_TEMPLATE_HASH.to_owned(), hash.to_owned()),
        ]));
        clique
    }

    /// Invariant 8, the other way: somebody goes back to this release, and later forward again.
    #[test]
    fn a_record_of_a_newer_release_is_left_alone_and_its_hashes_hold() {
        let set = two_roles();
        let mut newer = resolve(&set, &[], &[]).create.unwrap();
        newer.data = Some(RawExtension(serde_json::json!({"version": VERSION + 1, "all": "new"})));
        // What that release made of the templates is not what this one would make.
        let mut cliques = ["fe", "be"].map(|name| made(&set, 0, name, &format!("new-{name}")));
        for clique in &mut cliques {
            clique.spec.pod_spec.node_name = Some("of-a-newer-field".into());
        }
        let stored = Hashes {
            generation: "new-all".into(),
            ..Hashes::default()
        };
        let set = reconciled(set, &stored);
        let back = resolve(&set, std::slice::from_ref(&newer), &cliques);
        let hashes = &back.hashes;
        assert_eq!(
            (hashes.of("fe"), hashes.of("be"), &*hashes.generation),
            ("new-fe", "new-be", "new-all")
        );
        assert!(back.delete.is_empty(), "it is not ours to delete");
        let ours = back.create.unwrap();
        assert_eq!(ours.revision, newer.revision + 1);

        // From now on there is a record that can be read; the other one stays where it is.
        let mut changed = set.clone();
        changed.metadata.generation = Some(7);
        changed.spec.template.cliques[0].spec.pod_spec.containers[0].image = Some("registry.example/app:2".into());
        let next = resolve(&changed, &[newer.clone(), ours.clone()], &cliques);
        assert_eq!(next.hashes.of("be"), "new-be");
        assert_ne!(next.hashes.of("fe"), "new-fe");
        assert_eq!(next.delete, [ours.name_any()]);

        // Where the set has changed since, or an update was under way, nobody can tell: templates get our own hashes.
        let unseen = resolve(&changed, std::slice::from_ref(&newer), &cliques);
        assert_eq!(
            unseen.hashes.of("fe"),
            template_hash(&canonical_template(&changed, &changed.spec.template.cliques[0]))
        );
        let mut mixed = cliques.to_vec();
        mixed.push(made(&set, 1, "fe", "older-fe"));
        mixed[2].spec.pod_spec.node_name = Some("of-a-newer-field".into());
        assert_ne!(resolve(&set, &[newer], &mixed).hashes.of("fe"), "new-fe");
    }

    #[test]
    fn hash_labels_of_existing_cliques_are_adopted() {
        let mut set = two_roles();
        set.spec.template.priority_class_name = Some("high".into());
        let cliques = [made(&set, 0, "fe", "go-fe"), made(&set, 0, "be", "go-be")];
        let mut taken_over = set.clone();
        taken_over.status = Some(PodCliqueSetStatus {
            current_generation_hash: Some("go-all".into()),
            ..PodCliqueSetStatus::default()
        });
        let hashes = resolve(&taken_over, &[], &cliques).hashes;
        assert_eq!(
            (hashes.of("fe"), hashes.of("be"), hashes.generation.as_str()),
            ("go-fe", "go-be", "go-all")
        );

        // What differs from the template is outdated and keeps its own hash.
        let mut stale = cliques.clone();
        stale[0].spec.pod_spec.containers[0].image = Some("registry.example/app:0".into());
        let hashes = resolve(&taken_over, &[], &stale).hashes;
        assert_ne!(hashes.of("fe"), "go-fe");
        assert_eq!(hashes.of("be"), "go-be");
        assert_ne!(hashes.generation, "go-all");
    }

    #[test]
    fn records_of_another_set_of_the_same_name_and_unreadable_ones_are_ignored() {
        let set = two_roles();
        let first = resolve(&set, &[], &[]);
        let mut foreign = edit(&first.create.clone().unwrap(), |record| {
            record.cliques[0].hash = "foreign".into()
        });
        foreign.metadata.owner_references.as_mut().unwrap()[0].uid = "deleted-long-ago".into();
        let mut torn = first.create.clone().unwrap();
        torn.data = Some(RawExtension(serde_json::json!({"version": "x"})));
        assert_eq!(resolve(&set, &[foreign], &[]).hashes, first.hashes);
        let mended = resolve(&set, &[torn.clone()], &[]);
        assert_eq!(mended.hashes, first.hashes);
    }
}
