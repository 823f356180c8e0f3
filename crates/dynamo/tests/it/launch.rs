//! What containers run, by table: the command that was written, and what its leader and workers make of it.

use grove_api::podcliqueset::PodCliqueTemplate;
use grove_dynamo::translate::{Surroundings, translate};
use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};

use crate::graphs::{graph, with_component, with_worker};

const LEADER: &str = "$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-worker-ldr-0.$(GROVE_HEADLESS_SERVICE)";

fn cliques(graph: &grove_api::DynamoGraphDeployment) -> Vec<PodCliqueTemplate> {
    translate(graph, &Surroundings::default())
        .expect("a graph")
        .set
        .spec
        .template
        .cliques
}

fn main_of(clique: &PodCliqueTemplate) -> &Container {
    &clique.spec.pod_spec.containers[0]
}

/// The lines of the leader and of the workers, for the usual shell.
fn lines(command: Value, args: Value, nodes: i32) -> [String; 2] {
    lines_for(&["/bin/sh", "-c"], command, args, nodes)
}

/// The same for a shell with its options.
fn lines_for(shell: &[&str], command: Value, args: Value, nodes: i32) -> [String; 2] {
    let graph = with_worker(json!({
        "multinode": {"nodeCount": nodes},
        "podTemplate": {"spec": {"containers": [{"name": "main", "image": "i", "command": command, "args": args}]}},
    }));
    let cliques = cliques(&graph);
    [&cliques[1], &cliques[2]].map(|clique| {
        assert_eq!(main_of(clique).command.as_deref().unwrap_or_default(), shell);
        main_of(clique).args.clone().expect("a line").join("|")
    })
}

#[test]
fn flags_go_behind_the_module_in_every_form_of_a_command() {
    let flags = |rank: &str| format!("--dist-init-addr {LEADER}:29500 --nnodes 2 --node-rank {rank}");
    let (zero, worker) = (flags("0"), flags("$((GROVE_PCLQ_POD_INDEX + 1))"));
    let forms = [
        (
            json!(["python3", "-m", "dynamo.sglang"]),
            json!(["--tp", "16"]),
            "python3 -m dynamo.sglang",
            " --tp 16",
        ),
        (
            json!(["/bin/sh", "-c"]),
            json!(["cd /w && python3 -m dynamo.sglang --tp 16 | tee log"]),
            "cd /w && python3 -m dynamo.sglang",
            " --tp 16 | tee log",
        ),
        (
            json!(null),
            json!(["bash -c 'python3 -m dynamo.sglang'"]),
            "bash -c 'python3 -m dynamo.sglang",
            "'",
        ),
        (
            json!(null),
            json!(["bash -c \"python3 -m dynamo.sglang --tp 16\""]),
            "bash -c \"python3 -m dynamo.sglang",
            " --tp 16\"",
        ),
        (
            json!(["env", "A=b", "bash", "-lc", "python3 -m dynamo.sglang"]),
            json!(null),
            "env A=b bash -lc 'python3 -m dynamo.sglang",
            "'",
        ),
        (
            json!(null),
            json!(["python3 -m 'dynamo.sglang' --tp 16"]),
            "python3 -m 'dynamo.sglang'",
            " --tp 16",
        ),
        (
            json!(null),
            json!(["(python3 -m dynamo.sglang); echo over"]),
            "(python3 -m dynamo.sglang",
            "); echo over",
        ),
        (
            json!(["python3", "-m", "dynamo.sglang"]),
            json!(["--name", "it's a model"]),
            "python3 -m dynamo.sglang",
            r" --name 'it'\''s a model'",
        ),
    ];
    for (command, args, before, after) in forms {
        let [leader, workers] = lines(command, args, 2);
        assert_eq!(leader, format!("{before} {zero}{after}"));
        assert_eq!(workers, format!("{before} {worker}{after}"));
    }
}

