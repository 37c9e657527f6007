//! The server's error for a missing right. The words depend on its version, and on whether a script
//! asked.

/// How the refusal of a command that a script runs begins.
const INSIDE_A_SCRIPT: [&str; 2] = [
    "The user executing the script can't", // 6.2 and 7.0
    "ACL failure in script",               // from 7.2, and the forks
];

/// A refusal for want of a right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) missing: Missing,
    /// A script met it, which may have run half.
    pub(crate) inside_a_script: bool,
}

/// The right that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A command, `pubsub|numsub` for one; inside scripts the server names it from 7.2 on.
    Command(Option<String>),
    Key,
    Channel,
}

impl Denial {
    /// Parses a server's error, if it is a refusal of this kind.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let inside_a_script = INSIDE_A_SCRIPT.iter().any(|words| text.contains(words));
        let outside = ["NOPERM", "no permissions to", "No permissions to"]; // some come without a code
        if !inside_a_script && !outside.iter().any(|words| text.contains(words)) {
            return None;
        }
        // The name of the user stands before the command, so it is looked for first.
        let missing = if let Some((_, after)) = text.split_once("permissions to run the '") {
            Missing::Command(after.split_once('\'').map(|(name, _)| name.to_owned()))
        } else if text.contains("run this command") {
            Missing::Command(None)
        } else if text.contains("channel") {
            Missing::Channel
        } else if text.contains("key") {
            Missing::Key
        } else {
            Missing::Command(None)
        };
        Some(Self { missing, inside_a_script })
    }

    /// The remedy, for a reader that knows neither lock nor channel.
    pub(crate) fn advice(&self) -> String {
        match &self.missing {
            Missing::Command(Some(name)) => format!("allow +{name}"),
            Missing::Command(None) => {
                "connect again: the error then names the missing right".to_owned()
            }
            Missing::Key => {
                "allow ~lock:{NAME}* for the lock's name, and ~lock:tokens; beside JVMs ~NAME and \
                 ~redisson_lock_*:{NAME}"
                    .to_owned()
            }
            Missing::Channel => {
                "allow the grants channels, and beside JVMs &redisson_lock__channel:*".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 6.2.14, 7.0.15, 8.2.3 and Valkey 9.1.2 said them.
    #[test]
    fn every_version_is_understood() {
        let named = |name: &str| Missing::Command(Some(name.to_owned()));
        let cases = [
            (
                "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: \
                 The user executing the script can't run this command or subcommand",
                Missing::Command(None),
                true,
            ),
            (
                "The user executing the script can't run this command or subcommand script: f_1",
                Missing::Command(None),
                true,
            ),
            (
                "The user executing the script can't access at least one of the keys mentioned in \
                 the command arguments script: f_1",
                Missing::Key,
                true,
            ),
            (
                "The user executing the script can't publish to the channel mentioned in the command",
                Missing::Channel,
                true,
            ),
            (
                "ERR ACL failure in script: User key-channel has no permissions to run the \
                 'pubsub|numsub' command script: f_1",
                named("pubsub|numsub"),
                true,
            ),
            ("ERR ACL failure in script: No permissions to access a key", Missing::Key, true),
            (
                "ERR ACL failure in script: No permissions to access a channel",
                Missing::Channel,
                true,
            ),
            (
                "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
                named("evalsha"),
                false,
            ),
            ("NOPERM User it's has no permissions to run the 'eval' command", named("eval"), false),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                Missing::Key,
                false,
            ),
            (
                "NOPERM this user has no permissions to access one of the channels used as arguments",
                Missing::Channel,
                false,
            ),
            ("NOPERM No permissions to access a channel", Missing::Channel, false),
            // As redis-rs shows it.
            ("NoPerm: No permissions to access a key", Missing::Key, false),
        ];
        for (text, missing, inside_a_script) in cases {
            assert_eq!(Denial::read(text), Some(Denial { missing, inside_a_script }), "{text}");
        }
    }

    #[test]
    fn other_refusals_are_none() {
        for text in ["WRONGTYPE Operation against a key", "ERR unknown command", "READONLY", ""] {
            assert_eq!(Denial::read(text), None);
        }
    }
}
