//! `topologyAwareScheduling`, also in its first spelling `topology`: the levels of the cluster, or the TopologyDomain
//! that holds them, and the policies where successive designs of Grove differ.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::names::{is_dns_label, is_dns_subdomain, is_label_key};
use super::section::{Section, one_of, shown};
use super::words::words;
use crate::topology::{DEFAULT_TOPOLOGY_NAME, DomainWord, HOSTNAME_LABEL, TopologyLevel};

/// The bound of the ClusterTopology schema, which these levels end up in.
const LEVEL_KEY_CHARS_MAX: usize = 63;

words! {
    /// Which workloads get a best-effort wish for the narrowest level.
    pub enum PreferredPacking { Constrained = "Constrained", Always = "Always", Never = "Never" }
}
words! {
    /// Whether the topology constraints of a workload can be changed after its creation.
    pub enum ConstraintUpdates { Immutable = "Immutable", UnscheduledOnly = "UnscheduledOnly" }
}
words! {
    /// Where a workload grows when its domain is full.
    pub enum ScaleOut { SameDomain = "SameDomain", SpillOver = "SpillOver" }
}
words! {
    /// What the start of the operator does without the named TopologyDomain.
    pub enum OnTopologyMissingAtStart { Fail = "Fail", Disable = "Disable" }
}
words! {
    /// Which new workloads are refused while the named TopologyDomain is missing.
    pub enum OnTopologyMissing { RejectConstrained = "RejectConstrained", RejectAll = "RejectAll" }
}
words! {
    /// What happens when a scheduler's own topology resource cannot be written at start.
    pub enum OnBackendTopologyFailure { Retry = "Retry", Exit = "Exit" }
}
words! {
    /// The word in the file; [`TopologySource`] is what it comes to.
    enum SourceKind { ClusterTopology = "ClusterTopology", TopologyDomain = "TopologyDomain" }
}

