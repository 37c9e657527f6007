//! The protocol as one pure function.
