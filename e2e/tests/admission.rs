//! Admission on a real kube-apiserver: our webhooks registered by URL and called over TLS, judged by what users see.
//!
//! The server runs in this process, put together as the operator does it. The controllers are not needed: objects that
//! they would make are made by the operator's user.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use grove_admission::certificates::{Auto, Lifetimes, server_names};
use grove_admission::registration::{Endpoint, Turn};
use grove_admission::{Admission, Policy, Provision};
use grove_api::config::{self, Overrides};
use grove_api::{ClusterTopology, PodClique, PodCliqueSet};
use grove_e2e::{ControlPlane, Identity, eventually};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "grove-system";
const SECRET: &str = "certs";
/// Who writes at the same time.
const WRITERS: usize = 8;
const ROBOT: &str = "system:serviceaccount:ops:robot";

const CONFIGURATION: &str = r#"
apiVersion: operator.config.grove.io/v1alpha1
kind: OperatorConfiguration
authorizer: {enabled: true, exemptServiceAccountUserNames: ["system:serviceaccount:ops:robot"]}
topologyAwareScheduling:
  enabled: true
  levels: [{domain: rack, key: example.com/rack}, {domain: host, key: kubernetes.io/hostname}]
"#;

/// A control plane with our kinds and our webhooks. The operator is Kubernetes' service account of that name, with all
/// rights: what it may not do is the chart's concern.
struct Stage {
    plane: ControlPlane,
    admin: Client,
    operator: Client,
    stop: CancellationToken,
    server: JoinHandle<Result<()>>,
}

async fn stage(lifetimes: Lifetimes) -> Result<Stage> {
    let plane = ControlPlane::builder().controller_manager(false).start().await?;
    let admin = plane.client(Identity::Admin).await?;
    let operator = acting_as(&plane, Identity::Operator.username()).await?;
    install(&admin).await?;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    create(&namespaces, json!({"metadata": {"name": NAMESPACE}})).await?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (admission, address) = (
        admission(&operator, listener.local_addr()?, lifetimes)?,
        listener.local_addr()?,
    );
    let (ready, mut is_ready) = watch::channel(false);
    let stop = CancellationToken::new();
    let server = tokio::spawn({
        let stop = stop.clone();
        async move { Ok(admission.run(listener, Timestamp::now, ready, stop).await?) }
    });
    tokio::time::timeout(LIMIT, is_ready.wait_for(|ready| *ready)).await??;
    let stage = Stage {
        plane,
        admin,
        operator,
        stop,
        server,
    };
    // The API server learns of new webhooks by a watch of its own.
    let sets: Api<PodCliqueSet> = Api::default_namespaced(stage.admin.clone());
    eventually("the webhooks to be called", LIMIT, async || -> Result<()> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let probe = sets.create(&dry_run, &from_value(set("probe"))?).await?;
        ensure!(
            probe.spec.template.termination_delay.is_some(),
            "{address} was not asked"
        );
        let broken = edited("probe", |template| template["terminationDelay"] = json!("0s"));
        ensure!(
            sets.create(&dry_run, &from_value(broken)?).await.is_err(),
            "not validated"
        );
        Ok(())
    })
    .await?;
    Ok(stage)
}

/// The administrator, in the role of somebody else with the same rights.
async fn acting_as(plane: &ControlPlane, user: &str) -> Result<Client> {
    let kubeconfig = kube::config::Kubeconfig::read_from(plane.kubeconfig(Identity::Admin))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    Ok(Client::try_from(config)?)
}

fn admission(operator: &Client, address: SocketAddr, lifetimes: Lifetimes) -> Result<Admission> {
    let loaded = config::parse(CONFIGURATION.as_bytes(), &Overrides::default());
    let configuration = loaded
        .map_err(|problems| anyhow::anyhow!("{problems:?}"))?
        .configuration;
    Ok(Admission {
        client: operator.clone(),
        policy: Policy::new(&configuration, Identity::Operator.username()),
        endpoint: Endpoint::Url(format!("https://{address}")),
        turn: Turn::AtOnce,
        provision: Provision::Auto(Box::new(Auto {
            client: operator.clone(),
            namespace: NAMESPACE.to_owned(),
            secret: SECRET.to_owned(),
            names: server_names("grove-operator", NAMESPACE, None),
            lifetimes,
        })),
    })
}

