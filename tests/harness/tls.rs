//! Authorities, certificates, and clients that speak TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::client::head;
use super::deadline;

/// A certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Certificate {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "a test authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these hosts.
    pub fn sign(&self, hosts: &[&str]) -> Certificate {
        self.sign_as(hosts, "", 90)
    }

    /// A certificate of a client.
    pub fn sign_client(&self, name: &str) -> Certificate {
        self.sign_as(&[], name, 90)
    }

    /// A certificate for these hosts with an RSA key.
    pub fn sign_rsa(&self, hosts: &[&str]) -> Certificate {
        let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
        self.sign_key(hosts, "", 90, &key)
    }

    /// A certificate that is valid for this number of days; with 0 it has just expired.
    pub fn sign_as(&self, hosts: &[&str], name: &str, days: u32) -> Certificate {
        self.sign_key(hosts, name, days, &KeyPair::generate().unwrap())
    }

    fn sign_key(&self, hosts: &[&str], name: &str, days: u32, key: &KeyPair) -> Certificate {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Tests");
        params.distinguished_name.push(DnType::CommonName, name);
        let day = Duration::from_secs(86_400);
        let now = std::time::SystemTime::now();
        params.not_before = (now - day).into();
        params.not_after = (now - Duration::from_secs(1) + day * days).into();
        let cert = params.signed_by(key, &self.0).unwrap().pem();
        Certificate { cert, key: key.serialize_pem() }
    }

    /// The configuration of a client that trusts it, and presents a certificate if there is one.
    pub fn client(&self, own: Option<&Certificate>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = vec![CertificateDer::from_pem_slice(own.cert.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        }
    }
}

/// A connection with TLS.
pub struct TlsClient {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
}

impl TlsClient {
    /// Connects, sends `before` unencrypted, and then starts the handshake for `name`.
    pub fn connect(
        config: &Arc<ClientConfig>,
        address: SocketAddr,
        name: &str,
        before: &[u8],
    ) -> std::io::Result<Self> {
        let mut socket = TcpStream::connect_timeout(&address, deadline())?;
        socket.set_read_timeout(Some(deadline()))?;
        socket.set_nodelay(true)?;
        socket.write_all(before)?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connection = ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self { stream })
    }

    /// Sends a request without a body. Returns the status and the body. The connection stays open.
    pub fn ask(&mut self, target: &str, headers: &[(&str, &str)]) -> std::io::Result<(u16, String)> {
        self.stream.write_all(&head("GET", target, headers))?;
        let mut text = String::new();
        let mut piece = [0; 4096];
        loop {
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
                });
                let length: usize = length.unwrap_or_default().parse().unwrap_or(0);
                if body.len() >= length {
                    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
                    return Ok((status, body.to_owned()));
                }
            }
            match self.stream.read(&mut piece)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => text += &String::from_utf8_lossy(&piece[..read]),
            }
        }
    }

    /// The certificate that the gateway presented.
    pub fn shown(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().unwrap()[0].to_vec()
    }
}

impl Certificate {
    /// The certificate that a client receives.
    pub fn der(&self) -> Vec<u8> {
        CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap().to_vec()
    }
}
