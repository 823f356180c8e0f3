use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pods() -> ResourceName {
    ResourceName::new("", "pods")
}

fn object(n: u32) -> Value {
    json!({"metadata": {}, "n": n})
}

fn names(page: &Page) -> Vec<String> {
    page.items
        .iter()
        .map(|(key, _)| format!("{}/{}", key.namespace, key.name))
        .collect()
}

#[test]
fn a_write_needs_the_right_belief() {
    let store = Store::new(10);
    let key = Key::new("a", "x");
    let entry = store.put(&pods(), &key, Expect::Absent, &mut object(1)).unwrap();
    assert_eq!(store.put(&pods(), &key, Expect::Absent, &mut object(2)), Err(Mismatch));
    assert_eq!(
        store.put(&pods(), &key, Expect::Revision(entry.revision + 1), &mut object(2)),
        Err(Mismatch)
    );
    let mut second = object(2);
    let newer = store
        .put(&pods(), &key, Expect::Revision(entry.revision), &mut second)
        .unwrap();
    assert_eq!(second["metadata"]["resourceVersion"], json!(newer.revision.to_string()));
    assert_eq!(store.delete(&pods(), &key, entry.revision), Err(Mismatch));
    let last = store.delete(&pods(), &key, newer.revision).unwrap();
    assert_eq!(
        last.value(),
        json!({"metadata": {"resourceVersion": last.revision.to_string()}, "n": 2})
    );
    assert_eq!(store.get(&pods(), &key), None);
}

#[test]
fn pages_follow_each_other_and_stay_in_a_namespace() {
    let store = Store::new(10);
    for (namespace, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")] {
        store
            .put(&pods(), &Key::new(namespace, name), Expect::Absent, &mut object(0))
            .unwrap();
    }
    let first = PageRequest {
        namespace: Some("a"),
        limit: Some(2),
        ..PageRequest::default()
    };
    let page = store.page(&pods(), first).unwrap();
    assert_eq!((names(&page), page.remaining), (vec!["a/1".into(), "a/2".into()], 1));
    let next = PageRequest {
        after: Some(&page.items[1].0),
        ..first
    };
    assert_eq!(names(&store.page(&pods(), next).unwrap()), ["a/3"]);
    assert_eq!(names(&store.list(&pods(), None)).len(), 4);
}

#[test]
fn history_is_bounded_and_says_so() {
    let store = Arc::new(Store::new(3));
    let start = store.revision();
    for n in 0..5 {
        store
            .put(&pods(), &Key::new("", n.to_string()), Expect::Absent, &mut object(n))
            .unwrap();
    }
    assert_eq!(
        store.subscribe(&pods(), start).unwrap_err(),
        Compacted { oldest: start + 2 }
    );
    let mut subscription = store.subscribe(&pods(), start + 2).unwrap();
    assert_eq!(subscription.ready().unwrap().len(), 3);
    store.compact(store.revision());
    assert!(store.subscribe(&pods(), start + 2).is_err());
    assert!(store.subscribe(&pods(), store.revision()).is_ok());
}

#[tokio::test]
async fn a_subscription_wakes_for_its_own_resource() {
    let store = Arc::new(Store::new(10));
    let mut subscription = store.subscribe(&pods(), store.revision()).unwrap();
    store
        .put(
            &ResourceName::new("", "nodes"),
            &Key::new("", "n"),
            Expect::Absent,
            &mut object(0),
        )
        .unwrap();
    let writer = store.clone();
    let task = tokio::spawn(async move {
        writer
            .put(&pods(), &Key::new("a", "x"), Expect::Absent, &mut object(1))
            .map(|entry| entry.revision)
    });
    let events = subscription.next().await.unwrap();
    assert_eq!(events[0].revision, task.await.unwrap().unwrap());
    assert_eq!((events.len(), events[0].kind), (1, EventKind::Added));
}

#[test]
fn a_tap_sees_every_write_in_order() {
    let store = Store::new(1);
    let mut tap = store.tap();
    let key = Key::new("", "x");
    let first = store.put(&pods(), &key, Expect::Absent, &mut object(1)).unwrap();
    store.delete(&pods(), &key, first.revision).unwrap();
    let kinds: Vec<EventKind> = std::iter::from_fn(|| tap.try_recv().ok())
        .map(|(_, event)| event.kind)
        .collect();
    assert_eq!(kinds, [EventKind::Added, EventKind::Deleted]);
}

proptest! {
    /// After any sequence of writes, the store as of each revision equals what a plain map held at that revision.
    #[test]
    fn the_past_can_be_read_back(writes in prop::collection::vec((0u8..6, any::<bool>(), any::<u32>()), 1..60)) {
        let store = Store::new(1000);
        let mut model: BTreeMap<String, u32> = BTreeMap::new();
        let mut past = vec![(store.revision(), model.clone())];
        for (name, delete, n) in writes {
            let key = Key::new("ns", name.to_string());
            let stored = store.get(&pods(), &key).map(|entry| entry.revision);
            match (stored, delete) {
                (Some(revision), true) => {
                    store.delete(&pods(), &key, revision).unwrap();
                    model.remove(&key.name);
                }
                (stored, _) => {
                    let expect = stored.map_or(Expect::Absent, Expect::Revision);
                    store.put(&pods(), &key, expect, &mut object(n)).unwrap();
                    model.insert(key.name, n);
                }
            }
            past.push((store.revision(), model.clone()));
        }
        for (revision, expected) in past {
            let page = store.page(&pods(), PageRequest { at: Some(revision), ..PageRequest::default() }).unwrap();
            let found: BTreeMap<String, u32> = page.items.iter()
                .map(|(key, entry)| (key.name.clone(), entry.value()["n"].as_u64().unwrap() as u32)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
