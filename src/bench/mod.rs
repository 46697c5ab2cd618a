//! Measurements that anyone can repeat.
