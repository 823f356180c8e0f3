//! What the scheduler says of a gang in its status: placed and where, or not and why.
//!
//! Owns the words and the shape of the scheduler's own fields (`Scheduled`, `placement`, `placementScore`, `pending`), and
//! the patch that writes them and nothing else. When to say it is decided elsewhere.

use grove_api::PodGang;
use grove_api::conditions::podgang::SCHEDULED;
use grove_api::podgang::{NearestDomain, PendingExplanation, ScopePlacement, Waiting};
use grove_placement::{Nearest, Proof, ScopeReport, Standing};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

/// Reason of `Scheduled=True`.
pub const PLACED: &str = "Placed";
/// Reason of `Scheduled=False` for a gang that was placed whole and has lost members since. Nobody takes its other pods
/// away for that: what becomes of it is the operator's decision.
pub use grove_api::conditions::podgang::scheduled::MEMBERS_MISSING;

/// The message of a gang that is placed begins so.
const WHOLE: &str = "Every pod-group has its minimum of pods on nodes";

/// Reasons of a pending gang that are not a proof of the engine.
pub mod reason {
    pub const TOPOLOGY_UNAVAILABLE: &str = "TopologyUnavailable";
    pub const NOT_FORMED: &str = "NotFormed";
    pub const UNSUPPORTED: &str = "Unsupported";
    pub const PREEMPTING: &str = "Preempting";
    pub const QUEUED: &str = "Queued";
}

/// The longest sentence that the schema takes.
const MESSAGE_MAX: usize = 512;
/// Bytes of an explanation: it is a part of every copy of the status.
const PENDING_MAX: usize = 2000;
/// Domains that are listed by name; a gang that is spread wider is told by its broader levels.
const DOMAINS_MAX: usize = 16;

/// The scheduler's fields of a gang's status.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub is_scheduled: bool,
    pub reason: String,
    pub message: String,
    pub placement: Vec<ScopePlacement>,
    pub score: Option<f64>,
    pub pending: Option<PendingExplanation>,
}

impl Statement {
    /// The gang has its minimum on nodes.
    /// `regret` says what it prefers and could not have.
    pub fn placed(scopes: &[ScopeReport], score: f64, regret: Option<&str>) -> Self {
        let regret = regret.map(|regret| format!("; {regret}")).unwrap_or_default();
        Self {
            is_scheduled: true,
            reason: PLACED.to_owned(),
            message: shortened(format!("{WHOLE}{regret}")),
            placement: placement(scopes),
            score: Some(score),
            pending: None,
        }
    }

    /// Takes over the regret of what was said before of the same placement: it was found when that was chosen, and
    /// cannot be found again.
    pub fn keep_regret(&mut self, before: Self) {
        let is_same_place = before.is_scheduled && (&before.placement, before.score) == (&self.placement, self.score);
        if is_same_place && before.message.starts_with(WHOLE) {
            self.message = before.message;
        }
    }

    /// The gang is not placed.
    pub fn pending(pending: PendingExplanation) -> Self {
        Self {
            is_scheduled: false,
            reason: pending.reason.clone(),
            message: pending.message.clone(),
            placement: Vec::new(),
            score: None,
            pending: Some(pending),
        }
    }

    /// The same, for a gang that was placed whole before.
    pub fn members_missing(self) -> Self {
        Self {
            reason: MEMBERS_MISSING.to_owned(),
            ..self
        }
    }

