//! A node's connection name, which shows operators the node's process.

/// Returns a node's connection name in CLIENT LIST: `lockcore`, the label, if set, `host:pid` and
/// the node id. Redis allows only visible ASCII there, so other characters become `_`.
pub(super) fn of(label: Option<&str>, process: &str, node: &str) -> String {
    let parts: Vec<_> = ["lockcore"].into_iter().chain(label).chain([process, node]).collect();
    parts.join(":").chars().map(|c| if c.is_ascii_graphic() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_holds_no_space() {
        assert_eq!(of(Some("web 1:é"), "vm:7", "node"), "lockcore:web_1:_:vm:7:node");
        assert_eq!(of(None, "vm:7", "node"), "lockcore:vm:7:node");
    }
}
