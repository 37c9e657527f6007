//! `Port`: a loopback port number that no other test process uses until it is dropped.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;

/// The range of ports, below the kernel's range for outgoing connections (from 32 768 on Linux):
/// such a connection could take the port of a stopped server, and a client that keeps reconnecting
/// to that port could even connect to itself.
const RANGE: Range<u16> = 12_000..32_000;

/// The distance between the two ports of a Redis Cluster node.
const BUS: u16 = 10_000;

/// A loopback port, ours until dropped.
///
/// It stays ours while nothing listens on it, so a killed server can restart on it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The UDP port of the same number represents the claim between test processes: nothing else
    /// here uses UDP, and the kernel frees it when the process dies.
    _claim: UdpSocket,
}

impl Port {
    /// Claims a free port.
    ///
    /// # Panics
    ///
    /// If none of a thousand random ports is free.
    #[must_use]
    pub fn free() -> Self {
        (0..1000)
            .find_map(|_| Self::claim(random_number()))
            .expect("a machine has a free loopback port among a thousand tried")
    }

    /// Claims a free port for a Redis Cluster node, and the port 10 000 above for its cluster bus.
    ///
    /// # Panics
    ///
    /// As [`Port::free`].
    #[must_use]
    pub fn free_with_bus() -> (Self, Self) {
        (0..1000)
            .find_map(|_| {
                let number = random_number();
                let bus = number.checked_add(BUS).filter(|bus| RANGE.contains(bus))?;
                Some((Self::claim(number)?, Self::claim(bus)?))
            })
            .expect("a machine has two free loopback ports at that distance among a thousand tried")
    }

    /// Returns the port number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the loopback address with this port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }

    fn claim(number: u16) -> Option<Self> {
        let claim = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        // A server outside of these tests may listen there. Binding would show it too, but a child
        // started meanwhile by another thread would keep the port bound until its exec.
        let taken = TcpStream::connect((Ipv4Addr::LOCALHOST, number)).is_ok();
        (!taken).then_some(Self { number, _claim: claim })
    }
}

fn random_number() -> u16 {
    // The keys of a `RandomState` come from the operating system: randomness without a crate.
    let random = RandomState::new().hash_one(());
    let width = u64::from(RANGE.end - RANGE.start);
    RANGE.start + u16::try_from(random % width).expect("the width of the range fits 16 bits")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::eventually;

    #[tokio::test]
    async fn a_claimed_port_is_not_given_out_again_until_it_is_dropped() {
        let port = Port::free();
        let number = port.number();
        assert!(Port::claim(number).is_none());
        drop(port);
        // A child that another test is starting may hold a copy of the claim for a moment.
        let claimed = async || Port::claim(number).is_some();
        eventually("the port is free again", Duration::from_secs(10), claimed).await;
    }

    #[test]
    fn a_port_that_a_stranger_listens_on_is_not_given_out() {
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let number = stranger.local_addr().expect("bound").port();
        assert!(Port::claim(number).is_none());
    }
}
