//! KV events: families of conformance cases as data, one test each.

mod discovery;
mod etcd;
