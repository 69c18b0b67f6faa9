//! Whether attributes keep an item for tests alone.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Whether the item exists in tests only: `#[test]` functions, and what a `cfg` can only allow when `test` is set.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| is_test_attribute(it) || (it.path().is_ident("cfg") && excludes_library(it)))
}

fn is_test_attribute(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|it| it.ident == "test")
}

fn excludes_library(attribute: &Attribute) -> bool {
    attribute.parse_args::<Meta>().is_ok_and(|it| holds_without_tests(&it) == Some(false))
}

/// Whether a condition holds in a library; `None` if that depends on the platform or a feature.
fn holds_without_tests(condition: &Meta) -> Option<bool> {
    let Meta::List(list) = condition else {
        return condition.path().is_ident("test").then_some(false);
    };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let mut values = parts.iter().map(holds_without_tests);
    if list.path.is_ident("not") {
        return values.next().flatten().map(|it| !it);
    }
    let (decisive, values): (bool, Vec<_>) = (list.path.is_ident("any"), values.collect());
    if values.contains(&Some(decisive)) {
        return Some(decisive);
    }
    values.iter().all(|it| *it == Some(!decisive)).then_some(!decisive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_for_tests_alone_is_recognised() {
        for (attribute, expected) in [
            ("#[test]", true),
            ("#[tokio::test]", true),
            ("#[cfg(test)]", true),
            ("#[cfg(all(test, feature = \"schemas\"))]", true),
            ("#[cfg(any(test, feature = \"programs\"))]", false),
            ("#[cfg(not(test))]", false),
            ("#[cfg(not(target_os = \"linux\"))]", false),
            ("#[cfg(any(test, all(test, unix)))]", true),
            ("#[cfg_attr(test, derive(Debug))]", false),
        ] {
            let item: syn::ItemFn = syn::parse_str(&format!("{attribute} fn it() {{}}")).expect("a function");
            assert_eq!(is_test_only(&item.attrs), expected, "{attribute}");
        }
    }
}
