//! How keys are shown to operators: `ip:203.0.113.9`, `api_key:sha256:9f86d081884c7d65`. Secrets are replaced by digests.

use std::borrow::Cow;
use std::net::IpAddr;

use sluicegate_base::file_watch::sha256;
use sluicegate_config::{
    Config, Part, PartSource, ValueForm, has_secret_word, is_secret_header, secret_parameters,
};
use sluicegate_route::keys::parts_of;
use sluicegate_wire::number::hex;

/// Which parts of keys are secret under a configuration.
pub struct ShownKeys<'c> {
    config: &'c Config,
    /// The names of secret query parameters.
    parameters: Cow<'c, [String]>,
    /// Whether secrets are shown too.
    secrets: bool,
}

impl<'c> ShownKeys<'c> {
    /// Shows keys without the secrets of this configuration.
    pub fn new(config: &'c Config) -> Self {
        let of_log = config.access_log.as_ref().map(|log| Cow::Borrowed(log.redact.as_slice()));
        let parameters = of_log.unwrap_or_else(|| Cow::Owned(secret_parameters(&config.api_key)));
        Self { config, parameters, secrets: false }
    }

    /// Shows keys as this configuration shows them to operators.
    pub fn for_operators(config: &'c Config) -> Self {
        Self::new(config).with_secrets(config.admin.as_ref().is_some_and(|admin| admin.show_keys))
    }

    /// Shows secrets too, if `secrets` is set.
    #[must_use]
    pub(crate) fn with_secrets(self, secrets: bool) -> Self {
        Self { secrets, ..self }
    }

    /// A key; `None` if it is empty, because the request had none.
    pub fn text(&self, key: &[u8]) -> Option<String> {
        let parts: Vec<String> = parts_of(key).map(|(part, value)| self.part(&part, value)).collect();
        (!parts.is_empty()).then(|| parts.join(","))
    }

    /// Whether the value of a query parameter is secret.
    pub fn is_secret_parameter(&self, name: &[u8]) -> bool {
        crate::access_log::is_among(&self.parameters, name) || has_secret_word(&String::from_utf8_lossy(name))
    }

    fn part(&self, part: &Part, value: &[u8]) -> String {
        let name = part.name();
        if self.is_secret(part) && !self.secrets {
            let first = sha256(value).first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
            return format!("{name}:sha256:{}", String::from_utf8_lossy(&hex(first)));
        }
        match part.values() {
            ValueForm::Nothing => name.to_owned(),
            ValueForm::Address => match address(value) {
                Some(address) => format!("{name}:{address}"),
                None => name.to_owned(),
            },
            ValueForm::Host
            | ValueForm::Method
            | ValueForm::Path
            | ValueForm::Segment
            | ValueForm::Fingerprint
            | ValueForm::Text => format!("{name}:{}", String::from_utf8_lossy(value)),
        }
    }

    /// Whether the values of a part are shown as digests.
    pub fn is_secret(&self, part: &Part) -> bool {
        match part.source() {
            PartSource::ApiKey | PartSource::Cookie => true,
            PartSource::Header => part
                .header()
                .is_none_or(|name| is_secret_header(name, &self.config.api_key, self.config.token_headers())),
            PartSource::Query => self.is_secret_parameter(part.name().as_bytes()),
            PartSource::Address
            | PartSource::Nothing
            | PartSource::Route
            | PartSource::PathParameter
            | PartSource::Consumer
            | PartSource::Token
            | PartSource::Certificate
            | PartSource::Question => false,
        }
    }
}

/// The address in a key.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}
