//! Search in retained output.

use coracle_client::Link;

use crate::{Result, SearchRequest, SearchResult};

/// Searches retained output. Matches beyond the requested number are dropped.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for an invalid pattern;
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); errors of the link.
pub async fn search(link: &Link, request: SearchRequest) -> Result<SearchResult> {
    let most = request.most;
    Ok(limited(link.search(request).await?, most))
}

fn limited(mut found: SearchResult, most: u32) -> SearchResult {
    found.more |= found.matches.len() > most as usize;
    found.matches.truncate(most as usize);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LineMatch;

    #[test]
    fn matches_beyond_the_requested_number_are_dropped() {
        let one = LineMatch { offset: 0, line: 1, text: "x".into(), before: vec![], after: vec![] };
        let result =
            |more| SearchResult { matches: vec![one.clone(); 3], more, next: 9, first: 0, total: 9, running: false };
        let found = limited(result(false), 2);
        assert_eq!((found.matches.len(), found.more), (2, true));
        assert!(!limited(result(false), 3).more);
        assert!(limited(result(true), 3).more);
    }
}
