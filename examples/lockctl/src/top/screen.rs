//! The screen.

use std::time::Duration;

use lockcore::{BusyLock, Participant};
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
use crate::text::{one_line, without_passwords};

const LIST_KEYS: &str = "↑↓ select  Enter look into  / name  s sort  q quit";
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
        None => draw_list(frame, view, now, [title, state, body]),
    }
    let line = match (&view.typed, &view.one) {
        (Some(typed), _) => Line::from(format!("name: {}▏", one_line(typed))),
        (_, Some(_)) => Line::from(ONE_KEYS).dim(),
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
    let line = format!("{busy} busy locks{more}, {waiting} waiting; {order} first");
    frame.render_widget(Line::from(line).bold(), title);
    let last = Some((look.at, look.ping));
    frame.render_widget(state_line(view.trouble.as_deref(), last, now), state);

    let rows = usize::from(body.height.saturating_sub(1));
    let first = (view.selected + 1).saturating_sub(rows);
    let shown = look.locks.iter().enumerate().skip(first).take(rows);
    let rows = shown.map(|(number, lock)| {
        let style = match number == view.selected {
            true => Style::new().reversed(),
            false => Style::new(),
        };
        lock_row(lock).style(style)
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(7),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Length(14),
        Constraint::Length(11),
        Constraint::Fill(2),
    ];
    let names = ["LOCK", "WAITING", "NEXT WAITS", "HOLDERS", "ASKED", "LEASE", "HOLDER"];
    let table = Table::new(rows, widths).header(Row::new(names).bold());
    frame.render_widget(table, body);
}

fn lock_row(lock: &BusyLock) -> Row<'static> {
    let found = &lock.inspection;
    let holder = found.holders.first();
    Row::new([
        one_line(busy::name(lock)),
        found.waiting.to_string(),
        found.waiters.first().map(age).unwrap_or_default(),
        found.holding.to_string(),
        holder.map(asked).unwrap_or_default(),
        holder.map(lease).unwrap_or_default(),
        holder.map(described).unwrap_or_default(),
    ])
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

    // Half of the screen for the holders at most, if others wait.
    let holders = u16::try_from(found.holders.len()).unwrap_or(u16::MAX).saturating_add(1);
    let [above, below] = Layout::vertical([
        Constraint::Length(holders.min(body.height.div_ceil(2)).max(2)),
        Constraint::Fill(1),
    ])
    .areas(body);
    let rows = found.holders.iter().take(above.height.into()).map(|holder| {
        Row::new([described(holder), demand(holder.demand), asked(holder), lease(holder)])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Length(11),
    ];
    let names = ["HOLDER", "DEMAND", "ASKED", "LEASE"];
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), above);

    let waiters = found.waiters.iter().enumerate().skip(one.from).take(below.height.into());
    let rows = waiters.map(|(ahead, waiter)| {
        Row::new([
            (ahead + 1).to_string(),
            described(waiter),
            demand(waiter.demand),
            age(waiter),
            one.turn_in(ahead).map(|time| format!("~ {}", short(time))).unwrap_or_default(),
        ])
    });
    let widths = [
        Constraint::Length(6),
        Constraint::Fill(1),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(11),
    ];
    let names = ["PLACE", "WAITER", "DEMAND", "WAITS", "TURN IN"];
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).bold()), below);
}

/// The age of the last look and the round trip to the server, or the reason why there is no later
/// one.
fn state_line(
    trouble: Option<&str>,
    last: Option<(Instant, Option<Duration>)>,
    now: Instant,
) -> Line<'static> {
    let mut line = match last {
        Some((at, _)) => format!("seen {} ago", short(now.saturating_duration_since(at))),
        None => "not seen yet".to_owned(),
    };
    if let Some(trouble) = trouble {
        line.push_str(&format!(": {}", one_line(&without_passwords(trouble))));
        return Line::from(line).style(Style::new().fg(Color::Red).bold());
    }
    if let Some((_, Some(ping))) = last {
        line.push_str(&format!(", server answers in {:.1} ms", ping.as_secs_f64() * 1_000.0));
    }
    Line::from(line).dim()
}

fn age(participant: &Participant) -> String {
    participant.age.map(short).unwrap_or_default()
}

/// The time since a holder asked, which includes its wait.
fn asked(holder: &Participant) -> String {
    holder.age.map(|age| format!("{} ago", short(age))).unwrap_or_default()
}

fn lease(holder: &Participant) -> String {
    format!("{}{}", short(holder.lease_left), if holder.is_claim { " claim" } else { "" })
}

/// A time in two numbers at most.
fn short(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} m", seconds / 3_600, seconds / 60 % 60),
    }
}
