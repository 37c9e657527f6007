//! User and password, where they change at run time.

use std::fmt;

use redis::ConnectionInfo;

/// User and password for new connections. Returned by the provider set with
/// `LocksBuilder::credentials`.
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Creates credentials with this user and password.
    pub fn new(user: impl AsRef<str>, password: impl AsRef<str>) -> Self {
        Self { user: Some(user.as_ref().to_owned()), ..Self::password(password) }
    }

    /// Creates credentials with this password, for the user in the URL, or for the default user if
    /// the URL names none.
    pub fn password(password: impl AsRef<str>) -> Self {
        Self { user: None, password: password.as_ref().to_owned() }
    }
}

impl Credentials {
    /// Returns the connection settings `info` with these credentials. Without a user here, the user
    /// in `info` is kept.
    pub(crate) fn apply(self, info: ConnectionInfo) -> ConnectionInfo {
        let Self { user, password } = self;
        let mut settings = info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        info.set_redis_settings(settings)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo as _;

    use super::*;

    fn login(credentials: Credentials) -> (Option<String>, Option<String>) {
        let info = "redis://app:old@host/3".into_connection_info().expect("a URL");
        let info = credentials.apply(info);
        let settings = info.redis_settings();
        assert_eq!(settings.db(), 3);
        (settings.username().map(str::to_owned), settings.password().map(str::to_owned))
    }

    #[test]
    fn credentials_take_the_place_of_those_in_the_url() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(login(Credentials::password("new")), (some("app"), some("new")));
        assert_eq!(login(Credentials::new("other", "new")), (some("other"), some("new")));
    }

    #[test]
    fn a_password_is_not_shown() {
        let text = format!("{:?}", Credentials::new("app", "secret"));
        assert!(text.contains("app") && !text.contains("secret"), "{text}");
    }
}
