//! `sluicegate health`

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use super::{USERS_MISTAKE, fail, print_and_exit};

#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 if the gateway serves; 1 if it does not, is going down, or cannot be asked.\n\n\
                        Examples:\n  sluicegate health\n  sluicegate health --admin 127.0.0.1:9091\n  \
                        HEALTHCHECK CMD [\"sluicegate\", \"health\"]    in a Dockerfile"
)]
pub(super) struct Args {
    /// The address of its admin API
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9090")]
    admin: String,
}

/// How long the gateway may take for each step of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &Args) -> ExitCode {
    let admin = &args.admin;
    match ask(admin) {
        Ok(200) => print_and_exit("ready\n"),
        Ok(status) => {
            fail(USERS_MISTAKE, format!("the gateway is not ready: http://{admin}/readyz says {status}"))
        }
        Err(error) => fail(USERS_MISTAKE, format!("cannot ask http://{admin}/readyz: {error}")),
    }
}

/// A connection to the first address of the name that takes one.
fn connect(admin: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in admin.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(connection) => return Ok(connection),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// The status with which the gateway answers whether it is ready.
fn ask(admin: &str) -> io::Result<u16> {
    let mut connection = connect(admin)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    connection.write_all(
        format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut beginning = [0; "HTTP/1.1 200".len()];
    connection.read_exact(&mut beginning)?;
    let status = beginning.strip_prefix(b"HTTP/1.1 ");
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1.1"))
}
