//! One check a kind of input: any bytes may come, and the check asserts the facts that always hold.
//!
//! The property tests, the long run and the fuzz targets all call these.

mod answer;
pub(crate) mod answers;
#[path = "../../../../lockcore/redis/src/connection/decoder.rs"]
mod decoder;
pub(crate) mod message;
pub(crate) mod name;
pub(crate) mod record;
pub(crate) mod redisson;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod source;

/// A check of the input that the bytes stand for; it panics if something is wrong.
pub(crate) type Check = fn(&[u8]);

/// All checks, with the names of their fuzz targets.
pub(crate) const ALL: [(&str, Check); 7] = [
    ("name", name::check),
    ("reply", reply::check),
    ("redisson", redisson::check),
    ("message", message::check),
    ("request", request::check),
    ("answers", answers::check),
    ("record", record::check),
];
