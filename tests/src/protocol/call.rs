//! Script calls: written by `lockcore-proto`, sent on a plain connection.

use std::fmt;

use proto::layout::{Layout, QUEUE};
use proto::wire::{Call, Commands, TokenFloors, Value, Wire};
use proto::{Answers, LockErrorKind, StoreError};
use redis::{Cmd, RedisError, RedisResult, RedisWrite as _, ServerErrorKind, cmd};
use redisson::REDISSON;

use crate::Raw;

/// The call of a script by its digest.
#[derive(Debug)]
pub struct Script {
    source: &'static str,
    /// The call by digest, for a server that has the script.
    pub command: Cmd,
}

impl Call for Script {
    fn begin(script: &'static proto::wire::Script, keys: usize) -> Self {
        let mut command = cmd("EVALSHA");
        command.arg(&script.digest).arg(keys);
        Self { source: &script.source, command }
    }

    fn text(&mut self, text: &str) -> &mut dyn Call {
        self.command.arg(text);
        self
    }

    fn number(&mut self, number: u64) -> &mut dyn Call {
        self.command.arg(number);
        self
    }

    fn display(&mut self, argument: &dyn fmt::Display) -> &mut dyn Call {
        self.command.write_arg_fmt(argument);
        self
    }
}

/// Groups the commands by script.
pub fn by_script<'a>(
    wire: &Wire,
    commands: &'a Commands<'a>,
) -> impl Iterator<Item = &'a Commands<'a>> + use<'a> {
    let together = commands.first().is_some_and(|(_, first)| wire.layout.goes_together(first));
    commands.chunks(if together { commands.len() } else { 1 })
}

/// Runs the script of these commands, loading it if needed, and returns a reply for each.
///
/// # Errors
/// The server's for the whole script, or an answer of no known form.
pub async fn run(
    redis: &mut Raw,
    wire: &Wire,
    commands: &Commands<'_>,
    floors: TokenFloors,
) -> Result<Answers, StoreError> {
    let answer = ask(redis, wire, commands, floors).await?;
    answers(wire, commands, answer)
}

/// Runs the script of these commands, loading it if needed. Returns the raw reply.
///
/// # Errors
/// The layout has no script for it.
pub async fn ask(
    redis: &mut Raw,
    wire: &Wire,
    commands: &Commands<'_>,
    floors: TokenFloors,
) -> Result<RedisResult<redis::Value>, StoreError> {
    let call: Script = wire.write(commands, floors)?;
    let answer = redis.try_ask(&call.command).await;
    let is_unknown = |error: &RedisError| {
        matches!(error.kind(), redis::ErrorKind::Server(ServerErrorKind::NoScript))
    };
    if answer.as_ref().is_err_and(is_unknown) {
        let _: String = redis.ask(cmd("SCRIPT").arg("LOAD").arg(call.source)).await;
        return Ok(redis.try_ask(&call.command).await);
    }
    Ok(answer)
}

/// Parses a reply for each command from the raw reply.
///
/// # Errors
/// As [`run`].
pub fn answers(
    wire: &Wire,
    commands: &Commands<'_>,
    answer: RedisResult<redis::Value>,
) -> Result<Answers, StoreError> {
    let answer = answer.map_err(|error| {
        let said = format!("{} {}", error.code().unwrap_or(""), error.detail().unwrap_or(""));
        error_of(&said, wire.layout)
    })?;
    wire.answers(commands, &value(&answer))
}

/// Returns the layout shared with JVMs, or our layout.
#[must_use]
pub fn layout(peers: bool) -> &'static dyn Layout {
    if peers { REDISSON } else { QUEUE }
}

/// Returns a server error by its code, at any position: before Redis 7, an error inside a script
/// comes wrapped in an `ERR`.
#[must_use]
pub fn error_of(text: &str, _layout: &dyn Layout) -> StoreError {
    let kind = |word| match word {
        "WRONGTYPE" => Some(LockErrorKind::WrongType),
        "OOM" => Some(LockErrorKind::OutOfMemory),
        "NOREPLICAS" | "READONLY" => Some(LockErrorKind::ReadOnly),
        _ => None,
    };
    let kind = text.split(|c: char| !c.is_ascii_alphanumeric()).find_map(kind);
    StoreError::refused(kind.unwrap_or(LockErrorKind::Protocol), text)
}

/// Converts a reply of redis-rs to the form that `lockcore-proto` parses.
fn value(answer: &redis::Value) -> Value<'_> {
    match answer {
        redis::Value::Nil => Value::Nil,
        redis::Value::Int(integer) => Value::Integer(*integer),
        redis::Value::BulkString(bytes) => {
            std::str::from_utf8(bytes).map_or(Value::Other, Value::Text)
        }
        redis::Value::SimpleString(text) => Value::Text(text),
        redis::Value::Array(parts) => Value::List(parts.iter().map(value).collect()),
        _ => Value::Other,
    }
}
