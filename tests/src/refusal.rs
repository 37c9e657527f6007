//! The check of a refusal: a command that meets another program's key must change nothing.

use std::fmt::Debug;

use proto::{LockErrorKind, StoreError};

/// Checks that there is a typed error and no change: `content` is compared with the earlier
/// content.
///
/// # Errors
///
/// A text of the actual answer or change.
pub fn refused_unchanged<A: Debug, C: PartialEq + Debug>(
    answer: &Result<A, StoreError>,
    before: &C,
    content: &C,
) -> Result<(), String> {
    if !matches!(answer, Err(error) if error.kind == LockErrorKind::WrongType) {
        return Err(format!("answered {answer:?} at another program's key"));
    }
    if before != content {
        return Err(format!("changed from {before:#?} to {content:#?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_a_change_or_another_error_is_no_refusal() {
        let refused = || Err::<(), _>(StoreError::refused(LockErrorKind::WrongType, "a list"));
        assert_eq!(refused_unchanged(&refused(), &1, &1), Ok(()));
        assert!(refused_unchanged(&refused(), &1, &2).is_err());
        assert!(refused_unchanged(&Ok(()), &1, &1).is_err());
        let other = Err::<(), _>(StoreError::refused(LockErrorKind::Timeout, "late"));
        assert!(refused_unchanged(&other, &1, &1).is_err());
    }
}
