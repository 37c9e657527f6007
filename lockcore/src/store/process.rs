//! A node's process as shown to operators: `host:pid`.

/// `host:pid` of this process.
pub(crate) fn of_this() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "unknown".into());
    format!("{}:{}", host.trim(), std::process::id())
}
