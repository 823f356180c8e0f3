//! The file: which tables it has, how it is made, read and checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition, WriteTransaction};

use super::{Contents, DataError, failed, private};
use crate::store::{Entry, Key, Note, ResourceName, Stored};

pub(crate) use redb::Database;

/// The format of the file. A change that older programs would misread makes it the next number.
const FORMAT: u64 = 1;

/// Group, plural, namespace and name of an object.
type At = (&'static str, &'static str, &'static str, &'static str);
/// Its revision and its bytes.
type Is = (u64, &'static [u8]);

const OBJECTS: TableDefinition<'_, At, Is> = TableDefinition::new("objects");
/// What identifies the cluster: named, each in its own form.
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");
/// What every commit moves on.
const COUNTERS: TableDefinition<'_, &str, i64> = TableDefinition::new("counters");

const FORMAT_COUNTER: &str = "format";
const REVISION: &str = "revision";
const TIME: &str = "time";

/// How much of the file is kept in memory: nothing is read from it after the start.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Makes a file with a cluster's first state in it.
pub(super) fn create(path: &Path, contents: &Contents) -> Result<Database, DataError> {
    let file = private(path).map_err(|source| failed(path, source))?;
    let made = Database::builder().set_cache_size(CACHE_BYTES).create_file(file);
    let database = made.map_err(|error| told(path, error.into()))?;
    let filled = fill(&database, contents);
    filled.map_err(|error| told(path, error))?;
    Ok(database)
}

fn fill(database: &Database, contents: &Contents) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        for (resource, key, entry) in &contents.objects {
            let place = (&*resource.group, &*resource.plural, &*key.namespace, &*key.name);
            objects.insert(place, (entry.revision, &*entry.bytes))?;
        }
        let mut facts = transaction.open_table(FACTS)?;
        for (name, value) in &contents.facts {
            facts.insert(name.as_str(), value.as_slice())?;
        }
        transaction
            .open_table(COUNTERS)?
            .insert(FORMAT_COUNTER, FORMAT as i64)?;
    }
    move_on(&transaction, contents.revision, contents.time)?;
    Ok(transaction.commit()?)
}

fn move_on(transaction: &WriteTransaction, revision: u64, time: Timestamp) -> Result<(), redb::Error> {
    let mut counters = transaction.open_table(COUNTERS)?;
    counters.insert(REVISION, revision as i64)?;
    counters.insert(TIME, time.as_millisecond())?;
    Ok(())
}

/// Writes what was noted in one commit; when this returns, it outlives the machine's power.
pub(super) fn commit(database: &Database, notes: &[Note]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    let mut newest = None;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut facts = transaction.open_table(FACTS)?;
        for note in notes {
            match note {
                Note::Write {
                    resource,
                    key,
                    revision,
                    object,
                    at,
                } => {
                    let place = (&*resource.group, &*resource.plural, &*key.namespace, &*key.name);
                    match object {
                        Some(bytes) => drop(objects.insert(place, (*revision, &**bytes))?),
                        None => drop(objects.remove(place)?),
                    }
                    newest = Some((*revision, *at));
                }
                Note::Fact { name, value, .. } => drop(facts.insert(name.as_str(), value.as_slice())?),
                Note::End => {}
            }
        }
    }
    if let Some((revision, at)) = newest {
        move_on(&transaction, revision, at)?;
    }
    Ok(transaction.commit()?)
}

/// Opens a file, checks all of it, and reads it.
pub(super) fn read(path: &Path) -> Result<(Database, Contents), DataError> {
    let opened = Database::builder().set_cache_size(CACHE_BYTES).open(path);
    let mut database = opened.map_err(|error| told(path, error.into()))?;
    // Every page has a checksum. A file that was not closed has been checked and repaired by now; one that was, not.
    let checked = database.check_integrity();
    checked.map_err(|error| told(path, error.into()))?;
    let contents = contents(&database).map_err(|problem| match problem {
        Problem::Database(error) => told(path, error),
        Problem::Newer(found) => DataError::Newer {
            file: path.to_owned(),
            found,
            known: FORMAT,
        },
        Problem::Odd(why) => damaged(path, why),
    })?;
    Ok((database, contents))
}

/// What can be wrong with the content of a file.
enum Problem {
    Database(redb::Error),
    Newer(u64),
    Odd(String),
}

impl<E: Into<redb::Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

fn contents(database: &Database) -> Result<Contents, Problem> {
    let transaction = database.begin_read()?;
    let counters = transaction.open_table(COUNTERS)?;
    let counter = |name: &str| -> Result<i64, Problem> {
        let found = counters.get(name)?.map(|value| value.value());
        found.ok_or_else(|| Problem::Odd(format!("it has no {name}")))
    };
    match u64::try_from(counter(FORMAT_COUNTER)?) {
        Ok(FORMAT) => {}
        Ok(newer) if newer > FORMAT => return Err(Problem::Newer(newer)),
        other => return Err(Problem::Odd(format!("its format is {other:?}"))),
    }
    let revision =
        u64::try_from(counter(REVISION)?).map_err(|_| Problem::Odd("its revision is negative".to_owned()))?;
    let time = Timestamp::from_millisecond(counter(TIME)?).map_err(|error| Problem::Odd(error.to_string()))?;
    let mut facts = BTreeMap::new();
    for fact in transaction.open_table(FACTS)?.iter()? {
        let (name, value) = fact?;
        facts.insert(name.value().to_owned(), value.value().to_owned());
    }
    let mut objects = Vec::new();
    for object in transaction.open_table(OBJECTS)?.iter()? {
        let (place, value) = object?;
        objects.push(stored(place.value(), value.value(), revision)?);
    }
    Ok(Contents {
        revision,
        time,
        objects,
        facts,
    })
}

fn stored(
    (group, plural, namespace, name): (&str, &str, &str, &str),
    (revision, bytes): (u64, &[u8]),
    newest: u64,
) -> Result<Stored, Problem> {
    let odd = |why: &str| Problem::Odd(format!("{plural} {namespace}/{name} {why}"));
    if revision > newest {
        return Err(odd("is newer than the file"));
    }
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map_err(|_| odd("is no JSON"))?;
    let entry = Entry {
        revision,
        bytes: Bytes::copy_from_slice(bytes),
    };
    let key = Arc::new(Key::new(namespace, name));
    Ok((ResourceName::new(group, plural), key, entry))
}

fn damaged(path: &Path, why: String) -> DataError {
    let file = path.to_owned();
    DataError::Damaged { file, why }
}

/// An error of the database in our words.
fn told(path: &Path, error: redb::Error) -> DataError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error {
        redb::Error::Io(source) if ![InvalidData, InvalidInput, UnexpectedEof].contains(&source.kind()) => {
            failed(path, source)
        }
        other => damaged(path, other.to_string()),
    }
}
