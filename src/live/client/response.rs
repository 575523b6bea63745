//! [`Response`]: an answer as it comes, whichever client it comes from.

use std::sync::Arc;

use reqwest::header::HeaderMap;

use super::site::Site;
use super::wire::{Answer, Broken};

/// See the module.
#[derive(Debug)]
pub(super) enum Response {
    /// Of a plain connection of ours.
    Plain(Box<Answer>, Arc<Site>),
    /// Of the general client.
    General(Box<reqwest::Response>),
}

/// Why there is no answer, or no more of it.
#[derive(Debug)]
pub(super) enum Trouble {
    Plain(Broken, Arc<Site>),
    General(reqwest::Error),
}

impl Response {
    /// HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Response::Plain(answer, _) => answer.status,
            Response::General(response) => response.status().as_u16(),
        }
    }

    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        match self {
            Response::Plain(answer, _) => &mut answer.headers,
            Response::General(response) => response.headers_mut(),
        }
    }

    /// Its connection has been given back, or is of no more use.
    pub fn is_over(&self) -> bool {
        match self {
            Response::Plain(answer, _) => answer.is_over(),
            Response::General(_) => false,
        }
    }

    /// The request had left whole; of the general client nobody knows better.
    pub fn request_has_left(&self) -> bool {
        match self {
            Response::Plain(answer, _) => answer.request_has_left(),
            Response::General(_) => true,
        }
    }

    /// A task of its own gives its connection back, some time after the body has been read.
    pub fn is_given_back_later(&self) -> bool {
        matches!(self, Response::General(_))
    }

    /// Hands what comes next of the body to `each`, in pieces; whether more is to come.
    pub async fn read(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, Trouble> {
        match self {
            Response::Plain(answer, site) => {
                answer.read(each).await.map_err(|broken| Trouble::Plain(broken, Arc::clone(site)))
            }
            Response::General(response) => {
                let piece = response.chunk().await.map_err(Trouble::General)?;
                Ok(piece.map(|piece| each(&piece)).is_some())
            }
        }
    }

    /// Reads to the end of the body, and forgets it.
    pub async fn skip(&mut self) {
        while let Ok(true) = self.read(|_| {}).await {}
    }
}
