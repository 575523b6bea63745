//! Scripted peers on loopback, and our sockets against each other.
