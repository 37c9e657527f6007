//! Parses the server's errors about a missing ACL right. The wording depends on the server version,
//! and on whether a script sent the command.

/// Phrases that mark an ACL error as raised inside a script. Without such a phrase, the refused
/// command was sent by the client itself.
const INSIDE_A_SCRIPT: [&str; 2] = [
    "The user executing the script can't", // 6.2 and 7.0
    "ACL failure in script",               // from 7.2, and the forks
];

/// A server's refusal of a command because the Redis user lacks an ACL right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclError {
    /// The kind of right that is missing: to a command, a key or a channel.
    pub missing: MissingRight,
    /// True if a command inside a script was refused. Earlier commands of the script may have run.
    pub inside_a_script: bool,
}

/// The kind of ACL right that the Redis user lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissingRight {
    /// The right to run a command, such as `pubsub|numsub`. `None` if the error does not name the
    /// command, as inside scripts before Redis 7.2.
    Command(Option<String>),
    /// The right to access a key of the command.
    Key,
    /// The right to use a channel of the command.
    Channel,
}

impl AclError {
    /// Parses the text of a server error. `None` if the error is not about a missing right.
    pub fn read(text: &str) -> Option<Self> {
        let inside_a_script = INSIDE_A_SCRIPT.iter().any(|words| text.contains(words));
        let outside = ["NOPERM", "no permissions to", "No permissions to"]; // some have no code
        if !inside_a_script && !outside.iter().any(|words| text.contains(words)) {
            return None;
        }
        // The text contains the user name, which may contain `key` or `channel`: look for the
        // command first.
        let missing = if let Some((_, after)) = text.split_once("permissions to run the '") {
            MissingRight::Command(after.split_once('\'').map(|(name, _)| name.to_owned()))
        } else if text.contains("run this command") {
            MissingRight::Command(None)
        } else if text.contains("channel") {
            MissingRight::Channel
        } else if text.contains("key") {
            MissingRight::Key
        } else {
            MissingRight::Command(None)
        };
        Some(Self { missing, inside_a_script })
    }

    /// Returns the remedy to append to the error text, such as `allow +evalsha`. `None` if a key or
    /// channel is refused, because only the application knows which keys and channels it uses.
    pub(crate) fn advice(&self) -> Option<String> {
        match &self.missing {
            MissingRight::Command(Some(name)) => Some(format!("allow +{name}")),
            MissingRight::Command(None) => {
                Some("connect again: the error then names the missing right".to_owned())
            }
            MissingRight::Key | MissingRight::Channel => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error texts of Redis 6.2.14, 7.0.15 and 8.2.3, and of Valkey 9.1.2.
    #[test]
    fn every_version_is_understood() {
        let named = |name: &str| MissingRight::Command(Some(name.to_owned()));
        let cases = [
            (
                "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: \
                 The user executing the script can't run this command or subcommand",
                MissingRight::Command(None),
                true,
            ),
            (
                "The user executing the script can't run this command or subcommand script: f_1",
                MissingRight::Command(None),
                true,
            ),
            (
                "The user executing the script can't access at least one of the keys mentioned in \
                 the command arguments script: f_1",
                MissingRight::Key,
                true,
            ),
            (
                "The user executing the script can't publish to the channel mentioned in the command",
                MissingRight::Channel,
                true,
            ),
            (
                "ERR ACL failure in script: User key-channel has no permissions to run the \
                 'pubsub|numsub' command script: f_1",
                named("pubsub|numsub"),
                true,
            ),
            ("ERR ACL failure in script: No permissions to access a key", MissingRight::Key, true),
            (
                "ERR ACL failure in script: No permissions to access a channel",
                MissingRight::Channel,
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
                MissingRight::Key,
                false,
            ),
            (
                "NOPERM this user has no permissions to access one of the channels used as arguments",
                MissingRight::Channel,
                false,
            ),
            ("NOPERM No permissions to access a channel", MissingRight::Channel, false),
            // As displayed by redis-rs.
            ("NoPerm: No permissions to access a key", MissingRight::Key, false),
        ];
        for (text, missing, inside_a_script) in cases {
            assert_eq!(AclError::read(text), Some(AclError { missing, inside_a_script }), "{text}");
        }
    }

    #[test]
    fn other_refusals_are_none() {
        for text in ["WRONGTYPE Operation against a key", "ERR unknown command", "READONLY", ""] {
            assert_eq!(AclError::read(text), None);
        }
    }
}
