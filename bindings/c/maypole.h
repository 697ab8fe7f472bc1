/* Maypole: collective communication for CPUs.
 *
 * Signatures are in the shape of NCCL's. Counts are in elements. Every function but the plain
 * getters returns MAYPOLE_SUCCESS or an error code; maypole_last_error() then returns the message,
 * and maypole_last_error_rank() the rank to look at first.
 *
 * A communicator is used by one thread at a time; maypole_abort() may be called from any thread.
 *
 * This file is generated from bindings/c/src by `cargo test -p maypole-c`, and committed.
 */

#ifndef MAYPOLE_H
#define MAYPOLE_H

#include <stddef.h>
#include <stdint.h>

// The version of this header; maypole_version() is that of the library.
#define MAYPOLE_VERSION_MAJOR 0
#define MAYPOLE_VERSION_MINOR 1
#define MAYPOLE_VERSION_PATCH 0
#define MAYPOLE_VERSION "0.1.0"

// One rank's membership in a group of ranks.
typedef struct maypole_comm maypole_comm;

// The result of a call.
typedef uint32_t maypole_result_t;

// One rank's membership in a group of ranks. NULL is refused everywhere.
typedef maypole_comm *maypole_comm_t;

// A collective, for maypole_explain().
typedef uint32_t maypole_collective_t;

// The type of elements.
typedef uint32_t maypole_data_type_t;

// The operation of a reduction.
typedef uint32_t maypole_op_t;

// The call succeeded.
#define MAYPOLE_SUCCESS 0

// An argument is wrong. Nothing was sent, and the communicator remains usable.
#define MAYPOLE_INVALID 1

// The ranks made different calls.
#define MAYPOLE_MISMATCH 2

// The timeout of a call expired.
#define MAYPOLE_TIMED_OUT 3

// A rank has exited or left.
#define MAYPOLE_PEER_LOST 4

// Another rank failed first, or a rank called maypole_abort().
#define MAYPOLE_ABORTED 5

// An earlier call on this communicator has failed.
#define MAYPOLE_FAILED 6

// The ranks could not be connected.
#define MAYPOLE_CONNECT 7

// The rendezvous of the ranks failed.
#define MAYPOLE_JOIN 8

// The communicator was made before this process was forked.
#define MAYPOLE_FORKED 9

// The call is not supported.
#define MAYPOLE_UNSUPPORTED 10

// A defect of this library: it panicked. The communicator has failed.
#define MAYPOLE_PANIC 11

// 16-bit floating point, IEEE 754.
#define MAYPOLE_FLOAT16 0

// 16-bit floating point with the range of 32 bits.
#define MAYPOLE_BFLOAT16 1

// float
#define MAYPOLE_FLOAT32 2

// double
#define MAYPOLE_FLOAT64 3

// int8_t
#define MAYPOLE_INT8 4

// int16_t
#define MAYPOLE_INT16 5

// int32_t
#define MAYPOLE_INT32 6

// int64_t
#define MAYPOLE_INT64 7

// uint8_t
#define MAYPOLE_UINT8 8

// uint16_t
#define MAYPOLE_UINT16 9

// uint32_t
#define MAYPOLE_UINT32 10

// uint64_t
#define MAYPOLE_UINT64 11

// One byte: 0 is false, 1 is true. Has logical operations only.
#define MAYPOLE_BOOL 12

// Sum.
#define MAYPOLE_SUM 0

// Product.
#define MAYPOLE_PROD 1

// Minimum; a NaN anywhere gives NaN.
#define MAYPOLE_MIN 2

// Maximum; a NaN anywhere gives NaN.
#define MAYPOLE_MAX 3

// Floats: the sum of all contributions, each divided by the number of ranks first. Integers: the
// sum, divided once at the end, towards zero.
#define MAYPOLE_AVG 4

// Bitwise and; not for floats.
#define MAYPOLE_AND 5

// Bitwise or; not for floats.
#define MAYPOLE_OR 6

// Bitwise exclusive or; not for floats.
#define MAYPOLE_XOR 7

// maypole_broadcast
#define MAYPOLE_BROADCAST 0

// maypole_reduce
#define MAYPOLE_REDUCE 1

// maypole_all_reduce
#define MAYPOLE_ALL_REDUCE 2

// maypole_gather
#define MAYPOLE_GATHER 3

// maypole_all_gather
#define MAYPOLE_ALL_GATHER 4

// maypole_scatter
#define MAYPOLE_SCATTER 5

// maypole_reduce_scatter
#define MAYPOLE_REDUCE_SCATTER 6

// maypole_all_to_all
#define MAYPOLE_ALL_TO_ALL 7

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of the last failure on this thread: rank, call, and cause. Valid until the
// next call fails on this thread. Empty if none has failed.
const char *maypole_last_error(void);

