//! Each rule of `docs/protocol.md` as a fact.
