//! The user and password of a `Locks`, where they change while it runs.

use std::fmt;
use std::sync::Arc;

use redis::ConnectionInfo;

/// A password, and the user that has it, from the provider of
/// [`LocksBuilder::credentials`](crate::LocksBuilder::credentials).
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// A user, and its password.
    pub fn new(user: impl AsRef<str>, password: impl AsRef<str>) -> Self {
        Self { user: Some(user.as_ref().to_owned()), ..Self::password(password) }
    }

    /// The password of the user in the URL, or of the default user if the URL names none.
    pub fn password(password: impl AsRef<str>) -> Self {
        Self { user: None, password: password.as_ref().to_owned() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The provider, asked each time that a connection is opened; `None` leaves the URL's.
#[derive(Clone, Default)]
pub(crate) struct Provider(Option<Arc<dyn Fn() -> Credentials + Send + Sync>>);

impl Provider {
    pub(crate) fn new(provide: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(provide)))
    }

    /// `info` with the credentials of now.
    pub(crate) fn apply(&self, info: ConnectionInfo) -> ConnectionInfo {
        let Some(provide) = &self.0 else { return info };
        let Credentials { user, password } = provide();
        let mut settings = info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        info.set_redis_settings(settings)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Provider(..)" } else { "None" })
    }
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo as _;

    use super::*;

    fn login(provider: &Provider) -> (Option<String>, Option<String>) {
        let info = "redis://app:old@host/3".into_connection_info().expect("a URL");
        let info = provider.apply(info);
        let settings = info.redis_settings();
        assert_eq!(settings.db(), 3);
        (settings.username().map(str::to_owned), settings.password().map(str::to_owned))
    }

    #[test]
    fn what_a_provider_gives_takes_the_place_of_what_the_url_says() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(login(&Provider::default()), (some("app"), some("old")));
        let password = Provider::new(|| Credentials::password("new"));
        assert_eq!(login(&password), (some("app"), some("new")));
        let both = Provider::new(|| Credentials::new("other", "new"));
        assert_eq!(login(&both), (some("other"), some("new")));
    }

    #[test]
    fn a_password_is_not_shown() {
        let credentials = Credentials::new("app", "secret");
        let provider = Provider::new(|| Credentials::password("secret"));
        let text = format!("{credentials:?} {provider:?}");
        assert!(text.contains("app") && !text.contains("secret"), "{text}");
    }
}
