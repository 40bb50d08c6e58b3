//! Bounds the number of incoming streams, in total and for each address. While all places are
//! taken, a new stream may end a waiting one, whose first frame has not arrived. A waiting stream
//! ends at once if its address has more streams than the address of the new stream; otherwise it
//! ends only if it is slow. An honest peer sends its first frame with the connection, so only a
//! slow or silent peer loses its place. Pure apart from the lock; the time is passed in.

use crate::keyed_limiter::network;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Maximum streams at the same time.
const STREAMS_MAX: usize = 64;
/// Maximum streams of one address at the same time. Several nodes may share an address behind NAT.
const OF_ONE_ADDRESS: usize = 8;
/// A stream without its first frame counts as slow after this time.
const PATIENCE: Duration = Duration::from_millis(250);

/// The places of all incoming streams. Clones share the places.
#[derive(Clone, Default)]
pub struct StreamPlaces(Arc<Mutex<PlaceTable>>);

#[derive(Default)]
struct PlaceTable {
    next: u64,
    /// The taken places by number, oldest first.
    taken: BTreeMap<u64, Place>,
}

struct Place {
    from: IpAddr,
    since: Instant,
    /// Set until the first frame was decrypted. Dropping the sender ends the stream.
    waiting: Option<oneshot::Sender<()>>,
}

/// The place of one stream. Dropping it frees the place.
pub struct StreamPlace {
    places: StreamPlaces,
    id: u64,
}

impl StreamPlaces {
    /// Takes a place. The receiver resolves when the stream has to end. Returns None if no place is
    /// free and no other stream has to end.
    pub fn take(&self, from: IpAddr, now: Instant) -> Option<(StreamPlace, oneshot::Receiver<()>)> {
        let from = network(from);
        let mut table = self.lock();
        let own = table.count(from);
        let slow = |place: &Place| now.saturating_duration_since(place.since) >= PATIENCE;
        let victim = if own >= OF_ONE_ADDRESS {
            Some(table.oldest_waiting(|place| place.from == from && slow(place))?)
        } else if table.taken.len() >= STREAMS_MAX {
            match table.busiest().filter(|busiest| table.count(*busiest) > own + 1) {
                Some(busiest) => Some(table.oldest_waiting(|place| place.from == busiest)?),
                None => Some(table.oldest_waiting(slow)?),
            }
        } else {
            None
        };
        if let Some(victim) = victim {
            table.taken.remove(&victim);
        }
        let (sender, ended) = oneshot::channel();
        let id = table.next;
        table.next += 1;
        table.taken.insert(id, Place { from, since: now, waiting: Some(sender) });
        Some((StreamPlace { places: self.clone(), id }, ended))
    }

    fn lock(&self) -> MutexGuard<'_, PlaceTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlaceTable {
    fn count(&self, from: IpAddr) -> usize {
        self.taken.values().filter(|place| place.from == from).count()
    }

    /// The address with the most places, of the addresses that have a waiting stream.
    fn busiest(&self) -> Option<IpAddr> {
        let waiting = self.taken.values().filter(|place| place.waiting.is_some());
        waiting.map(|place| place.from).max_by_key(|from| self.count(*from))
    }

    fn oldest_waiting(&self, fits: impl Fn(&Place) -> bool) -> Option<u64> {
        let found = self.taken.iter().find(|(_, place)| place.waiting.is_some() && fits(place));
        found.map(|(id, _)| *id)
    }
}

impl StreamPlace {
    /// Keeps the place until the stream ends; call it after the first frame was decrypted. False if
    /// the stream has already lost the place.
    pub fn keep(&self) -> bool {
        let mut table = self.places.lock();
        let place = table.taken.get_mut(&self.id);
        place.is_some_and(|place| place.waiting.take().is_some())
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.places.lock().taken.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn one_address_has_few_places_and_a_slow_stream_gives_way() {
        let (places, start) = (StreamPlaces::default(), Instant::now());
        let taken: Vec<_> = (0..OF_ONE_ADDRESS).map(|_| places.take(address(1), start).expect("a place")).collect();
        assert!(places.take(address(1), start).is_none(), "all are young");
        assert!(taken[0].0.keep());
        let (_next, _) = places.take(address(1), start + PATIENCE).expect("the second gives way");
        let lost: Vec<bool> =
            taken.iter().map(|(place, _)| !place.places.lock().taken.contains_key(&place.id)).collect();
        assert_eq!(lost.iter().position(|lost| *lost), Some(1), "{lost:?}");
        assert!(!taken[1].0.keep());
        assert!(places.take(address(2), start).is_some());
    }

    #[test]
    fn a_crowd_from_few_addresses_leaves_room_for_others() {
        let (places, start) = (StreamPlaces::default(), Instant::now());
        let mut crowd: Vec<_> = (0..1500_u16).filter_map(|n| places.take(address((n % 100) as u8), start)).collect();
        assert_eq!(places.lock().taken.len(), STREAMS_MAX);
        let mut few: Vec<_> = (0..8).filter_map(|_| places.take(address(200), start)).collect();
        assert!(few.len() <= 1, "each of the crowd has one place only, as a newcomer would");
        assert!(places.take(address(201), start).is_none(), "all are young");
        let late = places.take(address(201), start + PATIENCE).expect("the slowest of many addresses gives way");
        assert!(late.0.keep());
        drop(late);
        few.clear();
        crowd.clear();
        assert!(places.lock().taken.is_empty());

        let crowd: Vec<_> = (0..1500_u16).filter_map(|n| places.take(address((n % 9) as u8), start)).collect();
        assert_eq!((crowd.len(), places.lock().taken.len()), (STREAMS_MAX, STREAMS_MAX));
        let honest = places.take(address(200), start).expect("the busiest address gives way");
        assert!(honest.0.keep());
        assert_eq!(places.lock().taken.len(), STREAMS_MAX);
    }

    #[test]
    fn streams_in_use_never_give_way() {
        let (places, start) = (StreamPlaces::default(), Instant::now());
        let taken: Vec<_> =
            (0..8).flat_map(|n| (0..8).map(move |_| n)).filter_map(|n| places.take(address(n), start)).collect();
        assert!(taken.iter().all(|(place, _)| place.keep()));
        assert!(places.take(address(200), start + PATIENCE).is_none());
    }
}
