//! HTTP for the tests of services: servers on loopback, clients that see every byte or share a
//! connection, bodies sent in pieces, and handlers that wait to be let through.

mod body;
mod client;
mod gate;
mod multiplexed;
mod server;

pub use body::{AnyBody, Piece, Pieces, piece, streamed, text};
pub use client::{Answer, Client, get};
pub use gate::{Gate, Keeper, gate};
pub use multiplexed::Multiplexed;
pub use server::{listen, serve, serve_http2};
