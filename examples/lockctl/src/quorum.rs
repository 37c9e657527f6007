//! `lockctl quorum init`: initialises new quorum primaries.

use lockcore::Quorum;

use crate::arguments::Server;
use crate::connect;
use crate::exit::{self, Failure};

pub(crate) async fn init(server: &Server) -> Result<u8, Failure> {
    let failed = |error| connect::failure(&server.redis, &error);
    let quorum = Quorum::from_url(&server.redis).map_err(failed)?;
    server.builder().init_quorum(quorum).await.map_err(failed)?;
    Ok(exit::OK)
}
