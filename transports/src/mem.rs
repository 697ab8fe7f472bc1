//! tmp
use crate::stream::{Fault, HEAD, Stream};
use maypole_kernels::{View, ViewMut};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
/// tmp
#[derive(Debug)]
pub struct Mem {
    out: Arc<Mutex<VecDeque<u8>>>,
    inn: Arc<Mutex<VecDeque<u8>>>,
    cap: usize,
}
/// tmp
pub fn pair(cap: usize) -> (Mem, Mem) {
    let (a, b): (Arc<Mutex<VecDeque<u8>>>, Arc<Mutex<VecDeque<u8>>>) = Default::default();
    (Mem { out: a.clone(), inn: b.clone(), cap }, Mem { out: b, inn: a, cap })
}
impl Stream for Mem {
    fn send(&mut self, head: &[u8; HEAD], body: View<'_>, skip: usize) -> Result<usize, Fault> {
        let mut q = self.out.lock().unwrap();
        let room = self.cap - q.len().min(self.cap);
        let all: Vec<u8> = head.iter().copied().chain(body.to_vec()).skip(skip).take(room).collect();
        q.extend(&all);
        Ok(all.len())
    }
    fn receive(&mut self, head: &mut [u8; HEAD], body: ViewMut<'_>, skip: usize) -> Result<usize, Fault> {
        let mut q = self.inn.lock().unwrap();
        let n = q.len().min(HEAD + body.len() - skip);
        for i in 0..n {
            let b = q.pop_front().unwrap();
            let at = skip + i;
            if at < HEAD { head[at] = b } else { body.slice(at - HEAD, 1).fill_from(&[b]) }
        }
        Ok(n)
    }
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
    fn finish(&mut self) {}
}
