//! `lockctl` on a pseudoterminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_tests::eventually;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::common::{SOON, wait};

/// Returns both ends of a new terminal: the user's, and the program's.
pub(crate) fn pair() -> (File, File) {
    let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .expect("there are some");
    grantpt(&user).expect("it is ours");
    unlockpt(&user).expect("it is ours");
    let name = ptsname(&user, Vec::new()).expect("it has a name");
    let program = File::options()
        .read(true)
        .write(true)
        .custom_flags(OpenptFlags::NOCTTY.bits().cast_signed())
        .open(name.to_str().expect("its name is ASCII"))
        .expect("it can be opened");
    (File::from(user), program)
}

const ROWS: NonZeroU16 = NonZeroU16::new(24).expect("not zero");
const COLUMNS: NonZeroU16 = NonZeroU16::new(120).expect("not zero");

/// Starts `lockctl` on this end of a terminal, in a new session: otherwise it would use the
/// terminal in which the tests run.
pub(crate) fn spawn(url: &str, arguments: &[&str], program: &File) -> Child {
    spawn_by(&["setsid"], url, arguments, program)
}

fn spawn_by(setsid: &[&str], url: &str, arguments: &[&str], program: &File) -> Child {
    let size = Winsize { ws_row: ROWS.get(), ws_col: COLUMNS.get(), ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(program, size).expect("it is a terminal");
    let end = || Stdio::from(program.try_clone().expect("it can be cloned"));
    Command::new(setsid[0])
        .args(&setsid[1..])
        .args(["env", "--default-signal", env!("CARGO_BIN_EXE_lockctl")])
        .args(arguments)
        .env("REDIS_URL", url)
        .env("TERM", "xterm-256color")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts")
}

/// A terminal with a full-screen program.
pub(crate) struct Terminal {
    user: File,
    program: File,
    process: Child,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    pub(crate) fn start(url: &str, arguments: &[&str]) -> Self {
        Self::start_by(&["setsid"], url, arguments)
    }

    /// Starts `lockctl` in the foreground of the terminal, whose Ctrl-C and Ctrl-Z then are
    /// signals.
    pub(crate) fn controlling(url: &str, arguments: &[&str]) -> Self {
        Self::start_by(&["setsid", "--ctty"], url, arguments)
    }

    fn start_by(setsid: &[&str], url: &str, arguments: &[&str]) -> Self {
        let (user, program) = pair();
        let process = spawn_by(setsid, url, arguments, &program);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let shown = Arc::clone(&screen);
        let mut output = user.try_clone().expect("it can be cloned");
        // The thread ends with the terminal.
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut chunk) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&chunk[..length]);
            }
        });
        Self { user, program, process, screen }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("it still runs")
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).expect("it can be written");
    }

    /// Returns the lines of the screen.
    pub(crate) fn lines(&self) -> Vec<String> {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        screen.screen().rows(0, COLUMNS.get()).collect()
    }

    /// Waits until all these texts are on the screen.
    pub(crate) async fn until(&self, texts: &[&str]) {
        let shown = || self.lines().join("\n");
        let deadline = Instant::now() + SOON;
        while !texts.iter().all(|text| shown().contains(text)) {
            assert!(Instant::now() < deadline, "no {texts:?} on the screen:\n{}", shown());
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the program has exited, and checks that the earlier screen is restored.
    pub(crate) async fn end(mut self) -> ExitStatus {
        let ended = wait(&mut self.process).await;
        eventually("the screen of before is back", SOON, async || {
            let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
            !screen.screen().alternate_screen() && !screen.screen().hide_cursor()
        })
        .await;
        let modes = tcgetattr(&self.program).expect("it is a terminal").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
        ended
    }
}
