//! A namespace with nodes of its own on a control plane where gangs are placed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use grove_api::config::{OperatorConfiguration, ProfileName, SchedulerProfile};
use grove_api::{PodGang, rights};
use grove_controllers::{Operator, Settings};
use grove_e2e::{ControlPlane, Identity, Shared, eventually, node};
use grove_scenarios::audit::{Audit, Terms};
use grove_scenarios::gangs::{DELAY, Floor};
use grove_scenarios::{RACK, configuration, levels};
use grove_scheduler::{Policy, Scheduler};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Client, Config, ResourceExt};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::kinds::install_kinds;
use crate::record::Record;
pub(crate) use crate::space::is_ready;
use crate::space::{LIMIT, Space, grant};

/// Shorter than the usual one, which is longer than tests should be.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Nothing is under way when nothing has happened for so long, after what was waited for has come.
const QUIET: Duration = Duration::from_secs(1);

/// What a busy machine adds to it before pods that are released are seen to go.
const BUSY: Duration = Duration::from_secs(3);

/// What the schedulers here are judged by.
fn terms() -> Terms {
    Terms::calm(GRACE + BUSY)
}

/// Each test has a runtime of its own; operators, schedulers and records outlive them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads can be started"));

/// A profile and the control plane on which it places.
pub(crate) struct Stand {
    pub(crate) profile: SchedulerProfile,
    plane: Shared,
    record: OnceCell<Record>,
}

pub(crate) static GROVE: Stand = Stand::new(SchedulerProfile::Grove);
pub(crate) static DEFAULT: Stand = Stand::new(SchedulerProfile::Default);

impl Stand {
    const fn new(profile: SchedulerProfile) -> Self {
        Self {
            profile,
            plane: Shared::new(|| ControlPlane::builder().scheduler(true)),
            record: OnceCell::const_new(),
        }
    }

    /// The control plane, on which everything runs.
    async fn get(&self) -> Result<(&ControlPlane, &Record)> {
        let plane = self.plane.get().await?;
        let record = self.record.get_or_try_init(async || -> Result<Record> {
            run_operator(plane, &self.profile).await?;
            run_placer(plane, &self.profile).await?;
            record(plane).await
        });
        Ok((plane, record.await?))
    }
}

/// Makes two tests of each function: one for each profile.
macro_rules! by_both_profiles {
    ($($name:ident,)*) => {
        mod grove_scheduler {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() -> anyhow::Result<()> {
                super::$name(&crate::place::GROVE).await
            })*
        }

        mod default_scheduler {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() -> anyhow::Result<()> {
                super::$name(&crate::place::DEFAULT).await
            })*
        }
    };
}
pub(crate) use by_both_profiles;

/// A client that outlives the runtime of a test.
async fn client(plane: &ControlPlane, identity: Identity) -> Result<Client> {
    connect(plane, identity, None).await
}

/// The same for the scheduler's account, which gets the rights that the chart gives it.
async fn scheduler(plane: &ControlPlane) -> Result<Client> {
    let (admin, params) = (plane.client(Identity::Admin).await?, PostParams::default());
    let (cluster_wide, _) = rights::scheduler::bindings("grove-system");
    let role = rights::scheduler::cluster_role();
    Api::all(admin.clone()).create(&params, &role).await?;
    Api::all(admin).create(&params, &cluster_wide).await?;
    let user = format!("system:serviceaccount:grove-system:{}", rights::scheduler::NAME);
    connect(plane, Identity::Admin, Some(user)).await
}

async fn connect(plane: &ControlPlane, identity: Identity, acts_as: Option<String>) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(plane.kubeconfig(identity))?;
    let made = RUNTIME.spawn(async move {
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        config.auth_info.impersonate = acts_as;
        anyhow::Ok(Client::try_from(config)?)
    });
    made.await?
}

/// What operators and schedulers of a profile go by.
fn configured(profile: &SchedulerProfile) -> OperatorConfiguration {
    configuration(&levels(&["rack", "host"]), profile)
}

