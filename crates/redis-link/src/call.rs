//! Calls over the connection, with deadlines.

use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use crate::call_error::CallError;
use crate::link::{Line, Link};
use crate::script::Script;

/// What an error of one attempt means.
enum Attempt {
    /// Not executed, and another connection may do.
    Elsewhere(String),
    /// The connection broke.
    Broken(String),
    /// No answer in time.
    Late,
    /// The server does not know the script.
    NoScript,
    /// An answer.
    Refused(String),
}

impl Line {
    /// Calls a script that may be executed twice: it is called again while there is time if the connection breaks.
    ///
    /// # Errors
    /// See [`CallError`]; it takes no longer than `within`.
    pub async fn call_repeatable(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd),
        within: Duration,
    ) -> Result<Value, CallError> {
        self.run(&scripted(script, keys, arguments), true, Instant::now() + within).await
    }

    /// Calls a script that is never executed twice.
    ///
    /// # Errors
    /// See [`CallError`]; it takes no longer than `within`.
    pub async fn call_once(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd),
        within: Duration,
    ) -> Result<Value, CallError> {
        self.run(&scripted(script, keys, arguments), false, Instant::now() + within).await
    }

    /// Calls a script that is never executed twice, and then sends commands on the same connection. A command such as WAIT
    /// answers only for the writes of its connection.
    ///
    /// # Errors
    /// See [`CallError`]; it takes no longer than `within`.
    pub async fn call_once_then(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: impl Fn(&mut Cmd),
        then: &[Cmd],
        within: Duration,
    ) -> Result<(Value, Vec<Value>), CallError> {
        let until = Instant::now() + within;
        let mut with_text = false;
        loop {
            let link = self.link(until).await?;
            let mut call = script.call(with_text, keys);
            arguments(&mut call);
            match attempt(&link, call, until).await {
                Ok(value) => {
                    let mut answers = Vec::with_capacity(then.len());
                    for command in then {
                        // The script has answered, so it was executed, whatever happens to these commands.
                        let answer =
                            attempt(&link, command.clone(), until).await.map_err(|failed| match failed {
                                Attempt::Refused(why) => CallError::Unanswered(why),
                                _ => CallError::Unanswered("the connection was lost".into()),
                            });
                        answers.push(answer?);
                    }
                    return Ok((value, answers));
                }
                Err(Attempt::NoScript) if !with_text => with_text = true,
                Err(failed) => link.give_up(failed, false)?,
            }
        }
    }

    /// Sends a command that may be executed twice.
    ///
    /// # Errors
    /// See [`CallError`]; it takes no longer than `within`.
    pub async fn command(&self, command: &Cmd, within: Duration) -> Result<Value, CallError> {
        self.run(&|_| command.clone(), true, Instant::now() + within).await
    }

    async fn run(
        &self,
        command: &impl Fn(bool) -> Cmd,
        again: bool,
        until: Instant,
    ) -> Result<Value, CallError> {
        let mut with_text = false;
        loop {
            let link = self.link(until).await?;
            match attempt(&link, command(with_text), until).await {
                Ok(value) => return Ok(value),
                Err(Attempt::NoScript) if !with_text => with_text = true,
                Err(failed) => link.give_up(failed, again)?,
            }
        }
    }
}

impl Link {
    /// What follows a failed attempt: another one, unless this is an error. With `again`, a call may be executed twice.
    fn give_up(&self, failed: Attempt, again: bool) -> Result<(), CallError> {
        match failed {
            Attempt::NoScript => return Err(CallError::Refused("it forgets scripts".into())),
            Attempt::Elsewhere(why) => self.condemn(why),
            Attempt::Broken(why) => {
                self.set_broken(why.clone());
                if !again {
                    return Err(CallError::Unanswered(why));
                }
            }
            Attempt::Late => {
                self.doubted.notify_one();
                return Err(CallError::Unanswered("Redis does not answer in time".into()));
            }
            Attempt::Refused(why) => return Err(CallError::Refused(why)),
        }
        Ok(())
    }
}

/// A call of a script, by its SHA-1 or with its text.
fn scripted<'c>(
    script: &'c Script,
    keys: &'c [&str],
    arguments: impl Fn(&mut Cmd) + 'c,
) -> impl Fn(bool) -> Cmd + 'c {
    move |with_text| {
        let mut call = script.call(with_text, keys);
        arguments(&mut call);
        call
    }
}

async fn attempt(link: &Link, command: Cmd, until: Instant) -> Result<Value, Attempt> {
    let mut channel = link.channel.clone();
    let answer = tokio::select! {
        biased;
        answer = channel.send_packed_command(&command) => answer,
        why = link.broken() => return Err(Attempt::Broken(why)),
        () = tokio::time::sleep_until(until) => return Err(Attempt::Late),
    };
    match answer {
        Ok(Value::ServerError(error)) => Err(meaning(&error.into())),
        Ok(value) => Ok(value),
        Err(error) => Err(meaning(&error)),
    }
}

fn meaning(error: &RedisError) -> Attempt {
    use ServerErrorKind::{ClusterDown, MasterDown, Moved, NoPerm, NoScript, ReadOnly};
    let why = one_line(error);
    match error.kind() {
        ErrorKind::Server(NoScript) => Attempt::NoScript,
        // Where scripts may be sent as texts only.
        ErrorKind::Server(NoPerm) if why.contains("'evalsha'") => Attempt::NoScript,
        ErrorKind::Server(Moved | ReadOnly | MasterDown | ClusterDown) => Attempt::Elsewhere(why),
        ErrorKind::Server(_) => Attempt::Refused(why),
        _ if error.is_io_error() || error.is_unrecoverable_error() => Attempt::Broken(why),
        _ => Attempt::Refused(why),
    }
}

/// The text of an error in one line.
pub fn one_line(error: &RedisError) -> String {
    error.to_string().replace('\n', " ")
}
