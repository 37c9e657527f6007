//! The text `host:pid` that names a node's process for operators.

/// Returns `host:pid` for this process. The host is `unknown` if its name cannot be found.
pub(crate) fn of_this() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "unknown".into());
    format!("{}:{}", host.trim(), std::process::id())
}
