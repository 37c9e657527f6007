//! Extractors for HTTP requests.

mod extension;
mod header;
mod methods;
mod path;
mod read_on;

pub use extension::ByExtension;
pub use header::ByHeader;
pub use methods::ForMethods;
pub use path::{ByPath, canonical_path};
pub use read_on::ReadOn;
