//! Who the client is: the proxies that are believed, and the header that they write.

use super::checks::{header_name, in_range, value};
use super::lists;
use super::section::Section;
use crate::model::listener::{ClientIpConfig, ForwardedHeader, TrustedList};
use crate::model::lists::{ListConfig, ListSource};
use crate::model::reference::Reference;
use crate::parse_network;
use crate::raw::listen::RawClientIp;
use crate::raw::lists::RawProxy;
use crate::read::at::{At, Folder};
use crate::read::nearest::nearest;
use crate::read::report::{Problem, Report};

/// The headers of lists of addresses, and the usual one of a single address.
const KNOWN: [(&str, ForwardedHeader); 3] = [
    ("x-forwarded-for", ForwardedHeader::XForwardedFor),
    ("forwarded", ForwardedHeader::Forwarded),
    ("x-real-ip", ForwardedHeader::XRealIp),
];

/// Who is believed, and the lists without a name that this takes: their places are behind the lists of the file.
pub(super) fn client_ip(
    raw: Option<&At<RawClientIp>>,
    folder: Folder<'_>,
    named: &Section<ListConfig>,
    report: &mut Report,
) -> (ClientIpConfig, Vec<ListConfig>) {
    let mut config = ClientIpConfig {
        trusted_proxies: Vec::new(),
        trusted_lists: Vec::new(),
        header: ForwardedHeader::XForwardedFor,
        depth: None,
        ipv6_prefix: 64,
    };
    let mut files: Vec<ListConfig> = Vec::new();
    let Some(raw) = raw.map(|raw| &raw.value) else { return (config, files) };
    for proxy in raw.trusted_proxies.as_ref().map_or(&[][..], |proxies| &proxies.value) {
        match proxy {
            RawProxy::Text(text) => trust(text, named, &mut config, report),
            RawProxy::File(file) => {
                let Some(found) = lists::file(file, folder, report) else { continue };
                let mut all = named.valid().map(|(_, list)| list).chain(&files).enumerate();
                let known = all.find(|(_, list)| list.file() == Some(&found));
                let list = known.map(|(index, list)| Reference { index, name: list.name.clone() });
                let list = list.unwrap_or_else(|| {
                    // No list of the file has a colon in its name.
                    let name = format!("trusted_proxies:{}", file.value);
                    let index = named.valid().count() + files.len();
                    let source = ListSource::File(found);
                    files.push(ListConfig { name: name.clone(), at: file.at, source });
                    Reference { index, name }
                });
                config.trusted_lists.push(TrustedList { list, written: file.clone() });
            }
        }
    }
    config.depth = raw
        .depth
        .as_ref()
        .and_then(|depth| in_range(depth, 1..=32, "depth", report))
        .map(|depth| depth as usize);
    if let Some(text) = &raw.header {
        config.header = header(text, report).unwrap_or(config.header);
        let nobody = raw.trusted_proxies.as_ref().is_none_or(|proxies| proxies.value.is_empty());
        if nobody
            && raw.depth.is_none()
            && !raw.wrong.iter().any(|field| ["trusted_proxies", "depth"].contains(field))
        {
            report.warning(
                text.problem("`header` has no effect without `trusted_proxies`")
                    .help("name the proxies in front of the gateway; nobody else is believed"),
            );
        }
    }
    if let Some(depth) = &raw.depth
        && !matches!(config.header, ForwardedHeader::XForwardedFor | ForwardedHeader::Forwarded)
    {
        report.error(
            Problem::new(
                depth.at,
                format!("`depth` needs a list of addresses, and `{}` has one", config.header.name()),
            )
            .help("remove `depth`, or use `header: x-forwarded-for` or `header: forwarded`"),
        );
    }
    if let Some(prefix) = &raw.ipv6_prefix {
        config.ipv6_prefix = in_range(prefix, 1..=128, "ipv6_prefix", report).map_or(64, |n| n as u8);
    }
    (config, files)
}

/// Trusts an address, a network, or a list with a name.
fn trust(text: &At<String>, named: &Section<ListConfig>, config: &mut ClientIpConfig, report: &mut Report) {
    if let Some(name) = text.value.strip_prefix("list:") {
        let name = text.piece("list:".len(), name);
        let Some((list, _)) = named.find(&name, report) else { return };
        config.trusted_lists.push(TrustedList { list, written: text.clone() });
    } else if named.valid().any(|(name, _)| name.value == text.value) {
        report.error(
            text.problem(format!("`{}` is a list, and `trusted_proxies` are networks", text.value))
                .help(format!("write list:{}", text.value)),
        );
    } else if let Some(network) = value(text, report, parse_network) {
        config.trusted_proxies.push(network);
        if network.prefix_len() == 0 {
            report.warning(believes_everybody(text));
        }
    }
}

/// The warning about a trusted proxy that stands for every address.
pub fn believes_everybody(text: &At<String>) -> Problem {
    text.problem(format!("`{}` believes everybody, so clients choose their address", text.value))
        .help("name only the proxies in front of the gateway")
}

/// One of the known headers, or another one that holds one address. A near miss of a known header is an error.
fn header(text: &At<String>, report: &mut Report) -> Option<ForwardedHeader> {
    let lower = text.value.to_ascii_lowercase();
    if let Some((_, header)) = KNOWN.iter().find(|(name, _)| *name == lower) {
        return Some(header.clone());
    }
    let near = nearest(&lower, KNOWN.iter().map(|(name, _)| *name));
    // A word more, as in X-Vercel-Forwarded-For, is no slip of the keyboard.
    if let Some(near) = near.filter(|near| near.len().abs_diff(lower.len()) < 4) {
        report.error(
            text.problem(format!("unknown header `{}`", text.value)).help(format!("did you mean `{near}`?")),
        );
        return None;
    }
    value(text, report, header_name).map(ForwardedHeader::Single)
}
