//! The contract that every stream keeps: one set of tests, `contract/stream.rs`, which is mounted
//! once for each transport.
//!
//! A mount defines how to make a pair of ends and the bytes of the largest message. Streams that
//! hold few bytes get shorter messages, so that their tests end in time. Guarantees of encrypted
//! streams alone are in `contract/encrypted.rs`.

#![allow(clippy::duplicate_mod, reason = "the same tests run over every transport")]

#[macro_use]
#[path = "contract/mount.rs"]
mod mount;
#[path = "contract/drive.rs"]
#[allow(dead_code, reason = "not every mount uses all of it")]
mod drive;
#[cfg(target_os = "linux")]
#[path = "contract/encrypted.rs"]
mod encrypted;
#[path = "contract/head.rs"]
mod head;

mount!(mem_of_1_byte, largest: 2 << 10, maypole_transports::mem::pair(1));
mount!(mem_of_7_bytes, largest: 10 << 10, maypole_transports::mem::pair(7));
mount!(mem_of_4096_bytes, largest: 1 << 20, maypole_transports::mem::pair(4096));
mount!(#[cfg(target_os = "linux")] pipe, largest: 4 << 20, crate::drive::pipe());
mount!(#[cfg(target_os = "linux")] pipe_backwards, largest: 1 << 20, {
    let (writer, reader) = crate::drive::pipe();
    (reader, writer)
});
mount!(#[cfg(target_os = "linux")] tcp, largest: 4 << 20, crate::tcp(None));
mount!(#[cfg(target_os = "linux")] tcp_of_small_buffers, largest: 1 << 20, {
    crate::tcp(Some(4096))
});
mount!(#[cfg(target_os = "linux")] encrypted_mem_of_1_byte, largest: 2 << 10, narrow: true, {
    crate::drive::encrypted(maypole_transports::mem::pair(1))
});
mount!(#[cfg(target_os = "linux")] encrypted_mem_of_7_bytes, largest: 10 << 10, narrow: true, {
    crate::drive::encrypted(maypole_transports::mem::pair(7))
});
mount!(#[cfg(target_os = "linux")] encrypted_mem_of_4096_bytes, largest: 1 << 20, {
    crate::drive::encrypted(maypole_transports::mem::pair(4096))
});
mount!(#[cfg(target_os = "linux")] encrypted_tcp, largest: 4 << 20, {
    crate::drive::encrypted(crate::tcp(None))
});
mount!(#[cfg(target_os = "linux")] encrypted_tcp_of_small_buffers, largest: 1 << 20, {
    crate::drive::encrypted(crate::tcp(Some(4096)))
});

/// The two ends of a loopback connection, with buffers of about `buffers` bytes.
#[cfg(target_os = "linux")]
fn tcp(buffers: Option<usize>) -> (maypole_transports::Tcp, maypole_transports::Tcp) {
    use maypole_transports::Tcp;
    use socket2::{Domain, SockAddr, Socket, Type};
    let socket = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if let Some(bytes) = buffers {
            socket.set_send_buffer_size(bytes).unwrap();
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        socket
    };
    let listener = socket();
    let near = socket();
    listener.bind(&SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    listener.listen(1).unwrap();
    near.connect(&listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    (Tcp::new(near.into()).unwrap(), Tcp::new(far.into()).unwrap())
}
