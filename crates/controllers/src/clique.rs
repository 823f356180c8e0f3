//! A PodClique: its pods, their gates, its status.

use std::collections::BTreeSet;
use std::sync::Arc;

use grove_api::config::ProfileName;
use grove_api::podcliqueset::CliqueStartupType;
use grove_api::{PodClique, PodCliqueStatus, PodGang, labels};
use grove_runtime::{ObjectKey, Outcome};
use grove_workload::availability::{self, minimum, was_scheduled_by};
use grove_workload::diff::Content;
use grove_workload::expand::Expansion;
use grove_workload::gang::{self, CREATE_POD_ERROR, Member};
use grove_workload::meta::uid;
use grove_workload::names::{Place, is_owned_by};
use grove_workload::observed::ObservedPod;
use grove_workload::pod;
use grove_workload::pods::{self, NewPod, Victim};
use grove_workload::status::{self, Failure};
use grove_workload::update::{self, CliqueUpdate, Turn};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::key::Key;
use crate::kinds::{KeptPod, set_shelf};
use crate::set::claim_changes;
use crate::shell::{Shell, Surroundings};
use crate::write::{self, Report, WriteError, in_parallel};
use crate::{backends, events};

const CLAIM_ERROR: &str = "ERR_CREATE_RESOURCE_CLAIM";
const DELETE_POD_ERROR: &str = "ERR_DELETE_POD";
const GATE_ERROR: &str = "ERR_REMOVE_SCHEDULING_GATE";

pub(crate) async fn look(shell: &Shell, key: &ObjectKey) -> Outcome {
    let Some(clique) = shell.view.cliques.get(key) else {
        shell.forget(&Key::Clique(key.clone()));
        return Outcome::Settled;
    };
    if clique.metadata.deletion_timestamp.is_some() {
        // Its pods follow by their owner references.
        let ours = labels::finalizer::PODCLIQUE;
        return shell.release::<PodClique>(&clique, ours).await;
    }
    match Seen::of(shell, clique) {
        Some(seen) => seen.bring_in_order(shell).await,
        None => Outcome::Settled,
    }
}

/// A clique and what its pods depend on.
struct Seen {
    clique: Arc<PodClique>,
    around: Surroundings,
}

impl Seen {
    /// None unless the clique belongs to a set that is there, through every owner in between.
    fn of(shell: &Shell, clique: Arc<PodClique>) -> Option<Self> {
        let Some(Key::Replica(set, replica)) = Key::replica_of(&clique.metadata) else {
            return None;
        };
        let around = Surroundings::of(shell, &set, Some(replica))?;
        let by_set = is_owned_by(&clique.metadata, uid(&*around.set));
        let by_group = || {
            let mut groups = around.groups.iter();
            groups.any(|group| {
                is_owned_by(&clique.metadata, uid(&**group))
                    && is_owned_by(&group.metadata, uid(&*around.set))
                    && group.metadata.deletion_timestamp.is_none()
            })
        };
        (by_set || by_group()).then_some(Self { clique, around })
    }

