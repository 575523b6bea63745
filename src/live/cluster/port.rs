//! A port that stays a node's own while the node is down.
//!
//! A bound socket that does not listen keeps others off the port, and connections to it are refused, as they are where a
//! process has died. The node listens on a second socket bound beside it.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Port {
    // Held for the port it keeps.
    _reserved: TcpSocket,
    address: SocketAddr,
}

impl Port {
    /// Reserves `address`; port 0 is any that is free.
    pub fn reserve(address: SocketAddr) -> io::Result<Port> {
        let reserved = bind(address)?;
        let address = reserved.local_addr()?;
        Ok(Port { _reserved: reserved, address })
    }

    /// With the port in it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Listens on a reserved address; needs a running runtime.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bind(address)?.listen(BACKLOG)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_reserved_port_refuses_until_someone_listens_and_again_after() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let port = Port::reserve("127.0.0.1:0".parse().unwrap()).unwrap();
        for _ in 0..3 {
            assert!(TcpStream::connect(port.address()).is_err());
            let listener = listen(port.address()).unwrap();
            assert!(TcpStream::connect(port.address()).is_ok());
            assert!(listen(port.address()).is_err(), "one at a time");
            drop(listener);
        }
        let others: Vec<Port> = (0..50).map(|_| Port::reserve("127.0.0.1:0".parse().unwrap()).unwrap()).collect();
        assert!(others.iter().all(|other| other.address() != port.address()));
    }
}
