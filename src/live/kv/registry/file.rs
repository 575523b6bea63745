//! A JSON file of instances, looked at again and again.
//!
//! It is read whole each time: two writes within one tick of a file system's clock have the same time stamp. What a look
//! means is [`Listing`]'s matter.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::tell;
use crate::kv::directory::{Listing, News};

/// Most bytes of a file.
const MOST_BYTES: u64 = 16 << 20;

/// Looks at `path` now and after each interval, until nobody listens.
pub(super) async fn follow(path: &str, every: Duration, to: &mpsc::Sender<News>) {
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

fn read(path: &str) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let limited = file.take(MOST_BYTES + 1).read_to_end(&mut text);
    limited.map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(format!("is larger than {MOST_BYTES} bytes"));
    }
    Ok(text)
}
