//! Who asks, and what their token allows.

use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;

use super::{Admin, Answer, problem};
use sluicegate_config::{AdminConfig, Role};

/// What stands before the token (RFC 6750).
const SCHEME: &[u8] = b"Bearer ";
/// The name of whoever has `admin.token`.
const ADMIN: &str = "admin";

impl Admin {
    /// The name of whoever sent a request that `role` is needed for. Each token is compared in a time that does not tell how
    /// much of it was right.
    ///
    /// # Errors
    /// The answer, if the request has no token, or one that does not allow it.
    #[allow(clippy::result_large_err, reason = "an answer is made once for each request of an operator")]
    pub(super) fn actor(&self, request: &Request<Incoming>, role: Role) -> Result<String, Answer> {
        let snapshot = self.shared.snapshot.load();
        let Some(admin) = &snapshot.config.admin else {
            return Err(problem(StatusCode::FORBIDDEN, "this API is read-only"));
        };
        if admin.token.is_empty() && admin.tokens.is_empty() {
            let why = "this API is read-only: set admin.token to allow changes";
            return Err(problem(StatusCode::FORBIDDEN, why));
        }
        let said =
            request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let (scheme, said) = said.split_at_checked(SCHEME.len()).unwrap_or_default();
        let said = if scheme.eq_ignore_ascii_case(SCHEME) { said } else { b"" };
        match holder(admin, said) {
            Some((name, allowed)) if allowed >= role => Ok(name.to_owned()),
            Some((name, _)) => {
                let why = format!("the token of `{name}` does not allow this: see its role in admin.tokens");
                Err(problem(StatusCode::FORBIDDEN, &why))
            }
            None => {
                let why = match role {
                    Role::Read => "this API needs `Authorization: Bearer TOKEN`",
                    Role::Rules | Role::All => "changes need `Authorization: Bearer TOKEN`",
                };
                let mut refusal = problem(StatusCode::UNAUTHORIZED, why);
                let scheme = HeaderValue::from_static("Bearer");
                refusal.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
                Err(refusal)
            }
        }
    }
}

/// Who has this token, and what it allows.
fn holder<'a>(admin: &'a AdminConfig, said: &[u8]) -> Option<(&'a str, Role)> {
    let own = (ADMIN, admin.token.reveal(), Role::All);
    let others = admin.tokens.iter().map(|token| (token.name.as_str(), token.token.reveal(), token.role));
    let mut found = None;
    for (name, token, role) in std::iter::once(own).chain(others) {
        let differences = said.iter().zip(token.as_bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
        if said.len() == token.len() && differences == 0 && !token.is_empty() {
            found = found.or(Some((name, role)));
        }
    }
    found
}
