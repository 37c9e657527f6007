//! A server's reply to HELLO. Every user may send HELLO, and no refusal is logged.

use std::collections::HashMap;

use redis::{Cmd, Value};

/// The reply to HELLO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// `redis`, or the name of a fork.
    pub server: String,
    /// The version of the server.
    pub version: String,
    /// `standalone`, `cluster` or `sentinel`.
    pub mode: String,
    /// `master` or `replica`.
    pub role: String,
    /// The connection's protocol version.
    protocol: u8,
}

impl Hello {
    /// Returns the command.
    pub fn ask() -> Cmd {
        redis::cmd("HELLO")
    }

    /// Parses the reply; `None` if it has another form.
    pub fn read(answer: &Value) -> Option<Self> {
        let told: HashMap<String, Value> = redis::from_redis_value_ref(answer).ok()?;
        let text = |name: &str| redis::from_redis_value_ref(told.get(name)?).ok();
        Some(Self {
            server: text("server")?,
            version: text("version")?,
            mode: text("mode")?,
            role: text("role")?,
            protocol: redis::from_redis_value_ref(told.get("proto")?).ok()?,
        })
    }

    /// Whether scripts stay with the server that received them. Before 7.0 they are replicated.
    pub fn keeps_scripts(&self) -> bool {
        let major = self.version.split('.').next().and_then(|major| major.parse().ok());
        major.is_some_and(|major: u32| major >= 7)
    }

    /// Returns the command that names the connection: unlike CLIENT SETNAME, it needs no right.
    pub fn name(&self, name: &str) -> Cmd {
        let mut hello = redis::cmd("HELLO");
        hello.arg(self.protocol).arg("SETNAME").arg(name);
        hello
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_answer_is_read_in_both_protocols() {
        let pairs = [
            (bulk("server"), bulk("redis")),
            (bulk("version"), bulk("7.0.15")),
            (bulk("proto"), Value::Int(2)),
            (bulk("id"), Value::Int(3)),
            (bulk("mode"), bulk("standalone")),
            (bulk("role"), bulk("master")),
            (bulk("modules"), Value::Array(Vec::new())),
        ];
        let flat = pairs.iter().cloned().flat_map(|(name, value)| [name, value]).collect();
        let hello = Hello::read(&Value::Array(flat)).unwrap();
        assert_eq!((&*hello.version, &*hello.role, hello.protocol), ("7.0.15", "master", 2));
        assert_eq!(Hello::read(&Value::Map(pairs.to_vec())), Some(hello));
        assert_eq!(Hello::read(&Value::Okay), None);
    }
}
