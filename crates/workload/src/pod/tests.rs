use grove_api::PodCliqueSet;
use grove_api::podcliqueset::CliqueStartupType;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{clique, expand, set, settle};

fn set_of_two() -> PodCliqueSet {
    set("w")
        .with_clique(clique("a"))
        .with_group("sg", (2, 1), vec![clique("b").sized(3, 2)])
        .order(CliqueStartupType::InOrder)
        .build()
}

/// The pod of index 1 of a clique, as JSON.
fn pod_of(set: &PodCliqueSet, name: &str) -> Value {
    let (cliques, groups) = settle(set);
    let pod = expand(set, (&cliques, &groups), |expansion| {
        let clique = expansion.live.clique(name).unwrap();
        let new = NewPod {
            index: 1,
            name: format!("{name}-bcdfg"),
        };
        pod(expansion, clique, &new, "registry.example/grove:1")
    });
    serde_json::to_value(pod.unwrap()).unwrap()
}

#[test]
fn a_member_of_a_scaling_group_knows_who_it_is() {
    let mut set = set_of_two();
    set.spec.template.cliques[1].spec.pod_spec.containers[0].env = serde_json::from_value(json!([
        {"name": "MINE", "value": "$(GROVE_PCS_NAME)"}, {"name": "GROVE_PCS_INDEX", "value": "9"},
    ]))
    .unwrap();
    let pod = pod_of(&set, "w-0-sg-0-b");
    assert_eq!(pod["metadata"]["name"], "w-0-sg-0-b-bcdfg");
    assert_eq!(pod["metadata"]["labels"]["grove.io/podclique"], "w-0-sg-0-b");
    assert_eq!(pod["metadata"]["labels"]["grove.io/podclique-pod-index"], "1");
    assert_eq!(pod["metadata"]["labels"]["grove.io/podgang"], "w-0");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "uid-w-0-sg-0-b");
    assert_eq!(
        pod["metadata"]["annotations"],
        Value::Null,
        "what only the operator needs stays with the clique"
    );
    assert_eq!(pod["spec"]["hostname"], "w-0-sg-0-b-1");
    assert_eq!(pod["spec"]["subdomain"], "w-0");
    assert_eq!(pod["spec"]["schedulerName"], "grove-scheduler");
    assert_eq!(
        pod["spec"]["schedulingGates"],
        json!([{"name": "grove.io/podgang-pending-creation"}])
    );
    let label = |label: &str| json!({"fieldRef": {"fieldPath": format!("metadata.labels['{label}']")}});
    assert_eq!(
        pod["spec"]["containers"][0]["env"],
        json!([
            {"name": "GROVE_PCS_NAME", "value": "w"},
            {"name": "GROVE_PCS_INDEX", "value": "0"},
            {"name": "GROVE_PCLQ_NAME", "value": "w-0-sg-0-b"},
            {"name": "GROVE_HEADLESS_SERVICE", "value": "w-0.ns.svc.cluster.local"},
            {"name": "GROVE_PCLQ_POD_INDEX", "valueFrom": label("grove.io/podclique-pod-index")},
            {"name": "GROVE_PCSG_NAME", "valueFrom": label("grove.io/podcliquescalinggroup")},
            {"name": "GROVE_PCSG_TEMPLATE_NUM_PODS", "value": "3"},
            {"name": "GROVE_PCSG_INDEX", "valueFrom": label("grove.io/podcliquescalinggroup-replica-index")},
            {"name": "MINE", "value": "$(GROVE_PCS_NAME)"},
        ])
    );
}

#[test]
fn a_pod_that_waits_has_one_more_init_container_with_its_own_credentials() {
    let mut set = set_of_two();
    set.spec.template.cliques[1].spec.pod_spec.init_containers =
        serde_json::from_value(json!([{"name": "download"}])).unwrap();
    let pod = pod_of(&set, "w-0-sg-0-b");
    let init = &pod["spec"]["initContainers"];
    assert_eq!(
        init[0]["env"][0]["name"], "GROVE_PCS_NAME",
        "the user's own init containers know who they are"
    );
    assert_eq!(init[1]["name"], "grove-initc");
    assert_eq!(
        init[1]["args"],
        json!(["wait-for", "--podcliques=w-0-a:1", "--of=w-0-sg-0-b"])
    );
    assert_eq!(init[1]["env"], Value::Null);
    assert_eq!(init[1]["resources"]["limits"], init[1]["resources"]["requests"]);
    let sources = &pod["spec"]["volumes"][0]["projected"]["sources"];
    assert_eq!(sources[0]["serviceAccountToken"]["expirationSeconds"], 3600);
    assert_eq!(
        pod["spec"]["serviceAccountName"],
        Value::Null,
        "the account is the user's matter"
    );

    let first = pod_of(&set, "w-0-a");
    assert_eq!(
        (&first["spec"]["initContainers"], &first["spec"]["volumes"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn gates_and_priority_of_the_user_stay_and_the_sets_priority_reaches_the_pod() {
    let mut set = set_of_two();
    let spec = &mut set.spec.template.cliques[0].spec.pod_spec;
    spec.scheduling_gates = serde_json::from_value(json!([{"name": "example.com/quota"}])).unwrap();
    spec.priority_class_name = Some("low".into());
    let pod = pod_of(&set, "w-0-a");
    assert_eq!(pod["spec"]["schedulingGates"][0]["name"], "example.com/quota");
    assert_eq!(
        pod["spec"]["schedulingGates"][1]["name"],
        "grove.io/podgang-pending-creation"
    );
    assert_eq!(pod["spec"]["priorityClassName"], "low");
    set.spec.template.priority_class_name = Some("high".into());
    assert_eq!(pod_of(&set, "w-0-a")["spec"]["priorityClassName"], "high");
}

#[test]
fn claims_reach_the_containers_that_use_them() {
    let mut set = set_of_two();
    set.metadata.annotations = Some([("grove.io/mnnvl-group".to_owned(), "nv".to_owned())].into());
    set.spec.template.resource_sharing =
        serde_json::from_value(json!([{"name": "net", "scope": "PerReplica"}])).unwrap();
    set.spec.template.cliques[0].spec.pod_spec.containers = serde_json::from_value(json!([
        {"name": "gpu", "resources": {"limits": {"nvidia.com/gpu": "8"}}}, {"name": "sidecar"},
    ]))
    .unwrap();
    let pod = pod_of(&set, "w-0-a");
    assert_eq!(
        pod["spec"]["resourceClaims"],
        json!([
            {"name": "grove-shared-0", "resourceClaimName": "w-0-net"},
            {"name": "mnnvl-claim", "resourceClaimTemplateName": "w-0-nv"},
        ])
    );
    let claims = |container: usize| pod["spec"]["containers"][container]["resources"]["claims"].clone();
    assert_eq!(claims(0), json!([{"name": "grove-shared-0"}, {"name": "mnnvl-claim"}]));
    assert_eq!(claims(1), json!([{"name": "grove-shared-0"}]));
}
