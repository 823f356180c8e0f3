//! What the main container runs: on several nodes, the same command with the flags by which its processes find each other.
//!
//! The command is taken as a line for a shell, the one that the user calls or `/bin/sh`: ranks are computed by it. Flags go
//! right behind the module that is started (`python3 -m dynamo.vllm`), so that whatever follows in the line stays what it was.

use std::fmt::Write as _;

use grove_api::DynamoGraphDeployment;
use grove_api::dynamo::{BackendFramework, ComponentType, words};
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe, SecretVolumeSource, TCPSocketAction, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::cliques::{Part, Scene};
use super::names::CliqueNames;
use super::{Untranslatable, template};

/// Where the processes of SGLang and vLLM meet.
const MEETING_PORT: u16 = 29500;
const RAY_PORT: u16 = 6379;
const DATA_PARALLEL_PORT: u16 = 13345;
const SSH_PORT: u16 = 2222;
/// The Secret with the keys by which a leader of TensorRT-LLM reaches its workers.
pub(super) const SSH_SECRET: &str = "mpi-run-ssh-secret";
const SSH_FOLDER: &str = "/ssh-pk";
const GPU: &str = "nvidia.com/gpu";

/// The rank of a worker; the leader has rank 0.
const WORKER_RANK: &str = "$((GROVE_PCLQ_POD_INDEX + 1))";

/// The engine that a component runs: what its command says, which the graph must not contradict; else what the graph says.
pub(super) fn backend(graph: &DynamoGraphDeployment, index: usize) -> Result<Option<BackendFramework>, Untranslatable> {
    let component = &graph.spec.components[index];
    let path = format!("spec.components[{index}]");
    let containers = template::read(component, &path)?
        .spec
        .map(|spec| spec.containers)
        .unwrap_or_default();
    let main = containers.iter().find(|container| container.name == super::pod::MAIN);
    let found = main
        .and_then(Line::of)
        .and_then(|line| line.module())
        .and_then(|(backend, _)| backend);
    match (graph.spec.backend_framework, found) {
        (Some(said), Some(found)) if said != found => Err(Untranslatable::new(
            "spec.backendFramework",
            format!(
                "Invalid value: \"{}\": component \"{}\" starts dynamo.{}; let both say the same",
                said.as_str(),
                component.name,
                found.as_str()
            ),
        )),
        (said, found) => Ok(found.or(said)),
    }
}

pub(super) fn put_command(
    scene: &Scene<'_>,
    part: Part,
    spec: &mut PodSpec,
    main: &mut Container,
) -> Result<(), Untranslatable> {
    if part == Part::Alone {
        put_default_command(scene.component.type_, main);
        return Ok(());
    }
    let ready = Line::of(main).and_then(|line| Some((scene.backend?, line.module()?.1, line)));
    let Some((backend, end, line)) = ready else {
        return Err(Untranslatable::new(
            format!("{}.multinode", scene.path()),
            "Invalid value: several nodes need a container \"main\" that starts python3 -m dynamo.vllm, dynamo.sglang or \
             dynamo.trtllm",
        ));
    };
    let shell = line.shell.clone();
    let multinode = Multinode {
        scene,
        part,
        line,
        end,
        leader: host(&CliqueNames::of(scene.component).leader(), 0),
    };
    let text = match backend {
        BackendFramework::Sglang => multinode.sglang(),
        BackendFramework::Vllm => multinode.vllm(spec, main)?,
        BackendFramework::Trtllm => multinode.trtllm(spec, main),
    };
    main.command = Some(shell);
    main.args = Some(vec![text]);
    if part == Part::Worker {
        // What they would ask for is served by the leader alone.
        (main.liveness_probe, main.startup_probe) = (None, None);
        main.readiness_probe = (backend == BackendFramework::Trtllm).then(ssh_probe);
    }
    Ok(())
}

fn put_default_command(type_: Option<ComponentType>, main: &mut Container) {
    if main.command.is_some() {
        return;
    }
    match (&main.args, type_) {
        (None, Some(ComponentType::Frontend)) => {
            main.command = Some(vec!["python3".to_owned()]);
            main.args = Some(vec!["-m".to_owned(), "dynamo.frontend".to_owned()]);
        }
        (Some(args), _) => {
            let line = args.join(" ");
            main.command = Some(default_shell());
            main.args = Some(vec![line]);
        }
        (None, _) => {}
    }
}

/// The name of a pod of the same replica of the component, for DNS. Kubernetes fills in the variables.
fn host(clique: &str, index: i32) -> String {
    format!("$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)-{clique}-{index}.$(GROVE_HEADLESS_SERVICE)")
}

/// A command as a line for a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// The shell and its options, up to the one that takes the line.
    shell: Vec<String>,
    text: String,
}

