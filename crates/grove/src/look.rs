//! How a text looks where it is read: colours and drawn lines on a terminal, plain ASCII in a pipe or a file.
//!
//! A colour never says what no word says: whoever does not see it misses nothing.

use std::io::{self, IsTerminal as _};

/// What a word means to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// It waits, or could be better.
    Warn,
    /// Wrong: somebody has to do something.
    Bad,
    /// The head of a table, or a name.
    Head,
    /// Less important than what is beside it.
    Quiet,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    has_colour: bool,
    has_unicode: bool,
}

impl Look {
    /// Letters and signs that every reader takes, a program included.
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self {
        has_colour: false,
        has_unicode: false,
    };

    pub(crate) fn of_stdout() -> Self {
        Self::of(io::stdout().is_terminal(), |name| std::env::var(name).ok())
    }

    /// What the reader's environment asks for. `NO_COLOR` with any value but the empty one refuses colours
    /// (<https://no-color.org>); a locale without UTF-8 shows no drawn lines.
    fn of(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_capable = is_terminal && set("TERM").is_some_and(|term| term != "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let is_utf8 = |locale: String| locale.to_uppercase().replace('-', "").contains("UTF8");
        Self {
            has_colour: is_capable && set("NO_COLOR").is_none(),
            has_unicode: is_capable && locale.is_some_and(is_utf8),
        }
    }

    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
            Tone::Head => "1",
            Tone::Quiet => "2",
        };
        match self.has_colour && !text.is_empty() {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// The branch before a child of a tree, and what stands below it before that child's own children.
    pub(crate) fn branch(self, is_last: bool) -> (&'static str, &'static str) {
        match (self.has_unicode, is_last) {
            (true, true) => ("└─ ", "   "),
            (true, false) => ("├─ ", "│  "),
            (false, true) => ("`- ", "   "),
            (false, false) => ("|- ", "|  "),
        }
    }
}

/// How many columns a text takes: what sets colours takes none.
pub(crate) fn width(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().chars().count();
    let rest = parts.map(|part| part.split_once('m').map_or(0, |(_, shown)| shown.chars().count()));
    first + rest.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_lines_are_for_terminals_that_show_them() {
        let look = |is_terminal: bool, set: &[(&str, &str)]| {
            let value = |name: &str| set.iter().find(|(known, _)| *known == name);
            let look = Look::of(is_terminal, |name| value(name).map(|(_, value)| (*value).to_owned()));
            (look.has_colour, look.has_unicode)
        };
        let (term, lang) = (("TERM", "xterm-256color"), ("LANG", "en_US.UTF-8"));
        assert_eq!(look(true, &[term, lang]), (true, true));
        assert_eq!(look(false, &[term, lang]), (false, false), "a pipe");
        assert_eq!(look(true, &[term, lang, ("NO_COLOR", "1")]), (false, true));
        assert_eq!(
            look(true, &[term, lang, ("NO_COLOR", "")]),
            (true, true),
            "empty is unset"
        );
        assert_eq!(look(true, &[("TERM", "dumb"), lang]), (false, false));
        assert_eq!(look(true, &[lang]), (false, false), "nobody says what it can");
        assert_eq!(
            look(true, &[term, lang, ("LC_ALL", "C")]),
            (true, false),
            "the first one counts"
        );
        assert_eq!(
            look(true, &[term, ("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]),
            (true, true)
        );
    }

    #[test]
    fn colours_take_no_room() {
        let colourful = Look {
            has_colour: true,
            has_unicode: true,
        };
        let painted = colourful.paint(Tone::Warn, "Pending");
        assert_eq!(painted, "\x1b[33mPending\x1b[0m");
        assert_eq!((width(&painted), width("plain"), width("├─ ")), (7, 5, 3));
        assert_eq!(width(&format!("a {painted} b")), 11);
        assert_eq!(Look::PLAIN.paint(Tone::Warn, "Pending"), "Pending");
    }
}
