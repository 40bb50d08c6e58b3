//! Places for connections after their handshake. One identity has a few places, and all strangers
//! together have a limited number. Managers and operators have reserved places.

use super::caller::Caller;
use super::server::ServerLimits;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum connections of one node. An agent needs one or two.
const NODE_MAX: usize = 16;
/// Maximum connections of one manager, or of one operator's credentials. A manager forwards each
/// event stream of its clients on a connection of its own.
const PRIVILEGED_MAX: usize = 64;

/// The places of one server. Clones share the places.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPlaces {
    common: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    anonymous: Arc<Semaphore>,
    by_identity: Arc<Mutex<HashMap<String, usize>>>,
}

/// An open connection. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    places: ConnectionPlaces,
    identity: Option<String>,
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

/// The class of places that a caller may use. Reserved places are for managers and operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precedence {
    Reserved,
    Common,
}

impl ConnectionPlaces {
    pub fn new(limits: &ServerLimits) -> Self {
        Self {
            common: Arc::new(Semaphore::new(limits.connections)),
            reserved: Arc::new(Semaphore::new(limits.reserved)),
            anonymous: Arc::new(Semaphore::new(limits.anonymous)),
            by_identity: Arc::default(),
        }
    }

    /// Takes a place for a connection of `caller`. The error names the places that are all taken.
    pub fn take(&self, caller: &Caller, precedence: Precedence) -> Result<ConnectionPlace, &'static str> {
        let most = if precedence == Precedence::Reserved { PRIVILEGED_MAX } else { NODE_MAX };
        let stranger = match caller {
            Caller::Anonymous => {
                Some(self.anonymous.clone().try_acquire_owned().map_err(|_| "all places without certificate")?)
            }
            _ => None,
        };
        let common = self.common.clone().try_acquire_owned();
        let permit = match precedence {
            Precedence::Reserved => common.or_else(|_| self.reserved.clone().try_acquire_owned()),
            Precedence::Common => common,
        };
        let permit = permit.map_err(|_| "all places")?;
        let identity = match caller {
            Caller::Node { key, .. } | Caller::Operator { key, .. } => Some(key.clone()),
            Caller::Local { .. } | Caller::Anonymous => None,
        };
        if let Some(identity) = &identity {
            let mut known = self.by_identity.lock().unwrap_or_else(PoisonError::into_inner);
            let open = known.entry(identity.clone()).or_default();
            if *open >= most {
                return Err("all places of one identity");
            }
            *open += 1;
        }
        Ok(ConnectionPlace { places: self.clone(), identity, _permits: [Some(permit), stranger] })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let Some(identity) = &self.identity else { return };
        let mut known = self.places.by_identity.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = known.get_mut(identity) {
            *open -= 1;
            if *open == 0 {
                known.remove(identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::Wall;

    fn operator(key: &str) -> Caller {
        Caller::Operator {
            name: "o".into(),
            key: key.into(),
            cert_not_before: Wall(0),
            cert_not_after: Wall(1),
            replaced: false,
        }
    }

    fn places(connections: usize, reserved: usize) -> ConnectionPlaces {
        ConnectionPlaces::new(&ServerLimits { connections, reserved, ..ServerLimits::default() })
    }

    #[test]
    fn one_identity_has_few_places_and_leaves_nothing_behind() {
        let places = places(100, 0);
        let take = |key: &str| places.take(&operator(key), Precedence::Common);
        let mut open: Vec<_> = (0..NODE_MAX).map(|_| take("a").expect("a place")).collect();
        assert_eq!(take("a").err(), Some("all places of one identity"));
        open.push(take("b").expect("another identity"));
        drop(open);
        assert!(take("a").is_ok() && places.by_identity.lock().unwrap().is_empty());
        assert_eq!(places.common.available_permits(), 100);
    }

    #[test]
    fn managers_and_operators_have_places_when_all_others_are_taken() {
        let places = places(2, 1);
        let open: Vec<_> = ["a", "b"].map(|key| places.take(&operator(key), Precedence::Common)).into();
        assert!(open.iter().all(Result::is_ok));
        assert_eq!(places.take(&operator("c"), Precedence::Common).err(), Some("all places"));
        let own = places.take(&operator("d"), Precedence::Reserved).expect("a reserved place");
        assert!(places.take(&operator("e"), Precedence::Reserved).is_err(), "the reserved places are bounded too");
        drop(own);
        assert!(places.take(&operator("e"), Precedence::Reserved).is_ok());
    }
}