impl Line {
    fn of(main: &Container) -> Option<Self> {
        let command = main.command.clone().unwrap_or_default();
        let args = main.args.clone().unwrap_or_default();
        let (shell, text) = if command.is_empty() {
            (default_shell(), args.join(" "))
        } else if let Some(end) = shell_end(&command) {
            let words: Vec<&str> = command[end..].iter().chain(&args).map(String::as_str).collect();
            (command[..end].to_vec(), words.join(" "))
        } else {
            let quoted: Vec<String> = command.iter().chain(&args).map(|word| quoted(word)).collect();
            (default_shell(), quoted.join(" "))
        };
        (!text.is_empty()).then_some(Self { shell, text })
    }

    /// The module of Dynamo that is started, if it is an engine, and where its name ends.
    fn module(&self) -> Option<(Option<BackendFramework>, usize)> {
        let (mut after_flag, mut end) = (false, 0);
        for word in self.text.split_whitespace() {
            let begin = end + self.text[end..].find(word)?;
            end = begin + word.len();
            let bare = word.trim_start_matches(QUOTES);
            if after_flag && let Some(rest) = bare.strip_prefix("dynamo.") {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let module = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
                let mut name_end = end - rest.len() + module.len();
                // A quote that was opened before the word closes more than the word: flags belong inside of it.
                let opening = word.chars().next().filter(|c| QUOTES.contains(c));
                if opening.is_some_and(|quote| rest[module.len()..].starts_with(quote)) {
                    name_end += 1;
                }
                let mut backends = BackendFramework::ALL.into_iter();
                return Some((backends.find(|backend| backend.as_str() == module), name_end));
            }
            after_flag = word == "-m";
        }
        None
    }

    /// The value of a flag.
    fn value_of(&self, flag: &str) -> Option<&str> {
        let mut words = self.text.split_whitespace();
        while let Some(word) = words.next() {
            match word.strip_prefix(flag) {
                Some("") => return words.next().map(|value| value.trim_matches(QUOTES)),
                Some(rest) if rest.starts_with('=') => return Some(rest[1..].trim_matches(QUOTES)),
                _ => {}
            }
        }
        None
    }

    /// The line with flags at a place.
    fn with(&self, end: usize, flags: &str) -> String {
        let (before, after) = self.text.split_at(end);
        format!("{before} {flags}{after}")
    }
}

const QUOTES: [char; 2] = ['\'', '"'];

fn default_shell() -> Vec<String> {
    vec!["/bin/sh".to_owned(), "-c".to_owned()]
}

/// Where the line begins in a command that calls a shell with one, such as `bash -lc` or `sh -e -o pipefail -c`.
fn shell_end(command: &[String]) -> Option<usize> {
    let shell = command.first()?.rsplit('/').next()?;
    if !matches!(shell, "sh" | "bash" | "dash" | "ash" | "zsh") {
        return None;
    }
    let mut index = 1;
    loop {
        let option = command.get(index)?;
        let letters = option.strip_prefix('-')?;
        index += 1;
        if letters.starts_with('-') {
            continue;
        }
        if letters.contains('c') {
            return Some(index);
        }
        // The one option with a value of its own.
        index += usize::from(letters.ends_with('o'));
    }
}

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// One part of a component on several nodes.
struct Multinode<'a> {
    scene: &'a Scene<'a>,
    part: Part,
    line: Line,
    /// Where flags go.
    end: usize,
    leader: String,
}

