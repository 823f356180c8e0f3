//! What the operator asks of the API server, as that counts it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use grove_e2e::eventually;
use kube::Client;

use super::super::metrics::{series, value};
use super::Stage;

/// The operator is done when it has asked for nothing for so long.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_MAX: Duration = Duration::from_secs(120);

/// Requests by their verb.
pub(super) type Verbs = BTreeMap<String, u64>;

/// What something took the operator.
#[derive(Clone, Debug)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    pub(super) requests: Verbs,
    pub(super) cpu_s: f64,
}

/// Watches the operator while something is done to it, until it is at rest again. What is done takes `own` requests of a
/// verb itself, which are not counted, and tells when it was seen to be over.
pub(super) async fn cost_of(
    stage: &Stage,
    (verb, own): (&str, usize),
    done: impl Future<Output = Result<Instant>>,
) -> Result<Cost> {
    let started = stage.operator.usage()?;
    let before = requests(&stage.client).await?;
    let begun = Instant::now();
    let ended = done.await?;
    let mut requests = since(&before, quiet(&stage.client).await?);
    if let Some(count) = requests.get_mut(verb) {
        *count = count.saturating_sub(own as u64);
    }
    requests.retain(|_, count| *count > 0);
    Ok(Cost {
        seconds: (ended - begun).as_secs_f64(),
        requests,
        cpu_s: stage.operator.usage()?.cpu_s - started.cpu_s,
    })
}

/// How much the operator asks for while nothing happens.
pub(super) async fn at_rest(client: &Client, time: Duration) -> Result<u64> {
    let before = quiet(client).await?;
    tokio::time::sleep(time).await;
    let asked = since(&before, requests(client).await?);
    Ok(asked.values().sum())
}

fn since(before: &Verbs, now: Verbs) -> Verbs {
    let less = |(verb, count): (String, u64)| {
        let count = count - before.get(&verb).copied().unwrap_or(0).min(count);
        (verb, count)
    };
    now.into_iter().map(less).collect()
}

/// Waits until the operator asks for nothing any more; how much was asked for since the start.
pub(super) async fn quiet(client: &Client) -> Result<Verbs> {
    let mut last = requests(client).await?;
    let mut since = Instant::now();
    let settled = eventually("the operator to come to rest", QUIET_MAX, async || -> Result<Verbs> {
        let now = requests(client).await?;
        if now != last {
            (last, since) = (now.clone(), Instant::now());
        }
        anyhow::ensure!(
            since.elapsed() >= QUIET,
            "{} requests so far",
            now.values().sum::<u64>()
        );
        Ok(now)
    });
    Ok(settled.await?)
}

/// Requests that the API server has answered about kinds that the operator writes. Watches and the lists with which they
/// begin are not counted, nor what only the API server itself asks for.
async fn requests(client: &Client) -> Result<Verbs> {
    let text = client
        .request_text(http::Request::get("/metrics").body(Vec::new())?)
        .await?;
    Ok(counted(&text))
}

fn counted(metrics: &str) -> Verbs {
    let mut verbs = Verbs::new();
    let asked = series(metrics, "apiserver_request_total");
    for (labels, count) in asked.filter(|(labels, _)| is_the_operators(labels)) {
        let verb = value(labels, "verb").unwrap_or_default();
        *verbs.entry(verb.to_owned()).or_default() += count as u64;
    }
    verbs
}

fn is_the_operators(series: &str) -> bool {
    const RESOURCES: [&str; 9] = [
        "pods",
        "services",
        "controllerrevisions",
        "roles",
        "rolebindings",
        "resourceclaims",
        "horizontalpodautoscalers",
        "events",
        "serviceaccounts",
    ];
    let is_ours = value(series, "group").is_some_and(|group| group.ends_with("grove.io"));
    let is_read_by_watches = matches!(value(series, "verb"), Some("WATCH" | "LIST"));
    !is_read_by_watches && (is_ours || value(series, "resource").is_some_and(|resource| RESOURCES.contains(&resource)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_operator_asks_for_is_told_from_the_rest() {
        let labels = |group: &str, resource: &str, verb: &str| {
            format!("code=\"201\",group=\"{group}\",resource=\"{resource}\",subresource=\"\",verb=\"{verb}\"")
        };
        assert!(is_the_operators(&labels("", "pods", "POST")));
        assert!(is_the_operators(&labels("scheduler.grove.io", "podgangs", "PATCH")));
        assert!(!is_the_operators(&labels("grove.io", "podcliques", "WATCH")));
        assert!(!is_the_operators(&labels("coordination.k8s.io", "leases", "PUT")));
    }

    #[test]
    fn requests_are_counted_by_verb_and_compared() {
        let metrics = "# TYPE apiserver_request_total counter\n\
                       apiserver_request_total{code=\"201\",group=\"\",resource=\"pods\",verb=\"POST\"} 7\n\
                       apiserver_request_total{code=\"409\",group=\"\",resource=\"pods\",verb=\"POST\"} 1\n\
                       apiserver_request_total{code=\"200\",group=\"\",resource=\"nodes\",verb=\"GET\"} 9\n\
                       apiserver_request_total{code=\"200\",group=\"grove.io\",resource=\"podcliques\",verb=\"PATCH\"} 1.2e+03\n";
        let now = counted(metrics);
        assert_eq!(now, Verbs::from([("POST".to_owned(), 8), ("PATCH".to_owned(), 1_200)]));
        let before = Verbs::from([("POST".to_owned(), 5)]);
        assert_eq!(since(&before, now)["POST"], 3);
    }
}
