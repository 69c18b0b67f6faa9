//! Lines of kept output that match.

use coracle_client::Link;

use crate::{Result, SearchRequest, SearchResult};

/// Searches kept output. A guest that returns more matches than requested is cut.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for a text that is not a pattern;
/// [`Error::NoSuchJob`](crate::Error::NoSuchJob); those of the link.
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
    fn more_matches_than_were_asked_for_are_cut() {
        let one = LineMatch { offset: 0, line: 1, text: "x".into(), before: vec![], after: vec![] };
        let told =
            |more| SearchResult { matches: vec![one.clone(); 3], more, next: 9, first: 0, total: 9, running: false };
        let found = limited(told(false), 2);
        assert_eq!((found.matches.len(), found.more), (2, true));
        assert!(!limited(told(false), 3).more);
        assert!(limited(told(true), 3).more);
    }
}
