//! A namespace with a workload on a control plane, replicas of the operator that reach the API server by a proxy each, and
//! what everybody expects of the workload.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use grove_api::rights::{self, Home};
use grove_api::{PodClique, labels};
use grove_e2e::{Builder, ControlPlane, Identity, Shared, binary_for_test, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::kinds::install_kinds;
use crate::proxy::{HOME, Proxy};
use crate::replica::Replica;
use crate::space::{LIMIT, Space, grant, is_ready};

/// The Secret with the certificates of the webhooks, and the Lease.
pub(crate) const SECRET: &str = "grove-webhook-server-cert";
pub(crate) const LEASE: &str = "grove-operator-leader-election";

/// One leads without asking anybody.
const ALONE: &str = "{enabled: false}";
/// They give up a Lease soon, but not because a busy machine answers late.
const ELECTED: &str = "{enabled: true, leaseDuration: 10s, renewDeadline: 8s, retryPeriod: 500ms}";

/// Pods of the gang that nothing happens to.
const CALM: usize = 2;

/// For tests that leave it as it was. They take turns, as each has an operator of its own.
static PLANE: Shared = Shared::new(plane);
static FURNISHED: OnceCell<()> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

fn plane() -> Builder {
    ControlPlane::builder().nodes(5).scheduler(true)
}

/// One that its test may break.
pub(crate) async fn own_plane() -> Result<ControlPlane> {
    let plane = plane().start().await?;
    furnish(&plane).await?;
    Ok(plane)
}

/// Grove's kinds, and the rights that the chart gives the operator.
async fn furnish(plane: &ControlPlane) -> Result<()> {
    install_kinds(plane, &[]).await?;
    plane.create_namespace(HOME).await?;
    grant(plane).await?;
    let admin = plane.client(Identity::Admin).await?;
    let (home, params) = (
        Home {
            namespace: HOME,
            secret: SECRET,
            lease: LEASE,
        },
        PostParams::default(),
    );
    let (_, at_home) = rights::bindings(HOME);
    let roles = Api::namespaced(admin.clone(), HOME);
    roles.create(&params, &rights::role(&home)).await?;
    Api::namespaced(admin, HOME).create(&params, &at_home).await?;
    Ok(())
}

/// A process of the operator, or of the scheduler, and its way to the API server.
pub(crate) struct Operator {
    pub(crate) replica: Replica,
    pub(crate) proxy: Proxy,
}

pub(crate) struct Stage {
    pub(crate) space: Space,
    grove: PathBuf,
    kubeconfig: PathBuf,
    admin: PathBuf,
    folder: PathBuf,
    /// The gang that nothing happens to, once it runs.
    calm: BTreeSet<String>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Stage {
    /// On the control plane that tests share, when it is this one's turn.
    pub(crate) async fn shared(namespace: &str) -> Result<Self> {
        let turn = TURN.lock().await;
        let plane = PLANE.get().await?;
        FURNISHED.get_or_try_init(|| furnish(plane)).await?;
        let mut stage = Self::on(plane, namespace).await?;
        stage._turn = Some(turn);
        Ok(stage)
    }

    pub(crate) async fn on(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let grove = tokio::task::spawn_blocking(|| binary_for_test("grove")).await??;
        plane.create_namespace(namespace).await?;
        Ok(Self {
            space: Space::on(plane, namespace).await?,
            grove,
            kubeconfig: plane.kubeconfig(Identity::Operator),
            admin: plane.kubeconfig(Identity::Admin),
            folder: plane.dir().to_owned(),
            calm: BTreeSet::new(),
            _turn: None,
        })
    }

    /// Starts a process that reaches the API server by a proxy, as somebody.
    async fn start(&self, command: &str, direct: &Path, config: &str) -> Result<Operator> {
        let proxy = Proxy::start(direct, &self.folder).await?;
        let config = format!(
            "apiVersion: operator.config.grove.io/v1alpha1\nkind: OperatorConfiguration\nlogLevel: debug\n{config}"
        );
        let replica = Replica::start(&self.grove, command, &config, &proxy.kubeconfig)?;
        Ok(Operator { replica, proxy })
    }

    async fn operator(&self, leader_election: &str, profile: &str) -> Result<Operator> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let config = format!(
            "server:\n  webhooks: {{bindAddress: 127.0.0.1, port: {port}}}\n  healthProbes: {{port: 0}}\n  \
             metrics: {{port: 0}}\nleaderElection: {leader_election}\n\
             scheduler: {{profiles: [{{name: {profile}, default: true}}]}}\n"
        );
        self.start("operator", &self.kubeconfig, &config).await
    }

    /// One operator that leads without asking anybody, and is at work.
    pub(crate) async fn sole_operator(&self) -> Result<Operator> {
        let operator = self.operator(ALONE, "default-scheduler").await?;
        operator.replica.says("registered the webhooks").await?;
        Ok(operator)
    }

    /// One of several.
    pub(crate) async fn candidate(&self) -> Result<Operator> {
        self.operator(ELECTED, "default-scheduler").await
    }

    /// One whose gangs are bound by [`Self::scheduler`]; it has just begun to start.
    pub(crate) async fn operator_of_gangs(&self) -> Result<Operator> {
        self.operator(ALONE, "grove-scheduler").await
    }

    /// Grove's own scheduler, with the rights of an administrator.
    pub(crate) async fn scheduler(&self) -> Result<Operator> {
        let config = format!("server: {{healthProbes: {{port: 0}}, metrics: {{port: 0}}}}\nleaderElection: {ALONE}\n");
        self.start("scheduler", &self.admin, &config).await
    }

    /// Lets a gang run to which nothing is to happen.
    pub(crate) async fn calm(&mut self) -> Result<()> {
        self.create("calm", CALM).await?;
        self.calm = self.settled("calm", CALM).await?;
        Ok(())
    }

    /// A set of one clique `a` with so many pods, of which one is enough; asked for until it is taken.
    pub(crate) async fn create(&self, name: &str, replicas: usize) -> Result<()> {
        eventually(format!("set {name} to be taken"), LIMIT, async || {
            self.try_create(name, replicas).await
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn try_create(&self, name: &str, replicas: usize) -> Result<()> {
        let manifest = format!(
            "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: {name}}}\nspec:\n  replicas: 1\n  \
             template:\n    cliques:\n    - name: a\n      spec:\n        roleName: a\n        replicas: {replicas}\n        \
             minAvailable: 1\n        podSpec: {{containers: [{{name: main, image: one}}]}}\n"
        );
        match self.space.create(&manifest).await {
            // An answer that was lost.
            Err(error) if error.to_string().contains("AlreadyExists") => Ok(()),
            other => other.map(drop),
        }
    }

    /// Asks for another number of pods of the set `w`, until the API server takes it.
    pub(crate) async fn scale(&self, replicas: usize) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let cliques = self.space.all::<PodClique>();
        eventually("the clique to be scaled", LIMIT, async || {
            cliques.patch_scale("w-0-a", &PatchParams::default(), &patch).await
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn pods(&self, set: &str) -> Result<Vec<Pod>> {
        let mut pods = self.space.list::<Pod>().await?;
        pods.retain(|pod| pod.labels().get(labels::PART_OF).is_some_and(|part| part == set));
        Ok(pods)
    }

    pub(crate) async fn has_at_least(&self, pods: usize) -> Result<()> {
        self.space
            .until("some of the pods to be made", async |_| {
                Ok(self.pods("w").await?.len() >= pods)
            })
            .await
    }

    /// Waits until the set `w` has so many pods, all ready and each of another index. Who was there before still is, and so
    /// is all of the gang that nothing happened to.
    pub(crate) async fn all_ready(&self, count: usize, before: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let now = self.settled("w", count).await?;
        assert!(now.is_superset(before), "a pod of before was replaced");
        self.is_calm().await?;
        Ok(now)
    }

    /// Nothing happened to the gang that nothing was to happen to.
    pub(crate) async fn is_calm(&self) -> Result<()> {
        let now = self.settled("calm", self.calm.len()).await?;
        assert_eq!(now, self.calm, "a healthy gang was touched");
        Ok(())
    }

    async fn settled(&self, set: &str, count: usize) -> Result<BTreeSet<String>> {
        let ready = eventually("all pods to be ready", LIMIT, async || -> Result<Vec<Pod>> {
            let pods = self.pods(set).await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            ensure!(
                ready == count && pods.len() == count,
                "{ready} of {} pods of {set} are ready; expected {count}",
                pods.len()
            );
            Ok(pods)
        });
        let pods = ready.await?;
        let index = |pod: &Pod| pod.labels().get(labels::POD_INDEX).cloned();
        let indices: BTreeSet<Option<String>> = pods.iter().map(index).collect();
        assert_eq!(indices.len(), count, "an index is used twice");
        Ok(pods.iter().filter_map(ResourceExt::uid).collect())
    }
}

/// Says how long it took until all was well again, for docs/reliability.md.
pub(crate) async fn recovery<T>(fault: &str, recovered: impl Future<Output = Result<T>>) -> Result<T> {
    let begun = Instant::now();
    let found = recovered.await?;
    println!("{fault}: {:.1} s", begun.elapsed().as_secs_f64());
    Ok(found)
}
