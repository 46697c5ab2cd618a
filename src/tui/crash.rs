//! A panic of the interface: the terminal first, then a report in a file, then one short message.

use std::backtrace::Backtrace;
use std::fs;
use std::panic::{self, PanicHookInfo};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::capability::process_environment;
use super::terminal;

/// What is said about a panic.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Where: `src/tui/view/mod.rs:12`.
    pub place: String,
    pub text: String,
    /// Where the whole story is; none when no file could be written.
    pub path: Option<PathBuf>,
}

static REPORT: Mutex<Option<Report>> = Mutex::new(None);

/// The panic that happened since the hook was installed, if any.
pub fn taken() -> Option<Report> {
    REPORT.lock().unwrap_or_else(PoisonError::into_inner).take()
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync + 'static>;

/// Reinstates the former hook when it is dropped.
pub struct Guard(Option<Hook>);

impl Drop for Guard {
    fn drop(&mut self) {
        // The hook cannot be changed while this thread unwinds; the process ends anyway then.
        if let (Some(former), false) = (self.0.take(), std::thread::panicking()) {
            panic::set_hook(former);
        }
    }
}

/// From now on a panic in any thread restores the terminal, writes a report, and calls `notify`.
pub fn install(notify: impl Fn() + Send + Sync + 'static) -> Guard {
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        terminal::restore();
        let report = report(info);
        // The first panic is the cause; what falls over after it is not.
        REPORT.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(report);
        notify();
    }));
    Guard(Some(former))
}

fn report(info: &PanicHookInfo<'_>) -> Report {
    let payload = info.payload();
    let text =
        payload.downcast_ref::<&str>().map(|s| (*s).to_owned()).or_else(|| payload.downcast_ref::<String>().cloned());
    let text = super::format::clean(&text.unwrap_or_else(|| "no message".into()));
    let place = info.location().map_or_else(|| "unknown place".into(), |l| format!("{}:{}", l.file(), l.line()));
    let path = write(&place, &text);
    Report { place, text, path }
}

fn write(place: &str, text: &str) -> Option<PathBuf> {
    let now = jiff::Timestamp::now();
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let terminal = process_environment("TERM").unwrap_or_default();
    let size = crossterm::terminal::size().map_or_else(|_| "unknown".into(), |(w, h)| format!("{w}x{h}"));
    let content = format!(
        "vlash {}\ntime      {now}\nplace     {place}\nmessage   {text}\nthread    {thread}\nterminal  {terminal} {size}\n\
         system    {} {}\n\n{}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        Backtrace::force_capture()
    );
    let name = format!("crash-{}-{}.txt", now.strftime("%Y%m%dT%H%M%S"), std::process::id());
    [state_dir(), Some(std::env::temp_dir())].into_iter().flatten().find_map(|directory| {
        fs::create_dir_all(&directory).ok()?;
        let path = directory.join(&name);
        fs::write(&path, &content).ok()?;
        Some(path)
    })
}

/// Where this program keeps what is neither configuration nor cache: `$XDG_STATE_HOME/vlash` or `~/.local/state/vlash`.
pub fn state_dir() -> Option<PathBuf> {
    let base = process_environment("XDG_STATE_HOME").map(PathBuf::from);
    let home = || process_environment("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    base.or_else(home).map(|base| base.join("vlash"))
}

/// Panics when a test asked for it at this place. Only in builds with debug assertions.
pub fn rehearse(place: &str) {
    if cfg!(debug_assertions) && process_environment("VLASH_TEST_PANIC").as_deref() == Some(place) {
        panic!("rehearsed at {place}");
    }
}
