//! Lists and maps that a template changes in place, as Python's. `template/python_source.rs` makes
//! them of the literals and `set` values of a text that calls such a method, and `vars/scope.rs` of
//! the variables that it reads. All other values stay constant.

use super::{FilterResult, failure, list};
use crate::lang::python;
use crate::template::bounds;
use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of the function that makes a container of a literal.
pub const NEW: &str = "__new";
/// Name of the function that makes a container of a value that `set` stores.
pub const OWN: &str = "__own";
/// Maximum nesting depth of containers.
const DEPTH_MAX: usize = 64;

pub fn register(env: &mut Environment<'static>) {
    env.add_function(NEW, |value: Value| container(&value, 1));
    env.add_function(OWN, |value: Value| container(&value, DEPTH_MAX));
}

/// A container with the items of a variable, see `container`.
pub fn own_container(value: &Value) -> FilterResult {
    container(value, DEPTH_MAX)
}

/// A container with the items of `value`. Items that are lists or maps become containers too, up to
/// `depth` levels. A value that is a container already, and one that is neither list nor map, is
/// returned as it is.
fn container(value: &Value, depth: usize) -> FilterResult {
    if depth == 0 || value.downcast_object_ref::<List>().is_some() || value.downcast_object_ref::<Dict>().is_some() {
        return Ok(value.clone());
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| container(&item, depth - 1)).collect::<Result<Vec<_>, _>>()?;
            Ok(Value::from_object(List(Mutex::new(items))))
        }
        ValueKind::Map => {
            let mut out = Pairs::default();
            for key in value.try_iter()? {
                out.set(key.clone(), container(&value.get_item(&key)?, depth - 1)?);
            }
            Ok(Value::from_object(Dict(Mutex::new(out))))
        }
        _ => Ok(value.clone()),
    }
}

