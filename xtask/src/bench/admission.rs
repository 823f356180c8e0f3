//! The webhooks as the API server meets them: a review over TLS, one at a time and a thousand a second. Beside them the
//! same bytes sent to the same server on a path that nobody answers: what TLS, HTTP and reading take.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{Api, ListParams};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::embedded::Embedded;
use super::results::{Bound, Number, Section, percentiles};

const VALIDATE: &str = "/webhooks/validate-podcliqueset";
const DEFAULT: &str = "/webhooks/default-podcliqueset";
const NOBODY: &str = "/webhooks/nobody";
const AGAINST: &str = "no webhook";
/// Requests that may be under way at once when so many come a second.
const UNDER_WAY_MAX: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Sizes {
    rounds: usize,
    /// Reviews of a small and of a very large set, one after the other.
    small: usize,
    large: usize,
    /// Megabytes of YAML that the very large set comes to.
    large_mb: usize,
    rate: usize,
    seconds: usize,
}

impl Sizes {
    const FULL: Self = Self {
        rounds: 3,
        small: 1_000,
        large: 30,
        large_mb: 5,
        rate: 1_000,
        seconds: 20,
    };
    const QUICK: Self = Self {
        rounds: 1,
        small: 5,
        large: 1,
        large_mb: 1,
        rate: 20,
        seconds: 1,
    };
}

pub(super) async fn part(grove: &Path, is_quick: bool) -> Result<Vec<Section>> {
    let sizes = if is_quick { Sizes::QUICK } else { Sizes::FULL };
    let embedded = Embedded::start(grove, 1).await?;
    let operator = embedded.operator().await?;
    let webhooks = Webhooks::of(&embedded.client).await?;
    let (small, large) = (review(1, 1)?, review_of_yaml(sizes.large_mb << 20)?);
    let mut measured = Vec::new();
    for round in 1..=sizes.rounds {
        eprintln!("admission: round {round} of {}", sizes.rounds);
        for (size, review, count) in [("small", &small, sizes.small), ("large", &large, sizes.large)] {
            for (what, path) in [("validate", VALIDATE), ("default", DEFAULT)] {
                let (ours, bare) = webhooks.in_turns(path, review, count).await?;
                measured.push(Measurement::new(format!("{size} set: {what}"), ours, bare));
            }
        }
        for (what, path) in [("validate", VALIDATE), ("default", DEFAULT)] {
            let (bare, _) = webhooks.at_rate(NOBODY, &small, sizes).await?;
            let (ours, rate) = webhooks.at_rate(path, &small, sizes).await?;
            let what = format!("small set, {} requests/s: {what}", sizes.rate);
            measured.push(Measurement {
                rate: Some(rate),
                ..Measurement::new(what, ours, bare)
            });
        }
    }
    let usage = operator.usage()?;
    operator.stop().await?;
    let mut section = summary(sizes, &measured, large.len());
    section.numbers.extend([
        Number::new("grove operator, after all of it: memory", "MiB", [usage.rss_mib]),
        Number::new(
            "grove operator, after all of it: memory at its peak",
            "MiB",
            [usage.peak_rss_mib],
        ),
    ]);
    Ok(vec![section])
}

/// One sort of reviews in one round, in milliseconds.
#[derive(Clone, Debug)]
struct Measurement {
    what: String,
    ours: [f64; 2],
    bare: [f64; 2],
    rate: Option<f64>,
}

impl Measurement {
    fn new(what: String, ours: Vec<f64>, bare: Vec<f64>) -> Self {
        Self {
            what,
            ours: percentiles(ours),
            bare: percentiles(bare),
            rate: None,
        }
    }
}

/// The operator's webhook server, reached as the API server reaches it.
struct Webhooks {
    client: Client,
    /// Holds the authority's certificate.
    _folder: TempDir,
}

