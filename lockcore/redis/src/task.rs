//! Requests whose replies are delivered to a callback.

use std::pin::Pin;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A function that starts a task on a runtime. It polls the future once before it returns, and
/// spawns a task only for the rest, so that requests sent by the first poll keep their order.
pub type Begin = fn(&Handle, Pin<Box<dyn Future<Output = ()> + Send>>);

/// A callback that receives a reply, called in a task of the connection. It is dropped without a
/// call if the runtime ends first.
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
