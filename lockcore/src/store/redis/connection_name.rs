//! A node's connection name, which shows operators the node's process.

/// A node's connection name in CLIENT LIST: the label, if set, `host:pid` and the node id.
/// The list only allows visible ASCII.
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
