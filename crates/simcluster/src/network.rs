//! How the cluster reaches servers that others run: admission webhooks.
//!
//! A real cluster dials a socket. Under virtual time nothing may wait for a socket, because a paused clock jumps to the
//! next timer as soon as every task waits; so a server in this process is reached through a pipe on the same runtime.
//! Both carry the same bytes: TLS and HTTP are none of this module's matter.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Bytes that one side of a pipe may be ahead of the other.
const PIPE_BYTES: usize = 64 * 1024;

/// A connection of whatever sort.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Where a name leads.
#[derive(Clone, Debug)]
enum Destination {
    Socket(SocketAddr),
    Pipe(mpsc::UnboundedSender<DuplexStream>),
}

/// The names that the cluster knows beside those of the system it runs on.
#[derive(Debug, Default)]
pub struct Network {
    destinations: Mutex<BTreeMap<String, Destination>>,
}

impl Network {
    /// Opens `authority` (`127.0.0.1:9443`, or `NAME.NAMESPACE.svc:PORT` for a Service) to a server in this process.
    ///
    /// Every connection to it arrives at the returned listener; once that is dropped, connections are refused.
    pub fn listen(&self, authority: &str) -> PipeListener {
        let (sender, connections) = mpsc::unbounded_channel();
        self.set(authority, Destination::Pipe(sender));
        PipeListener { connections }
    }

    /// Leads `authority` to a socket, as a Service leads to the pod behind it.
    pub fn forward(&self, authority: &str, socket: SocketAddr) {
        self.set(authority, Destination::Socket(socket));
    }

    fn set(&self, authority: &str, destination: Destination) {
        let mut destinations = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        destinations.insert(authority.to_owned(), destination);
    }

    /// Whether `authority` leads somewhere without the help of the system's names.
    pub(crate) fn knows(&self, authority: &str) -> bool {
        let destinations = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        destinations.contains_key(authority)
    }

    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let known = {
            let destinations = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
            destinations.get(&format!("{host}:{port}")).cloned()
        };
        match known {
            Some(Destination::Pipe(listener)) => {
                let (ours, theirs) = duplex(PIPE_BYTES);
                listener
                    .send(theirs)
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                Ok(Box::new(ours))
            }
            Some(Destination::Socket(socket)) => Ok(Box::new(TcpStream::connect(socket).await?)),
            None => Ok(Box::new(TcpStream::connect((host, port)).await?)),
        }
    }
}

/// The server's end of a name: what `TcpListener` is to a socket.
#[derive(Debug)]
pub struct PipeListener {
    connections: mpsc::UnboundedReceiver<DuplexStream>,
}

impl PipeListener {
    /// The next connection; `None` when the cluster is gone or the name was given to somebody else.
    pub async fn accept(&mut self) -> Option<DuplexStream> {
        self.connections.recv().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_name_leads_to_a_pipe_until_its_listener_is_gone() {
        let network = Network::default();
        let mut listener = network.listen("hook.default.svc:443");
        let mut ours = network.connect("hook.default.svc", 443).await.unwrap();
        let mut theirs = listener.accept().await.unwrap();
        ours.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        theirs.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
        drop(listener);
        let refused = network.connect("hook.default.svc", 443).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