impl Webhooks {
    /// Takes address and authority from where the API server takes them.
    async fn of(cluster: &Client) -> Result<Self> {
        let all = ListParams::default();
        let validating = Api::<ValidatingWebhookConfiguration>::all(cluster.clone())
            .list(&all)
            .await?;
        let mutating = Api::<MutatingWebhookConfiguration>::all(cluster.clone())
            .list(&all)
            .await?;
        let validating = validating
            .into_iter()
            .flat_map(|found| found.webhooks.into_iter().flatten());
        let mutating = mutating
            .into_iter()
            .flat_map(|found| found.webhooks.into_iter().flatten());
        let mut configs: Vec<_> = validating.map(|webhook| webhook.client_config).collect();
        configs.extend(mutating.map(|webhook| webhook.client_config));
        let mut known = configs
            .into_iter()
            .filter_map(|config| Some((config.url?, config.ca_bundle?)));
        for path in [VALIDATE, DEFAULT] {
            let is_there = known.clone().any(|(url, _)| url.ends_with(path));
            ensure!(is_there, "the operator has registered no webhook {path}");
        }
        let (url, authority) = known.next().context("the operator has registered no webhook")?;
        let address = url.split("/webhooks/").next().unwrap_or_default();
        let folder = TempDir::new()?;
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, authority.0)?;
        let mut config = Config::new(address.parse()?);
        config.root_cert_file = Some(file);
        Ok(Self {
            client: Client::try_from(config)?,
            _folder: folder,
        })
    }

    /// Sends a review; milliseconds until all of the answer is there. Whatever a webhook says, it must let the set pass.
    async fn ask(&self, path: &str, review: &[u8]) -> Result<f64> {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(review.to_vec()))?;
        let begun = Instant::now();
        let answer = self.client.send(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        let took = begun.elapsed().as_secs_f64() * 1e3;
        if path == NOBODY {
            ensure!(status == 404, "{path} is answered with {status}");
        } else {
            let answer: Value =
                serde_json::from_slice(&body).with_context(|| format!("{path} answers with {status}"))?;
            ensure!(
                answer["response"]["allowed"] == true,
                "{path} refuses: {}",
                answer["response"]["status"]
            );
        }
        Ok(took)
    }

    /// Reviews one after the other, each beside one that nobody answers.
    async fn in_turns(&self, path: &str, review: &[u8], count: usize) -> Result<(Vec<f64>, Vec<f64>)> {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        // The first of each opens a connection.
        self.ask(path, review).await?;
        for _ in 0..count {
            bare.push(self.ask(NOBODY, review).await?);
            ours.push(self.ask(path, review).await?);
        }
        Ok((ours, bare))
    }

    /// So many reviews a second, whether or not those before have been answered. What one waits for its turn counts. The
    /// rate at which answers came comes with it.
    async fn at_rate(&self, path: &str, review: &[u8], sizes: Sizes) -> Result<(Vec<f64>, f64)> {
        let begun = Instant::now();
        let ask = |index: usize| async move {
            let due = begun + Duration::from_secs_f64(index as f64 / sizes.rate as f64);
            tokio::time::sleep_until(due.into()).await;
            self.ask(path, review).await?;
            anyhow::Ok((Instant::now() - due).as_secs_f64() * 1e3)
        };
        let count = sizes.rate * sizes.seconds;
        let asks = stream::iter(0..count).map(ask).buffer_unordered(UNDER_WAY_MAX);
        let times: Vec<f64> = asks.try_collect().await?;
        Ok((times, count as f64 / begun.elapsed().as_secs_f64()))
    }
}

/// The review of a new set with so many cliques, each with so many variables.
fn review(cliques: usize, variables: usize) -> Result<Vec<u8>> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "bench",
            "kind": {"group": "grove.io", "version": "v1alpha1", "kind": "PodCliqueSet"},
            "resource": {"group": "grove.io", "version": "v1alpha1", "resource": "podcliquesets"},
            "name": "bench", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "somebody"},
            "object": set(cliques, variables),
        },
    });
    Ok(serde_json::to_vec(&review)?)
}