async fn install(admin: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for definition in grove_api::crds::all() {
        let name = definition
            .metadata
            .name
            .clone()
            .context("every definition has a name")?;
        api.create(&PostParams::default(), &definition).await?;
        await_condition(api.clone(), &name, conditions::is_crd_established()).await?;
    }
    Ok(())
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object = from_value(object).map_err(kube::Error::SerdeError)?;
    api.create(&PostParams::default(), &object).await
}

/// What the API server says to somebody whose write was refused.
fn refused<T: std::fmt::Debug>(outcome: Result<T, kube::Error>) -> Result<Box<Status>> {
    match outcome {
        Err(kube::Error::Api(status)) => Ok(status),
        other => anyhow::bail!("not refused: {other:?}"),
    }
}

fn set(name: &str) -> Value {
    edited(name, |_| {})
}

fn edited(name: &str, edit: impl Fn(&mut Value)) -> Value {
    let pod = json!({"containers": [{"name": "main", "image": "example.com/none"}]});
    let mut template = json!({"cliques": [{"name": "fe", "spec": {"roleName": "fe", "replicas": 2, "podSpec": pod}}]});
    edit(&mut template);
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "template": template},
    })
}

fn topology(name: &str, key: &str) -> Value {
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": name},
        "spec": {"levels": [{"domain": "rack", "key": key}, {"domain": "host", "key": "kubernetes.io/hostname"}]},
    })
}

// shows: V3-30
#[tokio::test]
async fn users_meet_defaults_rules_and_protection_and_an_outage_says_so() -> Result<()> {
    let stage = stage(Lifetimes::default()).await?;
    defaults_and_rules(&stage).await?;
    topologies(&stage).await?;
    managed_objects(&stage).await?;
    outage(stage).await
}