/// A user's shell stays, with its options: it may have been chosen for what it reads at its start.
#[test]
fn a_shell_is_known_by_any_of_its_options() {
    let line = "python3 -m dynamo.sglang --tp 16";
    let flags = format!("--dist-init-addr {LEADER}:29500 --nnodes 2 --node-rank 0");
    let shells: [&[&str]; 6] = [
        &["bash", "-c"],
        &["/bin/bash", "-lc"],
        &["/bin/sh", "-ec"],
        &["/usr/bin/bash", "-l", "-c"],
        &["bash", "-eo", "pipefail", "-c"],
        &["bash", "--login", "-exc"],
    ];
    for shell in shells {
        let whole: Vec<&str> = shell.iter().copied().chain([line]).collect();
        for (command, args) in [(json!(whole), json!(null)), (json!(shell), json!([line]))] {
            let [leader, _] = lines_for(shell, command, args, 2);
            assert_eq!(leader, format!("python3 -m dynamo.sglang {flags} --tp 16"), "{shell:?}");
        }
    }
    // A script is no line.
    let script = with_worker(
        json!({"multinode": {"nodeCount": 2}, "podTemplate": {"spec": {"containers": [
        {"name": "main", "image": "i", "command": ["bash", "start.sh"]}]}}}),
    );
    assert!(translate(&script, &Surroundings::default()).is_err());
}

#[test]
fn vllm_runs_as_processes_by_ray_or_data_parallel() {
    let [leader, workers] = lines(json!(["python3", "-m", "dynamo.vllm"]), json!(["--model", "m"]), 3);
    let flags = format!("--distributed-executor-backend mp --nnodes 3 --master-addr {LEADER} --master-port 29500");
    assert_eq!(
        leader,
        format!("python3 -m dynamo.vllm {flags} --node-rank 0 --model m")
    );
    assert_eq!(
        workers,
        format!("python3 -m dynamo.vllm {flags} --node-rank $((GROVE_PCLQ_POD_INDEX + 1)) --headless --model m")
    );

    let parallel = json!(["--model", "m", "--data-parallel-size=16"]);
    let [leader, workers] = lines(json!(["python3", "-m", "dynamo.vllm"]), parallel, 4);
    let flags = format!("--data-parallel-address {LEADER} --data-parallel-rpc-port 13345 --data-parallel-size-local 4");
    assert_eq!(
        leader,
        format!("python3 -m dynamo.vllm {flags} --model m --data-parallel-size=16")
    );
    let inner = json!(["bash -c 'python3 -m dynamo.vllm --data-parallel-size 16'"]);
    let [inner, _] = lines(json!(null), inner, 4);
    assert_eq!(
        inner,
        format!("bash -c 'python3 -m dynamo.vllm {flags} --data-parallel-size 16'")
    );
    assert!(
        workers.contains("--data-parallel-start-rank $((4 * (GROVE_PCLQ_POD_INDEX + 1))) --headless"),
        "{workers}"
    );
}

#[test]
fn a_worker_of_vllm_waits_for_its_leader_and_is_not_probed() {
    let cliques = cliques(&with_worker(json!({"multinode": {"nodeCount": 2}})));
    let (leader, workers) = (&cliques[1], &cliques[2]);
    assert!(leader.spec.pod_spec.init_containers.is_none());
    let wait = &workers.spec.pod_spec.init_containers.as_ref().expect("one waits")[0];
    assert_eq!(
        (wait.name.as_str(), wait.image.as_deref()),
        ("wait-for-leader", Some("server"))
    );
    assert!(wait.args.as_ref().expect("a line")[0].contains(LEADER));
    let probes = |main: &Container| {
        (
            main.liveness_probe.is_some(),
            main.readiness_probe.is_some(),
            main.startup_probe.is_some(),
        )
    };
    assert_eq!(probes(main_of(leader)), (true, true, true));
    assert_eq!(probes(main_of(workers)), (false, false, false));
    let sizes = |clique: &PodCliqueTemplate| (clique.spec.replicas, clique.spec.min_available);
    assert_eq!((sizes(leader), sizes(workers)), ((1, Some(1)), (1, Some(1))));
}

