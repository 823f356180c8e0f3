//! Closed sets of words, such as `debug`, `info`, `error`: written once, used to read, to write and to explain.

/// Defines an enum whose variants are words of the file, in the order in which messages list them.
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
        $vis enum $name {
            $($(#[$note])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every word, in declaration order.
            $vis const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word as it stands in a file.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// The variant that `word` names, if any.
            $vis fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }
        }

        impl $crate::config::section::Setting for $name {
            fn expected() -> String {
                let words: Vec<&str> = Self::ALL.iter().map(|known| known.as_str()).collect();
                $crate::config::section::one_of(&words)
            }

            fn from_value(value: &serde_json::Value) -> Option<Self> {
                value.as_str().and_then(Self::from_word)
            }
        }
    };
}

pub(super) use words;
