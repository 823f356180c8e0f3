//! Disruption budgets: how many of their pods people allow to go at once.
//!
//! Read, never counted: what a budget allows now is what its status says, as the API server goes by when it is asked to
//! evict.

use std::collections::BTreeMap;
use std::sync::Arc;

use grove_kubeplace::selects;
use grove_runtime::ObjectKey;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::pod::KeptPod;

#[derive(Debug, Default)]
pub(crate) struct Budgets(BTreeMap<ObjectKey, Arc<PodDisruptionBudget>>);

impl Budgets {
    /// Takes a budget as it is now. Whether pods may go that might not before.
    pub(crate) fn put(&mut self, key: ObjectKey, budget: Option<Arc<PodDisruptionBudget>>) -> bool {
        let new = budget.as_deref().map(allowed);
        let old = match budget {
            Some(budget) => self.0.insert(key, budget),
            None => self.0.remove(&key),
        };
        old.is_some_and(|old| new.is_none_or(|new| new > allowed(&old)))
    }

    /// How many pods each of them lets go now.
    pub(crate) fn allowed(&self) -> Vec<u32> {
        self.0.values().map(|budget| allowed(budget)).collect()
    }

    /// What would have to change for so many pods of each budget to go.
    pub(crate) fn relaxed(&self, going: &BTreeMap<usize, u32>) -> Vec<String> {
        let relaxed = going.iter().filter_map(|(index, pods)| {
            let Some((key, budget)) = self.0.iter().nth(*index) else {
                return Some("no pod in its way had two disruption budgets".to_owned());
            };
            let allowed = allowed(budget);
            (allowed < *pods).then(|| format!("disruption budget {key} let {pods} pods go at once, not {allowed}"))
        });
        relaxed.collect()
    }

    /// The budget that counts for pods that are alike, as an index; of several, the tightest.
    pub(crate) fn of<'a>(&self, pods: impl Iterator<Item = &'a KeptPod>) -> Option<usize> {
        let tightness = |index: &usize| self.0.values().nth(*index).map_or(0, |budget| allowed(budget));
        pods.filter_map(|pod| self.of_pod(pod)).min_by_key(tightness)
    }

    fn of_pod(&self, pod: &KeptPod) -> Option<usize> {
        let counts = |(key, budget): (&ObjectKey, &Arc<PodDisruptionBudget>)| {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            pod.namespace() == key.namespace && selector.is_some_and(|selector| selects(selector, pod.labels()))
        };
        let mut found = self.0.iter().enumerate().filter(|(_, entry)| counts(*entry));
        let (index, _) = found.next()?;
        // The API server evicts no pod that has two budgets; an index beyond the last stands for one that allows nothing.
        Some(found.next().map_or(index, |_| self.0.len()))
    }
}

/// A status that is older than the budget's last change says nothing.
fn allowed(budget: &PodDisruptionBudget) -> u32 {
    let status = budget.status.as_ref();
    let is_current = |observed: i64| {
        budget
            .metadata
            .generation
            .is_none_or(|generation| observed >= generation)
    };
    let current = status.filter(|status| status.observed_generation.is_some_and(is_current));
    let allowed = current.and_then(|status| status.disruptions_allowed);
    allowed.map_or(0, |pods| u32::try_from(pods).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn budget(app: Option<&str>, observed: i64, allowed: i32) -> Option<Arc<PodDisruptionBudget>> {
        let selector = app.map(|app| json!({"matchLabels": {"app": app}}));
        let object = json!({
            "metadata": {"name": "b", "namespace": "ns", "generation": 2},
            "spec": {"selector": selector},
            "status": {"observedGeneration": observed, "disruptionsAllowed": allowed,
                "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
        });
        Some(Arc::new(serde_json::from_value(object).unwrap()))
    }

    fn pod(namespace: &str, app: &str) -> KeptPod {
        let metadata = json!({"name": "p", "namespace": namespace, "labels": {"app": app}});
        let pod: Pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        pod.into()
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    #[test]
    fn a_pod_counts_against_the_budget_that_selects_it_in_its_namespace() {
        let mut budgets = Budgets::default();
        budgets.put(key("none"), budget(None, 2, 9));
        budgets.put(key("web"), budget(Some("web"), 2, 3));
        assert_eq!(budgets.allowed(), [9, 3]);
        assert_eq!(budgets.of_pod(&pod("ns", "web")), Some(1));
        assert_eq!(budgets.of_pod(&pod("other", "web")), None);
        assert_eq!(
            budgets.of_pod(&pod("ns", "db")),
            None,
            "without a selector it speaks of no pod"
        );
        let told = budgets.relaxed(&[(0, 9), (1, 4)].into());
        assert_eq!(told, ["disruption budget ns/web let 4 pods go at once, not 3"]);
        budgets.put(key("db"), budget(Some("db"), 2, 1));
        let both = [pod("ns", "web"), pod("ns", "db")];
        assert_eq!(budgets.of(both.iter()), Some(0), "the tighter of two");
    }

    #[test]
    fn a_pod_with_two_budgets_may_not_go() {
        let mut budgets = Budgets::default();
        budgets.put(key("one"), budget(Some("web"), 2, 3));
        budgets.put(key("two"), budget(Some("web"), 2, 3));
        let index = budgets.of_pod(&pod("ns", "web")).unwrap();
        assert!(budgets.allowed().get(index).is_none());
        assert_eq!(budgets.relaxed(&[(index, 1)].into()).len(), 1);
    }

    #[test]
    fn only_what_lets_more_pods_go_is_worth_another_try() {
        let mut budgets = Budgets::default();
        assert!(
            !budgets.put(key("a"), budget(Some("web"), 2, 1)),
            "a new budget only guards"
        );
        assert!(!budgets.put(key("a"), budget(Some("web"), 2, 0)));
        assert!(budgets.put(key("a"), budget(Some("web"), 2, 2)));
        assert!(
            !budgets.put(key("a"), budget(Some("web"), 1, 5)),
            "an old status says nothing"
        );
        assert_eq!(budgets.allowed(), [0]);
        assert!(budgets.put(key("a"), None));
    }
}