impl Multinode<'_> {
    fn nodes(&self) -> i32 {
        self.scene.component.node_count()
    }

    fn rank(&self) -> &'static str {
        match self.part {
            Part::Worker => WORKER_RANK,
            Part::Leader | Part::Alone => "0",
        }
    }

    fn sglang(&self) -> String {
        let (nodes, rank) = (self.nodes(), self.rank());
        let flags = format!(
            "--dist-init-addr {}:{MEETING_PORT} --nnodes {nodes} --node-rank {rank}",
            self.leader
        );
        self.line.with(self.end, &flags)
    }

    fn vllm(&self, spec: &mut PodSpec, main: &Container) -> Result<String, Untranslatable> {
        if let Some(size) = self.line.value_of("--data-parallel-size") {
            return self.vllm_data_parallel(size);
        }
        let executor = self
            .scene
            .graph
            .annotations()
            .get(words::VLLM_EXECUTOR)
            .map(String::as_str);
        match executor {
            None | Some("mp") => {
                if self.part == Part::Worker {
                    self.put_wait(spec, main);
                }
                Ok(self.vllm_processes())
            }
            Some("ray") => Ok(self.vllm_ray()),
            Some(other) => Err(Untranslatable::new(
                format!("metadata.annotations[{}]", words::VLLM_EXECUTOR),
                format!("Invalid value: \"{other}\": must be mp or ray"),
            )),
        }
    }

    fn vllm_processes(&self) -> String {
        let (nodes, rank) = (self.nodes(), self.rank());
        let mut flags = format!(
            "--distributed-executor-backend mp --nnodes {nodes} --master-addr {} --master-port {MEETING_PORT} --node-rank \
             {rank}",
            self.leader
        );
        if self.part == Part::Worker {
            flags.push_str(" --headless");
        }
        self.line.with(self.end, &flags)
    }

    fn vllm_ray(&self) -> String {
        if self.part == Part::Worker {
            return format!("ray start --address={}:{RAY_PORT} --block", self.leader);
        }
        let line = self.line.with(self.end, "--distributed-executor-backend ray");
        format!("ray start --head --port={RAY_PORT} && {line}")
    }

    /// Each node runs its share of the replicas of a data-parallel model.
    fn vllm_data_parallel(&self, size: &str) -> Result<String, Untranslatable> {
        let nodes = self.nodes();
        let size: i32 = size.parse().unwrap_or_default();
        if size <= 0 || size % nodes != 0 {
            return Err(Untranslatable::new(
                format!("{}.podTemplate", self.scene.path()),
                format!("Invalid value: --data-parallel-size must be a multiple of the {nodes} nodes"),
            ));
        }
        let local = size / nodes;
        let mut flags = format!(
            "--data-parallel-address {} --data-parallel-rpc-port {DATA_PARALLEL_PORT} --data-parallel-size-local {local}",
            self.leader
        );
        if self.part == Part::Worker {
            let _ = write!(
                flags,
                " --data-parallel-start-rank $(({local} * (GROVE_PCLQ_POD_INDEX + 1))) --headless"
            );
        }
        Ok(self.line.with(self.end, &flags))
    }

    /// Workers give up when nobody listens where they meet; so they wait for the leader.
    fn put_wait(&self, spec: &mut PodSpec, main: &Container) {
        let wait = format!(
            "until python3 -c \"import socket; socket.create_connection(('{}', {MEETING_PORT}), 2)\"; do sleep 2; done",
            self.leader
        );
        let container = Container {
            name: "wait-for-leader".to_owned(),
            image: main.image.clone(),
            image_pull_policy: main.image_pull_policy.clone(),
            command: Some(default_shell()),
            args: Some(vec![wait]),
            ..Container::default()
        };
        spec.init_containers.get_or_insert_default().push(container);
    }

    fn trtllm(&self, spec: &mut PodSpec, main: &mut Container) -> String {
        put_ssh_keys(spec, main);
        if self.part == Part::Worker {
            return format!(
                "mkdir -p ~/.ssh && cp {SSH_FOLDER}/private.key.pub ~/.ssh/authorized_keys && chmod 600 \
                 ~/.ssh/authorized_keys && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/host_key && exec /usr/sbin/sshd -D -p \
                 {SSH_PORT} -h ~/.ssh/host_key"
            );
        }
        let (gpus, names) = (gpus(main), CliqueNames::of(self.scene.component));
        let workers = (0..self.nodes() - 1).map(|index| host(&names.worker(), index));
        let hosts: Vec<String> = std::iter::once(self.leader.clone())
            .chain(workers)
            .map(|host| format!("{host}:{gpus}"))
            .collect();
        let ranks = i64::from(self.nodes()) * gpus;
        format!(
            "mkdir -p ~/.ssh && cp {SSH_FOLDER}/private.key ~/.ssh/id_rsa && chmod 600 ~/.ssh/id_rsa && mpirun \
             --allow-run-as-root -n {ranks} -H {} --mca plm_rsh_args \"-p {SSH_PORT} -o StrictHostKeyChecking=no -i \
             ~/.ssh/id_rsa\" sh -c {}",
            hosts.join(","),
            quoted(&format!("trtllm-llmapi-launch {}", self.line.text))
        )
    }
}

/// GPUs of a container; one where it does not say.
fn gpus(main: &Container) -> i64 {
    let resources = main.resources.clone().unwrap_or_default();
    let of = |quantities: Option<std::collections::BTreeMap<String, _>>| {
        let quantity: k8s_openapi::apimachinery::pkg::api::resource::Quantity = quantities?.remove(GPU)?;
        quantity.0.parse::<i64>().ok()
    };
    of(resources.limits)
        .or_else(|| of(resources.requests))
        .unwrap_or(1)
        .max(1)
}

fn put_ssh_keys(spec: &mut PodSpec, main: &mut Container) {
    spec.volumes.get_or_insert_default().push(Volume {
        name: SSH_SECRET.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(SSH_SECRET.to_owned()),
            default_mode: Some(0o644),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    });
    main.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: SSH_SECRET.to_owned(),
        mount_path: SSH_FOLDER.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
}

fn ssh_probe() -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(i32::from(SSH_PORT)),
            ..TCPSocketAction::default()
        }),
        period_seconds: Some(10),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}
