//! The command line of each program, and the ports they meet on. Pure: nothing is started here.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use crate::credentials::{Credentials, Identity};
use crate::kit::Kit;

/// The ports of one try to start. Free when chosen, which does not keep others from taking them first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    etcd: u16,
    api: u16,
}

impl Ports {
    pub(crate) fn free() -> io::Result<Self> {
        // Both are held until both are known, so that they differ.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let (etcd, api) = (bind()?, bind()?);
        Ok(Self {
            etcd: etcd.local_addr()?.port(),
            api: api.local_addr()?.port(),
        })
    }

    pub(crate) fn server(self) -> String {
        format!("https://127.0.0.1:{}", self.api)
    }

    pub(crate) fn etcd(self) -> String {
        format!("http://127.0.0.1:{}", self.etcd)
    }
}

pub(crate) fn etcd(ports: Ports) -> Vec<String> {
    let client = ports.etcd();
    vec![
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        // It has no peers, but insists on listening for them.
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        // The data does not outlive the process, so there is nothing to keep safe from a power cut.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

/// `managed`: a controller manager runs beside it.
pub(crate) fn api_server(ports: Ports, credentials: &Credentials, managed: bool, extra: &[String]) -> Vec<String> {
    let file = |name| credentials.file(name).display().to_string();
    let mut args = vec![
        format!("--etcd-servers={}", ports.etcd()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.api),
        // Without these it looks for a network interface and publishes it; nobody reaches this server by Service.
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", file("service-accounts.key")),
        "--allow-privileged".to_owned(),
    ];
    if !managed {
        // What these demand, a service account in each namespace and a taint lifted from each node, only the
        // controller manager provides: without it no pod could ever be created or scheduled.
        args.push("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned());
    }
    args.extend_from_slice(extra);
    args
}

/// Kubelets of nodes with this label are dead: kwok does not play them.
pub const DEAD_KUBELET: &str = "dead-kubelet";
/// How long a node may be silent: the cluster's own, which tests are not to meet on a busy machine.
const NODE_SILENCE_SECS: u32 = 40;

pub(crate) fn controller_manager(credentials: &Credentials, node_silence_secs: Option<u32>) -> Vec<String> {
    let silence = node_silence_secs.map(|secs| format!("--node-monitor-grace-period={secs}s"));
    let mut args = vec![
        kubeconfig(credentials, Identity::ControllerManager),
        format!(
            "--service-account-private-key-file={}",
            credentials.file("service-accounts.key").display()
        ),
        format!("--root-ca-file={}", credentials.file("ca.crt").display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        // The defaults (20 requests a second) would make tests wait for the client's own brake.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ];
    args.extend(silence);
    args
}

pub(crate) fn scheduler(credentials: &Credentials) -> Vec<String> {
    vec![
        kubeconfig(credentials, Identity::Scheduler),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]
}

pub(crate) fn kwok(kit: &Kit, credentials: &Credentials, node_silence_secs: Option<u32>) -> Vec<String> {
    // Leases are renewed four times as often as they end.
    let lease_secs = node_silence_secs.unwrap_or(NODE_SILENCE_SECS);
    vec![
        kubeconfig(credentials, Identity::Kwok),
        format!("--config={}", kit.stages().display()),
        format!("--manage-nodes-with-label-selector=!{DEAD_KUBELET}"),
        format!("--node-lease-duration-seconds={lease_secs}"),
    ]
}

fn kubeconfig(credentials: &Credentials, identity: Identity) -> String {
    format!("--kubeconfig={}", credentials.kubeconfig(identity).display())
}
