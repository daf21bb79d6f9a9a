//! A relay between gateways and a server that delays, stalls, cuts and holds connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::faults::Random;

const CALM: u64 = 0;
const DISTURBED: u64 = 1;
const CUT: u64 = 2;
/// A delay in milliseconds is added to this.
const SLOW: u64 = 1_000;

/// A relay. It ends when this is dropped.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    mode: Arc<AtomicU64>,
    _ended: tokio::sync::oneshot::Sender<()>,
}

impl Relay {
    /// A relay to this server. It disturbs nothing at first; `seed` chooses the disturbances.
    pub fn start(server: SocketAddr, seed: u64) -> Self {
        let (told, address) = std::sync::mpsc::channel();
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let mode = Arc::new(AtomicU64::new(CALM));
        let shared = Arc::clone(&mode);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let random = Arc::new(Mutex::new(Random::seeded(seed)));
                let accepting = async {
                    loop {
                        let Ok((client, _)) = listener.accept().await else { continue };
                        let Ok(server) = TcpStream::connect(server).await else { continue };
                        client.set_nodelay(true).unwrap();
                        server.set_nodelay(true).unwrap();
                        let ((from, to), (back, out)) = (client.into_split(), server.into_split());
                        tokio::spawn(pass(from, out, Arc::clone(&shared), Arc::clone(&random)));
                        tokio::spawn(pass(back, to, Arc::clone(&shared), Arc::clone(&random)));
                    }
                };
                tokio::select! {
                    () = accepting => {}
                    _ = end => {}
                }
            });
        });
        Self { address: address.recv().unwrap(), mode, _ended: ended }
    }

    /// Bytes are delayed from now on, connections stall and are cut.
    pub fn disturb(&self) {
        self.mode.store(DISTURBED, Ordering::Relaxed);
    }

    /// Everything is passed on at once again.
    pub fn calm(&self) {
        self.mode.store(CALM, Ordering::Relaxed);
    }

    /// Everything takes so long from now on, in each direction.
    pub fn delay(&self, millis: u64) {
        self.mode.store(SLOW + millis, Ordering::Relaxed);
    }

    /// Nothing is passed on any more, and connections stay open.
    pub fn cut(&self) {
        self.mode.store(CUT, Ordering::Relaxed);
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mode: Arc<AtomicU64>,
    random: Arc<Mutex<Random>>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let disturbed = || {
            let mut random = random.lock().unwrap();
            [random.below(1_000), random.below(1_000)]
        };
        let millis = match mode.load(Ordering::Relaxed) {
            DISTURBED => match disturbed() {
                [0..=2, _] => return, // cut
                [3..=12, length] => 20 + length as u64 / 10,
                [_, length] => length as u64 / 300,
            },
            mode => mode.saturating_sub(SLOW),
        };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        while mode.load(Ordering::Relaxed) == CUT {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
