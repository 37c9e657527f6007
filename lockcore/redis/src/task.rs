//! Requests whose answers are taken by whoever is there.

use std::pin::Pin;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Polls some work at once, and leaves the rest of it to a task of the runtime: requests that are
/// sent by their first poll keep their order.
pub type Begin = fn(&Handle, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Takes an answer, in a task of a connection. It is dropped if the runtime ends before.
pub type Taker<T> = Box<dyn FnOnce(T) + Send>;

/// The answer to a request that `send` sends before this returns; nothing if the runtime of the
/// connection has ended.
pub fn answer_to<T: Send + 'static>(
    send: impl FnOnce(Taker<T>),
) -> impl Future<Output = Option<T>> + Send + 'static {
    let (answer, answered) = oneshot::channel();
    send(Box::new(move |told| drop(answer.send(told))));
    async move { answered.await.ok() }
}
