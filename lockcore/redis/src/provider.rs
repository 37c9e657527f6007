//! A provider: a callback of the application that returns the current secret, called for each new
//! connection.
//!
//! # Implementation notes
//!
//! A provider reads files or calls other services, so it may fail, panic, or never return. It runs
//! in a dedicated thread: in a runtime thread it would block the runtime, and in the blocking pool
//! it would keep the runtime from shutting down. At most one call is in progress, and the wait for
//! it is bounded.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info};

use crate::error::{ClientError, ClientErrorKind};
use crate::foreign;

/// How long a new connection waits for the provider's callback, counted from the start of the call.
/// After this time, the value of the last successful call is used.
const LIMIT: Duration = Duration::from_secs(1);

/// The result of a provider's callback: the current value, or why there is none.
pub type Provided<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A callback set by the application that returns the current secret, such as a password, and is
/// called for each new connection. Empty, as by default, if the application has set none.
pub struct Provider<T>(Option<Arc<Asked<T>>>);

/// A provider's callback, the call in progress and the results of earlier calls. Shared by all
/// clones of a provider.
struct Asked<T> {
    /// What the callback returns, such as "certificates", for log messages and errors.
    noun: &'static str,
    provide: Box<dyn Fn() -> Provided<T> + Send + Sync>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// The call in progress, for which all new connections wait together; `None` between calls.
    call: Option<Call>,
    /// The value of the last successful call, used while calls fail or take too long. `None` before
    /// the first success.
    last: Option<T>,
    /// Why the last call failed; `None` if it succeeded, and before the first call.
    failure: Option<Arc<str>>,
    /// True if an error was logged since calls began to fail, so that it is not logged again for
    /// each connection.
    is_known_to_fail: bool,
}

/// A call in progress. No value is ever sent to `over`: the call is complete when the sender is
/// dropped.
#[derive(Clone)]
struct Call {
    /// When connections stop waiting for the call. The call itself may take longer.
    until: Instant,
    over: watch::Receiver<()>,
}

impl<T: Clone + Send + 'static> Provider<T> {
    /// Creates a provider that calls `provide` for each connection. `noun` names what the callback
    /// returns, such as "certificates", in log messages and errors.
    pub fn new(
        noun: &'static str,
        provide: impl Fn() -> Provided<T> + Send + Sync + 'static,
    ) -> Self {
        let state = State { call: None, last: None, failure: None, is_known_to_fail: false };
        let provide = Box::new(provide);
        Self(Some(Arc::new(Asked { noun, provide, state: Mutex::new(state) })))
    }

    #[cfg(feature = "tls")]
    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Calls the callback, and returns its value. If the call fails, panics or takes longer than a
    /// second, returns the value of the last successful call instead. `None` if the application has
    /// set no callback.
    ///
    /// # Errors
    /// The call returned no value, and neither did any earlier call.
    pub(crate) async fn current(&self) -> Result<Option<T>, ClientError> {
        let Some(asked) = &self.0 else { return Ok(None) };
        let Call { until, mut over } = asked.begin();
        // The sender is dropped when the call is complete. By then another call may be in progress.
        let is_late = timeout_at(until, over.changed()).await.is_err();
        asked.take(is_late).map(Some)
    }
}

impl<T: Clone + Send + 'static> Asked<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the call in progress, or starts a call in a new thread, so that there is never more
    /// than one call.
    fn begin(self: &Arc<Self>) -> Call {
        let mut state = self.state();
        if let Some(call) = &state.call {
            return call.clone();
        }
        let (sender, over) = watch::channel(());
        let call = Call { until: Instant::now() + LIMIT, over };
        let (asked, runtime) = (Arc::clone(self), Handle::current());
        let run = move || {
            let _runtime = runtime.enter();
            let outcome = catch_unwind(AssertUnwindSafe(|| (asked.provide)()));
            asked.end(match outcome {
                Ok(result) => result.map_err(|error| format!("failed: {error}")),
                Err(_) => Err("panicked".to_owned()),
            });
            drop(sender);
        };
        match std::thread::Builder::new().name(format!("provider of {}", self.noun)).spawn(run) {
            Ok(_) => state.call = Some(call.clone()),
            Err(error) => state.failure = Some(format!("has no thread: {error}").into()),
        }
        call
    }

    /// Records that the call in progress has returned `result`: a value, or a text that says why it
    /// failed.
    fn end(&self, result: Result<T, String>) {
        let mut state = self.state();
        state.call = None;
        match result {
            Ok(value) => (state.last, state.failure) = (Some(value), None),
            Err(failure) => state.failure = Some(failure.into()),
        }
    }

    /// Returns the value of the last successful call, even if later calls failed. Fails if there is
    /// no such value. `is_late` is true if the call has not returned in time. Logs when calls begin
    /// to fail, and when they succeed again.
    fn take(&self, is_late: bool) -> Result<T, ClientError> {
        let mut state = self.state();
        let failure = if is_late { Some("does not return".into()) } else { state.failure.clone() };
        let was_known = std::mem::replace(&mut state.is_known_to_fail, failure.is_some());
        let last = state.last.clone();
        drop(state);
        let noun = self.noun;
        foreign::log(|| match (&failure, &last) {
            (None, _) if was_known => info!(provider = noun, "the provider works again"),
            (Some(reason), Some(_)) if !was_known => {
                error!(provider = noun, %reason, "the provider fails: the last value stays in use");
            }
            (Some(reason), None) if !was_known => {
                error!(provider = noun, %reason, "the provider fails, and there is no earlier value");
            }
            _ => {}
        });
        last.ok_or_else(|| {
            let reason = failure.as_deref().unwrap_or("returned no value");
            let detail = format!("the provider of {noun} {reason}");
            ClientError::refused(ClientErrorKind::Unavailable, detail)
        })
    }
}

