//! Options as they stand in a configuration file: plain milliseconds, checked when they are read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ConfigError, LockOptions, Renewal};

/// What a file may say; what it does not say stays at its default.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Text {
    lease_ms: u64,
    /// Whether the watchdog renews the lease.
    renew: bool,
    /// For ever, if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    queue_limit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_hold_ms: Option<u64>,
}

impl Default for Text {
    fn default() -> Self {
        LockOptions::new().into()
    }
}

impl From<LockOptions> for Text {
    fn from(options: LockOptions) -> Self {
        let ms = |duration: Duration| duration.as_millis() as u64;
        Self {
            lease_ms: ms(options.lease),
            renew: options.renewal == Renewal::Watchdog,
            wait_ms: options.wait.map(ms),
            queue_limit: options.queue_limit,
            max_hold_ms: options.max_hold.map(ms),
        }
    }
}

impl TryFrom<Text> for LockOptions {
    type Error = ConfigError;

    fn try_from(text: Text) -> Result<Self, ConfigError> {
        let options = Self {
            lease: Duration::from_millis(text.lease_ms),
            renewal: if text.renew { Renewal::Watchdog } else { Renewal::Fixed },
            wait: text.wait_ms.map(Duration::from_millis),
            queue_limit: text.queue_limit,
            max_hold: text.max_hold_ms.map(Duration::from_millis),
        };
        options.check()?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_a_file_and_what_is_missing_is_the_default() {
        let options = LockOptions::new().fixed_lease(Duration::from_secs(7)).queue_limit(3);
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<LockOptions>(&text).unwrap(), options);
        let short: LockOptions = serde_json::from_str(r#"{"wait_ms": 500}"#).unwrap();
        assert_eq!(short, LockOptions::new().wait(Duration::from_millis(500)));
    }

    #[test]
    fn a_file_with_a_bad_option_is_refused_and_names_it() {
        let bad = serde_json::from_str::<LockOptions>(r#"{"queue_limit": 0}"#).unwrap_err();
        assert!(bad.to_string().contains("queue_limit"), "{bad}");
        let typo = serde_json::from_str::<LockOptions>(r#"{"leese_ms": 5000}"#).unwrap_err();
        assert!(typo.to_string().contains("leese_ms"), "{typo}");
    }
}
