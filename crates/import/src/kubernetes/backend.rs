//! Services as upstreams.

use super::objects::Object;
use crate::fields::Field;
use crate::marks::Marks;
use crate::sections::Sections;
use crate::yaml::{Node, list, map, text};

/// The services that are among the documents.
pub(super) struct Backends<'a>(Vec<Service<'a>>);

struct Service<'a> {
    name: &'a str,
    namespace: &'a str,
    field: &'a Field,
}

/// A port of a service.
pub(super) struct Target {
    pub(super) name: String,
    /// Without the scheme.
    address: String,
    pub(super) weight: u64,
}

impl<'a> Backends<'a> {
    pub(super) fn of(objects: &[&Object<'a>]) -> Self {
        let of = |object: &&Object<'a>| Service {
            name: object.name,
            namespace: object.namespace,
            field: object.field,
        };
        Self(objects.iter().map(of).collect())
    }

    /// The port of a service, by its number or name.
    pub(super) fn target(
        &self,
        name: &Field,
        namespace: &str,
        port: Option<&Field>,
        marks: &mut Marks,
    ) -> Option<Target> {
        let service = name.text()?;
        let known = self.0.iter().find(|one| one.name == service && one.namespace == namespace);
        let number = match port.and_then(Field::text) {
            Some(text) if text.parse::<u16>().is_ok() => text.to_owned(),
            wanted => match (known.and_then(|known| port_of(known.field, wanted, marks)), wanted) {
                (Some(number), _) => number,
                (None, Some("http" | "web") | None) => "80".to_owned(),
                (None, Some("https")) => "443".to_owned(),
                (None, Some(other)) => {
                    let text = format!(
                        "add the Service {namespace}/{service} to the input, which says what port `{other}` is"
                    );
                    marks.unsupported(port.unwrap_or(name).number, text);
                    return None;
                }
            },
        };
        if let Some(field) = port {
            let named = field.text() != Some(number.as_str());
            let is_known = known
                .is_some_and(|known| port_of(known.field, field.text(), &mut Marks::default()).is_some());
            match named && !is_known {
                true => marks.approximated(
                    field.number,
                    format!("port {number}, as its name says; the Service is not in the input"),
                ),
                false => marks.converted(field.number, format!("port {number}")),
            }
        }
        let external = known.and_then(|known| known.field.at(&["spec", "externalName"]));
        let host = match external.and_then(|field| Some((field, field.text()?))) {
            Some((field, host)) => {
                marks.converted(field.number, "the host of the server");
                host.to_owned()
            }
            None => format!("{service}.{namespace}.svc.cluster.local"),
        };
        let shown =
            if namespace == "default" { service.to_owned() } else { format!("{namespace}-{service}") };
        marks.converted(name.number, format!("a server of an upstream: {host}"));
        Some(Target { name: shown, address: format!("{host}:{number}"), weight: 1 })
    }
}

/// The number of a port of a service, by its name; of its only port without one.
fn port_of(service: &Field, wanted: Option<&str>, marks: &mut Marks) -> Option<String> {
    let ports = service.at(&["spec", "ports"])?.items();
    let port = ports.iter().find(|port| wanted.is_none_or(|wanted| port.text_of("name") == Some(wanted)))?;
    for name in ["name", "port"] {
        if let Some(field) = port.get(name) {
            marks.converted(field.number, "the port of a server");
        }
    }
    port.text_of("port").map(str::to_owned)
}

/// Adds the upstream of some targets.
pub(super) fn upstream(
    targets: &[Target],
    scheme: &str,
    fields: &[(String, Node)],
    sections: &mut Sections,
) -> Result<String, String> {
    let server = |target: &Target| {
        let url = text(format!("{scheme}://{}", target.address));
        if targets.len() == 1 { url } else { map().with("url", url).with("weight", text(target.weight)) }
    };
    let node = map().with("servers", list(targets.iter().map(server)));
    let node = fields.iter().fold(node, |node, (key, value)| node.with(key, value.clone()));
    let name = targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join("-");
    sections.upstream(&name, node)
}
