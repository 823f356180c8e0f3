//! The door: an input is a request in text, `METHOD path`, headers, an empty line and the body. Each batch has a cluster
//! of its own, so that what it holds does not grow for ever.

use std::cell::RefCell;
use std::collections::BTreeSet;

use futures::FutureExt;
use grove_simcluster::door::Door;
use grove_simcluster::{Cluster, NodeSpec, User};
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tower::ServiceExt;

use super::{BATCH, Batch, Tally, sort_of, unharmed};

/// Of a watch so much is read.
const WATCHED_MAX: usize = 20;

/// Sends the corpus to one cluster, in its order; the sorts of its answers.
pub(super) fn replay(kept: &[Vec<u8>], tally: &mut Tally) -> BTreeSet<String> {
    let current = RefCell::new(Vec::new());
    let work = async |cluster: &Cluster| {
        let mut sorts = BTreeSet::new();
        for input in kept {
            current.borrow_mut().clone_from(input);
            sorts.insert(answer(cluster, input).await);
        }
        sorts
    };
    run(work, &current, tally)
}

/// Sends inputs to one cluster that has seen the corpus.
pub(super) fn batch(kept: &[Vec<u8>], number: u64, tally: &mut Tally) {
    let current = RefCell::new(Vec::new());
    let mut outcomes = Vec::new();
    let mut batch = Batch::new(kept, number);
    let work = async |cluster: &Cluster| {
        for input in kept {
            answer(cluster, input).await;
        }
        let mut own = Tally::default();
        for _ in 0..BATCH {
            let input = batch.next();
            current.borrow_mut().clone_from(&input);
            let sort = answer(cluster, &input).await;
            batch.note(&input, sort, &mut own);
        }
        outcomes.push(own);
    };
    run(work, &current, tally);
    for own in outcomes {
        tally.executions += own.executions;
        for (sort, input) in own.found {
            tally.found.entry(sort).or_insert(input);
        }
    }
}

/// Runs work on a new cluster, on virtual time.
fn run<T>(work: impl AsyncFnOnce(&Cluster) -> T, current: &RefCell<Vec<u8>>, tally: &mut Tally) -> T {
    let told = || format!("door: {:?}", String::from_utf8_lossy(&current.borrow()));
    let all = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let nodes = ["n1", "n2"].map(NodeSpec::new);
            let builder = Cluster::builder().seed(1).rbac(true).endpoints(true);
            let cluster = builder.nodes(nodes).start();
            let done = work(&cluster).await;
            assert_eq!(cluster.failed().now_or_never(), None, "a task of the cluster has ended");
            done
        })
    };
    unharmed(all, told, tally)
}

async fn answer(cluster: &Cluster, input: &[u8]) -> String {
    let Some((request, is_watch)) = request(input) else {
        return "no request".to_owned();
    };
    let door = Door::new(cluster.server().clone(), User::admin());
    let Ok(response) = door.oneshot(request).await else {
        return "no answer".to_owned();
    };
    let (parts, body) = response.into_parts();
    // What the cluster does about it, it does now.
    tokio::task::yield_now().await;
    let code = parts.status.as_u16();
    // A watch goes on for as long as it was asked to; it tells at once what there is to tell.
    if is_watch && code == 200 {
        let mut body = body;
        let mut told = 0;
        while told < WATCHED_MAX && matches!(body.frame().now_or_never(), Some(Some(Ok(_)))) {
            told += 1;
        }
        return format!("watch {}", if told > 0 { "with events" } else { "without" });
    }
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return format!("{code} cut off"),
    };
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    format!(
        "{code} {} {}",
        body["kind"].as_str().unwrap_or_default(),
        sort_of(message)
    )
}

/// The request that a text describes; whether it watches.
fn request(input: &[u8]) -> Option<(Request<Body>, bool)> {
    let end = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
    let (head, body) = (&input[..end], input.get(end + 2..).unwrap_or_default());
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let (method, path) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(path);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        request = request.header(name.trim(), value.trim());
    }
    let is_watch = path.contains("watch");
    Some((request.body(Body::from(body.to_vec())).ok()?, is_watch))
}
