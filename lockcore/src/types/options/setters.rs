//! The setters of [`LockOptions`](super::LockOptions), for every type with such options.

/// Generates setters for a type that contains [`LockOptions`](crate::LockOptions): one for each
/// listed option, such as `lease`, with the documentation above the option's name. Each setter
/// calls the type's method `$options` with `LockOptions` in which only this option is set; the
/// method merges them into the type's options.
#[doc(hidden)]
#[macro_export]
macro_rules! option_setters {
    ($options:ident: $($(#[$doc:meta])* $setter:ident,)+) => {
        $($crate::option_setters!(@ $options $(#[$doc])* $setter);)+
    };
    (@ $options:ident $(#[$doc:meta])* wait_forever) => {
        $(#[$doc])*
        pub fn wait_forever(self) -> Self {
            self.$options($crate::LockOptions::new().wait_forever())
        }
    };
    (@ $options:ident $(#[$doc:meta])* queue_limit) => {
        $(#[$doc])*
        pub fn queue_limit(self, queue_limit: u32) -> Self {
            self.$options($crate::LockOptions::new().queue_limit(queue_limit))
        }
    };
    (@ $options:ident $(#[$doc:meta])* when_busy) => {
        $(#[$doc])*
        pub fn when_busy(self, when_busy: $crate::WhenBusy) -> Self {
            self.$options($crate::LockOptions::new().when_busy(when_busy))
        }
    };
    (@ $options:ident $(#[$doc:meta])* $setter:ident) => {
        $(#[$doc])*
        pub fn $setter(self, $setter: ::std::time::Duration) -> Self {
            self.$options($crate::LockOptions::new().$setter($setter))
        }
    };
}