    /// What the stored status says; none if no scheduler has said anything yet.
    pub fn stored(gang: &PodGang) -> Option<Self> {
        let status = gang.status.as_ref()?;
        let scheduled = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == SCHEDULED)?;
        Some(Self {
            is_scheduled: scheduled.status == "True",
            reason: scheduled.reason.clone(),
            message: scheduled.message.clone(),
            placement: status.placement.clone(),
            score: status.placement_score,
            pending: status.pending.clone(),
        })
    }

    /// Whether it tells a reader nothing that `other` did not: when something was found is no news.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let undated = |statement: &Self| {
            let mut statement = statement.clone();
            statement
                .pending
                .iter_mut()
                .for_each(|pending| pending.decided_at = None);
            statement
        };
        undated(self) == undated(other)
    }

    /// The status as it is applied under the scheduler's own name: fields that are left out are taken back.
    pub fn apply_patch(&self, gang: &PodGang, now: Timestamp) -> Value {
        let status = if self.is_scheduled { "True" } else { "False" };
        let conditions = gang.status.iter().flat_map(|status| &status.conditions);
        let mut same = conditions.filter(|condition| condition.type_ == SCHEDULED && condition.status == status);
        let since = same
            .next()
            .map_or(Time(now), |condition| condition.last_transition_time.clone());
        let mut fields = json!({"conditions": [{
            "type": SCHEDULED, "status": status, "reason": self.reason, "message": self.message,
            "observedGeneration": gang.metadata.generation, "lastTransitionTime": since,
        }]});
        if !self.placement.is_empty() {
            fields["placement"] = json!(self.placement);
        }
        if let Some(score) = self.score {
            fields["placementScore"] = json!(score);
        }
        if let Some(pending) = &self.pending {
            let dated = PendingExplanation {
                decided_at: Some(Time(now)),
                ..pending.clone()
            };
            fields["pending"] = json!(dated);
        }
        json!({
            "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang",
            "metadata": {"name": gang.name_any(), "namespace": gang.namespace(), "uid": gang.uid()},
            "status": fields,
        })
    }
}

/// A reason without a proof.
pub fn because(reason: &str, message: String, waiting: Waiting) -> PendingExplanation {
    PendingExplanation {
        reason: reason.to_owned(),
        message: shortened(message),
        waiting,
        ..PendingExplanation::default()
    }
}

/// A proof as the status holds it, with those who hold the nearest domains.
pub fn proven(proof: &Proof, blockers: Vec<Vec<String>>) -> PendingExplanation {
    let nearest = |(nearest, blockers): (&Nearest, Vec<String>)| NearestDomain {
        domain: nearest.domain.clone(),
        free: format!(
            "room for {} of {} pods of {}",
            nearest.room, nearest.wanted, nearest.pod_group
        ),
        missing: match nearest.wanted.saturating_sub(nearest.room) {
            0 => "room for all of them together".to_owned(),
            1 => "room for 1 pod".to_owned(),
            pods => format!("room for {pods} pods"),
        },
        blockers,
    };
    let mut excluded = std::collections::BTreeMap::new();
    for (obstacle, nodes) in proof.nearest.iter().flat_map(|nearest| &nearest.nodes) {
        *excluded.entry(format!("nodes {obstacle}")).or_insert(0) += i32::try_from(*nodes).unwrap_or(i32::MAX);
    }
    let mut pending = PendingExplanation {
        reason: format!("{:?}", proof.reason),
        message: shortened(proof.sentence.clone()),
        waiting: match proof.reason.waiting() {
            grove_placement::Waiting::Helps => Waiting::Wait,
            grove_placement::Waiting::NeedsAction => Waiting::Act,
            grove_placement::Waiting::Futile => Waiting::Never,
        },
        level: proof.level.clone(),
        need: Some(shortened(proof.need.clone())),
        considered: i32::try_from(proof.considered).ok(),
        excluded,
        nearest: proof.nearest.iter().zip(blockers).map(nearest).collect(),
        would_fit_if: proof.would_fit_if.clone(),
        decided_at: None,
    };
    // The best domains are told first, so the last are missed least.
    while json!(pending).to_string().len() > PENDING_MAX && pending.nearest.pop().is_some() {}
    pending
}

/// For each scope: the level that it requires, the narrowest level at which it is whole, and the level that it prefers
/// where that is missed.
fn placement(scopes: &[ScopeReport]) -> Vec<ScopePlacement> {
    let mut placement: Vec<ScopePlacement> = Vec::new();
    for scope in scopes {
        let is_whole = |(_, domains): &&(String, Vec<String>)| domains.len() == 1;
        let narrowest = scope.domains.iter().rfind(is_whole).map(|(word, _)| word);
        let missed = scope.preferred.as_ref().filter(|_| scope.standing == Standing::Missed);
        let told = [scope.required.as_ref(), narrowest, missed];
        let is_told = |word: &String| told.contains(&Some(word));
        let told = scope
            .domains
            .iter()
            .filter(|(word, domains)| is_told(word) && domains.len() <= DOMAINS_MAX);
        placement.extend(told.map(|(word, domains)| ScopePlacement {
            scope: scope.name.clone(),
            level: word.clone(),
            domains: domains.clone(),
        }));
    }
    placement
}