#[test]
fn a_leader_of_tensorrt_starts_after_its_workers_and_names_them() {
    let main = json!({"name": "main", "image": "i", "command": ["python3", "-m", "dynamo.trtllm"],
        "resources": {"limits": {"nvidia.com/gpu": 4}}});
    let graph = with_worker(json!({"multinode": {"nodeCount": 3}, "podTemplate": {"spec": {"containers": [main]}}}));
    let made = translate(&graph, &Surroundings::default())
        .expect("a graph")
        .set
        .spec
        .template;
    assert_eq!(
        made.clique_startup_type,
        grove_api::podcliqueset::CliqueStartupType::Explicit
    );
    let (leader, workers) = (&made.cliques[1], &made.cliques[2]);
    assert_eq!(leader.spec.starts_after, ["worker-wkr"]);
    let line = &main_of(leader).args.as_ref().expect("a line")[0];
    assert!(line.contains("mpirun --allow-run-as-root -n 12 -H "), "{line}");
    assert!(
        line.contains("-worker-ldr-0.") && line.contains("-worker-wkr-1.$(GROVE_HEADLESS_SERVICE):4 "),
        "{line}"
    );
    assert!(
        line.ends_with("'trtllm-llmapi-launch python3 -m dynamo.trtllm'"),
        "{line}"
    );
    let probe = main_of(workers)
        .readiness_probe
        .as_ref()
        .and_then(|probe| probe.tcp_socket.as_ref());
    assert!(probe.is_some() && main_of(workers).liveness_probe.is_none());
    assert!(main_of(workers).args.as_ref().expect("a line")[0].contains("sshd -D -p 2222"));
}

#[test]
fn what_a_user_wrote_wins() {
    let main = json!({"name": "main", "image": "i", "ports": [{"containerPort": 7}], "livenessProbe": {"exec": {}},
        "env": [{"name": "DYN_NAMESPACE", "value": "mine"}, {"name": "X", "value": "1"}]});
    let spec = json!({"containers": [{"name": "side", "image": "s"}, main], "serviceAccountName": "mine",
        "terminationGracePeriodSeconds": 5, "securityContext": {}});
    let mut wanted = with_component(0, json!({"podTemplate": {"spec": spec}}));
    wanted.spec.env = vec![
        json!({"name": "X", "value": "of the graph"}),
        json!({"name": "Y", "value": "2"}),
    ];
    let cliques = cliques(&wanted);
    let pod = &cliques[0].spec.pod_spec;
    let main = main_of(&cliques[0]);
    assert_eq!((main.name.as_str(), pod.containers[1].name.as_str()), ("main", "side"));
    assert_eq!(
        main.command.as_deref(),
        Some(&["python3".to_owned()][..]),
        "a frontend needs no command"
    );
    let value = |name: &str| {
        main.env
            .iter()
            .flatten()
            .find(|var| var.name == name)
            .and_then(|var| var.value.clone())
    };
    let values = ["DYN_NAMESPACE", "X", "Y", "DYN_COMPONENT"].map(|name| value(name).unwrap_or_default());
    assert_eq!(values, ["mine", "1", "2", "Frontend"]);
    assert_eq!(main.ports.as_ref().map(Vec::len), Some(1));
    assert!(
        main.liveness_probe
            .as_ref()
            .is_some_and(|probe| probe.http_get.is_none())
    );
    assert!(main.readiness_probe.is_some(), "what was not written has its default");
    assert_eq!(pod.service_account_name.as_deref(), Some("mine"));
    assert_eq!(pod.termination_grace_period_seconds, Some(5));
    assert_eq!(pod.security_context.as_ref().and_then(|context| context.fs_group), None);
}

#[test]
fn system_labels_cannot_be_taken_over() {
    let mut wanted = graph(json!({"spec": {"labels": {"nvidia.com/dynamo-component": "forged", "team": "chat"}}}));
    wanted.metadata.annotations = Some([("nvidia.com/enable-metrics".to_owned(), "false".to_owned())].into());
    let around = Surroundings {
        kai: true,
        ..Surroundings::default()
    };
    let made = translate(&wanted, &around).expect("a graph").set;
    let labels = &made.spec.template.cliques[1].labels;
    assert_eq!(labels["nvidia.com/dynamo-component"], "Worker");
    assert_eq!(labels["team"], "chat");
    assert_eq!(labels["kai.scheduler/queue"], "dynamo");
    assert!(!labels.contains_key("nvidia.com/metrics-enabled"));
    assert!(labels.contains_key("nvidia.com/dynamo-worker-hash"));
    assert!(
        !made.spec.template.cliques[0]
            .labels
            .contains_key("nvidia.com/dynamo-worker-hash")
    );
}
