//! Security: the actions of a user with the least rights, and the secrets that no log has.

mod rights;
mod secrets;
