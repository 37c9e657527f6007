//! `Primary`: the primary that sentinels name.

use std::collections::HashMap;
use std::fmt;

use redis::Value;

/// A primary's address, and the epoch of the Sentinel configuration that names it. A newer
/// configuration has a higher epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Primary {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) epoch: u64,
}

impl Primary {
    /// Returns true if both have the same address.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// Parses the replies to SENTINEL MASTER (a list of names and values in turn) and to SENTINEL
    /// GET-MASTER-ADDR-BY-NAME. `None` if a reply has another form.
    pub(crate) fn read(answers: &[Value]) -> Option<Self> {
        let [configuration, address] = answers else { return None };
        let fields: HashMap<String, Value> = redis::from_redis_value_ref(configuration).ok()?;
        let (host, port): (String, String) = redis::from_redis_value_ref(address).ok()?;
        let epoch: String = redis::from_redis_value_ref(fields.get("config-epoch")?).ok()?;
        Some(Self { host, port: port.parse().ok()?, epoch: epoch.parse().ok()? })
    }
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(texts.iter().map(bulk).collect())
    }

    #[test]
    fn a_sentinel_s_answers_are_read() {
        let configuration = texts(&["name", "locks", "ip", "10.0.0.6", "config-epoch", "4"]);
        let primary =
            Primary::read(&[configuration.clone(), texts(&["10.0.0.7", "6380"])]).expect("whole");
        assert_eq!((primary.to_string(), primary.epoch), ("10.0.0.7:6380".to_owned(), 4));
        assert_eq!(Primary::read(&[configuration, Value::Nil]), None);
        assert_eq!(Primary::read(&[texts(&["name", "x"]), texts(&["10.0.0.7", "6380"])]), None);
    }
}
