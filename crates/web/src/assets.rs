//! The files of the page, compiled in: what a browser loads is what this binary was built from.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal: $kind:ident),* $(,)?) => {
        &[$(($path, $kind, include_str!(concat!("../../../ui/", $path)))),*]
    };
}

/// Path, content type, content.
const FILES: &[(&str, &str, &str)] = files! {
    "index.html": HTML,
    "style.css": STYLE,
    "side.css": STYLE,
    "icon.svg": IMAGE,
    "main.js": SCRIPT,
    "around.js": SCRIPT,
    "world.js": SCRIPT,
    "stream.js": SCRIPT,
    "layout.js": SCRIPT,
    "paint.js": SCRIPT,
    "map.js": SCRIPT,
    "colour.js": SCRIPT,
    "outline.js": SCRIPT,
    "panel.js": SCRIPT,
    "text.js": SCRIPT,
};

/// A file of the page; a browser that has it already is told so.
pub(crate) fn answer(path: &str, request: &HeaderMap) -> Response {
    let path = match path.trim_start_matches('/') {
        "" => "index.html",
        path => path,
    };
    let Some((_, kind, content)) = FILES.iter().find(|(known, _, _)| *known == path) else {
        return (StatusCode::NOT_FOUND, "there is no such page; the map is at /\n").into_response();
    };
    let tag = tag(content);
    let headers = [(header::ETAG, tag.as_str()), (header::CACHE_CONTROL, "no-cache")];
    let known = request.get(header::IF_NONE_MATCH);
    if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, [(header::CONTENT_TYPE, *kind)], *content).into_response()
}

fn tag(content: &str) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy of the page forbids what is inline, and a module that is not embedded would be missing.
    #[test]
    fn every_file_that_is_named_is_embedded_and_nothing_is_inline() {
        for (path, _, content) in FILES {
            let words = content.split(['"', '\'']);
            let named = words.filter_map(|word| word.strip_prefix("./"));
            for other in named.filter(|other| !other.starts_with("api/")) {
                assert!(
                    FILES.iter().any(|(known, _, _)| *known == other),
                    "{path} names {other}"
                );
            }
            if path.ends_with(".html") {
                assert!(!content.contains("style=") && !content.contains("<style"), "{path}");
                let mut scripts = content.split("<script").skip(1);
                assert!(scripts.all(|script| script.contains("src=")), "{path}");
            }
        }
    }

    #[test]
    fn a_file_is_sent_once() {
        let first = answer("/", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut again = HeaderMap::new();
        again.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(answer("/index.html", &again).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(answer("/other", &again).status(), StatusCode::NOT_FOUND);
    }
}
