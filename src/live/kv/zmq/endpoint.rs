//! [`Endpoint`]: `tcp://host:port` and `ipc://path`, connected to or listened at.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::ZmqError;

/// An address in ZeroMQ's notation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// `tcp://host:port`; an IPv6 address stands in brackets.
    Tcp {
        /// Name or address, without brackets. `*` (listening only): every IPv4 address of the machine.
        host: String,
        /// 0 (listening only): any free one.
        port: u16,
    },
    /// `ipc://path` of a Unix socket.
    Ipc(PathBuf),
}

/// The two directions of a connection.
pub(super) struct Stream {
    pub read: Box<dyn AsyncRead + Send + Unpin>,
    pub write: Box<dyn AsyncWrite + Send + Unpin>,
}

/// A bound socket. Removes the file of an `ipc` address when dropped.
pub(super) enum Listener {
    Tcp(TcpListener),
    Ipc(UnixListener, PathBuf),
}

impl FromStr for Endpoint {
    type Err = ZmqError;

    fn from_str(text: &str) -> Result<Endpoint, ZmqError> {
        let wrong = |problem| ZmqError::Endpoint { endpoint: text.to_owned(), problem };
        if let Some(path) = text.strip_prefix("ipc://") {
            return match path {
                "" => Err(wrong("the path is missing")),
                path if path.starts_with('@') => Err(wrong("abstract names are not spoken; give a path")),
                path => Ok(Endpoint::Ipc(path.into())),
            };
        }
        let address = text.strip_prefix("tcp://").ok_or_else(|| wrong("expected tcp://host:port or ipc://path"))?;
        let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        let port = port.parse().map_err(|_| wrong("the port is not a number from 0 to 65535"))?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(bare) => bare,
            None if host.contains(':') => return Err(wrong("an IPv6 address stands in brackets")),
            None => host,
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        Ok(Endpoint::Tcp { host: host.to_owned(), port })
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Endpoint::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

impl Endpoint {
    /// Tries every address that the name has, in the resolver's order.
    pub(super) async fn connect(&self) -> Result<Stream, ZmqError> {
        if let Some(problem) = self.not_to_connect_to() {
            return Err(ZmqError::Endpoint { endpoint: self.to_string(), problem });
        }
        let connected = match self {
            Endpoint::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).await.and_then(Stream::tcp),
            Endpoint::Ipc(path) => UnixStream::connect(path).await.map(Stream::unix),
        };
        connected.map_err(|source| self.unreachable(source))
    }

    /// Why nothing can be connected to here: the addresses that are for listening only.
    pub fn not_to_connect_to(&self) -> Option<&'static str> {
        match self {
            Endpoint::Tcp { host, .. } if matches!(host.as_str(), "*" | "0.0.0.0" | "::") => {
                Some("can be listened at but not connected to; name the publisher's host")
            }
            Endpoint::Tcp { port: 0, .. } => Some("port 0 can be listened at but not connected to"),
            Endpoint::Tcp { .. } | Endpoint::Ipc(_) => None,
        }
    }

    /// An `ipc` address takes over the file of a publisher that is gone, as libzmq does.
    pub(super) async fn bind(&self) -> Result<Listener, ZmqError> {
        let bound = match self {
            Endpoint::Tcp { host, port } => {
                let host = if host == "*" { "0.0.0.0" } else { host };
                TcpListener::bind((host, *port)).await.map(Listener::Tcp)
            }
            Endpoint::Ipc(path) => bind_path(path).await,
        };
        bound.map_err(|source| self.unreachable(source))
    }

    fn unreachable(&self, source: io::Error) -> ZmqError {
        ZmqError::Unreachable { endpoint: self.to_string(), source }
    }
}

/// A file that nobody listens at is in the way and is removed; one that somebody does stays.
async fn bind_path(path: &Path) -> io::Result<Listener> {
    let listen = || UnixListener::bind(path).map(|listener| Listener::Ipc(listener, path.to_owned()));
    match listen() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let left_over =
                UnixStream::connect(path).await.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            if !left_over {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            listen()
        }
        other => other,
    }
}

impl Stream {
    fn tcp(stream: TcpStream) -> io::Result<Stream> {
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(Stream { read: Box::new(read), write: Box::new(write) })
    }

    fn unix(stream: UnixStream) -> Stream {
        let (read, write) = stream.into_split();
        Stream { read: Box::new(read), write: Box::new(write) }
    }
}

impl Listener {
    pub async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => Stream::tcp(listener.accept().await?.0),
            Listener::Ipc(listener, _) => Ok(Stream::unix(listener.accept().await?.0)),
        }
    }

    /// Where it listens: the port that the system gave in place of 0.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Listener::Tcp(listener) => {
                let address = listener.local_addr()?;
                Ok(Endpoint::Tcp { host: address.ip().to_string(), port: address.port() })
            }
            Listener::Ipc(_, path) => Ok(Endpoint::Ipc(path.clone())),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Ipc(_, path) = self {
            // It may be gone already; nothing depends on it.
            let _ = std::fs::remove_file(path);
        }
    }
}