/// Starts an operator with the rights of its role and no others. It ends with the process.
pub(crate) async fn run_operator(plane: &ControlPlane, profile: &SchedulerProfile) -> Result<()> {
    install_kinds(plane, &[]).await?;
    grant(plane).await?;
    let configuration = configured(profile);
    let settings = Settings {
        pins: configuration.scheduler.default_profile == ProfileName::DefaultScheduler,
        scheduler: configuration.scheduler,
        topology: configuration.topology_aware_scheduling,
        wait_image: "grove".to_owned(),
        workers: 8,
        clock: Arc::new(Timestamp::now),
    };
    let client = client(plane, Identity::Operator).await?;
    let started = {
        let (client, settings) = (client.clone(), settings.clone());
        RUNTIME.spawn(async move { grove_controllers::start(&client, &settings).await })
    };
    started.await??;
    let operator = Operator::new(client, settings);
    RUNTIME.spawn(async move { operator.run(CancellationToken::new()).await });
    Ok(())
}

/// Starts what places gangs by a profile, with the scheduler's rights, or the operator's where it is a part of that. It
/// ends with the process.
async fn run_placer(plane: &ControlPlane, profile: &SchedulerProfile) -> Result<()> {
    let configuration = configured(profile);
    let (policy, client) = match profile {
        SchedulerProfile::Default => (
            Policy::pinning(&configuration),
            client(plane, Identity::Operator).await?,
        ),
        _ => (Policy::new(&configuration), scheduler(plane).await?),
    };
    let settings = grove_scheduler::Settings {
        policy: Policy { grace: GRACE, ..policy },
        ..grove_scheduler::Settings::default()
    };
    let scheduler = Scheduler::new(client, settings);
    RUNTIME.spawn(async move { scheduler.run(CancellationToken::new()).await });
    Ok(())
}

/// Starts to note what happens. It ends with the process.
pub(crate) async fn record(plane: &ControlPlane) -> Result<Record> {
    let client = client(plane, Identity::Admin).await?;
    Ok(RUNTIME.spawn(async move { Record::start(&client) }).await?)
}

pub(crate) const GPU_HOST: [(&str, &str); 4] = [
    ("cpu", "64"),
    ("memory", "64Gi"),
    ("pods", "20"),
    ("nvidia.com/gpu", "8"),
];

/// A set of one gang that fits into a rack of a place, so many GPUs for each pod.
pub(crate) fn set(name: &str, place: &str, pods: usize, gpus: usize) -> String {
    format!(
        "apiVersion: grove.io/v1alpha1\nkind: PodCliqueSet\nmetadata: {{name: {name}}}\nspec:\n  replicas: 1\n  template:\n    \
         topologyConstraint: {{packDomain: rack}}\n    cliques:\n    - name: a\n      spec: {{roleName: a, replicas: {pods}, \
         minAvailable: {pods}, podSpec: {{nodeSelector: {{test: {place}}}, containers: [{{name: main, image: one, \
         resources: {{requests: {{nvidia.com/gpu: {gpus}}}, limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}}}\n"
    )
}

/// A namespace of its own, in which gangs are placed on nodes that carry its name.
pub(crate) struct Place {
    space: Space,
    stand: Option<&'static Stand>,
}

impl Space {
    /// All pods by name.
    pub(crate) async fn pods(&self) -> Result<BTreeMap<String, Pod>> {
        let pods = self.list::<Pod>().await?;
        Ok(pods.into_iter().map(|pod| (pod.name_any(), pod)).collect())
    }
}

impl Deref for Place {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Place {
    pub(crate) async fn new(stand: &'static Stand, namespace: &str) -> Result<Self> {
        let (plane, _) = stand.get().await?;
        let place = Self::on(plane, namespace).await?;
        Ok(Self {
            stand: Some(stand),
            ..place
        })
    }

    /// The same on a control plane of the test's own.
    pub(crate) async fn on(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        plane.create_namespace(namespace).await?;
        Ok(Self {
            space: Space::on(plane, namespace).await?,
            stand: None,
        })
    }

    /// Adds the nodes `<namespace>-<index>`: so many in each rack, with this capacity.
    pub(crate) async fn add_nodes(&self, racks: usize, hosts: usize, capacity: &[(&str, &str)]) -> Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        let there = nodes
            .list(&ListParams::default().labels(&format!("test={}", self.namespace)))
            .await?;
        let first = there.items.len();
        for index in 0..racks * hosts {
            let rack = format!("{}-{}", self.namespace, index / hosts);
            let labels = [("test", self.namespace.as_str()), (RACK, rack.as_str())];
            let name = format!("{}-{}", self.namespace, first + index);
            nodes
                .create(&PostParams::default(), &node(&name, &labels, capacity))
                .await?;
        }
        Ok(())
    }