// Returns the rank that caused the last failure on this thread; -1 if no single rank did.
int64_t maypole_last_error_rank(void);

// Returns the name of a result, such as "timed out". A static string.
const char *maypole_result_string(maypole_result_t result);

// Returns the version of this library, such as "0.1.0". A static string.
const char *maypole_version(void);

// Joins the world of this process, from the variables of its launcher: `maypole run`, torchrun,
// mpirun, srun or another one. A process without a launcher is a world of one. maypole_close() ends
// it.
maypole_result_t maypole_init(maypole_comm_t *comm);

// Makes the communicators of `world` threads of this process, one for each thread: `comms` has
// room for `world` of them, by rank. Each thread calls maypole_close() on its own.
maypole_result_t maypole_init_threads(maypole_comm_t *comms, uintptr_t world);

// Leaves the group and frees the communicator, also on failure. Waits until sent messages have
// arrived, and up to 5 s until the other ranks have made as many calls. Also frees the registered
// memory of the communicator.
maypole_result_t maypole_close(maypole_comm_t comm);

// Returns this rank, from 0 to world - 1; -1 if `comm` is NULL.
int64_t maypole_rank(maypole_comm_t comm);

// Returns the number of ranks; -1 if `comm` is NULL.
int64_t maypole_world(maypole_comm_t comm);

// Ranks of equal `color` form a new group, ordered by `key` and then by rank. A rank with a
// negative color joins none: its `made` becomes NULL. All ranks call it.
maypole_result_t maypole_split(maypole_comm_t comm,
                               int64_t color,
                               int64_t key,
                               maypole_comm_t *made);

// Makes another group of the same ranks, for another thread. All ranks call it.
maypole_result_t maypole_duplicate(maypole_comm_t comm, maypole_comm_t *made);

// After a failure: makes a group of the surviving ranks. All of them call it. `comm` must still be
// closed.
maypole_result_t maypole_shrink(maypole_comm_t comm, maypole_comm_t *made);

// Aborts every call of the group on every rank. Any thread may call it. `why` may be NULL.
maypole_result_t maypole_abort(maypole_comm_t comm, const char *why);

// Sets the timeout of calls that wait for other ranks, in milliseconds.
maypole_result_t maypole_set_timeout(maypole_comm_t comm, uint64_t milliseconds);

// If `on` is not 0, every sum is ((x0 + x1) + x2) + ...: its bits depend on the contributions
// alone. All ranks set the same.
maypole_result_t maypole_set_deterministic(maypole_comm_t comm, int32_t on);

// Explains the algorithm of a call of `count` elements in `text`, a buffer of `room` bytes with the
// terminating 0. Longer text is truncated. `needed`, if it is not NULL, becomes the size for all of
// it.
maypole_result_t maypole_explain(maypole_comm_t comm,
                                 maypole_collective_t which,
                                 uintptr_t count,
                                 maypole_data_type_t data_type_number,
                                 char *text,
                                 uintptr_t room,
                                 uintptr_t *needed);

// Allocates a registered buffer of `bytes` zeroed bytes. The other ranks of the host map it, so
// that large calls on it copy each byte once. All ranks call it, each with its own length. The
// buffer is aligned to a page. maypole_free() or maypole_close() frees it.
maypole_result_t maypole_alloc(maypole_comm_t comm, uintptr_t bytes, void **memory);

// Frees a buffer of maypole_alloc(). The other ranks need not call it.
maypole_result_t maypole_free(maypole_comm_t comm, void *memory);

// Returns 1 if a type supports an operation. Returns 0 if not, or for an unknown type or operation.
int32_t maypole_supports(maypole_data_type_t data_type_number, maypole_op_t op);

// Returns the bytes of an element; 0 for an unknown type.
uintptr_t maypole_size(maypole_data_type_t data_type_number);

// Waits until all ranks have called this.
maypole_result_t maypole_barrier(maypole_comm_t comm);

// Copies the root's `send` (count elements) to every rank's `recv` (count). `send` of other ranks
// is not used. In place if `send == recv`.
maypole_result_t maypole_broadcast(const void *send,
                                   void *recv,
                                   uintptr_t count,
                                   maypole_data_type_t data_type,
                                   uintptr_t root,
                                   maypole_comm_t comm);

// Reduces the `send` (count elements) of all ranks into the root's `recv` (count). `recv` of other
// ranks is not used and may be NULL. In place on the root if `send == recv`.
maypole_result_t maypole_reduce(const void *send,
                                void *recv,
                                uintptr_t count,
                                maypole_data_type_t data_type,
                                maypole_op_t op,
                                uintptr_t root,
                                maypole_comm_t comm);

// Reduces the `send` (count elements) of all ranks into every rank's `recv` (count). In place if
// `send == recv`.
maypole_result_t maypole_all_reduce(const void *send,
                                    void *recv,
                                    uintptr_t count,
                                    maypole_data_type_t data_type,
                                    maypole_op_t op,
                                    maypole_comm_t comm);

