//! `Etcd`: a single-node etcd started for the run, on free loopback ports.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lock_tests::{Leash, Port};

use crate::program::cpu_us;
use crate::ready::until_ready;

#[derive(Debug)]
pub(crate) struct Etcd {
    child: Child,
    /// The leash; `None` only while the server is being stopped.
    leash: Option<Leash>,
    port: Port,
    _peers: Port,
    directory: PathBuf,
}

impl Etcd {
    /// Starts the program, the only word of the command, with its defaults: it writes each change
    /// to the disk before it responds.
    pub(crate) fn start(command: &[String]) -> Result<Self, String> {
        let [program] = command else { return Err("no program".to_owned()) };
        let (port, peers) = (Port::free(), Port::free());
        let directory =
            std::env::temp_dir().join(format!("lock-bench-etcd-{}", std::process::id()));
        let url = |port: &Port| format!("http://{}", port.address());
        let child = Command::new(program)
            .arg("--data-dir")
            .arg(&directory)
            .args(["--listen-client-urls", &url(&port), "--advertise-client-urls", &url(&port)])
            .args(["--listen-peer-urls", &url(&peers)])
            .args(["--initial-advertise-peer-urls", &url(&peers)])
            .args(["--initial-cluster", &format!("default={}", url(&peers))])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("etcd does not start: {error}"))?;
        let leash = Some(Leash::new(child.id(), Some(&directory)));
        let mut etcd = Self { child, leash, port, _peers: peers, directory };
        let address = etcd.port.address();
        until_ready("etcd", &mut etcd.child, || {
            Ok(health(address).is_ok_and(|answer| answer.contains("\"true\"")))
        })?;
        Ok(etcd)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The processor time so far, µs.
    pub(crate) fn cpu_us(&self) -> f64 {
        cpu_us(self.child.id())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill(); // a zombie until waited for: its id is not recycled before
        self.leash = None;
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn health(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
