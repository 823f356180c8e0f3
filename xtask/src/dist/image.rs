//! An OCI image as an archive, which any registry tool can push (`skopeo copy oci-archive:FILE docker://…`).
//!
//! Times, owners and order are fixed, so that the same content has the same digest.

use std::io::Write;

use anyhow::{Context, Result};
use flate2::Compression;
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
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (name, (entry.header().mode().unwrap(), content))
        };
        archive.entries().unwrap().map(read).collect()
    }

    /// Follows the digests as a registry tool does: index, manifest, configuration, layer, program.
    #[test]
    fn an_image_leads_from_its_index_to_the_program() {
        let entries = [
            Entry::program("grove", b"runs".to_vec()),
            Entry::file("list", b"parts".to_vec()),
        ];
        let image = Image::new(&entries, "1.2.3").unwrap();
        let mut out = Vec::new();
        image.write(&mut out).unwrap();
        let found = files(&out);
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let (_, content) = &found[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(super::digest(content), digest);
            assert_eq!(descriptor["size"], content.len());
            content.clone()
        };
        let index: Value = serde_json::from_slice(&found["index.json"].1).unwrap();
        assert_eq!(index["manifests"][0]["digest"], image.digest());
        let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/grove"]));
        assert_eq!(config["config"]["User"], USER);
        let mut layer = Vec::new();
        let compressed = blob(&manifest["layers"][0]);
        GzDecoder::new(compressed.as_slice()).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], super::digest(&layer));
        let inside = files(&layer);
        assert_eq!(inside["grove"], (0o755, b"runs".to_vec()));
        assert_eq!(inside["list"], (0o644, b"parts".to_vec()));
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
