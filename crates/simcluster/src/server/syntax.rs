//! What is wrong with a text that is no JSON, in the words of Go's decoder, which clients of a real API server see.

/// Where in a document the next byte stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Value,
    FirstItem,
    FirstKey,
    Key,
    AfterKey,
    AfterValue,
}

/// Deepest text that is read. Go reads 10,000 levels; what is read here is walked by functions that call themselves, on
/// threads with a stack of 2 MiB.
pub(crate) const NESTING_MAX: usize = 127;

/// The first thing that is wrong; `None` if nothing is.
pub(crate) fn problem(text: &[u8]) -> Option<String> {
    let mut scan = Scan { text, at: 0 };
    let mut open: Vec<u8> = Vec::new();
    let mut place = Place::Value;
    loop {
        scan.skip_space();
        let Some(byte) = scan.peek() else {
            let whole = place == Place::AfterValue && open.is_empty();
            return (!whole).then(|| "unexpected end of JSON input".to_owned());
        };
        place = match (place, byte) {
            (Place::Value | Place::FirstItem, b'{' | b'[') if open.len() == NESTING_MAX => {
                return Some(unexpected(byte, "exceeded max depth"));
            }
            (Place::Value | Place::FirstItem, b'{' | b'[') => {
                open.push(byte);
                scan.at += 1;
                if byte == b'{' {
                    Place::FirstKey
                } else {
                    Place::FirstItem
                }
            }
            (Place::FirstItem, b']') | (Place::FirstKey, b'}') => scan.close(&mut open),
            (Place::Value | Place::FirstItem, _) => match scan.scalar(byte) {
                Ok(()) => Place::AfterValue,
                Err(why) => return Some(why),
            },
            (Place::FirstKey | Place::Key, b'"') => match scan.string() {
                Ok(()) => Place::AfterKey,
                Err(why) => return Some(why),
            },
            (Place::FirstKey | Place::Key, _) => {
                return Some(unexpected(byte, "looking for beginning of object key string"));
            }
            (Place::AfterKey, b':') => scan.step(Place::Value),
            (Place::AfterKey, _) => return Some(unexpected(byte, "after object key")),
            (Place::AfterValue, _) => match (open.last(), byte) {
                (Some(b'{'), b',') => scan.step(Place::Key),
                (Some(b'['), b',') => scan.step(Place::Value),
                (Some(b'{'), b'}') | (Some(b'['), b']') => scan.close(&mut open),
                (Some(b'{'), _) => return Some(unexpected(byte, "after object key:value pair")),
                (Some(_), _) => return Some(unexpected(byte, "after array element")),
                (None, _) => return Some(unexpected(byte, "after top-level value")),
            },
        };
    }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
            self.at += 1;
        }
    }

    fn step(&mut self, next: Place) -> Place {
        self.at += 1;
        next
    }

    fn close(&mut self, open: &mut Vec<u8>) -> Place {
        open.pop();
        self.step(Place::AfterValue)
    }

    /// The next byte if it fits; what stands there otherwise is told with `context`.
    fn expect(&mut self, fits: impl Fn(u8) -> bool, context: &str) -> Result<(), String> {
        match self.peek() {
            Some(byte) if fits(byte) => {
                self.at += 1;
                Ok(())
            }
            Some(byte) => Err(unexpected(byte, context)),
            None => Err("unexpected end of JSON input".to_owned()),
        }
    }

    fn scalar(&mut self, first: u8) -> Result<(), String> {
        match first {
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(),
            other => Err(unexpected(other, "looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes() {
            let context = format!("in literal {word} (expecting {})", quoted(expected));
            self.expect(|byte| byte == expected, &context)?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<(), String> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        self.expect(|byte| byte.is_ascii_digit(), "in numeric literal")?;
        if !leading_zero {
            self.digits();
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.expect(|byte| byte.is_ascii_digit(), "after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.expect(|byte| byte.is_ascii_digit(), "in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                _ => self.expect(|byte| byte >= b' ', "in string literal")?,
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        let is_unicode = self.peek() == Some(b'u');
        self.expect(|byte| b"bfnrt\\/\"u".contains(&byte), "in string escape code")?;
        for _ in 0..if is_unicode { 4 } else { 0 } {
            self.expect(|byte| byte.is_ascii_hexdigit(), "in \\u hexadecimal character escape")?;
        }
        Ok(())
    }
}

fn unexpected(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", quoted(byte))
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => format!("'{}'", char::from(byte).escape_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_told_as_go_tells_them() {
        let cases = [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("nonsense", "invalid character 'o' in literal null (expecting 'u')"),
            (
                "{a}",
                "invalid character 'a' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
        ];
        for (text, expected) in cases {
            assert_eq!(problem(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
        for text in ["{}", " [1, -2.5e3, \"\\u00e9\", true, null] ", "{\"a\":{\"b\":[]}}"] {
            assert_eq!(problem(text.as_bytes()), None, "{text}");
        }
        let deep = problem("[".repeat(1_000_000).as_bytes());
        assert_eq!(deep.as_deref(), Some("invalid character '[' exceeded max depth"));
    }
}
