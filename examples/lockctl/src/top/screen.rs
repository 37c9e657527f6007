//! The screen.

use std::time::Duration;

use lockcore::operate::{BusyLock, Participant};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};
use tokio::time::Instant;

use super::one::One;
use super::view::View;
use crate::busy;
use crate::participant::{demand, described};
use crate::text::{fitting, one_line, without_passwords};

const LIST_KEYS: &str = "↑↓ select  Enter open  / name  s sort  h hottest so far  q quit";
const PEAK_KEYS: &str = "↑↓ select  Enter open  h now  q quit";
const ONE_KEYS: &str = "↑↓ scroll  Esc back  q quit";

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, now: Instant) {
    let [title, state, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    match &view.one {
        Some(one) => draw_one(frame, one, now, [title, state, body]),
        None if view.shows_peaks => draw_peaks(frame, view, now, [title, state, body]),
        None => draw_list(frame, view, now, [title, state, body]),
    }
    let line = match (&view.typed, &view.one) {
        (Some(typed), _) => Line::from(format!("name: {}▏", one_line(typed))),
        (_, Some(_)) => Line::from(ONE_KEYS).dim(),
        _ if view.shows_peaks => Line::from(PEAK_KEYS).dim(),
        _ => Line::from(LIST_KEYS).dim(),
    };
    frame.render_widget(line, keys);
}

fn draw_list(frame: &mut Frame<'_>, view: &View, now: Instant, [title, state, body]: [Rect; 3]) {
    let Some(look) = &view.look else {
        frame.render_widget(Line::from("lockctl top").bold(), title);
        frame.render_widget(state_line(view.trouble.as_deref(), None, now), state);
        return;
    };
    let (busy, waiting, order) = (look.locks.len(), look.waiting(), view.order.title());
    let more = if look.is_cut { ", and there are more" } else { "" };
    let locks = if busy == 1 { "lock" } else { "locks" };
    let unreadable = match look.unreadable {
        0 => String::new(),
        number => format!("; {number} unreadable"),
    };
    let line = format!("{busy} busy {locks}{more}, {waiting} waiting{unreadable}; {order} first");
    frame.render_widget(Line::from(line).bold(), title);
    let last = Some((look.at, look.ping));
    frame.render_widget(state_line(view.trouble.as_deref(), last, now), state);

    let rows = usize::from(body.height.saturating_sub(1));
    let first = (view.selected + 1).saturating_sub(rows);
    let shown = look.locks.iter().enumerate().skip(first).take(rows);
    let columns = Column::that_fit(body.width);
    let widths: Vec<_> = columns.iter().map(|column| column.width()).collect();
    let places = Layout::horizontal(&widths).spacing(1).split(body);
    let rows = shown.map(|(number, lock)| {
        let style = match number == view.selected {
            true => Style::new().reversed(),
            false => Style::new(),
        };
        let places = columns.iter().zip(&*places);
        Row::new(places.map(|(column, place)| cut(&column.of(lock), place.width))).style(style)
    });
    let names = columns.iter().map(|column| column.name());
    let table = Table::new(rows, &widths).header(Row::new(names).bold());
    frame.render_widget(table, body);
}

/// Draws the list of the longest queues since `top` started.
fn draw_peaks(frame: &mut Frame<'_>, view: &View, now: Instant, [title, state, body]: [Rect; 3]) {
    let line = "the longest queues since top started";
    frame.render_widget(Line::from(line).bold(), title);
    let last = view.look.as_ref().map(|look| (look.at, look.ping));
    frame.render_widget(state_line(view.trouble.as_deref(), last, now), state);
    let rows = usize::from(body.height.saturating_sub(1));
    let first = (view.selected + 1).saturating_sub(rows);
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(5),
        Constraint::Length(10),
        Constraint::Length(11),
    ];
    let places = Layout::horizontal(widths).spacing(1).split(body);
    let width = places.first().map_or(0, |place| place.width);
    let peaks = view.peaks.sorted();
    let shown = peaks.iter().enumerate().skip(first).take(rows);
    let rows = shown.map(|(number, (name, peak))| {
        let style = match number == view.selected {
            true => Style::new().reversed(),
            false => Style::new(),
        };
        let ago = format!("{} ago", short(now.saturating_duration_since(peak.at)));
        let texts = [cut(&one_line(name), width), peak.waiting.to_string(), short(peak.wait), ago];
        Row::new(texts).style(style)
    });
    let names = ["LOCK", "WAIT", "NEXT WAITS", "LAST"];
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), body);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Lock,
    Waiting,
    NextWaits,
    Holders,
    Asked,
    Lease,
    Holder,
}