impl<T> Clone for Provider<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Provider<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> fmt::Debug for Provider<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Provider(..)" } else { "None" })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    /// Waits until the provider's call has ended, although nobody polls for it.
    async fn until_ended(provider: &Provider<u32>) {
        let asked = Arc::clone(provider.0.as_ref().expect("set"));
        tokio::task::spawn_blocking(move || {
            while asked.state().call.is_some() {
                std::thread::yield_now();
            }
        })
        .await
        .expect("it ends");
    }

    /// Creates a provider that returns these results in turn, and an error after them.
    fn of(answers: Vec<fn() -> Provided<u32>>) -> Provider<u32> {
        let calls = AtomicUsize::new(0);
        Provider::new("numbers", move || {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            answers.get(call).map_or_else(|| Err("all are given".into()), |answer| answer())
        })
    }

    #[tokio::test]
    async fn without_a_provider_there_is_nothing() {
        assert_eq!(Provider::<u32>::default().current().await, Ok(None));
    }

    #[tokio::test]
    async fn one_that_fails_or_panics_leaves_its_last_answer_and_is_asked_again() {
        let failing = || Err("no such file".into());
        let provider =
            of(vec![|| Ok(1), failing, || panic!("on purpose"), || Ok(2), || Ok(3), failing]);
        for expected in [1, 1, 1, 2, 3, 3] {
            assert_eq!(provider.current().await, Ok(Some(expected)));
        }
    }

    #[tokio::test]
    async fn one_that_has_given_nothing_yet_is_named_with_its_reason() {
        let provider = of(vec![|| Err("no such file".into()), || panic!("on purpose")]);
        for reason in ["failed: no such file", "panicked"] {
            let error = provider.current().await.expect_err("there is nothing");
            assert_eq!(error.kind, ClientErrorKind::Unavailable);
            assert_eq!(&*error.detail, format!("the provider of numbers {reason}"));
        }
        assert!(of(vec![|| Ok(1)]).current().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_is_waited_for_once_and_runs_once() {
        let (go, gone) = mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let provider = Provider::new("numbers", move || {
            counted.fetch_add(1, Ordering::Relaxed);
            // Fails once the test has dropped the sender.
            let _ = gone.lock().expect("whole").recv();
            Ok(7)
        });
        let start = Instant::now();
        for _ in 0..3 {
            let error = provider.current().await.expect_err("it hangs");
            assert_eq!(&*error.detail, "the provider of numbers does not return");
            assert_eq!(start.elapsed(), LIMIT, "the bound is of the call");
        }
        go.send(()).expect("it waits");
        until_ended(&provider).await;
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        // The late result is the last value while the next call hangs.
        assert_eq!(provider.current().await, Ok(Some(7)));
    }

    #[tokio::test]
    async fn one_that_has_failed_is_not_late_because_it_is_called_again() {
        let (go, gone) = mpsc::channel::<()>();
        let (gone, calls) = (Mutex::new(gone), AtomicUsize::new(0));
        let provider =
            Provider::new("numbers", move || match calls.fetch_add(1, Ordering::Relaxed) {
                0 => Err("no such file".into()),
                _ => {
                    // Fails once the test has dropped the sender.
                    let _ = gone.lock().expect("whole").recv();
                    Ok(7)
                }
            });
        let mut first = Box::pin(provider.current());
        assert!((&mut first).now_or_never().is_none());
        until_ended(&provider).await;
        let mut second = Box::pin(provider.current());
        assert!((&mut second).now_or_never().is_none(), "the second call hangs");
        let error = first.await.expect_err("there is nothing");
        assert_eq!(&*error.detail, "the provider of numbers failed: no such file");
        drop(go);
        assert_eq!(second.await, Ok(Some(7)));
    }

    #[tokio::test]
    async fn it_may_use_the_runtime_that_asks() {
        let provider = Provider::new("numbers", || {
            Ok(Handle::current().block_on(async { tokio::spawn(async { 5 }).await })?)
        });
        assert_eq!(provider.current().await, Ok(Some(5)));
    }
}
