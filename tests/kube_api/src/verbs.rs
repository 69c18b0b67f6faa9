//! Create, get, list, patch, replace and delete.

use std::sync::{Arc, PoisonError};

use axum::body::Body;
use axum::http::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_types::random_hex;
use serde_json::{Value, json};

use crate::admission::{admit_pod, default_pod, used};
use crate::cluster::{Cluster, mark_deleted, stamp};
use crate::kinds::{Kind, Target};
use crate::kubelet;
use crate::patch::merge;
use crate::query::Query;
use crate::selector::Selector;
use crate::status::{Refusal, json_response};
use crate::store::Key;
use crate::validate::{validate, validate_change};

/// A request about objects.
#[derive(Debug)]
pub(crate) struct ObjectRequest<'a> {
    pub(crate) cluster: &'a Arc<Cluster>,
    pub(crate) target: &'a Target,
    pub(crate) query: &'a Query,
    pub(crate) body: Value,
    /// Objects without more than their metadata.
    pub(crate) metadata_only: bool,
}

pub(crate) fn serve(method: &str, request: &ObjectRequest<'_>) -> Result<Response<Body>, Refusal> {
    let target = request.target;
    match (method, &target.name) {
        ("POST", None) => request.create(),
        ("GET", None) => request.list(),
        ("DELETE", None) => request.delete_all(),
        ("GET", Some(name)) => request.get(name),
        ("PUT", Some(name)) => request.replace(name),
        ("PATCH", Some(name)) => request.patch(name),
        ("DELETE", Some(name)) => request.delete(name),
        _ => Err(Refusal::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )),
    }
}