impl Column {
    /// All columns in order, each with the minimum terminal width at which it is shown: the lock
    /// name is the last to be hidden.
    const ALL: [(Self, u16); 7] = [
        (Self::Lock, 0),
        (Self::Waiting, 24),
        (Self::NextWaits, 64),
        (Self::Holders, 90),
        (Self::Asked, 36),
        (Self::Lease, 76),
        (Self::Holder, 48),
    ];

    fn that_fit(width: u16) -> Vec<Self> {
        let fit = Self::ALL.into_iter().filter(|(_, from)| width >= *from);
        fit.map(|(column, _)| column).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lock => "LOCK",
            Self::Waiting => "WAIT",
            Self::NextWaits => "NEXT WAITS",
            Self::Holders => "HOLD",
            Self::Asked => "REQUESTED",
            Self::Lease => "LEASE",
            Self::Holder => "HOLDER",
        }
    }

    fn width(self) -> Constraint {
        match self {
            Self::Lock => Constraint::Fill(3),
            Self::Holder => Constraint::Fill(2),
            Self::Waiting | Self::Holders => Constraint::Length(5),
            Self::NextWaits | Self::Asked | Self::Lease => Constraint::Length(10),
        }
    }

    fn of(self, lock: &BusyLock) -> String {
        let found = &lock.inspection;
        let holder = found.holders.first();
        match self {
            Self::Lock => one_line(busy::name(lock)),
            Self::Waiting => found.waiting.to_string(),
            Self::NextWaits => found.waiters.first().map(age).unwrap_or_default(),
            Self::Holders => found.holding.to_string(),
            Self::Asked => holder.map(asked).unwrap_or_default(),
            Self::Lease => holder.map(lease).unwrap_or_default(),
            Self::Holder => holder.map(described).unwrap_or_default(),
        }
    }
}

/// Cuts the middle out of a text that is wider than `width` columns, and puts an ellipsis there.
/// The end stays visible, because the lock names of a service often start alike.
fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if Line::from(text).width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let beginning = fitting(text.chars(), room / 2);
    let end = fitting(text.chars().rev(), room.div_ceil(2));
    format!("{beginning}…{}", end.chars().rev().collect::<String>())
}

fn draw_one(frame: &mut Frame<'_>, one: &One, now: Instant, [title, state, body]: [Rect; 3]) {
    let name = one_line(&one.name);
    let trouble = one.trouble.as_ref().map(ToString::to_string);
    let last = one.last.as_ref().map(|(_, at, took)| (*at, Some(*took)));
    frame.render_widget(state_line(trouble.as_deref(), last, now), state);
    let Some((found, ..)) = &one.last else {
        frame.render_widget(Line::from(name).bold(), title);
        return;
    };
    let line = match found.holding {
        0 => format!("{name}: free, {} waiting", found.waiting),
        1 => format!("{name}: 1 holder, {} waiting", found.waiting),
        holding => format!("{name}: {holding} holders, {} waiting", found.waiting),
    };
    frame.render_widget(Line::from(line).bold(), title);

    // With waiters present, holders take at most half of the screen.
    let holders = u16::try_from(found.holders.len()).unwrap_or(u16::MAX).saturating_add(1);
    let [above, below] = Layout::vertical([
        Constraint::Length(holders.min(body.height.div_ceil(2)).max(2)),
        Constraint::Fill(1),
    ])
    .areas(body);
    let rows = found.holders.iter().take(above.height.into()).map(|holder| {
        let described = one.processes.described(holder);
        Row::new([described, demand(holder.demand), asked(holder), lease(holder)])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Length(11),
    ];
    let names = ["HOLDER", "DEMAND", "REQUESTED", "LEASE"];
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), above);

    let waiters = found.waiters.iter().enumerate().skip(one.from).take(below.height.into());
    let rows = waiters.map(|(ahead, waiter)| {
        Row::new([
            (ahead + 1).to_string(),
            one.processes.described(waiter),
            demand(waiter.demand),
            age(waiter),
            one.turn_in(ahead).map(|time| format!("~ {}", short(time))).unwrap_or_default(),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(11),
    ];
    let names = ["POSITION", "WAITER", "DEMAND", "WAITS", "TURN IN"];
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), below);
}

/// Returns the line below the title: how long ago the screen was updated, and how long a server
/// took to reply. After a failed update, the error `trouble` is shown instead of the reply time.
fn state_line(
    trouble: Option<&str>,
    last: Option<(Instant, Option<Duration>)>,
    now: Instant,
) -> Line<'static> {
    let mut line = match last {
        Some((at, _)) => format!("updated {} ago", short(now.saturating_duration_since(at))),
        None => "not updated yet".to_owned(),
    };
    if let Some(trouble) = trouble {
        line.push_str(&format!(": {}", one_line(&without_passwords(trouble))));
        return Line::from(line).style(Style::new().fg(Color::Red).bold());
    }
    if let Some((_, Some(ping))) = last {
        line.push_str(&format!(", server replies in {:.1} ms", ping.as_secs_f64() * 1_000.0));
    }
    Line::from(line).dim()
}

