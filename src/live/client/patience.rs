//! [`Patience`]: how long a leg waits for the next bytes of its answer.
//!
//! One timer, set anew only when it has run out and the bound has moved meanwhile: bytes as such cost none.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use crate::base::Time;
use crate::live::client::line::Line;
use crate::protocol::ErrorClass;

/// See the module.
#[derive(Debug)]
pub(super) struct Patience<'l> {
    line: &'l Line,
    sent: Time,
    /// When the last bytes came.
    heard: Time,
    has_token: bool,
    /// `None`: nothing bounds the wait, or nobody has waited yet.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'l> Patience<'l> {
    /// For the answer to a request sent then, posted now.
    pub fn new(line: &'l Line, sent: Time) -> Patience<'l> {
        Patience { line, sent, heard: line.clock.now(), has_token: false, timer: None }
    }

    /// Bytes came then; a first token has come, or has not.
    pub fn hear(&mut self, now: Time, has_token: bool) {
        self.heard = now;
        if has_token && !self.has_token {
            self.has_token = true;
            if self.line.target.limits.first_token.is_some() {
                // From here on another limit governs, which may be the shorter one.
                self.timer = None;
            }
        }
    }

    /// Waits for it as long as the limits allow; else what that means, in words.
    pub async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, (ErrorClass, String)> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            loop {
                if let Some(timer) = &mut self.timer
                    && timer.as_mut().poll(cx).is_pending()
                {
                    return Poll::Pending;
                }
                match self.line.wait_left(self.sent, self.heard, self.has_token) {
                    None => return Poll::Pending,
                    Some((left, class)) if left == Duration::ZERO => {
                        return Poll::Ready(Err((class, self.line.too_long(class))));
                    }
                    Some((left, _)) => self.timer = Some(Box::pin(sleep(left))),
                }
            }
        })
        .await
    }
}
