//! The methods of every service in this crate.

/// Access to the inner service, for a type with a field `inner` of type `S`.
macro_rules! inner {
    () => {
        /// Returns a reference to the inner service.
        pub fn get_ref(&self) -> &S {
            &self.inner
        }

        /// Returns a mutable reference to the inner service.
        pub fn get_mut(&mut self) -> &mut S {
            &mut self.inner
        }

        /// Returns the inner service.
        pub fn into_inner(self) -> S {
            self.inner
        }
    };
}
pub(crate) use inner;
