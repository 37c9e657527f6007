//! `lockctl top`: the busiest locks, refreshed.

mod json;
mod keys;
mod one;
mod order;
mod peaks;
mod screen;
mod view;

use std::io::{self, IsTerminal as _};
use std::mem::ManuallyDrop;
use std::time::Duration;

use lockcore::Locks;
use ratatui::DefaultTerminal;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::arguments::{Server, Top};
use crate::busy::Look;
use crate::connect;
use crate::exit::{self, Failure};
use crate::signals::Signals;
pub(crate) use order::Order;
use view::View;

/// The minimum pause between two surveys or inspections, and the interval at which ages on the
/// screen are updated.
const PERIOD: Duration = Duration::from_secs(1);

/// The pause after a survey, as a multiple of the survey's duration, so that surveys run for at
/// most a fifth of the time.
const PAUSE: u32 = 4;

/// The maximum number of waiters and of holders in an inspection of a lock.
const WAITERS: u32 = 500;

pub(crate) async fn run(server: &Server, top: Top) -> Result<u8, Failure> {
    let has_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !top.json && !has_terminal {
        let reason = "top: stdin and stdout must be a terminal, except with --json";
        return Err(Failure::new(exit::USAGE, reason));
    }
    let locks = connect::once(server).await?;
    if top.json {
        // A signal has its default action: a caught signal could not end a write that nobody reads.
        return json::run(&locks, top.order).await;
    }
    let signals = Signals::listen().map_err(|error| failed(&error))?;
    let mut screen = Screen::open().map_err(|error| failed(&error))?;
    let ended = on_screen(&mut screen.0, &locks, View::new(top.order, top.key), signals).await;
    drop(screen); // before anything is printed
    ended.map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(exit::FAILED, format!("top: {error}"))
}

/// Returns the pause between this survey and the next.
fn pause(look: &Look) -> Duration {
    match look.trouble {
        // After an error, the survey's duration was a timeout.
        Some(_) => PERIOD,
        None => PERIOD.max(PAUSE * look.took),
    }
}

/// The terminal while `top` runs. Dropping it restores the terminal, but does not drop the inner
/// value, which would print an error, or panic if the terminal is closed.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    fn open() -> io::Result<Self> {
        ratatui::try_init().map(|terminal| Self(ManuallyDrop::new(terminal)))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// New content for the screen, sent by the task [`look`]: a survey of all locks, or an inspection
/// of one lock.
enum Sight {
    All(Look),
    One(one::Look),
}

async fn on_screen(
    terminal: &mut DefaultTerminal,
    locks: &Locks,
    mut view: View,
    mut signals: Signals,
) -> io::Result<u8> {
    let (wanted, wants) = watch::channel(view.wanted());
    let (sender, mut sights) = mpsc::channel(1);
    tokio::spawn(look(locks.clone(), wants, sender));
    let mut keys = keys::listen();
    // Redraw between surveys, because ages increase.
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if let Err(error) = terminal.draw(|frame| screen::draw(frame, &view, Instant::now())) {
            // The terminal is closed.
            let is_gone = error.kind() == io::ErrorKind::BrokenPipe || error.raw_os_error() == EIO;
            return if is_gone { Ok(exit::OK) } else { Err(error) };
        }
        tokio::select! {
            number = signals.next() => return Ok(exit::by_signal(number)),
            key = keys.recv() => match key {
                Some(key) if view.press(key) => {}
                _ => return Ok(exit::OK),
            },
            sight = sights.recv() => match sight {
                Some(Sight::All(look)) => view.take(look),
                Some(Sight::One(look)) => view.take_one(look),
                None => return Ok(exit::OK),
            },
            _ = ticks.tick() => {}
        }
        wanted.send_if_modified(|now| {
            let then = std::mem::replace(now, view.wanted());
            then != *now
        });
    }
}

/// The error code that reads and writes on a closed terminal return.
const EIO: Option<i32> = Some(rustix::io::Errno::IO.raw_os_error());

/// Surveys all locks, or inspects the lock in `wants` if the user has selected one, and sends the
/// results to `sights`. Runs in a separate task until the receiver is dropped.
async fn look(
    locks: Locks,
    mut wants: watch::Receiver<Option<String>>,
    sights: mpsc::Sender<Sight>,
) {
    loop {
        let wanted = wants.borrow_and_update().clone();
        let look = async {
            match &wanted {
                None => {
                    let look = Look::at(&locks).await;
                    (pause(&look), Sight::All(look))
                }
                Some(name) => (PERIOD, Sight::One(one::Look::at(&locks, name).await)),
            }
        };
        tokio::select! {
            (pause, sight) = look => {
                if sights.send(sight).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = sleep(pause) => {}
                    changed = wants.changed() => if changed.is_err() { return },
                }
            }
            changed = wants.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(took: Duration) -> Look {
        Look {
            locks: Vec::new(),
            is_cut: false,
            unreadable: 0,
            trouble: None,
            ping: None,
            took,
            at: Instant::now(),
        }
    }

    #[test]
    fn the_servers_are_asked_for_a_fifth_of_the_time_at_most_and_once_a_second() {
        assert_eq!(pause(&look(Duration::from_secs(2))), Duration::from_secs(8));
        assert_eq!(pause(&look(Duration::from_millis(3))), PERIOD);
    }
}
