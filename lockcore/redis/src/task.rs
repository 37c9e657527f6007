//! Requests whose replies are delivered to a callback.

use std::pin::Pin;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Polls some work at once, and spawns the rest on the runtime: requests that are sent by their
/// first poll keep their order.
pub type Begin = fn(&Handle, Pin<Box<dyn Future<Output = ()> + Send>>);

/// Receives a reply, in a task of the connection. Dropped if the runtime ends first.
pub type Taker<T> = Box<dyn FnOnce(T) + Send>;

/// Returns the reply to a request that `send` sends before this returns; `None` if the runtime of
/// the connection has ended.
pub fn answer_to<T: Send + 'static>(
    send: impl FnOnce(Taker<T>),
) -> impl Future<Output = Option<T>> + Send + 'static {
    let (answer, answered) = oneshot::channel();
    send(Box::new(move |told| drop(answer.send(told))));
    async move { answered.await.ok() }
}