    /// Waits until so many pods run, of so many that there are.
    pub(crate) async fn running(&self, ready: usize, all: usize) -> Result<BTreeMap<String, Pod>> {
        let what = format!("{ready} of {all} pods to run");
        let pods = eventually(what, LIMIT, async || -> Result<BTreeMap<String, Pod>> {
            let pods = self.pods().await?;
            let found = pods.values().filter(|pod| is_ready(pod)).count();
            ensure!(found == ready && pods.len() == all, "{found} of {} do", pods.len());
            Ok(pods)
        });
        Ok(pods.await?)
    }

    /// Waits until a gang is placed, or is said not to be.
    pub(crate) async fn scheduled(&self, gang: &str, status: &str) -> Result<()> {
        let what = format!("Scheduled of gang {gang} to be {status}");
        eventually(what, LIMIT, async || -> Result<()> {
            let gang = self.all::<PodGang>().get(gang).await?;
            let conditions = gang.status.context("no status yet")?.conditions;
            let scheduled = conditions.iter().find(|condition| condition.type_ == "Scheduled");
            ensure!(
                scheduled.is_some_and(|condition| condition.status == status),
                "it is {scheduled:?}"
            );
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Values of a node label under the bound pods whose names begin so.
    pub(crate) async fn domains(&self, prefix: &str, key: &str) -> Result<Vec<String>> {
        let nodes = Api::<Node>::all(self.client.clone());
        let mut found = Vec::new();
        for (name, pod) in self.pods().await? {
            let node = node_of(&pod).filter(|_| name.starts_with(prefix));
            if let Some(node) = node {
                let node = nodes.get(node).await?;
                found.push(node.labels().get(key).cloned().unwrap_or_default());
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// What there is, for whoever looks for the cause of a failure.
    async fn print(&self) {
        for gang in self.list::<PodGang>().await.expect("a list") {
            eprintln!("gang {}: {:?}", gang.name_any(), gang.status);
        }
        for (name, pod) in self.pods().await.expect("a list") {
            let spec = pod.spec.unwrap_or_default();
            eprintln!("pod {name}: {:?} {:?}", spec.node_name, spec.scheduling_gates);
        }
    }

    /// Revisions of all pods and gangs: the same as long as nothing happens to them.
    async fn revisions(&self) -> BTreeSet<Option<String>> {
        let pods = self.list::<Pod>().await.expect("a list");
        let gangs = self.list::<PodGang>().await.expect("a list");
        let pods = pods.iter().map(ResourceExt::resource_version);
        pods.chain(gangs.iter().map(ResourceExt::resource_version)).collect()
    }

    /// Judges every moment of the control plane up to now.
    pub(crate) async fn audit(&self) -> Result<()> {
        let stand = self
            .stand
            .context("no record is kept on a control plane of the test's own")?;
        let (_, record) = stand.get().await?;
        let audit = Audit::of(record.moments(&self.client).await?, terms());
        ensure!(audit.binds > 0, "nothing was bound");
        Ok(())
    }
}

impl Floor for Place {
    fn client(&self) -> &Client {
        &self.space.client
    }

    fn namespace(&self) -> &str {
        &self.space.namespace
    }

    fn label(&self) -> Option<(&str, &str)> {
        Some(("test", &self.space.namespace))
    }

    async fn add_node(&self, room: usize) {
        let capacity = [("cpu", "64"), ("memory", "64Gi"), ("pods", &room.to_string())];
        let added = self.add_nodes(1, 1, &capacity).await;
        added.expect("a node that can be added");
    }

    async fn eventually(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let probe = async || match holds(self).await {
            true => Ok(()),
            false => Err("it does not"),
        };
        if let Err(not_yet) = eventually(what, LIMIT, probe).await {
            self.print().await;
            panic!("{}: {not_yet}", self.namespace);
        }
    }

    async fn settle(&self) {
        let last = RefCell::new((self.revisions().await, Instant::now()));
        let is_quiet = async |place: &Self| {
            let now = place.revisions().await;
            let mut last = last.borrow_mut();
            if last.0 != now {
                *last = (now, Instant::now());
            }
            last.1.elapsed() >= QUIET
        };
        Floor::eventually(self, "nothing happens", is_quiet).await;
    }

    async fn outlast(&self) {
        tokio::time::sleep(DELAY + QUIET).await;
        self.settle().await;
    }
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}
