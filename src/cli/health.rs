//! `sluicegate health`

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use super::admin_client::address;
use super::options::default_source;
use super::output::{INVALID, fail, print_and_exit};

#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 if the gateway serves; 1 if it drains, does not serve, or cannot be reached.\n\n\
                        Examples:\n  sluicegate health\n  sluicegate health --admin 127.0.0.1:9091\n  \
                        HEALTHCHECK CMD [\"sluicegate\", \"health\"]    in a Dockerfile"
)]
pub(super) struct Args {
    /// The address of the gateway's admin API [default: that of the configuration in this folder, or 127.0.0.1:9090]
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
}

/// The timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn run(args: &Args) -> ExitCode {
    let admin = address(args.admin.as_deref(), default_source);
    let admin = admin.strip_prefix("http://").unwrap_or(&admin).trim_end_matches('/');
    match readiness(admin) {
        Ok(200) => print_and_exit("ready\n"),
        Ok(status) => fail(INVALID, format!("the gateway is not ready: http://{admin}/readyz says {status}")),
        Err(error) => fail(INVALID, format!("cannot reach http://{admin}/readyz: {error}")),
    }
}

/// Connects to the first address of the name that accepts a connection.
fn connect(admin: &str) -> io::Result<TcpStream> {
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in admin.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(connection) => return Ok(connection),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// The status of the answer to `GET /readyz`.
fn readiness(admin: &str) -> io::Result<u16> {
    let mut connection = connect(admin)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    connection.write_all(
        format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut start = [0; "HTTP/1.1 200".len()];
    connection.read_exact(&mut start)?;
    let status = start.strip_prefix(b"HTTP/1.1 ");
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP/1.1"))
}
