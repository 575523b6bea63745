//! A stream that the directory names, as the index and the machine want it.

use crate::base::Dur;
use crate::kv::Recovery;
use crate::kv::directory::{Identity, Origin, StreamLimits, Subscription};
use crate::kv::index::{HashSpace, StreamSpec};
use crate::kv::sync::SyncOptions;

impl SyncOptions {
    /// How `subscription` is followed within `limits`, and what the index is told of it. Without an address to ask for
    /// replays there is no recovery.
    pub fn of(subscription: &Subscription, limits: &StreamLimits) -> (StreamSpec, SyncOptions) {
        let Subscription { key, origin, form, events, replay } = subscription;
        let bytes = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let options = SyncOptions {
            endpoint: events.to_string(),
            topic: form.topic.clone(),
            recovery: if replay.is_some() { form.recovery } else { Recovery::None },
            max_message_bytes: bytes(limits.max_message_bytes),
            max_buffered_bytes: bytes(limits.max_buffered_bytes),
            replay_timeout: Dur::from_millis(limits.replay_timeout_ms),
            resync_interval: Dur::from_millis(limits.resync_interval_ms),
            ..SyncOptions::new(form.dialect)
        };
        let (incarnation, register_ts_ms) = match origin {
            Origin::Discovered(Identity::Incarnation(id)) => (Some(id.clone()), None),
            Origin::Discovered(Identity::RegisteredAt(ms)) => (None, Some(*ms)),
            Origin::Discovered(Identity::Unknown) | Origin::Static => (None, None),
        };
        let spec = StreamSpec {
            instance: key.instance.clone(),
            dp_rank: key.dp_rank,
            space: HashSpace { block_size: form.block_size, hash_seed: form.hash_seed },
            max_blocks: limits.max_blocks_per_stream as usize,
            incarnation,
            register_ts_ms,
        };
        (spec, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Dialect;
    use crate::kv::directory::{Endpoint, StreamForm, StreamKey};

    #[test]
    fn a_subscription_says_all_that_its_machine_needs() {
        let form = StreamForm {
            block_size: 16,
            hash_seed: 7,
            topic: "kv".into(),
            dialect: Dialect::Vllm,
            recovery: Recovery::History,
        };
        let endpoint = |port| Endpoint { host: "a".into(), port };
        let mut subscription = Subscription {
            key: StreamKey { instance: "p0".into(), dp_rank: 1 },
            origin: Origin::Discovered(Identity::Incarnation("x".into())),
            form,
            events: endpoint(1),
            replay: Some(endpoint(2)),
        };
        let limits = StreamLimits { max_blocks_per_stream: 9, replay_timeout_ms: 3, ..StreamLimits::default() };
        let (spec, options) = SyncOptions::of(&subscription, &limits);
        assert_eq!((spec.to_string().as_str(), spec.max_blocks), ("p0/1", 9));
        assert_eq!((spec.incarnation.as_deref(), spec.register_ts_ms), (Some("x"), None));
        assert_eq!((options.endpoint.as_str(), options.topic.as_str()), ("tcp://a:1", "kv"));
        assert_eq!((options.recovery, options.replay_timeout), (Recovery::History, Dur::from_millis(3)));
        subscription.replay = None;
        assert_eq!(SyncOptions::of(&subscription, &limits).1.recovery, Recovery::None);
    }
}
