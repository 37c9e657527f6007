//! Requests whose replies are delivered to a callback.

use std::pin::Pin;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A function that starts a task on a runtime. It polls the future once before it returns, so that
/// requests sent in the first poll keep their order, and spawns a task only if the future is then
/// not complete.
pub type Begin = fn(&Handle, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Polls a future once in this runtime, whose timers it may use, and then drops it. Returns the
/// output if the future is complete. `None` otherwise, and where no runtime can be entered: a
/// thread may run destructors after the thread-local values of runtimes are gone.
pub(crate) fn polled_once<T>(runtime: &Handle, work: impl Future<Output = T>) -> Option<T> {
    if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
        return None;
    }
    let _in_runtime = runtime.enter();
    work.now_or_never()
}

/// A callback that receives a reply. It must not block, because it may be called in a task of the
/// connection. Dropped without a call if the runtime ends first.
pub type Taker<T> = Box<dyn FnOnce(T) + Send>;

/// Calls `send` at once with a callback for the reply. The returned future completes with the
/// reply, or with `None` if the connection's runtime has ended.
pub fn answer_to<T: Send + 'static>(
    send: impl FnOnce(Taker<T>),
) -> impl Future<Output = Option<T>> + Send + 'static {
    let (answer, answered) = oneshot::channel();
    send(Box::new(move |value| drop(answer.send(value))));
    async move { answered.await.ok() }
}
