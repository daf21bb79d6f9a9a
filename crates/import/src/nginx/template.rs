//! Texts with variables, as templates of gateway.yaml.

use super::context::Scope;
use super::units::{Piece, pieces};

/// What variables stand for in a scope: the constants of `set`, and the name of the server.
pub(super) struct Variables {
    constants: Vec<(String, String)>,
}

impl Variables {
    pub(super) fn of(scope: &Scope<'_>, server_name: &str, is_tls: bool) -> Self {
        let scheme = if is_tls { "https" } else { "http" };
        let mut constants = vec![
            ("server_name".to_owned(), server_name.to_owned()),
            ("scheme".to_owned(), scheme.to_owned()),
        ];
        for set in scope.every("set") {
            constants.push((set.arg(0).trim_start_matches('$').to_owned(), set.arg(1).to_owned()));
        }
        Self { constants }
    }

    /// The text with constants in place of their variables.
    pub(super) fn expand(&self, text: &str) -> String {
        let expanded = pieces(text).into_iter().map(|piece| match piece {
            Piece::Literal(text) => text,
            Piece::Variable(name) => {
                self.constant(&name).map_or_else(|| format!("${{{name}}}"), str::to_owned)
            }
        });
        expanded.collect()
    }

    fn constant(&self, name: &str) -> Option<&str> {
        let found = self.constants.iter().rev().find(|(known, _)| known == name)?;
        (!found.1.contains('$')).then_some(found.1.as_str())
    }

    /// The text as a template.
    ///
    /// # Errors
    /// The variable that has no equivalent.
    pub(super) fn template(&self, text: &str) -> Result<String, String> {
        let mut out = String::new();
        for piece in pieces(text) {
            match piece {
                Piece::Literal(text) => out += &text.replace('{', "{{").replace('}', "}}"),
                Piece::Variable(name) => match self.constant(&name) {
                    Some(constant) => out += &constant.replace('{', "{{").replace('}', "}}"),
                    None => out += variable(&name).ok_or(name)?,
                },
            }
        }
        Ok(out)
    }
}

/// The variable of a template that has the value of a variable of nginx.
fn variable(name: &str) -> Option<&'static str> {
    Some(match name {
        "host" | "http_host" => "{host}",
        "remote_addr" | "realip_remote_addr" => "{client_ip}",
        "scheme" => "{scheme}",
        "request_id" => "{request_id}",
        "request_method" => "{method}",
        // Of the importer: what the path has after the prefix of its location.
        "*rest" => "{rest}",
        "uri" | "document_uri" | "request_uri" => "{path}",
        "args" | "query_string" => "{query}",
        "ssl_client_s_dn" => "{tls:subject}",
        "ssl_client_fingerprint" => "{tls:fingerprint}",
        _ => return None,
    })
}
