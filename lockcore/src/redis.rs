//! The store on Redis.