async fn defaults_and_rules(stage: &Stage) -> Result<()> {
    let sets: Api<PodCliqueSet> = Api::default_namespaced(stage.admin.clone());
    let stored = create(&sets, set("a")).await?;
    let clique = &stored.spec.template.cliques[0].spec;
    assert_eq!(clique.min_available, Some(2));
    assert_eq!(clique.pod_spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(clique.pod_spec.termination_grace_period_seconds, Some(30));

    let broken = edited("b", |template| {
        template["terminationDelay"] = json!("0s");
        template["topologyConstraint"] = json!({"packDomain": "rack"});
    });
    let status = refused(create(&sets, broken).await)?;
    assert_eq!(
        status.message,
        "admission webhook \"podcliqueset.grove.io\" denied the request: terminationDelay must be greater than 0; \
         ClusterTopology 'grove-topology' not found"
    );
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let fields: Vec<&str> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(
        fields,
        ["spec.template.terminationDelay", "spec.template.topologyConstraint"]
    );

    let other = json!([{"op": "replace", "path": "/spec/template/cliques/0/spec/roleName", "value": "other"}]);
    let patch: Patch<()> = Patch::Json(from_value(other)?);
    let status = refused(sets.patch("a", &PatchParams::default(), &patch).await)?;
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    assert_eq!(causes[0].field, "spec.template.cliques[0].spec.roleName");
    Ok(())
}

async fn topologies(stage: &Stage) -> Result<()> {
    let (by_admin, by_operator): (Api<ClusterTopology>, Api<ClusterTopology>) =
        (Api::all(stage.admin.clone()), Api::all(stage.operator.clone()));
    let only = |done: &str| format!("ClusterTopology 'grove-topology' can only be {done} by the operator");
    let default = || topology("grove-topology", "example.com/rack");
    let status = refused(create(&by_admin, default()).await)?;
    assert!(status.message.ends_with(&only("created")), "{}", status.message);
    create(&by_operator, default()).await?;
    let rekeyed = json!([{"op": "replace", "path": "/spec/levels/0/key", "value": "example.com/other"}]);
    let rekeyed: Patch<()> = Patch::Json(from_value(rekeyed)?);
    let status = refused(
        by_admin
            .patch("grove-topology", &PatchParams::default(), &rekeyed)
            .await,
    )?;
    assert!(status.message.ends_with(&only("modified")), "{}", status.message);
    let status = refused(by_admin.delete("grove-topology", &DeleteParams::default()).await)?;
    assert!(status.message.ends_with(&only("deleted")), "{}", status.message);
    // Other metadata is free, and so are topologies of other names.
    let noted = Patch::Merge(json!({"metadata": {"annotations": {"note": "ours"}}}));
    by_admin
        .patch("grove-topology", &PatchParams::default(), &noted)
        .await?;
    create(&by_admin, topology("mine", "example.com/rack")).await?;
    by_admin.patch("mine", &PatchParams::default(), &rekeyed).await?;
    by_admin.delete("mine", &DeleteParams::default()).await?;
    Ok(())
}

async fn managed_objects(stage: &Stage) -> Result<()> {
    let (by_admin, by_operator): (Api<PodClique>, Api<PodClique>) = (
        Api::default_namespaced(stage.admin.clone()),
        Api::default_namespaced(stage.operator.clone()),
    );
    let robot = acting_as(&stage.plane, ROBOT).await?;
    let by_robot: Api<PodClique> = Api::default_namespaced(robot);
    let labels = json!({"app.kubernetes.io/managed-by": "grove-operator", "app.kubernetes.io/part-of": "a"});
    let pod = json!({"containers": [{"name": "main", "image": "example.com/none"}]});
    let clique = json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodClique", "metadata": {"name": "a-0-fe", "labels": labels},
        "spec": {"roleName": "fe", "replicas": 4, "minAvailable": 2, "podSpec": pod},
    });
    let denied = "admission denied, creation/updation of resource: default/a-0-fe is not allowed";
    let status = refused(create(&by_admin, clique.clone()).await)?;
    assert!(status.message.contains(denied), "{}", status.message);
    assert_eq!(status.code, 403);
    create(&by_operator, clique).await?;

    let params = PatchParams::default();
    let status_patch = Patch::Merge(json!({"status": {"readyReplicas": 4}}));
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}}));
    for outcome in [
        by_admin.patch("a-0-fe", &params, &unlabelled).await,
        by_admin.patch_status("a-0-fe", &params, &status_patch).await,
    ] {
        let status = refused(outcome)?;
        assert!(status.message.contains(denied), "{}", status.message);
    }
    // Scaling is everybody's who has the right, but not below the minimum.
    let scale = |replicas: i32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    by_admin.patch_scale("a-0-fe", &params, &scale(3)).await?;
    let status = refused(by_admin.patch_scale("a-0-fe", &params, &scale(1)).await)?;
    assert!(
        status.message.contains("at least minAvailable (2)"),
        "{}",
        status.message
    );

    let status = refused(by_admin.delete("a-0-fe", &DeleteParams::default()).await)?;
    let denied = "admission denied, deletion of resource: default/a-0-fe is not allowed";
    assert!(status.message.contains(denied), "{}", status.message);
    by_robot.delete("a-0-fe", &DeleteParams::default()).await?;
    managed_pod(stage, &labels).await?;
    managed_record(stage, &labels).await
}

/// A pod keeps to its template; looking into it and restarting it is everybody's who has the right.
async fn managed_pod(stage: &Stage, labels: &Value) -> Result<()> {
    let (by_admin, by_operator): (Api<Pod>, Api<Pod>) = (
        Api::default_namespaced(stage.admin.clone()),
        Api::default_namespaced(stage.operator.clone()),
    );
    let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let container = json!({"name": "main", "image": "example.com/none", "resources": asks("100m")});
    let metadata = json!({"name": "a-0-fe-0", "labels": labels});
    create(
        &by_operator,
        json!({"metadata": metadata, "spec": {"containers": [container]}}),
    )
    .await?;
    let params = PatchParams::default();
    let larger = json!([{"name": "main", "resources": asks("1")}]);
    let larger = Patch::Strategic(json!({"spec": {"containers": larger}}));
    let status = refused(by_admin.patch_subresource("resize", "a-0-fe-0", &params, &larger).await)?;
    let denied = "admission denied, creation/updation of resource: default/a-0-fe-0 is not allowed";
    assert!(status.message.contains(denied), "{}", status.message);
    let debugger = json!([{"name": "debugger", "image": "example.com/none"}]);
    let debugger = Patch::Strategic(json!({"spec": {"ephemeralContainers": debugger}}));
    let debugged = by_admin
        .patch_ephemeral_containers("a-0-fe-0", &params, &debugger)
        .await?;
    let added = debugged
        .spec
        .and_then(|spec| spec.ephemeral_containers)
        .unwrap_or_default();
    assert_eq!(added.len(), 1, "as kubectl debug does");
    by_admin
        .delete("a-0-fe-0", &DeleteParams::default().grace_period(0))
        .await?;
    Ok(())
}

