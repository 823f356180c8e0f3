//! An OCI image as an archive, which any registry tool can push (`skopeo copy oci-archive:FILE docker://…`).
//!
//! Times, owners and order are fixed, so that the same content has the same digest.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Nobody in particular; what is restricted asks for a user that is not root.
const USER: &str = "65532:65532";

/// A file of the image.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
}

impl Entry {
    pub(super) fn program(name: &'static str, content: Vec<u8>) -> Self {
        Self {
            name,
            content,
            mode: 0o755,
        }
    }

    pub(super) fn file(name: &'static str, content: Vec<u8>) -> Self {
        Self {
            name,
            content,
            mode: 0o644,
        }
    }
}

/// Bytes that are found by their digest.
#[derive(Debug)]
struct Blob {
    media_type: &'static str,
    content: Vec<u8>,
}

impl Blob {
    fn of(media_type: &'static str, value: &Value) -> Result<Self> {
        let content = serde_json::to_vec(value)?;
        Ok(Self { media_type, content })
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": digest(&self.content), "size": self.content.len()})
    }
}

#[derive(Debug)]
pub(super) struct Image {
    manifest: Blob,
    config: Blob,
    layer: Blob,
}

impl Image {
    pub(super) fn new(entries: &[Entry], version: &str) -> Result<Self> {
        let files = archive(
            entries
                .iter()
                .map(|entry| (entry.name, entry.content.as_slice(), entry.mode)),
        )?;
        let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
        compressed.write_all(&files)?;
        let layer = Blob {
            media_type: "application/vnd.oci.image.layer.v1.tar+gzip",
            content: compressed.finish()?,
        };
        let program = entries.first().context("an image without files")?.name;
        let labels = json!({"org.opencontainers.image.title": "grove", "org.opencontainers.image.version": version});
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {"User": USER, "Entrypoint": [format!("/{program}")], "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [digest(&files)]},
        });
        let config = Blob::of("application/vnd.oci.image.config.v1+json", &config)?;
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": media_type, "config": config.descriptor(),
            "layers": [layer.descriptor()]});
        let manifest = Blob::of(media_type, &manifest)?;
        Ok(Self {
            manifest,
            config,
            layer,
        })
    }

    /// What a registry will know it by.
    pub(super) fn digest(&self) -> String {
        digest(&self.manifest.content)
    }

    pub(super) fn write(&self, mut out: impl Write) -> Result<()> {
        let index = json!({"schemaVersion": 2, "manifests": [self.manifest.descriptor()]});
        let mut files = vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), serde_json::to_vec(&index)?),
        ];
        for blob in [&self.manifest, &self.config, &self.layer] {
            let name = digest(&blob.content).replace(':', "/");
            files.push((format!("blobs/{name}"), blob.content.clone()));
        }
        let files = files
            .iter()
            .map(|(name, content)| (name.as_str(), content.as_slice(), 0o644));
        out.write_all(&archive(files)?)?;
        Ok(())
    }
}

/// How the program of an image is started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) command: Vec<String>,
    pub(super) user: String,
}

/// Unpacks an image into a folder as what runs containers does: index, manifest, configuration, layers; each must have the
/// digest and the size by which it is named.
pub(super) fn unpack(archive: impl Read, into: &Path) -> Result<Start> {
    let files = files(archive)?;
    let blob = |descriptor: &Value| -> Result<&Vec<u8>> {
        let name = descriptor["digest"].as_str().context("a descriptor without a digest")?;
        let content = files.get(&format!("blobs/{}", name.replace(':', "/")));
        let content = content.with_context(|| format!("{name} is not in the image"))?;
        ensure!(digest(content) == name, "{name} is damaged");
        ensure!(descriptor["size"] == content.len(), "{name} has another size");
        Ok(content)
    };
    let index: Value = serde_json::from_slice(files.get("index.json").context("an image without an index")?)?;
    let manifest: Value = serde_json::from_slice(blob(&index["manifests"][0])?)?;
    let config: Value = serde_json::from_slice(blob(&manifest["config"])?)?;
    let layers = manifest["layers"].as_array().context("a manifest without layers")?;
    for (layer, whole) in layers
        .iter()
        .zip(config["rootfs"]["diff_ids"].as_array().into_iter().flatten())
    {
        let mut content = Vec::new();
        GzDecoder::new(blob(layer)?.as_slice()).read_to_end(&mut content)?;
        ensure!(
            digest(&content) == *whole,
            "a layer is not the one of the configuration"
        );
        tar::Archive::new(content.as_slice()).unpack(into)?;
    }
    let config = &config["config"];
    Ok(Start {
        command: serde_json::from_value(config["Entrypoint"].clone())?,
        user: config["User"].as_str().unwrap_or_default().to_owned(),
    })
}

/// The files of an archive by name.
fn files(archive: impl Read) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let (name, mut content) = (entry.path()?.display().to_string(), Vec::new());
        entry.read_to_end(&mut content)?;
        files.insert(name, content);
    }
    Ok(files)
}

fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// Files in the order given, all of root's and of no time.
fn archive<'a>(files: impl Iterator<Item = (&'a str, &'a [u8], u32)>) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, name, content)?;
    }
    Ok(archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;

    fn written() -> Vec<u8> {
        let entries = [
            Entry::program("grove", b"runs".to_vec()),
            Entry::file("list", b"parts".to_vec()),
        ];
        let mut out = Vec::new();
        Image::new(&entries, "1.2.3").unwrap().write(&mut out).unwrap();
        out
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let folder = TempDir::new().unwrap();
        let start = unpack(written().as_slice(), folder.path()).unwrap();
        assert_eq!((start.command, start.user.as_str()), (vec!["/grove".to_owned()], USER));
        let found = |name: &str| {
            let path = folder.path().join(name);
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            (mode, fs::read(path).unwrap())
        };
        assert_eq!(found("grove"), (0o755, b"runs".to_vec()));
        assert_eq!(found("list"), (0o644, b"parts".to_vec()));
    }

    #[test]
    fn a_damaged_image_is_not_unpacked() {
        let whole = written();
        // The layer comes last, before the zeros that end an archive.
        let at = whole.iter().rposition(|byte| *byte != 0).unwrap();
        let mut damaged = whole;
        damaged[at] ^= 1;
        let folder = TempDir::new().unwrap();
        let refused = unpack(damaged.as_slice(), folder.path()).unwrap_err().to_string();
        assert!(refused.ends_with("is damaged"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_same_files_make_the_same_image() {
        let image = || {
            Image::new(&[Entry::program("grove", b"runs".to_vec())], "1")
                .unwrap()
                .digest()
        };
        assert_eq!(image(), image());
    }
}
