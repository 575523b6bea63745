//! A JSON file of instances, looked at again and again.
//!
//! It is read whole each time: two writes within one tick of a file system's clock have the same time stamp. What a look
//! means is [`Listing`]'s matter.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::tell;
use crate::kv::directory::{Listing, News};

/// Most bytes of a file.
const MOST_BYTES: u64 = 16 << 20;

/// Looks at `path` now and after each interval, until nobody listens.
pub(super) async fn follow(path: &str, every: Duration, to: &mpsc::Sender<Vec<News>>) {
    let mut listing = Listing::new(path);
    loop {
        let was_read = listing.was_read();
        let mut news = listing.look(read(path));
        news.extend((listing.was_read() && !was_read).then_some(News::Listed));
        if !tell(news, to).await {
            return;
        }
        tokio::select! {
            () = sleep(every) => {}
            () = to.closed() => return,
        }
    }
}

/// Only a regular file: a pipe would block whoever reads it, and with it the signal that ends the process.
fn read(path: &str) -> Result<Vec<u8>, String> {
    let cannot = |error: io::Error| format!("cannot be opened: {error}");
    let regular = |about: Metadata| about.is_file().then_some(()).ok_or("is no regular file".to_owned());
    // Before it is opened, which a device could notice; and after, as it may be another by then.
    regular(fs::metadata(path).map_err(cannot)?)?;
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = file.map_err(cannot)?;
    let about = file.metadata().map_err(cannot)?;
    let bytes = about.len();
    regular(about)?;
    if bytes > MOST_BYTES {
        return Err(format!(
            "has {bytes} bytes, over the limit of {MOST_BYTES}; take out instances that are gone, or keep the registry in etcd"
        ));
    }
    read_limited(file)
}

/// All of `from`, which may hold as much as a file of a registry. Errors: what is wrong with it, as `is larger than …`.
pub fn read_limited(from: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("is larger than {MOST_BYTES} bytes"));
    }
    Ok(bytes)
}
