//! Links of documents lead somewhere.

use std::path::Path;

use super::Finding;
use crate::files::File;
use crate::root;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let documents = files.iter().filter(|file| file.has_extension("md"));
    documents
        .flat_map(|file| dead_links(file, |path| root().join(path).exists()))
        .collect()
}

fn dead_links(file: &File, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let folder = file.path.parent().unwrap_or(Path::new(""));
    let targets = file.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#') && !target.contains(' '));
    let dead = local.filter(|target| {
        let path = target.split('#').next().unwrap_or_default();
        !exists(&folder.join(path))
    });
    dead.map(|target| format!("{}: the link to {target} leads nowhere", file.shown()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        let text = "[a](../there.md#part) [b](gone.md) [c](https://example.com) [d](#here)".to_owned();
        let file = File {
            path: "docs/x.md".into(),
            text,
        };
        let found = dead_links(&file, |path| path.ends_with("there.md"));
        assert_eq!(found, ["docs/x.md: the link to gone.md leads nowhere"]);
    }
}