    async fn bring_in_order(&self, shell: &Shell) -> Outcome {
        let key = Key::Clique(ObjectKey::of(&self.clique.metadata));
        let live = self.around.live();
        let expansion = self.around.expansion(shell, &live);
        let clique = &*self.clique;
        let observed = observed(&shell.pods(clique));
        let Some(place) = Place::of(&self.around.set, clique) else {
            return Outcome::Settled;
        };
        // The group recreates its cliques whole.
        let turn = match place.member {
            None => update::turn(&expansion, place.replica),
            Some(_) => Turn::Nothing,
        };
        let generation = &self.around.facts.hashes.generation;
        let update = update::clique_update(clique, &observed, generation, turn, shell.now());
        let progress = clique.status.as_ref().and_then(|status| status.update_progress.clone());
        if !update.delete.is_empty() && update.progress != progress {
            // Progress goes before the deletions that it names: after a crash in between, it says what is going on.
            let status = self.status(shell, (&observed, &update), &[]);
            // The status that was written is seen at once, and looked at next.
            let result = shell.write_status::<PodClique>(clique, &status).await;
            return write::outcome(result.err().as_slice());
        }

        let plan = pods::plan(clique, &observed);
        let mut victims = plan.delete;
        victims.extend(update.delete.iter().cloned());
        let (failures, errors) = self
            .write_pods(shell, &expansion, (plan.create, victims, &observed))
            .await;
        let outcome = write::outcome(&errors);

        let observed = self::observed(&shell.pods(clique));
        let after = CliqueUpdate {
            delete: vec![],
            ..update
        };
        let status = self.status(shell, (&observed, &after), &failures);
        outcome.and(self.keep_status(shell, &key, status).await)
    }

    fn status(&self, shell: &Shell, pods: (&[ObservedPod], &CliqueUpdate), failures: &[Failure]) -> PodCliqueStatus {
        let live = self.around.live();
        let expansion = self.around.expansion(shell, &live);
        let gang = self.gang(shell, labels::PODGANG);
        status::clique_status(
            &expansion,
            (&*self.clique, gang.as_deref()),
            pods,
            failures,
            shell.now(),
        )
    }

    /// Claims, then pods that are missing; those that must go; gates that come off.
    async fn write_pods(
        &self,
        shell: &Shell,
        expansion: &Expansion<'_>,
        (create, delete, observed): (Vec<NewPod>, Vec<Victim>, &[ObservedPod]),
    ) -> (Vec<Failure>, Vec<WriteError>) {
        let mut errors = self.write_claims(shell, expansion, (&create, observed)).await;
        let (create, waiting) = self.with_claims(shell, expansion, create);
        errors.extend(waiting);
        let mut failures = write::failures(CLAIM_ERROR, &errors);
        let mut note = |code, found: Vec<WriteError>| {
            failures.extend(write::failures(code, &found));
            errors.extend(found);
        };
        note(CREATE_POD_ERROR, self.create_pods(shell, expansion, create).await);
        note(DELETE_POD_ERROR, self.delete_pods(shell, delete).await);
        note(GATE_ERROR, self.lift_gates(shell).await);
        (failures, errors)
    }

    /// The new pods whose claims are there or on their way; and why the others are not made yet.
    fn with_claims(
        &self,
        shell: &Shell,
        expansion: &Expansion<'_>,
        create: Vec<NewPod>,
    ) -> (Vec<NewPod>, Vec<WriteError>) {
        let namespace = self.clique.namespace().unwrap_or_default();
        let is_missing = |claim: &str| {
            let claims = &shell.view.claims;
            claims.get(&ObjectKey::new(namespace.clone(), claim)).is_none()
        };
        let mut errors = Vec::new();
        let mut made = create;
        made.retain(|new| {
            let mut unmade = expansion.unmade_claims(&self.clique, new.index).into_iter();
            match unmade.find(|(claim, _)| is_missing(claim)) {
                None => true,
                Some((claim, (namespace, template))) => {
                    errors.push(WriteError::Refused(format!(
                        "pods wait for ResourceClaim {claim}, and ResourceClaimTemplate {namespace}/{template} does not \
                         exist; create it"
                    )));
                    false
                }
            }
        });
        (made, errors)
    }

    async fn write_claims(
        &self,
        shell: &Shell,
        expansion: &Expansion<'_>,
        (create, observed): (&[NewPod], &[ObservedPod]),
    ) -> Vec<WriteError> {
        let existing = observed.iter().filter(|pod| pod.is_live()).filter_map(|pod| pod.index);
        let mut indices: Vec<i32> = create.iter().map(|pod| pod.index).chain(existing).collect();
        indices.sort_unstable();
        indices.dedup();
        let wanted = expansion.clique_claims(&self.clique, &indices);
        let stored = shell
            .view
            .claims
            .of(&set_shelf(&ObjectKey::of(&self.around.set.metadata)));
        let changes = claim_changes(uid(&*self.clique), wanted, &stored);
        let namespace = self.clique.namespace().unwrap_or_default();
        shell.carry_out(&namespace, changes, Content::Fixed).await
    }

