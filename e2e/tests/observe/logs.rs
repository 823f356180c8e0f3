//! Logs and Events tell what happens and never what is secret, however much is logged.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use grove_e2e::eventually;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use serde_json::Value;

use crate::stage::{LIMIT, Stage};

/// In the pod template as a value, and in a Secret that it reads.
const IN_ENV: &str = "hunter2-in-the-environment";
const IN_SECRET: &str = "correct-horse-battery-staple";

const SECRET: &str = "
apiVersion: v1
kind: Secret
metadata: {name: model-token}
data: {token: Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LXN0YXBsZQ==}
";

const SET: &str = "
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: NAME}
spec:
  replicas: 1
  template:
    topologyConstraint: {pack: {required: rack}}
    cliques:
    - name: worker
      spec:
        roleName: worker
        replicas: REPLICAS
        podSpec:
          containers:
          - name: server
            image: registry.example/server:1
            env:
            - {name: PASSWORD, value: hunter2-in-the-environment}
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: model-token, key: token}}}
            envFrom: [{secretRef: {name: model-token}}]
            resources: {limits: {nvidia.com/gpu: 8}}
";

fn set(name: &str, replicas: &str) -> String {
    SET.replace("NAME", name).replace("REPLICAS", replicas)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_secret_is_logged_or_told_at_any_level() -> Result<()> {
    let mut stage = Stage::start(&[]).await?;
    stage.apply(SECRET).await?;
    stage.apply(&set("runs", "2")).await?;
    stage.apply(&set("waits", "5")).await?;
    stage.until("runs-0", "Ready", ("True", "PodsReady")).await?;
    stage.until("waits-0", "Scheduled", ("False", "TooLarge")).await?;
    refused(&stage).await?;
    let events = Api::<Event>::all(stage.client.clone());
    eventually("Events about both", LIMIT, async || -> Result<()> {
        let told = serde_json::to_string(&events.list(&ListParams::default()).await?.items)?;
        ensure!(told.contains("runs-0") && told.contains("waits-0"), "there are {told}");
        Ok(())
    })
    .await?;
    let secrets = secrets(&stage).await?;
    let told = serde_json::to_string(&events.list(&ListParams::default()).await?.items)?;
    stage.stop().await?;
    silent("Events", &told, &secrets);
    for of in ["operator", "scheduler"] {
        let log = stage.log(of)?;
        silent(of, &log, &secrets);
        let levels = levels(&log).with_context(|| of.to_owned())?;
        assert!(levels.contains("DEBUG"), "{of} was to log all that it can: {levels:?}");
    }
    Ok(())
}

/// A set that admission refuses, and whose secrets it has read too.
async fn refused(stage: &Stage) -> Result<()> {
    let manifest = set("refused", "2").replace("required: rack", "required: galaxy");
    let object: kube::core::DynamicObject = serde_saphyr::from_str(&manifest)?;
    let resource = kube::core::ApiResource::erase::<grove_api::PodCliqueSet>(&());
    let api =
        Api::<kube::core::DynamicObject>::namespaced_with(stage.client.clone(), crate::stage::NAMESPACE, &resource);
    let answer = api.create(&Default::default(), &object).await;
    let refusal = answer.expect_err("no topology has the level 'galaxy'").to_string();
    ensure!(refusal.contains("galaxy"), "{refusal}");
    silent(
        "the refusal",
        &refusal,
        &[IN_ENV.to_owned(), IN_SECRET.to_owned()].into(),
    );
    Ok(())
}

/// All that nobody may read: values, keys, and the token by which the cluster is reached.
async fn secrets(stage: &Stage) -> Result<BTreeSet<String>> {
    let mut secrets = BTreeSet::from([IN_ENV, IN_SECRET].map(str::to_owned));
    let mut keys = 0;
    for secret in Api::<Secret>::all(stage.client.clone())
        .list(&ListParams::default())
        .await?
    {
        for (name, content) in secret.data.unwrap_or_default() {
            secrets.insert(STANDARD.encode(&content.0));
            if name.ends_with(".key") {
                keys += 1;
                let pem = String::from_utf8(content.0)?;
                secrets.extend(pem.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned));
            }
        }
    }
    ensure!(keys >= 2, "the webhooks have certificates with {keys} keys");
    let kubeconfig = Kubeconfig::read_from(stage.folder.path().join("kubeconfig"))?;
    let user = kubeconfig.auth_infos.first().and_then(|user| user.auth_info.as_ref());
    let token = serde_json::to_value(user)?["token"].as_str().map(str::to_owned);
    secrets.insert(token.context("the cluster is reached by a token")?);
    secrets.retain(|secret| !secret.is_empty());
    Ok(secrets)
}

fn silent(what: &str, text: &str, secrets: &BTreeSet<String>) {
    for (number, line) in text.lines().enumerate() {
        for secret in secrets {
            assert!(!line.contains(secret.as_str()), "{what}, line {}: {line}", number + 1);
        }
    }
}

/// The levels of a log, whose lines are JSON, each by itself.
fn levels(log: &str) -> Result<BTreeSet<String>> {
    let level = |line: &str| -> Result<String> {
        let line: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        Ok(line["level"].as_str().context("a line has a level")?.to_owned())
    };
    log.lines().map(level).collect()
}
