//! The only way from a replica to the API server: it can be cut and held up, counts what is written, and stops everything at
//! the n-th write so that the replica can be killed there.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The namespace that the replicas call their own.
pub(crate) const HOME: &str = "grove-system";

/// When, in the life of a write, the replica is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The API server never hears of it.
    Before,
    /// The API server has done it, and nobody learns of that.
    Between,
    /// It is done and answered.
    After,
}

impl Moment {
    pub(crate) const ALL: [Self; 3] = [Self::Before, Self::Between, Self::After];
}

/// How the way is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    /// Counts the cuts; a connection lives until the next one.
    cuts: u32,
    /// What watches bring stays on its way, and nobody is told. Other answers arrive.
    is_frozen: bool,
}

/// The write at which everything stops.
#[derive(Clone, Copy, Debug)]
struct Trap {
    nth: usize,
    moment: Moment,
    /// The write has come.
    is_hit: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Go,
    /// The replica ends at this one.
    End(Moment),
    /// It comes after that one.
    Stay,
}

/// What is known of the traffic.
#[derive(Debug, Default)]
struct Traffic {
    writes: AtomicUsize,
    pods_made: AtomicUsize,
    trap: Mutex<Option<Trap>>,
}

/// It ends when this is dropped, and with it all connections.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// For the replica: leads here, with no secret in it.
    pub(crate) kubeconfig: PathBuf,
    way: watch::Sender<Way>,
    traffic: Arc<Traffic>,
    is_sprung: watch::Receiver<bool>,
    _task: JoinSet<()>,
}

/// What a connection needs.
#[derive(Clone)]
struct Carrier {
    server: Client,
    way: watch::Receiver<Way>,
    traffic: Arc<Traffic>,
    sprung: Arc<watch::Sender<bool>>,
}

impl Proxy {
    /// Leads to the server of a kubeconfig as the user of it; the way to it is written to a kubeconfig in `folder`.
    pub(crate) async fn start(direct: &Path, folder: &Path) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let kubeconfig = folder.join(format!("proxy-{}.kubeconfig", address.port()));
        fs::write(&kubeconfig, leading_to(address, direct)?)?;
        let (way, seen) = watch::channel(Way::default());
        let (sprung, is_sprung) = watch::channel(false);
        let traffic = Arc::<Traffic>::default();
        let carrier = Carrier {
            server: server(direct).await?,
            way: seen,
            traffic: traffic.clone(),
            sprung: Arc::new(sprung),
        };
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(carrier.clone().serve(stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            kubeconfig,
            way,
            traffic,
            is_sprung,
            _task: task,
        })
    }

    /// Breaks every connection.
    pub(crate) fn cut(&self) {
        self.way.send_modify(|way| way.cuts += 1);
    }

    /// Holds what watches bring back, or lets it go.
    pub(crate) fn freeze(&self, on: bool) {
        self.way.send_modify(|way| way.is_frozen = on);
    }

    /// How many writes were begun.
    pub(crate) fn writes(&self) -> usize {
        self.traffic.writes.load(Ordering::SeqCst)
    }

    /// How many pods the API server has made.
    pub(crate) fn pods_made(&self) -> usize {
        self.traffic.pods_made.load(Ordering::SeqCst)
    }

    /// Stops everything at the n-th write from now on.
    pub(crate) fn set_trap(&self, nth: usize, moment: Moment) {
        let mut trap = self.traffic.trap.lock().unwrap_or_else(PoisonError::into_inner);
        *trap = Some(Trap {
            nth: self.writes() + nth,
            moment,
            is_hit: false,
        });
    }

    /// Lets all writes go on, unless the one has come: whether it has.
    pub(crate) fn lift_trap(&self) -> bool {
        let mut trap = self.traffic.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let is_hit = trap.is_some_and(|trap| trap.is_hit);
        if !is_hit {
            *trap = None;
        }
        is_hit
    }

    /// Returns when the write has come.
    pub(crate) async fn sprung(&self) {
        // An error says that no write can come any more.
        let _ = self.is_sprung.clone().wait_for(|sprung| *sprung).await;
    }
}