/// Fails if `value` contains the container at `own`. A container inside of itself would have no
/// end.
fn check_acyclic(value: &Value, own: *const ()) -> Result<(), Error> {
    let mut open = vec![(value.clone(), 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > DEPTH_MAX {
            return Err(failure(format!("lists or maps nested deeper than {DEPTH_MAX}")));
        }
        let same = value.downcast_object::<List>().is_some_and(|list| Arc::as_ptr(&list).cast() == own)
            || value.downcast_object::<Dict>().is_some_and(|dict| Arc::as_ptr(&dict).cast() == own);
        if same {
            return Err(failure("a list or map cannot contain itself"));
        }
        bounds::visit()?;
        match value.kind() {
            ValueKind::Seq => open.extend(value.try_iter()?.map(|item| (item, depth + 1))),
            ValueKind::Map if value.downcast_object_ref::<Dict>().is_some() => {
                for key in value.try_iter()? {
                    open.push((value.get_item(&key)?, depth + 1));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct List(Mutex<Vec<Value>>);

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        lock(&self.0).get(key.as_usize()?).cloned()
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(lock(&self.0).len())
    }
    fn call_method(self: &Arc<Self>, _: &mut State, method: &str, args: &[Value]) -> FilterResult {
        let own: *const () = Arc::as_ptr(self).cast();
        let index = |items: &[Value], at: &Value| -> Result<usize, Error> {
            let at = at.as_i64().ok_or_else(|| failure(format!("{method}: takes a number")))?;
            let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
            Ok(usize::try_from(if at < 0 { at.saturating_add(len) } else { at }).unwrap_or(0).min(items.len()))
        };
        match (method, args) {
            ("append", [item]) => {
                check_acyclic(item, own)?;
                lock(&self.0).push(item.clone());
            }
            ("extend", [more]) => {
                let more = list(method, more)?;
                check_acyclic(&Value::from(more.clone()), own)?;
                lock(&self.0).extend(more);
            }
            ("insert", [at, item]) => {
                check_acyclic(item, own)?;
                let mut items = lock(&self.0);
                let at = index(&items, at)?;
                items.insert(at, item.clone());
            }
            ("pop", [] | [_]) => {
                let mut items = lock(&self.0);
                let len = items.len();
                let at = match args.first() {
                    Some(at) => index(&items, at)?,
                    None => len.saturating_sub(1),
                };
                if at >= len {
                    return Err(failure("pop: the list has no such item"));
                }
                return Ok(items.remove(at));
            }
            ("remove", [item]) => {
                let at = list(method, &Value::from_dyn_object(self.clone()))?.iter().position(|own| own == item);
                let at = at.ok_or_else(|| failure("remove: the item is not in the list"))?;
                let mut items = lock(&self.0);
                if at < items.len() {
                    items.remove(at);
                }
            }
            ("clear", []) => lock(&self.0).clear(),
            ("reverse", []) => lock(&self.0).reverse(),
            ("sort", _) => {
                let (options,): (Kwargs,) = from_args(args)?;
                let reverse = options.get::<Option<bool>>("reverse")?.unwrap_or(false);
                options.assert_all_used()?;
                let mut items = lock(&self.0).clone();
                items.sort();
                if reverse {
                    items.reverse();
                }
                *lock(&self.0) = items;
            }
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        }
        bounds::value(Value::from_dyn_object(self.clone()))?;
        Ok(Value::from(()))
    }
}

/// The pairs of a map in the order in which they were added.
#[derive(Debug, Default)]
struct Pairs {
    by_key: BTreeMap<Value, (u64, Value)>,
    order: BTreeMap<u64, Value>,
    next: u64,
}

impl Pairs {
    fn set(&mut self, key: Value, value: Value) {
        if let Some((_, old)) = self.by_key.get_mut(&key) {
            *old = value;
            return;
        }
        self.order.insert(self.next, key.clone());
        self.by_key.insert(key, (self.next, value));
        self.next += 1;
    }

    fn remove(&mut self, key: &Value) -> Option<Value> {
        let (at, value) = self.by_key.remove(key)?;
        self.order.remove(&at);
        Some(value)
    }
}

#[derive(Debug)]
struct Dict(Mutex<Pairs>);

impl Object for Dict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        lock(&self.0).by_key.get(key).map(|(_, value)| value.clone())
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(lock(&self.0).order.values().cloned().collect())
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(lock(&self.0).by_key.len())
    }
    fn call_method(self: &Arc<Self>, _: &mut State, method: &str, args: &[Value]) -> FilterResult {
        let own: *const () = Arc::as_ptr(self).cast();
        match (method, args) {
            ("update", _) => {
                let (more, named): (Rest<Value>, Kwargs) = from_args(args)?;
                let mut pairs = Vec::new();
                for more in more.0 {
                    match more.kind() {
                        ValueKind::Map => {
                            for key in more.try_iter()? {
                                pairs.push((key.clone(), more.get_item(&key)?));
                            }
                        }
                        _ => {
                            for pair in list(method, &more)? {
                                match list(method, &pair)?.as_slice() {
                                    [key, value] => pairs.push((key.clone(), value.clone())),
                                    _ => return Err(failure("update: takes a map or pairs")),
                                }
                            }
                        }
                    }
                }
                for name in named.args() {
                    pairs.push((Value::from(name), named.get(name)?));
                }
                pairs.iter().try_for_each(|(key, value)| checked_key(key).and_then(|()| check_acyclic(value, own)))?;
                let mut all = lock(&self.0);
                pairs.into_iter().for_each(|(key, value)| all.set(key, value));
            }
            ("setdefault", [key] | [key, _]) => {
                checked_key(key)?;
                let other = args.get(1).cloned().unwrap_or_else(|| Value::from(()));
                check_acyclic(&other, own)?;
                let mut all = lock(&self.0);
                if let Some((_, value)) = all.by_key.get(key) {
                    return Ok(value.clone());
                }
                all.set(key.clone(), other.clone());
                return Ok(other);
            }
            ("pop", [key] | [key, _]) => {
                let found = lock(&self.0).remove(key).or_else(|| args.get(1).cloned());
                return found.ok_or_else(|| failure(format!("pop: the map has no key `{key}`")));
            }
            ("popitem", []) => {
                let mut all = lock(&self.0);
                let last = all.order.last_key_value().map(|(_, key)| key.clone());
                let key = last.ok_or_else(|| failure("popitem: the map is empty"))?;
                let value = all.remove(&key).unwrap_or_default();
                return Ok(Value::from(vec![key, value]));
            }
            ("clear", []) => *lock(&self.0) = Pairs::default(),
            _ => return Err(Error::from(ErrorKind::UnknownMethod)),
        }
        Ok(Value::from(()))
    }
}

fn checked_key(key: &Value) -> Result<(), Error> {
    match key.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            Err(failure(format!("`{}` cannot be the key of a map", python::text(key)?)))
        }
        _ => Ok(()),
    }
}
