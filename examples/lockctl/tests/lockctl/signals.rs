//! Signals to `lockctl`, and their effect on CMD.

use lock_tests::{eventually, signal};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::process::Command;

use crate::common::{
    Running, SOON, assert_free, inspect, is_gone, lockctl, run, server, wait, waiting,
};
use crate::terminal::Terminal;

#[tokio::test]
async fn a_signal_is_passed_on_and_the_lock_released() {
    let url = server().url();
    let script = "trap 'echo term; exit 7' TERM; trap 'echo int; exit 8' INT; \
                  trap 'echo hup; exit 9' HUP; echo; while kill -0 $PPID; do sleep 0.02; done";
    let term = Running::start(&url, &[], "signal", script).await;
    signal::terminate(term.pid());
    let ended = term.end().await;
    ended.is(7);
    assert_eq!(ended.stdout, "term\n");
    assert_free(&url, "signal").await;

    let int = Running::start(&url, &[], "signal", script).await;
    signal::interrupt(int.pid());
    int.end().await.is(8);
    assert_free(&url, "signal").await;

    // An unhandled signal kills CMD.
    let plain = Running::start(&url, &[], "signal", "echo; exec cat").await;
    signal::interrupt(plain.pid());
    plain.end().await.is(128 + 2);
    assert_free(&url, "signal").await;
}

#[tokio::test]
async fn a_signal_ends_the_wait_and_the_position_is_given_up() {
    let url = server().url();
    let _holder = Running::start(&url, &[], "leave", "echo; exec cat").await;
    let mut waiter = lockctl(&url, ["exec", "leave", "--", "true"]).spawn().expect("it starts");
    waiting(&url, "leave", 1).await;
    signal::terminate(waiter.id().expect("it waits"));
    assert_eq!(wait(&mut waiter).await.code(), Some(128 + 15));
    let waiters = &inspect(&url, "leave").await["waiters"];
    assert_eq!(waiters.as_array().map(Vec::len), Some(0));
}

/// A script that prints the name of each received signal.
const ECHOES: &str = "for s in HUP INT QUIT USR1 USR2 ALRM TERM CONT WINCH URG IO VTALRM PROF XCPU \
                      PWR 40 64; do trap \"echo $s\" $s; done; \
                      echo $$; while kill -0 $PPID; do sleep 0.02; done";

// M4: signals not caught by lockctl ended it, and CMD continued without the lock.
#[tokio::test]
async fn every_signal_that_can_be_caught_reaches_the_command_and_lockctl_stays() {
    let url = server().url();
    let mut running = Running::start(&url, &[], "all", ECHOES).await;
    let lockctl = running.pid().to_string();
    for name in [
        "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT", "WINCH", "URG", "IO",
        "VTALRM", "PROF", "XCPU", "PWR", "40", "64",
    ] {
        let sent = Command::new("kill").args(["-s", name, &lockctl]).status().await;
        assert!(sent.expect("there is kill").success(), "{name}");
        assert_eq!(running.line().await, name);
    }
    assert_ne!(inspect(&url, "all").await["holders"], serde_json::json!([]));
    // CMD ends when lockctl does.
    signal::kill(running.pid());
}

// M4: the next CMD ran in parallel after the lease had expired.
#[tokio::test]
async fn a_killed_lockctl_takes_its_command_with_it() {
    let url = server().url();
    let mut running = Running::start(&url, &[], "killed", "echo; echo $$; exec cat").await;
    let command = running.line().await;
    assert!(!is_gone(&command));
    signal::kill(running.pid());
    eventually("CMD is gone", SOON, async || is_gone(&command)).await;
}

// CMD may have started children, and one exits while CMD still runs.
#[tokio::test]
async fn a_command_goes_on_when_another_child_of_lockctl_ends() {
    let url = server().url();
    // The orphan is reparented to lockctl, and exits.
    let script = "echo; sh -c 'sh -c \"echo orphan; exit 3\" &'; sleep 0.3; echo still; cat";
    let mut running = Running::start(&url, &[], "orphan", script).await;
    assert_eq!(running.line().await, "orphan");
    assert_eq!(running.line().await, "still");
    running.finish().await.is(0);
    assert_free(&url, "orphan").await;
}