// Collects the `send` (count elements) of all ranks, in rank order, in every rank's `recv` (world *
// count). In place if `send` is this rank's block of `recv`.
maypole_result_t maypole_all_gather(const void *send,
                                    void *recv,
                                    uintptr_t count,
                                    maypole_data_type_t data_type,
                                    maypole_comm_t comm);

// Reduces the `send` (world * count elements) of all ranks, and scatters block r of the result to
// rank r's `recv` (count). In place if `recv` is this rank's block of `send`.
maypole_result_t maypole_reduce_scatter(const void *send,
                                        void *recv,
                                        uintptr_t count,
                                        maypole_data_type_t data_type,
                                        maypole_op_t op,
                                        maypole_comm_t comm);

// Sends block r of `send` (world * count elements) to rank r, and receives block s of `recv`
// (world * count) from rank s. In place if `send == recv`.
maypole_result_t maypole_all_to_all(const void *send,
                                    void *recv,
                                    uintptr_t count,
                                    maypole_data_type_t data_type,
                                    maypole_comm_t comm);

// Collects the `send` (count elements) of all ranks, in rank order, in the root's `recv` (world *
// count). `recv` of other ranks is not used and may be NULL. In place on the root if its `send` is
// its block of `recv`.
maypole_result_t maypole_gather(const void *send,
                                void *recv,
                                uintptr_t count,
                                maypole_data_type_t data_type,
                                uintptr_t root,
                                maypole_comm_t comm);

// Copies block r of the root's `send` (world * count elements) to rank r's `recv` (count). `send`
// of other ranks is not used and may be NULL. In place on the root if its `recv` is its block of
// `send`.
maypole_result_t maypole_scatter(const void *send,
                                 void *recv,
                                 uintptr_t count,
                                 maypole_data_type_t data_type,
                                 uintptr_t root,
                                 maypole_comm_t comm);

// Reduces the `send` (count elements) of ranks 0 to r into rank r's `recv` (count). In place if
// `send == recv`.
maypole_result_t maypole_scan(const void *send,
                              void *recv,
                              uintptr_t count,
                              maypole_data_type_t data_type,
                              maypole_op_t op,
                              maypole_comm_t comm);

// Reduces the `send` (count elements) of ranks 0 to r - 1 into rank r's `recv` (count). Rank 0's
// `recv` does not change. In place if `send == recv`.
maypole_result_t maypole_exclusive_scan(const void *send,
                                        void *recv,
                                        uintptr_t count,
                                        maypole_data_type_t data_type,
                                        maypole_op_t op,
                                        maypole_comm_t comm);

// As maypole_all_gather(), but rank r sends `counts[r]` elements: `recv` has room for all of them.
// All ranks pass the same `counts`, one a rank.
maypole_result_t maypole_all_gather_v(const void *send,
                                      void *recv,
                                      const uintptr_t *counts,
                                      maypole_data_type_t data_type,
                                      maypole_comm_t comm);

// As maypole_reduce_scatter(), but rank r receives `counts[r]` elements: `send` has all of them.
// All ranks pass the same `counts`, one a rank.
maypole_result_t maypole_reduce_scatter_v(const void *send,
                                          void *recv,
                                          const uintptr_t *counts,
                                          maypole_data_type_t data_type,
                                          maypole_op_t op,
                                          maypole_comm_t comm);

// As maypole_all_to_all(), but the block for rank r has `send_counts[r]` elements, and the block
// from rank s has `recv_counts[s]`.
maypole_result_t maypole_all_to_all_v(const void *send,
                                      const uintptr_t *send_counts,
                                      void *recv,
                                      const uintptr_t *recv_counts,
                                      maypole_data_type_t data_type,
                                      maypole_comm_t comm);

// Sends `send` (count elements) to rank `peer`, which receives it with the same `tag`.
maypole_result_t maypole_send(const void *send,
                              uintptr_t count,
                              maypole_data_type_t data_type,
                              uintptr_t peer,
                              uint32_t tag,
                              maypole_comm_t comm);

// Receives `recv` (count elements) from rank `peer`, which sends it with the same `tag`.
maypole_result_t maypole_recv(void *recv,
                              uintptr_t count,
                              maypole_data_type_t data_type,
                              uintptr_t peer,
                              uint32_t tag,
                              maypole_comm_t comm);

// Receives a message of at most `count` elements from any rank. `peer` becomes the sender's rank,
// and `received` the number of elements.
maypole_result_t maypole_recv_any(void *recv,
                                  uintptr_t count,
                                  maypole_data_type_t data_type,
                                  uint32_t tag,
                                  uintptr_t *peer,
                                  uintptr_t *received,
                                  maypole_comm_t comm);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MAYPOLE_H */
