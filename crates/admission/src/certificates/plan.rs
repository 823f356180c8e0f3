//! What to do about the certificates now, and when to look again.
//!
//! An authority is replaced in three steps, and none of them waits for a time to pass: the new one is trusted beside the
//! old; from the next renewal on it signs what is served, if the API server is known to have been told of it; the old one
//! is dropped when it has expired. So no call is refused, however late a replica learns of a step. All else that a step
//! needs to know is in the Secret, and any replica can take it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::Lifetimes;
use super::material::Material;

/// Certificates are valid from a little before they are made, for those whose clocks are late.
pub(super) const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// A change of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Make all of it: there is none, or it is of no use.
    Everything,
    /// Trust a new authority beside the one in use.
    AddAuthority,
    /// Serve a new certificate, signed by the newest authority.
    RenewLeaf,
    /// Trust authorities no longer that have expired.
    DropExpired,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// All is well until then.
    Keep {
        until: Timestamp,
    },
    Write(Change),
}

/// Decides on what the Secret holds; `None` is nothing of use. `is_trusted` says that the API server has been told of its
/// newest authority.
pub fn plan(
    now: Timestamp,
    material: Option<&Material>,
    names: &[String],
    lifetimes: &Lifetimes,
    is_trusted: bool,
) -> Plan {
    let seen = material.and_then(|material| Some((material, material.newest_facts()?, material.leaf_facts()?)));
    let Some((material, newest, leaf)) = seen else {
        return Plan::Write(Change::Everything);
    };
    let Some(issuer) = material.issuer() else {
        return Plan::Write(Change::Everything);
    };
    if newest.not_after <= now || leaf.not_after <= now {
        return Plan::Write(Change::Everything);
    }
    // A leaf must not outlive the authority that signs it.
    let mut steps = vec![(earlier(newest.not_after, lifetimes.leaf), Change::AddAuthority)];
    if issuer == 0 || is_trusted {
        let wanted: BTreeSet<String> = names.iter().cloned().collect();
        let renewal = match wanted.is_subset(&leaf.names) {
            true => earlier(leaf.not_after, lifetimes.renew_before),
            false => now,
        };
        steps.push((renewal, Change::RenewLeaf));
    }
    let replaced = material.replaced_until();
    steps.extend(replaced.map(|expired| (expired, Change::DropExpired)));
    let due = steps.iter().find(|(moment, _)| *moment <= now);
    let next = steps.iter().map(|(moment, _)| *moment).min();
    let next = next.map_or(leaf.not_after, |next| next.min(leaf.not_after));
    due.map_or(Plan::Keep { until: next }, |(_, change)| Plan::Write(*change))
}

pub(super) fn later(moment: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(moment.as_second().saturating_add(by)).unwrap_or(Timestamp::MAX)
}

