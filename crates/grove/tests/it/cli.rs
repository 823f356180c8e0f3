//! What a command says and returns without any cluster.

use std::path::PathBuf;

use assert_cmd::Command;
use tempfile::TempDir;

/// The binary in an environment without any cluster, whatever the host has.
pub(crate) fn grove() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grove"));
    command
        .env_clear()
        .env("HOME", "/nonexistent")
        .timeout(std::time::Duration::from_secs(60));
    command
}

pub(crate) fn file(folder: &TempDir, name: &str, content: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn the_version_is_told() {
    grove()
        .arg("--version")
        .assert()
        .success()
        .stdout(format!("grove {}\n", env!("CARGO_PKG_VERSION")))
        .stderr("");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &[][..],
        &["operate"],
        &["operator"],
        &["operator", "--config"],
        &["operator", "--config", "f", "--x"],
        &["wait-for"],
        &["wait-for", "--podcliques", "a"],
        &["wait-for", "--podcliques=a:-1"],
    ] {
        grove().args(args).assert().code(2).stdout("");
    }
}

/// Each script knows the commands and options; what bash makes of its own is tried below.
#[test]
fn shells_and_the_manual_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = grove().args(["completion", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        for word in ["explain", "status", "watch", "discover"] {
            assert!(script.contains(word), "{word} is not in the script of {shell}");
        }
    }
    let page = grove().arg("man").output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(
        page.contains(".TH grove 1") && page.contains("grove\\-status(1)"),
        "{page}"
    );
    let folder = TempDir::new().unwrap();
    grove()
        .args(["man", "--into"])
        .arg(folder.path())
        .assert()
        .success()
        .stdout("");
    for page in ["grove.1", "grove-status.1", "grove-topology-discover.1"] {
        assert!(folder.path().join(page).exists(), "{page}");
    }
    let nowhere = folder.path().join("nowhere");
    let output = grove().args(["man", "--into"]).arg(&nowhere).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), complaint.lines().count()),
        (Some(2), 1),
        "{complaint}"
    );
}

/// Bash itself completes with the script.
#[test]
fn bash_completes_a_command_that_is_begun() {
    let script = grove().args(["completion", "bash"]).output().unwrap();
    let folder = TempDir::new().unwrap();
    let script = file(&folder, "grove", &String::from_utf8(script.stdout).unwrap());
    let asks = "source \"$1\"; COMP_WORDS=(grove st); COMP_CWORD=1; _grove grove st grove; echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    let output = bash.args(["--norc", "-c", asks, "bash"]).arg(script).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "status", "{said}");
}

#[test]
fn called_by_kubectl_it_speaks_of_kubectl() {
    let folder = TempDir::new().unwrap();
    let plugin = folder.path().join("kubectl-grove");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_grove"), &plugin).unwrap();
    let usage = |program: &std::path::Path| {
        let mut command = Command::new(program);
        let output = command.env_clear().args(["explain", "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.starts_with("Usage:"));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(usage(&plugin), "Usage: kubectl grove explain [OPTIONS] <KIND> <NAME>");
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_grove"));
    assert_eq!(usage(own), "Usage: grove explain [OPTIONS] <KIND> <NAME>");
}

#[test]
fn a_demo_that_is_too_small_for_its_story_says_so_at_once() {
    for (nodes, said) in [
        ("31", "need 32 nodes; grove cluster --nodes 31"),
        ("10001", "at most 10000 nodes"),
        ("many", "not a number of nodes"),
    ] {
        let output = grove().args(["demo", "--nodes", nodes]).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{complaint}");
        assert!(complaint.contains(said), "{complaint}");
    }
}

#[test]
fn without_a_cluster_the_demo_is_proposed() {
    for args in [&["status"][..], &["explain", "pcs", "a"], &["topology", "list"]] {
        let output = grove().args(args).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        let expected = "no cluster: neither $KUBECONFIG nor ~/.kube/config names one; \
                        give --kubeconfig, or try: grove demo\n";
        assert_eq!((output.status.code(), complaint.as_str()), (Some(2), expected));
    }
    // A file that is there but broken is told of.
    let folder = TempDir::new().unwrap();
    let broken = file(&folder, "config", "clusters: 7");
    let output = grove().arg("status").env("KUBECONFIG", &broken).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), complaint.lines().count()),
        (Some(2), 1),
        "{complaint}"
    );
    assert!(
        complaint.contains("failed to parse kubeconfig") && complaint.ends_with("or try: grove demo\n"),
        "{complaint}"
    );
}

// shows: V3-16, V3-303, G244-37
#[test]
fn a_bad_configuration_is_exit_code_2_and_its_problems_only() {
    let folder = TempDir::new().unwrap();
    let config = file(
        &folder,
        "operator.yaml",
        "apiVersion: operator.config.grove.io/v1alpha1\n\
         kind: OperatorConfiguration\n\
         logLevel: loud\n\
         topology: {enabled: true, levels: [{domain: rack, key: a/rack}, {domain: rack, key: b/rack}]}\n",
    );
    let expected = "logLevel: must be debug, info or error, not \"loud\"\n\
                    topology.levels[1].domain: duplicate topology domain 'rack' in configuration; it is that of levels[0]\n";
    grove()
        .arg("operator")
        .arg("--config")
        .arg(&config)
        .assert()
        .code(2)
        .stdout("")
        .stderr(expected);
    grove()
        .args(["operator", "--check", "--config"])
        .arg(&config)
        .assert()
        .code(2)
        .stdout("")
        .stderr(expected);
}