#[tokio::test]
async fn the_help_says_what_no_signal_handler_can_prevent() {
    let help = run("redis://127.0.0.1:1/", ["exec", "--help"]).await;
    for named in
        ["KILL, or a fault, ends lockctl without a release", "Ctrl-Z and TSTP stop lockctl"]
    {
        assert!(help.stdout.contains(named), "{help:?}");
    }
}

/// The state of a process, as a letter; T if it was stopped.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next())
}

// L15.
#[tokio::test]
async fn tstp_stops_the_command_and_lockctl_and_both_go_on() {
    let url = server().url();
    let script = "echo; echo $$; while kill -0 $PPID; do sleep 0.02; done";
    let mut running = Running::start(&url, &[], "stopped", script).await;
    let command = running.line().await;
    let id = Pid::from_raw(running.pid().cast_signed()).expect("not zero");
    kill_process(id, Signal::TSTP).expect("it is ours");
    let lockctl = running.pid().to_string();
    eventually("both have stopped", SOON, async || {
        state(&command) == Some('T') && state(&lockctl) == Some('T')
    })
    .await;
    kill_process(id, Signal::CONT).expect("it is ours");
    eventually("both go on", SOON, async || {
        state(&command) != Some('T') && state(&lockctl) != Some('T')
    })
    .await;
    signal::terminate(running.pid());
    running.end().await.is(128 + 15);
    assert!(test_kill_process(id).is_err() || is_gone(&lockctl));
}

// CMD would continue without renewals.
#[tokio::test]
async fn a_command_that_does_not_stop_keeps_lockctl_running() {
    let url = server().url();
    let script =
        "trap 'echo caught' TSTP; echo; echo ready; while kill -0 $PPID; do sleep 0.02; done";
    let mut running = Running::start(&url, &[], "unstopped", script).await;
    assert_eq!(running.line().await, "ready");
    let id = Pid::from_raw(running.pid().cast_signed()).expect("not zero");
    kill_process(id, Signal::TSTP).expect("it is ours");
    assert_eq!(running.line().await, "caught");
    signal::terminate(running.pid());
    running.end().await.is(128 + 15);
}

#[tokio::test]
async fn ctrl_c_reaches_a_command_that_has_left_the_foreground_group() {
    let script = "trap 'exit 8' INT; echo ready; while kill -0 $PPID; do sleep 0.02; done";
    let arguments = ["exec", "left:c", "--", "setsid", "sh", "-c", script];
    let mut terminal = Terminal::controlling(&server().url(), &arguments);
    terminal.until(&["ready"]).await;
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end().await.code(), Some(8));
}

// The terminal has sent it to CMD already, and a second one often means "at once".
#[tokio::test]
async fn ctrl_c_reaches_a_command_in_the_foreground_group_once() {
    let script = "trap 'n=x$n' INT; echo ready; \
                  while kill -0 $PPID; do sleep 0.02; [ $n ] && sleep 0.3 && echo \"got $n.\"; done";
    let arguments = ["exec", "stayed:c", "--", "sh", "-c", script];
    let mut terminal = Terminal::controlling(&server().url(), &arguments);
    terminal.until(&["ready"]).await;
    terminal.type_keys("\u{3}");
    terminal.until(&["got x."]).await;
}

// `timeout` makes a group of its own: stopped alone, it would leave its job at work unlocked.
#[tokio::test]
async fn ctrl_z_stops_all_of_a_command_that_has_its_own_group() {
    let script = "echo \"job $$.\"; while kill -0 $PPID; do :; done";
    let arguments = ["exec", "left:z", "--", "timeout", "600", "sh", "-c", script];
    let mut terminal = Terminal::controlling(&server().url(), &arguments);
    terminal.until(&["job "]).await;
    let lines = terminal.lines().join("\n");
    let job = lines.split("job ").nth(1).and_then(|rest| rest.split('.').next());
    let job = job.expect("its id is shown").to_owned();
    let lockctl = terminal.pid();
    terminal.type_keys("\u{1a}");
    eventually("both have stopped", SOON, async || {
        state(&job) == Some('T') && state(&lockctl.to_string()) == Some('T')
    })
    .await;
    let id = Pid::from_raw(lockctl.cast_signed()).expect("not zero");
    kill_process(id, Signal::CONT).expect("it is ours");
    eventually("the job goes on", SOON, async || state(&job) != Some('T')).await;
    signal::terminate(lockctl);
    assert_eq!(terminal.end().await.code(), Some(128 + 15));
}
