//! KV events: the families of cases in tests/data/kv, each run by one test, and properties over random input.

mod batches;
mod directory;
mod discovery;
mod engines;
mod etcd;
mod fuzz_wire;
mod publisher;
mod query;
mod wire;
