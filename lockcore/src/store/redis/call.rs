//! Calls of scripts and their answers, as redis-rs has them.

use std::borrow::Borrow;
use std::fmt;

use proto::wire::{Call, Script, Value};
use redis::{Cmd, ErrorKind, RedisError, RedisWrite as _, ServerErrorKind};

/// The call of a script by its digest.
pub(crate) struct Scripted {
    script: &'static Script,
    pub(crate) command: Cmd,
}

impl Call for Scripted {
    fn begin(script: &'static Script, keys: usize) -> Self {
        let mut command = Cmd::with_capacity(12 + 3 * keys, 512 + 64 * keys);
        command.arg("EVALSHA").arg(&script.digest).arg(keys);
        Self { script, command }
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.command.arg(text);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.command.arg(number);
        self
    }

    fn display(&mut self, argument: impl fmt::Display) -> &mut Self {
        self.command.write_arg_fmt(argument);
        self
    }
}

impl Borrow<Cmd> for Scripted {
    fn borrow(&self) -> &Cmd {
        &self.command
    }
}

impl Scripted {
    /// The same call with the whole source, for a server that has forgotten the script.
    pub(crate) fn by_source(&self) -> Cmd {
        let mut by_source = Cmd::new();
        by_source.arg("EVAL").arg(&self.script.source);
        for argument in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(argument) = argument {
                by_source.arg(argument);
            }
        }
        by_source
    }
}

/// The command that has the server remember a script.
pub(crate) fn load(script: &Script) -> Cmd {
    let mut command = redis::cmd("SCRIPT");
    command.arg("LOAD").arg(&script.source);
    command
}

/// Whether the server has forgotten the script, and is to be given its source.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The answer of a script.
pub(crate) fn value(answer: &redis::Value) -> Value<'_> {
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

#[cfg(test)]
mod tests {
    use proto::wire::scripts;

    use super::*;

    #[test]
    fn an_answer_that_no_script_gives_is_of_no_form_that_is_read() {
        let [text, integer] = ["text", "7"].map(|text| redis::Value::BulkString(text.into()));
        let not_utf8 = redis::Value::BulkString(vec![b'a', 0xff]);
        let others = [
            redis::Value::Okay,
            redis::Value::Boolean(true),
            redis::Value::Double(7.0),
            redis::Value::Set(vec![text.clone()]),
            redis::Value::Map(vec![(text.clone(), integer.clone())]),
            not_utf8,
        ];
        for other in others {
            assert_eq!(value(&other), Value::Other, "{other:?}");
        }
        let simple = redis::Value::SimpleString("simple".into());
        let inner = redis::Value::Array(vec![integer, redis::Value::Nil]);
        let whole = redis::Value::Array(vec![text, simple, redis::Value::Int(-7), inner]);
        let inner = Value::List(vec![Value::Text("7"), Value::Nil]);
        let parts = vec![Value::Text("text"), Value::Text("simple"), Value::Integer(-7), inner];
        assert_eq!(value(&whole), Value::List(parts));
    }

    #[test]
    fn a_call_by_source_has_the_same_keys_and_arguments() {
        let mut call = Scripted::begin(&scripts::of_queue().acquire, 1);
        call.text("key").text("argument with spaces").number(7).display("shown");
        let arguments = |command: &Cmd| -> Vec<Vec<u8>> {
            command
                .args_iter()
                .skip(2)
                .map(|argument| match argument {
                    redis::Arg::Simple(argument) => argument.to_vec(),
                    _ => Vec::new(),
                })
                .collect()
        };
        assert_eq!(arguments(&call.by_source()), arguments(&call.command));
        assert_eq!(arguments(&call.command).len(), 5);
    }
}
