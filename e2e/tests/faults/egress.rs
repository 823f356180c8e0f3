//! Operator and scheduler call the API server, and nobody else: whom their sockets lead to is looked up in the kernel's tables,
//! all the while that they start and work.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process};

use crate::stage::Stage;

/// Between two looks. A connection lives longer than that: it has a handshake, a request and an answer.
const PAUSE: Duration = Duration::from_millis(2);

/// Whom the sockets of a process lead to. Those that others opened to it are not among them.
fn peers(process: &Process) -> Result<BTreeSet<SocketAddr>> {
    // A host may do without the newer protocol, and then has no table of it.
    let [tcp, tcp6] = [process.tcp()?, process.tcp6().unwrap_or_default()];
    let [udp, udp6] = [process.udp()?, process.udp6().unwrap_or_default()];
    let mut own = BTreeSet::new();
    for descriptor in process.fd()? {
        // It may be closed by now.
        if let Ok(FDTarget::Socket(inode)) = descriptor.map(|descriptor| descriptor.target) {
            own.insert(inode);
        }
    }
    let mine: Vec<_> = tcp
        .iter()
        .chain(&tcp6)
        .filter(|entry| own.contains(&entry.inode))
        .collect();
    let listening = mine.iter().filter(|entry| entry.state == TcpState::Listen);
    let ports: BTreeSet<u16> = listening.map(|entry| entry.local_address.port()).collect();
    let called = mine.iter().filter(|entry| !ports.contains(&entry.local_address.port()));
    let datagrams = udp.iter().chain(&udp6).filter(|entry| own.contains(&entry.inode));
    let called = called.map(|entry| entry.remote_address);
    Ok(called.chain(datagrams.map(|entry| entry.remote_address)).collect())
}

/// Looks at a process until told to stop.
struct Watched {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<BTreeSet<SocketAddr>>>,
}

impl Watched {
    fn start(id: u32) -> Result<Self> {
        let process = Process::new(id.try_into()?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !stopped.load(Ordering::Relaxed) {
                seen.extend(peers(&process)?);
                std::thread::sleep(PAUSE);
            }
            Ok(seen)
        });
        Ok(Self { stop, thread })
    }

    /// Everybody who was called.
    fn called(self) -> Result<BTreeSet<SocketAddr>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("nobody looked"))?
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_called_but_the_api_server() -> Result<()> {
    let mut stage = Stage::shared("egress").await?;
    let operator = stage.operator_of_gangs().await?;
    let watched = Watched::start(operator.replica.id()?)?;
    let scheduler = stage.scheduler().await?;
    let other = Watched::start(scheduler.replica.id()?)?;
    operator.replica.says("registered the webhooks").await?;
    stage.calm().await?;
    stage.create("w", 8).await?;
    stage.all_ready(8, &BTreeSet::new()).await?;
    for (watched, allowed) in [(watched, operator.proxy.address), (other, scheduler.proxy.address)] {
        assert_eq!(watched.called()?, BTreeSet::from([allowed]));
    }
    Ok(())
}

/// Who is called is seen, by either protocol, and who calls is not among them.
#[test]
fn calls_are_seen() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (ours, theirs) = (
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
    );
    ours.connect(theirs.local_addr()?)?;
    let caller = TcpStream::connect(listener.local_addr()?)?;
    let _called = listener.accept()?;
    let seen = peers(&Process::myself()?)?;
    let wanted = [listener.local_addr()?, theirs.local_addr()?];
    ensure!(wanted.iter().all(|address| seen.contains(address)), "{seen:?}");
    ensure!(!seen.contains(&caller.local_addr()?), "{seen:?}");
    Ok(())
}
