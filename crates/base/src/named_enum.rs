//! Enums whose variants have names in metrics, logs and reports.

/// Declares a public enum together with the names of its variants, so that the two cannot get out of step. The
/// documentation of the variants is available as text, for the reference of the metrics.
#[macro_export]
macro_rules! named_enum {
    ($(#[$meta:meta])* $enum:ident { $(#[doc = $meaning:literal] $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum { $(#[doc = $meaning] $variant,)* }

        impl $enum {
            /// All variants, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// The names of all variants, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];
            /// The documentation of all variants, in the same order.
            pub const MEANINGS: &'static [&'static str] = &[$($meaning,)*];

            /// The name of the variant.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }
    };
}

pub use named_enum;