fn set(cliques: usize, variables: usize) -> Value {
    let clique = |index: usize| {
        let variable = |number: usize| {
            let value = format!("value-{number:05}-that-somebody-wrote-for-clique-{index}");
            json!({"name": format!("VARIABLE_{number:05}"), "value": value})
        };
        let container = json!({
            "name": "main", "image": "registry.example/server:1",
            "env": (0..variables).map(variable).collect::<Vec<_>>(),
            "resources": {"limits": {"nvidia.com/gpu": "8"}},
        });
        json!({
            "name": format!("c{index}"),
            "spec": {"roleName": format!("c{index}"), "replicas": 2, "podSpec": {"containers": [container]}},
        })
    };
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet",
        "metadata": {"name": "bench", "namespace": "default"},
        "spec": {"replicas": 1, "template": {"cliques": (0..cliques).map(clique).collect::<Vec<_>>()}},
    })
}

/// The review of a set that comes to so much YAML.
fn review_of_yaml(bytes: usize) -> Result<Vec<u8>> {
    const CLIQUES: usize = 10;
    let yaml_bytes = |variables: usize| -> Result<usize> {
        let text = serde_saphyr::to_string(&set(CLIQUES, variables)).context("cannot write YAML")?;
        Ok(text.len())
    };
    let (none, hundred) = (yaml_bytes(0)?, yaml_bytes(100)?);
    let variables = bytes.saturating_sub(none).div_ceil((hundred - none) / 100);
    review(CLIQUES, variables)
}

fn summary(sizes: Sizes, measured: &[Measurement], large_bytes: usize) -> Section {
    let mut names: Vec<&str> = Vec::new();
    for measurement in measured {
        if !names.contains(&measurement.what.as_str()) {
            names.push(&measurement.what);
        }
    }
    let mut numbers = Vec::new();
    for name in names {
        let rounds: Vec<&Measurement> = measured.iter().filter(|measurement| measurement.what == name).collect();
        for (index, percentile) in ["p50", "p99"].into_iter().enumerate() {
            numbers.push(
                Number::new(
                    format!("{name}, {percentile}"),
                    "ms",
                    rounds.iter().map(|round| round.ours[index]),
                )
                .against(AGAINST, rounds.iter().map(|round| round.bare[index])),
            );
        }
        let rates: Vec<f64> = rounds.iter().filter_map(|round| round.rate).collect();
        if !rates.is_empty() {
            let wanted = vec![sizes.rate as f64; rates.len()];
            numbers.push(
                Number::new(format!("{name}, answered"), "requests/s", rates)
                    .against("asked for", wanted)
                    .bound(Bound::RatioAtLeast(0.99)),
            );
        }
    }
    Section {
        title: "Reviews of a PodCliqueSet".to_owned(),
        text: format!(
            "AdmissionReviews of a new set, over TLS on loopback, to the webhook server of `grove operator`: a small set with one \
             clique, and one of {} MB of YAML ({} KiB of JSON), far beyond what etcd would take. One at a time, {} and {} in each \
             run; then {} a second for {} s, timed from the moment at which each was due. `no webhook` is the same bytes sent to the \
             same server on a path that nobody answers.",
            sizes.large_mb,
            large_bytes >> 10,
            sizes.small,
            sizes.large,
            sizes.rate,
            sizes.seconds
        ),
        numbers,
        plots: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_set_comes_to_the_yaml_that_is_asked_for() {
        let review = review_of_yaml(1 << 20).expect("a review");
        let review: Value = serde_json::from_slice(&review).expect("JSON");
        let yaml = serde_saphyr::to_string(&review["request"]["object"]).expect("YAML");
        let share = yaml.len() as f64 / f64::from(1 << 20);
        assert!((1.0..1.1).contains(&share), "{share}");
    }
}
