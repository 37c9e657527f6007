//! Tuples of extractors, whose keys are locked together.

use crate::key::{ExtractKey, KeyError, Keys};

fn joined(one: Option<Keys>, other: Option<Keys>) -> Option<Keys> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.join(other)),
        (one, other) => one.or(other),
    }
}

macro_rules! tuple {
    ($($extractor:ident $index:tt),+) => {
        /// Extracts the keys of all extractors in the tuple. If two of them set the same option,
        /// the value of the first is kept.
        impl<Req, $($extractor: ExtractKey<Req>),+> ExtractKey<Req> for ($($extractor,)+) {
            fn extract_key(&self, request: &Req) -> Result<Option<Keys>, KeyError> {
                let mut keys = None;
                $(keys = joined(keys, self.$index.extract_key(request)?);)+
                Ok(keys)
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
