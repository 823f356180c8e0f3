//! `scheduler`: who places gangs. The file names profiles and marks one as the default, in either of two spellings;
//! what comes out is the list of profiles and one default that is in it.

use serde::Serialize;

use super::section::{Section, shown};
use super::words::words;

words! {
    /// The profiles that exist.
    pub enum ProfileName {
        /// Our scheduler binds pods itself.
        GroveScheduler = "grove-scheduler",
        /// The placement engine runs in the operator and pins pods; the cluster's stock scheduler binds.
        DefaultScheduler = "default-scheduler",
        /// KAI places; we write its PodGroups and Topologies.
        KaiScheduler = "kai-scheduler",
        /// Only a Kueue Topology for each topology; places nothing.
        Kueue = "kueue",
    }
}

words! {
    /// What counts among placements that touch equally few domains above the host.
    pub enum Packing {
        /// As few hosts as possible: the pods of a gang are close together.
        FewestHosts = "FewestHosts",
        /// Hosts with the least room first: whole hosts stay whole for gangs that need them.
        SpareHosts = "SpareHosts",
    }
}

/// A configured profile, with what can be set for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "name", content = "config")]
pub enum SchedulerProfile {
    #[serde(rename = "grove-scheduler")]
    Grove,
    #[serde(rename = "default-scheduler")]
    Default,
    #[serde(rename = "kai-scheduler")]
    Kai(KaiConfig),
    #[serde(rename = "kueue")]
    Kueue,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KaiConfig {
    /// Keep a KAI Topology for every topology. Switching it off releases those that exist and deletes none.
    pub create_topology_resources: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// In the order of the file; always holds the default.
    pub profiles: Vec<SchedulerProfile>,
    /// The profile of workloads that name no scheduler. Never `kueue`.
    #[serde(rename = "defaultProfileName")]
    pub default_profile: ProfileName,
    /// How `grove-scheduler` and the engine of `default-scheduler` choose hosts.
    pub packing: Packing,
}

impl SchedulerProfile {
    pub fn name(&self) -> ProfileName {
        match self {
            Self::Grove => ProfileName::GroveScheduler,
            Self::Default => ProfileName::DefaultScheduler,
            Self::Kai(_) => ProfileName::KaiScheduler,
            Self::Kueue => ProfileName::Kueue,
        }
    }

    fn read(name: ProfileName, section: &mut Section<'_>) -> Self {
        section.section("config", |config| match name {
            ProfileName::GroveScheduler => Self::Grove,
            ProfileName::DefaultScheduler => Self::Default,
            ProfileName::Kueue => Self::Kueue,
            ProfileName::KaiScheduler => Self::Kai(KaiConfig {
                create_topology_resources: config.or("createTopologyResources", true),
            }),
        })
    }
}

/// An entry of `profiles` whose name is known.
struct Entry {
    index: usize,
    profile: SchedulerProfile,
    is_default: bool,
}

impl Entry {
    fn read(section: &mut Section<'_>) -> Option<(SchedulerProfile, bool)> {
        let name = section.required::<ProfileName>("name");
        let is_default = section.or("default", false);
        // What may be configured for a profile that does not exist cannot be judged, but the key is known.
        section.has("config");
        name.map(|name| (SchedulerProfile::read(name, section), is_default))
    }
}

impl Scheduler {
    /// The profile that places the gangs of pods that name this scheduler: that one, if it is configured, else the default.
    pub fn profile(&self, named: Option<&str>) -> ProfileName {
        let mut profiles = self.profiles.iter().map(SchedulerProfile::name);
        let found = profiles.find(|profile| *profile != ProfileName::Kueue && Some(profile.as_str()) == named);
        found.unwrap_or(self.default_profile)
    }

    /// Whether this profile is configured, for all workloads or for those that name it.
    pub fn has(&self, profile: ProfileName) -> bool {
        self.profiles.iter().any(|configured| configured.name() == profile)
    }

    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let entries: Vec<Entry> = section
            .list("profiles", Entry::read)
            .into_iter()
            .filter_map(|(index, entry)| {
                entry.map(|(profile, is_default)| Entry {
                    index,
                    profile,
                    is_default,
                })
            })
            .collect();
        judge_duplicates(&entries, section);
        let marked = marked_default(&entries, section);
        let named = section.optional::<ProfileName>("defaultProfileName");
        judge_named(named, marked, &entries, section);

        let default_profile = named.or(marked).unwrap_or(ProfileName::GroveScheduler);
        let mut profiles: Vec<_> = entries.into_iter().map(|entry| entry.profile).collect();
        if default_profile == ProfileName::GroveScheduler
            && !profiles.iter().any(|profile| profile.name() == default_profile)
        {
            profiles.push(SchedulerProfile::Grove);
        }
        Self {
            profiles,
            default_profile,
            packing: section.or("packing", Packing::FewestHosts),
        }
    }
}

fn judge_duplicates(entries: &[Entry], section: &mut Section<'_>) {
    let mut seen = Vec::new();
    for Entry { index, profile, .. } in entries {
        let name = profile.name();
        if seen.contains(&name) {
            let message = format!("{} is configured twice; keep one", name.as_str());
            section.problem(&format!("profiles[{index}].name"), message);
        }
        seen.push(name);
    }
}

/// The profile that carries `default: true`.
fn marked_default(entries: &[Entry], section: &mut Section<'_>) -> Option<ProfileName> {
    let mut marked: Option<ProfileName> = None;
    for Entry { index, profile, .. } in entries.iter().filter(|entry| entry.is_default) {
        let name = profile.name();
        let path = format!("profiles[{index}].default");
        match marked {
            _ if name == ProfileName::Kueue => section.problem(&path, kueue_places_nothing()),
            Some(first) => {
                let message = format!("true, but {} is already the default; keep one", first.as_str());
                section.problem(&path, message);
            }
            None => marked = Some(name),
        }
    }
    marked
}

fn judge_named(named: Option<ProfileName>, marked: Option<ProfileName>, entries: &[Entry], section: &mut Section<'_>) {
    let key = "defaultProfileName";
    let Some(named) = named else { return };
    // Without any profile there is one, ours.
    let is_implied = entries.is_empty() && named == ProfileName::GroveScheduler;
    let is_configured = is_implied || entries.iter().any(|entry| entry.profile.name() == named);
    if named == ProfileName::Kueue {
        section.problem(key, kueue_places_nothing());
    } else if let Some(marked) = marked.filter(|marked| *marked != named) {
        let message = format!(
            "{} disagrees with `default: true` of {} in profiles; make them the same, or keep one of the two",
            named.as_str(),
            marked.as_str()
        );
        section.problem(key, message);
    } else if !is_configured {
        let message = format!(
            "{} is not in scheduler.profiles; add it there",
            shown(&named.as_str().into())
        );
        section.problem(key, message);
    }
}

fn kueue_places_nothing() -> String {
    "kueue cannot be the default: it places no pods; choose grove-scheduler, default-scheduler or kai-scheduler".into()
}
