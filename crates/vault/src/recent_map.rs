//! A map with limits that forgets its oldest entries.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};

/// The limits of a map.
#[derive(Debug, Clone, Copy)]
pub struct RecentLimits {
    /// Maximum number of entries.
    pub count: usize,
    /// Maximum size of all entries together. The last entry is kept whatever its size.
    pub size: usize,
}

/// A map that forgets the oldest entries beyond its limits.
pub struct RecentMap<K, V> {
    entries: BTreeMap<K, (V, usize)>,
    /// The keys, the oldest first.
    order: VecDeque<K>,
    size: usize,
}

impl<K, V> Default for RecentMap<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new(), size: 0 }
    }
}

impl<K: Ord + Clone, V> RecentMap<K, V> {
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|(value, _)| value)
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some((_, size)) = self.entries.remove(key) {
            self.size -= size;
            self.order.retain(|known| known.borrow() != key);
        }
    }

    /// Adds an entry. A known entry stays as it is.
    pub fn insert(&mut self, key: K, value: V, size: usize, limits: RecentLimits) {
        if self.entries.contains_key(&key) {
            return;
        }
        self.order.push_back(key.clone());
        self.entries.insert(key, (value, size));
        self.size += size;
        while self.order.len() > 1 && (self.order.len() > limits.count || self.size > limits.size) {
            let oldest = self.order.pop_front().and_then(|key| self.entries.remove(&key));
            self.size -= oldest.map_or(0, |(_, size)| size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_are_forgotten() {
        let limits = RecentLimits { count: 3, size: 100 };
        let mut map = RecentMap::default();
        for key in ["d", "c", "b", "a"] {
            map.insert(key, key, 10, limits);
        }
        assert_eq!(["d", "c", "b", "a"].map(|key| map.get(key).is_some()), [false, true, true, true]);
        map.insert("c", "other", 10, limits);
        assert_eq!(map.get("c"), Some(&"c"));
        map.insert("e", "e", 85, limits);
        assert_eq!(["c", "b", "a", "e"].map(|key| map.get(key).is_some()), [false, false, true, true]);
        map.insert("f", "f", 1000, limits);
        assert_eq!((map.get("a"), map.get("e"), map.get("f")), (None, None, Some(&"f")));
        assert_eq!((map.entries.len(), map.size), (1, 1000));
    }
}
