//! Images of an answer, as content of their own.

use serde_json::{Value, json};

use crate::dispatch::{CallResponse, ResponseImage};

/// Moves the images out of the fields: a model sees them beside the text, and base64 would cost it tokens.
pub(super) fn beside_the_text(mut response: CallResponse) -> CallResponse {
    let of_value = response.json.get_mut("value").and_then(|it| it.get_mut("outputs"));
    let outputs = match of_value {
        Some(outputs) => Some(outputs),
        None => response.json.get_mut("outputs"),
    };
    for output in outputs.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(image) = take(output) {
            response.images.push(image);
        }
    }
    response
}

/// An image with its bytes; of it the fields keep the size.
fn take(output: &mut Value) -> Option<ResponseImage> {
    let media_type = output.get("type")?.as_str().filter(|it| it.starts_with("image/"))?.to_owned();
    let fields = output.as_object_mut()?;
    let Value::String(data) = fields.remove("data")? else { return None };
    fields.insert("bytes".into(), json!(size_of_base64(&data)));
    Some(ResponseImage { media_type, data })
}

/// The size of the bytes that the text encodes.
pub(super) fn size_of_base64(text: &str) -> u64 {
    text.trim_end_matches('=').len() as u64 * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::beside_the_text;
    use crate::dispatch::CallResponse;

    fn moved(json: &Value) -> (Value, Vec<String>) {
        let json = json.as_object().unwrap().clone();
        let response = beside_the_text(CallResponse { json, ..CallResponse::default() });
        (response.json.into(), response.images.into_iter().map(|it| format!("{} {}", it.media_type, it.data)).collect())
    }

    #[test]
    fn images_stand_beside_the_text_and_everything_else_stays() {
        let outputs = json!([{ "type": "text/plain", "text": "1" }, { "type": "image/png", "data": "iVBORw==" }]);
        let left = json!([{ "type": "text/plain", "text": "1" }, { "type": "image/png", "bytes": 4 }]);
        let images = vec!["image/png iVBORw==".to_owned()];
        assert_eq!(moved(&json!({ "outputs": outputs })), (json!({ "outputs": left }), images.clone()));
        assert_eq!(
            moved(&json!({ "value": { "outputs": outputs } })),
            (json!({ "value": { "outputs": left } }), images)
        );
        let drawing = json!({ "value": null, "outputs": [{ "type": "image/svg+xml", "text": "<svg/>" }] });
        assert_eq!(moved(&drawing), (drawing, vec![]));
    }
}