    async fn create_pods(&self, shell: &Shell, expansion: &Expansion<'_>, create: Vec<NewPod>) -> Vec<WriteError> {
        let hash = pods::template_hash(&self.clique);
        if create.is_empty() {
            return vec![];
        }
        if let Some(words) = shell.refusal(&self.clique, hash) {
            return words.into_iter().map(WriteError::Refused).collect();
        }
        let image = &shell.settings.wait_image;
        let made: Vec<_> = create
            .iter()
            .filter_map(|new| pod::pod(expansion, &self.clique, new, image))
            .map(|pod| self.marked(shell, pod))
            .collect();
        let (step, pods) = (shell.begin(&self.around.set), made.len());
        // One pod tells whether the API server takes the template at all.
        let mut made = made.into_iter();
        let first = in_parallel(made.by_ref().take(1).collect(), |pod| self.create_pod(shell, pod)).await;
        if first.iter().any(|error| matches!(error, WriteError::Refused(_))) {
            shell.refuse(&self.clique, hash, first.iter().map(WriteError::to_string).collect());
            step.end("create pods", || self.about(1), &first);
            return first;
        }
        let mut errors = in_parallel(made.collect(), |pod| self.create_pod(shell, pod)).await;
        errors.extend(first);
        step.end("create pods", || self.about(pods), &errors);
        errors
    }

    /// The pod with what the scheduler must find on it.
    fn marked(&self, shell: &Shell, mut pod: Pod) -> Pod {
        let backend = backends::of(self.around.profile(shell));
        if let Some(gang) = self.clique.labels().get(labels::PODGANG) {
            backend.mark_pod(&mut pod, gang, &self.clique.name_any());
        }
        pod
    }

    async fn create_pod(&self, shell: &Shell, pod: Pod) -> Result<(), WriteError> {
        shell.create::<KeptPod>(&pod).await
    }

    async fn delete_pods(&self, shell: &Shell, victims: Vec<Victim>) -> Vec<WriteError> {
        let namespace = self.clique.namespace().unwrap_or_default();
        let delete = |victim: Victim| {
            let key = ObjectKey::new(namespace.clone(), victim.name.clone());
            tracing::info!(pod = %key, uid = victim.uid, reason = ?victim.reason, "deleting a pod");
            async move {
                match victim.as_seen {
                    true => shell.delete_as_seen::<KeptPod>(&key, &victim.uid).await,
                    false => shell.delete::<KeptPod>(&key, &victim.uid).await,
                }
            }
        };
        in_parallel(victims, delete).await
    }

    async fn lift_gates(&self, shell: &Shell) -> Vec<WriteError> {
        if shell.settings.pins && self.around.profile(shell) == ProfileName::DefaultScheduler {
            return vec![];
        }
        let Some(gang) = self.gang(shell, labels::PODGANG) else {
            return vec![];
        };
        let find = |name: &str| {
            self.around
                .cliques
                .iter()
                .find(|clique| clique.name_any() == name)
                .map(|found| &**found)
        };
        let base = self.gang(shell, labels::BASE_PODGANG);
        let base_is_scheduled = base.is_some_and(|base| gang::is_scheduled(&base, find));
        let kept = shell.pods(&self.clique);
        let observed = observed(&kept);
        let member = Member {
            clique: &self.clique,
            pods: &observed,
        };
        let ungated: BTreeSet<String> = gang::ungated(member, &gang, base_is_scheduled)
            .into_iter()
            .map(|pod| pod.uid.clone())
            .collect();
        let gated: Vec<_> = kept.into_iter().filter(|pod| ungated.contains(&pod.seen.uid)).collect();
        let (step, pods) = (shell.begin(&self.around.set), gated.len());
        let errors = in_parallel(gated, |pod: Arc<KeptPod>| self.lift_gate(shell, pod)).await;
        if pods > 0 {
            step.end("lift gates", || self.about(pods), &errors);
        }
        errors
    }

