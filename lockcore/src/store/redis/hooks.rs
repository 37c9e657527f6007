//! The callbacks through which the Redis client reports servers, connection states and messages to
//! a store.

use std::sync::Arc;

use client::{ClientError, LinkListener};
use proto::layout::Layout;
use proto::wire;
use proto::{Event, Link, NodeId};
use redis::Msg;
use tokio::sync::watch;
use tracing::debug;

use super::failure;
use super::server_time::ServerTime;
use crate::foreign;
use crate::store::Listener;

/// Receives the client's reports on the command connection: its state, and the time of each server
/// at connect.
pub(super) struct OfCommands {
    /// The times of the servers. Each server's time is recorded before commands are sent to the
    /// server.
    pub(super) server_time: Arc<ServerTime>,
    pub(super) state: watch::Sender<Link>,
}

impl LinkListener for OfCommands {
    fn on_server(&self, now_us: u64, number: u64) {
        self.server_time.note_first(now_us, number);
    }

    fn log(&self) {
        self.server_time.log();
    }

    fn on_state(&self, down: Option<&ClientError>) {
        self.state.send_replace(link(down));
    }
}

/// Receives the subscription's messages, and the client's reports on the subscription's state.
///
/// Messages only save time, because the server alone decides which client holds a lock. If a
/// message is lost, the next touch asks the server and acts on the reply. So unreadable messages
/// are ignored.
pub(super) struct OfMessages {
    pub(super) node: NodeId,
    pub(super) layout: &'static dyn Layout,
    pub(super) listener: Arc<dyn Listener>,
    pub(super) state: watch::Sender<Link>,
}

impl client::Listener for OfMessages {
    fn hear(&self, message: &Msg) {
        if message.from_pattern() {
            if let Some(member) = self.layout.called(message.get_channel_name(), &self.node) {
                self.listener.hear(Event::Poked { number: member.number() });
            }
            return;
        }
        match wire::message(message.get_payload_bytes(), &self.node) {
            Some(event) => self.listener.hear(event),
            None => foreign::log(|| debug!("a message on this node's channel is malformed")),
        }
    }

    fn resubscribed(&self) {
        self.listener.hear(Event::Resubscribed);
    }

    fn on_state(&self, down: Option<&ClientError>) {
        self.state.send_replace(link(down));
    }
}

fn link(down: Option<&ClientError>) -> Link {
    down.map_or(Link::Up, |error| Link::broken(&failure::of_client(error.clone())))
}
