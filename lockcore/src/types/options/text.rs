//! The form of [`LockOptions`] in a configuration file: times are plain milliseconds, and ranges
//! are checked when the file is read.

use std::time::Duration;

use proto::{ConfigError, Renewal, WhenBusy};
use serde::{Deserialize, Serialize};

use super::{LockOptions, Wait};

/// The form in which serde reads and writes [`LockOptions`]: one field for each option, with times
/// in milliseconds. A field that the file omits leaves the option unset.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Text {
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    /// True if the watchdog renews the lease in the background; false for a fixed lease; `None`
    /// leaves this to the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    renew: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    /// True to wait without a time limit; `wait_ms` must then be unset.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    wait_forever: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_hold_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when_busy: Option<WhenBusy>,
}

impl From<LockOptions> for Text {
    fn from(options: LockOptions) -> Self {
        // Rounded up: a wait of 0 would not wait, and other options refuse 0.
        let ms =
            |time: Duration| u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Self {
            lease_ms: options.lease.map(ms),
            renew: options.renewal.map(|renewal| renewal == Renewal::Watchdog),
            wait_ms: match options.wait {
                Some(Wait::AtMost(wait)) => Some(ms(wait)),
                _ => None,
            },
            wait_forever: options.wait == Some(Wait::Forever),
            store_wait_ms: options.store_wait.map(ms),
            queue_limit: options.queue_limit,
            max_hold_ms: options.max_hold.map(ms),
            when_busy: options.when_busy,
        }
    }
}

impl TryFrom<Text> for LockOptions {
    type Error = ConfigError;

    fn try_from(text: Text) -> Result<Self, ConfigError> {
        let wait = match (text.wait_ms, text.wait_forever) {
            (Some(ms), true) => {
                return Err(ConfigError::new(
                    "wait_ms",
                    ms.to_string(),
                    "unset, because wait_forever is set",
                ));
            }
            (Some(ms), false) => Some(Wait::AtMost(Duration::from_millis(ms))),
            (None, true) => Some(Wait::Forever),
            (None, false) => None,
        };
        let options = Self {
            lease: text.lease_ms.map(Duration::from_millis),
            renewal: text.renew.map(|renew| if renew { Renewal::Watchdog } else { Renewal::Fixed }),
            wait,
            store_wait: text.store_wait_ms.map(Duration::from_millis),
            queue_limit: text.queue_limit,
            max_hold: text.max_hold_ms.map(Duration::from_millis),
            when_busy: text.when_busy,
        };
        options.check()?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use proto::Terms;

    use super::*;

    fn read(text: &str) -> Result<LockOptions, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn options_survive_a_file_and_what_is_not_set_is_not_written() {
        let ms = Duration::from_millis;
        for (options, text) in [
            (LockOptions::new(), "{}"),
            (LockOptions::new().wait(ms(500)), r#"{"wait_ms":500}"#),
            (LockOptions::new().wait_forever(), r#"{"wait_forever":true}"#),
            (LockOptions::new().store_wait(ms(500)), r#"{"store_wait_ms":500}"#),
            (LockOptions::new().lease(ms(700)), r#"{"lease_ms":700,"renew":true}"#),
            (LockOptions::new().when_busy(WhenBusy::Wait), r#"{"when_busy":"wait"}"#),
            (LockOptions::new().when_busy(WhenBusy::Refuse), r#"{"when_busy":"refuse"}"#),
            (LockOptions::new().when_busy(WhenBusy::KeepNewest), r#"{"when_busy":"keep_newest"}"#),
            (
                LockOptions::new().fixed_lease(ms(700)).queue_limit(3).max_hold(ms(900)),
                r#"{"lease_ms":700,"renew":false,"queue_limit":3,"max_hold_ms":900}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&options).unwrap(), text);
            assert_eq!(read(text).unwrap(), options);
        }
        let short = Duration::from_micros(500);
        let text = serde_json::to_string(&LockOptions::new().wait(short)).unwrap();
        assert_eq!(read(&text).unwrap(), LockOptions::new().wait(ms(1)), "{text}");
        assert_eq!(
            serde_json::to_string(&LockOptions::new().wait(ms(0))).unwrap(),
            r#"{"wait_ms":0}"#
        );
        let no_limit = serde_json::to_string(&LockOptions::new().max_hold(Duration::MAX)).unwrap();
        assert!(read(&no_limit).unwrap().max_hold > Some(LockOptions::MAX_LEASE), "{no_limit}");
        assert_eq!(read(&no_limit).unwrap().terms(), Terms::default(), "{no_limit}");
    }

    #[test]
    fn what_a_file_does_not_say_is_left_to_other_options() {
        let short = read(r#"{"wait_ms": 500, "renew": false}"#).unwrap();
        let ms = Duration::from_millis;
        let both = short.or(LockOptions::new().lease(ms(700)).wait(ms(700)));
        assert_eq!(both, LockOptions::new().fixed_lease(ms(700)).wait(ms(500)));
    }

    #[test]
    fn a_file_with_a_bad_option_is_refused_and_names_it() {
        for (text, named) in [
            (r#"{"store_wait_ms": 0}"#, "store_wait is 0ns: it must be at least 1 ms"),
            (r#"{"queue_limit": 0}"#, "queue_limit is 0: it must be 1 or more"),
            (r#"{"leese_ms": 5000}"#, "unknown field `leese_ms`, expected one of `lease_ms`"),
            (r#"{"wait_ms": 5, "wait_forever": true}"#, "wait_ms is 5: it must be unset"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
