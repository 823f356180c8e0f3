//! The door for everybody else: HTTPS on a socket, with a certificate of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::{Authority, identify};
use crate::fault::{ConnectionLost, Visitor, pass};
use crate::server::{BODY_BYTES_MAX, ResponseBody, Server, error_response};
use crate::status::ApiError;
use crate::store::NotKept;

/// How much of a body that is too large is read all the same.
const DROPPED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pauses after a connection that could not be accepted.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(5);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Why a socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// No certificate could be made.
    #[error("cannot make a certificate for {address}")]
    Certificate {
        /// The address it was for.
        address: SocketAddr,
        /// What went wrong.
        #[source]
        source: rcgen::Error,
    },
    /// What identifies the cluster cannot be kept.
    #[error("cannot keep the cluster's certificate")]
    Keep(#[from] NotKept),
    /// TLS refuses the certificate.
    #[error("cannot use the certificate for {address}")]
    Tls {
        /// The address it was for.
        address: SocketAddr,
        /// What went wrong.
        #[source]
        source: rustls::Error,
    },
}

/// An open door on a socket; dropping it closes the door and every connection.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    certificate_pem: String,
    task: JoinHandle<()>,
}

impl Listener {
    /// Opens the door. Port 0 takes a free port. Clients know it by the authority.
    pub(crate) async fn open(
        server: Arc<Server>,
        address: SocketAddr,
        authority: &Authority,
    ) -> Result<Self, ListenError> {
        let bind = |source| ListenError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let names = vec![
            address.ip().to_string(),
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ];
        let vouched = authority.vouch(names);
        let (certificate, key) = vouched.map_err(|source| ListenError::Certificate { address, source })?;
        let tls = |source| ListenError::Tls { address, source };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .map_err(tls)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), server));
        Ok(Self {
            address,
            certificate_pem: authority.certificate_pem.clone(),
            task,
        })
    }

    /// Where the door is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of the authority that clients must trust.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// A kubeconfig for this door, with `token` as the credential.
    pub fn kubeconfig(&self, token: &str) -> String {
        use base64::Engine;
        let authority = base64::engine::general_purpose::STANDARD.encode(&self.certificate_pem);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: grove\n\
             clusters:\n- name: grove\n  cluster:\n    server: https://{}\n    certificate-authority-data: {authority}\n\
             contexts:\n- name: grove\n  context:\n    cluster: grove\n    user: admin\n\
             users:\n- name: admin\n  user:\n    token: {token}\n",
            self.address
        )
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, server: Arc<Server>) {
    // Connections live in this set and end with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (stream, _) = patiently(|| listener.accept()) => {
                drop(connections.spawn(serve(stream, acceptor.clone(), server.clone())));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The next connection. The peer may be gone already, or the process is out of file descriptors: a pause lets others
/// end before the next try, and grows as long as tries fail.
async fn patiently<T, F: Future<Output = io::Result<T>>>(mut accept: impl FnMut() -> F) -> T {
    let mut pause = ACCEPT_PAUSE_MIN;
    loop {
        match accept().await {
            Ok(accepted) => return accepted,
            Err(error) => tracing::warn!(%error, "cannot accept a connection; trying again in {pause:?}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, server: Arc<Server>) {
    // Watch events are small and must not wait for more.
    let _ = stream.set_nodelay(true);
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => return tracing::debug!(%error, "TLS handshake failed"),
    };
    let born = server.faults.epoch();
    let service = service_fn(move |request| {
        let server = server.clone();
        // An error, the loss of the connection, makes hyper close it.
        async move { answer(&server, request, born).await }
    });
    let connection = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = connection {
        tracing::debug!(%error, "connection ended");
    }
}

async fn answer(
    server: &Arc<Server>,
    request: Request<Incoming>,
    born: u64,
) -> Result<Response<ResponseBody>, ConnectionLost> {
    let (parts, body) = request.into_parts();
    let user = match identify(server, &parts, None) {
        Ok(user) => user,
        Err(error) => return Ok(error_response(&error)),
    };
    let bytes = match whole(body).await {
        Ok(bytes) => bytes,
        Err(error) => return Ok(error_response(&error)),
    };
    pass(server, Request::from_parts(parts, bytes), &Visitor { user, born }).await
}

/// Reads a body. What exceeds the limit is dropped as it comes, up to a point: a client that still sends when the door
/// closes does not get to hear why.
async fn whole(mut body: Incoming) -> Result<Bytes, ApiError> {
    let (mut kept, mut dropped) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        // The client is gone, or sends what is no HTTP.
        let frame = frame.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let data = frame.into_data().unwrap_or_default();
        if dropped == 0 && kept.len() + data.len() <= BODY_BYTES_MAX {
            kept.extend_from_slice(&data);
        } else {
            dropped += data.len();
        }
        if dropped > DROPPED_BYTES_MAX {
            break;
        }
    }
    match dropped {
        0 => Ok(kept.freeze()),
        _ => Err(ApiError::too_large(BODY_BYTES_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_door_that_cannot_open_does_not_knock_all_the_time() {
        let (mut tries, start) = (0, tokio::time::Instant::now());
        let accepted = patiently(|| {
            tries += 1;
            std::future::ready(match start.elapsed() < Duration::from_secs(60) {
                true => Err(io::Error::other("too many open files")),
                false => Ok("open"),
            })
        });
        assert_eq!(accepted.await, "open");
        assert!((60..80).contains(&tries), "{tries}");
    }
}