pub(super) fn earlier(moment: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(moment.as_second().saturating_sub(by)).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::super::carry_out;
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn names() -> Vec<String> {
        ["grove-operator.ns.svc", "127.0.0.1", "::1"].map(str::to_owned).into()
    }

    fn planned(now: Timestamp, material: Option<&Material>) -> Plan {
        plan(now, material, &names(), &Lifetimes::default(), true)
    }

    fn made(change: Change, now: Timestamp, material: Option<&Material>) -> Material {
        carry_out(change, material, &names(), now, &Lifetimes::default()).unwrap()
    }

    #[test]
    fn nothing_becomes_everything_and_is_kept_until_the_leaf_ages() {
        assert_eq!(planned(start(), None), Plan::Write(Change::Everything));
        let material = made(Change::Everything, start(), None);
        let until = later(start(), DAY * 275);
        assert_eq!(planned(start(), Some(&material)), Plan::Keep { until });
        assert_eq!(planned(until, Some(&material)), Plan::Write(Change::RenewLeaf));
        let renewed = made(Change::RenewLeaf, until, Some(&material));
        assert_eq!(renewed.authorities, material.authorities);
        assert_eq!(
            planned(until, Some(&renewed)),
            Plan::Keep {
                until: later(until, DAY * 275)
            }
        );
    }

    #[test]
    fn an_authority_is_replaced_in_three_steps() {
        let first = made(Change::Everything, start(), None);
        // Nine years on, with a leaf that is still good.
        let now = later(start(), DAY * (3650 - 365));
        let first = made(Change::RenewLeaf, earlier(now, DAY), Some(&first));
        assert_eq!(planned(now, Some(&first)), Plan::Write(Change::AddAuthority));

        let both = made(Change::AddAuthority, now, Some(&first));
        assert_eq!((both.authorities.len(), both.issuer()), (2, Some(1)));
        assert_eq!(both.leaf, first.leaf);
        // The leaf of yesterday serves as long as any other.
        let renewal = later(now, DAY * 274);
        assert_eq!(planned(now, Some(&both)), Plan::Keep { until: renewal });
        assert_eq!(planned(renewal, Some(&both)), Plan::Write(Change::RenewLeaf));
        // The new authority signs nothing before the API server has been told of it, however due it is.
        let untold = plan(renewal, Some(&both), &names(), &Lifetimes::default(), false);
        let leaf_ends = later(renewal, DAY * 90);
        assert_eq!(untold, Plan::Keep { until: leaf_ends });

        let signed = made(Change::RenewLeaf, renewal, Some(&both));
        assert_eq!((signed.authorities.len(), signed.issuer()), (2, Some(0)));
        let expired = later(start(), DAY * 3650);
        assert_eq!(planned(renewal, Some(&signed)), Plan::Keep { until: expired });
        assert_eq!(planned(expired, Some(&signed)), Plan::Write(Change::DropExpired));

        let done = made(Change::DropExpired, expired, Some(&signed));
        assert_eq!(done.authorities, signed.authorities[..1]);
        assert_eq!(done.leaf, signed.leaf);
        assert!(matches!(planned(expired, Some(&done)), Plan::Keep { .. }));
    }

    #[test]
    fn a_name_that_is_missing_is_added_and_those_of_others_stay() {
        let material = made(Change::Everything, start(), None);
        let more = vec!["10.0.0.7".to_owned()];
        let lifetimes = Lifetimes::default();
        assert_eq!(
            plan(start(), Some(&material), &more, &lifetimes, true),
            Plan::Write(Change::RenewLeaf)
        );
        let renewed = carry_out(Change::RenewLeaf, Some(&material), &more, start(), &lifetimes).unwrap();
        assert!(matches!(planned(start(), Some(&renewed)), Plan::Keep { .. }));
        assert!(matches!(
            plan(start(), Some(&renewed), &more, &lifetimes, true),
            Plan::Keep { .. }
        ));
    }

    #[test]
    fn what_has_expired_or_is_foreign_is_made_anew() {
        let material = made(Change::Everything, start(), None);
        let everything = Plan::Write(Change::Everything);
        assert_eq!(planned(later(start(), DAY * 366), Some(&material)), everything);
        let mut mixed = made(Change::Everything, start(), None);
        mixed.authorities = material.authorities.clone();
        assert_eq!(planned(start(), Some(&mixed)), everything);
    }

    #[test]
    fn the_secret_gives_back_what_was_put_in_and_garbage_is_nothing() {
        let material = made(Change::Everything, start(), None);
        let mut data = material.data();
        assert_eq!(Material::read(&data), Some(material.clone()));
        for key in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
            let kept = data.insert(key.to_owned(), k8s_openapi::ByteString(b"\xffgarbage".to_vec()));
            assert_eq!(Material::read(&data), None, "{key}");
            data.insert(key.to_owned(), kept.unwrap());
        }
        data.remove("tls.key");
        assert_eq!(Material::read(&data), None);
        assert!(!format!("{material:?}").contains("PRIVATE"));
    }
}
