//! Ctrl-C: the first press asks the running answer to stop, a second before that has happened ends the program.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit code of a program ended by Ctrl-C: 128 plus the number of the signal.
pub(crate) const EXIT_CODE: u8 = 130;

/// Begins to listen: a press sets `flag`, which whoever heeds it clears.
pub(crate) fn listen(flag: Arc<AtomicBool>) {
    let handler = move || {
        if flag.swap(true, Ordering::Relaxed) {
            process::exit(EXIT_CODE.into());
        }
    };
    // Fails only where a handler is installed already, and then that one serves.
    ctrlc::set_handler(handler).ok();
}
