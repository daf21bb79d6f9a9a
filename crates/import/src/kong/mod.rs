//! kong.yaml, the declarative configuration of Kong.
//!
//! `entities` reads services, routes and consumers; `scope` says which plugin applies to which route; `limits` converts rate-limiting,
//! `plugins` the others, `upstream` services and upstreams, `route` routes in the order in which Kong tries them, `expression` what can be read of those with an expression; `known` explains the
//! rest.

mod entities;
mod expression;
mod known;
mod limits;
mod path;
mod plugins;
mod route;
mod scope;
mod transform;
mod upstream;

pub use self::entities::Consumer;

use self::entities::Entities;
use self::limits::Limits;
use self::plugins::Access;
use self::route::{Sections, routes};
use self::upstream::Upstreams;
use crate::fields::{Fields, mistake, report};
use crate::marks::Marks;
use crate::report::Imported;
use crate::yaml::{list, map, text};

/// The result of an import.
#[derive(Clone, Debug)]
pub struct KongImport {
    /// The gateway.yaml and the report.
    pub imported: Imported,
    /// The consumers of the file consumers.yaml, which the gateway.yaml names if there are any.
    pub consumers: Vec<Consumer>,
}

/// Converts the text of a kong.yaml.
///
/// # Errors
/// The first mistake, with its line and a caret; or why nothing of it can be converted.
pub fn import_text(path: &str, input: &str) -> Result<KongImport, String> {
    let mut documents = Fields::default().read(path, input)?;
    let Some(document) = documents.first_mut() else {
        return Err(format!(
            "{path}: there is nothing in it\n  help: name a kong.yaml with `_format_version`\n"
        ));
    };
    entities::conceal(document);
    let document = &documents[0];
    let Some(version) = document.get("_format_version") else {
        let help = "a declarative configuration of Kong begins with `_format_version: \"3.0\"`";
        return Err(mistake(document, input, "there is no `_format_version`", help));
    };
    let mut marks = Marks::default();
    let regex_by_tilde = version.text().is_some_and(|version| version.starts_with('3'));
    let version_text = match regex_by_tilde {
        true => "regular expressions in paths begin with ~",
        false => "paths with other characters than letters, digits and ._~/%- are regular expressions",
    };
    marks.converted(version.number, version_text);
    let entities = Entities::of(document, &mut marks);
    if entities.routes.is_empty() {
        return Err(mistake(
            document,
            input,
            "there are no routes in it",
            "routes are in `services[].routes` or `routes`",
        ));
    }
    let mut sections = Sections {
        limits: Limits::default(),
        upstreams: Upstreams::of(&entities),
        access: Access::of(&entities, &mut marks),
    };
    let routes = routes(&entities, &mut sections, regex_by_tilde, &mut marks);
    if routes.is_empty() {
        let help =
            "a route needs a service with `url` or `host`, and `paths`, `hosts`, `methods` or `headers`";
        return Err(mistake(document, input, "none of its routes can be converted", help));
    }
    let Sections { limits, upstreams, access } = sections;
    let store = limits.store(&mut marks);
    let consumers = if access.has_consumers() { entities.file(&mut marks) } else { Vec::new() };
    marks.report.note(
        "Kong listens where kong.conf says: 8000 is its default. Change `listen`, and add `tls` for 8443",
    );
    let request_headers = access.request_headers(&mut marks);
    let file = map()
        .with("listen", list([text("0.0.0.0:8000").comment("the default of Kong")]))
        .with("auth", access.section())
        .with("store", store)
        .with("request_headers", request_headers)
        .with("lists", access.lists())
        .with("limits", limits.finish())
        .with("upstreams", upstreams.finish(&mut marks))
        .with("routes", routes);
    let comment = format!(
        "Converted from {path} by `sluicegate import kong`. Comments name the lines that parts come from."
    );
    let yaml = file.file(&[comment]);
    let report = report(marks, &documents, &known::rest);
    Ok(KongImport { imported: Imported { yaml, report }, consumers })
}
