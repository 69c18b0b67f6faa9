/// The output of a tool: a text for the model, and whether the call failed.
pub(crate) type ToolOutput = (String, bool);
