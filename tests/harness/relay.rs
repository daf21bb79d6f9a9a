//! A relay between gateways and a server that delays, stalls and cuts connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::faults::Random;

/// A relay. It ends when this is dropped.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    disturbs: Arc<AtomicBool>,
    _ended: tokio::sync::oneshot::Sender<()>,
}

impl Relay {
    /// A relay to this server. It disturbs nothing at first; `seed` chooses the disturbances.
    pub fn start(server: SocketAddr, seed: u64) -> Self {
        let (told, address) = std::sync::mpsc::channel();
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let disturbs = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&disturbs);
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
        Self { address: address.recv().unwrap(), disturbs, _ended: ended }
    }

    /// Bytes are delayed from now on, connections stall and are cut.
    pub fn disturb(&self) {
        self.disturbs.store(true, Ordering::Relaxed);
    }

    /// Everything is passed on at once again.
    pub fn calm(&self) {
        self.disturbs.store(false, Ordering::Relaxed);
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    disturbs: Arc<AtomicBool>,
    random: Arc<Mutex<Random>>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if disturbs.load(Ordering::Relaxed) {
            let [kind, length] = {
                let mut random = random.lock().unwrap();
                [random.below(1_000), random.below(1_000)]
            };
            let millis = match kind {
                0..=2 => return, // cut
                3..=12 => 20 + length as u64 / 10,
                _ => length as u64 / 300,
            };
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
