//! `--watch`: an answer that is printed again whenever it changes.
//!
//! Objects come from watches and are kept, so that nothing is asked for twice. On a terminal the screen is drawn anew;
//! elsewhere answers follow each other: tables with the time above, JSON on a line each, YAML documents. It ends when its
//! reader goes away, or by Ctrl-C, and decides nothing about what is shown.

use std::fmt::Debug;
use std::hash::Hash;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{StreamExt as _, future};
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, reflector, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::exit::{Failure, one_line};
use crate::look::Look;
use crate::output::{Answer, Format, text};

/// What changes in a burst is shown at once.
const SHOW_EVERY: Duration = Duration::from_millis(250);
/// On a terminal ages go on.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

/// The cursor to the top; what is behind a line's end, and below the last line, is erased.
const TOP: &str = "\x1b[H";
const LINE_END: &str = "\x1b[K\n";
const REST: &str = "\x1b[J";

/// What a watch tells of the objects that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// All of them are known now.
    All,
    /// One changed.
    One,
}

pub(crate) type Changes = BoxStream<'static, Result<Told, watcher::Error>>;

/// Objects as they are now, as long as somebody listens to the changes.
pub(crate) fn kept<K>(api: Api<K>, config: watcher::Config) -> (Store<K>, Changes)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone + Send + Sync,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, config).default_backoff().reflect(writer);
    let changes = events.filter_map(|event| {
        let told = match event {
            Ok(Event::InitDone) => Some(Ok(Told::All)),
            Ok(Event::Apply(_) | Event::Delete(_)) => Some(Ok(Told::One)),
            Ok(Event::Init | Event::InitApply(_)) => None,
            Err(error) => Some(Err(error)),
        };
        future::ready(told)
    });
    (store, changes.boxed())
}

/// What is kept, by namespace and name as a list has it.
pub(crate) fn objects<K>(store: &Store<K>) -> Vec<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    let mut objects: Vec<K> = store.state().iter().map(|object| (**object).clone()).collect();
    objects.sort_by_key(|object| (object.namespace(), object.name_any()));
    objects
}

/// Where answers are shown.
#[derive(Debug)]
pub(crate) struct Screen<W> {
    out: W,
    format: Format,
    look: Look,
    redraws: bool,
    shown: Option<Value>,
}

impl Screen<io::Stdout> {
    pub(crate) fn new(format: Format) -> Self {
        let out = io::stdout();
        Self {
            redraws: format == Format::Table && out.is_terminal(),
            look: Look::of_stdout(),
            out,
            format,
            shown: None,
        }
    }
}

impl<W: Write> Screen<W> {
    /// Shows an answer, if it differs from the last in more than its time. Whether there is still somebody to read it.
    pub(crate) fn show<T: Serialize>(
        &mut self,
        answer: &Answer<T>,
        table: impl FnOnce(&Answer<T>, Look) -> String,
    ) -> Result<bool, Failure> {
        let failed = |error: anyhow::Error| Failure::NoAnswer(format!("cannot print the answer: {}", one_line(error)));
        let table = |answer: &Answer<T>| table(answer, self.look);
        let items = serde_json::to_value(&answer.items).map_err(|error| failed(error.into()))?;
        let is_new = self.shown.as_ref() != Some(&items);
        if !is_new && !self.redraws {
            return Ok(true);
        }
        let printed = match self.format {
            Format::Table if self.redraws => {
                let table = table(answer).replace('\n', LINE_END);
                format!("{TOP}{table}{LINE_END}{REST}")
            }
            Format::Table => format!("{:.0}\n{}\n\n", answer.generated_at, table(answer)),
            // A line each: what reads them knows where one ends.
            Format::Json => serde_json::to_string(answer).map_err(|error| failed(error.into()))? + "\n",
            Format::Yaml => format!("---\n{}", text(Format::Yaml, answer, table).map_err(failed)?),
        };
        self.shown = Some(items);
        match self.out.write_all(printed.as_bytes()).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(failed(error.into())),
            Ok(()) => Ok(true),
        }
    }
}