#[test]
fn a_configuration_that_cannot_be_read_is_exit_code_2() {
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("missing.yaml");
    let expected = format!(
        "cannot read configuration file {}: No such file or directory (os error 2); check --config\n",
        missing.display()
    );
    grove()
        .arg("operator")
        .arg("--config")
        .arg(&missing)
        .assert()
        .code(2)
        .stdout("")
        .stderr(expected);
    grove()
        .arg("operator")
        .arg("--config")
        .arg(folder.path())
        .assert()
        .code(2)
        .stdout("");
}

#[test]
fn an_endless_file_ends() {
    let output = grove()
        .args(["operator", "--config", "/dev/zero"])
        .assert()
        .code(2)
        .get_output()
        .clone();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("the file is larger than 1 MiB"), "{message}");
}

#[test]
fn check_judges_and_ends() {
    let folder = TempDir::new().unwrap();
    let header = "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\n";
    let good = file(&folder, "good.yaml", header);
    let check = |path: &PathBuf| {
        let mut command = grove();
        command.args(["operator", "--check", "--config"]).arg(path);
        command
    };
    check(&good)
        .assert()
        .success()
        .stdout("configuration is valid\n")
        .stderr("");
    check(&good)
        .args(["--topology-domain-name", "default"])
        .assert()
        .success()
        .stdout("configuration is valid\n");
    let old = file(&folder, "old.yaml", &format!("{header}topology: {{enabled: false}}\n"));
    let warning = "warning: topology: this spelling is deprecated; rename it to topologyAwareScheduling\n";
    check(&old)
        .assert()
        .success()
        .stdout("configuration is valid\n")
        .stderr(warning);
    let levels = format!("{header}topologyAwareScheduling: {{levels: [{{domain: rack, key: a/rack}}]}}\n");
    let levels = file(&folder, "levels.yaml", &levels);
    check(&levels)
        .args(["--topology-domain-name", "default"])
        .assert()
        .code(2)
        .stderr(
            "topologyAwareScheduling.levels: cannot be set with --topology-domain-name, \
         whose TopologyDomain holds the levels; remove one of the two\n",
        );
}

#[test]
fn crds_are_printed_as_they_are_committed() {
    let printed = |args: &[&str]| {
        let output = grove().arg("crds").args(args).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let documents = |keep: fn(&str) -> bool| -> String {
        let kept = grove_api::crds::YAML.into_iter().filter(|(file, _)| keep(file));
        kept.map(|(_, yaml)| format!("---\n{yaml}")).collect()
    };
    assert_eq!(printed(&[]), documents(|_| true));
    let without = printed(&["--without-binding"]);
    assert_eq!(without, documents(|file| !file.contains("clustertopologybindings")));
    assert!(without.len() < printed(&[]).len());
}

/// What it prints lets both do what their defaults need: the Secret and the Leases are those of a bare configuration.
#[test]
fn the_roles_are_printed_for_operator_and_scheduler_as_they_are_by_default() {
    let output = grove().args(["rbac", "--namespace", "here"]).output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let kinds: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    let expected = [
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    ];
    assert_eq!(kinds, [expected, expected].concat());
    for committed in [
        include_str!("../../../../charts/grove/rbac/operator.yaml"),
        include_str!("../../../../charts/grove/rbac/scheduler.yaml"),
    ] {
        let (_, committed) = committed.split_once('\n').unwrap();
        assert!(printed.contains(committed));
    }
    let defaults = grove_api::config::parse(b"{}", &grove_api::config::Overrides::default()).unwrap();
    let defaults = defaults.configuration;
    for name in [
        defaults.server.webhooks.secret_name.as_str(),
        defaults.leader_election.resource_name.as_str(),
        "grove-scheduler-leader-election",
    ] {
        assert!(printed.contains(name), "{name}");
    }
    assert_eq!(printed.matches("namespace: here").count(), 10);
    let with_dynamo = grove()
        .args(["rbac", "--namespace", "here", "--dynamo"])
        .output()
        .unwrap();
    let with_dynamo = String::from_utf8(with_dynamo.stdout).unwrap();
    let added = with_dynamo.strip_prefix(&printed).unwrap();
    let (_, committed) = include_str!("../../../../charts/grove/rbac/dynamo.yaml")
        .split_once('\n')
        .unwrap();
    assert!(
        added.contains(committed) && added.contains("kind: ClusterRoleBinding"),
        "{added}"
    );
}

#[test]
fn a_cluster_that_cannot_be_is_exit_code_2_and_one_line() {
    let folder = TempDir::new().unwrap();
    let odd = file(&folder, "odd.yaml", "zones: 1\nblocks: 1\nracks: many\nhosts: 1\n");
    let huge = file(
        &folder,
        "huge.yaml",
        "zones: 100\nblocks: 100\nracks: 100\nhosts: 100\n",
    );
    let cases = [
        ("99999", "--nodes: at most 10000 nodes fit here, not 99999".to_owned()),
        (
            "none",
            "--nodes none: neither a number nor a file that can be read".to_owned(),
        ),
        (
            odd.to_str().unwrap(),
            "must hold Node objects, or zones, blocks, racks, hosts".to_owned(),
        ),
        (
            huge.to_str().unwrap(),
            "at most 10000 nodes fit here, not 100000000".to_owned(),
        ),
    ];
    for (nodes, words) in cases {
        let output = grove().args(["cluster", "--nodes", nodes]).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{nodes}: {complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.contains(&words), "{complaint}");
    }
    let output = grove().args(["cluster", "--listen", "6443"]).output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(
        complaint.contains("such as 127.0.0.1:6443 or localhost:0"),
        "{complaint}"
    );
}