fn shortened(mut message: String) -> String {
    if message.len() > MESSAGE_MAX {
        let ellipsis = " …";
        message.truncate(message.floor_char_boundary(MESSAGE_MAX - ellipsis.len()));
        message.push_str(ellipsis);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(required: Option<&str>, preferred: Option<&str>, standing: Standing) -> ScopeReport {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        ScopeReport {
            name: "g".to_owned(),
            required: required.map(str::to_owned),
            preferred: preferred.map(str::to_owned),
            standing,
            domains: vec![
                ("zone".to_owned(), names(&["z1"])),
                ("block".to_owned(), names(&["b1"])),
                ("rack".to_owned(), names(&["r1", "r2"])),
                ("host".to_owned(), names(&["h1", "h2", "h3"])),
            ],
        }
    }

    #[test]
    fn a_scope_tells_what_it_requires_how_narrow_it_is_and_what_it_misses() {
        let told = placement(&[scope(Some("zone"), Some("rack"), Standing::Missed)]);
        let told: Vec<(&str, usize)> = told
            .iter()
            .map(|place| (place.level.as_str(), place.domains.len()))
            .collect();
        assert_eq!(told, [("zone", 1), ("block", 1), ("rack", 2)]);
        let free = placement(&[scope(None, None, Standing::Indifferent)]);
        assert_eq!(
            free.iter().map(|place| place.level.as_str()).collect::<Vec<_>>(),
            ["block"]
        );
    }

    #[test]
    fn what_is_stored_reads_back_as_it_was_said() {
        let now = Timestamp::UNIX_EPOCH;
        let pending = because(reason::NOT_FORMED, "ä".repeat(600), Waiting::Wait);
        assert!(pending.message.len() <= MESSAGE_MAX && pending.message.ends_with('…'));
        for said in [
            Statement::pending(pending),
            Statement::placed(&[scope(Some("zone"), None, Standing::Indifferent)], 1.0, None),
        ] {
            let mut gang = PodGang::new("g", grove_api::PodGangSpec::default());
            let patch = said.apply_patch(&gang, now);
            let mut status = patch["status"].clone();
            status["phase"] = json!("Pending");
            gang.status = Some(serde_json::from_value(status).unwrap());
            let read = Statement::stored(&gang).unwrap();
            assert!(read.says_the_same(&said), "{read:?}");
        }
    }

    #[test]
    fn what_a_gang_could_not_have_is_said_as_long_as_it_stays() {
        let spread = || [scope(Some("zone"), Some("rack"), Standing::Missed)];
        let first = Statement::placed(&spread(), 0.5, Some("no rack had room"));
        assert!(first.message.ends_with("; no rack had room"));
        let mut again = Statement::placed(&spread(), 0.5, None);
        again.keep_regret(first.clone());
        assert_eq!(again, first);
        let mut moved = Statement::placed(&spread(), 1.0, None);
        moved.keep_regret(first);
        assert_eq!(moved.message, WHOLE);
    }

    #[test]
    fn the_time_of_a_transition_stays_while_the_status_does() {
        let mut gang = PodGang::new("g", grove_api::PodGangSpec::default());
        let said = Statement::pending(because(reason::QUEUED, "later".to_owned(), Waiting::Wait));
        let first = said.apply_patch(&gang, Timestamp::UNIX_EPOCH)["status"].clone();
        gang.status = Some(serde_json::from_value(first.clone()).unwrap());
        let later = Timestamp::from_second(60).unwrap();
        let time = |status: &Value| status["conditions"][0]["lastTransitionTime"].clone();
        assert_eq!(time(&said.apply_patch(&gang, later)["status"]), time(&first));
        let placed = Statement::placed(&[], 1.0, None).apply_patch(&gang, later);
        assert_ne!(time(&placed["status"]), time(&first));
    }
}
