//! A server's reply to HELLO. Every user may send HELLO, and no refusal is logged.

use std::collections::HashMap;

use redis::{Cmd, Value};

/// A server's reply to HELLO, which describes the server and the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The server software: `redis`, or the name of a fork, such as `valkey`.
    pub server: String,
    /// The server's version, such as `7.2.4`.
    pub version: String,
    /// The server's mode: `standalone`, `cluster` or `sentinel`.
    pub mode: String,
    /// The server's replication role: `master` or `replica`.
    role: String,
    /// The version of the Redis protocol on the connection: 2 or 3.
    protocol: u8,
}

impl Hello {
    /// Returns the HELLO command without arguments, which changes nothing on the connection.
    pub fn command() -> Cmd {
        redis::cmd("HELLO")
    }

    /// Parses the reply to HELLO, in both protocol versions. `None` if the reply has another form.
    pub fn read(answer: &Value) -> Option<Self> {
        let fields: HashMap<String, Value> = redis::from_redis_value_ref(answer).ok()?;
        let text = |name: &str| redis::from_redis_value_ref(fields.get(name)?).ok();
        Some(Self {
            server: text("server")?,
            version: text("version")?,
            mode: text("mode")?,
            role: text("role")?,
            protocol: redis::from_redis_value_ref(fields.get("proto")?).ok()?,
        })
    }

    /// Returns true if the server is a replica.
    pub fn is_replica(&self) -> bool {
        self.role != "master"
    }

    /// Returns true if loaded scripts stay on the server that received them, as from Redis 7.0 on.
    /// Older servers replicate them.
    pub fn keeps_scripts(&self) -> bool {
        let major = self.version.split('.').next().and_then(|major| major.parse().ok());
        major.is_some_and(|major: u32| major >= 7)
    }

    /// Returns the command that sets the connection's name in CLIENT LIST. It is HELLO, because
    /// CLIENT SETNAME needs a right, and HELLO does not.
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
