//! Who the client is: the proxies that are believed, and the header that they write.

use std::path::Path;

use super::super::forms::RawProxy;
use super::super::listener::{ClientIpConfig, ForwardedHeader};
use super::super::lists::ListConfig;
use super::super::raw_listen::RawClientIp;
use super::super::read::At;
use super::super::relative;
use super::super::report::{Report, nearest};
use super::section::Section;
use super::{header_name, in_range, lists, value};
use crate::config::parse_network;

/// The headers of lists of addresses, and the usual one of a single address.
const KNOWN: [(&str, ForwardedHeader); 3] = [
    ("x-forwarded-for", ForwardedHeader::XForwardedFor),
    ("forwarded", ForwardedHeader::Forwarded),
    ("x-real-ip", ForwardedHeader::XRealIp),
];

/// Who is believed, and the lists without a name that this takes: their places are behind the lists of the file.
pub(super) fn client_ip(
    raw: Option<&At<RawClientIp>>,
    folder: &Path,
    named: &Section<ListConfig>,
    before: &[ListConfig],
    report: &mut Report,
) -> (ClientIpConfig, Vec<ListConfig>) {
    let mut config = ClientIpConfig {
        trusted_proxies: Vec::new(),
        trusted_lists: Vec::new(),
        header: ForwardedHeader::XForwardedFor,
        ipv6_prefix: 64,
    };
    let mut files = Vec::new();
    let Some(raw) = raw.map(|raw| &raw.value) else { return (config, files) };
    for proxy in raw.trusted_proxies.as_ref().map_or(&[][..], |proxies| &proxies.value) {
        match proxy {
            RawProxy::Text(text) => trust(text, named, &mut config, report),
            RawProxy::File(file) => {
                let found = file_of(file, folder, (named, &files), before, report);
                let Some(found) = found else { continue };
                let index = match found {
                    Found::Known(index) => index,
                    Found::New(list) => {
                        files.push(list);
                        named.valid().count() + files.len() - 1
                    }
                };
                let list = named.valid().map(|(_, list)| list).chain(&files).nth(index);
                if list.is_some_and(|list| list.known.has_everybody()) {
                    believes_everybody(file, report);
                }
                config.trusted_lists.push(index);
            }
        }
    }
    if let Some(text) = &raw.header {
        config.header = header(text, report).unwrap_or(config.header);
        let nobody = raw.trusted_proxies.as_ref().is_none_or(|proxies| proxies.value.is_empty());
        if nobody && !raw.wrong.contains(&"trusted_proxies") {
            report.warning(
                text.problem("`header` has no effect without `trusted_proxies`")
                    .help("name the proxies in front of the gateway; nobody else is believed"),
            );
        }
    }
    if let Some(prefix) = &raw.ipv6_prefix {
        config.ipv6_prefix = in_range(prefix, 1..=128, "ipv6_prefix", report).map_or(64, |n| n as u8);
    }
    (config, files)
}

/// Trusts an address, a network, or a list with a name.
fn trust(text: &At<String>, named: &Section<ListConfig>, config: &mut ClientIpConfig, report: &mut Report) {
    let everybody = if let Some(name) = text.value.strip_prefix("list:") {
        let name = text.piece("list:".len(), name);
        let Some((index, list)) = named.find(&name, report) else { return };
        config.trusted_lists.push(index);
        list.known.has_everybody()
    } else if named.valid().any(|(name, _)| name.value == text.value) {
        report.error(
            text.problem(format!("`{}` is a list, and `trusted_proxies` are networks", text.value))
                .help(format!("write list:{}", text.value)),
        );
        return;
    } else {
        let Some(network) = value(text, report, parse_network) else { return };
        config.trusted_proxies.push(network);
        network.prefix_len() == 0
    };
    if everybody {
        believes_everybody(text, report);
    }
}

fn believes_everybody(text: &At<String>, report: &mut Report) {
    report.warning(
        text.problem(format!("`{}` believes everybody, so clients choose their address", text.value))
            .help("name only the proxies in front of the gateway"),
    );
}

enum Found {
    /// A list that has this file already, by its place.
    Known(usize),
    New(ListConfig),
}

/// The list that a file holds.
fn file_of(
    file: &At<String>,
    folder: &Path,
    (named, files): (&Section<ListConfig>, &[ListConfig]),
    before: &[ListConfig],
    report: &mut Report,
) -> Option<Found> {
    let path = relative(folder, &file.value);
    let mut all = named.valid().map(|(_, list)| list).chain(files);
    if let Some(index) = all.position(|list| list.file.as_ref() == Some(&path)) {
        return Some(Found::Known(index));
    }
    let known = lists::load(file, &path, before, report)?;
    // No list of the file has a colon in its name.
    let name = format!("trusted_proxies:{}", file.value);
    Some(Found::New(ListConfig { name, file: Some(path), known }))
}

/// One of the known headers, or another one that holds one address. What is nearly a known one is a mistake.
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
