//! Panics that nobody would hear of: a task that panics ends alone, and whoever spawned it goes on.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    static HEARD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs something on this thread, and returns where and why anything panicked on it meanwhile, tasks of a runtime that
/// lives on this thread included.
pub fn heard<T>(run: impl FnOnce() -> T) -> (T, Vec<String>) {
    listen();
    HEARD.with_borrow_mut(Vec::clear);
    let result = run();
    (result, HEARD.take())
}

/// From now on every panic is noted by the thread that it happens on. Whoever was told of it before still is.
fn listen() {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            HEARD.with_borrow_mut(|heard| heard.push(info.to_string()));
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_breaks_off_is_heard() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (joined, heard) = heard(|| runtime.block_on(async { tokio::spawn(async { panic!("alone") }).await }));
        assert!(joined.is_err());
        assert_eq!(heard.len(), 1);
        assert!(heard[0].contains("alone"), "{heard:?}");
        assert!(super::heard(|| {}).1.is_empty(), "what was heard is told once");
    }
}