impl Carrier {
    /// Carries one connection until an end closes it, or until the next cut.
    async fn serve(self, stream: TcpStream) {
        let mut way = self.way.clone();
        let cuts = way.borrow().cuts;
        let service = service_fn(|request| self.carry(request));
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // How a replica leaves is its business.
            _ = connection => {}
            _ = way.wait_for(|way| way.cuts != cuts) => {}
        }
    }

    async fn carry(&self, request: Request<Incoming>) -> Result<Response<UnsyncBoxBody<Bytes, kube::Error>>> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let makes_pod = request.method() == Method::POST && request.uri().path().ends_with("/pods");
        let fate = self.fate(is_write(&request));
        if matches!(fate, Fate::Stay | Fate::End(Moment::Before)) {
            self.hold(fate).await;
        }
        let (server, traffic, request) = (self.server.clone(), self.traffic.clone(), passed_on(request).await?);
        // What was sent is carried out, whether or not somebody waits for the answer.
        let sent = tokio::spawn(async move {
            let answer = server.send(request).await?;
            if makes_pod && answer.status() == StatusCode::CREATED {
                traffic.pods_made.fetch_add(1, Ordering::SeqCst);
            }
            Ok::<_, kube::Error>(answer)
        });
        let (head, body) = sent.await??.into_parts();
        match fate {
            Fate::End(Moment::Between) => self.hold(fate).await,
            Fate::End(_) => drop(self.sprung.send_replace(true)),
            _ => {}
        }
        let held = stream::unfold((body, self.way.clone()), move |(mut body, mut way)| async move {
            let frame = body.frame().await?;
            // An error says that nobody can thaw it any more.
            way.wait_for(|way| !(is_watch && way.is_frozen)).await.ok()?;
            Some((frame, (body, way)))
        });
        let mut answer = Response::new(StreamBody::new(held).boxed_unsync());
        *answer.status_mut() = head.status;
        for name in [CONTENT_TYPE, RETRY_AFTER] {
            if let Some(value) = head.headers.get(&name) {
                answer.headers_mut().insert(name, value.clone());
            }
        }
        Ok(answer)
    }

    /// Counts a write, and says what becomes of a request.
    fn fate(&self, is_write: bool) -> Fate {
        if !is_write {
            return Fate::Go;
        }
        let mut trap = self.traffic.trap.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.traffic.writes.fetch_add(1, Ordering::SeqCst) + 1;
        match &mut *trap {
            Some(trap) if count == trap.nth => {
                trap.is_hit = true;
                Fate::End(trap.moment)
            }
            Some(trap) if count > trap.nth => Fate::Stay,
            _ => Fate::Go,
        }
    }

    /// Never returns. Tells first that the write has come, if it is the one.
    async fn hold(&self, fate: Fate) {
        if fate != Fate::Stay {
            self.sprung.send_replace(true);
        }
        std::future::pending::<()>().await;
    }
}

/// What the API server is sent for a request.
async fn passed_on(request: Request<Incoming>) -> Result<Request<kube::client::Body>> {
    let (head, body) = request.into_parts();
    let mut passed = Request::new(body.collect().await?.to_bytes().into());
    *passed.method_mut() = head.method;
    *passed.uri_mut() = head.uri;
    for name in [ACCEPT, CONTENT_TYPE] {
        if let Some(value) = head.headers.get(&name) {
            passed.headers_mut().insert(name, value.clone());
        }
    }
    Ok(passed)
}

/// A kubeconfig for an address in place of the server and the credentials of another one.
fn leading_to(address: SocketAddr, direct: &Path) -> Result<String> {
    let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(direct)?)?;
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("http://{address}"));
    kubeconfig["users"][0]["user"] = json!({});
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(HOME);
    Ok(kubeconfig.to_string())
}

/// A client that does not try again: every answer is the replica's.
async fn server(direct: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(direct)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // The way to loopback never leads through the proxy that the environment may name.
    config.proxy_url = None;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Whether it may change something. Leases are about who leads, and reviews are questions.
fn is_write<T>(request: &Request<T>) -> bool {
    let path = request.uri().path();
    let is_safe = request.method().is_safe() || path.contains("/leases") || path.ends_with("reviews");
    !is_safe
}
