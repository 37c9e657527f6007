//! Value types of the public API: keys, options, errors, hold states and trace contexts.

pub(crate) mod error;
pub(crate) mod hold_state;
pub(crate) mod key;
pub(crate) mod options;
pub(crate) mod trace_links;
pub(crate) mod trace_parent;
