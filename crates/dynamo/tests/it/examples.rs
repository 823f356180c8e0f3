//! What every example becomes, word for word.

use std::fmt::Write as _;

use grove_dynamo::translate::{Surroundings, Translation, translate};
use grove_dynamo::validate::{Conditions, create};
use grove_workload::validate::Rules;
use kube::ResourceExt;
use serde::Serialize;

use crate::graphs::{example, example_files, levels};

/// Everything that was made, set first.
pub(crate) fn text(made: &Translation) -> String {
    fn add<K: Serialize>(text: &mut String, objects: &[K]) {
        for object in objects {
            let _ = write!(text, "---\n{}", serde_saphyr::to_string(object).expect("YAML"));
        }
    }
    // Without `..`: what is made is looked at, whatever comes to it.
    let Translation {
        set,
        services,
        accounts,
        roles,
        role_bindings,
        adapters,
    } = made;
    let mut text = serde_saphyr::to_string(set).expect("YAML");
    add(&mut text, services);
    add(&mut text, accounts);
    add(&mut text, roles);
    add(&mut text, role_bindings);
    add(&mut text, adapters);
    text
}

// shows: DGD-7, DGD-8, DGD-9, DGD-10, DGD-11, DGD-26, DGD-27, DGD-30, DGD-37
#[test]
fn every_example_becomes_this() {
    let files = example_files();
    assert!(files.len() >= 15, "only {} examples", files.len());
    for file in files {
        let graph = example(&file);
        let made = translate(&graph, &Surroundings::default()).expect("an example can be translated");
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        insta::assert_snapshot!(name.clone(), text(&made));
        let again = translate(&graph.clone(), &Surroundings::default()).expect("an example can be translated");
        assert_eq!(text(&again), text(&made), "{name}: the same graph gives the same bytes");
    }
}

#[test]
fn every_example_is_admitted() {
    let all = levels(&["region", "zone", "datacenter", "block", "rack", "host", "numa"]);
    let rules = Rules {
        schedulers: vec!["grove-scheduler".to_owned()],
        ..Rules::default()
    };
    let conditions = Conditions {
        rules: Some(&rules),
        ..Conditions::default()
    };
    for file in example_files() {
        let found = create(&example(&file), Some(&all), &conditions);
        assert_eq!(found, [], "{}", file.display());
    }
}

/// Names that others are made of stay within what Kubernetes takes, whatever a graph is called.
#[test]
fn a_long_name_is_cut_and_told_from_others() {
    let named = |name: &str| {
        let mut graph = crate::graphs::with_worker(serde_json::json!({"multinode": {"nodeCount": 2}}));
        graph.metadata.name = Some(name.to_owned());
        translate(&graph, &Surroundings::default())
            .expect("a graph")
            .set
            .name_any()
    };
    // 45 − "worker" − "worker-ldr" is 29.
    let fits = "a".repeat(29);
    assert_eq!(named(&fits), fits);
    let (one, other) = (named(&format!("{fits}b")), named(&format!("{fits}c")));
    assert_eq!((one.len(), other.len()), (29, 29));
    assert!(one.starts_with(&"a".repeat(24)) && one != other, "{one} {other}");
}
