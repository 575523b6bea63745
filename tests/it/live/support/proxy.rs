//! A TCP proxy between a run and a server, to lose bytes and connections as a network does.
//!
//! A thread a direction. Its state may change at any time and holds for what is forwarded from then on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// What it does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Net {
    /// Forwards them.
    Up = 0,
    /// Swallows them; connections stay open.
    Blackhole = 1,
    /// Refuses nothing, but closes every connection at its next byte, with a reset.
    Reset = 2,
}

/// See the module.
pub struct Proxy {
    address: SocketAddr,
    net: Arc<AtomicU8>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Before the server at `url`.
    pub fn before(url: &str) -> Proxy {
        let server = url.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            address: listener.local_addr().unwrap(),
            net: Arc::new(AtomicU8::new(Net::Up as u8)),
            open: Arc::default(),
        };
        let (net, open) = (Arc::clone(&proxy.net), Arc::clone(&proxy.open));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                for stream in [&client, &upstream] {
                    let _ = stream.set_nodelay(true);
                    open.lock().unwrap().push(stream.try_clone().unwrap());
                }
                pump(&client, &upstream, &net);
                pump(&upstream, &client, &net);
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on.
    pub fn set(&self, net: Net) {
        self.net.store(net as u8, Ordering::SeqCst);
    }

    /// Closes our half towards both ends of every open connection; what they send is still read.
    pub fn half_close(&self) {
        self.open.lock().unwrap().iter().for_each(|stream| drop(stream.shutdown(Shutdown::Write)));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.open.lock().unwrap().iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn pump(from: &TcpStream, to: &TcpStream, net: &Arc<AtomicU8>) {
    let (mut from, mut to, net) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(net));
    thread::spawn(move || {
        let mut bytes = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let state = net.load(Ordering::SeqCst);
            if state == Net::Blackhole as u8 {
                continue;
            }
            if state == Net::Reset as u8 {
                let _ = SockRef::from(&to).set_linger(Some(Duration::ZERO));
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}