/// Where the levels come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "source", rename_all_fields = "camelCase")]
pub enum TopologySource {
    /// `grove-topology`, made from these levels, and the ClusterTopologies that admins create.
    ClusterTopology {
        /// In the order of the file. Empty exactly when topology-aware scheduling is disabled: levels of a disabled
        /// block are neither judged nor kept.
        levels: Vec<TopologyLevel>,
    },
    /// One TopologyDomain, by name.
    TopologyDomain {
        topology_domain_name: String,
        on_topology_missing_at_start: OnTopologyMissingAtStart,
        on_topology_missing: OnTopologyMissing,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyAwareScheduling {
    pub enabled: bool,
    #[serde(flatten)]
    pub source: TopologySource,
    pub preferred_packing: PreferredPacking,
    pub constraint_updates: ConstraintUpdates,
    pub scale_out: ScaleOut,
    /// Filled into workloads that have no constraint at all.
    pub default_pack_domain: Option<String>,
    /// Only the operator may write `grove-topology`.
    pub protect_default_topology: bool,
    pub on_backend_topology_failure: OnBackendTopologyFailure,
}

impl TopologyAwareScheduling {
    /// `flag` is the value of `--topology-domain-name`.
    pub(super) fn read(root: &mut Section<'_>, flag: Option<&str>, warnings: &mut Vec<String>) -> Self {
        if let Some(name) = flag.filter(|name| !is_dns_subdomain(name)) {
            let message = format!("must be the name of a TopologyDomain, not {}", shown(&name.into()));
            root.problem_at("--topology-domain-name", message);
        }
        let is_old_spelling = root.has("topology");
        if is_old_spelling && root.has("topologyAwareScheduling") {
            let message = "cannot be set beside topologyAwareScheduling, which is the same; move its settings there";
            root.problem("topology", message.into());
        }
        if is_old_spelling {
            warnings.push("topology: this spelling is deprecated; rename it to topologyAwareScheduling".into());
            let from_old = root.section("topology", |section| {
                judge_old_name(section);
                Self::read_block(section, flag, Spelling::Old)
            });
            if !root.has("topologyAwareScheduling") {
                return from_old;
            }
        }
        root.section("topologyAwareScheduling", |section| {
            Self::read_block(section, flag, Spelling::Current)
        })
    }

    fn read_block(section: &mut Section<'_>, flag: Option<&str>, spelling: Spelling) -> Self {
        let enabled = section.or("enabled", false) || flag.is_some();
        let levels = section.list("levels", |level| (level.required("domain"), level.required("key")));
        let mut policies = Policies::default();
        if spelling == Spelling::Current {
            policies = Policies::read(section);
        }
        let source = match (policies.source, flag) {
            (SourceKind::ClusterTopology, None) => cluster_topology(section, enabled, &levels, &policies),
            (_, flag) => topology_domain(section, flag, !levels.is_empty(), &policies),
        };
        judge_default_pack_domain(section, enabled, &source, policies.default_pack_domain.as_deref());
        Self {
            enabled,
            source,
            preferred_packing: policies.preferred_packing,
            constraint_updates: policies.constraint_updates,
            scale_out: policies.scale_out,
            default_pack_domain: policies.default_pack_domain,
            protect_default_topology: policies.protect_default_topology,
            on_backend_topology_failure: policies.on_backend_topology_failure,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Current,
    /// `topology`, which knows `enabled`, `levels` and `name` only.
    Old,
}

/// The settings that the current spelling adds, as they stand in the file.
struct Policies {
    source: SourceKind,
    topology_domain_name: Option<String>,
    on_topology_missing_at_start: Option<OnTopologyMissingAtStart>,
    on_topology_missing: Option<OnTopologyMissing>,
    preferred_packing: PreferredPacking,
    constraint_updates: ConstraintUpdates,
    scale_out: ScaleOut,
    default_pack_domain: Option<String>,
    protect_default_topology: bool,
    on_backend_topology_failure: OnBackendTopologyFailure,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            source: SourceKind::ClusterTopology,
            topology_domain_name: None,
            on_topology_missing_at_start: None,
            on_topology_missing: None,
            preferred_packing: PreferredPacking::Constrained,
            constraint_updates: ConstraintUpdates::Immutable,
            scale_out: ScaleOut::SameDomain,
            default_pack_domain: None,
            protect_default_topology: true,
            on_backend_topology_failure: OnBackendTopologyFailure::Retry,
        }
    }
}

impl Policies {
    fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        Self {
            source: section.or("source", default.source),
            topology_domain_name: section.optional("topologyDomainName"),
            on_topology_missing_at_start: section.optional("onTopologyMissingAtStart"),
            on_topology_missing: section.optional("onTopologyMissing"),
            preferred_packing: section.or("preferredPacking", default.preferred_packing),
            constraint_updates: section.or("constraintUpdates", default.constraint_updates),
            scale_out: section.or("scaleOut", default.scale_out),
            default_pack_domain: section.optional("defaultPackDomain"),
            protect_default_topology: section.or("protectDefaultTopology", default.protect_default_topology),
            on_backend_topology_failure: section.or("onBackendTopologyFailure", default.on_backend_topology_failure),
        }
    }
}

/// The old spelling could name the topology; the name has since become fixed.
fn judge_old_name(section: &mut Section<'_>) {
    if let Some(name) = section
        .optional::<String>("name")
        .filter(|name| name != DEFAULT_TOPOLOGY_NAME)
    {
        let name = shown(&name.into());
        let message = format!("must be {DEFAULT_TOPOLOGY_NAME}, not {name}; create a ClusterTopology for other names");
        section.problem("name", message);
    }
}

/// Domain and key of a level as they stand in the file; `None` where that is already a problem.
type RawLevel = (Option<String>, Option<String>);

fn cluster_topology(
    section: &mut Section<'_>,
    enabled: bool,
    levels: &[(usize, RawLevel)],
    policies: &Policies,
) -> TopologySource {
    let only_for_topology_domain = [
        ("topologyDomainName", policies.topology_domain_name.is_some()),
        (
            "onTopologyMissingAtStart",
            policies.on_topology_missing_at_start.is_some(),
        ),
        ("onTopologyMissing", policies.on_topology_missing.is_some()),
    ];
    for (key, is_set) in only_for_topology_domain {
        if is_set {
            let message = "has no effect without source: TopologyDomain; set that too, or remove it";
            section.problem(key, message.into());
        }
    }
    TopologySource::ClusterTopology {
        levels: if enabled {
            judged_levels(section, levels)
        } else {
            Vec::new()
        },
    }
}

fn topology_domain(
    section: &mut Section<'_>,
    flag: Option<&str>,
    has_levels: bool,
    policies: &Policies,
) -> TopologySource {
    if has_levels {
        let setting = if flag.is_some() {
            "--topology-domain-name"
        } else {
            "source: TopologyDomain"
        };
        let message =
            format!("cannot be set with {setting}, whose TopologyDomain holds the levels; remove one of the two");
        section.problem("levels", message);
    }
    let name = flag
        .map(str::to_owned)
        .or_else(|| policies.topology_domain_name.clone());
    match &name {
        None => {
            let message = "missing; source: TopologyDomain needs the name of the TopologyDomain to use";
            section.problem("topologyDomainName", message.into());
        }
        Some(name) if flag.is_none() && !is_dns_subdomain(name) => {
            let message = format!(
                "must be the name of a TopologyDomain, not {}",
                shown(&name.as_str().into())
            );
            section.problem("topologyDomainName", message);
        }
        Some(_) => {}
    }
    TopologySource::TopologyDomain {
        topology_domain_name: name.unwrap_or_default(),
        on_topology_missing_at_start: policies
            .on_topology_missing_at_start
            .unwrap_or(OnTopologyMissingAtStart::Fail),
        on_topology_missing: policies
            .on_topology_missing
            .unwrap_or(OnTopologyMissing::RejectConstrained),
    }
}

fn judged_levels(section: &mut Section<'_>, levels: &[(usize, RawLevel)]) -> Vec<TopologyLevel> {
    let words = DomainWord::ALL.len();
    if levels.is_empty() {
        let message = "at least one level is needed when topology-aware scheduling is enabled; \
                       add a domain and the node label key that tells it, or set enabled: false";
        section.problem("levels", message.into());
    }
    if levels.len() > words {
        section.problem(
            "levels",
            format!(
                "{} levels, but there are only {words} domains; remove some",
                levels.len()
            ),
        );
    }
    let mut judged = Vec::new();
    let (mut domains, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for (index, (domain, key)) in levels {
        let domain = domain
            .as_deref()
            .and_then(|word| judged_domain(section, *index, word, &mut domains));
        let Some(key) = key else { continue };
        judge_key(section, *index, key, domain);
        if let Some(first) = keys.insert(key.as_str(), index) {
            let message = format!(
                "duplicate topology key '{}' in configuration; it is that of levels[{first}]",
                plain(key)
            );
            section.problem(&format!("levels[{index}].key"), message);
        }
        judged.extend(domain.map(|domain| TopologyLevel {
            domain,
            key: key.clone(),
        }));
    }
    judged
}

fn judged_domain(
    section: &mut Section<'_>,
    index: usize,
    word: &str,
    seen: &mut BTreeMap<DomainWord, usize>,
) -> Option<DomainWord> {
    let path = format!("levels[{index}].domain");
    let Some(domain) = word.parse().ok() else {
        let message = format!(
            "must be {}, not {}",
            one_of(&DomainWord::ALL.map(DomainWord::as_str)),
            shown(&word.into())
        );
        section.problem(&path, message);
        return None;
    };
    if let Some(first) = seen.insert(domain, index) {
        section.problem(
            &path,
            format!("duplicate topology domain '{word}' in configuration; it is that of levels[{first}]"),
        );
    }
    Some(domain)
}

fn judge_key(section: &mut Section<'_>, index: usize, key: &str, domain: Option<DomainWord>) {
    let path = format!("levels[{index}].key");
    let value = shown(&Value::from(key));
    if !is_label_key(key) {
        section.problem(
            &path,
            format!("must be a node label key such as topology.kubernetes.io/rack, not {value}"),
        );
    } else if key.len() > LEVEL_KEY_CHARS_MAX {
        section.problem(
            &path,
            format!(
                "must have at most {LEVEL_KEY_CHARS_MAX} characters, not the {} of {value}",
                key.len()
            ),
        );
    } else if domain == Some(DomainWord::Host) && key != HOSTNAME_LABEL {
        let message = format!("must be {HOSTNAME_LABEL} for domain host, which the kubelet sets, not {value}");
        section.problem(&path, message);
    }
}

fn judge_default_pack_domain(section: &mut Section<'_>, enabled: bool, source: &TopologySource, domain: Option<&str>) {
    let Some(domain) = domain else { return };
    let value = shown(&domain.into());
    match source {
        TopologySource::ClusterTopology { levels } if enabled => {
            let words: Vec<&str> = levels.iter().map(|level| level.domain.as_str()).collect();
            if !words.is_empty() && !words.contains(&domain) {
                let message = format!("must be one of the levels ({}), not {value}", one_of(&words));
                section.problem("defaultPackDomain", message);
            }
        }
        // The words of a TopologyDomain are free, and those of a disabled block are not judged.
        _ if !is_dns_label(domain) => {
            section.problem(
                "defaultPackDomain",
                format!("must be the name of a level such as rack, not {value}"),
            );
        }
        _ => {}
    }
}

/// A string of the file inside single quotes of a message: on one line and of bounded length.
fn plain(text: &str) -> String {
    shown(&text.into()).trim_matches('"').to_owned()
}
