//! `lockctl status`: the lock servers.

use std::fmt::Write as _;

use lockcore::operate::{Connection, ServerStatus};

use crate::arguments::Server;
use crate::connect;
use crate::exit::{self, Failure};
use crate::{stdout, text};

pub(crate) async fn run(server: &Server) -> Result<u8, Failure> {
    let locks = connect::once(server).await?;
    let shown: Vec<_> = locks.status().servers.iter().map(line).collect();
    stdout::print(&shown.join("\n"))?;
    Ok(exit::OK)
}

fn line(server: &ServerStatus) -> String {
    let mut line = text::one_line(&server.address);
    for (name, connection) in [("commands", &server.commands), ("messages", &server.subscription)] {
        let _ = match connection {
            Connection::Up => write!(line, "  {name}: up"),
            Connection::Down { reason, .. } => {
                write!(line, "  {name}: down ({})", text::one_line(reason))
            }
            other => write!(line, "  {name}: {other:?}"),
        };
    }
    if let Some(slots) = server.slots {
        let _ = write!(line, "  slots: {slots}");
    }
    line
}
