//! How fast an autoscaler may follow its metrics: windows in which it waits for calm, and policies for each step.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::rules::kinds::items;

/// What an autoscaler remembers of its past.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// What the metrics asked for.
    asked: Vec<(Timestamp, i64)>,
    /// By how much the replicas changed.
    changes: Vec<(Timestamp, i64)>,
}

/// Nothing older matters to anybody.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(3600);

impl Past {
    /// Notes what the metrics ask for, and says how many replicas there may be now.
    pub(super) fn paced(&mut self, hpa: &Value, current: i64, asked: i64, now: Timestamp) -> i64 {
        let recent = |at: &Timestamp| now.duration_since(*at) < REMEMBERED;
        self.asked.retain(|(at, _)| recent(at));
        self.changes.retain(|(at, _)| recent(at));
        match self.asked.as_mut_slice() {
            // The same again and again is remembered by its first and its last time.
            [.., (_, before), (at, last)] if *before == asked && *last == asked => *at = now,
            _ => self.asked.push((now, asked)),
        }
        let behavior = &hpa["spec"]["behavior"];
        let stable = self.stable(behavior, current, now);
        let limited = self.limited(behavior, current, stable, now);
        if limited != current {
            self.changes.push((now, limited - current));
        }
        limited
    }

    /// The lowest of what was lately asked for on the way up, the highest on the way down.
    fn stable(&self, behavior: &Value, current: i64, now: Timestamp) -> i64 {
        let window = |rules: &str, usual: i64| behavior[rules]["stabilizationWindowSeconds"].as_i64().unwrap_or(usual);
        let within = |secs: i64| {
            let asked = self.asked.iter();
            let asked = asked.filter(move |(at, _)| now.duration_since(*at) <= SignedDuration::from_secs(secs));
            asked.map(|(_, replicas)| *replicas)
        };
        let up = within(window("scaleUp", 0)).min().unwrap_or(current);
        let down = within(window("scaleDown", 300)).max().unwrap_or(current);
        match current {
            few if few < up => up,
            many if many > down => down,
            enough => enough,
        }
    }

    /// So far the policies let it go in one step.
    fn limited(&self, behavior: &Value, current: i64, wanted: i64, now: Timestamp) -> i64 {
        let usual = json!({"scaleUp": [{"type": "Pods", "value": 4, "periodSeconds": 15},
                                       {"type": "Percent", "value": 100, "periodSeconds": 15}],
                           "scaleDown": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
        let rules = match wanted.cmp(&current) {
            std::cmp::Ordering::Greater => "scaleUp",
            std::cmp::Ordering::Less => "scaleDown",
            std::cmp::Ordering::Equal => return current,
        };
        let is_up = rules == "scaleUp";
        if behavior[rules]["selectPolicy"] == "Disabled" {
            return current;
        }
        let own = behavior[rules]["policies"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        let policies = if own {
            &behavior[rules]
        } else {
            &json!({"policies": usual[rules]})
        };
        let bounds = items(policies, "policies").map(|policy| self.bound(policy, current, is_up, now));
        let is_careful = behavior[rules]["selectPolicy"] == "Min";
        let bound = match is_up != is_careful {
            true => bounds.max(),
            false => bounds.min(),
        };
        let bound = bound.unwrap_or(wanted);
        if is_up {
            wanted.min(bound.max(current))
        } else {
            wanted.max(bound.min(current))
        }
    }

    fn bound(&self, policy: &Value, current: i64, is_up: bool, now: Timestamp) -> i64 {
        let number = |field: &str| policy[field].as_i64().unwrap_or_default();
        let period = SignedDuration::from_secs(number("periodSeconds"));
        let changed: i64 = self
            .changes
            .iter()
            .filter(|(at, change)| now.duration_since(*at) < period && (*change > 0) == is_up)
            .map(|(_, change)| *change)
            .sum();
        let start = current - changed;
        let step = match policy["type"].as_str() {
            Some("Percent") if is_up => (start * number("value") + 99).div_euclid(100),
            Some("Percent") => (start * number("value")).div_euclid(100),
            _ => number("value"),
        };
        if is_up {
            start.saturating_add(step)
        } else {
            start.saturating_sub(step)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    #[test]
    fn it_goes_up_at_once_and_down_after_five_calm_minutes() {
        let (mut past, hpa) = (Past::default(), json!({}));
        assert_eq!(past.paced(&hpa, 2, 5, at(0)), 5);
        assert_eq!(past.paced(&hpa, 5, 1, at(10)), 5);
        assert_eq!(past.paced(&hpa, 5, 1, at(299)), 5);
        assert_eq!(past.paced(&hpa, 5, 1, at(301)), 1);
    }

    #[test]
    fn a_step_up_is_four_pods_or_twice_as_many() {
        let (mut past, hpa) = (Past::default(), json!({}));
        assert_eq!(past.paced(&hpa, 1, 100, at(0)), 5);
        assert_eq!(past.paced(&hpa, 5, 100, at(5)), 5, "not again in the same period");
        assert_eq!(past.paced(&hpa, 5, 100, at(20)), 10);
    }

    #[test]
    fn policies_of_its_own_come_first() {
        let hpa = json!({"spec": {"behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled"}}}});
        let mut past = Past::default();
        assert_eq!(past.paced(&hpa, 3, 9, at(0)), 4);
        assert_eq!(past.paced(&hpa, 4, 1, at(100)), 4, "never down");
    }
}
