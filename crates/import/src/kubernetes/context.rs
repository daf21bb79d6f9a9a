//! What an import knows while it walks through the objects.

use super::backend::Backends;
use super::candidates::Candidates;
use crate::fields::Field;
use crate::marks::Marks;
use crate::report::Source;
use crate::sections::Sections;

pub(super) struct Context<'a> {
    pub(super) marks: Marks,
    pub(super) sections: Sections,
    pub(super) backends: Backends<'a>,
    pub(super) candidates: Candidates,
    /// Names of secrets with certificates.
    pub(super) certificates: Vec<(String, Source)>,
}

/// Remembers a secret with a certificate.
pub(super) fn certificate_of(field: &Field, cx: &mut Context<'_>) {
    let Some(name) = field.text() else { return };
    let text = format!(
        "tls/{name}.pem and tls/{name}.key: kubectl get secret {name} has them as tls.crt and tls.key"
    );
    cx.marks.approximated(field.number, text);
    if !cx.certificates.iter().any(|(known, _)| known == name) {
        cx.certificates.push((name.to_owned(), field.source.clone()));
    }
}
