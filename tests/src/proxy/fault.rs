//! `Fault`: a fault that strikes once, at a request or its reply.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(60);

/// A request as seen by a fault.
#[derive(Clone, Debug)]
pub struct Request {
    args: Vec<Vec<u8>>,
}

impl Request {
    pub(super) fn new(args: Vec<Vec<u8>>) -> Self {
        Self { args }
    }

    /// Returns the arguments, starting with the command name.
    #[must_use]
    pub fn args(&self) -> &[Vec<u8>] {
        &self.args
    }

    /// Whether the request is this command, in upper or lower case.
    #[must_use]
    pub fn is(&self, command: &str) -> bool {
        self.args.first().is_some_and(|name| name.eq_ignore_ascii_case(command.as_bytes()))
    }

    /// Returns true if the request deletes a key with a given value: `DELIFEQ` (Valkey 9), or
    /// `DELEX` (Redis 8.4).
    #[must_use]
    pub fn compares(&self) -> bool {
        self.is("DELIFEQ") || self.is("DELEX")
    }

    /// Returns true if the request is a script, or the command that releases a lock without
    /// waiters.
    #[must_use]
    pub fn is_script(&self) -> bool {
        self.is("EVALSHA") || self.is("EVAL") || self.compares()
    }

    /// Whether an argument contains this text.
    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        self.args
            .iter()
            .any(|arg| arg.windows(text.len().max(1)).any(|part| part == text.as_bytes()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    LoseRequest,
    HoldRequest,
    LoseReply,
    /// Swallows the reply; the connection stays.
    SwallowReply,
    HoldReply,
    /// Notices when the reply comes, and changes nothing.
    NoticeReply,
    /// Cuts the connection after this many bytes of the request, modulo its length.
    CutRequest(usize),
    CutReply(usize),
    /// Runs a copy as well, before the reply is passed on.
    CopyAtOnce,
    CopyLater,
}

impl Action {
    /// Returns true if the fault must know which request a reply belongs to.
    pub(super) fn is_on_reply(self) -> bool {
        matches!(
            self,
            Self::LoseReply
                | Self::SwallowReply
                | Self::HoldReply
                | Self::NoticeReply
                | Self::CutReply(_)
                | Self::CopyAtOnce
        )
    }
}

/// An ordered fault: it strikes at most once. Dropping it neither revokes nor releases it.
#[derive(Clone, Debug)]
pub struct Fault {
    action: Action,
    struck: CancellationToken,
    released: CancellationToken,
}

impl Fault {
    pub(super) fn new(action: Action) -> Self {
        Self { action, struck: CancellationToken::new(), released: CancellationToken::new() }
    }

    pub(super) fn action(&self) -> Action {
        self.action
    }

    /// Waits until the fault has struck: a lost frame is lost and the connection closed, a held
    /// frame is held (for a reply, the server has executed the request).
    ///
    /// # Panics
    ///
    /// If the fault does not strike within a minute: no request matches.
    pub async fn struck(&self) {
        let struck = tokio::time::timeout(LIMIT, self.struck.cancelled()).await;
        struck.expect("a request to strike at within a minute");
    }

    /// Whether the fault has struck.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        self.struck.is_cancelled()
    }

    /// Lets a held frame pass; a fault that has not struck yet never will.
    pub fn release(&self) {
        self.released.cancel();
    }

    /// Whether the fault is still to strike.
    pub(super) fn waits(&self) -> bool {
        !self.released.is_cancelled()
    }

    pub(super) fn strike(&self) {
        self.struck.cancel();
    }

    /// Marks the fault as struck, and waits until it is released.
    pub(super) async fn hold(&self) {
        self.strike();
        self.released.cancelled().await;
    }
}