fn age(participant: &Participant) -> String {
    participant.age.map(short).unwrap_or_default()
}

/// Formats the time since a holder's request, including the wait, such as `5.0 s ago`. Empty if the
/// time is unknown.
fn asked(holder: &Participant) -> String {
    holder.age.map(|age| format!("{} ago", short(age))).unwrap_or_default()
}

fn lease(holder: &Participant) -> String {
    format!("{}{}", short(holder.lease_left), if holder.is_claim { " claim" } else { "" })
}

/// Formats a duration with one or two units, such as `5.0 s` or `2 m 07 s`.
fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3_600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::busy::Look;
    use crate::top::order::Order;

    /// Renders the list of these locks for a terminal of this width.
    async fn lines(locks: &lockcore::Locks, width: u16) -> Vec<String> {
        let mut view = View::new(Order::Queue, None);
        view.take(Look::at(locks).await);
        drawn(&view, width)
    }

    fn drawn(view: &View, width: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, 8)).expect("it is in memory");
        terminal.draw(|frame| draw(frame, view, Instant::now())).expect("it is in memory");
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..8).map(row).collect()
    }

    // N5: long names were cut at the end without a sign, so that two locks looked alike.
    #[tokio::test]
    async fn names_that_differ_at_their_end_differ_on_each_width_and_what_is_cut_has_a_sign() {
        let locks = lockcore::Locks::in_memory();
        let names = ["payment:7:5f3c-0000-0000-00001", "payment:7:5f3c-0000-0000-00002"];
        let label = "checkout-service-7f9c-of-the-shop:4711";
        let one = locks.key(names[0]).label(label).lock().await.expect("free");
        let two = locks.key(names[1]).label(label).lock().await.expect("free");
        for width in [20, 24, 36, 48, 64, 80, 110, 140] {
            let lines = lines(&locks, width).await;
            assert!(lines[0].starts_with("2 busy locks"), "{width}: {lines:?}");
            assert!(lines[2].starts_with("LOCK"), "{width}: {lines:?}");
            assert_ne!(lines[3], lines[4], "{width}");
            let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
            for line in [&lines[3], &lines[4]] {
                let is_whole = names.contains(&&*name(line));
                let ends = line.contains("00001") || line.contains("00002");
                assert!(is_whole || name(line).contains('…') && ends, "{width}: {line}");
            }
        }
        drop(two);
        let whole = lines(&locks, 140).await;
        assert!(whole[0].starts_with("1 busy lock,"), "{whole:?}");
        drop(one);
    }

    // N9: the list shows only this second, and nothing after a storm.
    #[tokio::test]
    async fn what_was_hot_since_it_began_is_shown_when_it_is_over() {
        let locks = lockcore::Locks::in_memory();
        let guard = locks.lock("seat:14").await.expect("free");
        let waiting = tokio::spawn(locks.lock("seat:14"));
        while locks.inspect("seat:14").await.expect("an answer").waiting == 0 {
            tokio::task::yield_now().await;
        }
        let mut view = View::new(Order::Queue, None);
        view.take(Look::at(&locks).await);
        waiting.abort();
        drop(guard);
        let mut look = Look::at(&locks).await;
        look.locks.clear();
        view.take(look);
        let key = |code| Some(ratatui::crossterm::event::KeyEvent::from(code));
        let h = ratatui::crossterm::event::KeyCode::Char('h');
        assert!(view.press(key(h)));
        let lines = drawn(&view, 60);
        assert!(lines[0].starts_with("the longest queues"), "{lines:?}");
        assert!(lines[3].starts_with("seat:14") && lines[3].contains(" 1 "), "{lines:?}");
        assert!(view.press(key(ratatui::crossterm::event::KeyCode::Enter)));
        assert_eq!(view.wanted().as_deref(), Some("seat:14"));
    }

    #[test]
    fn a_text_is_cut_in_the_middle_also_where_letters_are_wide() {
        assert_eq!(cut("seat:20", 7), "seat:20");
        assert_eq!(cut("seat:20", 6), "se…:20");
        assert_eq!(cut("座席の予約", 7), "座…約");
        assert_eq!(cut("座席", 1), "…");
        assert_eq!(cut("seat", 0), "…");
    }
}
