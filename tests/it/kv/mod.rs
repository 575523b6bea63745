//! KV events: the families of cases in tests/data/kv, each run by one test, and properties over random input.

mod batches;
mod discovery;
mod driver;
mod etcd;
mod fuzz_sync;
mod fuzz_wire;
mod publisher;
mod sync;
mod sync_random;
mod wire;
