//! A directory that a cluster lives in: what is stored, and what identifies the cluster, across restarts.
//!
//! ```text
//! DIR ─┬─ lock             whose process uses it
//!      └─ cluster.redb     objects (bytes, as the store has them) and facts (keys, revision, time)
//! ```
//!
//! One thread (`keeper`) writes. It takes whatever has been noted since its last commit into the next one, so that many
//! writers share the price of one; no client sees a write before its commit. The file is made whole under another name
//! and then renamed: a start that is killed leaves either nothing or a cluster.

mod format;
mod keeper;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::store::Stored;
pub(crate) use format::Database;
pub(crate) use keeper::Keeper;

const DATABASE: &str = "cluster.redb";
/// The database until its first commit.
const UNFINISHED: &str = "cluster.redb.new";
const LOCK: &str = "lock";

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Somebody else has it.
    #[error("{}: process {process} has it open; end that, or name another directory", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The id of the process, as far as it is known.
        process: String,
    },
    /// The file is not what we wrote.
    #[error("{}: the file is damaged or no cluster's ({why}); restore it from a copy, or remove it to begin anew", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file is of a newer program.
    #[error("{}: written by a newer grove, in format {found}; this one reads up to {known}: use the newer one", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// The format of the file.
        found: u64,
        /// The newest that is known here.
        known: u64,
    },
    /// The system refuses.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// What could not be used.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What was kept of a cluster.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) revision: u64,
    /// What the cluster's clock showed at its last write.
    pub(crate) time: Timestamp,
    pub(crate) objects: Vec<Stored>,
    pub(crate) facts: BTreeMap<String, Vec<u8>>,
}

/// A directory for one cluster, held by this process.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Locked as long as it is open.
    lock: File,
    kept: Option<(Database, Contents)>,
}

impl DataDir {
    /// Takes a directory, which is made if there is none, and reads the cluster in it, if there is one.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let mut builder = fs::DirBuilder::new();
        // It holds the keys of the cluster.
        let made = builder.recursive(true).mode(0o700).create(path);
        made.map_err(|source| failed(path, source))?;
        let lock = lock(path)?;
        let file = path.join(DATABASE);
        let kept = match file.try_exists().map_err(|source| failed(&file, source))? {
            true => Some(format::read(&file)?),
            false => None,
        };
        let path = path.to_owned();
        Ok(Self { path, lock, kept })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether no cluster has been here before.
    pub fn is_new(&self) -> bool {
        self.kept.is_none()
    }

    /// The place, and what was kept there.
    pub(crate) fn into_parts(self) -> (Place, Option<(Database, Contents)>) {
        let place = Place {
            path: self.path,
            _lock: self.lock,
        };
        (place, self.kept)
    }
}

/// A directory that is held, without what was in it.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    _lock: File,
}

impl Place {
    /// Writes a new cluster's first state, whole or not at all.
    pub(crate) fn begin(&self, contents: &Contents) -> Result<Database, DataError> {
        let (unfinished, file) = (self.path.join(UNFINISHED), self.path.join(DATABASE));
        match fs::remove_file(&unfinished) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed(&unfinished, source)),
            _ => {}
        }
        let database = format::create(&unfinished, contents)?;
        fs::rename(&unfinished, &file).map_err(|source| failed(&file, source))?;
        // The new name lasts only once the directory does.
        let synced = File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.map_err(|source| failed(&self.path, source))?;
        Ok(database)
    }
}

fn failed(path: &Path, source: io::Error) -> DataError {
    let path = path.to_owned();
    DataError::Io { path, source }
}

/// A file that only this user can read.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}

fn lock(dir: &Path) -> Result<File, DataError> {
    let path = dir.join(LOCK);
    let io = |source| failed(&path, source);
    let mut file = private(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut process = String::new();
            let _ = file.read_to_string(&mut process);
            let process = match process.trim() {
                "" => "of unknown id".to_owned(),
                id => id.to_owned(),
            };
            let dir = dir.to_owned();
            return Err(DataError::InUse { dir, process });
        }
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    // For the message above only; the lock itself goes with the process.
    file.set_len(0).map_err(io)?;
    file.rewind().map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}
