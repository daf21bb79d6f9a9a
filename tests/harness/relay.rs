//! A relay between gateways and a server that delays, stalls, cuts and holds connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::faults::Random;

/// What happens to the bytes.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Calm,
    /// They are delayed now and then, and connections stall and are cut.
    Disturbed,
    Delayed(Duration),
    /// They are held until the mode is another one.
    Held,
}

/// A relay. It ends when this is dropped.
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
    _ended: tokio::sync::oneshot::Sender<()>,
}

impl Relay {
    /// A relay to this server. It disturbs nothing at first; `seed` chooses the disturbances.
    pub fn start(server: SocketAddr, seed: u64) -> Self {
        let (shown, address) = std::sync::mpsc::channel();
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let (mode, shared) = watch::channel(Mode::Calm);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                shown.send(listener.local_addr().unwrap()).unwrap();
                let random = Arc::new(Mutex::new(Random::seeded(seed)));
                let accepting = async {
                    loop {
                        let Ok((client, _)) = listener.accept().await else { continue };
                        let Ok(server) = TcpStream::connect(server).await else { continue };
                        client.set_nodelay(true).unwrap();
                        server.set_nodelay(true).unwrap();
                        let ((from, to), (back, out)) = (client.into_split(), server.into_split());
                        tokio::spawn(pass(from, out, shared.clone(), Arc::clone(&random)));
                        tokio::spawn(pass(back, to, shared.clone(), Arc::clone(&random)));
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
        self.mode.send_replace(Mode::Disturbed);
    }

    /// Everything is passed on at once again.
    pub fn calm(&self) {
        self.mode.send_replace(Mode::Calm);
    }

    /// Everything takes so long from now on, in each direction.
    pub fn delay(&self, millis: u64) {
        self.mode.send_replace(Mode::Delayed(Duration::from_millis(millis)));
    }

    /// Nothing is passed on any more, and connections stay open.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Held);
    }
}

/// Passes bytes on. Those that are delayed do not delay the ones that are read after them, as on a long way.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mode: watch::Receiver<Mode>,
    random: Arc<Mutex<Random>>,
) {
    let (queue, mut queued) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let mut until = mode.clone();
    let reading = async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let chosen = || {
                let mut random = random.lock().unwrap();
                [random.below(1_000), random.below(1_000)]
            };
            let now = *mode.borrow();
            let delay = match now {
                Mode::Disturbed => match chosen() {
                    [0..=2, _] => return true, // cut
                    [3..=12, length] => Duration::from_millis(20 + length as u64 / 10),
                    [_, length] => Duration::from_millis(length as u64 / 300),
                },
                Mode::Delayed(delay) => delay,
                Mode::Calm | Mode::Held => Duration::ZERO,
            };
            let _ = queue.send((Instant::now() + delay, buffer[..read].to_vec()));
        }
        false
    };
    let writing = async move {
        while let Some((due, bytes)) = queued.recv().await {
            // What is delayed goes on when the delay is over, or when nothing is to be delayed any more.
            if due > Instant::now() {
                let _ = timeout_at(due, until.wait_for(|mode| *mode == Mode::Calm)).await;
            }
            if until.wait_for(|mode| *mode != Mode::Held).await.is_err()
                || to.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
    };
    let mut writing = std::pin::pin!(writing);
    tokio::select! {
        () = &mut writing => {}
        cut = reading => {
            if !cut {
                writing.await; // what was read before the end
            }
        }
    }
}