/// What a set's pods are known by.
async fn managed_record(stage: &Stage, labels: &Value) -> Result<()> {
    let (by_admin, by_operator): (Api<ControllerRevision>, Api<ControllerRevision>) = (
        Api::default_namespaced(stage.admin.clone()),
        Api::default_namespaced(stage.operator.clone()),
    );
    let record = json!({"metadata": {"name": "a-1", "labels": labels}, "revision": 1, "data": {}});
    let denied = |status: Box<Status>| {
        let expected = "of resource: default/a-1 is not allowed";
        assert!(status.message.contains(expected), "{}", status.message);
    };
    denied(refused(create(&by_admin, record.clone()).await)?);
    create(&by_operator, record).await?;
    let newer = Patch::Merge(json!({"revision": 2}));
    denied(refused(by_admin.patch("a-1", &PatchParams::default(), &newer).await)?);
    denied(refused(by_admin.delete("a-1", &DeleteParams::default()).await)?);
    by_operator.delete("a-1", &DeleteParams::default()).await?;
    Ok(())
}

/// Fails closed, and in words that name the webhook.
async fn outage(stage: Stage) -> Result<()> {
    stage.stop.cancel();
    tokio::time::timeout(LIMIT, stage.server).await???;
    let sets: Api<PodCliqueSet> = Api::default_namespaced(stage.admin.clone());
    let status = refused(create(&sets, set("c")).await)?;
    let expected = "failed calling webhook \"pcs.defaulting.webhooks.grove.io\"";
    assert!(status.message.contains(expected), "{}", status.message);
    // The operator itself is not stopped by its own absence, save where it would make a set that nobody has judged.
    let sets: Api<PodCliqueSet> = Api::default_namespaced(stage.operator.clone());
    let noted = Patch::Merge(json!({"metadata": {"annotations": {"note": "ours"}}}));
    sets.patch("a", &PatchParams::default(), &noted).await?;
    let status = refused(create(&sets, set("c")).await)?;
    let expected = "failed calling webhook \"podcliqueset.grove.io\"";
    assert!(status.message.contains(expected), "{}", status.message);
    Ok(())
}

/// An authority lives for seconds here; requests run all the while, several at a time, and none is refused.
#[tokio::test(flavor = "multi_thread")]
async fn authorities_are_replaced_while_requests_run() -> Result<()> {
    let lifetimes = Lifetimes {
        authority: Duration::from_secs(24),
        leaf: Duration::from_secs(16),
        renew_before: Duration::from_secs(10),
    };
    let stage = stage(lifetimes).await?;
    let secrets: Api<Secret> = Api::namespaced(stage.operator.clone(), NAMESPACE);
    let authority = async || -> Result<Vec<u8>> {
        let data = secrets.get(SECRET).await?.data.unwrap_or_default();
        Ok(data.get("ca.crt").context("the Secret holds authorities")?.0.clone())
    };
    let first = authority().await?;
    let stop = CancellationToken::new();
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(write_until(stop.clone(), stage.admin.clone()));
    }
    let replaced = eventually(
        "no authority of the first to be trusted",
        LIMIT,
        async || -> Result<()> {
            let now = authority().await?;
            ensure!(now != first && !now.ends_with(&first), "the first is trusted");
            Ok(())
        },
    );
    tokio::select! {
        replaced = replaced => replaced?,
        Some(refused) = writers.join_next() => drop(refused??),
    }
    stop.cancel();
    let mut asked = 0;
    while let Some(written) = writers.join_next().await {
        asked += written??;
    }
    println!("{asked} writes while the authority was replaced, none refused");
    assert!(asked > 20, "only {asked} requests ran meanwhile");
    Ok(())
}

/// Writes without a pause; every write must be taken. How many there were.
async fn write_until(stop: CancellationToken, client: Client) -> Result<u32> {
    let sets: Api<PodCliqueSet> = Api::default_namespaced(client);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut asked = 0;
    while !stop.is_cancelled() {
        let written = sets.create(&dry_run, &from_value(set("a"))?).await;
        written.with_context(|| format!("write {asked}"))?;
        asked += 1;
    }
    Ok(asked)
}
