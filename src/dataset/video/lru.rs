//! Least recently used first out, bounded by a cost such as bytes.

use std::hash::Hash;

use lru::LruCache;

pub(super) struct Bounded<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    cost: usize,
    limit: usize,
}

impl<K: Hash + Eq, V: Clone> Bounded<K, V> {
    pub fn new(limit: usize) -> Bounded<K, V> {
        Bounded { entries: LruCache::unbounded(), cost: 0, limit }
    }

    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.entries.get(key).map(|(value, _)| value.clone())
    }

    /// Inserts, then drops the least recently used until the cost fits; what alone exceeds the limit is not kept.
    pub fn insert(&mut self, key: K, value: V, cost: usize) {
        if let Some((_, replaced)) = self.entries.put(key, (value, cost)) {
            self.cost -= replaced;
        }
        self.cost += cost;
        while self.cost > self.limit {
            match self.entries.pop_lru() {
                Some((_, (_, dropped))) => self.cost -= dropped,
                None => break,
            }
        }
    }

    pub fn cost(&self) -> usize {
        self.cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_go_first() {
        let mut cache = Bounded::new(10);
        cache.insert("a", 1, 4);
        cache.insert("b", 2, 4);
        assert_eq!(cache.get("a"), Some(1));
        cache.insert("c", 3, 4);
        assert_eq!((cache.get("a"), cache.get("b"), cache.get("c")), (Some(1), None, Some(3)));
        cache.insert("c", 5, 9);
        assert_eq!((cache.get("a"), cache.get("c"), cache.cost()), (None, Some(5), 9));
        cache.insert("d", 6, 11);
        assert_eq!((cache.get("d"), cache.cost()), (None, 0));
    }
}
