//! The program for people's own machines: an archive to unpack into `/usr/local` or `~/.local`, with the name under which
//! `kubectl` finds it, completions for shells, and the manual. The same program gives the same archive.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

/// A shell, and where it looks for what it completes.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/grove"),
    ("zsh", "share/zsh/site-functions/_grove"),
    ("fish", "share/fish/vendor_completions.d/grove.fish"),
];

/// `kubectl grove …` runs the program of this name.
const PLUGIN: (&str, &str) = ("bin/kubectl-grove", "grove");

/// Writes the archive of a program; what it says of itself is asked of it.
pub(super) fn write(program: &Path, out: impl Write) -> Result<()> {
    let mut files = vec![("bin/grove".to_owned(), fs::read(program)?, 0o755)];
    for (shell, place) in COMPLETIONS {
        files.push((place.to_owned(), told(program, &["completion", shell])?, 0o644));
    }
    let folder = tempfile::TempDir::new()?;
    let into = folder.path().to_str().context("a folder whose name is text")?;
    told(program, &["man", "--into", into])?;
    let mut pages = fs::read_dir(folder.path())?.collect::<std::io::Result<Vec<_>>>()?;
    pages.sort_by_key(fs::DirEntry::file_name);
    for page in pages {
        let name = page
            .file_name()
            .into_string()
            .ok()
            .context("a page whose name is text")?;
        files.push((format!("share/man/man1/{name}"), fs::read(page.path())?, 0o644));
    }
    archive(&files, PLUGIN, out)
}

fn told(program: &Path, args: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(args).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "grove {}: {complaint}", args.join(" "));
    Ok(output.stdout)
}

fn header(mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

fn archive(files: &[(String, Vec<u8>, u32)], (link, target): (&str, &str), out: impl Write) -> Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::best()));
    for (name, content, mode) in files {
        let mut header = header(*mode);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    let mut header = header(0o777);
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    archive.append_link(&mut header, link, target)?;
    archive.into_inner()?.finish()?.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn what_is_unpacked_has_both_names() {
        let mut out = Vec::new();
        let files = [("bin/grove".to_owned(), b"runs".to_vec(), 0o755)];
        archive(&files, PLUGIN, &mut out).unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        tar::Archive::new(GzDecoder::new(out.as_slice()))
            .unpack(folder.path())
            .unwrap();
        for name in ["bin/grove", "bin/kubectl-grove"] {
            assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"runs", "{name}");
        }
        let link = fs::read_link(folder.path().join("bin/kubectl-grove")).unwrap();
        assert_eq!(link, Path::new("grove"));
    }
}
