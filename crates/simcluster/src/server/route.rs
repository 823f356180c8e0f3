//! What a path names.

use percent_encoding::percent_decode_str;

/// A path, understood by its shape alone; whether such a resource exists is the registry's knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// `/api` and `/apis`.
    Groups {
        /// Whether it is `/api`.
        core: bool,
    },
    /// `/apis/apps`.
    Group(String),
    /// `/api/v1`, `/apis/apps/v1`.
    GroupVersion(String, String),
    /// A collection, an object or a subresource.
    Resource(Target),
    /// Everything else.
    Other(String),
}

/// A collection, an object or a subresource.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl Route {
    pub(crate) fn parse(path: &str) -> Self {
        let other = || Route::Other(path.to_owned());
        let decoded: Vec<String> = path
            .trim_matches('/')
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return other();
        }
        let (group, version, rest) = match segments.as_slice() {
            ["api"] => return Route::Groups { core: true },
            ["apis"] => return Route::Groups { core: false },
            ["apis", group] => return Route::Group((*group).into()),
            ["api", version] => return Route::GroupVersion(String::new(), (*version).into()),
            ["apis", group, version] => return Route::GroupVersion((*group).into(), (*version).into()),
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return other(),
        };
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let text = |segment: &&str| (*segment).to_owned();
        let [plural, rest @ ..] = rest else { return other() };
        if rest.len() > 2 {
            return other();
        }
        Route::Resource(Target {
            group: group.into(),
            version: version.into(),
            namespace,
            plural: text(plural),
            name: rest.first().map(text),
            subresource: rest.get(1).map(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> (String, Option<String>, String, Option<String>, Option<String>) {
        match Route::parse(path) {
            Route::Resource(t) => (
                format!("{}/{}", t.group, t.version),
                t.namespace,
                t.plural,
                t.name,
                t.subresource,
            ),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn paths_name_collections_objects_and_subresources() {
        let s = |text: &str| Some(text.to_owned());
        assert_eq!(target("/api/v1/pods"), ("/v1".into(), None, "pods".into(), None, None));
        assert_eq!(
            target("/api/v1/namespaces/a"),
            ("/v1".into(), None, "namespaces".into(), s("a"), None)
        );
        assert_eq!(
            target("/api/v1/namespaces/a/finalize"),
            ("/v1".into(), None, "namespaces".into(), s("a"), s("finalize"))
        );
        assert_eq!(
            target("/apis/g.io/v1/namespaces/a/widgets/w%3A1/status"),
            ("g.io/v1".into(), s("a"), "widgets".into(), s("w:1"), s("status"))
        );
        assert_eq!(Route::parse("/apis/"), Route::Groups { core: false });
        assert!(matches!(Route::parse("/api/v1/pods//x"), Route::Other(_)));
        assert!(matches!(
            Route::parse("/api/v1/namespaces/a/pods/p/log/more"),
            Route::Other(_)
        ));
        assert!(matches!(Route::parse("/healthz"), Route::Other(_)));
    }
}
