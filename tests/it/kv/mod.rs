//! KV events: the families of cases in tests/data/kv, each run by one test, and properties over random input.

mod batches;
mod directory;
mod discovery;
mod driver;
mod engines;
mod etcd;
mod fuzz_sync;
mod fuzz_wire;
mod peers;
mod publisher;
mod query;
mod slow;
mod sync;
mod sync_random;
mod watch;
mod wire;
mod worker;
