//! `Delay`: a proxy that delays everything, in both directions.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A proxy that delays everything. It runs on dedicated threads until the driver ends, because
/// their sleep is exact to some 60 µs, unlike a runtime's timers.
#[derive(Debug)]
pub struct Delay {
    address: SocketAddr,
}

impl Delay {
    /// Starts the proxy in front of a server: each piece arrives `each_way` later, in both
    /// directions.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub fn start(server: SocketAddr, each_way: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                if let (Ok(client), Ok(server)) = (client.try_clone(), server.try_clone()) {
                    pass(client, server, each_way);
                }
                pass(server, client, each_way);
            }
        });
        Self { address }
    }

    /// Returns the address to connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn pass(mut from: TcpStream, to: TcpStream, delay: Duration) {
    let (pieces, due): (Sender<(Instant, Vec<u8>)>, _) = channel();
    std::thread::spawn(move || write(to, &due));
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if pieces.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    });
}

fn write(mut to: TcpStream, due: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((time, piece)) = due.recv() {
        std::thread::sleep(time.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_both_ways() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let delay = Delay::start(listener.local_addr().expect("bound"), Duration::from_millis(20));
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut piece = [0; 4];
            stream.read_exact(&mut piece).expect("four bytes");
            stream.write_all(&piece).expect("sent");
        });
        let mut stream = TcpStream::connect(delay.address()).expect("connected");
        let start = Instant::now();
        stream.write_all(b"ping").expect("sent");
        let mut piece = [0; 4];
        stream.read_exact(&mut piece).expect("an answer");
        assert_eq!(&piece, b"ping");
        assert!(start.elapsed() >= Duration::from_millis(40));
    }
}
