//! The store in memory: clock, messages, nodes, forgetting.