    /// What traces tell of the clique.
    fn about(&self, pods: usize) -> Vec<(&'static str, String)> {
        let gang = self.clique.labels().get(labels::PODGANG).cloned();
        vec![
            ("grove.podgang.name", gang.unwrap_or_default()),
            ("grove.podclique.name", self.clique.name_any()),
            ("grove.pods", pods.to_string()),
        ]
    }

    /// Takes Grove's gate off one pod, if it is still that pod and still that gate.
    async fn lift_gate(&self, shell: &Shell, pod: Arc<KeptPod>) -> Result<(), WriteError> {
        let Some(position) = pod.gate else { return Ok(()) };
        let gate = format!("/spec/schedulingGates/{position}");
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": pod.seen.uid},
            {"op": "test", "path": gate, "value": {"name": labels::SCHEDULING_GATE}},
            {"op": "remove", "path": gate},
        ]);
        let key = ObjectKey::new(self.clique.namespace().unwrap_or_default(), pod.seen.name.clone());
        shell.json_patch::<KeptPod>(&key, patch).await?;
        let wait = crate::until(pod.seen.created_at, shell.now());
        let metrics = &shell.telemetry.metrics;
        metrics.gate_lifted(self.around.profile(shell), wait);
        Ok(())
    }

    /// The gang that a label of the clique names, if it is the set's.
    fn gang(&self, shell: &Shell, label: &str) -> Option<Arc<PodGang>> {
        let name = self.clique.labels().get(label)?;
        let gang = shell.view.gangs.get(&ObjectKey::new(self.clique.namespace()?, name))?;
        is_owned_by(&gang.metadata, uid(&*self.around.set)).then_some(gang)
    }

    async fn keep_status(&self, shell: &Shell, key: &Key, status: PodCliqueStatus) -> Outcome {
        let stored = self.clique.status.as_ref();
        let stored = stored.map(|status| status.last_errors.as_slice()).unwrap_or_default();
        let report = Report {
            is_waited_for: self.is_waited_for(&status),
            notices: events::failures(&*self.clique, stored, &status.last_errors),
            status,
        };
        shell.keep_status::<PodClique>(key, &self.clique, report).await
    }

    /// Whether something can go on as soon as the status says so: scaled gangs, cliques that start later, an update. That
    /// it was scheduled cannot be found out any more when its pods are lost.
    fn is_waited_for(&self, status: &PodCliqueStatus) -> bool {
        let was_scheduled = was_scheduled_by(&self.clique.metadata, &status.conditions);
        if was_scheduled && !availability::was_scheduled(&self.clique) {
            return true;
        }
        let stored = self.clique.status.clone().unwrap_or_default();
        let minimum = minimum(&self.clique);
        let reaches = |before: i32, now: i32| (before < minimum) != (now < minimum);
        let template = &self.around.set.spec.template;
        let has_scaled_gangs = !template.scaling_groups.is_empty();
        let is_ordered = template.clique_startup_type != CliqueStartupType::AnyOrder;
        stored.update_progress != status.update_progress
            || stored.last_errors != status.last_errors
            || (has_scaled_gangs && reaches(stored.scheduled_replicas, status.scheduled_replicas))
            || (is_ordered && reaches(stored.ready_replicas, status.ready_replicas))
    }
}

fn observed(pods: &[Arc<KeptPod>]) -> Vec<ObservedPod> {
    pods.iter().map(|pod| pod.seen.clone()).collect()
}
