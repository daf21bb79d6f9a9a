//! The scripts as servers know them: by the SHA-1 of their text.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use futures_util::future::join;
use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};

use super::protocol::Algorithms;
use super::script_text;

/// All scripts.
pub(super) struct Scripts {
    /// Checks all limits, then charges all: one script for each kind of algorithms.
    decide: [Script; 6],
    /// Refunds charges.
    pub(super) refund: Script,
    /// Charges late costs.
    pub(super) spend: Script,
    /// Charges requests that were admitted while the store did not answer.
    pub(super) report: Script,
    /// Uses all commands of the others.
    pub(super) probe: Script,
    /// Renews the places of requests in flight.
    pub(super) renew: Script,
}

/// One script.
pub(super) struct Script {
    text: &'static str,
    sha1: String,
}

/// The form in which a server accepts calls of scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ScriptForm {
    /// By their SHA-1: the server has their texts.
    #[default]
    Sha1,
    /// By their SHA-1, and with the text if the server does not know it: it does not allow SCRIPT LOAD.
    TextIfUnknown,
    /// Always with the text: it does not allow EVALSHA.
    Text,
}

/// The scripts of this version.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    decide: Algorithms::ALL.map(|algorithms| Script::new(script_text::decide(algorithms))),
    refund: Script::new(script_text::REFUND),
    spend: Script::new(script_text::SPEND),
    report: Script::new(script_text::REPORT),
    probe: Script::new(script_text::PROBE),
    renew: Script::new(script_text::RENEW),
});

impl Scripts {
    /// The script that decides about limits of these algorithms.
    pub(super) fn decide(&self, algorithms: Algorithms) -> &Script {
        &self.decide[algorithms as usize]
    }

    fn all(&self) -> impl Iterator<Item = &Script> {
        self.decide.iter().chain([&self.refund, &self.spend, &self.report, &self.probe, &self.renew])
    }

    /// Which of the scripts a server has. If the user may not ask for them, none.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn known(mut channel: MultiplexedConnection) -> RedisResult<Vec<bool>> {
        let mut exist = redis::cmd("SCRIPT");
        exist.arg("EXISTS");
        SCRIPTS.all().for_each(|script| _ = exist.arg(&script.sha1));
        match exist.query_async(&mut channel).await {
            Err(error) if denied(&error) => Ok(Vec::new()),
            known => known,
        }
    }

    /// Loads the scripts that a server lacks. Returns the form in which it accepts calls.
    ///
    /// # Errors
    /// When it accepts none.
    pub(super) async fn load(
        mut channel: MultiplexedConnection,
        known: Vec<bool>,
    ) -> RedisResult<ScriptForm> {
        let known = known.into_iter().chain(std::iter::repeat(false));
        let missing = SCRIPTS.all().zip(known).filter(|(_, known)| !known);
        let mut pipeline = Pipeline::new();
        for (script, _) in missing {
            pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text).ignore();
        }
        if pipeline.is_empty() {
            return Self::try_call(&mut channel, ScriptForm::Sha1).await;
        }
        // The call is sent together with the scripts, and executed after them.
        let mut after = channel.clone();
        let loading = pipeline.exec_async(&mut channel);
        match join(loading, Self::try_call(&mut after, ScriptForm::Sha1)).await {
            (Err(error), _) if denied(&error) => {
                Self::try_call(&mut channel, ScriptForm::TextIfUnknown).await
            }
            (loaded, called) => loaded.and(called),
        }
    }

    /// Calls a script that does nothing, to find out whether the server accepts this form.
    async fn try_call(channel: &mut MultiplexedConnection, form: ScriptForm) -> RedisResult<ScriptForm> {
        let mut call = SCRIPTS.renew.call([].into_iter());
        call.arg(&[0; 8]).arg(b"").arg(0);
        let error = match call.exec_async(channel).await {
            Err(error) if denied(&error) || (form == ScriptForm::TextIfUnknown && unknown(&error)) => error,
            called => return called.map(|()| form),
        };
        match with_text(&call).exec_async(channel).await {
            Ok(()) if denied(&error) => Ok(ScriptForm::Text),
            Ok(()) => Ok(ScriptForm::TextIfUnknown),
            Err(also) if denied(&also) => Err(error), // the first missing permission
            Err(other) => Err(other),
        }
    }
}

/// Converts an error of the server, which the library returns as a value, to an error.
pub(super) fn server_error_as_err(reply: RedisResult<Value>) -> RedisResult<Value> {
    match reply {
        Ok(Value::ServerError(error)) => Err(error.into()),
        reply => reply,
    }
}

/// Whether the user lacks the permission.
pub(super) fn denied(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

fn unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The same call with the text of the script in place of its SHA-1. Other commands are not changed.
pub(super) fn with_text(call: &Cmd) -> Cmd {
    let mut arguments = call.args_iter().filter_map(|argument| match argument {
        Arg::Simple(bytes) => Some(bytes),
        _ => None, // no call of a script has a cursor
    });
    let (command, name) = (arguments.next(), arguments.next());
    let script = SCRIPTS.all().find(|script| name == Some(script.sha1.as_bytes()));
    let Some(script) = script.filter(|_| command == Some(b"EVALSHA")) else { return call.clone() };
    let mut whole = redis::cmd("EVAL");
    whole.arg(script.text);
    arguments.for_each(|argument| _ = whole.arg(argument));
    whole
}

impl Script {
    fn new(text: &'static str) -> Self {
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        let sha1 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha1 }
    }

    /// A call with these keys; the arguments follow.
    pub(super) fn call<'a>(&self, keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha1).arg(keys.len());
        for key in keys {
            call.arg(key);
        }
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_with_the_text_has_the_same_arguments() {
        let mut call = SCRIPTS.refund.call([&b"key"[..]].into_iter());
        call.arg(b"argument");
        let mut whole = redis::cmd("EVAL");
        whole.arg(script_text::REFUND).arg(1).arg(b"key").arg(b"argument");
        assert_eq!(with_text(&call).get_packed_command(), whole.get_packed_command());
        let other = redis::cmd("TIME");
        assert_eq!(with_text(&other).get_packed_command(), other.get_packed_command());
    }
}
