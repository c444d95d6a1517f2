//! MCP methods, and what forebay does with each.

/// Requests that change what a server keeps for its session. Callers share that session (rule R23), so one would
/// change it for all; they are answered as unknown until sessions are kept apart.
pub fn needs_a_session_of_its_own(method: &str) -> bool {
    matches!(method, "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe")
}

/// How a request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Goes through a queue to an upstream.
    Call,
    /// Answered by forebay: handshakes and pings.
    Own,
    /// Answered from a cache that is filled from the upstream.
    List,
}

/// Which part of `params` names the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKey {
    Name,
    Uri,
    TaskId,
    None,
}

pub const INITIALIZE: &str = "initialize";
pub const INITIALIZED: &str = "notifications/initialized";
pub const DISCOVER: &str = "server/discover";
pub const PING: &str = "ping";
pub const TOOLS_CALL: &str = "tools/call";
pub const TOOLS_LIST: &str = "tools/list";
pub const PROMPTS_GET: &str = "prompts/get";
pub const PROMPTS_LIST: &str = "prompts/list";
pub const RESOURCES_READ: &str = "resources/read";
pub const RESOURCES_LIST: &str = "resources/list";
pub const TEMPLATES_LIST: &str = "resources/templates/list";
pub const CANCELLED: &str = "notifications/cancelled";
pub const LISTEN: &str = "subscriptions/listen";
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
pub const SUBSCRIBE: &str = "resources/subscribe";
pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
pub const RESOURCE_UPDATED: &str = "notifications/resources/updated";
pub const MESSAGE: &str = "notifications/message";
pub const SET_LEVEL: &str = "logging/setLevel";
pub const PROGRESS: &str = "notifications/progress";
pub const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
pub const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
pub const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";

/// What happens to a request of this method.
pub fn route(method: &str) -> Route {
    match method {
        INITIALIZE | DISCOVER | PING => Route::Own,
        TOOLS_LIST | PROMPTS_LIST | RESOURCES_LIST | TEMPLATES_LIST => Route::List,
        _ => Route::Call,
    }
}

/// Where a method's params name what it is aimed at; `Mcp-Name` mirrors that value.
pub fn target_key(method: &str) -> TargetKey {
    match method {
        TOOLS_CALL | PROMPTS_GET => TargetKey::Name,
        RESOURCES_READ => TargetKey::Uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => TargetKey::TaskId,
        _ => TargetKey::None,
    }
}
