//! Builds lock script calls, and converts their replies for the protocol.

use std::fmt;

use client::ScriptCall;
use proto::wire::{Call, Script, Value};

/// A call of a lock script. It can be sent by digest or by source.
#[derive(Debug)]
pub(crate) struct Scripted(pub(crate) ScriptCall);

impl Call for Scripted {
    fn begin(script: &'static Script, keys: usize) -> Self {
        Self(ScriptCall::begin(&script.source, &script.digest, keys))
    }

    fn text(&mut self, text: &str) -> &mut dyn Call {
        self.0.text(text);
        self
    }

    fn number(&mut self, number: u64) -> &mut dyn Call {
        self.0.number(number);
        self
    }

    fn display(&mut self, argument: &dyn fmt::Display) -> &mut dyn Call {
        self.0.display(argument);
        self
    }
}

/// Converts a script's reply to the protocol's type. A reply in a form that no script uses becomes
/// [`Value::Other`].
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
}