impl ObjectRequest<'_> {
    fn kind(&self) -> &'static Kind {
        self.target.kind
    }

    fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.kind(), self.namespace(), name)
    }

    fn is_dry(&self) -> bool {
        self.query.get("dryRun") == "All"
    }

    fn create(&self) -> Result<Response<Body>, Refusal> {
        let kind = self.kind();
        if kind.name == "SelfSubjectAccessReview" {
            let mut review = self.body.clone();
            review["status"] = json!({ "allowed": true, "reason": "the fake cluster allows all" });
            return Ok(json_response(201, &review));
        }
        let object = self.completed()?;
        validate(kind, &object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = self.key(&name);
        let admission = self.cluster.admission.lock().unwrap_or_else(PoisonError::into_inner);
        if kind.name == "Pod" {
            admit_pod(self.cluster, self.namespace(), &object)?;
        }
        if self.is_dry() {
            return Ok(json_response(201, &object));
        }
        let made = self.cluster.store.create(&key, object)?;
        drop(admission);
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
        if kind.name == "Pod" {
            kubelet::adopt(self.cluster, &key, uid);
        }
        let mut owners = made["metadata"]["ownerReferences"].as_array().into_iter().flatten().peekable();
        if owners.peek().is_some()
            && !owners.filter_map(|it| it["uid"].as_str()).any(|it| self.cluster.store.has_uid(it))
        {
            self.cluster.collect(&key);
        }
        Ok(json_response(201, &made))
    }

    /// The object with the server's fields.
    fn completed(&self) -> Result<Value, Refusal> {
        let (kind, mut object) = (self.kind(), self.body.clone());
        if !object.is_object() {
            return Err(Refusal::bad_request("the body of the request is no object"));
        }
        for (field, value) in [("apiVersion", kind.api_version()), ("kind", kind.name.to_owned())] {
            if object[field].as_str().is_some_and(|it| it != value) {
                return Err(Refusal::bad_request(format!("{field} `{}` does not match `{value}`", object[field])));
            }
            object[field] = json!(value);
        }
        if kind.namespaced {
            let namespace = self.namespace();
            let key = Key { plural: "namespaces", namespace: String::new(), name: namespace.to_owned() };
            if self.cluster.store.get(&key).is_none() {
                return Err(Refusal::not_found("namespaces", namespace));
            }
            if object["metadata"]["namespace"].as_str().is_some_and(|it| it != namespace) {
                let message = "the namespace of the provided object does not match the namespace sent on the request";
                return Err(Refusal::bad_request(message));
            }
            object["metadata"]["namespace"] = json!(namespace);
        }
        let meta = &mut object["metadata"];
        if let Some(prefix) = meta["generateName"].as_str()
            && meta["name"].as_str().is_none_or(str::is_empty)
        {
            meta["name"] = json!(format!("{prefix}{}", &random_hex::<3>()[..5]));
        }
        stamp(&mut object);
        match kind.name {
            "Pod" => default_pod(&mut object),
            "PersistentVolumeClaim" => object["status"] = json!({ "phase": "Bound" }),
            "Namespace" => object["status"] = json!({ "phase": "Active" }),
            _ => {}
        }
        Ok(object)
    }

    fn found(&self, key: &Key) -> Result<Value, Refusal> {
        let found = self.cluster.store.get(key).ok_or_else(|| Refusal::not_found(key.plural, &key.name))?;
        Ok(self.with_usage(found))
    }

    /// Adds the present usage to a quota.
    fn with_usage(&self, mut object: Value) -> Value {
        if self.kind().name == "ResourceQuota" {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let used = used(self.cluster, &namespace, &object);
            object["status"] = json!({ "hard": object["spec"]["hard"], "used": used });
        }
        object
    }

    fn shown(&self, object: Value) -> Value {
        if !self.metadata_only {
            return object;
        }
        json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
    }

    fn get(&self, name: &str) -> Result<Response<Body>, Refusal> {
        let found = self.found(&self.key(name))?;
        Ok(json_response(200, &self.shown(found)))
    }

    fn selector(&self) -> Result<Selector, Refusal> {
        Selector::parse(self.query.get("labelSelector"), self.query.get("fieldSelector"))
    }

    fn list(&self) -> Result<Response<Body>, Refusal> {
        let (kind, selector) = (self.kind(), self.selector()?);
        let listing = self.cluster.store.list(kind.plural, self.target.namespace.as_deref());
        let from = Continuation::parse(self.query.get("continue"))?;
        if let Some(from) = &from
            && !self.cluster.store.remembers(from.version)
        {
            let message = "The provided continue parameter is too old to display a consistent list result. You can \
                start a new list without the continue parameter.";
            return Err(Refusal::expired(message));
        }
        let limit = self.query.number("limit").filter(|it| *it > 0).and_then(|it| usize::try_from(it).ok());
        let after = |key: &Key| from.as_ref().is_none_or(|it| (&key.namespace, &key.name) > (&it.namespace, &it.name));
        let chosen: Vec<_> =
            listing.objects.into_iter().filter(|(key, it)| after(key) && selector.admits(it)).collect();
        let left = limit.map_or(0, |it| chosen.len().saturating_sub(it));
        let version = from.map_or(listing.version, |it| it.version);
        let mut meta = json!({ "resourceVersion": version.to_string() });
        let page = &chosen[..chosen.len() - left];
        if left > 0
            && let Some((last, _)) = page.last()
        {
            let next = Continuation { version, namespace: last.namespace.clone(), name: last.name.clone() };
            meta["continue"] = json!(next.to_token());
            if selector.is_empty() {
                meta["remainingItemCount"] = json!(left);
            }
        }
        let items: Vec<Value> = page.iter().map(|(_, it)| self.shown(self.with_usage(it.clone()))).collect();
        let (list, api) = match self.metadata_only {
            true => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            false => (format!("{}List", kind.name), kind.api_version()),
        };
        Ok(json_response(200, &json!({ "kind": list, "apiVersion": api, "metadata": meta, "items": items })))
    }

    fn replace(&self, name: &str) -> Result<Response<Body>, Refusal> {
        let body = self.body.clone();
        self.change(name, |object| {
            let version = body["metadata"]["resourceVersion"].as_str();
            if version.is_some_and(|it| object["metadata"]["resourceVersion"] != it) {
                let why = "the object has been modified; please apply your changes to the latest version and try again";
                return Err(Refusal::conflict(self.kind().plural, name, why));
            }
            let (meta, status) = (object["metadata"].clone(), object["status"].clone());
            if self.target.subresource.as_deref() == Some("status") {
                object["status"] = body["status"].clone();
                return Ok(());
            }
            *object = body;
            for field in ["uid", "creationTimestamp", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                if !meta[field].is_null() {
                    object["metadata"][field] = meta[field].clone();
                }
            }
            if !status.is_null() {
                object["status"] = status;
            }
            Ok(())
        })
    }

    fn patch(&self, name: &str) -> Result<Response<Body>, Refusal> {
        let applied = !self.query.get("fieldManager").is_empty() && self.cluster.store.get(&self.key(name)).is_none();
        if applied && self.body["kind"].is_string() {
            // Server-side apply creates missing objects.
            return self.create();
        }
        let only_status = self.target.subresource.as_deref() == Some("status");
        self.change(name, |object| {
            let version = self.body["metadata"]["resourceVersion"].as_str();
            if version.is_some_and(|it| object["metadata"]["resourceVersion"] != it) {
                let why = "the object has been modified; please apply your changes to the latest version and try again";
                return Err(Refusal::conflict(self.kind().plural, name, why));
            }
            let status = object["status"].clone();
            merge(object, &self.body);
            if !only_status && !status.is_null() {
                object["status"] = status;
            }
            Ok(())
        })
    }

    fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Value) -> Result<(), Refusal>,
    ) -> Result<Response<Body>, Refusal> {
        let key = self.key(name);
        let changed = self.cluster.store.update(&key, |object| {
            let before = object.clone();
            change(object)?;
            validate(self.kind(), object)?;
            if self.kind().name == "Pod" {
                validate_change(name, &before, object)?;
            }
            Ok(())
        })?;
        let meta = &changed["metadata"];
        let held = meta["finalizers"].as_array().is_some_and(|it| !it.is_empty());
        if self.kind().name != "Pod" && !meta["deletionTimestamp"].is_null() && !held {
            self.cluster.collect(&key);
        }
        Ok(json_response(200, &changed))
    }

    fn delete(&self, name: &str) -> Result<Response<Body>, Refusal> {
        let key = self.key(name);
        let object = self.found(&key)?;
        let uid = self.body["preconditions"]["uid"].as_str();
        if let Some(uid) = uid.filter(|it| object["metadata"]["uid"] != *it) {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                object["metadata"]["uid"]
            );
            return Err(Refusal::conflict(key.plural, name, &why));
        }
        if self.is_dry() {
            return Ok(json_response(200, &object));
        }
        Ok(json_response(200, &self.deleted(&key, &object)))
    }

    /// The object as it is after the request to delete it.
    fn deleted(&self, key: &Key, object: &Value) -> Value {
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|it| !it.is_empty());
        let usual = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace_period = self.body["gracePeriodSeconds"].as_i64();
        let grace_period = grace_period.or_else(|| self.query.get("gracePeriodSeconds").parse().ok());
        let grace = grace_period.unwrap_or(usual);
        let runs = self.kind().name == "Pod" && object["spec"]["nodeName"].is_string() && grace > 0;
        if !runs && !held {
            self.cluster.collect(key);
            return object.clone();
        }
        let marked = self.cluster.store.update(key, |it| {
            mark_deleted(it, grace);
            Ok(())
        });
        marked.unwrap_or_else(|_| object.clone())
    }

    fn delete_all(&self) -> Result<Response<Body>, Refusal> {
        let selector = self.selector()?;
        let listing = self.cluster.store.list(self.kind().plural, self.target.namespace.as_deref());
        let chosen = listing.objects.iter().filter(|(_, it)| selector.admits(it));
        let items: Vec<Value> = chosen.map(|(key, it)| self.deleted(key, it)).collect();
        let list = json!({
            "kind": format!("{}List", self.kind().name), "apiVersion": self.kind().api_version(),
            "metadata": { "resourceVersion": self.cluster.store.version().to_string() }, "items": items,
        });
        Ok(json_response(200, &list))
    }
}

/// Where a list continues.
#[derive(Debug)]
struct Continuation {
    version: u64,
    namespace: String,
    name: String,
}

impl Continuation {
    fn to_token(&self) -> String {
        STANDARD.encode(json!({ "v": self.version, "ns": self.namespace, "start": self.name }).to_string())
    }

    fn parse(token: &str) -> Result<Option<Self>, Refusal> {
        if token.is_empty() {
            return Ok(None);
        }
        let read = || {
            let json: Value = serde_json::from_slice(&STANDARD.decode(token).ok()?).ok()?;
            let text = |field: &str| json[field].as_str().map(str::to_owned);
            Some(Self { version: json["v"].as_u64()?, namespace: text("ns")?, name: text("start")? })
        };
        read().map(Some).ok_or_else(|| Refusal::bad_request("continue key is not valid"))
    }
}
