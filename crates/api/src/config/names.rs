//! What Kubernetes accepts as a name or a label key. Only the rules that the configuration needs.

/// An RFC 1123 label: `rack`, `team-a`.
pub(super) fn is_dns_label(text: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    text.len() <= 63 && is_framed(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), is_inner)
}

/// An RFC 1123 subdomain, the form of most object names: `grove-topology`, `a.b`.
pub(super) fn is_dns_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_end = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        is_framed(part, is_end, |c| is_end(c) || c == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// A label key: a name, or a DNS prefix and a name: `rack`, `topology.kubernetes.io/rack`.
pub(super) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let is_end = |c: u8| c.is_ascii_alphanumeric();
    prefix.is_none_or(is_dns_subdomain)
        && name.len() <= 63
        && is_framed(name, is_end, |c| is_end(c) || matches!(c, b'-' | b'_' | b'.'))
}

/// Not empty, begins and ends with what `is_end` takes, and holds only what `is_inner` takes.
fn is_framed(text: &str, is_end: impl Fn(u8) -> bool, is_inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    is_end(*first) && is_end(*last) && bytes.iter().all(|c| is_inner(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys() {
        let long_name = "a".repeat(63);
        for good in ["rack", "Rack_1.x", "kubernetes.io/hostname", "a/b", long_name.as_str()] {
            assert!(is_label_key(good), "{good}");
        }
        let too_long = "a".repeat(64);
        for bad in [
            "",
            "/rack",
            "a/",
            "a/b/c",
            "-rack",
            "rack-",
            "Upper.io/rack",
            "a b",
            "a..b/c",
            "räck",
            &too_long,
        ] {
            assert!(!is_label_key(bad), "{bad}");
        }
    }

    #[test]
    fn dns_names() {
        assert!(is_dns_label("grove-system") && !is_dns_label("a.b") && !is_dns_label("") && !is_dns_label("A"));
        assert!(is_dns_subdomain("a.b-c") && !is_dns_subdomain("a..b") && !is_dns_subdomain(".a"));
        assert!(!is_dns_label(&"a".repeat(64)) && !is_dns_subdomain(&"a".repeat(254)));
    }
}