/// Shows what there is whenever one of the watches tells of a change, from the moment that all objects are known, until
/// `show` says that nobody reads any more. A watch that breaks is opened again, and that is said once.
pub(crate) async fn follow<W>(
    changes: Vec<Changes>,
    mut screen: Screen<W>,
    mut show: impl AsyncFnMut(&mut Screen<W>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let mut unknown: Vec<bool> = vec![true; changes.len()];
    let numbered = changes.into_iter().enumerate();
    let mut changes = select_all(numbered.map(|(watch, told)| told.map(move |told| (watch, told)).boxed()));
    let mut complained = String::new();
    let mut due: Option<Instant> = None;
    let mut earliest = Instant::now();
    loop {
        let is_known = !unknown.contains(&true);
        tokio::select! {
            Some((watch, told)) = changes.next() => match told {
                Ok(told) => {
                    unknown[watch] &= told != Told::All;
                    complained.clear();
                    due = Some(earliest);
                }
                Err(error) => {
                    let complaint = one_line(error);
                    if complained != complaint {
                        eprintln!("cannot watch, trying again: {complaint}");
                        complained = complaint;
                    }
                }
            },
            () = sleep_until(due.unwrap_or(earliest)), if is_known && due.is_some() => {
                if !show(&mut screen).await? {
                    return Ok(());
                }
                earliest = Instant::now() + SHOW_EVERY;
                due = screen.redraws.then(|| Instant::now() + REDRAW_EVERY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(format: Format, redraws: bool) -> Screen<Vec<u8>> {
        Screen {
            out: Vec::new(),
            format,
            look: Look::PLAIN,
            redraws,
            shown: None,
        }
    }

    /// What is printed for these answers, a second after each other.
    fn printed(mut screen: Screen<Vec<u8>>, answers: &[&[&str]]) -> String {
        for (second, items) in answers.iter().enumerate() {
            let now = format!("2026-01-01T00:00:0{second}Z").parse().unwrap();
            let answer = Answer::new("Test", now, items.to_vec());
            let table = |answer: &Answer<&str>, _: Look| answer.items.join("\n");
            assert!(screen.show(&answer, table).unwrap());
        }
        String::from_utf8(screen.out).unwrap()
    }

    const ANSWERS: [&[&str]; 3] = [&["a", "b"], &["a", "b"], &["a"]];

    #[test]
    fn answers_follow_each_other_where_nothing_can_be_redrawn() {
        let table = printed(screen(Format::Table, false), &ANSWERS);
        assert_eq!(table, "2026-01-01T00:00:00Z\na\nb\n\n2026-01-01T00:00:02Z\na\n\n");
        let json = printed(screen(Format::Json, false), &ANSWERS);
        assert_eq!(json.lines().count(), 2, "{json}");
        for line in json.lines() {
            let answer: Value = serde_json::from_str(line).unwrap();
            assert_eq!(answer["kind"], "Test");
        }
        let yaml = printed(screen(Format::Yaml, false), &ANSWERS);
        assert_eq!(serde_saphyr::from_multiple::<Value>(&yaml).unwrap().len(), 2, "{yaml}");
    }

    #[test]
    fn a_terminal_is_drawn_anew_and_keeps_nothing_of_the_last_answer() {
        let drawn = printed(screen(Format::Table, true), &ANSWERS);
        assert_eq!(drawn.matches(TOP).count(), 3, "ages go on");
        assert!(drawn.ends_with("\x1b[Ha\x1b[K\n\x1b[J"), "{drawn:?}");
    }

    #[test]
    fn a_reader_that_goes_away_ends_it() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut screen = Screen {
            out: Closed,
            format: Format::Json,
            look: Look::PLAIN,
            redraws: false,
            shown: None,
        };
        let answer = Answer::new("Test", "2026-01-01T00:00:00Z".parse().unwrap(), vec!["a"]);
        assert!(!screen.show(&answer, |_, _| String::new()).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_shown_before_everything_is_known_and_bursts_are_shown_once() {
        let told = |told: Vec<Told>| futures::stream::iter(told.into_iter().map(Ok)).chain(futures::stream::pending());
        let first = told(vec![Told::All, Told::One, Told::One]).boxed();
        let late = futures::stream::once(async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(Told::All)
        });
        let begun = Instant::now();
        let mut shown = Vec::new();
        let changes = vec![first, late.chain(futures::stream::pending()).boxed()];
        let all = follow(changes, screen(Format::Json, false), async |_| {
            shown.push(begun.elapsed().as_secs());
            Ok(true)
        });
        let _ = tokio::time::timeout(Duration::from_secs(60), all).await;
        assert_eq!(shown, [5]);
    }
}
