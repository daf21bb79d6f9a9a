//! The YAML files of envoyproxy/ratelimit: a domain with nested descriptors.
//!
//! `entry` says what an entry of a descriptor is in the gateway, `rules` reads the descriptors, `routes` finds the limits of each
//! route.

mod entry;
mod routes;
mod rules;

pub use self::entry::Meanings;
use self::rules::{Rule, Rules};
use crate::fields::{Field, Fields, report};
use crate::marks::Marks;
use crate::report::Imported;
use crate::report::Outcome;
use crate::sections::Sections;
use crate::yaml::{list, map, text};

/// Converts files of envoyproxy/ratelimit, with their names.
///
/// # Errors
/// The first mistake of a file, with its line and a caret; or that no file has descriptors.
pub fn import(path: &str, files: &[(String, String)], meanings: &Meanings) -> Result<Imported, String> {
    let mut fields = Fields::default();
    let mut documents = Vec::new();
    for (file, text) in files {
        documents.extend(fields.read(file, text)?);
    }
    let domains: Vec<_> = documents.iter().filter(|document| document.get("descriptors").is_some()).collect();
    if domains.is_empty() {
        return Err(format!(
            "{path}: there are no `descriptors` in it\n  help: name a file of envoyproxy/ratelimit, or the folder with all of them\n"
        ));
    }
    let mut marks = Marks::default();
    let mut sections = Sections::default();
    let mut found: Vec<Rule> = Vec::new();
    for document in &domains {
        let domain = document.text_of("domain").unwrap_or_default();
        if let Some(field) = document.get("domain") {
            let said = "all routes have the limits of all domains; in Envoy each filter names one. Take limits from routes that \
                        belong to another domain";
            match domains.len() {
                1 => marks.converted(field.number, "the limits of this file"),
                _ => marks.approximated(field.number, said),
            }
        }
        let prefix = (domains.len() > 1).then_some(domain);
        Rules { meanings, prefix, marks: &mut marks, sections: &mut sections, found: &mut found }
            .read(document);
    }
    notes(&mut marks, &found);
    sections.listen.push(map().with("address", text("0.0.0.0:8080")).comment("the address for clients"));
    let servers = map().with("servers", list([text("http://127.0.0.1:9000")]));
    let servers = servers.above("the API behind the gateway: the files do not name it");
    let upstream = sections.upstream("api", servers)?;
    routes::add(&found, &upstream, &mut sections, &mut marks);
    let yaml = sections.finish("ratelimit", path);
    let report = report(marks, &documents, &rest);
    Ok(Imported { yaml, report })
}

fn notes(marks: &mut Marks, rules: &[Rule]) {
    let notes = [
        (
            true,
            "Envoy calls the service with descriptors that its own configuration makes of requests. These files do not say which; \
                here every request has all entries that it can have. Compare the limits of each route with the rate_limits of Envoy",
        ),
        (
            true,
            "a descriptor that is refused is counted under the other descriptors of the request, too. Here a refused request is \
                counted nowhere",
        ),
        (
            rules.iter().any(|rule| rule.skips),
            "Envoy does not send a descriptor without its header, so such requests are not \
                limited: on_missing: skip. Remove it, and they are counted together",
        ),
        (
            rules.iter().any(|rule| rule.by_address),
            "the service counts every IPv6 address apart. Here all addresses of one /64 are \
                one client; client_ip: {ipv6_prefix: 128} counts as the service does",
        ),
        (
            true,
            "windows begin at whole multiples of their length, as in the service: up to twice the rate passes around the end of \
                one. algorithm: token_bucket or sliding_window avoids it",
        ),
    ];
    notes.into_iter().filter(|(holds, _)| *holds).for_each(|(_, note)| marks.report.note(note));
}

/// What becomes of a field that nothing was said of.
fn rest(_: &Field) -> (Outcome, String) {
    (
        Outcome::Unsupported,
        "the importer does not know this field: see whether a limit has an equivalent".to_owned(),
    )
}
