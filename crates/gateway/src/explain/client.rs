//! How the address of the client was determined.

use std::net::IpAddr;

use sluicegate_wire::Headers;

use crate::snapshot::Snapshot;
use sluicegate_auth::client_address;

/// Why the client is `client` if the connection came from `peer`.
pub(super) fn why(snapshot: &Snapshot, peer: IpAddr, client: IpAddr, headers: &Headers) -> String {
    let config = &snapshot.config.client_ip;
    let header = config.header.name();
    let sent = headers.contains_key(header);
    if !client_address::trusts(config, &snapshot.config.resources.lists, peer) {
        return match sent {
            true => format!("{peer} is the peer; it is not a trusted proxy, so {header} is ignored"),
            false => format!("{peer} is the peer"),
        };
    }
    let is_at =
        |depth| format!("the peer {peer} is a proxy; {header} names {client}, number {depth} from its end");
    if let Some(depth) = config.depth.filter(|_| sent && client != peer) {
        return is_at(depth);
    }
    match (sent, client == peer) {
        (false, _) => format!("the peer {peer} is a trusted proxy, but sent no {header}"),
        (true, true) => format!("the peer {peer} is a trusted proxy, but {header} names no other address"),
        (true, false) => {
            format!(
                "the peer {peer} is a trusted proxy; {header} names {client}, the last that is not a trusted proxy"
            )
        }
    }
}
